//! Memory that the programs of a run must not have: it is allocated before they start, in the
//! largest blocks, and stands for memory that is in use.

use mmscale_arch::{Machine, Order, Pfn};
use mmscale_frames::frame::MigrateType;
use mmscale_frames::page_alloc::{FrameAllocator, Gfp};

/// Blocks of the largest order that are not for the programs.
pub(crate) struct Kept(Vec<Pfn>);

impl Kept {
    /// Allocates the largest blocks until about `room_pages` are free.
    pub(crate) fn all_but<A: Machine>(frames: &FrameAllocator<A>, room_pages: u64) -> Self {
        let surplus = frames.census().free_pages().saturating_sub(room_pages);
        let blocks = 0..surplus >> Order::MAX.get();
        let take = |_| frames.alloc_pages(Order::MAX, MigrateType::Movable, Gfp::KERNEL).ok();
        Self(blocks.map_while(take).collect())
    }
    /// Frees the blocks.
    pub(crate) fn release<A: Machine>(self, frames: &FrameAllocator<A>) {
        self.0.into_iter().for_each(|block| frames.free_pages(block, Order::MAX));
    }
}
