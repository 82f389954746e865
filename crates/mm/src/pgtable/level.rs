//! The levels of a page table, and the index of a page's entry in each level.

use mmscale_arch::{PAGE_SHIFT, VmaRange, Vpn};

/// Number of entries in a table.
pub const ENTRIES: usize = 512;
const INDEX_BITS: u32 = 9;

const _: () = assert!(ENTRIES == 1 << INDEX_BITS && Vpn::USER_END.get() <= 1 << (4 * INDEX_BITS));
const _: () = assert!(ENTRIES * size_of::<u64>() == 1 << PAGE_SHIFT);

/// A level of tables, lowest first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub enum Level {
    /// Entries map single pages.
    Pte = 0,
    /// Entries map 512 pages, or point to tables of the lowest level.
    Pmd = 1,
    /// Entries point to tables of level `Pmd`.
    Pud = 2,
    /// The root.
    Pgd = 3,
}

impl Level {
    /// Number of levels.
    pub const COUNT: usize = 4;
    /// All levels, lowest first.
    pub const ALL: [Self; Self::COUNT] = [Self::Pte, Self::Pmd, Self::Pud, Self::Pgd];

    const fn shift(self) -> u32 {
        self as u32 * INDEX_BITS
    }
    /// Returns the level below.
    pub(super) const fn down(self) -> Self {
        match self {
            Self::Pgd => Self::Pud,
            Self::Pud => Self::Pmd,
            Self::Pmd | Self::Pte => Self::Pte,
        }
    }
    /// Returns the number of pages that one entry covers.
    pub(super) const fn entry_pages(self) -> u64 {
        1 << self.shift()
    }
    /// Returns the number of pages that one table covers.
    pub(super) const fn table_pages(self) -> u64 {
        self.entry_pages() * ENTRIES as u64
    }
    /// Returns the index of the entry for `page` in its table.
    #[inline]
    pub(super) const fn index(self, page: Vpn) -> usize {
        (page.get() >> self.shift()) as usize % ENTRIES
    }
    /// Returns the first page that shares its entry with `page`.
    pub(super) const fn entry_start(self, page: Vpn) -> Vpn {
        Vpn::new(page.get() & !(self.entry_pages() - 1))
    }
    /// Returns the first page that shares its table with `page`.
    pub(super) const fn table_start(self, page: Vpn) -> Vpn {
        Vpn::new(page.get() & !(self.table_pages() - 1))
    }
}

/// Returns the pages of `range` within the aligned block of `pages` pages that contains `page`.
/// `page` is in `range`.
pub(super) fn piece(range: VmaRange, page: Vpn, pages: u64) -> VmaRange {
    let start = Vpn::new(page.get() & !(pages - 1));
    // The last entry of a table covers fewer pages where the address space ends in it.
    let end = Vpn::new((start.get() + pages).min(Vpn::USER_END.get()));
    let whole = VmaRange::new(start, end).unwrap_or(VmaRange::USER);
    range.intersection(whole).unwrap_or(range)
}
