//! How programs reach an allocator.

use crate::Peer;

/// Is told of every block that goes out and comes back.
pub trait Ledger: Send + Sync + 'static {
    /// The allocator gave this block out.
    fn took(&self, frame: u32, order: u8);
    /// This block is about to go back.
    fn gives(&self, frame: u32, order: u8);
}

/// Keeps no books: nothing is measured but the allocator.
pub struct Trusting;

impl Ledger for Trusting {
    #[inline]
    fn took(&self, _: u32, _: u8) {}
    #[inline]
    fn gives(&self, _: u32, _: u8) {}
}

/// An allocator as a program sees it.
pub struct Hand<'a, P, L> {
    /// The allocator.
    pub peer: &'a P,
    /// Who keeps the books.
    pub ledger: &'a L,
}

impl<P: Peer, L: Ledger> Hand<'_, P, L> {
    /// Takes a block, if the allocator has one.
    #[inline]
    pub fn try_take(&self, order: u8) -> Option<u32> {
        let frame = self.peer.alloc(order)?;
        self.ledger.took(frame, order);
        Some(frame)
    }
    /// Takes a block.
    ///
    /// # Panics
    /// If the allocator has none.
    #[inline]
    pub fn take(&self, order: u8) -> u32 {
        self.try_take(order).expect("the programs never use more than the frames there are")
    }
    /// Gives a block back.
    #[inline]
    pub fn give(&self, frame: u32, order: u8) {
        self.ledger.gives(frame, order);
        self.peer.free(frame, order);
    }
}
