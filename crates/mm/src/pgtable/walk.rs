//! Walking from the root to an entry.

use super::entry::Pte;
use super::level::Level;
use super::slot::{PmdTable, PteTable};
use super::{PageTable, PtRef, TableError};
use mmscale_arch::{Machine, Op, PageSize, Pfn, Vpn, Walked};

/// The levels above the lowest, from the root.
const UPPER: [Level; 3] = [Level::Pgd, Level::Pud, Level::Pmd];
/// All levels, from the root.
const DOWN: [Level; Level::COUNT] = [Level::Pgd, Level::Pud, Level::Pmd, Level::Pte];

/// The result of a walk to the lowest level.
pub(super) enum Ending {
    /// An entry of this level is empty.
    Nothing(Level),
    /// A huge page, in this table.
    Huge(Pfn),
    /// A table of the lowest level.
    Table(Pfn),
}

/// Reads an entry without a lock.
#[inline]
pub(super) fn peek<A: Machine>(table: Pfn, level: Level, page: Vpn) -> Pte {
    Pte::of(A::table_peek(table, level.index(page)))
}

impl<A: Machine> PageTable<A> {
    pub(super) fn root(&self) -> Pfn {
        self.root
    }
    /// Reads the entries of `levels` for `page` as far as tables exist.
    #[inline]
    pub(super) fn walk<const N: usize>(&self, levels: [Level; N], page: Vpn) -> Walked {
        let path = levels.map(|level| level.index(page));
        A::table_walk(self.root, &path, |word| {
            let entry = Pte::of(word);
            entry.is_table().then(|| entry.frame())
        })
    }
    /// Walks down as far as tables exist.
    pub(super) fn descend(&self, page: Vpn) -> Ending {
        let found = self.walk(UPPER, page);
        let entry = Pte::of(found.entry);
        if entry.is_table() {
            Ending::Table(entry.frame())
        } else if entry.is_none() {
            Ending::Nothing(UPPER[found.depth])
        } else {
            Ending::Huge(found.table)
        }
    }
    /// Returns the table of level `Pmd` for `page`; allocates it if needed.
    pub(super) fn pmd_table(&self, on: PtRef<'_, A>, page: Vpn) -> Result<Pfn, TableError> {
        A::work(Op::TableWalk, 1);
        self.reach_pmd(on, page)
    }
    fn reach_pmd(&self, on: PtRef<'_, A>, page: Vpn) -> Result<Pfn, TableError> {
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
    /// Links a new table into an empty upper entry, unless another task was faster.
    #[cold]
    fn extend(
        &self,
        on: PtRef<'_, A>,
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
    /// Returns the table of the lowest level for `page`; allocates it if needed.
    pub(super) fn pte_table(&self, on: PtRef<'_, A>, page: Vpn) -> Result<Pfn, TableError> {
        A::work(Op::TableWalk, 1);
        let found = self.walk(UPPER, page);
        let entry = Pte::of(found.entry);
        if entry.is_table() {
            return Ok(entry.frame());
        }
        self.make_pte_table(on, page)
    }
    #[cold]
    fn make_pte_table(&self, on: PtRef<'_, A>, page: Vpn) -> Result<Pfn, TableError> {
        let pmd = self.reach_pmd(on, page)?;
        let entry = peek::<A>(pmd, Level::Pmd, page);
        if entry.is_table() {
            return Ok(entry.frame());
        }
        if !entry.is_none() {
            return Err(TableError::Huge);
        }
        let spare = self.alloc(on, Level::Pte)?;
        let mut locked = PmdTable::<A>::lock(self, on, pmd, page);
        let found = locked.raw(page);
        if found.is_none() {
            locked.put_table(page, spare);
            return Ok(spare);
        }
        drop(locked);
        self.free(on, spare);
        if found.is_table() { Ok(found.frame()) } else { Err(TableError::Huge) }
    }

    /// Locks the table of the entry for `page`; allocates it if needed (`pte_alloc_map_lock`).
    #[inline]
    pub fn lock_pte<'a>(
        &'a self,
        on: PtRef<'a, A>,
        page: Vpn,
    ) -> Result<PteTable<'a, A>, TableError> {
        let table = self.pte_table(on, page)?;
        Ok(PteTable::lock(self, on, table, page))
    }
    /// Locks the table of the entry for `page`, if it exists (`pte_offset_map_lock`). Returns
    /// `None` for a huge page too.
    pub fn find_pte<'a>(&'a self, on: PtRef<'a, A>, page: Vpn) -> Option<PteTable<'a, A>> {
        A::work(Op::TableWalk, 1);
        match self.descend(page) {
            Ending::Table(table) => Some(PteTable::lock(self, on, table, page)),
            Ending::Nothing(_) | Ending::Huge(_) => None,
        }
    }
    /// Locks the table of the huge-page entry for `page`; allocates it if needed. Returns
    /// [`TableError::Table`] where single pages are or were mapped.
    pub fn lock_pmd<'a>(
        &'a self,
        on: PtRef<'a, A>,
        page: Vpn,
    ) -> Result<PmdTable<'a, A>, TableError> {
        let table = self.pmd_table(on, page)?;
        let locked = PmdTable::lock(self, on, table, page);
        if locked.raw(page).is_table() { Err(TableError::Table) } else { Ok(locked) }
    }
    /// Returns the entry for `page` and its size. Reads without a lock, so the result may be stale.
    pub fn lookup(&self, page: Vpn) -> Option<(Pte, PageSize)> {
        A::work(Op::TableWalk, 1);
        let (_, entry, size) = self.leaf(page)?;
        (!entry.is_none()).then_some((entry, size))
    }
    /// Returns the table, contents and size of the entry that maps `page`, if tables exist down to
    /// it.
    #[inline]
    pub(super) fn leaf(&self, page: Vpn) -> Option<(Pfn, Pte, PageSize)> {
        let found = self.walk(DOWN, page);
        let entry = Pte::of(found.entry);
        match DOWN[found.depth] {
            Level::Pte => Some((found.table, entry, PageSize::Base)),
            _ if entry.is_none() => None,
            _ => Some((found.table, entry, PageSize::Huge)),
        }
    }
}
