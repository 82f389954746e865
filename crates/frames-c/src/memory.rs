//! The memory of the computer, and the configuration of the allocator.

use crate::Status;
use core::ops::Range;
use mmscale_arch::{MAX_NODES, NodeId, Pfn};
use mmscale_frames::frame::MigrateType;
use mmscale_frames::page_alloc::{AllocConfig, MapRef, PcpPolicy, Records, ZoneSpec};
use mmscale_frames::zone::ZoneKind;

/// Memory without a hole. The caller rounds addresses inwards: the first frame up, the end down.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Stretch {
    /// The first frame.
    pub start: u64,
    /// The number of frames.
    pub pages: u64,
    /// The memory node.
    pub node: u32,
    /// Whether it is below 4 GiB, and is to be kept for requests that need such memory.
    pub is_dma32: bool,
}

/// Frames inside stretches that are never allocated: the kernel's image, tables of the firmware.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Hole {
    /// The first frame.
    pub start: u64,
    /// The number of frames.
    pub pages: u64,
}

/// The memory of the computer.
#[repr(C)]
#[derive(Debug)]
pub struct Map {
    /// Its stretches.
    pub stretches: *const Stretch,
    /// The number of stretches.
    pub stretch_count: usize,
    /// Its holes; may be null if there are none.
    pub holes: *const Hole,
    /// The number of holes.
    pub hole_count: usize,
}

/// How free memory is kept.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Caches {
    /// In maps of pageblocks that CPUs own, without a lock of the zone.
    Blockmap = 0,
    /// In buddy lists with a page cache for each CPU, as in Linux.
    Stock,
}

/// The configuration of the allocator. Begin with `{.records = true}`: `blockmap`, with which wrong
/// frees are found. All 0 is `blockmap` without records.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// How free memory is kept: one of `mms_caches`.
    pub caches: u32,
    /// Whether each frame has a record, a byte with `blockmap`, with which a free of a frame that
    /// is free, or of a block of another order, is always found. `stock` always has, of 12 bytes.
    pub records: bool,
}

/// The purpose of an allocation: kinds are kept apart in pageblocks of 2 MiB.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Cannot move, and stays for long: kernel data.
    Unmovable = 0,
    /// Can be moved: memory of programs.
    Movable,
    /// Cannot move, and can be dropped: caches.
    Reclaimable,
}

/// The kind of memory with a number of [`Kind`]. A program in C may pass any number.
pub(crate) fn kind(number: u32) -> Option<MigrateType> {
    const KINDS: [(Kind, MigrateType); 3] = [
        (Kind::Unmovable, MigrateType::Unmovable),
        (Kind::Movable, MigrateType::Movable),
        (Kind::Reclaimable, MigrateType::Reclaimable),
    ];
    KINDS.iter().find(|(kind, _)| *kind as u32 == number).map(|&(_, migrate)| migrate)
}

impl Config {
    /// The configuration of the allocator.
    ///
    /// # Errors
    /// [`Status::BadConfig`]: there is no such way to keep free memory.
    pub(crate) fn checked(self) -> Result<AllocConfig, Status> {
        let orders = if self.records { Records::Orders } else { Records::None };
        let (caches, records) = match self.caches {
            blockmap if blockmap == Caches::Blockmap as u32 => (PcpPolicy::Blockmap, orders),
            stock if stock == Caches::Stock as u32 => (PcpPolicy::Stock, Records::Kept),
            _ => return Err(Status::BadConfig),
        };
        Ok(AllocConfig { caches, records, ..AllocConfig::default() })
    }
}

/// A stretch without frames.
pub(crate) const BLANK: ZoneSpec =
    ZoneSpec { node: NodeId::new(0), kind: ZoneKind::Normal, start: Pfn::new(0), pages: 0 };

impl Map {
    /// The allocator's map of this memory, in `zones`, which are as many as the stretches, and
    /// `holes`, which are as many as stretches and holes together, or more.
    ///
    /// # Errors
    /// [`Status::BadConfig`]: a number is too large.
    ///
    /// # Safety
    /// The pointers lead to so many stretches and holes.
    pub(crate) unsafe fn map<'a>(
        &self,
        zones: &'a mut [ZoneSpec],
        holes: &'a mut [Range<usize>],
    ) -> Result<MapRef<'a>, Status> {
        // SAFETY: of the caller.
        let stretches = unsafe { slice(self.stretches, self.stretch_count) };
        for (zone, stretch) in zones.iter_mut().zip(stretches) {
            let end = stretch.start.checked_add(stretch.pages).ok_or(Status::BadConfig)?;
            if end > u64::from(u32::MAX) || stretch.node as usize >= MAX_NODES {
                return Err(Status::BadConfig);
            }
            *zone = ZoneSpec {
                node: NodeId::new(stretch.node as usize),
                kind: if stretch.is_dma32 { ZoneKind::Dma32 } else { ZoneKind::Normal },
                start: Pfn::new(stretch.start as usize),
                pages: stretch.pages as u32,
            };
        }
        // SAFETY: of the caller.
        let given = unsafe { slice(self.holes, self.hole_count) };
        for (range, hole) in holes.iter_mut().zip(given) {
            let end = hole.start.checked_add(hole.pages).ok_or(Status::BadConfig)?;
            *range = hole.start as usize..end as usize;
        }
        MapRef::of_stretches(zones, holes, given.len()).ok_or(Status::BadConfig)
    }
}

/// The items at `first`; none if `count` is 0.
///
/// # Safety
/// There are `count` items, which stay unchanged.
unsafe fn slice<'a, T>(first: *const T, count: usize) -> &'a [T] {
    if count == 0 {
        return &[];
    }
    // SAFETY: of the caller.
    unsafe { core::slice::from_raw_parts(first, count) }
}
