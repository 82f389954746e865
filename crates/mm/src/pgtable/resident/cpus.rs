//! Parts of a page count by CPU, as the kernel's `percpu_counter` has them.
//!
//! The total's error is at most a batch for each CPU. A CPU's part is used only on that CPU with
//! preemption off.

use core::sync::atomic::AtomicI32;
use core::sync::atomic::Ordering::Relaxed;
use mmscale_arch::Machine;
use mmscale_arch::sync::{NoPreempt, Sparse};

/// A CPU's part, on cache lines of its own.
#[repr(align(128))]
struct Part(AtomicI32);

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
        Self { parts: Sparse::new(cpus), batch: counter_batch(cpus) }
    }
    /// Adds `pages` to the calling CPU's part. Returns the pages to add to the total: the whole
    /// part, once it is a batch.
    #[inline]
    pub(super) fn add<A: Machine>(&self, pinned: &impl NoPreempt<A>, pages: i32) -> i32 {
        let own = self.parts.get_or_make(pinned.cpu().index(), |_| Part(AtomicI32::new(0)));
        let sum = own.0.load(Relaxed) + pages;
        let full = sum.abs() >= self.batch;
        own.0.store(if full { 0 } else { sum }, Relaxed);
        if full { sum } else { 0 }
    }
    /// Returns the sum of all parts.
    pub(super) fn sum(&self) -> i64 {
        self.parts.iter_made().map(|part| i64::from(part.0.load(Relaxed))).sum()
    }
}
