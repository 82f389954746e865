//! Errors of operations on pageblocks and on named frames, and of frees.

use mmscale_arch::{Order, Pfn};

/// Error of isolating a pageblock, taking it offline or bringing it online.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IsolateError {
    /// No zone has the whole pageblock.
    NoBlock,
    /// The pageblock is not in the required state: it is isolated or offline already, or not yet.
    NotNow,
    /// This number of its pages is in use.
    Busy(u32),
}

impl core::fmt::Display for IsolateError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::NoBlock => f.write_str("no zone has the whole pageblock"),
            Self::NotNow => f.write_str(
                "the pageblock is in the state already, or in one that does not allow it",
            ),
            Self::Busy(pages) => write!(f, "{pages} pages of the pageblock are in use"),
        }
    }
}

impl core::error::Error for IsolateError {}

/// Error of an allocation of named frames: the first frame that cannot be allocated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ContigError {
    /// The frame is not in the zone of the first frame, in a hole, or in no zone.
    Outside(Pfn),
    /// The frame is allocated, or is in the cache of a CPU that could not be drained.
    InUse(Pfn),
    /// The pageblock of the frame is isolated or offline.
    Isolated(Pfn),
    /// No block of that order begins with the frame.
    Unaligned(Pfn),
}

impl core::fmt::Display for ContigError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Outside(pfn) => {
                write!(f, "frame {}: in a hole, or in another zone or none", pfn.index())
            }
            Self::InUse(pfn) => write!(f, "frame {}: in use, or in a CPU's cache", pfn.index()),
            Self::Isolated(pfn) => {
                write!(f, "frame {}: its pageblock is isolated or offline", pfn.index())
            }
            Self::Unaligned(pfn) => {
                write!(f, "frame {}: no block of that order begins there", pfn.index())
            }
        }
    }
}

impl core::error::Error for ContigError {}

/// Error of a free.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FreeError {
    /// No zone has all frames of the block.
    NoFrame,
    /// The frame is free already, or was never allocated.
    Free,
    /// The frame is allocated as a block of this order.
    Order(Order),
    /// The frame is inside an allocated block, not its head; or no block of that order begins
    /// there.
    NoBlock,
}

impl core::fmt::Display for FreeError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::NoFrame => f.write_str("no zone has the whole block"),
            Self::Free => f.write_str("the frame is free already, or was never allocated"),
            Self::Order(order) => write!(f, "the block has order {}", order.get()),
            Self::NoBlock => f.write_str("no allocated block of that order begins there"),
        }
    }
}

impl core::error::Error for FreeError {}
