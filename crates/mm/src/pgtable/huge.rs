//! Splitting huge pages.

use super::entry::{Pte, PteFlags};
use super::level::{ENTRIES, Level, piece};
use super::slot::PmdTable;
use super::walk::Ending;
use super::{PageTable, PtRef, TableError};
use crate::tlb::Extent;
use mmscale_arch::{Func, Machine, Op, PageSize, Span, VmaRange, Vpn};

impl<A: Machine> PageTable<A> {
    /// Replaces the huge page at `page` by 512 page entries with the same flags. Returns `false` if
    /// there is none. Users of the pages see no change, except that an access may fault meanwhile.
    /// The caller updates the folio's counts.
    pub fn split_huge(&self, on: PtRef<'_, A>, page: Vpn) -> Result<bool, TableError> {
        self.split_huge_if(on, page, PteFlags::empty(), |_| true)
    }
    /// Splits a huge page for which `is_meant` returns true, evaluated under the table's lock. Also
    /// sets `mark` in the new entries.
    pub fn split_huge_if(
        &self,
        on: PtRef<'_, A>,
        page: Vpn,
        mark: PteFlags,
        is_meant: impl Fn(Pte) -> bool,
    ) -> Result<bool, TableError> {
        let _span = Span::<A>::enter(Func::SplitHugePmd);
        let Ending::Huge(pmd) = self.descend(page) else { return Ok(false) };
        let spare = self.alloc(on, Level::Pte)?;
        let mut locked = PmdTable::<A>::lock(self, on, pmd, page);
        if !locked.get(page).is_huge() || !is_meant(locked.get(page)) {
            drop(locked);
            self.free(on, spare);
            return Ok(false);
        }
        let huge = locked.take(page);
        if huge.is_present() {
            // The hardware must neither mark the cleared entry nor cache both sizes at a time.
            let covered = piece(VmaRange::USER, page, Level::Pmd.entry_pages());
            let _ = self.flush(on, Extent::Range(covered, PageSize::Huge));
        }
        for at in 0..ENTRIES {
            A::table_store(spare, at, huge.piece(at).with(mark).word());
        }
        A::work(Op::PteSet, ENTRIES as u32);
        locked.put_table(page, spare);
        locked.count(ENTRIES as i32);
        Ok(true)
    }
}
