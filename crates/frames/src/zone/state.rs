//! States of frames and pageblocks, as answers to questions.

use crate::frame::MigrateType;
use mmscale_arch::Order;

/// The use of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FrameUse {
    /// Free in its zone, as part of a free block of this order. With the policy `blockmap`: the
    /// largest aligned block within the pageblock of which all frames are free.
    Free(Order),
    /// Free in a CPU's cache.
    Cached,
    /// Allocated, as part of a block of this order; `None` where nothing records it
    /// (without records of frames, below a pageblock's order).
    Held(Option<Order>),
    /// Free, in an isolated pageblock.
    Isolated,
    /// In a pageblock that is offline.
    Offline,
}

/// A pageblock, or the part of it that a zone has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pageblock {
    /// Frames of the zone in it.
    pub pages: u32,
    /// Free frames, without those in CPUs' caches; also where it is isolated.
    pub free: u32,
    /// The order of the largest free block in it, or of the one that it is part of.
    pub largest: Option<Order>,
    /// Its type.
    pub migrate_type: MigrateType,
    /// Whether it is isolated.
    pub isolated: bool,
    /// Whether it is offline.
    pub offline: bool,
}
