//! The words for the strength of a change. Every form of a report takes them from here, so that no
//! text says that a change holds without the choices against which it was tested.

use mmscale_document::{ENOUGH_ROUNDS, Robustness};
use mmscale_stats::{MARGIN_PERCENT, SECOND_LOOK, pairs_needed};

/// The verdict on a headline whose change holds: against the random choices of runs, at the costs
/// of one machine.
pub(crate) const HOLDS: &str = "holds over seeds";
/// The verdict on a headline whose change does not hold, although there are enough pairs.
pub(crate) const NO_CHANGE_SHOWN: &str = "no change shown";
/// The meaning of `*` after a change.
pub(crate) const STAR: &str = "* the change holds over seeds";
/// The meaning of `~` before a change.
pub(crate) const TILDE: &str = "~ no change shown: the interval includes 0";

/// Returns the verdict of a change that holds, to be appended to it; empty for any other.
pub(crate) fn held(holds: Option<bool>) -> String {
    if holds == Some(true) { format!(", {HOLDS}") } else { String::new() }
}

/// Says on how many machines with other costs a change has its sign.
pub(crate) fn holds_over_costs(machines: usize, of: usize) -> String {
    format!("holds over costs on {machines} of {of} drawn machines")
}

/// Names what an analysis of costs is about.
pub(crate) fn subject(robust: &Robustness) -> &'static str {
    if robust.levels.is_empty() { "conclusions" } else { "levels" }
}

/// Names the error of a recording, which is `percent`.
pub(crate) fn halves(percent: &str) -> String {
    format!(
        "the recording's own error: its halves, every second round and the others, replayed alone, \
         differ by {percent}"
    )
}

/// Warns of a window with too few rounds, in which the part of a round that it covers looks like an
/// effect of what was changed. `None` with enough rounds.
pub(crate) fn short_analysis(rounds_min: Option<f64>) -> Option<String> {
    let rounds = rounds_min.filter(|rounds| *rounds < ENOUGH_ROUNDS)?;
    Some(format!(
        "The window is short: the slowest program begins {rounds:.1} rounds of its loop in it, \
         fewer than {ENOUGH_ROUNDS}, so that figures depend on the part of a round that it covers, \
         and what follows may be noise of that. Make it longer (--set duration_ms), or rounds \
         shorter."
    ))
}

/// Says that there are too few pairs for any conclusion.
pub(crate) fn exploratory(pairs: usize) -> String {
    let plural = if pairs == 1 { "" } else { "s" };
    format!("exploratory, {pairs} pair{plural}")
}

/// Says how the headlines of an arm are tested together, with this number of pairs.
pub(crate) fn tested_together(first_look: bool) -> String {
    let level = if first_look { "0.3 % (Student's t, Holm)" } else { "5 % (signed rank, Holm)" };
    format!("{STAR}: the headlines of an arm are tested together at {level}")
}

/// Says why intervals and tests are those of a first look.
pub(crate) fn first_look() -> String {
    format!(
        "intervals are Student's t at 99.7 %, at least \u{b1}{MARGIN_PERCENT} %, as at a first \
         look, so that with a second one at {SECOND_LOOK} seeds 5 % remain"
    )
}

/// Names the interval of a mean over seeds.
pub(crate) fn mean_interval(first_look: bool) -> String {
    if first_look {
        format!("interval of the mean, of at least 95 % ({})", self::first_look())
    } else {
        "95 % interval of the mean".to_owned()
    }
}

/// Says how many pairs the tests of an arm need, if it has fewer.
pub(crate) fn too_few(pairs: usize, tests: usize) -> Option<String> {
    let needed = pairs_needed(tests);
    (pairs < needed).then(|| {
        let pairs = exploratory(pairs);
        format!("{pairs}: no change can hold over seeds, {needed} are needed (--seeds {needed})")
    })
}
