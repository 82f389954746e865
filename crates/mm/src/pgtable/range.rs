//! Iterating over the tables of a range.

use super::entry::Pte;
use super::level::{Level, piece};
use super::slot::{Hold, PmdTable, PteTable};
use super::walk::{Ending, peek};
use super::{PageTable, PtRef};
use mmscale_arch::{Machine, Op, VmaRange, Vpn};

/// Maximum of huge pages that one walker claims together.
pub(crate) const HUGE_AT_ONCE: u64 = 7;
/// A walker claims this fraction (1/n) of the consecutive huge pages that it finds.
const HUGE_SHARE: u64 = 8;

/// The order of an iteration.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// From the lowest page.
    Forward,
    /// From the highest page.
    Reverse,
}

impl Direction {
    /// Returns the first page of a range in this order.
    pub(super) fn first(self, range: VmaRange) -> Vpn {
        match self {
            Self::Forward => range.start(),
            Self::Reverse => Vpn::new(range.end().get() - 1),
        }
    }
    /// Returns the part of `range` that follows `last` in this order.
    pub(crate) fn after(self, range: VmaRange, last: VmaRange) -> Option<VmaRange> {
        match self {
            Self::Forward => VmaRange::new(last.end(), range.end()),
            Self::Reverse => VmaRange::new(range.start(), last.start()),
        }
    }
    /// Returns the pages of a range in this order.
    pub fn pages(self, range: VmaRange) -> impl Iterator<Item = Vpn> {
        let (mut start, mut end) = (range.start().get(), range.end().get());
        core::iter::from_fn(move || {
            if start == end {
                return None;
            }
            if self == Self::Forward {
                start += 1;
                Some(Vpn::new(start - 1))
            } else {
                end -= 1;
                Some(Vpn::new(end))
            }
        })
    }
}

/// A table or huge page, with the lock of its table, which is released on drop.
pub enum Leaf<'a, A: Machine> {
    /// A table of single pages, and the requested part of it.
    Ptes(PteTable<'a, A>, VmaRange),
    /// A huge page, and the requested part of it. Less than all of it must be split
    /// ([`PageTable::split_huge`]) before it is treated differently.
    Huge(PmdTable<'a, A>, VmaRange),
}

impl<A: Machine> Leaf<'_, A> {
    /// Returns the requested part.
    pub fn range(&self) -> VmaRange {
        match self {
            Self::Ptes(_, range) | Self::Huge(_, range) => *range,
        }
    }
}

/// The location of a table or huge page; nothing is locked.
pub(super) enum LeafTable {
    Ptes(mmscale_arch::Pfn),
    Huge(mmscale_arch::Pfn),
}

/// The tables and huge pages of a range, each locked while the caller uses it.
///
/// An item must be dropped before the next is requested, because it holds a lock.
pub struct Leaves<'a, A: Machine> {
    table: &'a PageTable<A>,
    on: PtRef<'a, A>,
    rest: Option<VmaRange>,
    direction: Direction,
    hold: Hold,
}

impl<'a, A: Machine> Leaves<'a, A> {
    /// Returns the part that was not visited yet.
    pub fn rest(&self) -> Option<VmaRange> {
        self.rest
    }
    /// Continues at `page`, for instance in the middle of a table whose lock had to be released.
    /// `page` has been visited, or is the first of the rest.
    pub fn back_to(&mut self, page: Vpn, whole: VmaRange) {
        self.rest = match self.direction {
            Direction::Forward => VmaRange::new(page, whole.end()),
            Direction::Reverse => VmaRange::new(whole.start(), page.offset(1)),
        };
    }
}

impl<'a, A: Machine> Iterator for Leaves<'a, A> {
    type Item = Leaf<'a, A>;

    fn next(&mut self) -> Option<Leaf<'a, A>> {
        loop {
            let (place, found) = self.table.find_leaf(self.rest?, self.direction)?;
            let page = found.start();
            let leaf = match place {
                LeafTable::Ptes(table) => {
                    let ptes = PteTable::hold(self.table, self.on, table, page, self.hold);
                    Leaf::Ptes(ptes, found)
                }
                LeafTable::Huge(table) => {
                    let locked = PmdTable::hold(self.table, self.on, table, page, self.hold);
                    if !locked.get(page).is_mapped() && locked.get(page).as_swap().is_none() {
                        // The huge page was removed or split since it was found.
                        if locked.raw(page).is_none() {
                            self.rest = self.direction.after(self.rest?, found);
                        }
                        continue;
                    }
                    Leaf::Huge(locked, found)
                }
            };
            self.rest = self.rest.and_then(|rest| self.direction.after(rest, found));
            return Some(leaf);
        }
    }
}

impl<A: Machine> PageTable<A> {
    /// Returns the tables of the lowest level and the huge pages that cover pages of `range`.
    pub fn leaves<'a>(
        &'a self,
        on: PtRef<'a, A>,
        range: VmaRange,
        direction: Direction,
    ) -> Leaves<'a, A> {
        self.leaves_held(on, range, direction, Hold::Lock)
    }
    /// Iterates like [`PageTable::leaves`]; `hold` selects whether tables are locked.
    pub(crate) fn leaves_held<'a>(
        &'a self,
        on: PtRef<'a, A>,
        range: VmaRange,
        direction: Direction,
        hold: Hold,
    ) -> Leaves<'a, A> {
        Leaves { table: self, on, rest: Some(range), direction, hold }
    }
    /// Returns the part of `range` that one of several walkers should claim next: the part covered
    /// by its first table of the lowest level, or its first huge page and some that follow. Nothing
    /// is locked, so the result may be stale.
    ///
    /// A huge page is one entry and little work, so several in one table are claimed together. The
    /// fewer are left, the fewer are claimed, so that all walkers end at about the same time.
    pub(crate) fn first_share(&self, range: VmaRange, direction: Direction) -> Option<VmaRange> {
        let (place, found) = self.find_leaf(range, direction)?;
        let LeafTable::Huge(table) = place else { return Some(found) };
        let most = HUGE_AT_ONCE * HUGE_SHARE;
        let is_huge = |pte: Pte| pte.is_mapped() && pte.is_huge();
        let mut last = found;
        let mut run = 1;
        while run < most
            && let Some(rest) = direction.after(range, last)
        {
            let page = direction.first(rest);
            let next = piece(rest, page, Level::Pmd.entry_pages());
            let same = Level::Pmd.table_start(page) == Level::Pmd.table_start(found.start());
            if !same
                || next.pages() != Level::Pmd.entry_pages()
                || !is_huge(peek::<A>(table, Level::Pmd, page))
            {
                break;
            }
            (last, run) = (next, run + 1);
        }
        A::work(Op::PteScan, run as u32);
        let more = (run / HUGE_SHARE).max(1) - 1;
        let pages = more * Level::Pmd.entry_pages();
        Some(match direction {
            Direction::Forward => VmaRange::raw(found.start().get(), found.end().get() + pages),
            Direction::Reverse => VmaRange::raw(found.start().get() - pages, found.end().get()),
        })
    }
    /// Returns the first table of the lowest level or huge page that covers pages of `range`, and
    /// the covered part of the range. Nothing is locked.
    pub(super) fn find_leaf(
        &self,
        range: VmaRange,
        direction: Direction,
    ) -> Option<(LeafTable, VmaRange)> {
        let mut rest = range;
        loop {
            A::work(Op::TableWalk, 1);
            let page = direction.first(rest);
            let level = match self.descend(page) {
                Ending::Table(table) => {
                    let found = piece(rest, page, Level::Pte.table_pages());
                    return Some((LeafTable::Ptes(table), found));
                }
                Ending::Huge(table) => {
                    let found = piece(rest, page, Level::Pmd.entry_pages());
                    return Some((LeafTable::Huge(table), found));
                }
                Ending::Nothing(level) => level,
            };
            rest = direction.after(rest, piece(rest, page, level.entry_pages()))?;
        }
    }
}
