//! A zone: a range of frames of one node, with its free memory.

use super::{AllocConfig, PcpPolicy};
use crate::blockmap::{BlockMap, ReservePages};
use crate::frame::FrameTable;
use crate::guest::GuestZone;
use crate::pcp::{Pcp, Pressure};
use crate::zone::{Buddy, Extent, Owners, Watermarks, ZoneId, ZoneKind};
use core::sync::atomic::Ordering;
use mmscale_arch::sync::{EachCpu, SpinLock};
use mmscale_arch::{Atomic, Cpu, DataLine, LockClass, LockInstance, NodeId, Pfn};

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
    pub(super) pcps: EachCpu<SpinLock<A, Pcp>>,
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
    pub(super) pcps: EachCpu<SpinLock<A, Pcp>>,
}

impl<A: Cpu> ZoneFree<A> {
    /// Creates the free memory of zone `id`: all of its frames are free.
    pub(super) fn new(
        (config, cpus): (&AllocConfig, usize),
        frames: &FrameTable,
        (id, extent): (ZoneId, &Extent),
        reserve: ReservePages,
        mut pcp: impl FnMut() -> Pcp,
    ) -> Self {
        if let Some(guest) = config.guest {
            let pages = extent.present();
            let start = Pfn::new(extent.span().start);
            return Self::Guest(GuestZone::new((guest, cpus), (id, start, pages), pcp));
        }
        let frees_to = match config.caches {
            PcpPolicy::Stock | PcpPolicy::Premerge => FreesTo::FreeingCpu,
            PcpPolicy::Posted => FreesTo::Owner,
            PcpPolicy::Blockmap => {
                let map = BlockMap::of(extent.clone(), reserve, (cpus, config.cached_pages));
                let pcps = EachCpu::first(cpus, |cpu| {
                    SpinLock::named(LockClass::Pcp, LockInstance::OfCpu(cpu), pcp())
                });
                return Self::Blocks(FreeBlocks { map, pcps });
            }
        };
        let mut buddy = Buddy::new(frames, (config.geometry(), config.lists), id, extent);
        let owners = match frees_to {
            FreesTo::FreeingCpu => Owners::none(),
            FreesTo::Owner => buddy.with_owners(cpus),
        };
        let mut cache = |cpu| match frees_to {
            FreesTo::FreeingCpu => pcp(),
            FreesTo::Owner => pcp().owning(cpu),
        };
        let of_zone = LockInstance::Numbered(id.index() as u32);
        Self::Lists(FreeLists {
            frees_to,
            owners,
            buddy: SpinLock::named(LockClass::Zone, of_zone, buddy),
            pcps: EachCpu::first(cpus, |cpu| {
                SpinLock::named(LockClass::Pcp, LockInstance::OfCpu(cpu), cache(cpu))
            }),
        })
    }
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
    pub(super) fn pcps(&self) -> &EachCpu<SpinLock<A, Pcp>> {
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
