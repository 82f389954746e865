//! Replacing 512 single pages by a huge page (`MADV_COLLAPSE`).

use crate::folio::FolioFlags;
use crate::pgtable::{Direction, Gather, Pte, PteFlags, TableError};
use crate::space::change::Change;
use crate::space::fault::huge_range;
use crate::space::zap::{HUGE_ORDER, HUGE_PAGES, Locked, Retire};
use crate::space::{MmRef, Space, SpaceError, Vma, VmaFlags, VmaRange, Vpn};
use alloc::vec::Vec;
use mmscale_arch::{Func, Machine, Order, PageSize, Pfn, Span};
use mmscale_frames::page_alloc::Gfp;

impl Vma {
    /// Whether it may have a huge page (`thp_vma_allowable_order`): page numbers and folio indices
    /// are aligned alike, and one fits.
    fn has_huge_stretch(&self) -> bool {
        let moved = self.range.start().get().wrapping_sub(self.origin);
        let refused = self.flags.contains(VmaFlags::NO_HUGE) || self.prot.is_empty();
        let last = self.range.end().get() & !(HUGE_PAGES - 1);
        let fits = last.checked_sub(HUGE_PAGES).is_some_and(|at| at >= self.range.start().get());
        fits && !refused && moved.is_multiple_of(HUGE_PAGES)
    }
}

impl<A: Machine> Space<A> {
    /// Makes huge pages of all aligned parts of `range`, VMA by VMA. Holes are skipped, and make it
    /// fail at the end.
    ///
    /// `Inval`: a VMA may have no huge page or has no room for one, or its part of the range has no
    /// aligned part. `NoMemory`: a part is not mapped, or there is no memory for a huge page.
    /// `Again`: a page is shared, in swap, or otherwise in use.
    pub(super) fn collapse(&self, on: MmRef<'_, A>, range: VmaRange) -> Result<(), SpaceError> {
        let _span = Span::<A>::enter(Func::CollapseHugePage);
        let (mut rest, mut mapped) = (Some(range), 0);
        while let Some(left) = rest {
            let Some(vma) = self.lock.read().first_in(left) else { break };
            let Some(part) = vma.range.intersection(left) else { break };
            mapped += part.pages();
            rest = VmaRange::new(part.end(), range.end());
            self.collapse_vma(on, &vma, part)?;
        }
        if mapped == range.pages() { Ok(()) } else { Err(SpaceError::NoMemory) }
    }
    /// Collapses a part of one VMA (`madvise_collapse`).
    fn collapse_vma(&self, on: MmRef<'_, A>, vma: &Vma, part: VmaRange) -> Result<(), SpaceError> {
        let start = part.start().get().next_multiple_of(HUGE_PAGES);
        let end = part.end().get() & !(HUGE_PAGES - 1);
        // No aligned part, not even an empty one: EINVAL in Linux.
        if start > end || !vma.has_huge_stretch() {
            return Err(SpaceError::Inval);
        }
        let mut page = Vpn::new(start);
        while page.get() < end {
            self.alive()?;
            self.collapse_one(on, huge_range(page))?;
            page = page.offset(HUGE_PAGES);
            A::cond_resched();
        }
        Ok(())
    }
    fn collapse_one(&self, on: MmRef<'_, A>, range: VmaRange) -> Result<(), SpaceError> {
        let mut change = self.change();
        let page = range.start();
        let vma = change.at(page).ok_or(SpaceError::NoMemory)?;
        if !vma.has_huge_stretch() || vma.file.is_some() || !vma.range.covers(range) {
            return Err(SpaceError::Inval);
        }
        // Faults of other threads end before the first check.
        change.hold_at(page);
        if matches!(self.table.lookup(page), Some((_, PageSize::Huge))) {
            return Ok(());
        }
        on.memory.blanket_drain();
        self.is_collapsible(on, range)?;
        // The tables above are made first: nothing fails after a page was unmapped.
        match self.table.lock_pmd(on.paging, page) {
            Ok(_) | Err(TableError::Table) => {}
            Err(why) => return Err(why.into()),
        }
        let what = self.init_for(&vma, page);
        let node = self.node_for(&vma);
        let new = on.new_folio(node, HUGE_ORDER, Gfp::RECLAIMING, what)?;
        self.take_and_copy(on, &change, &vma, range, new);
        Ok(())
    }
    /// Whether all pages of `range` are exclusive. The VMA is locked, so only the hardware changes
    /// entries.
    fn is_collapsible(&self, on: MmRef<'_, A>, range: VmaRange) -> Result<(), SpaceError> {
        let Some(ptes) = self.table.find_pte(on.paging, range.start()) else { return Ok(()) };
        for page in Direction::Forward.pages(range) {
            let pte = ptes.get(page);
            let flags = pte.flags();
            if pte.as_swap().is_some() {
                return Err(SpaceError::Again);
            }
            let Some(pfn) = pte.pfn().filter(|_| !flags.contains(PteFlags::ZERO)) else {
                continue;
            };
            let word = on.memory.folios.word(pfn);
            let busy = FolioFlags::SWAP_CACHE | FolioFlags::WRITEBACK | FolioFlags::LOCKED;
            let whole = flags.contains(crate::space::zap::PIECE) || word.maps() != 1;
            if whole || word.flags().intersects(busy) || !on.memory.is_exclusive(pfn, 1) {
                return Err(SpaceError::Again);
            }
        }
        Ok(())
    }
    /// Copies `range` into the huge folio `new`, and maps it.
    fn take_and_copy(
        &self,
        on: MmRef<'_, A>,
        change: &Change<'_, A>,
        vma: &Vma,
        range: VmaRange,
        new: Pfn,
    ) {
        debug_assert!(change.covers(range), "the VMA is held");
        let mut gather = Gather::new(&self.table);
        let mut old: Vec<Pte> = Vec::new();
        if let Some(mut ptes) = self.table.find_pte(on.paging, range.start()) {
            for page in Direction::Forward.pages(range) {
                let pte = ptes.take(page);
                if pte.is_present() {
                    gather.note(page, PageSize::Base);
                }
                old.push(pte);
            }
        }
        // After this flush no CPU writes to the old pages.
        let _ = gather.flush_tlb(on.paging);
        for at in 0..HUGE_PAGES as usize {
            let pte = old.get(at).copied().unwrap_or(Pte::NONE);
            let from = pte.pfn().filter(|_| !pte.flags().contains(PteFlags::ZERO));
            let to = new.offset(at);
            let Some(from) = from else {
                A::clear_block(to, Order::ZERO);
                continue;
            };
            A::copy_page(from, to);
            let locked = vma.flags.contains(VmaFlags::LOCKED);
            self.unmap_folio(on, from, 1, if locked { Locked::Yes } else { Locked::No });
            // Reclaim may have added it to the swap cache since the check, and then failed to unmap
            // it.
            on.swap.free_swap_cache(on.memory, from);
            on.memory.put(from);
        }
        let mut sink = Retire(on);
        self.table.free_tables(on.paging, &mut gather, &mut sink, range, range);
        gather.finish(on.paging, &mut sink);
        on.memory.add_map(new);
        on.memory.add(new);
        if vma.flags.contains(VmaFlags::LOCKED) {
            on.memory.mlock(new);
        }
        let marks = PteFlags::HUGE | PteFlags::ACCESSED | PteFlags::DIRTY | self.rights(vma);
        let shown = Pte::page(new, marks).hidden(!vma.prot.is_readable());
        match self.table.lock_pmd(on.paging, range.start()) {
            Ok(mut pmd) => pmd.fill(range.start(), shown),
            Err(why) => panic!("the tables above a huge page were there: {why}"),
        }
    }
}
