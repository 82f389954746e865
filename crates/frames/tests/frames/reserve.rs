//! The reserve of whole pageblocks of the policy `blockmap`.

use super::oracle::answer_drains;
use mmscale_arch::{NodeId, Order, Pfn};
use mmscale_frames::frame::MigrateType;
use mmscale_frames::page_alloc::{AllocConfig, FrameAllocator, Gfp, MemoryMap, PcpPolicy};
use mmscale_frames::vmstat::ZoneItem;
use mmscale_stepped::{self as stepped, Stepped};
use std::rc::Rc;

/// A min watermark of eight pageblocks.
const MIN_PAGES: u64 = 8 * 512;
const RESERVE: u64 = 8;
const CPUS: usize = 4;
const ORDER_3: Order = Order::new(3).unwrap();

struct Zone(Rc<FrameAllocator<Stepped>>);

impl Zone {
    /// A zone of 64 pageblocks.
    fn new() -> Self {
        stepped::boot(CPUS, 1000);
        let (caches, min_free_kb) = (PcpPolicy::Blockmap, Some(4 * MIN_PAGES));
        let config = AllocConfig { caches, min_free_kb, ..AllocConfig::default() };
        let frames = Rc::new(FrameAllocator::new(&MemoryMap::single(64 * 512), config).unwrap());
        answer_drains(&frames);
        Self(frames)
    }
    fn take(&self, order: Order, gfp: Gfp) -> Option<Pfn> {
        self.0.alloc_pages(order, MigrateType::Movable, gfp).ok()
    }
    /// Allocates single pages on all CPUs in turn, until that fails.
    fn fill(&self) -> Vec<Pfn> {
        let take = |nth: usize| {
            stepped::set_cpu(nth / 16 % CPUS);
            self.take(Order::ZERO, Gfp::KERNEL)
        };
        (0..).map_while(take).collect()
    }
    fn whole(&self) -> u64 {
        self.0.census().whole_blocks
    }
    /// Whether all pages above the min watermark are allocated; pages that were on CPUs' stacks
    /// before memory was short may be allocated too.
    fn is_out(&self) -> bool {
        let free = self.0.census().free_pages();
        (MIN_PAGES - 64 * CPUS as u64..=MIN_PAGES).contains(&free)
    }
}

#[test]
fn single_pages_leave_whole_blocks_down_to_the_watermark() {
    let zone = Zone::new();
    let held = zone.fill();
    assert!(zone.is_out(), "all pages above the watermark are allocated");
    assert_eq!(zone.whole(), RESERVE);
    // Random pages are freed and allocated again: whole blocks stay whole.
    held.iter().step_by(7).for_each(|&page| zone.0.free_pages(page, Order::ZERO));
    zone.fill();
    assert!(zone.is_out());
    assert_eq!(zone.whole(), RESERVE);
}

#[test]
fn parts_of_the_reserve_are_for_urgent_requests() {
    let zone = Zone::new();
    let held = zone.fill();
    // There is enough free memory, but eight adjacent free pages only in whole blocks.
    let even = |page: &&Pfn| page.index().is_multiple_of(2);
    held.iter().filter(even).take(1200).for_each(|&page| zone.0.free_pages(page, Order::ZERO));
    assert_eq!(zone.take(ORDER_3, Gfp::KERNEL), None);
    assert_eq!(zone.whole(), RESERVE);
    let huge =
        zone.take(Order::PAGEBLOCK, Gfp::KERNEL).expect("the reserve is for whole pageblocks");
    assert_eq!(zone.whole(), RESERVE - 1);
    assert!(zone.take(ORDER_3, Gfp::ATOMIC).is_some(), "urgent requests may use the reserve");
    assert_eq!(zone.whole(), RESERVE - 2);
    // A free block of the order outside of whole blocks is not in the reserve.
    let first = held[0].align_down(ORDER_3).index();
    let odd =
        held.iter().filter(|page| !page.index().is_multiple_of(2) && page.index() / 8 == first / 8);
    odd.for_each(|&page| zone.0.free_pages(page, Order::ZERO));
    assert!(zone.take(ORDER_3, Gfp::KERNEL).is_some());
    zone.0.free_pages(huge, Order::PAGEBLOCK);
    assert_eq!(zone.whole(), RESERVE - 1);
}

#[test]
fn whole_blocks_above_the_reserve_are_broken_up() {
    let zone = Zone::new();
    let held = zone.fill();
    // All pages of four pageblocks are freed.
    let block = |page: &&Pfn| page.pageblock() < held[0].pageblock().min(4) + 4;
    held.iter().filter(block).for_each(|&page| zone.0.free_pages(page, Order::ZERO));
    let whole = zone.whole();
    assert!(whole > RESERVE);
    let threes: Vec<Pfn> = (0..).map_while(|_| zone.take(ORDER_3, Gfp::KERNEL)).collect();
    assert_eq!(zone.whole(), RESERVE, "of {whole}, with {} blocks of order 3", threes.len());
    assert!(
        threes.len() as u64 > (whole - RESERVE) * 64 - 8,
        "all blocks of the pageblocks above the reserve"
    );
}

/// Above the min watermark single pages may break up whole blocks too. If there are no more whole
/// blocks than fit under the high watermark, they may do so only when no other page is free.
#[test]
fn single_pages_use_every_hole_before_a_block_under_the_high_watermark() {
    let zone = Zone::new();
    let held = zone.fill();
    let high = u64::from(zone.0.zones()[0].watermarks().high) / 512;
    assert_eq!((zone.whole(), high), (RESERVE, 12));
    let first = held[0].pageblock();
    let (blocks, others): (Vec<Pfn>, Vec<Pfn>) =
        held.iter().partition(|page| (first..first + 4).contains(&page.pageblock()));
    blocks.iter().for_each(|&page| zone.0.free_pages(page, Order::ZERO));
    let holes = others.iter().step_by(9);
    let count = holes.len();
    holes.for_each(|&page| zone.0.free_pages(page, Order::ZERO));
    zone.0.drain_all();
    assert_eq!(zone.whole(), high);
    for nth in 0..count {
        stepped::set_cpu(nth / 16 % CPUS);
        assert!(zone.take(Order::ZERO, Gfp::KERNEL).is_some());
    }
    assert_eq!(zone.whole(), high, "there were {count} holes");
    assert!(zone.take(Order::ZERO, Gfp::KERNEL).is_some(), "no allocation fails");
    assert_eq!(zone.whole(), high - 1);
}

/// Single pages use the reserve above the min watermark before they come from another node.
#[test]
fn single_pages_break_up_local_blocks_before_they_are_remote() {
    stepped::boot(CPUS, 1000);
    let (caches, min_free_kb) = (PcpPolicy::Blockmap, Some(8 * MIN_PAGES));
    let config = AllocConfig { caches, min_free_kb, ..AllocConfig::default() };
    let frames = Rc::new(FrameAllocator::new(&MemoryMap::nodes(2, 64 * 512), config).unwrap());
    answer_drains(&frames);
    let near = frames.zones()[0].id();
    let is_near = |page: &Pfn| frames.zone_of(*page).unwrap().id() == near;
    let take = || frames.alloc_pages(Order::ZERO, MigrateType::Movable, Gfp::KERNEL).unwrap();
    let taken = core::iter::repeat_with(take).take_while(is_near).count() as u64;
    let low = u64::from(frames.zones()[0].watermarks().low);
    assert!(taken + low + 64 >= 64 * 512, "{taken} pages taken, {low} must be left");
}

/// A zone whose free pages are exactly its min watermark serves no allocation.
#[test]
fn the_page_at_the_watermark_is_not_given() {
    const MIN: u64 = 64;
    let sixteen = Order::new(4).unwrap();
    stepped::boot(1, 1000);
    let config = AllocConfig { min_free_kb: Some(4 * MIN), ..AllocConfig::default() };
    let frames = FrameAllocator::<Stepped>::new(&MemoryMap::single(4096), config).unwrap();
    let zone = frames.zones()[0].id();
    assert_eq!(u64::from(frames.zone(zone).watermarks().min), MIN);
    let take = |gfp| frames.alloc_pages(sixteen, MigrateType::Movable, gfp);
    let free = || {
        frames.fold_counters();
        frames.stats().zone(zone, ZoneItem::FreePages)
    };
    let mut last = Pfn::new(0);
    while free() > MIN {
        last = take(Gfp::KERNEL | Gfp::MEMALLOC).expect("it may go below the watermark");
    }
    assert_eq!(free(), MIN);
    let available = |order| frames.is_available(NodeId::new(0), order, Gfp::KERNEL);
    assert!(!available(Order::ZERO) && take(Gfp::KERNEL).is_err());
    frames.free_pages(last, sixteen);
    // Then one page above the watermark is left.
    assert_eq!(free(), MIN + 16);
    assert!(available(sixteen) && take(Gfp::KERNEL).is_ok());
    assert_eq!(free(), MIN);
    assert!(!available(Order::ZERO));
}
