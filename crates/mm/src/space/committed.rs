//! The memory that is promised to all address spaces (`vm_committed_as`): a count with a part for
//! each CPU. A part that has reached a batch is added to the total under one lock.
//!
//! The total is not compared with the memory, as in Linux unless `vm.overcommit_memory` is 2.
//!
//! Difference from Linux: a VMA is counted while it is private and writable, so its pages do not
//! count after mprotect to read-only. A change of several VMAs, a fork among them, counts once.
//!
//! Lock order: [`LockClass`]: taken with interrupts off, with no other lock inside.

use crate::pgtable::counter_batch;
use core::sync::atomic::AtomicI64;
use core::sync::atomic::Ordering::Relaxed;
use mmscale_arch::sync::{EachCpu, NoPreempt, PreemptGuard, SpinLock};
use mmscale_arch::{Func, LockClass, Machine, Span};

mmscale_arch::policies! {
    /// How many pages a CPU gathers before it adds them to the promised memory.
    pub enum CommitPolicy: "commit", "the batch of vm_committed_as" {
        /// Gathers a quarter of a CPU's share of the memory, as with vm.overcommit_memory 0 or 1.
        Stock = "stock",
        /// Gathers a 256th of it, as before 5.9, and since then with vm.overcommit_memory 2.
        Small = "small",
    }
}

impl CommitPolicy {
    /// Returns the pages that each of `cpus` CPUs gathers on a machine with `pages` pages
    /// (`mm_compute_batch`).
    pub fn batch(self, pages: u64, cpus: usize) -> u64 {
        let share = pages / cpus as u64 / self.divisor();
        share.min(i32::MAX as u64).max(counter_batch(cpus) as u64)
    }
    /// Returns the part of a CPU's share of the memory, as its divisor.
    pub const fn divisor(self) -> u64 {
        match self {
            Self::Stock => 4,
            Self::Small => 256,
        }
    }
}

/// The promised pages.
pub(super) struct Committed<A: Machine> {
    batch: u64,
    parts: EachCpu<AtomicI64>,
    total: SpinLock<A, i64>,
}

impl<A: Machine> Committed<A> {
    pub(super) fn new(policy: CommitPolicy, pages: u64) -> Self {
        Self {
            batch: policy.batch(pages, A::cpus_possible()),
            parts: EachCpu::new::<A>(|_| AtomicI64::new(0)),
            total: SpinLock::new(LockClass::Committed, 0),
        }
    }
    /// Adds `pages`, which may be negative (`vm_acct_memory`).
    pub(super) fn add(&self, pages: i64) {
        if pages == 0 {
            return;
        }
        let pinned = PreemptGuard::<A>::new();
        let own = self.parts.of(pinned.cpu());
        let sum = own.load(Relaxed) + pages;
        let full = sum.unsigned_abs() >= self.batch;
        own.store(if full { 0 } else { sum }, Relaxed);
        if full {
            let _span = Span::<A>::enter(Func::PercpuCounterAddBatch);
            *self.total.lock_irqsave() += sum;
        }
    }
    /// Returns the total and all parts: for checks, while nothing changes.
    pub(super) fn exactly(&self) -> i64 {
        let parts = self.parts.iter().map(|(_, part)| part.load(Relaxed)).sum::<i64>();
        *self.total.lock_irqsave() + parts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mmscale_stepped::{self as stepped, Stepped};

    /// `mm_compute_batch` of 16 GiB on 4 CPUs, and of a machine with little memory.
    #[test]
    fn a_batch_is_a_part_of_a_cpu_s_share() {
        let batches = [CommitPolicy::Stock, CommitPolicy::Small].map(|of| of.batch(4 << 20, 4));
        assert_eq!(batches, [256 << 10, 4 << 10]);
        assert_eq!(CommitPolicy::Small.batch(1 << 16, 512), 1024);
        assert_eq!(CommitPolicy::Small.batch(1 << 10, 2), 32);
    }

    #[test]
    fn the_lock_is_taken_once_a_batch() {
        stepped::boot(2, 1000);
        let committed = Committed::<Stepped>::new(CommitPolicy::Small, 1 << 16);
        let taken = || stepped::lock_acquisitions(LockClass::Committed);
        (0..100).for_each(|_| [100, -100].iter().for_each(|&pages| committed.add(pages)));
        assert_eq!(taken(), 0);
        committed.add(127);
        stepped::set_cpu(1);
        committed.add(-128);
        assert_eq!(taken(), 1);
        assert_eq!(committed.exactly(), -1);
    }
}
