//! Files on the disk: pages that are read from the device.
//!
//! The disk is the machine's one device, on which the swap area is too: a file has blocks behind
//! that area, and its requests wait in the same queue. A folio is put into the page cache locked,
//! and the completion of its read unlocks it. So a page is read once, and other tasks that need it
//! wait for the folio's lock. A fault maps a folio while it has that lock.
//!
//! Each page is a request of its own: there is no readahead, as in memory with `MADV_RANDOM`, and a
//! fault maps one page. A folio that was written to is dirty, and stays in the cache until `msync`
//! writes it back: nothing does so in the background.

use super::{File, folio_of};
use crate::folio::{FolioFlags, FolioInit};
use crate::memcg::GroupId;
use crate::space::{FaultError, MmRef, Space, Vma, VmaRange};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;
use core::sync::atomic::Ordering::{Acquire, Release};
use mmscale_arch::{Atomic, Func, IoDirection, Machine, NodeId, Order, PageIo, Pfn, Span};
use mmscale_frames::page_alloc::Gfp;

/// Advice about the pages of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FileAdvice {
    /// Read them (`POSIX_FADV_WILLNEED`).
    WillNeed,
    /// Drop those that are clean, not mapped and not locked (`POSIX_FADV_DONTNEED`).
    DontNeed,
}

impl<A: Machine> File<A> {
    /// Creates a file of `pages` zero pages on the disk, with the caller as its user. `None`: the
    /// disk has not so many blocks. Release it with [`File::put`].
    pub fn on_disk(on: MmRef<'_, A>, pages: u64) -> Option<Arc<Self>> {
        let mut table = on.spaces.files().lock();
        let behind = u32::try_from(pages).ok().and_then(|pages| table.blocks.checked_add(pages))?;
        let block = on.swap.config().pages.checked_add(table.blocks)?;
        on.swap.config().pages.checked_add(behind)?;
        table.blocks = behind;
        Some(Self::add(on, pages, Some(block), &mut table))
    }
    /// Whether it is on the disk.
    pub(in crate::space) fn is_on_disk(&self) -> bool {
        self.block.is_some()
    }
    /// Whether a page is in the cache and was read.
    pub(super) fn has_read(&self, on: MmRef<'_, A>, index: u64) -> bool {
        let found = self.lookup(on, index);
        found.is_some_and(|pfn| {
            let word = on.memory.folios.word(pfn);
            on.memory.put(pfn);
            word.has(FolioFlags::UPTODATE)
        })
    }
    /// Returns the folio of a page, with a reference (`filemap_get_folio`). If its read fails, it
    /// leaves the cache.
    fn lookup(&self, on: MmRef<'_, A>, index: u64) -> Option<Pfn> {
        let slot = self.slot(index)?;
        loop {
            // Pairs with the store in `join`: the folio is ready.
            let word = slot.load(Acquire);
            let pfn = folio_of(word)?;
            if !on.memory.folios.try_get(pfn) {
                // It is being removed.
                A::relax();
                continue;
            }
            // Pairs with the stores of 0 in the removals: if the reference is to a later folio of
            // the same frame, this finds another value.
            if slot.load(Acquire) == word {
                return Some(pfn);
            }
            on.memory.put(pfn);
        }
    }
    /// Whether the folio, whose lock the caller has, is the one of the page.
    fn holds(&self, index: u64, pfn: Pfn) -> bool {
        // Pairs with the removals, which have the folio's lock too.
        self.slot(index).is_some_and(|slot| folio_of(slot.load(Acquire)) == Some(pfn))
    }
    /// Returns the folio of a page, with a reference. If there is none, adds one and starts to read
    /// it: it is locked until then. Sleeps if there is no room in the device's queue. `Bus`: the
    /// page is beyond the end of the file.
    pub(in crate::space) fn start_read(
        &self,
        on: MmRef<'_, A>,
        index: u64,
        node: NodeId,
        group: GroupId,
    ) -> Result<Pfn, FaultError> {
        let (slot, first) = self.slot(index).zip(self.block).ok_or(FaultError::Bus)?;
        if let Some(pfn) = self.lookup(on, index) {
            return Ok(pfn);
        }
        let what = FolioInit { group, flags: FolioFlags::LOCKED, mapping: 0, index };
        let pfn = on.new_folio(node, Order::ZERO, Gfp::RECLAIMING, what)?;
        if let Some(other) = self.join(on, index, slot, pfn) {
            on.swap.unlock_folio(on.memory, pfn);
            on.memory.put(pfn);
            return Ok(other);
        }
        let block = first + index as u32;
        on.swap.read_block(PageIo { direction: IoDirection::Read, block, pfn });
        Ok(pfn)
    }
    /// Adds a new folio to the cache. Returns the page's folio, with a reference, if another task
    /// was faster.
    fn join(&self, on: MmRef<'_, A>, index: u64, slot: &A::AtomicU32, pfn: Pfn) -> Option<Pfn> {
        let _insertion = self.insertion.lock();
        let other = self.lookup(on, index);
        if other.is_none() {
            on.memory.count_file_pages(pfn, 1);
            on.memory.folios.get(pfn);
            // Pairs with the loads in `lookup`.
            slot.store(pfn.index() as u32 + 1, Release);
        }
        other
    }
    /// Removes the folio of a page, whose lock the caller has, with a reference.
    pub(in crate::space) fn remove(&self, on: MmRef<'_, A>, index: u64, pfn: Pfn) {
        {
            let _insertion = self.insertion.lock();
            let Some(slot) = self.slot(index) else { return };
            if !self.holds(index, pfn) {
                return;
            }
            // Pairs with the second load in `lookup`.
            slot.store(0, Release);
        }
        on.memory.count_file_pages(pfn, -1);
        on.memory.put(pfn);
    }
    /// Removes a clean folio, whose lock the caller has, if only the cache and the caller have
    /// references. Returns whether it did.
    fn remove_clean(&self, on: MmRef<'_, A>, index: u64, pfn: Pfn) -> bool {
        let folios = on.memory.folios;
        {
            let _insertion = self.insertion.lock();
            let Some(slot) = self.slot(index) else { return false };
            if !self.holds(index, pfn) || !folios.freeze(pfn, 2) {
                return false;
            }
            let busy = FolioFlags::DIRTY | FolioFlags::WRITEBACK;
            if folios.word(pfn).flags().intersects(busy) {
                folios.unfreeze(pfn, 2);
                return false;
            }
            // Pairs with the second load in `lookup`.
            slot.store(0, Release);
            folios.unfreeze(pfn, 1);
        }
        on.memory.count_file_pages(pfn, -1);
        true
    }
    /// Drops a page if it is clean, not mapped and not locked.
    fn drop_page(&self, on: MmRef<'_, A>, index: u64) {
        let Some(pfn) = self.lookup(on, index) else { return };
        if on.swap.trylock_folio(on.memory, pfn) {
            if on.memory.folios.word(pfn).maps() == 0 {
                self.remove_clean(on, index, pfn);
            }
            on.swap.unlock_folio(on.memory, pfn);
        }
        on.memory.put(pfn);
    }
    /// Writes the dirty pages among `pages` to the disk, and waits for it. Sleeps; the caller has
    /// no lock.
    pub(in crate::space) fn write_back(&self, on: MmRef<'_, A>, pages: Range<u64>) {
        let Some(first) = self.block else { return };
        let within = pages.start..pages.end.min(self.pages);
        let start = |index| self.start_writing(on, index).map(|pfn| (index, pfn));
        let dirty: Vec<(u64, Pfn)> = within.filter_map(start).collect();
        if dirty.is_empty() {
            return;
        }
        // A write before this is in what the device gets. One after it makes the folio dirty again.
        on.spaces.each(|space| space.write_protect(on, self.id, &pages));
        for &(index, pfn) in &dirty {
            let block = first + index as u32;
            on.swap.write_block(PageIo { direction: IoDirection::Write, block, pfn });
        }
        for (_, pfn) in dirty {
            on.swap.wait_writeback(on.memory, pfn);
            on.memory.put(pfn);
        }
    }
    /// Makes a dirty folio clean and puts it under writeback. Returns it with a reference. Waits
    /// for another task's write of the page.
    fn start_writing(&self, on: MmRef<'_, A>, index: u64) -> Option<Pfn> {
        let pfn = self.lookup(on, index)?;
        let folios = on.memory.folios;
        loop {
            // Not with the folio's lock: the other task may wait for one that waits for this lock.
            on.swap.wait_writeback(on.memory, pfn);
            on.swap.lock_folio(on.memory, pfn);
            if !folios.word(pfn).has(FolioFlags::WRITEBACK) {
                break;
            }
            on.swap.unlock_folio(on.memory, pfn);
        }
        let dirty = folios.test_and_clear(pfn, FolioFlags::DIRTY);
        if dirty {
            folios.set(pfn, FolioFlags::WRITEBACK);
        }
        on.swap.unlock_folio(on.memory, pfn);
        if !dirty {
            on.memory.put(pfn);
        }
        dirty.then_some(pfn)
    }
    /// Takes advice for `pages` (`posix_fadvise`), which may reach beyond the end of the file. Does
    /// nothing for a file in memory. Reads are started for a task on the calling CPU, in `group`.
    pub fn advise(&self, on: MmRef<'_, A>, pages: Range<u64>, advice: FileAdvice, group: GroupId) {
        let _span = Span::<A>::enter(Func::GenericFadvise);
        if !self.is_on_disk() {
            return;
        }
        for index in pages.start..pages.end.min(self.pages) {
            match advice {
                FileAdvice::DontNeed => self.drop_page(on, index),
                FileAdvice::WillNeed => {
                    let node = A::node_of(A::cpu());
                    // This is advice: a page that cannot be read now is read by the fault.
                    if let Ok(pfn) = self.start_read(on, index, node, group) {
                        on.memory.put(pfn);
                    }
                }
            }
            A::cond_resched();
        }
    }
}

impl<A: Machine> Space<A> {
    /// `MADV_WILLNEED` in memory of a file.
    pub(in crate::space) fn will_need_file(&self, on: MmRef<'_, A>, vma: &Vma, part: VmaRange) {
        if let Some(map) = vma.file
            && let Some(file) = self.file(map.id)
        {
            let first = map.index_of(part.start());
            file.advise(on, first..first + part.pages(), FileAdvice::WillNeed, self.group);
        }
    }
}
