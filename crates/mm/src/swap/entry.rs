//! The identifier of a slot.

/// A slot of the swap area, which has a page's content while no frame has it. Page-table entries
/// contain [`SwapEntry::word`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SwapEntry(u32);

impl SwapEntry {
    /// Returns the entry of slot number `slot`.
    #[inline]
    pub const fn new(slot: u32) -> Self {
        Self(slot)
    }
    /// Returns the slot's number, which is also the device's block number.
    #[inline]
    pub const fn slot(self) -> u32 {
        self.0
    }
    /// Returns the slot's number, for indexing.
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
    /// Returns the word for [`Pte::swap`](crate::pgtable::Pte::swap): the lowest 32 bits. The maker
    /// of the page-table entry defines the bits above.
    #[inline]
    pub const fn word(self) -> u64 {
        self.0 as u64
    }
    /// Returns the entry of a [`SwapEntry::word`], ignoring the bits above 32.
    #[inline]
    pub const fn from_word(word: u64) -> Self {
        Self(word as u32)
    }
}
