//! Address translations.

use super::{Pfn, Vpn};

/// The tag of an address space in TLB entries. Never 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Asid(pub(super) u32);

impl Asid {
    /// The number of tags: they are below it.
    pub const COUNT: usize = 1 << 23;
    /// The tag of the kernel's own translations. Every CPU uses them at any time.
    pub const KERNEL: Self = Self::new(Self::COUNT - 1);

    /// Address space `index`, from 1 to [`Asid::COUNT`] - 1. Others are a bug of the caller.
    #[inline]
    pub const fn new(index: usize) -> Self {
        assert!(index > 0 && index < Self::COUNT);
        Self(index as u32)
    }
    /// The number, for indexing.
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// The size of the range that one translation covers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum PageSize {
    /// One page.
    Base,
    /// 512 pages, naturally aligned.
    Huge,
}

impl PageSize {
    /// The number of pages.
    #[inline]
    pub const fn pages(self) -> u64 {
        match self {
            Self::Base => 1,
            Self::Huge => HUGE_PAGES,
        }
    }
}

/// Pages in a huge page.
const HUGE_PAGES: u64 = 512;

/// A translation of a page, as a TLB stores it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Translation {
    /// The frame; of a huge page, the first.
    pub pfn: Pfn,
    /// The size of the range.
    pub size: PageSize,
    /// Writes are allowed.
    pub writable: bool,
    /// The dirty bit of the page-table entry is known to be set. The first write through a
    /// translation without it accesses the table.
    pub dirty: bool,
}

impl Translation {
    /// The frame of `page`, which the translation covers.
    #[inline]
    pub const fn frame(self, page: Vpn) -> Pfn {
        match self.size {
            PageSize::Base => self.pfn,
            PageSize::Huge => self.pfn.offset((page.get() % HUGE_PAGES) as usize),
        }
    }
}

/// The end of a walk through page tables.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Walked {
    /// The table of the last entry.
    pub table: Pfn,
    /// The number of tables above it.
    pub depth: usize,
    /// The entry.
    pub entry: u64,
}

impl Walked {
    /// Does the walk of [`super::Machine::table_walk`]; `read` reads an entry.
    #[inline]
    pub fn read(
        root: Pfn,
        path: &[usize],
        down: impl Fn(u64) -> Option<Pfn>,
        mut read: impl FnMut(Pfn, usize) -> u64,
    ) -> Self {
        let mut walked = Self { table: root, depth: 0, entry: read(root, path[0]) };
        for (before, &index) in path[1..].iter().enumerate() {
            let Some(table) = down(walked.entry) else { break };
            walked = Self { table, depth: before + 1, entry: read(table, index) };
        }
        walked
    }
}
