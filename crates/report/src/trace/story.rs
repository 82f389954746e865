//! The story of a wait: the CPUs that held the lock meanwhile, where, and for how long.

use mmscale_document::{HoldSpan, Interval, Timeline, WaitSpan};

use crate::number::scaled;
use crate::text::wrap;

/// Number of holds to tell; with the lines around them a story has at most ten.
const HOLDS: usize = 4;

/// Tells the worst wait of a timeline in at most ten lines. Empty if there is none.
pub fn story(timeline: &Timeline) -> Vec<String> {
    let Some(worst) = &timeline.worst else { return vec![] };
    let site = worst.path.last().map_or("", String::as_str);
    let begin = format!(
        "CPU {} waited {} for {} in {site}, since {}",
        worst.cpu,
        time(worst.at.ps()),
        worst.lock,
        time(worst.at.from_ps)
    );
    let mut lines = wrap(&begin, "", "  ");
    let mut holds: Vec<(u64, &HoldSpan)> = timeline
        .holds
        .iter()
        .filter(|hold| hold.lock == worst.lock && hold.cpu != worst.cpu)
        .filter_map(|hold| Some((hold.at.within(worst.at)?.ps(), hold)))
        .collect();
    let held: u64 = holds.iter().map(|(ps, _)| ps).sum();
    let number = holds.len();
    // The longest ones, in the order of time.
    holds.sort_by_key(|(ps, hold)| (std::cmp::Reverse(*ps), hold.at));
    holds.truncate(HOLDS);
    holds.sort_by_key(|(_, hold)| hold.at);
    for (ps, hold) in &holds {
        lines.extend(wrap(&told(*ps, hold), "  ", "    "));
    }
    if number > holds.len() {
        let shown: u64 = holds.iter().map(|(ps, _)| ps).sum();
        let rest = number - holds.len();
        lines.push(format!("  {rest} other holds had it for {}", time(held - shown)));
    }
    let handovers = worst.at.ps().saturating_sub(held);
    lines.push(format!("  on its way from CPU to CPU: {}", time(handovers)));
    let queue = queue(timeline, worst);
    let plural = if queue == 1 { "" } else { "s" };
    lines.push(format!("the longest queue for it in that time: {queue} CPU{plural}"));
    lines
}

fn told(ps: u64, hold: &HoldSpan) -> String {
    let site = hold.path.last().map_or("", String::as_str);
    format!("CPU {} held it for {} in {site}, misses: {}", hold.cpu, time(ps), hold.misses)
}

/// Returns the maximum number of CPUs that waited for the lock at a time of the wait.
fn queue(timeline: &Timeline, worst: &WaitSpan) -> usize {
    let same = || timeline.waits.iter().filter(|wait| wait.lock == worst.lock);
    let at = |from_ps: u64| {
        let moment = Interval { from_ps, to_ps: from_ps + 1 };
        same().filter(|wait| wait.at.within(moment).is_some()).count()
    };
    let starts = same().map(|wait| wait.at.from_ps).chain([worst.at.from_ps]);
    let starts = starts.filter(|ps| (worst.at.from_ps..worst.at.to_ps).contains(ps));
    starts.map(at).max().unwrap_or(0)
}

fn time(ps: u64) -> String {
    scaled(ps as f64 / 1000.0, "ns")
}
