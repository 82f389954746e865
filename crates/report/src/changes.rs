//! Changes of metrics between two arms, or between two runs of an arm: pairs by seed.

use std::collections::BTreeMap;

use mmscale_document::{ArmRecord, Better, Metric, Value};
use mmscale_stats::{Change, first_look, holm, paired, pairs_needed};

/// The change of a metric over pairs of runs with equal seeds.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct MetricChange {
    /// The estimate with its interval.
    pub change: Change,
    /// The direction in which the metric improves.
    pub better: Option<Better>,
    /// Whether the change holds, tested together with those of the other headlines; `None` for a
    /// metric that is no headline, whose change is exploratory.
    pub holds: Option<bool>,
    /// Whether it is judged as at the first look ([`Looks`](mmscale_document::Looks)).
    pub first_look: bool,
}

/// The meaning of a change whose interval excludes that nothing changed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Verdict {
    /// The metric is worse.
    Worse,
    /// The metric changed, and neither direction is better by itself.
    Changed,
    /// The metric is better.
    Better,
}

impl Verdict {
    /// Returns the word for a table.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Worse => "worse",
            Self::Changed => "changed",
            Self::Better => "better",
        }
    }
}

impl MetricChange {
    /// Returns the size of the change for ordering: the logarithm of its ratio, so that a half is
    /// as large as a double. A change from 0 is the largest.
    pub(crate) fn size(&self) -> f64 {
        self.change.percent().map_or(f64::INFINITY, |percent| (1.0 + percent / 100.0).ln().abs())
    }

    /// Returns the meaning of the change. `None` if its interval includes that nothing changed, or
    /// if there are too few pairs for an interval.
    pub fn verdict(&self) -> Option<Verdict> {
        self.change.is_clear().then(|| match (self.better, self.change.is_up()) {
            (None, _) => Verdict::Changed,
            (Some(Better::Lower), up) => {
                if up {
                    Verdict::Worse
                } else {
                    Verdict::Better
                }
            }
            (Some(Better::Higher), up) => {
                if up {
                    Verdict::Better
                } else {
                    Verdict::Worse
                }
            }
        })
    }
}

/// Returns the changes from one arm to another of the metrics that both have with equal units in at
/// least one common seed. The headlines are tested together (Holm): the family of tests is that of
/// these two arms. If the runs of one of them ended at the first look, so that there are too few
/// pairs for a signed-rank test, changes are judged as at that look.
pub fn changes<'a>(before: &'a ArmRecord, after: &'a ArmRecord) -> BTreeMap<&'a str, MetricChange> {
    let mut all = BTreeMap::new();
    for (name, from) in &before.metrics {
        let Some(to) = after.metrics.get(name).filter(|to| to.unit == from.unit) else { continue };
        let pairs = pairs((&before.seeds, from), (&after.seeds, to));
        let early = (before.first_look || after.first_look) && pairs.len() < pairs_needed(1);
        let looked = first_look(&pairs).filter(|_| early);
        let first_look = looked.is_some();
        let Some(change) = looked.or_else(|| paired(&pairs)) else { continue };
        let (better, holds) = (to.better, (from.headline || to.headline).then_some(false));
        all.insert(name.as_str(), MetricChange { change, better, holds, first_look });
    }
    let tested = || all.values().filter(|found| found.holds.is_some());
    let held = holm(&tested().map(|found| found.change.p).collect::<Vec<_>>());
    let tested = all.values_mut().filter(|found| found.holds.is_some());
    tested.zip(held).for_each(|(found, holds)| found.holds = Some(holds));
    all
}

/// Returns the values of the seeds that both have.
fn pairs(before: (&[u64], &Metric), after: (&[u64], &Metric)) -> Vec<(f64, f64)> {
    let by_seed = |(seeds, metric): (&[u64], &Metric)| -> BTreeMap<u64, f64> {
        let values = seeds.iter().copied().zip(metric.values.iter().copied());
        values.filter_map(|(seed, value)| Some((seed, Value::as_f64(value?)))).collect()
    };
    let after = by_seed(after);
    let both = by_seed(before).into_iter();
    both.filter_map(|(seed, value)| Some((value, *after.get(&seed)?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use mmscale_document::Average;

    fn arm(seeds: &[u64], metrics: &[(&str, Option<Better>, &[f64])]) -> ArmRecord {
        let metric = |&(name, better, values): &(&str, Option<Better>, &[f64])| {
            let metric = Metric {
                unit: "1".into(),
                better,
                headline: name.starts_with("head"),
                average: Average::default(),
                mean: 0.0,
                ci95: None,
                values: values.iter().map(|&x| (x >= 0.0).then_some(Value::Real(x))).collect(),
            };
            (name.to_owned(), metric)
        };
        ArmRecord {
            arm: "a".into(),
            seeds: seeds.to_vec(),
            metrics: metrics.iter().map(metric).collect(),
            host_metrics: BTreeMap::new(),
            ..ArmRecord::default()
        }
    }

    #[test]
    fn pairs_have_equal_seeds_and_both_values() {
        let before = arm(&[1, 2, 3, 4], &[("x", None, &[10.0, 20.0, 30.0, -1.0])]);
        let after = arm(&[4, 3, 2], &[("x", None, &[40.0, 15.0, 10.0]), ("y", None, &[1.0; 3])]);
        let found = changes(&before, &after);
        assert_eq!(found.len(), 1);
        let x = found["x"];
        assert_eq!((x.change.pairs, x.change.estimate, x.holds), (2, 0.5, None));
        assert_eq!(x.verdict(), None, "two pairs are too few");
        assert!(changes(&before, &arm(&[9], &[("x", None, &[1.0])])).is_empty());
    }

    #[test]
    fn headlines_are_tested_together_and_others_not_at_all() {
        let seeds = [1, 2, 3, 4, 5, 6];
        let of = |scale: f64| {
            let values: Vec<f64> = seeds.iter().map(|&seed| scale * (9.0 + seed as f64)).collect();
            let lower = Some(Better::Lower);
            arm(
                &seeds,
                &[
                    ("head_a", lower, &values),
                    ("head_b", Some(Better::Higher), &values),
                    ("other", lower, &values),
                ],
            )
        };
        let (before, after) = (of(1.0), of(2.0));
        let found = changes(&before, &after);
        // The smallest p value of six pairs is 2/64, too large for two tests at 5 %.
        assert_eq!(
            ["head_a", "head_b", "other"].map(|name| found[name].holds),
            [Some(false), Some(false), None]
        );
        assert_eq!(
            ["head_a", "head_b", "other"].map(|name| found[name].verdict()),
            [Some(Verdict::Worse), Some(Verdict::Better), Some(Verdict::Worse)]
        );
        let (mut before, mut after) = (before, after);
        for arm in [&mut before, &mut after] {
            arm.metrics.remove("head_b");
        }
        assert_eq!(changes(&before, &after)["head_a"].holds, Some(true), "one test needs 5 %");
    }
}
