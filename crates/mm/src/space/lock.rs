//! The lock of one VMA: page faults hold it for reading instead of mmap_lock.
//!
//! A reader only tries. A writer, who holds mmap_lock for writing, shuts new readers out and waits
//! for those that are in; it keeps the lock until its whole change is done.

use super::area::AreaCell;
use super::{Area, Space, VmaId, Vpn};
use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use mmscale_arch::{Atomic, Machine, Op, planted};

/// A writer has the VMA, or waits for its readers. Below it: the number of readers.
const WRITER: u32 = 1 << 31;

/// What a slot holds: a VMA and its lock.
pub(super) struct Vma<A: Machine> {
    lock: A::AtomicU32,
    /// The change under way has it. Under mmap_lock, held for writing.
    held: AtomicBool,
    area: AreaCell,
}

impl<A: Machine> Default for Vma<A> {
    fn default() -> Self {
        Self { lock: A::AtomicU32::new(0), held: AtomicBool::new(false), area: AreaCell::default() }
    }
}

impl<A: Machine> Vma<A> {
    /// What it is. Under its lock, mmap_lock, or with nobody else about.
    pub(super) fn area(&self) -> Area {
        self.area.get()
    }
    /// Changes it: under both locks, held for writing, or before it is in the tree.
    pub(super) fn set(&self, area: &Area) {
        self.area.set(area);
    }
    /// Takes it for writing; sleeps until its readers are gone. `false`: the change has it already.
    pub(super) fn write(&self, space: &Space<A>) -> bool {
        if self.held.swap(true, Relaxed) {
            return false;
        }
        if self.lock.fetch_or(WRITER, AcqRel) != 0 && !planted!(VmaWriterImpatient) {
            space.vma_waiters.wait_until(|| self.lock.load(Acquire) == WRITER);
        }
        true
    }
    /// Lets it go.
    pub(super) fn write_done(&self) {
        self.held.store(false, Relaxed);
        self.lock.fetch_and(!WRITER, Release);
    }
    /// Takes it for reading, unless a writer has it or waits.
    pub(super) fn try_read(&self, space: &Space<A>) -> bool {
        if self.lock.fetch_add(1, Acquire) & WRITER == 0 {
            return true;
        }
        self.read_done(space);
        false
    }
    fn read_done(&self, space: &Space<A>) {
        let before = self.lock.fetch_sub(1, Release);
        if before == WRITER + 1 && !planted!(VmaWriterUnwoken) {
            space.vma_waiters.wake_all();
        }
    }
}

/// A VMA, held for reading until this is dropped: it stays where it is and as it is.
pub(super) struct VmaRead<'a, A: Machine> {
    space: &'a Space<A>,
    vma: &'a Vma<A>,
    area: Area,
}

impl<A: Machine> VmaRead<'_, A> {
    pub(super) fn area(&self) -> &Area {
        &self.area
    }
}

impl<A: Machine> Drop for VmaRead<'_, A> {
    fn drop(&mut self) {
        self.vma.read_done(self.space);
    }
}

impl<A: Machine> Space<A> {
    /// The VMA that holds `page`, locked for reading without mmap_lock (`lock_vma_under_rcu`).
    /// `None`: there is none, or it or the tree is being changed; mmap_lock tells.
    #[inline]
    pub(super) fn lock_vma(&self, page: Vpn) -> Option<VmaRead<'_, A>> {
        A::work(Op::VmaFind, 1);
        self.lock_vma_now(page)
    }
    /// The same with the look-up charged.
    #[inline]
    pub(super) fn lock_vma_now(&self, page: Vpn) -> Option<VmaRead<'_, A>> {
        let id = self.find_vma(page)?;
        let vma = self.lookup.get(id)?;
        if !vma.try_read(self) {
            return None;
        }
        // Whoever ends its life or moves its ends does so with the lock held for writing.
        let held = VmaRead { space: self, vma, area: vma.area() };
        let is_it = || self.lookup.is_live(id) && held.area.range.contains(page);
        let is_right = planted!(VmaUnchecked) || is_it();
        is_right.then_some(held)
    }
    /// Asks the tree while nobody changes it. The question about changes is a synchronised read,
    /// and nothing is charged between it and the look at the tree: so the answer is the tree's at
    /// that time, in the simulator too.
    #[inline]
    fn find_vma(&self, page: Vpn) -> Option<VmaId> {
        (self.changes.load_uncharged(Acquire) & 1 == 0).then(|| self.finder.find(page))?
    }
}

impl<A: Machine> Vma<A> {
    /// Whether nobody holds the lock: for checks, while nothing runs.
    pub(super) fn is_free(&self) -> bool {
        self.lock.load(Relaxed) == 0
    }
}
