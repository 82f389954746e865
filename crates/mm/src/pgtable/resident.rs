//! Per-address-space page counts, in memory or in swap (the RSS counters and `MM_SWAPENTS`).
//!
//! Changes under a table's lock are summed up there and added to the calling CPU's part when the
//! lock is released. A part that reaches a batch is added to the total, which any CPU may read. The
//! total's error is therefore at most a batch for each CPU, as with the kernel's `percpu_counter`.
//!
//! A CPU's part is used only on that CPU with preemption off. Relaxed: the count publishes no other
//! data.

use core::sync::atomic::AtomicI32;
use core::sync::atomic::Ordering::Relaxed;
use mmscale_arch::sync::{NoPreempt, Sparse};
use mmscale_arch::{Atomic, DataLine, Machine};

/// A CPU's part, on cache lines of its own.
#[repr(align(128))]
struct Part(AtomicI32);

/// Page count of one address space.
pub(super) struct Resident<A: Machine> {
    total: A::AtomicI64,
    parts: Sparse<Part>,
    /// Size at which a part is added to the total: max(32, 2 * CPUs), as the kernel's
    /// `percpu_counter_batch`.
    batch: i32,
}

impl<A: Machine> Resident<A> {
    /// Creates a count of 0.
    pub(super) fn new() -> Self {
        let cpus = A::cpus_possible();
        Self {
            total: A::AtomicI64::named(0, DataLine::Rss),
            parts: Sparse::new(cpus),
            batch: (2 * cpus as i32).max(32),
        }
    }
    /// Adds `pages`, which may be negative.
    #[inline]
    pub(super) fn add(&self, pinned: &impl NoPreempt<A>, pages: i32) {
        let own = self.parts.get_or_make(pinned.cpu().index(), |_| Part(AtomicI32::new(0)));
        let sum = own.0.load(Relaxed) + pages;
        if sum.abs() >= self.batch {
            own.0.store(0, Relaxed);
            self.total.fetch_add(sum.into(), Relaxed);
        } else {
            own.0.store(sum, Relaxed);
        }
    }
    /// Returns the total, without the CPUs' parts.
    pub(super) fn pages(&self) -> u64 {
        self.total.load(Relaxed).max(0) as u64
    }
    /// Returns the exact count; valid while nothing changes.
    pub(super) fn exactly(&self) -> i64 {
        let parts = self.parts.iter_made().map(|part| i64::from(part.0.load(Relaxed)));
        self.total.load(Relaxed) + parts.sum::<i64>()
    }
}

#[cfg(test)]
mod tests {
    use super::Resident;
    use mmscale_arch::sync::PreemptGuard;
    use mmscale_stepped::Stepped;

    #[test]
    fn small_changes_stay_with_their_cpu_and_large_ones_do_not() {
        let resident = Resident::<Stepped>::new();
        let pinned = PreemptGuard::<Stepped>::new();
        (0..31).for_each(|_| resident.add(&pinned, 1));
        assert_eq!((resident.pages(), resident.exactly()), (0, 31));
        resident.add(&pinned, 1);
        assert_eq!((resident.pages(), resident.exactly()), (32, 32));
        resident.add(&pinned, -31);
        assert_eq!((resident.pages(), resident.exactly()), (32, 1));
        resident.add(&pinned, 512);
        assert_eq!((resident.pages(), resident.exactly()), (513, 513));
    }
}
