//! What a walk over everything can find: where the pages are, what does not add up.

use crate::zone::ZoneId;
use mmscale_arch::{CpuId, Order, Pfn};

/// Where the pages are.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Audit {
    /// On buddy lists, or never used.
    pub free: u64,
    /// In page caches.
    pub cached: u64,
    /// Handed out.
    pub held: u64,
    /// Free, but in isolated pageblocks.
    pub isolated: u64,
    /// In pageblocks that are offline.
    pub offline: u64,
}

/// What does not add up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Violation {
    /// A frame is in no state, or in two: no block covers it, or two do.
    Cover(Pfn),
    /// A block does not start at a multiple of its size, or reaches out of its zone.
    Shape(Pfn),
    /// A block's record disagrees with the list it is on.
    List(Pfn),
    /// Two free buddies were not merged.
    Unmerged(Pfn),
    /// The block is on no list, or on two.
    Lost(Pfn),
    /// A free block's list is not that of its pageblock's type.
    BlockType(Pfn),
    /// A block that can be allocated or is cached is in a pageblock that is isolated or offline, or
    /// one on the list of isolated blocks is not.
    Isolation(Pfn),
    /// A pageblock has an owner although it is all in its zone, isolated, or its owner is gone.
    Owner(Pfn),
    /// A block may merge although it is not on its pageblock's owner's page cache, or was handed
    /// out for another use than its pageblock's; or blocks of one pageblock may merge on two page
    /// caches.
    Stray(Pfn),
    /// A pageblock counts as remembered by its owner, which does not remember it.
    Remembered(Pfn),
    /// The zone's isolated pages, or its pageblocks that are isolated or offline, are miscounted.
    IsolatedCount(ZoneId),
    /// A CPU owns another number of a zone's pageblocks than the zone says.
    OwnedCount(CpuId),
    /// A page cache of the zone holds another number of pages than it says.
    PcpCount(ZoneId),
    /// A zone's area of this order holds another number of blocks than it says.
    AreaCount(ZoneId, Order),
    /// The zone's counter of free pages, bytes included, is not what is free.
    Counter(ZoneId),
    /// The head of the pageblock at this frame counts another number of frames than its bits.
    BlockCount(Pfn),
    /// Somebody is still inside the pageblock at this frame, or its owner does not know of it.
    BlockOwner(Pfn),
    /// The pageblock at this frame has free frames, and no allocation finds it.
    BlockUnfiled(Pfn),
    /// The pageblock at this frame is found as one that is whole and nobody's, and is not.
    BlockMisfiled(Pfn),
    /// The pageblock at this frame has a free block of this order, and no allocation of that would
    /// look there.
    RoomUnnoted(Pfn, Order),
    /// A CPU is offline, and nobody took over its counters' bytes or its page caches.
    LeftBehind(CpuId),
}

impl core::fmt::Display for Violation {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Cover(pfn) => write!(f, "frame {}: not in exactly one block", pfn.index()),
            Self::Shape(pfn) => write!(f, "frame {}: misplaced block", pfn.index()),
            Self::List(pfn) => write!(f, "frame {}: its record denies its list", pfn.index()),
            Self::Unmerged(pfn) => write!(f, "frame {}: its buddy is free too", pfn.index()),
            Self::Lost(pfn) => write!(f, "frame {}: not on exactly one list", pfn.index()),
            Self::BlockType(pfn) => write!(f, "frame {}: on another type's list", pfn.index()),
            Self::Isolation(pfn) => write!(f, "frame {}: isolated, or not", pfn.index()),
            Self::Owner(pfn) => write!(f, "frame {}: its pageblock has an owner", pfn.index()),
            Self::Stray(pfn) => write!(f, "frame {}: may merge where it must not", pfn.index()),
            Self::Remembered(pfn) => write!(f, "frame {}: its owner forgot it", pfn.index()),
            Self::IsolatedCount(zone) => {
                write!(f, "zone {}: isolated or offline miscounts", zone.index())
            }
            Self::OwnedCount(cpu) => write!(f, "{cpu}: its pageblocks are miscounted"),
            Self::PcpCount(zone) => write!(f, "zone {}: a page cache miscounts", zone.index()),
            Self::AreaCount(zone, order) => {
                write!(f, "zone {}: order {} miscounts", zone.index(), order.get())
            }
            Self::Counter(zone) => write!(f, "zone {}: free pages miscounted", zone.index()),
            Self::BlockCount(pfn) => write!(f, "pageblock at {}: miscounts", pfn.index()),
            Self::BlockOwner(pfn) => write!(f, "pageblock at {}: its owner is lost", pfn.index()),
            Self::BlockUnfiled(pfn) => write!(f, "pageblock at {}: in no index", pfn.index()),
            Self::RoomUnnoted(pfn, order) => {
                let (pfn, order) = (pfn.index(), order.get());
                write!(f, "pageblock at {pfn}: its free block of order {order} is not noted")
            }
            Self::BlockMisfiled(pfn) => write!(f, "pageblock at {}: not whole", pfn.index()),
            Self::LeftBehind(cpu) => write!(f, "{cpu} is gone and left counts or pages behind"),
        }
    }
}

impl core::error::Error for Violation {}
