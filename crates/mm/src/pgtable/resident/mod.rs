//! Per-address-space page counts, in memory or in swap (the RSS counters and `MM_SWAPENTS`).
//!
//! Changes under a table's lock are summed up there and added when the lock is released. Most of
//! them stay in a part of the count that belongs to the calling CPU (`cpus`, Linux since 6.2) or to
//! the calling task (`tasks`, before). Any CPU may read the total, which lacks the parts.
//!
//! Relaxed: the count publishes no other data.
//!
//! Differences from Linux: it counts pages of files, anonymous pages, shared memory and swap in
//! four words, which are one here. So a page that goes to swap or comes from it changes nothing
//! here.

mod cpus;
mod tasks;

use core::sync::atomic::Ordering::Relaxed;
use cpus::CpuParts;
pub use cpus::counter_batch;
use mmscale_arch::sync::NoPreempt;
use mmscale_arch::{Atomic, DataLine, Machine};
use tasks::TaskParts;

mmscale_arch::policies! {
    /// Where the pages of an address space are counted first.
    pub enum RssPolicy: "rss", "the count of an address space's pages" {
        /// Counts on each CPU, and adds to the shared count in batches of 32 pages, or of twice as
        /// many as there are CPUs.
        Cpus = "stock",
        /// Counts faults in each task, and adds to the shared count after 64 faults and when the
        /// task unmaps; all other changes are added directly.
        Tasks = "tasks",
    }
}

impl RssPolicy {
    /// Returns how much a CPU, or a task, gathers before it adds to the shared count: pages, or
    /// faults.
    pub const fn batch(self, cpus: usize) -> u64 {
        match self {
            Self::Cpus => counter_batch(cpus) as u64,
            Self::Tasks => tasks::FAULTS as u64,
        }
    }
}

/// The operation that has changed a page count.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Cause {
    /// A page fault of a task of the address space.
    Fault,
    /// The move of pages within the address space: the sum of its changes is 0.
    Move,
    /// Any other operation.
    Other,
}

/// The parts of a count that are not in its total.
enum Parts {
    Cpus(CpuParts),
    Tasks(TaskParts),
}

/// Page count of one address space.
pub(super) struct Resident<A: Machine> {
    total: A::AtomicI64,
    parts: Parts,
}

impl<A: Machine> Resident<A> {
    /// Creates a count of 0.
    pub(super) fn new(policy: RssPolicy) -> Self {
        let parts = match policy {
            RssPolicy::Cpus => Parts::Cpus(CpuParts::new(A::cpus_possible())),
            RssPolicy::Tasks => Parts::Tasks(TaskParts::new()),
        };
        Self { total: A::AtomicI64::named(0, DataLine::Rss), parts }
    }
    /// Adds `pages`, which may be negative.
    #[inline]
    pub(super) fn add(&self, pinned: &impl NoPreempt<A>, pages: i32, cause: Cause) {
        match &self.parts {
            Parts::Cpus(parts) => self.fold(parts.add(pinned, pages)),
            Parts::Tasks(parts) if cause == Cause::Other => {
                self.fold(parts.take::<A>());
                self.fold(pages);
            }
            Parts::Tasks(parts) => parts.add::<A>(pages),
        }
    }
    /// Counts a page fault of the calling task (`check_sync_rss_stat`).
    #[inline]
    pub(super) fn note_fault(&self) {
        if let Parts::Tasks(parts) = &self.parts {
            self.fold(parts.note_fault::<A>());
        }
    }
    /// Adds the calling task's part, which ends, to the total (`sync_mm_rss`).
    pub(super) fn task_ends(&self) {
        if let Parts::Tasks(parts) = &self.parts {
            self.fold(parts.take::<A>());
        }
    }
    /// Adds pages to the total.
    fn fold(&self, pages: i32) {
        if pages != 0 {
            self.total.fetch_add(pages.into(), Relaxed);
        }
    }
    /// Returns the total, without the parts.
    pub(super) fn pages(&self) -> u64 {
        self.total.load(Relaxed).max(0) as u64
    }
    /// Returns the exact count; valid while nothing changes.
    pub(super) fn exactly(&self) -> i64 {
        let parts = match &self.parts {
            Parts::Cpus(parts) => parts.sum(),
            Parts::Tasks(parts) => parts.sum(),
        };
        self.total.load(Relaxed) + parts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mmscale_arch::TaskId;
    use mmscale_arch::sync::PreemptGuard;
    use mmscale_stepped::{self as stepped, Stepped};

    #[test]
    fn small_changes_stay_with_their_cpu_and_large_ones_do_not() {
        let resident = Resident::<Stepped>::new(RssPolicy::Cpus);
        let pinned = PreemptGuard::<Stepped>::new();
        (0..31).for_each(|_| resident.add(&pinned, 1, Cause::Fault));
        assert_eq!((resident.pages(), resident.exactly()), (0, 31));
        resident.add(&pinned, 1, Cause::Fault);
        assert_eq!((resident.pages(), resident.exactly()), (32, 32));
        resident.add(&pinned, -31, Cause::Other);
        assert_eq!((resident.pages(), resident.exactly()), (32, 1));
        resident.add(&pinned, 512, Cause::Other);
        assert_eq!((resident.pages(), resident.exactly()), (513, 513));
    }

    /// As before Linux 6.2: `events++ > 64`.
    #[test]
    fn faults_stay_with_their_task_for_64_faults_and_all_else_is_added_directly() {
        stepped::boot(1, 1000);
        let resident = Resident::<Stepped>::new(RssPolicy::Tasks);
        let pinned = PreemptGuard::<Stepped>::new();
        let fault = || {
            resident.note_fault();
            resident.add(&pinned, 1, Cause::Fault);
        };
        (0..65).for_each(|_| fault());
        assert_eq!((resident.pages(), resident.exactly()), (0, 65));
        fault();
        assert_eq!((resident.pages(), resident.exactly()), (65, 66));
        // Another task: its part is its own, and a change that is no fault is no part.
        stepped::set_task(TaskId::new(500));
        fault();
        assert_eq!((resident.pages(), resident.exactly()), (65, 67));
        resident.add(&pinned, -3, Cause::Move);
        resident.add(&pinned, 3, Cause::Move);
        assert_eq!(resident.pages(), 65);
        resident.add(&pinned, -10, Cause::Other);
        assert_eq!((resident.pages(), resident.exactly()), (65 + 1 - 10, 57));
        fault();
        resident.task_ends();
        assert_eq!((resident.pages(), resident.exactly()), (57, 58));
    }
}
