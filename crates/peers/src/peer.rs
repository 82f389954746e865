//! The allocators, behind one small trait.

mod bitmap;
mod buddy_system;
mod floor;
mod magazines;

pub use bitmap::Bitmap;
pub use buddy_system::{BuddySystem, BuddySystemMutex};
pub use floor::Floor;
pub use magazines::Magazines;

/// An allocator of frames, shared by the threads of a program.
///
/// Calls are monomorphised: no dispatch is measured.
pub trait Peer: Sync + Sized {
    /// The name in the table, at most 26 columns.
    const NAME: &'static str;
    /// Whether it promises distinct frames; the floor does not.
    const IS_ALLOCATOR: bool = true;

    /// An allocator with frames `0..frames` free.
    fn new(frames: usize) -> Self;
    /// Takes 2^order frames, naturally aligned; the number of the first.
    fn alloc(&self, order: u8) -> Option<u32>;
    /// Gives a block back.
    fn free(&self, frame: u32, order: u8);
    /// Runs `body(thread)` for threads `0..threads` at the same time, each where `alloc` and `free`
    /// may be called; returns when all have returned.
    fn run(&self, threads: usize, body: &(dyn Fn(usize) + Sync)) {
        std::thread::scope(|scope| {
            for thread in 0..threads {
                scope.spawn(move || body(thread));
            }
        });
    }
}
