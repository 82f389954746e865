//! The memory map of a program with a heap.

use super::{ConfigError, MapRef, ZoneSpec};
use crate::zone::ZoneKind;
use alloc::vec::Vec;
use core::ops::Range;
use mmscale_arch::{NodeId, Pfn};

/// The memory of a machine: zones that do not overlap, at most one of a kind on each node, and
/// holes in them. Frames between zones do not exist.
///
/// ```
/// use mmscale_arch::{NodeId, Pfn};
/// use mmscale_frames::page_alloc::{MemoryMap, ZoneSpec};
/// use mmscale_frames::zone::ZoneKind;
///
/// // Two stretches of memory, as firmware reports them, and the kernel's image in the first.
/// let stretch = |start, pages| ZoneSpec {
///     node: NodeId::new(0),
///     kind: ZoneKind::Normal,
///     start: Pfn::new(start),
///     pages,
/// };
/// let map = MemoryMap::of_stretches([stretch(0x100, 0xbf00), stretch(0x10_0000, 0x8000)]);
/// let map = map.with_hole(Pfn::new(0x1000), 0x837);
/// assert_eq!((map.zones.len(), map.pages()), (1, 0xbf00 + 0x8000 - 0x837));
/// map.check()?;
/// # Ok::<(), mmscale_frames::page_alloc::ConfigError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct MemoryMap {
    /// The zones, in the order of their numbers.
    pub zones: Vec<ZoneSpec>,
    /// Ranges of frame numbers inside zones that do not exist or are never allocated: gaps in
    /// memory, the kernel's image, tables of the firmware. They need no alignment, may overlap, and
    /// have no order. Their frames are never allocated, and no block merges with them.
    pub holes: Vec<Range<usize>>,
}

impl MemoryMap {
    /// One zone of `pages` frames on node 0.
    pub fn single(pages: u32) -> Self {
        Self::nodes(1, pages)
    }
    /// One normal zone of `pages` frames on each of `nodes` nodes, one after the other.
    pub fn nodes(nodes: usize, pages: u32) -> Self {
        let zone = |node: usize| ZoneSpec {
            node: NodeId::new(node),
            kind: ZoneKind::Normal,
            start: Pfn::new(node * pages as usize),
            pages,
        };
        Self { zones: (0..nodes).map(zone).collect(), holes: Vec::new() }
    }
    /// One zone for all stretches of one kind on one node, from the first to the last of them, with
    /// holes in between. Zones are numbered in the order of their first stretches. A stretch of
    /// another zone must not be in between: [`MemoryMap::check`] refuses the map then.
    pub fn of_stretches(stretches: impl IntoIterator<Item = ZoneSpec>) -> Self {
        let mut stretches: Vec<ZoneSpec> = stretches.into_iter().collect();
        let mut gaps = alloc::vec![0..0; stretches.len()];
        let map = MapRef::of_stretches(&mut stretches, &mut gaps, 0);
        map.expect("there are fewer gaps than stretches").into()
    }
    /// Adds a hole: `pages` frames that begin with `start`, numbers of frames and not addresses.
    /// [`MemoryMap::check`] refuses one that is outside all zones. A reservation that ends later is
    /// rather taken from the allocator: `FrameAllocator::alloc_contig_range`.
    pub fn with_hole(mut self, start: Pfn, pages: usize) -> Self {
        self.holes.push(start.index()..start.index() + pages);
        self
    }
    /// Splits the first zone in two: its first `pages` frames become a DMA32 zone of their own,
    /// numbered before it.
    pub fn with_dma32(mut self, pages: u32) -> Self {
        if let Some(first) = self.zones.first_mut() {
            let low = ZoneSpec { kind: ZoneKind::Dma32, pages, ..*first };
            first.start = first.start.offset(pages as usize);
            first.pages = first.pages.saturating_sub(pages);
            self.zones.insert(0, low);
        }
        self
    }
    /// The map as slices.
    pub fn as_ref(&self) -> MapRef<'_> {
        MapRef { zones: &self.zones, holes: &self.holes }
    }
    /// The number of frames up to the end of the last zone.
    pub fn frames(&self) -> usize {
        self.as_ref().frames()
    }
    /// The number of frames in all zones, without those in holes.
    pub fn pages(&self) -> u64 {
        self.as_ref().pages()
    }
    /// Checks that the map is valid.
    pub fn check(&self) -> Result<(), ConfigError> {
        self.as_ref().check()
    }
    /// The number of nodes: one more than the largest node number.
    pub fn node_count(&self) -> usize {
        self.as_ref().node_count()
    }
}

impl From<MapRef<'_>> for MemoryMap {
    fn from(map: MapRef<'_>) -> Self {
        Self { zones: map.zones.to_vec(), holes: map.holes.to_vec() }
    }
}
