//! Random operations on several CPUs, zones, orders and types, compared with a simple oracle.

use crate::frames::oracle::{Oracle, answer_drains, depth};
use mmscale_arch::{Cpu as _, CpuId, Machine, Order, Pfn};
use mmscale_frames::frame::MigrateType;
use mmscale_frames::page_alloc::{
    AllocConfig, AllocError, BulkHold, DecayRequest, FrameAllocator, Gfp, MemoryMap, PcpPolicy,
    Records, ZoneLists,
};
use mmscale_frames::vmstat::ZoneItem;
use mmscale_frames::zone::ZoneId;
use mmscale_stepped::{self as stepped, Stepped};
use std::rc::Rc;

const CPUS: usize = 4;

/// splitmix64.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    pub(crate) fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }
    /// Small orders more often than large ones.
    fn order(&mut self) -> Order {
        let order = match self.below(20) {
            0..12 => 0,
            12..15 => 1,
            15 => 2,
            16 => 3,
            17 => 4 + self.below(5),
            18 => 9,
            _ => 10,
        };
        Order::new(order as u8).unwrap()
    }
}

struct Run {
    allocator: Rc<FrameAllocator<Stepped>>,
    oracle: Oracle,
    random: Random,
    total: u64,
    failures: u32,
    /// Whether a node is reported as short.
    short: bool,
}

impl Run {
    fn new(seed: u64, map: &MemoryMap, config: AllocConfig) -> Self {
        stepped::boot(CPUS, 1000);
        stepped::set_node(2, map.zones.last().unwrap().node.index());
        stepped::set_node(3, map.zones.last().unwrap().node.index());
        let allocator = Rc::new(FrameAllocator::new(map, config).unwrap());
        answer_drains(&allocator);
        Self {
            allocator,
            oracle: Oracle::default(),
            random: Random(seed),
            total: map.zones.iter().map(|zone| u64::from(zone.pages)).sum(),
            failures: 0,
            short: false,
        }
    }
    fn set_short(&mut self, short: bool) {
        match (self.short, short) {
            (false, true) => self.allocator.node_is_short(),
            (true, false) => self.allocator.node_is_balanced(),
            _ => {}
        }
        self.short = short;
    }
    fn alloc(&mut self) {
        let order = self.random.order();
        let wanted = MigrateType::from_index(self.random.below(3));
        let gfp = match self.random.below(8) {
            0 => Gfp::ATOMIC,
            1 => Gfp::NOWAIT,
            2 => Gfp::KERNEL | Gfp::DMA32,
            3 => Gfp::KERNEL | Gfp::THIS_NODE,
            _ => Gfp::KERNEL,
        };
        match self.allocator.alloc_pages(order, wanted, gfp) {
            Ok(pfn) => {
                let node = self.allocator.zone_of(pfn).unwrap().node();
                if gfp.contains(Gfp::THIS_NODE) {
                    assert_eq!(node, Stepped::node_of(Stepped::cpu()));
                }
                self.oracle.add(pfn, order);
            }
            Err(error) => {
                assert_eq!(error, AllocError::NoMemory);
                self.failures += 1;
            }
        }
    }
    fn free(&mut self) {
        if let Some((pfn, order)) = self.oracle.take(self.random.next() as usize) {
            self.allocator.free_pages(pfn, order);
        }
    }
    fn rare(&mut self) {
        let interval_ns = 1_000_000_000;
        let cpu = CpuId::new(self.random.below(CPUS));
        let zones = self.allocator.zones().len();
        let zone = ZoneId::new(self.random.below(zones));
        match self.random.below(8) {
            0 => _ = self.allocator.drain_pages(cpu),
            1 => _ = self.allocator.drain_pages_zone(zone, cpu),
            2 => self.allocator.set_reclaim_active(zone, self.random.below(4) == 0),
            3 => {
                let short = self.random.below(2) == 0;
                self.set_short(short);
            }
            4 => _ = self.allocator.fold_counters(),
            5 => {
                _ = self.allocator.refresh_cpu_vm_stats(DecayRequest::PerRun, Stepped::cond_resched)
            }
            _ => {
                let elapsed_ns = self.random.next() % (2 * interval_ns);
                let request = DecayRequest::Elapsed { elapsed_ns, interval_ns };
                self.allocator.refresh_cpu_vm_stats(request, Stepped::cond_resched);
            }
        }
    }
    fn check(&self) {
        let audit = self.allocator.verify().unwrap();
        assert_eq!(audit.held, self.oracle.pages);
        assert_eq!(audit.free + audit.cached + audit.held, self.total);
        for zone in self.allocator.zones() {
            let stats = self.allocator.stats();
            let exact = stats.zone_snapshot(zone.id(), ZoneItem::FreePages);
            let total = stats.zone(zone.id(), ZoneItem::FreePages) as i64;
            assert!((exact - total).unsigned_abs() <= 125 * CPUS as u64);
        }
        stepped::assert_quiet();
    }
    /// Alternates between phases with more allocations and phases with more frees, on one CPU for a
    /// while, then on another.
    fn go(&mut self, steps: usize) {
        for step in 0..steps * depth() {
            if step % 97 == 0 {
                stepped::set_cpu(self.random.below(CPUS));
            }
            let growing = step / 4000 % 2 == 0;
            let allocs = if growing { 60 } else { 38 };
            match self.random.below(1000) {
                0..2 => self.rare(),
                _ if self.random.below(100) < allocs => self.alloc(),
                _ => self.free(),
            }
            if step % 16_000 == 0 {
                self.check();
            }
        }
        self.check();
    }
    /// Frees all blocks and drains all caches: then nothing is held or cached, and only largest
    /// blocks are left.
    fn end(mut self) {
        while self.oracle.len() > 0 {
            self.free();
        }
        self.allocator.drain_all();
        let audit = self.allocator.verify().unwrap();
        assert_eq!(audit.free, self.total);
        for cpu in 0..CPUS {
            stepped::set_cpu(cpu);
            self.allocator.fold_counters();
            assert!(!self.allocator.stats().needs_update(CpuId::new(cpu)));
        }
        let all = self.allocator.stats().all_zones(ZoneItem::FreePages);
        assert_eq!(all, self.total);
    }
}

/// Every policy with lists against the oracle.
const POLICIES: [PcpPolicy; 3] = [PcpPolicy::Stock, PcpPolicy::Premerge, PcpPolicy::Posted];

#[test]
fn lists_by_gib_in_zones_of_several_gib() {
    for (seed, caches) in (24..26).flat_map(|seed| POLICIES.map(|caches| (seed, caches))) {
        let config = AllocConfig { lists: ZoneLists::Superpageblocks, ..with(caches) };
        let map = MemoryMap::nodes(2, 700_000).with_dma32(300_000);
        let mut run = Run::new(seed, &map, config);
        run.go(60_000);
        run.end();
    }
}

#[test]
fn lists_by_gib_of_small_zones_that_run_out() {
    for (seed, caches) in (26..28).flat_map(|seed| POLICIES.map(|caches| (seed, caches))) {
        let config = AllocConfig { lists: ZoneLists::Superpageblocks, ..with(caches) };
        let mut map = MemoryMap::single(9_000);
        map.zones[0].start = Pfn::new((1 << 18) - 4_000);
        let mut run = Run::new(seed, &map, config);
        run.go(60_000);
        assert!(run.failures > 0, "memory never ran out");
        run.end();
    }
}

fn with(caches: PcpPolicy) -> AllocConfig {
    AllocConfig { caches, ..AllocConfig::default() }
}

#[test]
fn one_small_zone_that_runs_out() {
    for (seed, caches) in (0..4).flat_map(|seed| POLICIES.map(|caches| (seed, caches))) {
        let mut run = Run::new(seed, &MemoryMap::single(5000), with(caches));
        run.go(60_000);
        assert!(run.failures > 0, "memory never ran out");
        run.end();
    }
}

#[test]
fn two_nodes_with_a_low_zone() {
    for (seed, caches) in (10..14).flat_map(|seed| POLICIES.map(|caches| (seed, caches))) {
        let map = MemoryMap::nodes(2, 16_384).with_dma32(3_000);
        let mut run = Run::new(seed, &map, with(caches));
        run.go(60_000);
        run.end();
    }
}

#[test]
fn a_zone_large_enough_for_full_batches() {
    let holds = [(20, BulkHold::Batch), (21, BulkHold::Whole)];
    for ((seed, hold), caches) in
        holds.into_iter().flat_map(|hold| POLICIES.map(|caches| (hold, caches)))
    {
        let config = AllocConfig { hold, cache_slice_pages: 512, ..with(caches) };
        let mut run = Run::new(seed, &MemoryMap::single(300_000), config);
        run.go(120_000);
        run.end();
    }
}

fn blockmap(records: Records) -> AllocConfig {
    AllocConfig { caches: PcpPolicy::Blockmap, records, ..AllocConfig::default() }
}

#[test]
fn a_map_of_blocks_that_runs_out() {
    for (seed, records) in [(30, Records::Kept), (31, Records::None), (32, Records::Orders)] {
        // Neither end of the zone is the end of a pageblock.
        let mut map = MemoryMap::single(5_000);
        map.zones[0].start = Pfn::new(700);
        let mut run = Run::new(seed, &map, blockmap(records));
        run.go(200_000);
        assert!(run.failures > 0, "memory never ran out");
        run.end();
    }
}

#[test]
fn maps_of_blocks_on_two_nodes_with_a_low_zone() {
    for (seed, records) in [(40, Records::Kept), (41, Records::Orders), (42, Records::None)] {
        let map = MemoryMap::nodes(2, 16_384).with_dma32(3_000);
        let mut run = Run::new(seed, &map, blockmap(records));
        run.go(100_000);
        run.end();
    }
}

/// The zones share a pageblock: a CPU's cache of the last zone must not accept frames of the other.
#[test]
fn maps_of_blocks_that_meet_inside_a_pageblock() {
    let fewer = [Records::None, Records::Orders, Records::None];
    for (seed, records) in (43..).zip(fewer) {
        let map = MemoryMap::single(8_192).with_dma32(3_000);
        let mut run = Run::new(seed, &map, blockmap(records));
        run.go(100_000);
        run.end();
    }
}

#[test]
fn a_map_of_blocks_with_room() {
    let mut run = Run::new(50, &MemoryMap::single(300_000), blockmap(Records::Kept));
    run.go(150_000);
    run.end();
}
