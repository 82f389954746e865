//! Flags of an allocation.

use crate::zone::ZoneKind;

bitflags::bitflags! {
    /// Permissions and urgency of an allocation.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct Gfp: u16 {
        /// Wakes reclaim when memory is low.
        const KSWAPD = 1 << 0;
        /// May wait.
        const DIRECT = 1 << 1;
        /// May go down to half of the min watermark.
        const HIGH = 1 << 2;
        /// Cannot wait: with `HIGH`, another quarter of the rest.
        const NON_BLOCK = 1 << 3;
        /// May use all free pages: the allocation serves to free memory.
        const MEMALLOC = 1 << 4;
        /// Needs memory below 4 GiB.
        const DMA32 = 1 << 5;
        /// Uses memory of the given node only.
        const THIS_NODE = 1 << 6;
        /// For a process that the out-of-memory killer has selected: may go down to half of the
        /// watermark that would apply otherwise (`ALLOC_OOM`).
        const VICTIM = 1 << 7;
        /// As a last resort, drains the page caches of all CPUs and tries again. The allocation may
        /// wait.
        const DRAIN = 1 << 8;
    }
}

impl Gfp {
    /// An ordinary allocation whose caller does not reclaim memory.
    pub const KERNEL: Self = Self::RECLAIMING.union(Self::DRAIN);
    /// An ordinary allocation whose caller reclaims memory if it fails, and then repeats it with
    /// [`Gfp::DRAIN`]: page caches are drained after reclaim, as in Linux
    /// (`__alloc_pages_direct_reclaim`).
    pub const RECLAIMING: Self = Self::KSWAPD.union(Self::DIRECT);
    /// An allocation in an interrupt or under a spin lock.
    pub const ATOMIC: Self = Self::KSWAPD.union(Self::HIGH).union(Self::NON_BLOCK);
    /// An allocation that succeeds only if memory is not low; it wakes reclaim.
    pub const NOWAIT: Self = Self::KSWAPD;

    /// The best kind of zone that the allocation accepts.
    #[inline]
    pub(super) const fn best_kind(self) -> ZoneKind {
        if self.contains(Self::DMA32) { ZoneKind::Dma32 } else { ZoneKind::Normal }
    }
}

/// Error of an allocation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AllocError {
    /// No zone that the allocation accepts has a block of that size above its watermark.
    NoMemory,
    /// The run injected a failure.
    Injected,
}

impl core::fmt::Display for AllocError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::NoMemory => "no zone has a free block of that size above its watermark",
            Self::Injected => "the run injected a failure of the allocation",
        })
    }
}

impl core::error::Error for AllocError {}
