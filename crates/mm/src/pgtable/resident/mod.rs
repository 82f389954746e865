//! Per-address-space page counts, in memory or in swap (the RSS counters and `MM_SWAPENTS`).
//!
//! Changes under a table's lock are summed up there and added when the lock is released. Most of
//! them stay in a part of the count that belongs to the calling CPU (`cpus`, Linux since 6.2;
//! `tree`) or to the calling task (`tasks`, before; `single`). Any CPU may read the total, which
//! lacks the parts. The parts of CPUs are in per-CPU memory (`memory`), which each address space
//! allocates at its start, zeroes on all CPUs, and reads on all CPUs at its end (`check_mm`).
//!
//! Relaxed: the count publishes no other data.
//!
//! Differences from Linux: it counts pages of files, anonymous pages, shared memory and swap in
//! four words, which are one here. So a page that goes to swap or comes from it changes nothing
//! here.

mod cpus;
mod memory;
mod single;
mod tasks;
mod tree;

use core::sync::atomic::Ordering::Relaxed;
use cpus::CpuParts;
pub use cpus::counter_batch;
pub use memory::CountMemory;
use memory::{COUNTS, Memory};
use mmscale_arch::sync::NoPreempt;
use mmscale_arch::{Access, Atomic, DataLine, Line, Machine, Op};
use single::SingleParts;
use tasks::TaskParts;
use tree::TreeParts;

/// Counts that are read for the resident pages: all but those in swap.
const READ_COUNTS: u32 = COUNTS - 1;

mmscale_arch::policies! {
    /// Where the pages of an address space are counted first.
    pub enum RssPolicy: "rss", "the count of an address space's pages" {
        /// Counts on each CPU, and adds to the shared count in batches of 32 pages, or of twice as
        /// many as there are CPUs. A new address space allocates memory of each CPU for it.
        Cpus = "stock",
        /// Counts faults in each task, and adds to the shared count after 64 faults and when the
        /// task unmaps; all other changes are added directly.
        Tasks = "tasks",
        /// Like `stock`, with four allocations where `stock` has one for its four counts.
        Four = "four",
        /// Like `stock`, with one allocation for the counts and the concurrency IDs (mm_cid).
        Merged = "merged",
        /// Like `stock`, but the allocations stay for the next address space, as in a slab.
        Cached = "cached",
        /// Counts in one word while there is one task, and on each CPU after a second one starts.
        Single = "single",
        /// Counts on each CPU in batches of 32, and adds to sums of 8 CPUs, of 64, and so on.
        Tree = "tree",
    }
}

impl RssPolicy {
    /// Returns how much a CPU, or a task, gathers before it adds to the shared count: pages, or
    /// faults.
    pub const fn batch(self, cpus: usize) -> u64 {
        match self {
            Self::Tasks => tasks::FAULTS as u64,
            Self::Tree => tree::BATCH as u64,
            _ => counter_batch(cpus) as u64,
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
enum Parts<A: Machine> {
    Cpus(CpuParts),
    Tasks(TaskParts),
    Single(SingleParts),
    Tree(TreeParts<A>),
}

/// Page count of one address space.
pub(super) struct Resident<A: Machine> {
    total: A::AtomicI64,
    parts: Parts<A>,
    memory: Memory,
}

impl<A: Machine> Resident<A> {
    /// Creates a count of 0.
    pub(super) fn new(policy: RssPolicy, on: &CountMemory<A>) -> Self {
        Self::with(policy, Memory::alloc(policy, on))
    }
    /// Creates the count of the kernel's own address space, which allocates nothing.
    pub(super) fn of_kernel() -> Self {
        Self::with(RssPolicy::default(), Memory::Static)
    }
    fn with(policy: RssPolicy, memory: Memory) -> Self {
        let cpus = A::cpus_possible();
        let parts = match policy {
            RssPolicy::Tasks => Parts::Tasks(TaskParts::new()),
            RssPolicy::Single => Parts::Single(SingleParts::new(cpus)),
            RssPolicy::Tree => {
                let tree = TreeParts::new(cpus);
                // The sums are zeroed with the address space, a line each.
                A::work(Op::PercpuZero, tree.groups() as u32 * COUNTS);
                Parts::Tree(tree)
            }
            _ => Parts::Cpus(CpuParts::new(cpus)),
        };
        Self { total: A::AtomicI64::named(0, DataLine::Rss), parts, memory }
    }
    /// Fetches the line of this CPU's part, at its first use.
    fn fetch(&self) {
        if let Some(line) = self.memory.line() {
            A::touch(Line::Percpu(line), Access::Write);
        }
    }
    /// Adds `pages`, which may be negative.
    #[inline]
    pub(super) fn add(&self, pinned: &impl NoPreempt<A>, pages: i32, cause: Cause) {
        match &self.parts {
            Parts::Cpus(parts) => self.fold(parts.add(pinned, pages, || self.fetch())),
            Parts::Tree(parts) => self.fold(parts.add(pinned, pages, || self.fetch())),
            Parts::Single(parts) => self.fold(parts.add(pinned, pages, || self.fetch())),
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
        match &self.parts {
            Parts::Tasks(parts) => self.fold(parts.note_fault::<A>()),
            Parts::Single(parts) => parts.note_fault::<A>(),
            Parts::Cpus(_) | Parts::Tree(_) => {}
        }
    }
    /// Prepares for a second task in the address space. Called again, it does nothing.
    pub(super) fn share(&self, on: &CountMemory<A>) {
        if let Parts::Single(parts) = &self.parts
            && parts.share()
        {
            self.memory.alloc_late(on);
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
    /// Returns the total, without the parts of CPUs and tasks.
    pub(super) fn pages(&self) -> u64 {
        let alone = if let Parts::Single(parts) = &self.parts { parts.alone() } else { 0 };
        (self.total.load(Relaxed) + alone).max(0) as u64
    }
    /// Returns the total and the parts, which it reads on all CPUs, and which may change meanwhile.
    pub(super) fn sum(&self, on: &CountMemory<A>) -> u64 {
        self.memory.sum(on, READ_COUNTS);
        self.exactly().max(0) as u64
    }
    /// Returns the most pages by which [`Resident::pages`] differs from [`Resident::sum`], if that
    /// is known without reading all CPUs.
    pub(super) fn error_max(&self) -> Option<u64> {
        match &self.parts {
            Parts::Tree(parts) => Some(parts.error_max(A::cpus_possible())),
            Parts::Single(parts) if !parts.is_shared() => Some(0),
            _ => None,
        }
    }
    /// Returns the exact count; valid while nothing changes.
    pub(super) fn exactly(&self) -> i64 {
        match &self.parts {
            Parts::Cpus(parts) => self.total.load(Relaxed) + parts.sum(),
            Parts::Tasks(parts) => self.total.load(Relaxed) + parts.sum(),
            Parts::Single(parts) => self.total.load(Relaxed) + parts.sum(),
            Parts::Tree(parts) => parts.sum(),
        }
    }
    /// Checks the parts on all CPUs (`check_mm`) and frees them: the last use.
    pub(super) fn end(&self, on: &CountMemory<A>) {
        self.memory.sum(on, COUNTS);
        self.memory.free(on);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mmscale_arch::TaskId;
    use mmscale_arch::sync::PreemptGuard;
    use mmscale_stepped::{self as stepped, Stepped};

    fn resident(policy: RssPolicy) -> (CountMemory<Stepped>, Resident<Stepped>) {
        let memory = CountMemory::new();
        let resident = Resident::new(policy, &memory);
        (memory, resident)
    }

    #[test]
    fn small_changes_stay_with_their_cpu_and_large_ones_do_not() {
        let (_memory, resident) = resident(RssPolicy::Cpus);
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
        let (_memory, resident) = resident(RssPolicy::Tasks);
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

    /// The bytes that an address space of each policy allocates, on 4 CPUs, and the loops over
    /// CPUs.
    #[test]
    fn memory_is_allocated_zeroed_read_and_freed_as_the_policy_says() {
        let bytes = [
            (RssPolicy::Cpus, 32, 2, 1, 4),
            (RssPolicy::Tasks, 0, 0, 0, 0),
            (RssPolicy::Four, 32, 5, 1, 4),
            (RssPolicy::Merged, 32, 1, 1, 4),
            (RssPolicy::Single, 16, 1, 1, 0),
        ];
        for (policy, held, zeroed, set, read) in bytes {
            stepped::boot(4, 1000);
            let (memory, resident) = resident(policy);
            let zeros = || stepped::work_count(Op::PercpuZero);
            let steps = || stepped::work_count(Op::PercpuStep);
            let made = (memory.percpu().bytes(), zeros(), steps());
            assert_eq!(made, (held, 4 * zeroed, 4 * set), "{policy:?}");
            resident.end(&memory);
            let ended = (memory.percpu().bytes(), zeros(), steps());
            assert_eq!(ended, (0, 4 * zeroed, 4 * (set + read)), "{policy:?}");
        }
    }

    #[test]
    fn cached_memory_is_used_again_by_the_next_address_space() {
        stepped::boot(4, 1000);
        let (memory, resident) = resident(RssPolicy::Cached);
        resident.end(&memory);
        let before = stepped::work_count(Op::PercpuZero);
        let next = Resident::new(RssPolicy::Cached, &memory);
        assert_eq!((stepped::work_count(Op::PercpuZero), memory.percpu().bytes()), (before, 32));
        let other = Resident::new(RssPolicy::Cached, &memory);
        assert_eq!(memory.percpu().bytes(), 64);
        [next, other].iter().for_each(|of| of.end(&memory));
    }

    #[test]
    fn one_task_counts_in_one_word_until_a_second_one_starts() {
        stepped::boot(2, 1000);
        let (memory, resident) = resident(RssPolicy::Single);
        let pinned = PreemptGuard::<Stepped>::new();
        resident.note_fault();
        (0..31).for_each(|_| resident.add(&pinned, 1, Cause::Fault));
        assert_eq!((resident.pages(), resident.exactly(), resident.error_max()), (31, 31, Some(0)));
        // Another task, such as the reaper.
        stepped::set_task(TaskId::new(500));
        resident.add(&pinned, -1, Cause::Other);
        assert_eq!((resident.pages(), resident.exactly()), (30, 30));
        resident.share(&memory);
        resident.share(&memory);
        assert_eq!(memory.percpu().bytes(), 32);
        (0..31).for_each(|_| resident.add(&pinned, 1, Cause::Fault));
        assert_eq!((resident.pages(), resident.exactly(), resident.error_max()), (30, 61, None));
        resident.end(&memory);
        assert_eq!(memory.percpu().bytes(), 0);
    }
}
