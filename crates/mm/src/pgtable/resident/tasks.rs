//! Parts of a page count by task, as Linux had them before 6.2 (`SPLIT_RSS_COUNTING`).
//!
//! A task adds its page faults to its own part. It adds the part to the total after 64 faults, when
//! it unmaps pages, and at its end. The total's error is at most 65 pages for each task. Only the
//! task itself uses its part.

use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicI32, AtomicU32};
use mmscale_arch::Machine;
use mmscale_arch::sync::Sparse;

/// The most tasks of a machine.
const TASKS_MAX: usize = 1 << 22;
/// More faults than these add the part to the total (`TASK_RSS_EVENTS_THRESH`).
pub(super) const FAULTS: u32 = 64;

/// A task's part (`task_struct.rss_stat`).
#[derive(Default)]
struct Part {
    pages: AtomicI32,
    /// Faults since the part was last added to the total.
    faults: AtomicU32,
}

/// The parts of all tasks.
pub(super) struct TaskParts(Sparse<Part>);

impl TaskParts {
    pub(super) fn new() -> Self {
        Self(Sparse::new(TASKS_MAX))
    }
    fn own<A: Machine>(&self) -> &Part {
        self.0.get_or_make(A::current().index(), |_| Part::default())
    }
    /// Adds `pages` to the calling task's part (`add_mm_counter_fast`).
    #[inline]
    pub(super) fn add<A: Machine>(&self, pages: i32) {
        let own = self.own::<A>();
        own.pages.store(own.pages.load(Relaxed) + pages, Relaxed);
    }
    /// Counts a fault of the calling task. Returns the pages to add to the total.
    #[inline]
    pub(super) fn note_fault<A: Machine>(&self) -> i32 {
        let own = self.own::<A>();
        let faults = own.faults.load(Relaxed);
        own.faults.store(faults + 1, Relaxed);
        if faults > FAULTS { self.take::<A>() } else { 0 }
    }
    /// Empties the calling task's part; returns its pages.
    pub(super) fn take<A: Machine>(&self) -> i32 {
        let Some(own) = self.0.get(A::current().index()) else { return 0 };
        own.faults.store(0, Relaxed);
        own.pages.swap(0, Relaxed)
    }
    /// Returns the sum of all parts.
    pub(super) fn sum(&self) -> i64 {
        self.0.iter_made().map(|part| i64::from(part.pages.load(Relaxed))).sum()
    }
}
