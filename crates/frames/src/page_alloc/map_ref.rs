//! The memory map: zones and the holes in them.

use super::ConfigError;
use crate::place::Place;
use crate::zone::{Extent, ZoneId, ZoneKind, present_in};
use core::ops::Range;
use mmscale_arch::{MAX_NODES, NodeId, Pfn};

/// A range of memory that becomes a zone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ZoneSpec {
    /// The node it belongs to.
    pub node: NodeId,
    /// The kind of memory.
    pub kind: ZoneKind,
    /// Its first frame.
    pub start: Pfn,
    /// The number of its frames, those in holes included.
    pub pages: u32,
}

impl ZoneSpec {
    /// The numbers of its frames.
    fn range(&self) -> Range<usize> {
        self.start.index()..self.start.index() + self.pages as usize
    }
}

/// The memory of a machine, in slices that its user owns: zones that do not overlap, at most one of
/// a kind on each node, and holes in them. Frames between zones do not exist. Zones are made from
/// stretches with [`MapRef::of_stretches`], or written out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MapRef<'a> {
    /// The zones, in the order of their numbers.
    pub zones: &'a [ZoneSpec],
    /// Ranges of frame numbers inside zones that do not exist or are never allocated. They need no
    /// alignment, may overlap, and have no order. Time is proportional to the square of their
    /// number.
    pub holes: &'a [Range<usize>],
}

impl<'a> MapRef<'a> {
    /// One zone for all stretches of one kind on one node, from the first to the last of them:
    /// changes `stretches` to zones. The gaps between stretches of a zone follow the first `given`
    /// holes, which have no order. Returns `None` if there is no room for the gaps. A stretch of
    /// another zone must not be in between: [`MapRef::check`] refuses the map then.
    pub fn of_stretches(
        stretches: &'a mut [ZoneSpec],
        holes: &'a mut [Range<usize>],
        given: usize,
    ) -> Option<Self> {
        stretches.sort_unstable_by_key(|stretch| stretch.start);
        let (mut zones, mut gaps) = (0, given);
        for at in 0..stretches.len() {
            let next = stretches[at];
            let same = |zone: &&mut ZoneSpec| (zone.node, zone.kind) == (next.node, next.kind);
            let Some(zone) = stretches[..zones].iter_mut().find(same) else {
                stretches[zones] = next;
                zones += 1;
                continue;
            };
            let (end, start) = (zone.range().end, next.start.index());
            if end < start {
                *holes.get_mut(gaps)? = end..start;
                gaps += 1;
            }
            zone.pages = (next.range().end.max(end) - zone.start.index()) as u32;
        }
        Some(Self { zones: &stretches[..zones], holes: holes.get(..gaps)? })
    }
    /// The number of frames up to the end of the last zone.
    pub fn frames(self) -> usize {
        self.zones.iter().map(|zone| zone.range().end).max().unwrap_or(0)
    }
    /// The number of frames in all zones, without those in holes.
    pub fn pages(self) -> u64 {
        self.zones.iter().map(|zone| u64::from(self.present(zone))).sum()
    }
    /// The frames of a zone of this map.
    pub(super) fn extent(self, place: &mut Place, zone: &ZoneSpec) -> Extent {
        Extent::new(place, zone.range(), self.holes)
    }
    /// The number of frames of a zone of this map, without those in holes.
    pub(super) fn present(self, zone: &ZoneSpec) -> u32 {
        present_in(&zone.range(), self.holes)
    }
    /// Checks that the map is valid.
    pub fn check(self) -> Result<(), ConfigError> {
        if self.zones.is_empty() {
            return Err(ConfigError::NoMemory);
        }
        if self.zones.len() > ZoneId::MAX {
            return Err(ConfigError::TooManyZones);
        }
        for (at, zone) in self.zones.iter().enumerate() {
            let empty = ConfigError::EmptyZone(at as u8);
            if zone.pages == 0 {
                return Err(empty);
            }
            let range = zone.range();
            if range.end > u32::MAX as usize {
                return Err(ConfigError::TooFar(at as u8));
            }
            for other in &self.zones[..at] {
                if range.start < other.range().end && other.range().start < range.end {
                    return Err(ConfigError::Overlap(at as u8));
                }
                if other.node == zone.node && other.kind == zone.kind {
                    return Err(ConfigError::SameKind(at as u8));
                }
            }
            if self.present(zone) == 0 {
                return Err(empty);
            }
        }
        let in_zones = |hole: &Range<usize>| {
            let inside = |zone: Range<usize>| hole.start < zone.end && zone.start < hole.end;
            hole.is_empty() || self.zones.iter().any(|zone| inside(zone.range()))
        };
        match self.holes.iter().find(|&hole| !in_zones(hole)) {
            Some(hole) => Err(ConfigError::Hole(hole.start)),
            None => Ok(()),
        }
    }
    /// The number of nodes: one more than the largest node number.
    pub fn node_count(self) -> usize {
        let nodes = self.zones.iter().map(|zone| zone.node.index() + 1);
        nodes.max().unwrap_or(1).min(MAX_NODES)
    }
}
