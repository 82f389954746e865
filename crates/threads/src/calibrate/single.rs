//! Steps of one CPU, and clearing by all CPUs.

use super::on_each_cpu;
use crate::arena::{Arena, PAGE_BYTES};
use crate::clock::Clock;
use crate::config::Failure;
use crate::lock::ThreadsSpin;
use mmscale_arch::{LockClass, Order, Pfn, RawSpin};
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

/// Repetitions of a step in one sample.
const REPEATS: u32 = 20_000;
/// Locks that one sample takes, then releases: few enough for the first-level cache.
const LOCKS: usize = 256;
/// Pages that are cleared one after the other: 64 MiB, more than a CPU's own caches hold.
const PAGES: usize = 16 * 1024;
/// Pages between two reads of the clock: about 100 us.
const STRETCH: usize = 256;

/// Returns the ns for each of `count` steps since `start`.
pub(super) fn ns_each(start: Instant, count: u64) -> f64 {
    start.elapsed().as_nanos() as f64 / count as f64
}

/// The median of some samples.
pub(super) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// The data of single-CPU samples.
pub(super) struct Bench {
    atomic: AtomicU64,
    locks: Box<[ThreadsSpin]>,
    clock: Clock,
}

impl Bench {
    pub(super) fn new() -> Self {
        let locks = (0..LOCKS).map(|_| ThreadsSpin::fair(LockClass::Other)).collect();
        Self { atomic: AtomicU64::new(0), locks, clock: Clock::start() }
    }

    /// Measures a read of the machine's clock, which is included in every time measured round by
    /// round.
    pub(super) fn clock_ns(&self) -> f64 {
        let start = Instant::now();
        (0..REPEATS).for_each(|_| {
            black_box(self.clock.now_ns());
        });
        ns_each(start, REPEATS.into())
    }

    pub(super) fn atomic_ns(&self) -> f64 {
        let start = Instant::now();
        for _ in 0..REPEATS {
            black_box(&self.atomic).fetch_add(1, Ordering::AcqRel);
        }
        ns_each(start, REPEATS.into())
    }

    /// Measures the raw lock, without guards and statistics, which belong to the operations around
    /// it.
    pub(super) fn lock_unlock_ns(&self) -> (f64, f64) {
        const TURNS: usize = 64;
        let (mut lock_ns, mut unlock_ns) = (0.0, 0.0);
        for _ in 0..TURNS {
            let start = Instant::now();
            for lock in black_box(&self.locks) {
                black_box(lock.take_free());
            }
            lock_ns += ns_each(start, LOCKS as u64);
            let start = Instant::now();
            for lock in black_box(&self.locks) {
                // SAFETY: taken above.
                unsafe { lock.unlock() };
            }
            unlock_ns += ns_each(start, LOCKS as u64);
        }
        (lock_ns / TURNS as f64, unlock_ns / TURNS as f64)
    }
}

/// Memory to clear.
pub(super) struct Clears(Arena);

impl Clears {
    pub(super) fn new() -> Result<Self, Failure> {
        let arena = Arena::new(PAGES).map_err(|error| Failure::System {
            what: "memory to clear",
            reason: error.to_string(),
        })?;
        (0..PAGES).for_each(|page| arena.clear(Pfn::new(page), Order::ZERO));
        Ok(Self(arena))
    }

    /// Clears a stretch of pages, the `at`-th; returns ns a page.
    fn stretch_ns(&self, at: usize) -> f64 {
        let start = Instant::now();
        let pages = at * STRETCH..(at + 1) * STRETCH;
        pages.for_each(|page| self.0.clear(Pfn::new(page), Order::ZERO));
        ns_each(start, STRETCH as u64)
    }

    /// Clears all pages on one CPU.
    pub(super) fn page_ns(&self) -> f64 {
        median((0..PAGES / STRETCH).map(|at| self.stretch_ns(at)).collect())
    }

    /// Clears on all CPUs at the same time, each its own part; returns the sum of the rates that
    /// each reaches in its median stretch.
    pub(super) fn bytes_per_us(&self, cpus: usize) -> f64 {
        let part = PAGES / STRETCH / cpus;
        let next = AtomicUsize::new(0);
        let rates = on_each_cpu(|| {
            let from = part * next.fetch_add(1, Ordering::Relaxed);
            let page_ns = median((from..from + part).map(|at| self.stretch_ns(at)).collect());
            PAGE_BYTES as f64 * 1000.0 / page_ns
        });
        rates.into_iter().sum()
    }
}
