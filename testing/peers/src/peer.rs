//! The allocators, behind one small trait.

mod bitmap;
mod buddy_slab;
mod buddy_system;
mod floor;
mod machine;
mod magazines;
mod ours;

pub use bitmap::Bitmap;
pub use buddy_slab::BuddySlab;
pub use buddy_system::{BuddySystem, BuddySystemMutex};
pub use floor::Floor;
pub use machine::OursOnMachine;
pub use magazines::Magazines;
pub use ours::{
    Blockmap, BlockmapOrders, BlockmapRecords, BlockmapUncounted, Ours, Policy, Posted, Stock,
};

/// An allocator of frames, shared by the threads of a program.
///
/// Calls are monomorphised, so that no dispatch is measured.
pub trait Peer: Sync + Sized {
    /// The name in the table, at most 22 columns.
    const NAME: &'static str;
    /// Whether it promises distinct frames; the floor does not.
    const IS_ALLOCATOR: bool = true;

    /// Allocates 2^order frames, naturally aligned; returns the number of the first.
    fn alloc(&self, order: u8) -> Option<u32>;
    /// Like [`Peer::alloc`] at the end, when no reserve is needed: down to the last frame.
    fn alloc_last(&self, order: u8) -> Option<u32> {
        self.alloc(order)
    }
    /// Frees a block.
    fn free(&self, frame: u32, order: u8);
    /// Returns the number of free frames, for the last thread that uses the allocator. Counted by
    /// allocating them, unless the allocator stops before the last one: ours keeps a reserve, and
    /// how much of it is used depends on counters that lag.
    fn free_frames(&self) -> usize {
        std::iter::from_fn(|| self.alloc(0)).count()
    }
    /// Makes an allocator with frames `0..frames` free and runs `body(allocator, thread)` for
    /// threads `0..threads` at the same time; returns after all have returned.
    fn run(frames: usize, threads: usize, body: impl Fn(&Self, usize) + Send + Sync + 'static);
}

/// Runs [`Peer::run`] on plain threads.
fn on_threads<P: Peer>(peer: &P, threads: usize, body: impl Fn(&P, usize) + Sync) {
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let body = &body;
            scope.spawn(move || body(peer, thread));
        }
    });
}
