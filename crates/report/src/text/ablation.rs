//! An ablation as text: for each metric, what each part of a change contributes.

use mmscale_document::{AblatedMetric, Ablation, Contribution, Interaction, machine_name};

use super::{WIDTH, cut, joined, wrap};
use crate::number::{change, scaled};
use crate::words;

/// The most interactions shown of a metric.
const PAIRS: usize = 3;
/// Interactions below this are not shown, in percent.
const LEAST: f64 = 0.5;

/// Formats an ablation, with lines of at most [`WIDTH`] columns.
pub fn ablation_text(ablation: &Ablation) -> String {
    let hash = ablation.profile_hash.get(..8).unwrap_or(&ablation.profile_hash);
    let title = format!(
        "{}: which part contributes what? {} CPUs of {} ({hash}), number of seeds: {}",
        ablation.study,
        ablation.cpus,
        machine_name(&ablation.profile, &ablation.params),
        ablation.seeds.len()
    );
    let mut lines = wrap(&title, "", "  ");
    let what = format!(
        "{} with every subset of {}: {} arms on the same seeds",
        ablation.arm,
        ablation.parts.join(", "),
        1_u32 << ablation.parts.len()
    );
    lines.extend(wrap(&what, "", "  "));
    if let Some(short) = words::short_analysis(ablation.rounds_min) {
        lines.extend(wrap(&short, "", "  "));
    }
    if let Some(few) = words::too_few(ablation.seeds.len(), 1) {
        lines.extend(wrap(&few, "", "  "));
    }
    for metric in &ablation.metrics {
        lines.push(String::new());
        lines.extend(of_metric(metric));
    }
    let foot = "Alone: the part by itself. On top: when all others are there. Share: on average \
                over all orders in which the parts can be added (Shapley value), with its 95 % \
                interval; the shares multiply to the change of all parts.";
    lines.push(String::new());
    lines.extend(wrap(foot, "", "  "));
    joined(lines)
}

fn of_metric(metric: &AblatedMetric) -> Vec<String> {
    let base = scaled(metric.base, &metric.unit);
    let Some(whole) = &metric.whole else {
        let why =
            format!("{}: {base}; a run has no value above 0, so there are no factors", metric.name);
        return wrap(&why, "", "  ");
    };
    let mut lines = vec![format!("{}: {base}, with all parts {}", metric.name, shown(whole))];
    lines.push(format!("  {:<24}{:>9}{:>9}{:>9}", "part", "alone", "on top", "share"));
    let mut parts: Vec<_> = metric.parts.iter().collect();
    let size = |of: &Contribution| (1.0 + of.percent / 100.0).ln().abs();
    parts.sort_by(|a, b| size(&b.share).total_cmp(&size(&a.share)));
    for part in parts {
        let [alone, on_top, share] =
            [part.alone, part.on_top, part.share].map(|of| change(of.percent));
        let interval = part.share.ci95.map_or(String::new(), interval);
        let row =
            format!("  {:<24}{alone:>9}{on_top:>9}{share:>9}  {interval}", cut(&part.part, 23));
        lines.push(cut(&row, WIDTH));
    }
    let mut pairs: Vec<&Interaction> = metric.pairs.iter().filter(|pair| is_shown(pair)).collect();
    pairs.sort_by(|a, b| size(&b.effect).total_cmp(&size(&a.effect)));
    for Interaction { parts: [a, b], effect } in pairs.into_iter().take(PAIRS) {
        let text =
            format!("{a} and {b} together: {} next to the product of their own", shown(effect));
        lines.extend(wrap(&text, "  ", "    "));
    }
    lines
}

/// Returns whether an interaction is large enough, and is one with most seeds.
fn is_shown(pair: &Interaction) -> bool {
    let clear = pair.effect.ci95.is_none_or(|[low, high]| low > 0.0 || high < 0.0);
    clear && pair.effect.percent.abs() >= LEAST
}

fn shown(of: &Contribution) -> String {
    let interval = of.ci95.map_or(String::new(), |ends| format!(" [{}]", interval(ends)));
    format!("{}{interval}", change(of.percent))
}

fn interval([low, high]: [f64; 2]) -> String {
    format!("{}..{}", change(low).trim_end_matches('%'), change(high))
}

#[cfg(test)]
mod tests {
    use super::*;
    use mmscale_document::PartContribution;

    fn of(percent: f64, ends: Option<[f64; 2]>) -> Contribution {
        Contribution { percent, ci95: ends }
    }

    fn metric() -> AblatedMetric {
        let part = |part: &str, percent: f64| PartContribution {
            part: part.to_owned(),
            alone: of(percent, None),
            on_top: of(percent / 2.0, None),
            share: of(percent, Some([percent - 1.0, percent + 1.0])),
        };
        let pair = |percent, ends| Interaction {
            parts: ["a=x".to_owned(), "b=y".to_owned()],
            effect: of(percent, ends),
        };
        AblatedMetric {
            name: "ops_per_s".to_owned(),
            unit: "1/s".to_owned(),
            base: 2e6,
            whole: Some(of(50.0, None)),
            parts: vec![part("a=x", 2.0), part("mechanism-long=policy-long", -40.0)],
            pairs: vec![pair(7.0, Some([-1.0, 9.0])), pair(3.0, Some([1.0, 4.0])), pair(0.1, None)],
        }
    }

    /// The largest part is first, whatever its sign; interactions are those that are not of chance.
    #[test]
    fn the_part_that_matters_most_is_first() {
        let lines = of_metric(&metric());
        assert_eq!(lines[0], "ops_per_s: 2.000M, with all parts +50.0%");
        assert!(lines[2].starts_with("  mechanism-long="), "{lines:?}");
        assert!(lines[2].ends_with("-40.0%   -20.0%   -40.0%  -41.0..-39.0%"), "{lines:?}");
        assert!(lines[3].starts_with("  a=x ") && lines[3].ends_with("+1.0..+3.0%"), "{lines:?}");
        assert_eq!(lines[4..].join(" ").matches("together").count(), 1, "{lines:?}");
        assert!(lines[4].contains("+3.0% [+1.0..+4.0%]"), "{lines:?}");
        assert!(lines.iter().all(|line| line.chars().count() <= WIDTH), "{lines:?}");
    }

    #[test]
    fn a_metric_without_factors_says_so() {
        let none = AblatedMetric { whole: None, parts: vec![], pairs: vec![], ..metric() };
        assert!(of_metric(&none).join(" ").contains("no value above 0"));
    }
}
