//! Parts of a page count by CPU, as the kernel's `percpu_counter` has them.
//!
//! The total's error is at most a batch for each CPU. A CPU's part is used only on that CPU with
//! preemption off.

use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicBool, AtomicI32};
use mmscale_arch::Machine;
use mmscale_arch::sync::{NoPreempt, Sparse};

/// A CPU's part, on cache lines of its own.
#[derive(Default)]
#[repr(align(128))]
struct Part {
    pages: AtomicI32,
    /// Whether the CPU has used it.
    used: AtomicBool,
}

/// Returns the size at which a CPU's part of a counter is added to the total: max(32, 2 * CPUs), as
/// the kernel's `percpu_counter_batch`.
pub const fn counter_batch(cpus: usize) -> i32 {
    let twice = 2 * cpus as i32;
    if twice < 32 { 32 } else { twice }
}

/// The parts of all CPUs.
pub(super) struct CpuParts {
    parts: Sparse<Part>,
    /// Size at which a part is added to the total ([`counter_batch`]).
    batch: i32,
}

impl CpuParts {
    pub(super) fn new(cpus: usize) -> Self {
        Self::with_batch(cpus, counter_batch(cpus))
    }
    pub(super) fn with_batch(cpus: usize, batch: i32) -> Self {
        Self { parts: Sparse::new(cpus), batch }
    }
    /// Adds `pages` to the calling CPU's part. Returns the pages to add to the total: the whole
    /// part, once it is a batch. `first` is called at the CPU's first use of its part.
    #[inline]
    pub(super) fn add<A: Machine>(
        &self,
        pinned: &impl NoPreempt<A>,
        pages: i32,
        first: impl FnOnce(),
    ) -> i32 {
        let (before, own) = self.change(pinned, pages, first);
        let sum = before + pages;
        if sum.abs() < self.batch {
            return 0;
        }
        own.store(0, Relaxed);
        sum
    }
    /// Adds `pages` to the calling CPU's part, and nothing to the total. Returns the part before
    /// that, and where it is.
    #[inline]
    pub(super) fn change<A: Machine>(
        &self,
        pinned: &impl NoPreempt<A>,
        pages: i32,
        first: impl FnOnce(),
    ) -> (i32, &AtomicI32) {
        let own = self.parts.get_or_make(pinned.cpu().index(), |_| Part::default());
        if !own.used.load(Relaxed) {
            own.used.store(true, Relaxed);
            first();
        }
        let before = own.pages.load(Relaxed);
        own.pages.store(before + pages, Relaxed);
        (before, &own.pages)
    }
    /// Returns the sum of all parts.
    pub(super) fn sum(&self) -> i64 {
        self.parts.iter_made().map(|part| i64::from(part.pages.load(Relaxed))).sum()
    }
}
