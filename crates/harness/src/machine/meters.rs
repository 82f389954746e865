//! Meters for the probes of several studies: idle time of a CPU, and the maximum of a quantity over
//! time.

use mmscale_arch::{IdleEvent, Trace};
use std::collections::BTreeMap;

/// Distance of the grid points of a [`Level`].
const GRID_NS: u64 = 100_000;

/// The part of a machine-wide quantity that one CPU has changed, sampled on a grid of times. Its
/// size follows the changes, not the time.
#[derive(Debug, Default)]
pub struct Level {
    now: i64,
    /// Runs of grid points with one value: the point after the last, and the value.
    runs: Vec<(usize, i64)>,
}

impl Level {
    /// Records that this CPU changed the quantity by `by` at `now_ns`.
    pub fn change(&mut self, now_ns: u64, by: i64) {
        self.pass(now_ns);
        self.now += by;
    }
    /// Records that this CPU did not change the quantity until `now_ns`.
    pub fn pass(&mut self, now_ns: u64) {
        let points = (now_ns / GRID_NS) as usize + 1;
        match self.runs.last_mut() {
            Some((end, _)) if *end >= points => {}
            Some((end, value)) if *value == self.now => *end = points,
            _ => self.runs.push((points, self.now)),
        }
    }
    /// Returns the maximum over grid points of the sum over CPUs.
    pub fn max<'a>(levels: impl Iterator<Item = &'a Self>) -> i64 {
        // The change of the sum at each point.
        let mut changes: BTreeMap<usize, i64> = BTreeMap::new();
        for level in levels {
            let mut begin = 0;
            for &(end, value) in &level.runs {
                *changes.entry(begin).or_default() += value;
                *changes.entry(end).or_default() -= value;
                begin = end;
            }
        }
        // The last change ends the grid.
        changes.pop_last();
        let sums = changes.into_values().scan(0, |sum, change| {
            *sum += change;
            Some(*sum)
        });
        sums.max().unwrap_or(0)
    }
}

/// Idle time of a CPU within a window.
#[derive(Debug)]
pub(crate) struct Idle {
    window: (u64, u64),
    since_ns: Option<u64>,
    /// No idle event has been seen yet.
    unheard: bool,
    total_ns: u64,
}

impl Idle {
    pub(crate) fn within(window: (u64, u64)) -> Self {
        Self { window, since_ns: None, unheard: true, total_ns: 0 }
    }
    pub(crate) fn event(&mut self, now_ns: u64, event: &Trace) {
        let Trace::Idle(event) = event else { return };
        match event {
            IdleEvent::Enter => {
                self.unheard = false;
                self.since_ns.get_or_insert(now_ns);
            }
            IdleEvent::Exit => {
                // A CPU whose first event is an exit from idle has been idle since the start.
                let since_ns = self.since_ns.take();
                let since_ns = since_ns.or(self.unheard.then_some(0));
                self.unheard = false;
                if let Some(since_ns) = since_ns {
                    self.idled(since_ns, now_ns);
                }
            }
        }
    }
    fn idled(&mut self, from_ns: u64, to_ns: u64) {
        let (begin_ns, end_ns) = self.window;
        self.total_ns += to_ns.min(end_ns).saturating_sub(from_ns.max(begin_ns));
    }
    /// Ends an open idle period at the end of a run.
    pub(crate) fn finish(&mut self, end_ns: u64) {
        if let Some(since_ns) = self.since_ns.take() {
            self.idled(since_ns, end_ns);
        } else if self.unheard {
            self.idled(0, end_ns);
        }
    }
    pub(crate) fn total_ns(&self) -> u64 {
        self.total_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn idle(events: &[(u64, Trace)]) -> u64 {
        let mut idle = Idle::within((1_000, 2_000));
        events.iter().for_each(|(now_ns, event)| idle.event(*now_ns, event));
        idle.finish(3_000);
        idle.total_ns()
    }

    #[test]
    fn idle_time_counts_within_the_window_and_from_the_start() {
        assert_eq!(idle(&[]), 1_000, "without events the CPU was idle all the time");
        assert_eq!(idle(&[(1_200, Trace::Idle(IdleEvent::Exit))]), 200);
        let twice = [
            (100, Trace::Idle(IdleEvent::Exit)),
            (900, Trace::Idle(IdleEvent::Enter)),
            (1_100, Trace::Idle(IdleEvent::Exit)),
            (1_500, Trace::Idle(IdleEvent::Enter)),
            (1_600, Trace::Idle(IdleEvent::Enter)),
            (2_600, Trace::Idle(IdleEvent::Exit)),
        ];
        assert_eq!(idle(&twice), 100 + 500);
    }

    #[test]
    fn what_all_cpus_hold_is_summed_at_each_point_before_the_largest_is_taken() {
        let level = |changes: &[(u64, i64)]| {
            let mut level = Level::default();
            changes.iter().for_each(|&(now_ns, by)| level.change(now_ns, by));
            level.pass(5 * GRID_NS);
            level
        };
        // One CPU holds 3 at the first three points, the other 4 at the fourth and later ones.
        let one = level(&[(GRID_NS / 2, 3), (3 * GRID_NS + 1, -3)]);
        let other = level(&[(3 * GRID_NS + 1, 4)]);
        assert_eq!(Level::max([&one, &other].into_iter()), 4);
        assert_eq!(Level::max([&one].into_iter()), 3);
        assert_eq!(Level::max(std::iter::empty()), 0);
        let less = level(&[(0, -2)]);
        assert_eq!(Level::max([&less].into_iter()), 0, "the first point is before the change");
    }
}
