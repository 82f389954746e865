//! Parts of a zone: its buddy allocator, its watermarks.

mod areas;
mod buddy;
mod contig;
mod error;
mod extent;
mod fallback;
mod geometry;
mod isolate;
mod owned;
mod owners;
mod state;
mod watermark;

pub use areas::ZoneLists;
pub use buddy::Buddy;
pub(crate) use contig::blocks_of;
pub use error::{ContigError, FreeError, IsolateError};
pub(crate) use extent::{Extent, present_in};
pub(crate) use fallback::RmqueueMode;
pub use geometry::Geometry;
pub(crate) use owners::Owners;
pub use state::{FrameUse, Pageblock};
pub use watermark::{
    LOWMEM_RESERVE_RATIO, Watermarks, default_min_free_kb, huge_page_min_free, watermarks,
};

/// A zone, numbered over the whole machine in the order of the memory map.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ZoneId(u8);

impl ZoneId {
    /// The largest number of zones: one of each kind on each node.
    pub const MAX: usize = mmscale_arch::MAX_NODES * ZoneKind::COUNT;
    /// Zone number `index`. Panics unless it is below [`ZoneId::MAX`].
    #[inline]
    pub const fn new(index: usize) -> Self {
        assert!(index < Self::MAX);
        Self(index as u8)
    }
    /// The number, for indexing.
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Kind of a zone's memory. Allocations try a larger kind first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum ZoneKind {
    /// Memory below 4 GiB: for devices with 32 address bits.
    Dma32 = 0,
    /// All other memory.
    Normal = 1,
}

impl ZoneKind {
    /// The number of kinds.
    pub const COUNT: usize = 2;
}
