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
            Trace::LruMove { kind, folios, dead, .. } if kind == ADD => {
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
