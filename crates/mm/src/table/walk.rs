//! From the root to an entry.

use super::entry::Pte;
use super::level::Level;
use super::slot::{PmdTable, PteTable};
use super::{PageTable, Paging, TableError};
use crate::arch::{Arch, Op, PageSize, Pfn, Vpn};

/// Where a walk down to the lowest level ended.
pub(super) enum Ending {
    /// An entry of this level is empty.
    Nothing(Level),
    /// At a huge page, in this table.
    Huge(Pfn),
    /// At a table of the lowest level.
    Table(Pfn),
}

/// An entry, read without a lock.
#[inline]
pub(super) fn peek<A: Arch>(table: Pfn, level: Level, page: Vpn) -> Pte {
    Pte::of(A::table_peek(table, level.index(page)))
}

impl<A: Arch> PageTable<A> {
    pub(super) fn root(&self) -> Pfn {
        self.root
    }
    /// Walks down as far as there are tables.
    pub(super) fn descend(&self, page: Vpn) -> Ending {
        let mut table = self.root;
        for level in [Level::Pgd, Level::Pud, Level::Pmd] {
            let entry = peek::<A>(table, level, page);
            if entry.is_table() {
                table = entry.frame();
            } else if entry.is_none() {
                return Ending::Nothing(level);
            } else {
                return Ending::Huge(table);
            }
        }
        Ending::Table(table)
    }
    /// The table of the level of huge pages for `page`, made if it is not there.
    pub(super) fn pmd_table(&self, on: Paging<'_, A>, page: Vpn) -> Result<Pfn, TableError> {
        A::work(Op::TableWalk, 1);
        let mut table = self.root;
        for level in [Level::Pgd, Level::Pud] {
            let mut entry = peek::<A>(table, level, page);
            if entry.is_none() {
                entry = self.extend(on, table, level, page)?;
            }
            table = entry.frame();
        }
        Ok(table)
    }
    /// Makes a table below an empty upper entry, unless somebody else is faster.
    #[cold]
    fn extend(
        &self,
        on: Paging<'_, A>,
        table: Pfn,
        level: Level,
        page: Vpn,
    ) -> Result<Pte, TableError> {
        let spare = self.alloc(on, level.down())?;
        let guard = self.upper.lock();
        let found = Pte::of(A::table_load(table, level.index(page)));
        if found.is_none() {
            let entry = Pte::table(spare);
            A::table_store(table, level.index(page), entry.word());
            return Ok(entry);
        }
        drop(guard);
        self.free(on, spare);
        Ok(found)
    }
    /// The table of the lowest level for `page`, made if it is not there.
    pub(super) fn pte_table(&self, on: Paging<'_, A>, page: Vpn) -> Result<Pfn, TableError> {
        let pmd = self.pmd_table(on, page)?;
        let entry = peek::<A>(pmd, Level::Pmd, page);
        if entry.is_table() {
            return Ok(entry.frame());
        }
        if !entry.is_none() {
            return Err(TableError::Huge);
        }
        let spare = self.alloc(on, Level::Pte)?;
        let mut locked = PmdTable::<A>::new(pmd, page, on.locks.lock(pmd));
        let found = locked.raw(page);
        if found.is_none() {
            locked.put_table(page, spare);
            return Ok(spare);
        }
        drop(locked);
        self.free(on, spare);
        if found.is_table() { Ok(found.frame()) } else { Err(TableError::Huge) }
    }

    /// The table of the entry for `page`, locked; made if it is not there (`pte_alloc_map_lock`).
    #[inline]
    pub fn lock_pte<'a>(
        &self,
        on: Paging<'a, A>,
        page: Vpn,
    ) -> Result<PteTable<'a, A>, TableError> {
        let table = self.pte_table(on, page)?;
        Ok(PteTable::new(table, page, on.locks.lock(table)))
    }
    /// The table of the entry for `page`, locked, if it is there (`pte_offset_map_lock`). `None` at
    /// a huge page too.
    pub fn find_pte<'a>(&self, on: Paging<'a, A>, page: Vpn) -> Option<PteTable<'a, A>> {
        A::work(Op::TableWalk, 1);
        match self.descend(page) {
            Ending::Table(table) => Some(PteTable::new(table, page, on.locks.lock(table))),
            Ending::Nothing(_) | Ending::Huge(_) => None,
        }
    }
    /// The table of the entry for the huge page at `page`, locked; made if it is not there.
    /// [`TableError::Table`] where single pages are or were mapped.
    pub fn lock_pmd<'a>(
        &self,
        on: Paging<'a, A>,
        page: Vpn,
    ) -> Result<PmdTable<'a, A>, TableError> {
        let table = self.pmd_table(on, page)?;
        let locked = PmdTable::new(table, page, on.locks.lock(table));
        if locked.raw(page).is_table() { Err(TableError::Table) } else { Ok(locked) }
    }
    /// What stands at `page`, and how much it covers; read without a lock, so old when it arrives.
    pub fn lookup(&self, page: Vpn) -> Option<(Pte, PageSize)> {
        A::work(Op::TableWalk, 1);
        let (table, level, size) = match self.descend(page) {
            Ending::Nothing(_) => return None,
            Ending::Huge(table) => (table, Level::Pmd, PageSize::Huge),
            Ending::Table(table) => (table, Level::Pte, PageSize::Base),
        };
        let entry = peek::<A>(table, level, page);
        (!entry.is_none() && !entry.is_table()).then_some((entry, size))
    }
}
