//! Steps of one CPU, and clearing by all.

use crate::arena::{Arena, PAGE_BYTES};
use crate::clock::Clock;
use crate::config::Failure;
use crate::host::HostCpus;
use crate::lock::ThreadsSpin;
use mmscale_mm::arch::{LockClass, Order, Pfn, RawSpin};
use std::hint::black_box;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Times a step is repeated in one sample.
const REPEATS: u32 = 20_000;
/// Locks that one sample takes, then lets go: few enough for the first-level cache.
const LOCKS: usize = 256;
/// Pages that are cleared in turn: 64 MiB, more than a CPU's own caches hold.
const PAGES: usize = 16 * 1024;
/// Pages of one sample.
const SAMPLE_PAGES: usize = 2048;

/// ns for each of `count` steps since `start`.
pub(super) fn ns_each(start: Instant, count: u64) -> f64 {
    start.elapsed().as_nanos() as f64 / count as f64
}

/// What single-CPU samples work on.
pub(super) struct Bench {
    atomic: AtomicU64,
    locks: Box<[ThreadsSpin]>,
    arena: Arena,
    clock: Clock,
    /// The page to clear next.
    next_page: usize,
}

impl Bench {
    pub(super) fn new() -> Result<Self, Failure> {
        let arena = Arena::new(PAGES).map_err(|error| Failure::System {
            what: "memory to clear",
            reason: error.to_string(),
        })?;
        (0..PAGES).for_each(|page| arena.clear(Pfn::new(page), Order::ZERO));
        let locks = (0..LOCKS).map(|_| ThreadsSpin::fair(LockClass::Other)).collect();
        Ok(Self { atomic: AtomicU64::new(0), locks, arena, clock: Clock::start(), next_page: 0 })
    }

    /// A read of the machine's clock, which stands in all that is measured turn by turn.
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

    /// The raw lock, without guards and statistics: those belong to the operations around it.
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

    pub(super) fn clear_page_ns(&mut self) -> f64 {
        let start = Instant::now();
        for _ in 0..SAMPLE_PAGES {
            self.arena.clear(Pfn::new(self.next_page), Order::ZERO);
            self.next_page = (self.next_page + 1) % PAGES;
        }
        ns_each(start, SAMPLE_PAGES as u64)
    }

    /// All CPUs clear at once, each its own part.
    pub(super) fn clear_bytes_per_us(&self, cpus: usize) -> f64 {
        let (host, barrier) = (HostCpus::allowed(), Barrier::new(cpus));
        let part = PAGES / cpus;
        let clear = |cpu: usize| {
            host.pin(cpu);
            barrier.wait();
            let start = Instant::now();
            let pages = cpu * part..(cpu + 1) * part;
            pages.for_each(|page| self.arena.clear(Pfn::new(page), Order::ZERO));
            start.elapsed().as_nanos() as f64
        };
        let slowest_ns = std::thread::scope(|scope| {
            let clear = &clear;
            let threads: Vec<_> = (0..cpus).map(|cpu| scope.spawn(move || clear(cpu))).collect();
            let times = threads.into_iter().map(|thread| thread.join().unwrap_or(f64::NAN));
            times.fold(0.0, f64::max)
        });
        (cpus * part * PAGE_BYTES) as f64 * 1000.0 / slowest_ns
    }
}
