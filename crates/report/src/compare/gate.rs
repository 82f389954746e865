//! The allowed size of a regression, for a program that shall fail on a larger one.

use thiserror::Error;

use super::{Comparison, Row};
use crate::changes::Verdict;
use crate::figure;
use crate::pattern::fits;

/// Metrics, and how much worse they may become.
#[derive(Clone, PartialEq, Debug)]
pub struct Gate {
    /// Names of metrics; `*` stands for any text.
    pattern: String,
    /// The largest allowed change for the worse, in percent.
    percent: f64,
}

/// A change for the worse that is larger than allowed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Regression(
    /// Study, arm, metric, and change.
    pub String,
);

/// Why a gate cannot be applied.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum GateError {
    /// The text has another form.
    #[error(
        "cannot read `{0}`: --fail-on-regression takes PATTERN=PERCENT%, such as \
         zone_lock_*=5% or cpu_ns_per_op=0%"
    )]
    Form(String),
    /// No metric with a better direction has such a name.
    #[error("no metric that can get worse is named `{0}`; compared: {1}")]
    NoMetric(String, String),
    /// There are too few pairs to tell a change from noise.
    #[error(
        "{pairs} common seeds are too few to tell a regression of `{metric}` from noise: at least \
         6 are needed; run both sides with --seeds 7"
    )]
    TooFew {
        /// The name of the metric.
        metric: String,
        /// The number of pairs.
        pairs: usize,
    },
    /// Something was measured before and not after.
    #[error("{0} is only in the documents before, so that a regression would not be seen")]
    Lost(String),
}

impl Gate {
    /// Parses `PATTERN=PERCENT%`.
    pub fn parse(text: &str) -> Result<Self, GateError> {
        let wrong = || GateError::Form(text.to_owned());
        let (pattern, percent) = text.split_once('=').ok_or_else(wrong)?;
        let percent = percent.trim().strip_suffix('%').ok_or_else(wrong)?.trim();
        let percent = percent.parse().ok().filter(|x: &f64| x.is_finite() && *x >= 0.0);
        let (pattern, percent) = (pattern.trim().to_owned(), percent.ok_or_else(wrong)?);
        if pattern.is_empty() { Err(wrong()) } else { Ok(Self { pattern, percent }) }
    }

    /// Returns the regressions that are larger than allowed: the interval of the change excludes
    /// that nothing changed, and the estimate is beyond the limit. From a mean of 0, every change
    /// is.
    pub fn regressions(&self, all: &[Comparison<'_>]) -> Result<Vec<Regression>, GateError> {
        let mut judged = 0;
        let mut found = Vec::new();
        for comparison in all {
            let study = &comparison.before.document.study;
            if let Some(arm) = comparison.only[0].first() {
                return Err(GateError::Lost(format!("arm `{arm}` of `{study}`")));
            }
            for arm in &comparison.arms {
                let lost = arm.only[0].iter().find(|name| fits(&self.pattern, name));
                if let Some(name) = lost {
                    let what = format!("`{name}` of `{study}`, arm `{}`,", arm.arm);
                    return Err(GateError::Lost(what));
                }
                let rows = arm.rows.iter().filter(|row| fits(&self.pattern, row.metric));
                for row in rows.filter(|row| row.found.better.is_some()) {
                    judged += 1;
                    if self.is_passed(row)? {
                        let change = figure::estimate(&row.found);
                        let (arm, metric) = (arm.arm, row.metric);
                        found.push(Regression(format!("{study}, {arm}: {metric} {change}")));
                    }
                }
            }
        }
        if judged == 0 {
            let rows = all.iter().flat_map(|one| &one.arms).flat_map(|arm| &arm.rows);
            let mut names: Vec<&str> =
                rows.filter(|row| row.found.better.is_some()).map(|row| row.metric).collect();
            names.sort_unstable();
            names.dedup();
            return Err(GateError::NoMetric(self.pattern.clone(), names.join(", ")));
        }
        Ok(found)
    }

    /// Returns whether a change is a regression beyond the limit.
    fn is_passed(&self, row: &Row<'_>) -> Result<bool, GateError> {
        let change = &row.found.change;
        if change.ci95.is_none() && !change.unchanged {
            let metric = row.metric.to_owned();
            return Err(GateError::TooFew { metric, pairs: change.pairs });
        }
        let beyond = change.percent().is_none_or(|percent| percent.abs() > self.percent);
        Ok(row.found.verdict() == Some(Verdict::Worse) && beyond)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gates_have_a_pattern_and_a_limit() {
        let gate = Gate::parse("zone_*=5%").unwrap();
        assert_eq!((gate.pattern.as_str(), gate.percent), ("zone_*", 5.0));
        assert_eq!(Gate::parse("a = 0.5 %").unwrap().percent, 0.5);
        for wrong in ["", "a", "a=", "a=5", "=5%", "a=-1%", "a=x%", "a=inf%", "a=NaN%"] {
            assert!(matches!(Gate::parse(wrong), Err(GateError::Form(_))), "{wrong}");
        }
    }
}
