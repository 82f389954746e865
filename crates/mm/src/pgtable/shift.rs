//! Moving entries to other pages of the same address space, for mremap.

use super::entry::Pte;
use super::level::{ENTRIES, Level, piece};
use super::range::{Direction, LeafTable};
use super::slot::{PmdTable, PteTable};
use super::{PageTable, PtRef, TableError};
use crate::tlb::Extent;
use mmscale_arch::{Func, Machine, PageSize, Pfn, Span, VmaRange, Vpn};

/// The reason why a move ended early.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MoveError {
    /// Pages at the start of the range that were moved; the caller moves them back.
    pub moved: u64,
    /// The error for the next page.
    pub why: TableError,
}

/// Entries that are moved together, kept on the stack.
const BATCH: u64 = 128;

impl<A: Machine> PageTable<A> {
    /// Moves the mappings of `from` to the pages starting at `to`, where nothing is mapped
    /// (`move_page_tables`). Moves whole tables and huge pages where both ends are aligned. On
    /// return no CPU uses the old translations.
    ///
    /// mmap_lock and the VMAs of both ranges are held for writing. The ranges do not overlap.
    pub fn move_range(&self, on: PtRef<'_, A>, from: VmaRange, to: Vpn) -> Result<(), MoveError> {
        let _span = Span::<A>::enter(Func::MovePageTables);
        let mut left = Some(from);
        while let Some(rest) = left {
            let Some((place, found)) = self.find_leaf(rest, Direction::Forward) else { break };
            let moved = found.start().get() - from.start().get();
            let there = to.offset(moved);
            let fail = |why| MoveError { moved, why };
            let done = self.move_leaf(on, &place, found, there).map_err(fail)?;
            left = VmaRange::new(found.start().offset(done), from.end());
            A::cond_resched();
        }
        Ok(())
    }
    /// Moves a part of what was found at the start of `found`; returns the number of pages moved.
    fn move_leaf(
        &self,
        on: PtRef<'_, A>,
        place: &LeafTable,
        found: VmaRange,
        to: Vpn,
    ) -> Result<u64, TableError> {
        let whole = found.pages() == ENTRIES as u64 && to == Level::Pmd.entry_start(to);
        match *place {
            LeafTable::Ptes(table) => {
                if whole && self.move_entry(on, found, to, PageSize::Base)? {
                    return Ok(found.pages());
                }
                self.move_ptes(on, table, found, to)
            }
            LeafTable::Huge(_) => {
                if whole && self.move_entry(on, found, to, PageSize::Huge)? {
                    return Ok(found.pages());
                }
                self.split_huge(on, found.start())?;
                Ok(0)
            }
        }
    }
    /// Moves one entry of level `Pmd`, a table or a huge page. Returns `false` if the target has an
    /// empty table or the entry has changed.
    fn move_entry(
        &self,
        on: PtRef<'_, A>,
        found: VmaRange,
        to: Vpn,
        size: PageSize,
    ) -> Result<bool, TableError> {
        let (page, target) = (found.start(), self.pmd_table(on, to)?);
        let empty = |table: Pfn| PmdTable::<A>::lock(self, on, table, to);
        if !empty(target).raw(to).is_none() {
            return Ok(false);
        }
        let source = self.pmd_table(on, page)?;
        let mut locked = PmdTable::<A>::lock(self, on, source, page);
        locked.by_move();
        if locked.raw(page).is_none() {
            return Ok(true);
        }
        let entry = locked.take_raw(page);
        let _ = self.flush(on, Extent::Range(found, size));
        drop(locked);
        let mut locked = PmdTable::<A>::lock(self, on, target, to);
        locked.by_move();
        if entry.is_table() {
            locked.put_table(to, entry.frame());
        } else {
            locked.fill(to, entry);
        }
        Ok(true)
    }
    /// Moves up to [`BATCH`] pages; returns how many.
    fn move_ptes(
        &self,
        on: PtRef<'_, A>,
        source: Pfn,
        found: VmaRange,
        to: Vpn,
    ) -> Result<u64, TableError> {
        let target = self.pte_table(on, to)?;
        let room = piece(VmaRange::USER, to, Level::Pte.table_pages()).end().get() - to.get();
        let pages = found.pages().min(room).min(BATCH);
        let mut batch = [Pte::NONE; BATCH as usize];
        let mut translated = None;
        {
            let mut ptes = PteTable::<A>::lock(self, on, source, found.start());
            ptes.by_move();
            for (slot, at) in batch.iter_mut().zip(0..pages) {
                *slot = ptes.take(found.start().offset(at));
                if slot.is_present() {
                    let (first, _) = translated.unwrap_or((at, at));
                    translated = Some((first, at + 1));
                }
            }
            // Under the lock: a later holder that finds no entry knows that no CPU uses the page.
            if let Some((first, end)) = translated
                && let Some(range) = VmaRange::with_pages(found.start().offset(first), end - first)
            {
                let _ = self.flush(on, Extent::Range(range, PageSize::Base));
            } else {
                on.tlb.flush_batched_pending(self.asid);
            }
        }
        let mut ptes = PteTable::<A>::lock(self, on, target, to);
        ptes.by_move();
        for (pte, at) in batch.into_iter().zip(0..pages).filter(|(pte, _)| !pte.is_none()) {
            ptes.fill(to.offset(at), pte);
        }
        Ok(pages)
    }
}
