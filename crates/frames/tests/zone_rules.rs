//! Zones: watermarks, the order in which they are tried, splitting, merging, claiming, stealing.

use mmscale_arch::{Access, CpuId, Line, NodeId, Op, Order, Pfn};
use mmscale_frames::frame::{FrameList, FrameState, MigrateType};
use mmscale_frames::page_alloc::{
    AllocConfig, AllocError, Audit, ConfigError, FrameAllocator, Gfp, MemoryMap, PcpPolicy,
};
use mmscale_frames::zone::{Watermarks, ZoneId, ZoneKind, default_min_free_kb, watermarks};
use mmscale_stepped::{self as stepped, Stepped};
use std::collections::BTreeSet;

const ZONE: ZoneId = ZoneId::new(0);

type Frames = FrameAllocator<Stepped>;

/// No page is reserved, and page caches hold at most one page: this tests the buddy allocator.
fn bare(map: &MemoryMap) -> Frames {
    stepped::boot(2, 1000);
    let config = AllocConfig { min_free_kb: Some(0), watermark_scale: 1, ..AllocConfig::default() };
    FrameAllocator::new(map, config).unwrap()
}

fn order(value: u8) -> Order {
    Order::new(value).unwrap()
}

fn blocks(frames: &Frames) -> [u32; 11] {
    frames
        .inspect_buddy(ZONE, |buddy| core::array::from_fn(|at| buddy.free_blocks(order(at as u8))))
}

fn block_type(frames: &Frames, pfn: usize) -> MigrateType {
    frames.inspect_buddy(ZONE, |buddy| buddy.block_type(Pfn::new(pfn)))
}

/// Allocates past the page caches, whose locks are taken meanwhile.
fn direct(frames: &Frames, size: u8, wanted: MigrateType) -> Result<Pfn, AllocError> {
    frames.inspect_pcp(ZONE, CpuId::new(0), |_| {
        frames.alloc_pages(order(size), wanted, Gfp::ATOMIC | Gfp::MEMALLOC)
    })
}

fn free_direct(frames: &Frames, pfn: Pfn, size: u8) {
    frames.inspect_pcp(ZONE, CpuId::new(0), |_| frames.free_pages(pfn, order(size)));
}

#[test]
fn watermarks_follow_the_square_root_of_memory() {
    assert_eq!(default_min_free_kb(4 << 20), 8192);
    assert_eq!(default_min_free_kb(512), 128);
    assert_eq!(default_min_free_kb(16 << 30), 262_144);
    // 4 GiB: min 2048 pages; the step is a thousandth of the zone, more than a quarter of min.
    assert_eq!(
        watermarks(1 << 20, 1 << 20, 2048, 10),
        Watermarks { min: 2048, low: 3096, high: 4144 }
    );
    // 256 MiB: a quarter of min is more.
    assert_eq!(watermarks(1 << 16, 1 << 16, 512, 10), Watermarks { min: 512, low: 640, high: 768 });
    // Half of all memory gets half of min.
    assert_eq!(watermarks(1 << 19, 1 << 20, 2048, 10).min, 1024);
}

#[test]
fn a_page_splits_the_smallest_block_and_comes_back_whole() {
    let frames = bare(&MemoryMap::single(4096));
    assert_eq!(blocks(&frames), [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4]);
    let page = direct(&frames, 0, MigrateType::Movable).unwrap();
    assert_eq!(blocks(&frames), [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 3]);
    let next = direct(&frames, 0, MigrateType::Movable).unwrap();
    assert_eq!(next, page.buddy(order(0)));
    assert_eq!(blocks(&frames), [0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 3]);
    free_direct(&frames, page, 0);
    free_direct(&frames, next, 0);
    assert_eq!(blocks(&frames), [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4]);
    frames.verify().unwrap();
}

#[test]
fn a_zone_need_not_begin_or_end_at_a_block() {
    let map = MemoryMap::single(5000).with_dma32(1001);
    let frames = bare(&map);
    let audit = frames.verify().unwrap();
    assert_eq!(audit, Audit { free: 5000, ..Audit::default() });
    // 1001 is 512 + 256 + 128 + 64 + 32 + 8 + 1.
    assert_eq!(blocks(&frames), [1, 0, 0, 1, 0, 1, 1, 1, 1, 1, 0]);
    let start = frames.zone(ZoneId::new(1)).start();
    assert_eq!(frames.zone_of(start).unwrap().id(), ZoneId::new(1));
    assert_eq!(frames.zone_of(Pfn::new(1000)).unwrap().kind(), ZoneKind::Dma32);
    assert!(frames.zone_of(Pfn::new(5000)).is_none());
}

#[test]
fn memory_that_is_not_used_is_not_touched() {
    stepped::boot(1, 1000);
    stepped::record(true);
    // 128 GiB.
    let frames: Frames =
        FrameAllocator::new(&MemoryMap::single(1 << 25), AllocConfig::default()).unwrap();
    assert!(stepped::take_touches().is_empty());
    let page = frames.alloc_pages(Order::ZERO, MigrateType::Movable, Gfp::KERNEL).unwrap();
    let used = page.align_down(Order::MAX).offset(1024);
    assert_eq!(frames.frames().word(used).state(), FrameState::Inside);
    assert_eq!(frames.verify().unwrap().held, 1);
}

#[test]
fn a_large_foreign_block_is_claimed_whole() {
    let frames = bare(&MemoryMap::single(4096));
    let first = direct(&frames, 0, MigrateType::Unmovable).unwrap();
    // The largest block, two pageblocks, became unmovable; further pages come from it.
    let start = first.align_down(Order::MAX).index();
    assert_eq!(block_type(&frames, start), MigrateType::Unmovable);
    assert_eq!(block_type(&frames, start + 512), MigrateType::Unmovable);
    for _ in 0..1023 {
        let page = direct(&frames, 0, MigrateType::Unmovable).unwrap();
        assert_eq!(page.align_down(Order::MAX), first.align_down(Order::MAX));
    }
    frames.verify().unwrap();
}

#[test]
fn reclaimable_falls_back_to_unmovable_before_movable() {
    let frames = bare(&MemoryMap::single(4096));
    let unmovable = direct(&frames, 0, MigrateType::Unmovable).unwrap();
    let reclaimable = direct(&frames, 0, MigrateType::Reclaimable).unwrap();
    // Both types have free blocks of order 9 or 10; the search goes from the largest order down,
    // so the movable blocks of order 10 come first.
    assert_ne!(unmovable.align_down(Order::MAX), reclaimable.align_down(Order::MAX));
    // In a zone without movable blocks it takes the unmovable ones.
    let frames = bare(&MemoryMap::single(1024));
    let unmovable = direct(&frames, 0, MigrateType::Unmovable).unwrap();
    let reclaimable = direct(&frames, 0, MigrateType::Reclaimable).unwrap();
    let claimed = reclaimable.align_down(Order::PAGEBLOCK);
    assert_ne!(claimed, unmovable.align_down(Order::PAGEBLOCK));
    assert_eq!(block_type(&frames, claimed.index()), MigrateType::Reclaimable);
}

/// One pageblock in which `held` pages of type `wanted` are held and the rest is free in blocks
/// that allow claiming; everything else is held.
fn pageblock_with(held: usize, wanted: MigrateType) -> Frames {
    let frames = bare(&MemoryMap::single(512));
    let pages: Vec<Pfn> = (0..512).map(|_| direct(&frames, 0, wanted).unwrap()).collect();
    for page in pages {
        if page.index() >= held {
            free_direct(&frames, page, 0);
        }
    }
    frames.verify().unwrap();
    frames
}

#[test]
fn a_pageblock_is_claimed_if_half_of_it_is_free() {
    for (held, claimed) in [(256, true), (257, false)] {
        let frames = pageblock_with(held, MigrateType::Movable);
        direct(&frames, 0, MigrateType::Unmovable).unwrap();
        let expected = if claimed { MigrateType::Unmovable } else { MigrateType::Movable };
        assert_eq!(block_type(&frames, 0), expected, "{held} held");
        frames.verify().unwrap();
    }
}

#[test]
fn pages_that_fit_count_towards_a_claim() {
    // An unmovable pageblock whose pages were then taken for movable use by single steals.
    let frames = pageblock_with(300, MigrateType::Unmovable);
    // 212 free, 300 held as unmovable: a movable allocation may not claim it, and steals.
    for _ in 0..100 {
        direct(&frames, 0, MigrateType::Movable).unwrap();
    }
    assert_eq!(block_type(&frames, 0), MigrateType::Unmovable);
    // With 112 free and 100 movable pages still not: 212 of 512.
    direct(&frames, 4, MigrateType::Movable).unwrap();
    assert_eq!(block_type(&frames, 0), MigrateType::Unmovable);
    // The unmovable pages of a movable block suit reclaimable use: 300 of 512.
    let frames = bare(&MemoryMap::single(512));
    let pages: Vec<Pfn> =
        (0..512).map(|_| direct(&frames, 0, MigrateType::Movable).unwrap()).collect();
    pages.iter().for_each(|&page| {
        if page.index() >= 300 {
            free_direct(&frames, page, 0);
        }
    });
    for _ in 0..60 {
        direct(&frames, 0, MigrateType::Unmovable).unwrap();
    }
    // 300 movable pages stay, 60 were stolen: 152 free + 60 alike are not enough.
    assert_eq!(block_type(&frames, 0), MigrateType::Movable);
    pages[..50].iter().for_each(|&page| free_direct(&frames, page, 0));
    direct(&frames, 0, MigrateType::Reclaimable).unwrap();
    // 202 free + 60 alike are.
    assert_eq!(block_type(&frames, 0), MigrateType::Reclaimable);
    frames.verify().unwrap();
}

/// A refill that finds no pageblock to claim steals until it releases the zone lock. If it searched
/// pageblocks again for each page, a refill of 2016 pages would hold the lock for 10 ms.
#[test]
fn a_refill_that_can_claim_nothing_looks_once() {
    stepped::boot(1, 1000);
    let config = AllocConfig { min_free_kb: Some(0), ..AllocConfig::default() };
    let frames: Frames = FrameAllocator::new(&MemoryMap::single(1 << 16), config).unwrap();
    let take = |wanted| frames.alloc_pages(Order::ZERO, wanted, Gfp::ATOMIC | Gfp::MEMALLOC);
    let held: Vec<Pfn> = core::iter::from_fn(|| take(MigrateType::Unmovable).ok()).collect();
    // In each pageblock 212 adjacent pages are freed: too few for a movable allocation to claim it.
    // They are blocks of orders 7, 6, 4 and 2; a search tries each order not below 4.
    let back = held.iter().filter(|page| page.index() % 512 >= 300);
    back.for_each(|&page| frames.free_pages(page, Order::ZERO));
    frames.drain_all();
    stepped::record(true);
    stepped::take_touches();
    take(MigrateType::Movable).unwrap();
    let peek = |touch: &(Line, Access)| matches!(touch, (Line::Frame(_), Access::Peek));
    let looks = stepped::take_touches().iter().filter(|touch| peek(touch)).count();
    let refilled = frames.cached_pages(ZONE, CpuId::new(0)) as usize + 1;
    assert!(refilled > 8, "{refilled} pages");
    assert_eq!(looks, 3 * 304, "for {refilled} pages");
    frames.verify().unwrap();
}

#[test]
fn movable_pages_do_not_claim_for_a_small_block() {
    // Free: the upper half, and so a block of order 8 and more: claimable. Then only order 3.
    let frames = pageblock_with(504, MigrateType::Unmovable);
    let page = direct(&frames, 0, MigrateType::Movable).unwrap();
    assert!(page.index() >= 504);
    assert_eq!(block_type(&frames, 0), MigrateType::Unmovable);
    // A freed page goes to the list of its pageblock's type and merges.
    free_direct(&frames, page, 0);
    assert_eq!(blocks(&frames)[3], 1);
    frames.verify().unwrap();
}

#[test]
fn the_nearest_zone_is_asked_first_and_the_better_kind_before_the_worse() {
    stepped::boot(4, 1000);
    stepped::set_node(3, 1);
    let map = MemoryMap::nodes(2, 1 << 18).with_dma32(1 << 16);
    let frames: Frames = FrameAllocator::new(&map, AllocConfig::default()).unwrap();
    let zones = |cpu: usize, gfp: Gfp| {
        stepped::set_cpu(cpu);
        let mut seen = Vec::new();
        while let Ok(pfn) = frames.alloc_pages(Order::MAX, MigrateType::Movable, gfp) {
            let zone = frames.zone_of(pfn).unwrap().id().index();
            if seen.last() != Some(&zone) {
                seen.push(zone);
            }
        }
        seen
    };
    // Zone 0 is node 0's DMA32, 1 its normal zone, 2 node 1's.
    assert_eq!(zones(0, Gfp::KERNEL | Gfp::DMA32), [0]);
    assert_eq!(zones(0, Gfp::KERNEL | Gfp::THIS_NODE), [1]);
    assert_eq!(zones(3, Gfp::KERNEL | Gfp::THIS_NODE), [2]);
    let frames: Frames = FrameAllocator::new(&map, AllocConfig::default()).unwrap();
    let order_of = |cpu: usize, frames: &Frames| {
        stepped::set_cpu(cpu);
        let pfn = frames.alloc_pages(Order::ZERO, MigrateType::Movable, Gfp::KERNEL).unwrap();
        frames.zone_of(pfn).unwrap().id().index()
    };
    assert_eq!((order_of(0, &frames), order_of(3, &frames)), (1, 2));
    let near =
        frames.alloc_pages_node(NodeId::new(1), Order::ZERO, MigrateType::Movable, Gfp::KERNEL);
    assert_eq!(frames.zone_of(near.unwrap()).unwrap().id().index(), 2);
}

#[test]
fn a_low_zone_has_a_reserve_from_requests_that_accept_other_zones() {
    stepped::boot(1, 1000);
    let map = MemoryMap::single(1 << 20).with_dma32(1 << 16);
    let exhaust = |gfp: Gfp| {
        let frames: Frames = FrameAllocator::new(&map, AllocConfig::default()).unwrap();
        while frames.alloc_pages(order(4), MigrateType::Movable, gfp).is_ok() {}
        frames.inspect_buddy(ZONE, |buddy| buddy.free_pages())
    };
    let reserve = ((1u64 << 20) - (1 << 16)) / 256;
    let (normal, dma) = (exhaust(Gfp::KERNEL), exhaust(Gfp::KERNEL | Gfp::DMA32));
    assert!(normal >= dma + reserve - 32 && normal <= dma + reserve + 32, "{normal} {dma}");
}

#[test]
fn urgent_allocations_go_deeper_and_wake_reclaim() {
    stepped::boot(1, 1000);
    let left = |gfp: Gfp| {
        let frames: Frames =
            FrameAllocator::new(&MemoryMap::single(1 << 18), AllocConfig::default()).unwrap();
        while frames.alloc_pages(order(4), MigrateType::Movable, gfp).is_ok() {}
        assert!(frames.reclaim_wakes() > 0);
        let min = u64::from(frames.zone(ZONE).watermarks().min);
        (frames.inspect_buddy(ZONE, |buddy| buddy.free_pages()), min)
    };
    let near = |(free, _): (u64, u64), mark: u64| free.abs_diff(mark) <= 16 + 1;
    let (_, min) = left(Gfp::KERNEL);
    assert_eq!(min, 1024);
    assert!(near(left(Gfp::KERNEL), min));
    assert!(near(left(Gfp::KSWAPD | Gfp::HIGH), min / 2));
    assert!(near(left(Gfp::ATOMIC), min / 2 - min / 8));
    assert_eq!(left(Gfp::KERNEL | Gfp::MEMALLOC).0, 0);
}

#[test]
fn other_cpus_caches_are_drained_when_memory_runs_out() {
    stepped::boot(2, 1000);
    let frames: Frames =
        FrameAllocator::new(&MemoryMap::single(1 << 16), AllocConfig::default()).unwrap();
    let take = |gfp| frames.alloc_pages(Order::ZERO, MigrateType::Movable, gfp);
    stepped::set_cpu(1);
    let pages: Vec<Pfn> = (0..500).map(|_| take(Gfp::KERNEL).unwrap()).collect();
    stepped::set_cpu(0);
    while take(Gfp::NOWAIT).is_ok() {}
    stepped::set_cpu(1);
    pages.into_iter().for_each(|page| frames.free_pages(page, Order::ZERO));
    stepped::set_cpu(0);
    // An allocation that may not wait finds nothing; one that may wait drains CPU 1's pages.
    while take(Gfp::NOWAIT).is_ok() {}
    let cached = || frames.inspect_pcp(ZONE, CpuId::new(1), |pcp| pcp.count());
    assert!(cached() > 0);
    assert!(take(Gfp::KERNEL).is_ok());
    assert_eq!(cached(), 0);
    frames.verify().unwrap();
}

#[test]
fn injected_failures_fail_and_cost_nothing() {
    let frames = bare(&MemoryMap::single(4096));
    stepped::fail_allocs(1);
    let take = || frames.alloc_pages(Order::ZERO, MigrateType::Movable, Gfp::KERNEL);
    assert_eq!(take(), Err(AllocError::Injected));
    assert!(take().is_ok());
}

#[test]
fn invalid_maps_and_settings_are_refused() {
    stepped::boot(1, 1000);
    let why = |map: &MemoryMap, config| FrameAllocator::<Stepped>::new(map, config).err().unwrap();
    let fine = AllocConfig::default();
    assert_eq!(why(&MemoryMap::default(), fine), ConfigError::NoMemory);
    assert_eq!(why(&MemoryMap::single(0), fine), ConfigError::EmptyZone(0));
    let mut map = MemoryMap::nodes(2, 4096);
    map.zones[1].start = Pfn::new(4095);
    assert_eq!(why(&map, fine), ConfigError::Overlap(1));
    map.zones[1].start = Pfn::new(5000);
    map.zones[1].node = NodeId::new(0);
    assert_eq!(why(&map, fine), ConfigError::SameKind(1));
    let mut far = MemoryMap::single(4096);
    far.zones[0].start = Pfn::new(u32::MAX as usize - 4095);
    assert_eq!(why(&far, fine), ConfigError::TooFar(0));
    let good = MemoryMap::single(4096);
    let many = AllocConfig { cpus: Some(4097), ..fine };
    assert_eq!(why(&good, many), ConfigError::Cpus(4097));
    let odd = AllocConfig { page_kib: 5, ..fine };
    assert_eq!(why(&good, odd), ConfigError::PageSize(5));
    for caches in [PcpPolicy::Posted, PcpPolicy::Blockmap] {
        let large = AllocConfig { page_kib: 64, caches, ..fine };
        assert_eq!(why(&good, large), ConfigError::Pageblocks(64));
    }
    let steep = AllocConfig { watermark_scale: 0, ..fine };
    assert_eq!(why(&good, steep), ConfigError::WatermarkScale(0));
    let wide = AllocConfig { high_fraction: Some(7), ..fine };
    assert_eq!(why(&good, wide), ConfigError::HighFraction(7));
    for pages in [0, 1025] {
        let odd = AllocConfig { batch_pages: Some(pages), ..fine };
        assert_eq!(why(&good, odd), ConfigError::BatchPages(pages));
    }
}

#[test]
#[should_panic(expected = "freed twice: it is Cached already")]
fn a_page_freed_twice_is_caught() {
    let frames = bare(&MemoryMap::single(1 << 18));
    let page = frames.alloc_pages(Order::ZERO, MigrateType::Movable, Gfp::KERNEL).unwrap();
    frames.free_pages(page, Order::ZERO);
    frames.free_pages(page, Order::ZERO);
}

#[test]
#[should_panic(expected = "freed with order 1, but allocated with order 2")]
fn a_block_freed_with_another_size_is_caught() {
    let frames = bare(&MemoryMap::single(4096));
    let block = frames.alloc_pages(order(2), MigrateType::Movable, Gfp::KERNEL).unwrap();
    frames.free_pages(block, order(1));
}

#[test]
#[should_panic(expected = "not the head of an allocated block")]
fn a_page_inside_a_block_is_not_freed() {
    let frames = bare(&MemoryMap::single(4096));
    let block = frames.alloc_pages(order(2), MigrateType::Movable, Gfp::KERNEL).unwrap();
    frames.free_pages(block.offset(1), order(0));
}

#[test]
#[should_panic(expected = "does not exist")]
fn a_foreign_frame_is_not_freed() {
    bare(&MemoryMap::single(4096)).free_pages(Pfn::new(4096), order(0));
}

/// 51 numbers of the node, 30 of each zone, 7 of each CPU. 163 fit the first buffer, 326 the next.
#[test]
fn zoneinfo_is_formatted_until_it_fits_the_buffer() {
    let numbers = |cpus: usize, map: &MemoryMap| {
        stepped::boot(cpus, 1000);
        let frames = Frames::new(map, AllocConfig::default()).unwrap();
        let before = stepped::work_count(Op::SeqNumber);
        frames.zoneinfo_show();
        stepped::work_count(Op::SeqNumber) - before
    };
    let one = MemoryMap::single(4096);
    assert_eq!(numbers(2, &one), 51 + 30 + 14);
    assert_eq!(numbers(2, &one.clone().with_dma32(1024)), 51 + 2 * (30 + 14));
    assert_eq!(numbers(72, &one), 163 + 326 + (51 + 30 + 7 * 72));
}

/// With pages of 64 KiB a pageblock and the largest block are 2^13 pages.
#[test]
fn blocks_and_pageblocks_follow_the_size_of_a_page() {
    stepped::boot(2, 1000);
    let config = AllocConfig {
        page_kib: 64,
        min_free_kb: Some(0),
        watermark_scale: 1,
        ..AllocConfig::default()
    };
    let frames = Frames::new(&MemoryMap::single(4 << 13), config).unwrap();
    let [largest, above] = [13, 14].map(Order::large);
    let (largest, block) = (largest.unwrap(), 1 << 13);
    assert_eq!(above, None);
    let free = |order: Order| frames.inspect_buddy(ZONE, |buddy| buddy.free_blocks(order));
    assert_eq!((free(largest), free(order(10))), (4, 0));
    let whole = frames.alloc_pages(largest, MigrateType::Movable, Gfp::KERNEL).unwrap();
    // An unmovable page claims the next pageblock, all 512 MiB of it.
    let page = frames.alloc_pages(Order::ZERO, MigrateType::Unmovable, Gfp::KERNEL).unwrap();
    let first = page.index() / block * block;
    assert_ne!(first, whole.index());
    assert_eq!(block_type(&frames, first), MigrateType::Unmovable);
    assert_eq!(block_type(&frames, first + block - 1), MigrateType::Unmovable);
    assert_eq!(block_type(&frames, (first + block) % (4 * block)), MigrateType::Movable);
    frames.isolate_pageblock(whole).unwrap();
    assert!(frames.inspect_buddy(ZONE, |buddy| buddy.is_isolated(whole.offset(block - 1))));
    frames.unisolate_pageblock(whole).unwrap();
    assert_eq!(frames.verify().unwrap().held, block as u64 + 1);
    frames.free_pages(whole, largest);
    frames.free_pages(page, Order::ZERO);
    frames.drain_all();
    assert_eq!((free(largest), frames.census().whole_blocks), (4, 4));
    assert_eq!(frames.verify().unwrap().free, 4 * block as u64);
}

/// The watermarks that were published for an arm64 server with 480 GB and pages of 64 KiB: 11.2,
/// 14 and 16.8 GB; and its page caches, which move three pages at a time.
#[test]
fn large_pages_have_large_watermarks_and_small_batches() {
    stepped::boot(72, 1000);
    let config = AllocConfig { page_kib: 64, ..AllocConfig::default() };
    let frames = Frames::new(&MemoryMap::single(7_324_218), config).unwrap();
    let marks = frames.zones()[0].watermarks();
    let gib = |pages: u32| f64::from(pages) / 16384.0;
    assert!((11.0..11.3).contains(&gib(marks.min)), "{marks:?}");
    assert!((13.7..14.1).contains(&gib(marks.low)), "{marks:?}");
    assert!((16.4..16.9).contains(&gib(marks.high)), "{marks:?}");
    let limits = frames.inspect_pcp(ZONE, CpuId::new(0), |pcp| pcp.limits());
    assert_eq!((limits.batch, limits.high_min), (3, marks.low / 72));
}

/// A block at an end of a list has one neighbour, others have two.
#[test]
fn a_list_writes_the_lines_of_a_block_and_of_its_neighbours() {
    let frames = bare(&MemoryMap::single(4096));
    let mut list = FrameList::EMPTY;
    let mut written = |change: &dyn Fn(&mut FrameList, Pfn), pfn: usize| {
        stepped::record(true);
        stepped::take_touches();
        change(&mut list, Pfn::new(pfn));
        let touches = stepped::take_touches();
        let mut lines: Vec<usize> = touches
            .iter()
            .map(|touch| match touch {
                (Line::Frame(pfn), access) if access.writes() => pfn.index(),
                other => panic!("{other:?}"),
            })
            .collect();
        lines.sort_unstable();
        lines
    };
    let table = frames.frames();
    let front = |list: &mut FrameList, pfn| list.push_front::<Stepped>(table, pfn);
    let back = |list: &mut FrameList, pfn| list.push_back::<Stepped>(table, pfn);
    let off = |list: &mut FrameList, pfn| list.unlink::<Stepped>(table, pfn);
    assert_eq!(written(&front, 8), [8]);
    assert_eq!(written(&front, 4), [4, 8]);
    assert_eq!(written(&back, 12), [8, 12]);
    assert_eq!(written(&off, 8), [4, 8, 12]);
    assert_eq!(written(&off, 4), [4, 12]);
    assert_eq!(written(&off, 12), [12]);
}

/// A drain puts the frames of a word back together: its cost is that of words, not of pages.
#[test]
fn a_drain_of_a_cache_costs_one_put_for_each_word() {
    stepped::boot(1, 1000);
    let config = AllocConfig { caches: PcpPolicy::Blockmap, ..AllocConfig::default() };
    let frames: Frames = FrameAllocator::new(&MemoryMap::single(1 << 15), config).unwrap();
    let take = |_| frames.alloc_pages(Order::ZERO, MigrateType::Movable, Gfp::KERNEL).unwrap();
    let held: Vec<Pfn> = (0..512).map(take).collect();
    frames.drain_all();
    let back: Vec<Pfn> = held.iter().copied().filter(|pfn| pfn.index() % 64 < 3).collect();
    let words: BTreeSet<usize> = back.iter().map(|pfn| pfn.index() / 64).collect();
    back.iter().for_each(|&pfn| frames.free_pages(pfn, Order::ZERO));
    let puts = stepped::work_count(Op::BuddyPut);
    frames.drain_all();
    assert_eq!(stepped::work_count(Op::BuddyPut) - puts, words.len() as u64);
}
