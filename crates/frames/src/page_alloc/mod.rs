//! The frame allocator: zones, page caches and counters in one value.
//!
//! | module | contents |
//! |---|---|
//! | `claim` | allocation: zonelist, watermarks, page caches, zones |
//! | `release` | frees, with records of frames |
//! | `unrecorded` | frees, without records of frames |
//! | `checked` | frees that report a wrong call as a value |
//! | `exact` | splitting blocks, and allocating numbers of pages that are no power of two |
//! | `posted` | allocation and frees where CPUs own pageblocks |
//! | `mapped` | allocation and frees with the policy `blockmap` |
//! | `guest` | allocation and frees where another allocator has the free memory |
//! | `age` | decay, draining, folding, hotplug |
//! | `query` | questions about a frame, a pageblock, the number of free pages |
//! | `contig` | allocation of named frames |
//! | `isolate` | isolation and offlining of pageblocks |
//! | `wake` | waking reclaim |
//! | `show` | the time that a reader of /proc/zoneinfo holds zone locks |
//! | `verify`, `verify_mapped`, `blocks`, `audit`, `census` | consistency checks and statistics |
//!
//! Lock order: [`LockClass`](mmscale_arch::LockClass). The page cache's lock is taken with
//! interrupts on. Allocation and freeing, which may run in an interrupt, only try it, and use the
//! zone directly if it is taken.
//!
//! Not modelled from Linux 6.19: reserves of high-order atomic blocks, CMA, watermark boosts,
//! `ALLOC_NOFRAGMENT`, compaction and reclaim itself (this module wakes it; the layer above, in
//! `reclaim`, does it). Three things differ, so that data of the zone lock is accessed only under
//! that lock:
//!
//! - Whether a zone has a block of a higher order is known under its lock only; the watermark check
//!   before does not include it.
//! - A page is freed to the page-cache list of the type that its pageblock had when the zone
//!   allocated it, not of its present type. The buddy allocator uses the present type, as in Linux.
//! - For claims of pageblocks a page counts as movable if the zone allocated it as movable, even if
//!   it is in a page cache.

mod age;
mod audit;
#[cfg(test)]
mod block_corruption_tests;
#[cfg(any(feature = "alloc", test))]
mod blocks;
#[cfg(any(feature = "alloc", test))]
mod census;
mod checked;
mod claim;
mod config;
mod contig;
#[cfg(test)]
mod corruption_tests;
mod exact;
mod gfp;
mod guest;
mod isolate;
mod limits;
mod map_ref;
mod mapped;
#[cfg(any(feature = "alloc", test))]
mod memory_map;
mod posted;
mod query;
mod release;
mod show;
mod unrecorded;
#[cfg(any(feature = "alloc", test))]
mod verify;
#[cfg(any(feature = "alloc", test))]
mod verify_mapped;
mod wake;
mod zone;

pub use crate::zone::{ContigError, FrameUse, FreeError, IsolateError, Pageblock, ZoneLists};
pub use age::{DecayRequest, Refresh};
pub use audit::{Audit, Violation};
#[cfg(any(feature = "alloc", test))]
pub use census::Census;
pub use config::{
    AllocConfig, BatchPolicy, BulkHold, CachedOrders, ConfigError, HighPolicy, PageCheck,
    PcpPolicy, Records,
};
pub use gfp::{AllocError, Gfp};
pub use map_ref::{MapRef, ZoneSpec};
#[cfg(any(feature = "alloc", test))]
pub use memory_map::MemoryMap;
pub use query::FreeCount;
pub use zone::Zone;
use zone::{FreeLists, ZoneFree, ZonePlan};

use crate::frame::FrameTable;
#[cfg(any(feature = "alloc", test))]
use crate::heap::HeapMemory;
use crate::pcp::{Pcp, PcpLimits};
use crate::place::{self, Place, Room, Table};
use crate::vmstat::{Stats, normal_threshold, pressure_threshold};
use crate::zone::{Buddy, LOWMEM_RESERVE_RATIO, Watermarks, ZoneId, ZoneKind};
use core::alloc::Layout;
use core::mem::MaybeUninit;
use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use mmscale_arch::{Atomic, Cpu, CpuId, CpuMask, MAX_CPUS, NodeId, PcpEvent, Pfn, Trace};

/// The allocator of all frames of a machine.
pub struct FrameAllocator<A: Cpu> {
    frames: FrameTable,
    zones: Table<Zone<A>>,
    /// For each node and best acceptable kind, the zones in the order in which they are tried.
    zonelists: Table<[Table<ZoneId>; ZoneKind::COUNT]>,
    /// The first of each of these lists.
    nearest: Table<[Option<ZoneId>; ZoneKind::COUNT]>,
    stats: Stats<A>,
    isolated: isolate::Isolated<A>,
    config: AllocConfig,
    /// CPUs that may use it: their numbers are below this.
    cpus: usize,
    /// The number of allocations that found memory low and requested a wake-up of reclaim.
    wakes: A::AtomicU64,
    /// By node: the task to wake then.
    reclaimers: Table<wake::Reclaimer<A>>,
    /// Nonzero while a task drains all page caches.
    draining: A::AtomicU32,
    /// The number of nodes that are being balanced. While there are any, counters use the smaller
    /// thresholds for memory pressure.
    short_nodes: A::AtomicU32,
    /// The number of changes of the inputs of thresholds.
    threshold_changes: A::AtomicU32,
    /// The memory of all tables, if it is of the heap. The last field: dropped after them.
    #[cfg(any(feature = "alloc", test))]
    heap: Option<HeapMemory>,
}

impl<A: Cpu> FrameAllocator<A> {
    /// Creates an allocator in which all of `map` is free, with its tables in one allocation of the
    /// heap. With free lists the time does not depend on the size of memory: blocks are accessed
    /// when they are first used.
    #[cfg(any(feature = "alloc", test))]
    pub fn new(map: &MemoryMap, config: AllocConfig) -> Result<Self, ConfigError> {
        let map = map.as_ref();
        let needed = Self::metadata_layout(map, config)?;
        let build = |place: &mut Place| Self::build(place, map, config);
        // SAFETY: the memory is the last field of the allocator, and is dropped after its tables.
        let (mut made, memory) = unsafe { HeapMemory::build(needed, build) };
        made.heap = Some(memory);
        Ok(made)
    }
    /// Returns the layout of the tables of an allocator: the buffer that
    /// [`FrameAllocator::new_in`] takes. It takes as long as that, and needs no heap.
    pub fn metadata_layout(map: MapRef<'_>, config: AllocConfig) -> Result<Layout, ConfigError> {
        map.check()?;
        config.check()?;
        let is_whole = |zone: &ZoneSpec| map.present(zone) == zone.pages;
        if config.guest.is_some() && !map.zones.iter().all(is_whole) {
            return Err(ConfigError::Guest);
        }
        let possible = A::cpus_possible();
        match config.cpus.unwrap_or(possible) {
            cpus if cpus == 0 || cpus > possible.min(MAX_CPUS) => Err(ConfigError::Cpus(cpus)),
            _ => Ok(place::layout_of(|place| Self::build(place, map, config))),
        }
    }
    /// Creates an allocator in which all of `map` is free, with its tables in `buffer`, whose size
    /// and alignment [`FrameAllocator::metadata_layout`] returns. Only `verify` and `census`
    /// use a heap, later.
    /// Frames of the buffer are holes of the map.
    ///
    /// ```
    /// # use mmscale_arch::bare::{Bare, BareCpu};
    /// # use mmscale_arch::{CpuId, IrqState, NodeId, Pfn};
    /// # use mmscale_frames::page_alloc::{AllocConfig, FrameAllocator, MapRef, PcpPolicy};
    /// # use mmscale_frames::page_alloc::ZoneSpec;
    /// # use mmscale_frames::zone::ZoneKind;
    /// # use std::mem::MaybeUninit;
    /// # struct Board;
    /// # unsafe impl Bare for Board {
    /// #     fn cpu() -> CpuId { CpuId::new(0) }
    /// #     fn cpus() -> usize { 1 }
    /// #     fn preempt_disable() {}
    /// #     fn preempt_enable() {}
    /// #     fn irq_save() -> IrqState { IrqState(false) }
    /// #     fn irq_restore(_: IrqState) {}
    /// # }
    /// type Frames = FrameAllocator<BareCpu<Board>>;
    ///
    /// // 64 MiB from address 0. The tables are in the 64 pages from 2 MiB.
    /// let zones = [ZoneSpec {
    ///     node: NodeId::new(0),
    ///     kind: ZoneKind::Normal,
    ///     start: Pfn::new(0),
    ///     pages: 1 << 14,
    /// }];
    /// let tables = 512..576;
    /// let map = MapRef { zones: &zones, holes: &[tables.clone()] };
    /// let config = AllocConfig { caches: PcpPolicy::Blockmap, ..AllocConfig::default() };
    /// let needed = Frames::metadata_layout(map, config)?;
    /// assert!(needed.size() <= tables.len() * 4096 && needed.align() <= 4096);
    /// # let memory = vec![MaybeUninit::<u8>::uninit(); needed.size() + needed.align()].leak();
    /// # let first = memory.as_ptr().align_offset(needed.align());
    /// # let buffer: &'static mut [_] = &mut memory[first..];
    /// // `buffer` is where the kernel has mapped these pages.
    /// let frames = Frames::new_in(map, config, buffer)?;
    /// assert_eq!(frames.count_free().total(), (1 << 14) - 64);
    /// # Ok::<(), mmscale_frames::page_alloc::ConfigError>(())
    /// ```
    pub fn new_in(
        map: MapRef<'_>,
        config: AllocConfig,
        buffer: &'static mut [MaybeUninit<u8>],
    ) -> Result<Self, ConfigError> {
        let needed = Self::metadata_layout(map, config)?;
        let build = |place: &mut Place| Self::build(place, map, config);
        let (bytes, address) = (buffer.len(), buffer.as_ptr().addr());
        let align = 1 << address.trailing_zeros();
        place::build_in(buffer, needed, build).ok_or(ConfigError::Buffer { needed, bytes, align })
    }
    /// Builds the allocator. The map and the configuration are valid.
    fn build(place: &mut Place, map: MapRef<'_>, config: AllocConfig) -> Self {
        let (records, orders) = match config.records {
            Records::Kept => (map.frames(), 0),
            Records::Orders => (0, map.frames()),
            Records::None => (0, 0),
        };
        let frames = FrameTable::new(place, records, orders);
        let cpus = config.cpus.unwrap_or_else(A::cpus_possible);
        let online = online_cpus::<A>(cpus);
        let mut zones = place.room(map.zones.len());
        for (at, spec) in map.zones.iter().enumerate() {
            let id = ZoneId::new(at);
            add_zone(&mut zones, place, (map, id, spec), (&config, cpus), &frames, &online);
        }
        let nodes = map.node_count();
        let counted = map.zones.iter().map(|spec| {
            let pages = map.present(spec);
            let threshold = normal_threshold(online.count(), pages.into(), config.page_kib);
            (spec.node, threshold, pages)
        });
        let stats = Stats::new(place, counted, nodes, cpus);
        let mut zonelists = place.room(nodes);
        for node in 0..nodes {
            let lists = zonelists_of(place, map, node, nodes);
            zonelists.push(lists);
        }
        let zonelists = zonelists.done();
        let listed = if config.caches == PcpPolicy::Blockmap { 0 } else { map.frames() };
        Self {
            nearest: place
                .table(nodes, |node| zonelists[node].each_ref().map(|list| list.first().copied())),
            zonelists,
            zones: zones.done(),
            stats,
            frames,
            isolated: isolate::Isolated::none(place, listed, config.geometry()),
            cpus,
            config,
            wakes: A::AtomicU64::new(0),
            reclaimers: place.table(nodes, |_| wake::Reclaimer::none()),
            draining: A::AtomicU32::new(0),
            short_nodes: A::AtomicU32::new(0),
            threshold_changes: A::AtomicU32::new(0),
            #[cfg(any(feature = "alloc", test))]
            heap: None,
        }
    }
    /// The zones, by number.
    pub fn zones(&self) -> &[Zone<A>] {
        &self.zones
    }
    /// One zone. Panics if there is none of that number.
    pub fn zone(&self, zone: ZoneId) -> &Zone<A> {
        &self.zones[zone.index()]
    }
    /// The counters.
    pub fn stats(&self) -> &Stats<A> {
        &self.stats
    }
    /// The records of the frames.
    pub fn frames(&self) -> &FrameTable {
        &self.frames
    }
    /// The configuration.
    pub fn config(&self) -> &AllocConfig {
        &self.config
    }
    /// The number of allocations that found memory below the low watermark and requested a wake-up
    /// of reclaim.
    pub fn reclaim_wakes(&self) -> u64 {
        self.wakes.load(Relaxed)
    }
    /// Calls `look` with a page cache, under its lock.
    ///
    /// # Panics
    /// If the zone has none, with [`PcpPolicy::Blockmap`].
    pub fn inspect_pcp<R>(&self, zone: ZoneId, cpu: CpuId, look: impl FnOnce(&Pcp) -> R) -> R {
        look(&self.listed(zone).pcps.of(cpu).lock())
    }
    /// Sets the `high` of a page cache, to reproduce that of another system; it is adapted to the
    /// limits when it is next used.
    ///
    /// # Panics
    /// If the zone has no page caches, with [`PcpPolicy::Blockmap`].
    pub fn set_pcp_high(&self, zone: ZoneId, cpu: CpuId, high: u32) {
        self.listed(zone).pcps.of(cpu).lock().set_high(high);
    }
    /// Pages of `zone` in the cache of `cpu`.
    pub fn cached_pages(&self, zone: ZoneId, cpu: CpuId) -> u32 {
        match &self.zone(zone).free {
            ZoneFree::Lists(lists) => lists.pcps.of(cpu).lock().count(),
            ZoneFree::Blocks(blocks) => blocks.map.cached_pages(cpu),
            ZoneFree::Guest(_) => 0,
        }
    }
    /// Calls `look` with a zone's buddy allocator, under its lock.
    ///
    /// # Panics
    /// If the zone has no such lists, with [`PcpPolicy::Blockmap`].
    pub fn inspect_buddy<R>(&self, zone: ZoneId, look: impl FnOnce(&Buddy<A>) -> R) -> R {
        look(&self.listed(zone).buddy.lock_irqsave())
    }
    fn listed(&self, zone: ZoneId) -> &FreeLists<A> {
        let lists = self.zone(zone).lists();
        lists.unwrap_or_else(|| {
            panic!("zone {} has no free lists: its free pages are bits", zone.index())
        })
    }
    /// Sets whether reclaim is active in a zone; its page caches then stay small.
    pub fn set_reclaim_active(&self, zone: ZoneId, active: bool) {
        self.zone(zone).put(zone::RECLAIM_ACTIVE, active);
    }
    /// Reports that a node is being balanced: counters are more exact until no node is.
    pub fn node_is_short(&self) {
        // Pairs with the load in `set_thresholds`. It comes before `refresh_thresholds` counts the
        // change, so a round that misses it is repeated.
        if self.short_nodes.fetch_add(1, SeqCst) == 0 {
            self.refresh_thresholds();
        }
    }
    /// Reports that a node is no longer being balanced.
    pub fn node_is_balanced(&self) {
        // Pairs with the load in `set_thresholds`, as in `node_is_short`.
        if self.short_nodes.fetch_sub(1, SeqCst) == 1 {
            self.refresh_thresholds();
        }
    }
    /// Sets the thresholds of the counters after a change of the online CPUs or of the short nodes.
    /// If there was another change meanwhile, it starts again, so that the values of the last
    /// change remain.
    fn refresh_thresholds(&self) {
        // Pairs with the read-modify-write below in other tasks: their next round sees the change.
        let mut seen = self.threshold_changes.fetch_add(1, SeqCst) + 1;
        loop {
            self.set_thresholds();
            // A read-modify-write, not a load: a task that increments the counter later must see
            // the thresholds that were stored here before it stores its own.
            match self.threshold_changes.fetch_add(0, SeqCst) {
                now if now == seen => return,
                now => seen = now,
            }
        }
    }
    fn set_thresholds(&self) {
        let online = online_cpus::<A>(self.cpus);
        // Pairs with `node_is_short` and `node_is_balanced`.
        let (cpus, short) = (online.count(), self.short_nodes.load(SeqCst) != 0);
        self.stats.set_thresholds(self.zones.iter().map(|zone| {
            let threshold = if short {
                pressure_threshold(cpus, zone.marks.low - zone.marks.min)
            } else {
                normal_threshold(cpus, zone.managed_pages().into(), self.config.page_kib)
            };
            (zone.node, threshold)
        }));
    }
    /// Sets the limits of the page caches for the CPUs that are online now and the pages that are
    /// not offline. If these change while it sets the limits, it starts again, so that the limits
    /// of the last change remain.
    fn refresh_limits(&self) {
        for zone in self.zones.iter() {
            let seen = || (online_cpus::<A>(self.cpus), zone.managed_pages());
            let mut now = seen();
            loop {
                let (online, pages) = &now;
                let of = (zone.node, u64::from(*pages));
                let limits = pcp_limits::<A>(of, zone.marks, &self.config, online);
                for (_, pcp) in zone.pcps().iter() {
                    pcp.lock().set_limits(limits);
                }
                let then = core::mem::replace(&mut now, seen());
                if now == then {
                    break;
                }
            }
        }
    }
    #[inline]
    fn trace_count(&self, zone: &Zone<A>, cpu: CpuId, pcp: &Pcp, old: u32) {
        A::trace(Trace::Pcp(PcpEvent::Count {
            cpu,
            zone: zone.id.index() as u16,
            old,
            count: pcp.count(),
            high: pcp.high(),
            high_min: pcp.limits().high_min,
        }));
    }
    /// The zone of `pfn`; `None` if there is no such frame.
    pub fn zone_of(&self, pfn: Pfn) -> Option<&Zone<A>> {
        self.zones.iter().find(|zone| zone.extent.has(pfn.index()))
    }
}

/// The CPUs below `cpus` that are online; before any is, all of them.
fn online_cpus<A: Cpu>(cpus: usize) -> CpuMask {
    let mut online = CpuMask::EMPTY;
    A::online(&mut online);
    (cpus..A::cpus_possible()).for_each(|cpu| online.remove(CpuId::new(cpu)));
    if online.count() == 0 { CpuMask::first(cpus) } else { online }
}

/// Adds a zone to `zones`, all of it free.
fn add_zone<A: Cpu>(
    zones: &mut Room<Zone<A>>,
    place: &mut Place,
    (map, id, spec): (MapRef<'_>, ZoneId, &ZoneSpec),
    (config, cpus): (&AllocConfig, usize),
    frames: &FrameTable,
    online: &CpuMask,
) {
    let extent = map.extent(place, spec);
    let (present, marks) = (u64::from(extent.present()), zone_marks(map, spec, config));
    let limits = pcp_limits::<A>((spec.node, present), marks, config, online);
    let plan = ZonePlan { config, cpus, id, extent: &extent, marks, limits };
    let free = ZoneFree::new(place, frames, plan);
    let marks = (marks, reserves(map, spec));
    zones.push(Zone::new((id, spec.node, spec.kind), extent, marks, free, (config, cpus)));
}

/// The watermarks of a zone.
fn zone_marks(map: MapRef<'_>, zone: &ZoneSpec, config: &AllocConfig) -> Watermarks {
    let given = config.normal_marks.filter(|_| zone.kind == ZoneKind::Normal);
    given.unwrap_or_else(|| config.watermarks(map.present(zone).into(), map.pages()))
}

/// Pages that a zone reserves from allocations that a better zone of its node could serve.
fn reserves(map: MapRef<'_>, zone: &ZoneSpec) -> [u32; ZoneKind::COUNT] {
    let mut reserve = [0; ZoneKind::COUNT];
    let above = |other: &&ZoneSpec| other.node == zone.node && other.kind > zone.kind;
    for other in map.zones.iter().filter(above) {
        reserve[other.kind as usize] += map.present(other) / LOWMEM_RESERVE_RATIO;
    }
    reserve
}

/// The order in which allocations for `node` try the zones, by the best kind that they accept:
/// their own node first, then the others in circular order of their numbers; on each node the
/// better kind first.
fn zonelists_of(
    place: &mut Place,
    map: MapRef<'_>,
    node: usize,
    nodes: usize,
) -> [Table<ZoneId>; ZoneKind::COUNT] {
    core::array::from_fn(|best| {
        let of_kind = |(_, zone): &(usize, &ZoneSpec)| zone.kind as usize <= best;
        let mut zones = map.zones.iter().enumerate().filter(of_kind);
        let count = zones.clone().count();
        let mut list =
            place.table(count, |_| ZoneId::new(zones.next().expect("there are so many zones").0));
        list.sort_unstable_by_key(|&id| {
            let zone = &map.zones[id.index()];
            let distance = (zone.node.index() + nodes - node) % nodes;
            (distance, core::cmp::Reverse(zone.kind), id)
        });
        list
    })
}

/// The limits of the page caches of a zone of `node` with these CPUs online.
fn pcp_limits<A: Cpu>(
    (node, pages): (NodeId, u64),
    marks: Watermarks,
    config: &AllocConfig,
    online: &CpuMask,
) -> PcpLimits {
    let local = online.iter().filter(|&cpu| A::node_of(cpu) == node).count();
    let cpus = if local == 0 { online.count() } else { local };
    config.pcp_limits(pages, marks.low, cpus)
}
