//! The format of a page-table entry.

use mmscale_arch::Pfn;

bitflags::bitflags! {
    /// Flags of a mapped page or of an entry that maps none.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct PteFlags: u64 {
        /// The hardware may use the entry.
        const PRESENT = 1 << 0;
        /// Writes are allowed.
        const WRITE = 1 << 1;
        /// The page was accessed through this entry; set by the hardware too.
        const ACCESSED = 1 << 2;
        /// The page was written to through this entry; set by the hardware too.
        const DIRTY = 1 << 3;
        /// The entry maps 512 pages. Only in tables of the level above the lowest.
        const HUGE = 1 << 4;
        /// The frame is the shared zero page.
        const ZERO = 1 << 5;
        /// A frame is mapped, but the hardware may not use the entry: the next access faults.
        const PROT_NONE = 1 << 6;
        /// Free for the code that fills the entry.
        const SOFT = 1 << 7;
    }
}

/// The entry maps no frame and holds a word of [`Pte::swap`].
const SWAP: u64 = 1 << 8;
/// The entry points to a table of the level below.
const TABLE: u64 = 1 << 9;
const KIND_SHIFT: u32 = 10;
const KINDS: u64 = 4;
const FRAME_SHIFT: u32 = 12;
/// Width of the word in a swap entry.
pub const SWAP_BITS: u32 = 64 - FRAME_SHIFT;

/// A page-table entry.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Pte(u64);

impl Pte {
    /// The empty entry.
    pub const NONE: Self = Self(0);

    /// Returns an entry that maps `pfn`. [`PteFlags::PRESENT`] is set unless `flags` contains
    /// [`PteFlags::PROT_NONE`].
    #[inline]
    pub const fn page(pfn: Pfn, flags: PteFlags) -> Self {
        let present = if flags.contains(PteFlags::PROT_NONE) { 0 } else { 1 };
        let flags = flags.difference(PteFlags::PRESENT).bits() | present;
        Self((pfn.index() as u64) << FRAME_SHIFT | flags)
    }
    /// Returns an entry for a page that is not in memory. The user of the entry defines `kind` (0
    /// to 3) and `word` (below 2^[`SWAP_BITS`]).
    #[inline]
    pub const fn swap(kind: u8, word: u64) -> Self {
        assert!((kind as u64) < KINDS && word < 1 << SWAP_BITS);
        Self(word << FRAME_SHIFT | (kind as u64) << KIND_SHIFT | SWAP)
    }
    #[inline]
    pub(super) const fn table(pfn: Pfn) -> Self {
        Self((pfn.index() as u64) << FRAME_SHIFT | TABLE)
    }
    #[inline]
    pub(super) const fn of(word: u64) -> Self {
        Self(word)
    }
    #[inline]
    pub(super) const fn word(self) -> u64 {
        self.0
    }
    /// Returns whether the entry is empty.
    #[inline]
    pub const fn is_none(self) -> bool {
        self.0 == 0
    }
    /// Returns whether the hardware may use the entry.
    #[inline]
    pub const fn is_present(self) -> bool {
        self.flags().contains(PteFlags::PRESENT)
    }
    /// Returns whether the entry maps a frame, even if it is `PROT_NONE`.
    #[inline]
    pub const fn is_mapped(self) -> bool {
        self.flags().intersects(PteFlags::PRESENT.union(PteFlags::PROT_NONE))
    }
    #[inline]
    pub(super) const fn is_table(self) -> bool {
        self.0 & TABLE != 0
    }
    /// Returns the number of pages that the entry maps or names in swap; the zero page counts 0.
    #[inline]
    pub(super) const fn weight(self) -> i32 {
        if self.is_none() || self.is_table() || self.flags().contains(PteFlags::ZERO) {
            0
        } else if self.is_huge() {
            super::level::ENTRIES as i32
        } else {
            1
        }
    }
    /// Returns whether the entry maps 512 pages.
    #[inline]
    pub const fn is_huge(self) -> bool {
        self.flags().contains(PteFlags::HUGE)
    }
    /// Returns the mapped frame; of 512, the first.
    #[inline]
    pub const fn pfn(self) -> Option<Pfn> {
        if self.is_mapped() { Some(self.frame()) } else { None }
    }
    /// Returns the frame of a mapping or of a table.
    #[inline]
    pub(super) const fn frame(self) -> Pfn {
        Pfn::new((self.0 >> FRAME_SHIFT) as usize)
    }
    /// Returns kind and word of an entry made by [`Pte::swap`].
    #[inline]
    pub const fn as_swap(self) -> Option<(u8, u64)> {
        if self.0 & SWAP == 0 || self.is_mapped() {
            return None;
        }
        Some(((self.0 >> KIND_SHIFT & (KINDS - 1)) as u8, self.0 >> FRAME_SHIFT))
    }
    /// Returns the flags.
    #[inline]
    pub const fn flags(self) -> PteFlags {
        PteFlags::from_bits_truncate(self.0)
    }
    /// Sets `flags` of a mapped entry. Not for `PRESENT` and `PROT_NONE`.
    #[inline]
    pub const fn with(self, flags: PteFlags) -> Self {
        Self(self.0 | flags.bits())
    }
    /// Clears `flags`.
    #[inline]
    pub const fn without(self, flags: PteFlags) -> Self {
        Self(self.0 & !flags.bits())
    }
    /// Replaces the frame.
    #[inline]
    pub const fn to(self, pfn: Pfn) -> Self {
        Self(self.0 & ((1 << FRAME_SHIFT) - 1) | (pfn.index() as u64) << FRAME_SHIFT)
    }
    /// Hides a mapped page from the hardware (`PROT_NONE`), or makes it present again.
    #[inline]
    pub const fn hidden(self, hidden: bool) -> Self {
        let (on, off) = (PteFlags::PRESENT, PteFlags::PROT_NONE);
        if hidden { self.without(on).with(off) } else { self.without(off).with(on) }
    }
    /// Returns the entry for page `at` of the 512 that this entry maps.
    #[inline]
    pub(super) const fn piece(self, at: usize) -> Self {
        Self(self.0 + ((at as u64) << FRAME_SHIFT)).without(PteFlags::HUGE)
    }
}

impl core::fmt::Debug for Pte {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match (self.as_swap(), self.is_table()) {
            _ if self.is_none() => f.write_str("none"),
            (Some((kind, word)), _) => write!(f, "swap {kind} {word:#x}"),
            (None, true) => write!(f, "table {}", self.frame().index()),
            (None, false) => write!(f, "frame {} {:?}", self.frame().index(), self.flags()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_nothing_a_page_a_table_or_elsewhere() {
        let pfn = Pfn::new(u32::MAX as usize - 1);
        let page = Pte::page(pfn, PteFlags::WRITE);
        assert!(page.is_present() && page.is_mapped() && page.as_swap().is_none());
        assert_eq!((page.pfn(), page.is_table()), (Some(pfn), false));
        let swap = Pte::swap(3, (1 << SWAP_BITS) - 1);
        assert_eq!((swap.as_swap(), swap.pfn()), (Some((3, (1 << SWAP_BITS) - 1)), None));
        assert!(!swap.is_mapped() && !swap.is_none() && !swap.is_table());
        let table = Pte::table(pfn);
        assert!(table.is_table() && !table.is_mapped() && table.as_swap().is_none());
        assert_eq!(table.frame(), pfn);
    }

    #[test]
    fn a_hidden_page_is_mapped_but_not_for_the_hardware() {
        let page = Pte::page(Pfn::new(7), PteFlags::PROT_NONE | PteFlags::WRITE);
        assert!(!page.is_present() && page.is_mapped());
        let shown = page.hidden(false);
        assert!(shown.is_present() && shown.pfn() == page.pfn() && shown.hidden(true) == page);
    }

    #[test]
    fn the_pieces_of_a_huge_page_are_its_frames_in_order() {
        let flags = PteFlags::HUGE | PteFlags::DIRTY;
        let piece = Pte::page(Pfn::new(512), flags).piece(9);
        assert_eq!((piece.pfn(), piece.is_huge()), (Some(Pfn::new(521)), false));
        assert!(piece.flags().contains(PteFlags::DIRTY | PteFlags::PRESENT));
    }
}
