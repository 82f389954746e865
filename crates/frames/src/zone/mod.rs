//! What a zone is made of: its buddy allocator, its watermarks.

mod buddy;
mod error;
mod fallback;
mod isolate;
mod owned;
mod owners;
mod watermark;

pub use buddy::Buddy;
pub use error::IsolateError;
pub(crate) use fallback::RmqueueMode;
pub(crate) use owners::Owners;
pub use watermark::{LOWMEM_RESERVE_RATIO, Watermarks, default_min_free_kb, watermarks};

/// A zone, numbered over the whole machine in the order of the memory map.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ZoneId(u8);

impl ZoneId {
    /// The largest number of zones: every node's every kind.
    pub const MAX: usize = mmscale_arch::MAX_NODES * ZoneKind::COUNT;
    /// Zone number `index`. Panics from [`ZoneId::MAX`] on.
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

/// What a zone's memory can be used for. A larger kind is asked first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum ZoneKind {
    /// Below 4 GiB: for devices with 32 address bits.
    Dma32 = 0,
    /// Everything else.
    Normal = 1,
}

impl ZoneKind {
    /// The number of kinds.
    pub const COUNT: usize = 2;
}
