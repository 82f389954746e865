//! A zone: a range of frames of one node, with its free memory.

use super::{AllocConfig, PcpPolicy};
use crate::blockmap::{BlockMap, ReservePages};
use crate::frame::FrameTable;
use crate::guest::{Guest, GuestZone};
use crate::pcp::{Pcp, PcpLimits, Pressure};
use crate::place::{CpuTable, Place};
use crate::zone::{Buddy, Extent, Owners, Watermarks, ZoneId, ZoneKind};
use core::sync::atomic::Ordering;
use mmscale_arch::sync::SpinLock;
use mmscale_arch::{Atomic, Cpu, CpuId, DataLine, LockClass, LockInstance, NodeId, Pfn};

/// The zone has fewer free pages than its high watermark: page caches must not grow.
pub(super) const BELOW_HIGH: u32 = 1;
/// Reclaim is active in the zone: page caches stay small.
pub(super) const RECLAIM_ACTIVE: u32 = 2;

/// A pageblock of the zone is isolated: a freed page may be of it.
pub(super) const ISOLATING: u32 = 4;

/// No CPU caches pages of the zone, with the policy `blockmap`. Never changes.
pub(super) const UNCACHED: u32 = 8;

/// A zone.
pub struct Zone<A: Cpu> {
    pub(super) id: ZoneId,
    pub(super) node: NodeId,
    pub(super) kind: ZoneKind,
    /// Its frames.
    pub(super) extent: Extent,
    pub(super) marks: Watermarks,
    /// By the best kind that an allocation accepts: pages reserved from it.
    pub(super) reserve: [u32; ZoneKind::COUNT],
    /// `BELOW_HIGH`, `RECLAIM_ACTIVE`, `ISOLATING`, `UNCACHED`.
    pub(super) flags: A::AtomicU32,
    /// Pages of pageblocks that are offline. Written under the zone lock.
    pub(super) offline: A::AtomicU32,
    /// Its free memory.
    pub(super) free: ZoneFree<A>,
    /// Bound of a CPU's unfolded delta, in pages, with the policy `blockmap`.
    pub(super) lag_pages: u32,
}

/// The free memory of a zone, as its policy stores it.
#[expect(
    clippy::large_enum_variant,
    reason = "there are few zones, and every allocation accesses the map: no pointer to it"
)]
pub(super) enum ZoneFree<A: Cpu> {
    /// On lists: those of the zone, and those of page caches.
    Lists(FreeLists<A>),
    /// In maps of pageblocks.
    Blocks(FreeBlocks<A>),
    /// In another allocator.
    Guest(GuestZone<A>),
}

/// Free memory on lists.
pub(super) struct FreeLists<A: Cpu> {
    /// The page cache into which a page is freed.
    pub(super) frees_to: FreesTo,
    /// The owner of each pageblock, if pageblocks have owners.
    pub(super) owners: Owners<A>,
    /// Taken with interrupts off, inside a page cache's lock or alone.
    pub(super) buddy: SpinLock<A, Buddy<A>>,
    /// The page caches. Allocation and freeing only try their locks, so that an interrupt never
    /// waits for one. The buddy lock may be taken under them.
    pub(super) pcps: CpuTable<SpinLock<A, Pcp>>,
}

/// The page cache into which a page is freed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum FreesTo {
    /// The cache of the freeing CPU.
    FreeingCpu,
    /// The cache of the CPU that owns the pageblock.
    Owner,
}

/// Free memory in maps of pageblocks.
pub(super) struct FreeBlocks<A: Cpu> {
    /// The maps.
    pub(super) map: BlockMap<A>,
    /// Page caches, always empty: the upkeep tick accesses them.
    pub(super) pcps: CpuTable<SpinLock<A, Pcp>>,
}

impl<A: Cpu> ZoneFree<A> {
    /// Creates the free memory of a zone: all of its frames are free.
    pub(super) fn new(place: &mut Place, frames: &FrameTable, zone: ZonePlan<'_>) -> Self {
        match (zone.config.guest, zone.config.caches) {
            (Some(guest), _) => Self::of_guest(place, guest, zone),
            (None, PcpPolicy::Blockmap) => Self::in_map(place, zone),
            (None, PcpPolicy::Stock | PcpPolicy::Premerge) => {
                Self::on_lists(place, frames, FreesTo::FreeingCpu, zone)
            }
            (None, PcpPolicy::Posted) => Self::on_lists(place, frames, FreesTo::Owner, zone),
        }
    }
    fn of_guest(place: &mut Place, guest: Guest, zone: ZonePlan<'_>) -> Self {
        let (start, pages) = (Pfn::new(zone.extent.span().start), zone.extent.present());
        let pcps = zone.caches(place, |_, _| zone.cache());
        let (guest, frames) = ((guest, zone.cpus), (zone.id, start, pages));
        Self::Guest(GuestZone::new(place, guest, frames, pcps))
    }
    fn in_map(place: &mut Place, zone: ZonePlan<'_>) -> Self {
        let limits = (zone.cpus, zone.config.cached_pages);
        Self::Blocks(FreeBlocks {
            map: BlockMap::new(place, zone.extent, whole_blocks_kept(zone.marks), limits),
            pcps: zone.caches(place, |_, _| zone.cache()),
        })
    }
    fn on_lists(
        place: &mut Place,
        frames: &FrameTable,
        frees_to: FreesTo,
        zone: ZonePlan<'_>,
    ) -> Self {
        let owners = if frees_to == FreesTo::Owner { zone.cpus } else { 0 };
        let orders = (zone.config.geometry(), zone.config.lists);
        let mut buddy = Buddy::new(place, orders, zone.id, zone.extent, owners);
        if place.is_real() {
            buddy.free_all(frames, zone.extent);
        }
        let of_zone = LockInstance::Numbered(zone.id.index() as u32);
        Self::Lists(FreeLists {
            frees_to,
            owners: buddy.owners(),
            buddy: SpinLock::named(LockClass::Zone, of_zone, buddy),
            pcps: zone.caches(place, |place, cpu| match frees_to {
                FreesTo::FreeingCpu => zone.cache(),
                FreesTo::Owner => zone.cache().owning(place, cpu),
            }),
        })
    }
}

/// The zone for which free memory is created.
#[derive(Clone, Copy)]
pub(super) struct ZonePlan<'a> {
    pub(super) config: &'a AllocConfig,
    pub(super) cpus: usize,
    pub(super) id: ZoneId,
    pub(super) extent: &'a Extent,
    pub(super) marks: Watermarks,
    /// Limits of its page caches.
    pub(super) limits: PcpLimits,
}

impl ZonePlan<'_> {
    /// An empty page cache.
    fn cache(&self) -> Pcp {
        Pcp::new(self.limits, self.config.cache_slice_pages)
    }
    /// The page caches of all CPUs.
    fn caches<A: Cpu>(
        &self,
        place: &mut Place,
        make: impl Fn(&mut Place, CpuId) -> Pcp,
    ) -> CpuTable<SpinLock<A, Pcp>> {
        CpuTable::new(place, self.cpus, |place, cpu| {
            SpinLock::named(LockClass::Pcp, LockInstance::OfCpu(cpu), make(place, cpu))
        })
    }
}

/// The reserve with the policy `blockmap`. Pages below the min watermark are free anyway, unless a
/// request is urgent, so they may as well be whole pageblocks. Single pages also leave the pages up
/// to the high watermark, which reclaim keeps free, while other zones have pages.
fn whole_blocks_kept(marks: Watermarks) -> ReservePages {
    ReservePages { from_singles: marks.high, from_larger: marks.min }
}

impl<A: Cpu> Zone<A> {
    pub(super) fn new(
        (id, node, kind): (ZoneId, NodeId, ZoneKind),
        extent: Extent,
        (marks, reserve): (Watermarks, [u32; ZoneKind::COUNT]),
        free: ZoneFree<A>,
        (config, cpus): (&AllocConfig, usize),
    ) -> Self {
        let blocks = matches!(free, ZoneFree::Blocks(_));
        let flags = if blocks && config.cached_pages == Some(0) { UNCACHED } else { 0 };
        Self {
            id,
            node,
            kind,
            extent,
            marks,
            reserve,
            flags: A::AtomicU32::named(flags, DataLine::ZoneFlags),
            offline: A::AtomicU32::new(0),
            free,
            lag_pages: (marks.low - marks.min) / cpus as u32,
        }
    }
    /// Its map of free pageblocks, if it has one.
    #[inline(always)]
    pub(super) fn map(&self) -> Option<&BlockMap<A>> {
        match &self.free {
            ZoneFree::Lists(_) | ZoneFree::Guest(_) => None,
            ZoneFree::Blocks(blocks) => Some(&blocks.map),
        }
    }
    /// Its free lists, if it has some.
    #[inline]
    pub(super) fn lists(&self) -> Option<&FreeLists<A>> {
        match &self.free {
            ZoneFree::Lists(lists) => Some(lists),
            ZoneFree::Blocks(_) | ZoneFree::Guest(_) => None,
        }
    }
    /// Its page caches.
    #[inline]
    pub(super) fn pcps(&self) -> &CpuTable<SpinLock<A, Pcp>> {
        match &self.free {
            ZoneFree::Lists(lists) => &lists.pcps,
            ZoneFree::Blocks(blocks) => &blocks.pcps,
            ZoneFree::Guest(guest) => &guest.pcps,
        }
    }
    /// Its number.
    pub fn id(&self) -> ZoneId {
        self.id
    }
    /// The node it belongs to.
    pub fn node(&self) -> NodeId {
        self.node
    }
    /// The kind of its memory.
    pub fn kind(&self) -> ZoneKind {
        self.kind
    }
    /// Its first frame.
    pub fn start(&self) -> Pfn {
        Pfn::new(self.extent.span().start)
    }
    /// The number of its frames, those that are offline included, those in holes not.
    pub fn pages(&self) -> u32 {
        self.extent.present()
    }
    /// The number of its frames that are not offline.
    pub fn managed_pages(&self) -> u32 {
        self.pages() - self.offline.load(Ordering::Relaxed)
    }
    /// Its watermarks. They do not change when pageblocks go offline.
    pub fn watermarks(&self) -> Watermarks {
        self.marks
    }
    /// The zone's memory pressure.
    #[inline]
    pub fn pressure(&self) -> Pressure {
        pressure_of(self.flags.load_uncharged(Ordering::Relaxed))
    }
    /// The zone's memory pressure, and whether a pageblock of it is isolated.
    #[inline]
    pub(super) fn condition(&self) -> (Pressure, bool) {
        let flags = self.flags.load_uncharged(Ordering::Relaxed);
        (pressure_of(flags), flags & ISOLATING != 0)
    }
    /// Sets or clears a flag.
    pub(super) fn put(&self, flag: u32, on: bool) {
        if on {
            self.flags.fetch_or(flag, Ordering::Relaxed);
        } else {
            self.flags.fetch_and(!flag, Ordering::Relaxed);
        }
    }
}

impl<A: Cpu> FreeLists<A> {
    /// Bytes of metadata of a zone, without the records of its frames: its `list_bytes`, a byte for
    /// each of its `pageblocks`, four more where CPUs own them, and the per-CPU lists.
    pub(super) fn metadata_bytes(&self, pageblocks: usize, list_bytes: usize) -> u64 {
        let owners = if self.owners.exist() { 4 * pageblocks } else { 0 };
        let of_zone = size_of::<Zone<A>>() + list_bytes + pageblocks + owners;
        of_zone as u64 + self.cpu_metadata_bytes()
    }
    /// The per-CPU part of [`FreeLists::metadata_bytes`].
    pub(super) fn cpu_metadata_bytes(&self) -> u64 {
        let lists = if self.owners.exist() { Pcp::OWNED_BYTES + 4 } else { 0 };
        (self.pcps.bytes() + self.pcps.iter().count() * lists) as u64
    }
}

#[inline]
fn pressure_of(flags: u32) -> Pressure {
    Pressure { below_high: flags & BELOW_HIGH != 0, reclaim_active: flags & RECLAIM_ACTIVE != 0 }
}
