//! The name of a slot.

/// A slot of the swap area: where a page's content is while no frame has it. What a page table
/// keeps in the page's place is [`SwapEntry::word`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SwapEntry(u32);

impl SwapEntry {
    /// Slot number `slot`.
    #[inline]
    pub const fn new(slot: u32) -> Self {
        Self(slot)
    }
    /// The slot's number; it is the device's block number too.
    #[inline]
    pub const fn slot(self) -> u32 {
        self.0
    }
    /// The slot's number, for indexing.
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
    /// The word of [`Pte::swap`](crate::table::Pte::swap) that stands for it: the lowest 32 bits.
    /// The bits above belong to whoever makes the entry.
    #[inline]
    pub const fn word(self) -> u64 {
        self.0 as u64
    }
    /// What a word of [`SwapEntry::word`] stands for, whatever the bits above 32 say.
    #[inline]
    pub const fn from_word(word: u64) -> Self {
        Self(word as u32)
    }
}
