//! Huge pages: 512 pages mapped by one entry.
//!
//! A write to an empty, aligned range of 2 MiB may get a huge page. When a part of it is to be
//! treated differently, it is split into entries of single pages that still map the huge folio:
//! each entry then counts as a mapping and a reference. The folio itself is not split into folios
//! of single pages. It is freed when the last entry is gone, and never goes to swap.

use crate::folio::FolioFlags;
use crate::pgtable::{Pte, PteFlags, TableError};
use crate::space::registry::HugePages;
use crate::space::zap::{HUGE_ORDER, HUGE_PAGES, PIECE};
use crate::space::{FaultError, MmRef, Space, SpaceError, Vma, VmaFlags, VmaRange, Vpn};
use mmscale_arch::{Machine, Op, PageSize};
use mmscale_frames::page_alloc::Gfp;

/// The huge page that holds `page`.
pub(crate) const fn huge_range(page: Vpn) -> VmaRange {
    let start = page.get() & !(HUGE_PAGES - 1);
    VmaRange::raw(start, start + HUGE_PAGES)
}

impl<A: Machine> Space<A> {
    /// Whether a huge page may be mapped at `page`.
    pub(super) fn takes_huge(&self, vma: &Vma, page: Vpn) -> bool {
        let wanted = match self.config.huge {
            HugePages::Never => false,
            HugePages::Advised => vma.flags.contains(VmaFlags::HUGE),
            HugePages::Always => !vma.flags.contains(VmaFlags::NO_HUGE),
        };
        // Page numbers and folio indices must be aligned alike, even if mremap has moved the VMA.
        let moved = vma.range.start().get().wrapping_sub(vma.origin);
        let aligned = moved.is_multiple_of(HUGE_PAGES);
        wanted && aligned && vma.file.is_none() && vma.range.covers(huge_range(page))
    }
    /// Handles a write fault on an empty entry by a huge page. Returns `false` if a single page is
    /// to be used.
    pub(super) fn fill_huge(
        &self,
        on: MmRef<'_, A>,
        vma: &Vma,
        page: Vpn,
    ) -> Result<bool, FaultError> {
        if !self.takes_huge(vma, page) {
            return Ok(false);
        }
        let start = huge_range(page).start();
        match self.table.lock_pmd(on.paging, start) {
            Ok(pmd) if pmd.get(start).is_none() => {}
            Ok(_) => return Ok(true),
            Err(TableError::Table | TableError::Huge) => return Ok(false),
            Err(TableError::NoMemory(_) | TableError::NoAsid) => return Err(FaultError::Oom),
        }
        // Without memory for a huge page, a single page is used.
        let what = self.init_for(vma, start);
        let folio = on.memory.alloc_folio(self.node_for(vma), HUGE_ORDER, Gfp::NOWAIT, what);
        let Ok(pfn) = folio else { return Ok(false) };
        A::clear_block(pfn, HUGE_ORDER);
        if let Ok(mut pmd) = self.table.lock_pmd(on.paging, start)
            && pmd.get(start).is_none()
            && self.stable().is_ok()
        {
            on.memory.add_map(pfn);
            on.memory.add(pfn);
            if vma.flags.contains(VmaFlags::LOCKED) {
                on.memory.mlock(pfn);
            }
            let marks = PteFlags::HUGE | PteFlags::ACCESSED | PteFlags::DIRTY;
            A::work(Op::MapPage, 1);
            pmd.fill(start, Pte::page(pfn, marks | self.rights(vma)));
            return Ok(true);
        }
        on.memory.put(pfn);
        self.stable().map(|()| true)
    }
    /// Handles a write to a read-only huge page.
    pub(super) fn huge_write(
        &self,
        on: MmRef<'_, A>,
        vma: &Vma,
        page: Vpn,
        seen: Pte,
    ) -> Result<(), FaultError> {
        let start = huge_range(page).start();
        if let Ok(mut pmd) = self.table.lock_pmd(on.paging, start) {
            let now = pmd.get(start);
            let Some(folio) = now.pfn().filter(|&pfn| Some(pfn) == seen.pfn()) else {
                return Ok(());
            };
            if now.flags().contains(PteFlags::WRITE) {
                return Ok(());
            }
            let word = on.memory.folios.word(folio);
            let alone = word.maps() == 1 && on.memory.is_exclusive(folio, 1);
            if vma.prot.is_writable() && (word.has(FolioFlags::EXCLUSIVE) || alone) {
                self.own(on, folio);
                pmd.update(start, |pte| pte.with(PteFlags::WRITE | PteFlags::DIRTY));
                return Ok(());
            }
        }
        // Other users have it: single pages are copied when they are written to.
        self.split_huge_page(on, start).map_err(|_| FaultError::Oom)
    }
    /// Replaces the huge page at `page`, if there is one, by entries of single pages.
    pub(crate) fn split_huge_page(&self, on: MmRef<'_, A>, page: Vpn) -> Result<(), SpaceError> {
        if !matches!(self.table.lookup(page), Some((_, PageSize::Huge))) {
            return Ok(());
        }
        // References and mappings are added before the entries. A task that takes the huge entry
        // drops its reference after the lock is released, so under the lock the folio is in use.
        let more = HUGE_PAGES as u32 - 1;
        let folio = {
            let Ok(pmd) = self.table.lock_pmd(on.paging, page) else { return Ok(()) };
            let Some(folio) = pmd.get(page).pfn() else { return Ok(()) };
            on.memory.folios.get(folio);
            on.memory.folios.add_pieces(folio, more);
            folio
        };
        let split =
            self.table.split_huge_if(on.paging, page, PIECE, |pte| pte.pfn() == Some(folio));
        if split != Ok(true) {
            // If another task has taken the entry, these may be the last mappings.
            on.memory.remove_maps(folio, more);
            on.memory.release(&[(folio, more)]);
        }
        on.memory.put(folio);
        split.map(|_| ()).map_err(SpaceError::from)
    }
}
