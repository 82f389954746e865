//! Access of programs to an allocator.

use crate::Peer;

/// Records every block that is allocated and freed.
pub trait BlockRecord: Send + Sync + 'static {
    /// The allocator returned this block.
    fn took(&self, frame: u32, order: u8);
    /// This block is about to be freed.
    fn gives(&self, frame: u32, order: u8);
}

/// Records nothing: only the allocator is measured.
pub struct NoRecord;

impl BlockRecord for NoRecord {
    #[inline]
    fn took(&self, _: u32, _: u8) {}
    #[inline]
    fn gives(&self, _: u32, _: u8) {}
}

/// An allocator from the view of a program.
pub struct Hand<'a, P, L> {
    /// The allocator.
    pub peer: &'a P,
    /// The record of the blocks.
    pub ledger: &'a L,
}

impl<P: Peer, L: BlockRecord> Hand<'_, P, L> {
    /// Allocates a block, if the allocator has one.
    #[inline]
    pub fn try_take(&self, order: u8) -> Option<u32> {
        let frame = self.peer.alloc(order)?;
        self.ledger.took(frame, order);
        Some(frame)
    }
    /// Allocates a block.
    ///
    /// # Panics
    /// If the allocator has none.
    #[inline]
    pub fn take(&self, order: u8) -> u32 {
        self.try_take(order).expect("the programs never use more than the frames there are")
    }
    /// Frees a block.
    #[inline]
    pub fn give(&self, frame: u32, order: u8) {
        self.ledger.gives(frame, order);
        self.peer.free(frame, order);
    }
}
