//! Short random sequences of all operations of the allocator. A sequence that fails is shrunk to
//! the fewest and simplest steps that still fail, and printed.

use crate::frames::oracle::{Oracle, answer_drains, depth};
use mmscale_arch::{Cpu as _, CpuId, MAX_ORDER, Machine, Order, Pfn};
use mmscale_frames::frame::MigrateType;
use mmscale_frames::page_alloc::{
    AllocConfig, AllocError, BulkHold, DecayRequest, FrameAllocator, Gfp, IsolateError, MemoryMap,
    PcpPolicy, Zone, ZoneLists,
};
use mmscale_frames::vmstat::ZoneItem;
use mmscale_frames::zone::{ZoneId, ZoneKind};
use mmscale_stepped::{self as stepped, Stepped};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed, TestError, TestRunner};
use std::collections::BTreeSet;
use std::rc::Rc;

const CPUS: usize = 4;
const INTERVAL_NS: u64 = 1_000_000_000;

/// One step. Numbers of CPUs and zones are taken modulo their count.
#[derive(Clone, Debug)]
enum Step {
    /// Allocates `count` blocks.
    Alloc {
        order: u8,
        wanted: usize,
        gfp: u8,
        count: usize,
    },
    /// Frees `count` blocks, beginning with the one that `choice` selects.
    Free {
        choice: usize,
        count: usize,
    },
    /// Does the following steps on this CPU.
    Cpu(usize),
    Drain {
        zone: usize,
        cpu: usize,
    },
    DrainAll,
    /// A run of the kernel's upkeep tick.
    Tick,
    /// A run of the phased tick.
    TickAfter {
        elapsed_ns: u64,
    },
    Fold,
    CounterPressure(bool),
    Reclaim {
        zone: usize,
        active: bool,
    },
    Offline(usize),
    Online(usize),
    /// An operation on a pageblock; its number is taken modulo their count.
    Block(BlockStep, usize),
}

#[derive(Clone, Copy, Debug)]
enum BlockStep {
    Isolate,
    Unisolate,
    Offline,
    Online,
}

/// Generates steps on pages and CPUs.
fn page_step() -> impl Strategy<Value = Step> {
    let order = prop_oneof![4 => Just(0), 2 => 1u8..4, 1 => 4..=MAX_ORDER];
    let count = prop_oneof![3 => Just(1usize), 2 => 2usize..12, 1 => 12usize..300];
    let alloc = (order, 0..MigrateType::COUNT, 0u8..6, count.clone())
        .prop_map(|(order, wanted, gfp, count)| Step::Alloc { order, wanted, gfp, count });
    prop_oneof![
        8 => alloc,
        8 => (any::<usize>(), count).prop_map(|(choice, count)| Step::Free { choice, count }),
        4 => (0..CPUS).prop_map(Step::Cpu),
        1 => (0usize..3, 0..CPUS).prop_map(|(zone, cpu)| Step::Drain { zone, cpu }),
        1 => Just(Step::DrainAll),
        1 => Just(Step::Tick),
        1 => (0..2 * INTERVAL_NS).prop_map(|elapsed_ns| Step::TickAfter { elapsed_ns }),
        1 => Just(Step::Fold),
        1 => any::<bool>().prop_map(Step::CounterPressure),
        1 => (0usize..3, any::<bool>()).prop_map(|(zone, active)| Step::Reclaim { zone, active }),
        1 => (0..CPUS).prop_map(Step::Offline),
        1 => (0..CPUS).prop_map(Step::Online),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let block = prop_oneof![
        2 => Just(BlockStep::Isolate),
        2 => Just(BlockStep::Unisolate),
        2 => Just(BlockStep::Offline),
        1 => Just(BlockStep::Online),
    ];
    let block = (block, any::<usize>()).prop_map(|(step, at)| Step::Block(step, at));
    prop_oneof![15 => page_step(), 1 => block]
}

/// Generates memory maps: one zone, a low and a normal zone, three zones on two nodes; their sizes
/// need no alignment.
fn memory() -> impl Strategy<Value = MemoryMap> {
    prop_oneof![
        (600u32..9_000).prop_map(MemoryMap::single),
        (2_000u32..9_000, 1u32..1_900)
            .prop_map(|(pages, low)| MemoryMap::single(pages).with_dma32(low)),
        (2_000u32..9_000, 1u32..1_900)
            .prop_map(|(pages, low)| MemoryMap::nodes(2, pages).with_dma32(low)),
        // Zones that share a GiB, and have parts of others.
        (1u32..3).prop_map(|parts| MemoryMap::single(5 << 17).with_dma32(parts * (3 << 16))),
        // Enough for batches of more than one page.
        Just(MemoryMap::single(1 << 17)),
    ]
}

fn settings() -> impl Strategy<Value = AllocConfig> {
    let hold = prop_oneof![Just(BulkHold::Batch), Just(BulkHold::Whole)];
    let caches = proptest::sample::select(&PcpPolicy::ALL);
    let fraction = prop_oneof![3 => Just(None), 1 => Just(Some(8)), 1 => Just(Some(100))];
    let lists = proptest::sample::select(&ZoneLists::ALL);
    (hold, fraction, 0u8..=6, prop_oneof![Just(0u32), Just(512)], caches, lists).prop_map(
        |(hold, high_fraction, batch_scale_max, cache_slice_pages, caches, lists)| AllocConfig {
            hold,
            high_fraction,
            batch_scale_max,
            cache_slice_pages,
            caches,
            lists,
            ..AllocConfig::default()
        },
    )
}

fn gfp_of(kind: u8) -> Gfp {
    match kind {
        0 => Gfp::ATOMIC,
        1 => Gfp::NOWAIT,
        2 => Gfp::KERNEL | Gfp::DMA32,
        3 => Gfp::KERNEL | Gfp::THIS_NODE,
        4 => Gfp::KERNEL | Gfp::MEMALLOC,
        _ => Gfp::KERNEL,
    }
}

/// The allocator and the oracle.
struct Pair {
    frames: Rc<FrameAllocator<Stepped>>,
    oracle: Oracle,
    total: u64,
    isolated: BTreeSet<Pfn>,
    offline: BTreeSet<Pfn>,
    short_nodes: u32,
}

impl Pair {
    fn new(map: &MemoryMap, config: AllocConfig) -> Self {
        stepped::boot(CPUS, 1000);
        let far = map.zones.last().unwrap().node.index();
        (CPUS / 2..CPUS).for_each(|cpu| stepped::set_node(cpu, far));
        let frames = Rc::new(FrameAllocator::new(map, config).unwrap());
        answer_drains(&frames);
        Self {
            frames,
            oracle: Oracle::default(),
            total: map.zones.iter().map(|zone| u64::from(zone.pages)).sum(),
            isolated: BTreeSet::new(),
            offline: BTreeSet::new(),
            short_nodes: 0,
        }
    }
    fn zone(&self, number: usize) -> ZoneId {
        ZoneId::new(number % self.frames.zones().len())
    }
    /// Whether an allocation on this CPU may be served from `zone`.
    fn accepts(gfp: Gfp, zone: &Zone<Stepped>) -> bool {
        let near = !gfp.contains(Gfp::THIS_NODE) || zone.node() == Stepped::node_of(Stepped::cpu());
        near && (!gfp.contains(Gfp::DMA32) || zone.kind() == ZoneKind::Dma32)
    }
    fn alloc(&mut self, order: Order, wanted: MigrateType, gfp: Gfp) {
        match self.frames.alloc_pages(order, wanted, gfp) {
            Ok(pfn) => {
                let zone = self.frames.zone_of(pfn).expect("the frame exists");
                assert!(
                    Self::accepts(gfp, zone),
                    "a page of a zone that the request does not accept"
                );
                for page in (0..order.pages()).map(|at| pfn.offset(at)) {
                    let block = page.align_down(Order::PAGEBLOCK);
                    let gone = self.isolated.contains(&block) || self.offline.contains(&block);
                    assert!(!gone, "a page of an isolated or offline pageblock");
                }
                self.oracle.add(pfn, order);
            }
            Err(error) => {
                assert_eq!(error, AllocError::NoMemory);
                // Without a watermark, an allocation of a page fails only if no page is free.
                if order == Order::ZERO && gfp.contains(Gfp::MEMALLOC) {
                    for zone in self.frames.zones().iter().filter(|zone| Self::accepts(gfp, zone)) {
                        let held = self.oracle.held_within(zone.start(), zone.pages());
                        let kept = self.frames.inspect_buddy(zone.id(), |b| b.isolated_pages());
                        let pages = u64::from(zone.managed_pages());
                        assert_eq!(held + kept, pages, "an allocation failed while pages are free");
                    }
                }
            }
        }
    }
    fn free(&mut self, choice: usize) {
        if let Some((pfn, order)) = self.oracle.take(choice) {
            self.frames.free_pages(pfn, order);
        }
    }
    fn offline(&self, cpu: usize) {
        let others: Vec<usize> = online().filter(|&other| other != cpu).collect();
        if let Some(&other) = others.first()
            && Stepped::is_online(CpuId::new(cpu))
        {
            if Stepped::cpu().index() == cpu {
                stepped::set_cpu(other);
            }
            stepped::set_online(cpu, false);
            self.frames.cpu_dead(CpuId::new(cpu));
        }
    }
    /// Does an operation on a pageblock, and checks its result with the oracle.
    fn block(&mut self, step: BlockStep, number: usize) {
        let block =
            Pfn::new(number % (self.frames.frames().len() + 1)).align_down(Order::PAGEBLOCK);
        let size = Order::PAGEBLOCK.pages();
        let in_zone = |zone: &&Zone<Stepped>| {
            let end = zone.start().index() + zone.pages() as usize;
            zone.start() <= block && block.index() + size <= end
        };
        let whole = self.frames.zones().iter().any(|zone| in_zone(&zone));
        let (isolated, offline) = (self.isolated.contains(&block), self.offline.contains(&block));
        let busy = self.oracle.held_of(block, size) as u32;
        let may = |fits: bool| match fits {
            _ if !whole => Err(IsolateError::NoBlock),
            true => Ok(()),
            false => Err(IsolateError::NotNow),
        };
        let inside = block.offset(number % size);
        let (done, expected) = match step {
            BlockStep::Isolate => {
                (self.frames.isolate_pageblock(inside), may(!isolated && !offline))
            }
            BlockStep::Unisolate => (self.frames.unisolate_pageblock(inside), may(isolated)),
            BlockStep::Offline if whole && !offline && busy > 0 => {
                (self.frames.offline_pageblock(inside), Err(IsolateError::Busy(busy)))
            }
            BlockStep::Offline => (self.frames.offline_pageblock(inside), may(!offline)),
            BlockStep::Online => (self.frames.online_pageblock(inside), may(offline)),
        };
        assert_eq!(done, expected, "{step:?} of {block:?}");
        if done.is_ok() {
            self.isolated.remove(&block);
            self.offline.remove(&block);
            match step {
                BlockStep::Isolate => _ = self.isolated.insert(block),
                BlockStep::Offline => _ = self.offline.insert(block),
                BlockStep::Unisolate | BlockStep::Online => {}
            }
        }
    }
    fn run(&mut self, step: &Step) {
        let frames = &self.frames;
        match *step {
            Step::Alloc { order, wanted, gfp, count } => {
                let order = Order::new(order).expect("orders are in range");
                let wanted = MigrateType::from_index(wanted);
                (0..count).for_each(|_| self.alloc(order, wanted, gfp_of(gfp)));
            }
            Step::Free { choice, count } => (0..count).for_each(|_| self.free(choice)),
            Step::Cpu(cpu) if Stepped::is_online(CpuId::new(cpu)) => stepped::set_cpu(cpu),
            Step::Cpu(_) => {}
            Step::Drain { zone, cpu } => {
                let (zone, cpu) = (self.zone(zone), CpuId::new(cpu));
                frames.drain_pages_zone(zone, cpu);
                assert_eq!(frames.cached_pages(zone, cpu), 0);
            }
            Step::DrainAll => {
                frames.drain_all();
                assert_eq!(frames.verify().unwrap().cached, 0);
            }
            Step::Tick => {
                _ = frames.refresh_cpu_vm_stats(DecayRequest::PerRun, Stepped::cond_resched)
            }
            Step::TickAfter { elapsed_ns } => {
                let request = DecayRequest::Elapsed { elapsed_ns, interval_ns: INTERVAL_NS };
                frames.refresh_cpu_vm_stats(request, Stepped::cond_resched);
            }
            Step::Fold => {
                frames.fold_counters();
                assert!(!frames.stats().needs_update(Stepped::cpu()));
            }
            Step::CounterPressure(true) => {
                self.short_nodes += 1;
                frames.node_is_short();
            }
            Step::CounterPressure(false) => {
                if let Some(left) = self.short_nodes.checked_sub(1) {
                    self.short_nodes = left;
                    frames.node_is_balanced();
                }
            }
            Step::Reclaim { zone, active } => frames.set_reclaim_active(self.zone(zone), active),
            Step::Offline(cpu) => self.offline(cpu),
            Step::Online(cpu) if Stepped::is_online(CpuId::new(cpu)) => {}
            Step::Online(cpu) => {
                stepped::set_online(cpu, true);
                frames.cpu_online();
            }
            Step::Block(step, number) => self.block(step, number),
        }
    }
    fn check(&self) {
        let audit = self.frames.verify().unwrap();
        assert_eq!(audit.held, self.oracle.pages);
        let kept_back = audit.isolated + audit.offline;
        assert_eq!(audit.free + audit.cached + audit.held + kept_back, self.total);
        assert_eq!(audit.offline, (self.offline.len() * Order::PAGEBLOCK.pages()) as u64);
        let mut cached = 0;
        for zone in self.frames.zones() {
            let in_cpu = |cpu| self.frames.cached_pages(zone.id(), CpuId::new(cpu));
            cached += (0..CPUS).map(|cpu| u64::from(in_cpu(cpu))).sum::<u64>();
            let stats = self.frames.stats();
            let exact = stats.zone_snapshot(zone.id(), ZoneItem::FreePages);
            let total = stats.zone(zone.id(), ZoneItem::FreePages) as i64;
            assert!(exact.abs_diff(total) <= 125 * online().count() as u64);
        }
        assert_eq!(cached, audit.cached);
        stepped::assert_quiet();
    }
    /// Frees all blocks and drains all caches, and checks that every pageblock is whole.
    fn end(&mut self) {
        for block in core::mem::take(&mut self.isolated) {
            self.frames.unisolate_pageblock(block).expect("it is isolated");
        }
        for block in core::mem::take(&mut self.offline) {
            self.frames.online_pageblock(block).expect("it is offline");
        }
        while self.oracle.len() > 0 {
            self.free(0);
        }
        self.frames.drain_all();
        assert_eq!(self.frames.verify().unwrap().free, self.total);
    }
}

fn online() -> impl Iterator<Item = usize> {
    (0..CPUS).filter(|&cpu| Stepped::is_online(CpuId::new(cpu)))
}

/// A runner with a fixed seed: every run of the test has the same sequences.
fn runner(cases: u32) -> TestRunner {
    let rng_seed = RngSeed::Fixed(0x6d6d_7363_616c_6521);
    TestRunner::new(Config { cases, rng_seed, failure_persistence: None, ..Config::default() })
}

#[test]
fn any_sequence_agrees_with_the_oracle() {
    let sequences = (memory(), settings(), prop::collection::vec(step(), 1..120));
    let result = runner(400 * depth() as u32).run(&sequences, |(map, config, steps)| {
        let mut pair = Pair::new(&map, config);
        for (at, step) in steps.iter().enumerate() {
            pair.run(step);
            if at % 8 == 7 {
                pair.check();
            }
        }
        pair.check();
        pair.end();
        Ok(())
    });
    if let Err(why) = result {
        panic!("{why}");
    }
}

/// A deliberate bug of the test: after a free on CPU 2 it forgets half of the next block of two
/// pages. The first sequence that fails is long; the one that is shown is the shortest.
#[test]
fn a_failing_sequence_shrinks_to_the_relevant_steps() {
    let two = Order::new(1).expect("in range");
    let result = runner(400).run(&prop::collection::vec(page_step(), 1..120), |steps| {
        let mut pair = Pair::new(&MemoryMap::single(5_000), AllocConfig::default());
        for step in &steps {
            pair.run(step);
            if Stepped::cpu() == CpuId::new(2)
                && let Step::Free { choice, .. } = *step
                && let Some((pfn, order)) = pair.oracle.take(choice)
            {
                pair.oracle.add(pfn, if order == two { Order::ZERO } else { order });
            }
        }
        pair.check();
        Ok(())
    });
    let Err(TestError::Fail(_, steps)) = result else { panic!("the bug was not found") };
    let allocs: Vec<u8> = steps.iter().filter_map(order_of).collect();
    assert_eq!(allocs, [1], "{steps:?}");
    assert_eq!(steps.len(), 3, "{steps:?}");
    assert!(steps.iter().any(|step| matches!(step, Step::Cpu(2))), "{steps:?}");
}

fn order_of(step: &Step) -> Option<u8> {
    match *step {
        Step::Alloc { order, .. } => Some(order),
        _ => None,
    }
}
