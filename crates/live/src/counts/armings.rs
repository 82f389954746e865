//! The runs of the upkeep tick in a trace.

use super::kernel::Kernel;
use super::tracing::Event;
use std::collections::BTreeMap;
use std::ops::Range;

/// A run of the tick, and how it armed itself again if it did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Arming {
    /// When the run began, in us.
    pub(super) begun_us: u64,
    pub(super) again: Option<Armed>,
}

/// How a timer was armed, in jiffies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Armed {
    pub(super) now: u64,
    /// The expiry that was asked for.
    pub(super) expires: u64,
    /// The jiffy in which the bucket of the wheel goes off. Older kernels do not print it.
    pub(super) bucket_expires: Option<u64>,
}

/// The jiffies from the start of one tick to the start of the next, while every CPU was busy.
pub(super) fn tick_gaps(kernel: &Kernel, runs: &[Arming], busy_us: &Range<u64>) -> Vec<u64> {
    let begun = runs.iter().map(|run| run.begun_us).filter(|us| busy_us.contains(us));
    let begun: Vec<u64> = begun.collect();
    let jiffy_us = 1_000_000 / u64::from(kernel.hz.get());
    begun.windows(2).map(|pair| (pair[1] - pair[0] + jiffy_us / 2) / jiffy_us).collect()
}

/// The runs of the tick of a CPU. Interrupts during a run may arm timers of other delayed work:
/// the tick's timer is the one that was armed in most runs.
pub(super) fn armings(events: &[Event]) -> Vec<Arming> {
    let mut runs: Vec<(Arming, BTreeMap<&str, Armed>)> = Vec::new();
    let mut ticking = None;
    for event in events {
        match event.name.as_str() {
            "workqueue_execute_start" => {
                ticking = Some(event.pid);
                runs.push((Arming { begun_us: event.time_us, again: None }, BTreeMap::new()));
            }
            "workqueue_execute_end" => ticking = None,
            "timer_start" if ticking == Some(event.pid) => {
                if let (Some((_, armed)), Some((timer, times))) = (runs.last_mut(), armed(event)) {
                    armed.insert(timer, times);
                }
            }
            _ => {}
        }
    }
    let mut armed = BTreeMap::<&str, usize>::new();
    let timers = runs.iter().flat_map(|(_, timers)| timers.keys());
    timers.for_each(|timer| *armed.entry(timer).or_default() += 1);
    let own = armed.into_iter().max_by_key(|&(_, times)| times).map(|(timer, _)| timer);
    let again = |(run, timers): (Arming, BTreeMap<&str, Armed>)| Arming {
        again: own.and_then(|own| timers.get(own).copied()),
        ..run
    };
    runs.into_iter().map(again).collect()
}

/// The timer of a `timer_start`, and how it was armed.
fn armed(event: &Event) -> Option<(&str, Armed)> {
    let jiffies = |key| event.number(key).map(|number| number as u64);
    let expires = jiffies("expires")?;
    let now = expires.checked_sub(jiffies("timeout")?)?;
    let bucket_expires = jiffies("bucket_expiry");
    Some((event.arg("timer")?, Armed { now, expires, bucket_expires }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counts::reading::trace;

    #[test]
    fn timers_that_interrupts_arm_during_a_tick_are_not_its_own() {
        let start = "workqueue_execute_start: work struct 1: function vmstat_update";
        let timer = |timer, expires| {
            format!(
                "timer_start: timer={timer} function=f expires={expires} [timeout=250] \
                 bucket_expiry=600 cpu=0"
            )
        };
        let (own, other) = (timer("a", 500), timer("b", 510));
        let end = "workqueue_execute_end: work struct 1";
        let events = trace(&[(7, start), (7, &own), (7, end), (7, start), (7, &other), (7, &own)]);
        let found = armings(&events);
        assert_eq!(found.len(), 2);
        let again = Armed { now: 250, expires: 500, bucket_expires: Some(600) };
        assert!(found.iter().all(|run| run.again == Some(again)), "{found:?}");
        // Older kernels print no bucket.
        let older = own.replace(" bucket_expiry=600", "");
        let found = armings(&trace(&[(7, start), (7, &older), (7, end)]));
        assert_eq!(found[0].again, Some(Armed { bucket_expires: None, ..again }));
    }
}
