//! Results of a consistency check: pages by state, and violations.

use crate::zone::ZoneId;
use mmscale_arch::{CpuId, Order, Pfn};

/// Pages by state.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Audit {
    /// On buddy lists, or never used.
    pub free: u64,
    /// In page caches.
    pub cached: u64,
    /// Allocated.
    pub held: u64,
    /// Free, but in isolated pageblocks.
    pub isolated: u64,
    /// In pageblocks that are offline.
    pub offline: u64,
}

/// An inconsistency.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Violation {
    /// A frame is in no block, or in two.
    Cover(Pfn),
    /// A block does not start at a multiple of its size, or is not all in its zone.
    Shape(Pfn),
    /// A block's record disagrees with the list it is on.
    List(Pfn),
    /// Two free buddies were not merged.
    Unmerged(Pfn),
    /// A block is on no list, or on two.
    Lost(Pfn),
    /// A free block's list is not that of its pageblock's type.
    BlockType(Pfn),
    /// A block that can be allocated or is cached is in an isolated or offline pageblock, or a
    /// block on the list of isolated blocks is in a pageblock that is not isolated.
    Isolation(Pfn),
    /// A pageblock has an owner although all of it is in its zone or isolated, or the owner is
    /// offline.
    Owner(Pfn),
    /// A block may merge although it is not in the page cache of its pageblock's owner, or was
    /// allocated for another type than its pageblock's; or blocks of one pageblock may merge in two
    /// page caches.
    Stray(Pfn),
    /// A pageblock is marked as remembered by its owner, whose list does not have it.
    Remembered(Pfn),
    /// The zone's isolated pages, or its pageblocks that are isolated or offline, are miscounted.
    IsolatedCount(ZoneId),
    /// A CPU owns another number of a zone's pageblocks than the zone's count.
    OwnedCount(CpuId),
    /// A page cache of the zone has another number of pages than its count.
    PcpCount(ZoneId),
    /// A zone's area of this order has another number of blocks than its count.
    AreaCount(ZoneId, Order),
    /// The GiB at this frame has other free pages or tainted pageblocks than its counts, or is in
    /// the wrong class.
    Superpageblock(Pfn),
    /// The zone's counter of free pages, per-CPU bytes included, is not the number of free pages.
    Counter(ZoneId),
    /// The head of the pageblock at this frame counts another number of used frames than its bits.
    BlockCount(Pfn),
    /// The pageblock at this frame is busy, or its owner does not know that it owns it.
    BlockOwner(Pfn),
    /// The pageblock at this frame has free frames, and is in no index.
    BlockUnfiled(Pfn),
    /// The pageblock at this frame is in the index of whole blocks without owner, and is not one.
    BlockMisfiled(Pfn),
    /// The pageblock at this frame has a free block of this order, and is not in the set of hints
    /// for that order.
    HintMissing(Pfn, Order),
    /// A CPU is offline, and its counters' bytes or its page caches were not taken over.
    LeftBehind(CpuId),
}

impl core::fmt::Display for Violation {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Cover(pfn) => write!(f, "frame {}: not in exactly one block", pfn.index()),
            Self::Shape(pfn) => write!(f, "frame {}: misplaced block", pfn.index()),
            Self::List(pfn) => write!(f, "frame {}: its record contradicts its list", pfn.index()),
            Self::Unmerged(pfn) => write!(f, "frame {}: its buddy is free too", pfn.index()),
            Self::Lost(pfn) => write!(f, "frame {}: not on exactly one list", pfn.index()),
            Self::BlockType(pfn) => write!(f, "frame {}: on another type's list", pfn.index()),
            Self::Isolation(pfn) => {
                write!(f, "frame {}: isolation of pageblock and block differ", pfn.index())
            }
            Self::Owner(pfn) => {
                write!(f, "frame {}: its pageblock must not have an owner", pfn.index())
            }
            Self::Stray(pfn) => write!(f, "frame {}: may merge where it must not", pfn.index()),
            Self::Remembered(pfn) => {
                write!(f, "frame {}: its owner does not remember it", pfn.index())
            }
            Self::IsolatedCount(zone) => {
                write!(f, "zone {}: isolated or offline pageblocks are miscounted", zone.index())
            }
            Self::OwnedCount(cpu) => write!(f, "{cpu}: its pageblocks are miscounted"),
            Self::PcpCount(zone) => {
                write!(f, "zone {}: the pages of a page cache are miscounted", zone.index())
            }
            Self::AreaCount(zone, order) => {
                write!(f, "zone {}: blocks of order {} are miscounted", zone.index(), order.get())
            }
            Self::Superpageblock(pfn) => {
                write!(f, "superpageblock at {}: its counts are wrong", pfn.index())
            }
            Self::Counter(zone) => write!(f, "zone {}: free pages miscounted", zone.index()),
            Self::BlockCount(pfn) => {
                write!(f, "pageblock at {}: used frames are miscounted", pfn.index())
            }
            Self::BlockOwner(pfn) => {
                write!(f, "pageblock at {}: busy, or not known to its owner", pfn.index())
            }
            Self::BlockUnfiled(pfn) => write!(f, "pageblock at {}: in no index", pfn.index()),
            Self::HintMissing(pfn, order) => {
                let (pfn, order) = (pfn.index(), order.get());
                write!(f, "pageblock at {pfn}: its free block of order {order} has no hint")
            }
            Self::BlockMisfiled(pfn) => {
                write!(f, "pageblock at {}: in the index of whole blocks", pfn.index())
            }
            Self::LeftBehind(cpu) => write!(f, "{cpu}: offline, with counts or pages left"),
        }
    }
}

impl core::error::Error for Violation {}
