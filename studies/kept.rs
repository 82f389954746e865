//! Memory that the programs of a run must not have: it is allocated before they start, in the
//! largest blocks, and stands for memory that is in use.

use mmscale_arch::{Order, Pfn};
use mmscale_frames::frame::MigrateType;
use mmscale_kernel::Inside;

/// Blocks of the largest order that are not for the programs.
pub(crate) struct Kept(Vec<Pfn>);

impl Kept {
    /// Allocates the largest blocks until about `room_pages` are free.
    pub(crate) fn all_but(room_pages: u64, inside: &dyn Inside) -> Self {
        let surplus = inside.census().free_pages().saturating_sub(room_pages);
        let blocks = 0..surplus >> Order::MAX.get();
        let take = |_| inside.alloc_pages(Order::MAX, MigrateType::Movable).ok();
        Self(blocks.map_while(take).collect())
    }
    /// Frees the blocks.
    pub(crate) fn release(self, inside: &dyn Inside) {
        self.0.into_iter().for_each(|block| inside.free_pages(block, Order::MAX));
    }
}
