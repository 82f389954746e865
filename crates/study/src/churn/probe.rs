//! What one CPU's tracepoints say about batches and idle time. As with every probe, the machine's
//! figures are sums and maxima over CPUs.

use mmscale_mm::arch::{Probe, Trace};
use std::any::Any;

/// How often what batches hold is looked at.
pub(crate) const GRID_NS: u64 = 100_000;
/// The kind of batch that adds folios.
const ADD: u8 = mmscale_mm::lru::BatchKind::Add as u8;

/// A quantity of the machine of which every CPU sees some changes, at the points of a grid.
#[derive(Debug, Default)]
pub(crate) struct Level {
    now: i64,
    grid: Vec<i64>,
}

impl Level {
    fn change(&mut self, now_ns: u64, by: i64) {
        self.pass(now_ns);
        self.now += by;
    }
    fn pass(&mut self, now_ns: u64) {
        let points = (now_ns / GRID_NS) as usize + 1;
        if self.grid.len() < points {
            self.grid.resize(points, self.now);
        }
    }
    /// The largest sum over CPUs at a point of the grid.
    pub(crate) fn max<'a>(levels: impl Iterator<Item = &'a Self>) -> i64 {
        let mut sums: Vec<i64> = Vec::new();
        for level in levels {
            sums.resize(sums.len().max(level.grid.len()), 0);
            for (sum, value) in sums.iter_mut().zip(&level.grid) {
                *sum += value;
            }
        }
        sums.into_iter().max().unwrap_or(0)
    }
}

/// One CPU's view of a run.
#[derive(Debug, Default)]
pub(crate) struct ChurnProbe {
    /// The time that counts.
    window: (u64, u64),
    pub(crate) add_batches: u64,
    pub(crate) add_folios: u64,
    pub(crate) add_dead: u64,
    pub(crate) pinned: Level,
    pub(crate) dead: Level,
    idle_since_ns: Option<u64>,
    /// Nothing was heard of idling yet.
    unheard: bool,
    /// Idle time within the window.
    pub(crate) idle_ns: u64,
}

impl ChurnProbe {
    pub(crate) fn new(window: (u64, u64)) -> Self {
        Self { window, unheard: true, ..Self::default() }
    }
    fn idled(&mut self, from_ns: u64, to_ns: u64) {
        let (begin_ns, end_ns) = self.window;
        self.idle_ns += to_ns.min(end_ns).saturating_sub(from_ns.max(begin_ns));
    }
    /// Closes what is open at the end of a run; both levels stay as they are until then.
    pub(crate) fn finish(&mut self, end_ns: u64) {
        if let Some(since_ns) = self.idle_since_ns.take() {
            self.idled(since_ns, end_ns);
        } else if self.unheard {
            self.idled(0, end_ns);
        }
        self.pinned.pass(end_ns);
        self.dead.pass(end_ns);
    }
}

impl Probe for ChurnProbe {
    fn event(&mut self, now_ns: u64, event: &Trace) {
        match *event {
            Trace::LruMove { kind, folios, dead, .. }
                if kind == ADD && (self.window.0..self.window.1).contains(&now_ns) =>
            {
                self.add_batches += 1;
                self.add_folios += u64::from(folios);
                self.add_dead += u64::from(dead);
            }
            Trace::LruPinned { folios } => self.pinned.change(now_ns, folios.into()),
            Trace::LruDead { pages } => self.dead.change(now_ns, pages.into()),
            Trace::IdleEnter => {
                self.unheard = false;
                self.idle_since_ns.get_or_insert(now_ns);
            }
            Trace::IdleExit => {
                // A CPU of which nothing was heard has been idle from the start.
                let since_ns = self.idle_since_ns.take();
                let since_ns = since_ns.or(self.unheard.then_some(0));
                self.unheard = false;
                if let Some(since_ns) = since_ns {
                    self.idled(since_ns, now_ns);
                }
            }
            _ => {}
        }
    }
    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn probe(events: &[(u64, Trace)]) -> ChurnProbe {
        let mut probe = ChurnProbe::new((1_000, 2_000));
        events.iter().for_each(|(now_ns, event)| probe.event(*now_ns, event));
        probe.finish(3_000);
        probe
    }

    #[test]
    fn idle_time_counts_within_the_window_and_from_the_start() {
        assert_eq!(probe(&[]).idle_ns, 1_000, "nothing was heard: it was idle all the time");
        assert_eq!(probe(&[(1_200, Trace::IdleExit)]).idle_ns, 200);
        let twice = [
            (100, Trace::IdleExit),
            (900, Trace::IdleEnter),
            (1_100, Trace::IdleExit),
            (1_500, Trace::IdleEnter),
            (1_600, Trace::IdleEnter),
            (2_600, Trace::IdleExit),
        ];
        assert_eq!(probe(&twice).idle_ns, 100 + 500);
    }

    #[test]
    fn batches_count_within_the_window_and_only_those_that_add() {
        let batch = |kind, folios| Trace::LruMove { kind, folios, dead: folios - 1, freed: 0 };
        let seen = probe(&[
            (999, batch(ADD, 5)),
            (1_000, batch(ADD, 31)),
            (1_500, batch(ADD + 1, 7)),
            (2_000, batch(ADD, 3)),
        ]);
        assert_eq!((seen.add_batches, seen.add_folios, seen.add_dead), (1, 31, 30));
    }

    #[test]
    fn what_all_cpus_hold_is_summed_at_each_point_before_the_largest_is_taken() {
        let level = |changes: &[(u64, i64)]| {
            let mut level = Level::default();
            changes.iter().for_each(|&(now_ns, by)| level.change(now_ns, by));
            level.pass(5 * GRID_NS);
            level
        };
        // One holds 3 from the first point to the third, the other 4 from the fourth on.
        let one = level(&[(GRID_NS / 2, 3), (3 * GRID_NS + 1, -3)]);
        let other = level(&[(3 * GRID_NS + 1, 4)]);
        assert_eq!(Level::max([&one, &other].into_iter()), 4);
        assert_eq!(Level::max([&one].into_iter()), 3);
    }
}
