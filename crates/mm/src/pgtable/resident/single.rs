//! A page count in one word that belongs to the only task of an address space (posted).
//!
//! Other tasks, such as a parent that copies pages or a reaper, add to the total. Once a second
//! task starts, parts belong to CPUs, as with `stock`.

use super::cpus::CpuParts;
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicBool, AtomicI64, AtomicU32};
use mmscale_arch::Machine;
use mmscale_arch::sync::NoPreempt;

/// The part of the only task, and those of CPUs after it.
pub(super) struct SingleParts {
    /// The task's number plus 1, since its first fault; 0 before.
    owner: AtomicU32,
    /// Pages that the only task has added. Only that task changes it.
    alone: AtomicI64,
    shared: AtomicBool,
    parts: CpuParts,
}

impl SingleParts {
    pub(super) fn new(cpus: usize) -> Self {
        Self {
            owner: AtomicU32::new(0),
            alone: AtomicI64::new(0),
            shared: AtomicBool::new(false),
            parts: CpuParts::new(cpus),
        }
    }
    fn me<A: Machine>() -> u32 {
        A::current().index() as u32 + 1
    }
    /// Notes a fault of the calling task, which is one of the address space's.
    #[inline]
    pub(super) fn note_fault<A: Machine>(&self) {
        if self.owner.load(Relaxed) == 0 {
            self.owner.store(Self::me::<A>(), Relaxed);
        }
    }
    /// Adds `pages`; returns those to add to the total. `first` is called at a CPU's first use of
    /// its part.
    #[inline]
    pub(super) fn add<A: Machine>(
        &self,
        pinned: &impl NoPreempt<A>,
        pages: i32,
        first: impl FnOnce(),
    ) -> i32 {
        if self.is_shared() {
            return self.parts.add(pinned, pages, first);
        }
        if self.owner.load(Relaxed) != Self::me::<A>() {
            return pages;
        }
        self.alone.store(self.alone.load(Relaxed) + i64::from(pages), Relaxed);
        0
    }
    /// Whether a second task has started.
    #[inline]
    pub(super) fn is_shared(&self) -> bool {
        self.shared.load(Relaxed)
    }
    /// Notes that a second task starts. Returns whether it is the first such call.
    pub(super) fn share(&self) -> bool {
        !self.shared.swap(true, Relaxed)
    }
    /// Returns the part of the only task.
    pub(super) fn alone(&self) -> i64 {
        self.alone.load(Relaxed)
    }
    /// Returns the sum of all parts.
    pub(super) fn sum(&self) -> i64 {
        self.alone() + self.parts.sum()
    }
}
