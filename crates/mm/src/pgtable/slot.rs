//! Entries under the lock of their table.

use super::entry::{Pte, PteFlags};
use super::level::Level;
use super::lock::TableGuard;
use super::resident::Cause;
use super::{PageTable, PtRef};
use mmscale_arch::sync::PreemptGuard;
use mmscale_arch::{Machine, Op, Pfn, Vpn};

/// The exclusion of other users of a table.
enum Exclusion<'a, A: Machine> {
    /// By the table's lock.
    Locked(TableGuard<'a, A>),
    /// By a claim: the address space is dead, and the caller has claimed the entries.
    Claimed(PreemptGuard<A>),
}

/// Whether other tasks may use the tables that a walk visits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Hold {
    /// They may: each table is locked.
    Lock,
    /// They may not: the address space is retired, its VMAs are locked for good, and the caller has
    /// claimed the entries. No table is locked.
    Claim,
}

/// A locked table and its entries. `LEVEL` is a [`Level`].
pub struct LockedTable<'a, A: Machine, const LEVEL: u8> {
    pfn: Pfn,
    /// The first page that the table covers.
    start: Vpn,
    of: &'a PageTable<A>,
    /// Change of the page count since the lock was taken.
    change: i32,
    /// The operation that makes the change.
    cause: Cause,
    held: Exclusion<'a, A>,
}

impl<A: Machine, const LEVEL: u8> Drop for LockedTable<'_, A, LEVEL> {
    #[inline]
    fn drop(&mut self) {
        if self.change != 0 {
            match &self.held {
                Exclusion::Locked(guard) => self.of.resident.add(guard, self.change, self.cause),
                Exclusion::Claimed(pinned) => {
                    self.of.resident.add(pinned, self.change, self.cause);
                }
            }
        }
    }
}

/// A locked table of the lowest level.
pub type PteTable<'a, A> = LockedTable<'a, A, { Level::Pte as u8 }>;
/// A locked table of level `Pmd`. Entries that point to tables are hidden: they read as
/// [`Pte::NONE`] and cannot be changed.
pub type PmdTable<'a, A> = LockedTable<'a, A, { Level::Pmd as u8 }>;

impl<'a, A: Machine, const LEVEL: u8> LockedTable<'a, A, LEVEL> {
    const OF: Level = Level::ALL[LEVEL as usize];

    /// Locks the table at `pfn`, which has the entry of `page`.
    #[inline]
    pub(super) fn lock(of: &'a PageTable<A>, on: PtRef<'a, A>, pfn: Pfn, page: Vpn) -> Self {
        let held = Exclusion::Locked(on.locks.lock(pfn));
        Self { pfn, start: Self::OF.table_start(page), of, change: 0, cause: Cause::Other, held }
    }
    /// Locks the table, or only disables preemption, as `hold` requires.
    #[inline]
    pub(super) fn hold(
        of: &'a PageTable<A>,
        on: PtRef<'a, A>,
        pfn: Pfn,
        page: Vpn,
        hold: Hold,
    ) -> Self {
        if hold == Hold::Lock {
            return Self::lock(of, on, pfn, page);
        }
        let held = Exclusion::Claimed(PreemptGuard::new());
        Self { pfn, start: Self::OF.table_start(page), of, change: 0, cause: Cause::Other, held }
    }
    /// Notes that the entries are changed by a page fault of a task of the address space.
    #[inline]
    pub(crate) fn by_fault(&mut self) {
        self.cause = Cause::Fault;
    }
    /// Notes that entries are moved from this table to another one, or from there to this one.
    pub(super) fn by_move(&mut self) {
        self.cause = Cause::Move;
    }
    /// Returns the index of the entry. Panics if `page` belongs to another table.
    #[inline]
    fn index(&self, page: Vpn) -> usize {
        assert!(Self::OF.table_start(page) == self.start, "{page:?} belongs to another table");
        Self::OF.index(page)
    }
    /// Returns the first page that the table covers.
    pub fn start(&self) -> Vpn {
        self.start
    }
    /// Returns the entry, also if it points to a table.
    #[inline]
    pub(super) fn raw(&self, page: Vpn) -> Pte {
        Pte::of(A::table_load(self.pfn, self.index(page)))
    }
    pub(super) fn put_table(&mut self, page: Vpn, table: Pfn) {
        A::table_store(self.pfn, self.index(page), Pte::table(table).word());
    }
    /// Clears the entry, also if it points to a table, and returns it.
    pub(super) fn take_raw(&mut self, page: Vpn) -> Pte {
        A::work(Op::PteClear, 1);
        let pte = Pte::of(A::table_swap(self.pfn, self.index(page), 0));
        self.change -= pte.weight();
        pte
    }
    /// Returns the entry for `page`. `ACCESSED` and `DIRTY` set by the hardware may be missing:
    /// [`LockedTable::take`] and [`LockedTable::update`] return them reliably.
    #[inline]
    pub fn get(&self, page: Vpn) -> Pte {
        let pte = self.raw(page);
        if pte.is_table() { Pte::NONE } else { pte }
    }
    /// Returns whether the entry for `page` is in this table and maps a page.
    pub(crate) fn maps(&self, page: Vpn) -> bool {
        Self::OF.table_start(page) == self.start && self.get(page).is_mapped()
    }
    /// Stores an entry where none is present (`set_pte`).
    #[inline]
    pub fn fill(&mut self, page: Vpn, pte: Pte) {
        let before = self.raw(page);
        let huge = LEVEL == Level::Pmd as u8;
        assert!(!before.is_present() && !before.is_table(), "{page:?} is in use: {before:?}");
        debug_assert!(!pte.is_mapped() || pte.is_huge() == huge, "{pte:?} at level {LEVEL}");
        A::work(Op::PteSet, 1);
        A::table_store(self.pfn, self.index(page), pte.word());
        self.change += pte.weight() - before.weight();
    }
    /// Adds `pages` of the table below the entry that were not filled under its own lock.
    pub(super) fn count(&mut self, pages: i32) {
        self.change += pages;
    }
    /// Clears the entry and returns it (`ptep_get_and_clear`). CPUs may use its mapping until the
    /// next flush.
    #[inline]
    pub fn take(&mut self, page: Vpn) -> Pte {
        if self.get(page).is_none() { Pte::NONE } else { self.take_raw(page) }
    }
    /// Changes a mapped entry and returns the old one. Calls `change` again if the hardware changed
    /// the entry meanwhile. The caller flushes if permissions are removed.
    pub fn update(&mut self, page: Vpn, change: impl Fn(Pte) -> Pte) -> Pte {
        A::work(Op::PteClear, 1);
        let index = self.index(page);
        let mut before = self.get(page);
        assert!(before.is_mapped(), "{page:?} maps nothing: {before:?}");
        loop {
            let (old, new) = (before.word(), change(before).word());
            match A::table_compare_exchange(self.pfn, index, old, new) {
                Ok(_) => return before,
                Err(found) => before = Pte::of(found),
            }
        }
    }
    /// Clears `flags` of a mapped entry, such as `ACCESSED` (`ptep_test_and_clear_young`) or
    /// `WRITE` (`ptep_set_wrprotect`); returns the old entry.
    pub fn clear(&mut self, page: Vpn, flags: PteFlags) -> Pte {
        self.update(page, |pte| pte.without(flags))
    }
}
