//! The rules of the page caches, with the numbers of a zone of 4 GiB and four CPUs.

use mmscale_arch::{CpuId, LockClass, Order, PcpEvent, Pfn, Trace};
use mmscale_frames::frame::MigrateType;
use mmscale_frames::page_alloc::{
    AllocConfig, BatchPolicy, BulkHold, CachedOrders, FrameAllocator, Gfp, HighPolicy, MemoryMap,
};
use mmscale_frames::pcp::{DrainSize, PcpLimits, batch_size};
use mmscale_frames::zone::ZoneId;
use mmscale_stepped::{self as stepped, Stepped};

const ZONE: ZoneId = ZoneId::new(0);
const PAGES_4G: u32 = 1 << 20;

type Frames = FrameAllocator<Stepped>;

fn boot(config: AllocConfig) -> Frames {
    stepped::boot(4, 1000);
    FrameAllocator::new(&MemoryMap::single(PAGES_4G), config).unwrap()
}

fn order(value: u8) -> Order {
    Order::new(value).unwrap()
}

fn take(frames: &Frames, size: Order) -> Pfn {
    frames.alloc_pages(size, MigrateType::Movable, Gfp::KERNEL).unwrap()
}

fn take_many(frames: &Frames, size: Order, count: usize) -> Vec<Pfn> {
    (0..count).map(|_| take(frames, size)).collect()
}

fn count(frames: &Frames, cpu: usize) -> u32 {
    frames.inspect_pcp(ZONE, CpuId::new(cpu), |pcp| pcp.count())
}

fn high(frames: &Frames, cpu: usize) -> u32 {
    frames.inspect_pcp(ZONE, CpuId::new(cpu), |pcp| pcp.high())
}

fn factor(frames: &Frames) -> u8 {
    frames.inspect_pcp(ZONE, CpuId::new(0), |pcp| pcp.alloc_factor())
}

fn refills() -> Vec<u32> {
    let events = stepped::take_traces().into_iter();
    let pages = events.filter_map(|(_, event)| match event {
        Trace::Pcp(PcpEvent::Refill { pages, .. }) => Some(pages),
        _ => None,
    });
    pages.collect()
}

fn drains() -> Vec<u32> {
    let events = stepped::take_traces().into_iter();
    let pages = events.filter_map(|(_, event)| match event {
        Trace::Pcp(PcpEvent::Drain { pages, .. }) => Some(pages),
        _ => None,
    });
    pages.collect()
}

#[test]
fn batches_follow_the_size_of_the_zone() {
    let pages = |mib: u64| mib * 256;
    assert_eq!(batch_size(pages(1), 4), 1);
    assert_eq!(batch_size(pages(64), 4), 3);
    assert_eq!(batch_size(pages(512), 4), 31);
    assert_eq!(batch_size(pages(1024), 4), 63);
    assert_eq!(batch_size(pages(1 << 20), 4), 63);
    // Pages of 16 KiB: 256 KiB are 16 of them.
    assert_eq!(batch_size(pages(1 << 20) / 4, 16), 15);
}

#[test]
fn limits_share_the_low_watermark_and_an_eighth_of_the_zone() {
    let limits = PcpLimits::of(PAGES_4G.into(), 3096, 4, 63, None);
    let of = |high_min, high_max| {
        let (scale_max, drains) = (5, DrainSize::Counted);
        PcpLimits { batch: 63, high_min, high_max, scale_max, drains }
    };
    assert_eq!(limits, of(774, 32_768));
    let many = PcpLimits::of(PAGES_4G.into(), 3096, 512, 63, None);
    assert_eq!(many, of(252, 256));
    let fixed = PcpLimits::of(PAGES_4G.into(), 3096, 4, 63, Some(16));
    assert_eq!(fixed, of(16_384, 16_384));
    let frames = boot(AllocConfig::default());
    assert_eq!(frames.inspect_pcp(ZONE, CpuId::new(3), |pcp| pcp.limits()), limits);
    assert_eq!(high(&frames, 3), 774);
}

#[test]
fn a_chosen_batch_moves_the_least_high_and_the_policy_halves_it() {
    let of = |batch_pages, batch| {
        let frames = boot(AllocConfig { batch_pages, batch, ..AllocConfig::default() });
        frames.inspect_pcp(ZONE, CpuId::new(3), |pcp| pcp.limits())
    };
    let limits = of(Some(1000), BatchPolicy::Stock);
    assert_eq!((limits.batch, limits.high_min, limits.high_max), (1000, 4000, 32_768));
    assert_eq!(of(Some(20), BatchPolicy::Stock).batch, 20);
    assert_eq!(of(Some(20), BatchPolicy::Half).batch, 10);
    assert_eq!(of(None, BatchPolicy::Half).batch, 31);
}

#[test]
fn refills_double_from_one_batch_to_thirty_two() {
    let frames = boot(AllocConfig::default());
    stepped::record(true);
    take_many(&frames, Order::ZERO, 63 * 95 + 1);
    assert_eq!(refills(), [63, 126, 252, 504, 1008, 2016, 2016, 2016]);
    // Each refill raised the limit by its own size.
    assert_eq!(high(&frames, 0), 774 + 63 * (1 + 2 + 4 + 8 + 16 + 32 + 32 + 32));
}

#[test]
fn a_free_halves_the_exponent_of_refills() {
    let frames = boot(AllocConfig::default());
    let mut pages = take_many(&frames, Order::ZERO, 63 * 31 + 1);
    let mut seen = vec![factor(&frames)];
    for _ in 0..4 {
        frames.free_pages(pages.pop().unwrap(), Order::ZERO);
        seen.push(factor(&frames));
    }
    assert_eq!(seen, [5, 2, 1, 0, 0]);
}

#[test]
fn refills_of_higher_orders_are_a_batch_of_pages_and_at_least_two_blocks() {
    let frames = boot(AllocConfig::default());
    stepped::record(true);
    for (size, pages) in [(1, 31 * 2), (2, 15 * 4), (3, 7 * 8), (9, 2 * 512)] {
        take(&frames, order(size));
        assert_eq!(refills(), [pages], "order {size}");
    }
    for size in [4, 8, 10] {
        take(&frames, order(size));
        assert_eq!(refills(), [], "order {size} has no list");
    }
}

/// As before Linux 5.14.
#[test]
fn single_pages_alone_are_cached_if_the_policy_says_so() {
    let frames = boot(AllocConfig { orders: CachedOrders::Single, ..AllocConfig::default() });
    stepped::record(true);
    for size in [1, 2, 3, 9] {
        let block = take(&frames, order(size));
        assert_eq!((refills(), count(&frames, 0)), (vec![], 0), "order {size}: from the zone");
        frames.free_pages(block, order(size));
        assert_eq!((drains(), count(&frames, 0)), (vec![], 0), "order {size}: to the zone");
    }
    let page = take(&frames, Order::ZERO);
    assert_eq!((refills(), count(&frames, 0)), (vec![63], 62));
    frames.free_pages(page, Order::ZERO);
    assert_eq!(count(&frames, 0), 63);
    assert!(frames.verify().is_ok());
}

#[test]
fn no_refill_is_larger_than_the_room_that_high_leaves() {
    let config = AllocConfig { high_fraction: Some(1000), ..AllocConfig::default() };
    let frames = boot(config);
    // high is fixed at 1048576 / 1000 / 4 = 262: room for 262 - 63 at most.
    stepped::record(true);
    take_many(&frames, Order::ZERO, 63 * 8);
    assert_eq!(refills(), [63, 126, 199, 199]);
    assert_eq!(high(&frames, 0), 262);
}

#[test]
fn a_consumer_drains_its_frees_in_one_step() {
    for (hold, expected) in
        [(BulkHold::Whole, vec![711]), (BulkHold::Batch, [vec![63; 11], vec![18]].concat())]
    {
        let frames = boot(AllocConfig { hold, ..AllocConfig::default() });
        let pages = take_many(&frames, Order::ZERO, 2000);
        stepped::set_cpu(1);
        let mut pages = pages.into_iter();
        let mut free =
            |n: usize| pages.by_ref().take(n).for_each(|p| frames.free_pages(p, order(0)));
        free(773);
        assert_eq!((count(&frames, 1), high(&frames, 1)), (773, 774));
        stepped::record(true);
        free(1);
        // free_count is 774, within 63 ..= 774 - 63; high is raised to hold the next as well.
        assert_eq!(drains(), expected);
        assert_eq!((count(&frames, 1), high(&frames, 1)), (63, 837));
        // The next time, 837 pages later, free_count has grown to 1548.
        free(837 - 63);
        assert_eq!(drains().iter().sum::<u32>(), 837 - 63);
        assert_eq!(high(&frames, 1), 1548 + 63);
    }
}

#[test]
fn free_count_is_halved_by_allocations_and_capped() {
    let frames = boot(AllocConfig::default());
    let freed = |frames: &Frames| frames.inspect_pcp(ZONE, CpuId::new(1), |p| p.free_count());
    let pages = take_many(&frames, Order::ZERO, 6000);
    stepped::set_cpu(1);
    for &page in &pages {
        frames.free_pages(page, Order::ZERO);
    }
    assert_eq!(freed(&frames), 2016);
    take(&frames, Order::ZERO);
    take(&frames, Order::ZERO);
    assert_eq!(freed(&frames), 504);
}

/// Allocates pages on CPU 0, frees these on CPU 1, whose `high` is 774, and returns the drains.
fn drained_with(high: HighPolicy, frees: usize) -> (Frames, Vec<Pfn>, Vec<u32>) {
    let frames = boot(AllocConfig { high, hold: BulkHold::Whole, ..AllocConfig::default() });
    let mut pages = take_many(&frames, Order::ZERO, 6000);
    stepped::set_cpu(1);
    stepped::record(true);
    pages.drain(..frees).for_each(|page| frames.free_pages(page, Order::ZERO));
    let drained = drains();
    (frames, pages, drained)
}

#[test]
fn before_linux_6_7_drains_double_up_to_high_less_a_batch() {
    let frees = 774 + 63 + 126 + 252 + 504 + 711;
    let (frames, mut pages, drained) = drained_with(HighPolicy::Watermark, frees);
    assert_eq!(drained, [63, 126, 252, 504, 711, 711]);
    // An allocation halves the exponent, 4 by now. There is room for 712 pages.
    take(&frames, Order::ZERO);
    pages.drain(..712 + 252).for_each(|page| frames.free_pages(page, Order::ZERO));
    assert_eq!(drains(), [252, 504]);
    // While the exponent is positive, a free of a small higher order drains everything.
    let block = take(&frames, order(1));
    stepped::take_traces();
    frames.free_pages(block, order(1));
    assert_eq!(drains(), [774 - 504 + 31 * 2]);
    assert_eq!(count(&frames, 1), 0);
}

#[test]
fn doubled_drains_are_32_batches_at_most() {
    let config = AllocConfig {
        high: HighPolicy::Watermark,
        hold: BulkHold::Whole,
        min_free_kb: Some(65_536),
        ..AllocConfig::default()
    };
    let frames = boot(config);
    let pages = take_many(&frames, Order::ZERO, 16_000);
    stepped::set_cpu(1);
    stepped::record(true);
    assert!(high(&frames, 1) > 4096 + 63, "there is room for 64 batches");
    pages.into_iter().for_each(|page| frames.free_pages(page, Order::ZERO));
    let drained = drains();
    assert_eq!(drained[..7], [63, 126, 252, 504, 1008, 2016, 2016]);
    assert!(drained[7..].iter().all(|&pages| pages == 2016), "{drained:?}");
}

#[test]
fn before_linux_5_14_each_drain_has_a_batch() {
    // `high` is six batches.
    let (_, _, drained) = drained_with(HighPolicy::Batches, 6 * 63 + 2 * 63);
    assert_eq!(drained, [63, 63, 63]);
}

#[test]
fn a_storm_of_small_high_orders_returns_everything() {
    let frames = boot(AllocConfig::default());
    let blocks = take_many(&frames, order(2), 400);
    stepped::set_cpu(1);
    // The threshold is a batch and half of high_min: 63 + 387 = 450 pages freed.
    for &block in &blocks[..113] {
        frames.free_pages(block, order(2));
    }
    assert_eq!(count(&frames, 1), 452);
    frames.free_pages(blocks[113], order(2));
    assert_eq!(count(&frames, 1), 0);
    // A single page in between ends the storm.
    let page = take(&frames, Order::ZERO);
    let before = count(&frames, 1);
    frames.free_pages(page, Order::ZERO);
    frames.free_pages(blocks[114], order(2));
    assert_eq!(count(&frames, 1), before + 1 + 4);
}

#[test]
fn below_the_high_watermark_caches_shrink() {
    let frames = boot(AllocConfig::default());
    let marks = frames.zone(ZONE).watermarks();
    let mut held = Vec::new();
    while !frames.zone(ZONE).pressure().below_high {
        held.push(take(&frames, Order::ZERO));
    }
    let free = frames.inspect_buddy(ZONE, |buddy| buddy.free_pages());
    assert!(free <= u64::from(marks.high) + 125);
    // Refills no longer raise the limit.
    let before = high(&frames, 0);
    for _ in 0..=count(&frames, 0) {
        held.push(take(&frames, Order::ZERO));
    }
    assert_eq!(high(&frames, 0), before);
    // A free lowers the limit by at least a batch and drains pages, although there is room.
    let cached = count(&frames, 0);
    stepped::record(true);
    frames.free_pages(held.pop().unwrap(), Order::ZERO);
    assert_eq!(high(&frames, 0), before - 63);
    assert_eq!(drains(), if cached + 1 >= 774 { vec![63] } else { vec![] });
    stepped::record(false);
    // After enough frees the zone is above its high watermark again.
    for page in held {
        frames.free_pages(page, Order::ZERO);
    }
    assert!(!frames.zone(ZONE).pressure().below_high);
    frames.verify().unwrap();
}

#[test]
fn while_reclaim_is_active_four_batches_are_enough() {
    let frames = boot(AllocConfig::default());
    let pages = take_many(&frames, Order::ZERO, 63 * 63);
    let before = high(&frames, 0);
    frames.set_reclaim_active(ZONE, true);
    let mut most = 0;
    for &page in &pages[..1000] {
        frames.free_pages(page, Order::ZERO);
        most = most.max(count(&frames, 0));
    }
    assert!(most < 4 * 63, "{most}");
    assert!(high(&frames, 0) < before);
    frames.set_reclaim_active(ZONE, false);
}

#[test]
fn orders_without_a_list_go_straight_to_the_zone() {
    let frames = boot(AllocConfig { high_fraction: Some(8), ..AllocConfig::default() });
    for size in [4, 8, 10] {
        let block = take(&frames, order(size));
        let locks = stepped::lock_acquisitions(LockClass::Pcp);
        frames.free_pages(block, order(size));
        assert_eq!(stepped::lock_acquisitions(LockClass::Pcp), locks);
    }
    let huge = take(&frames, Order::PAGEBLOCK);
    let before = count(&frames, 0);
    frames.free_pages(huge, Order::PAGEBLOCK);
    assert_eq!(count(&frames, 0), before + 512);
}

#[test]
fn a_cache_whose_lock_is_taken_is_bypassed() {
    let frames = boot(AllocConfig::default());
    let page = take(&frames, Order::ZERO);
    let before = frames.inspect_buddy(ZONE, |buddy| buddy.free_pages());
    // As in an interrupt that came while this CPU's cache was locked.
    let other = frames.inspect_pcp(ZONE, CpuId::new(0), |_| {
        let other = take(&frames, Order::ZERO);
        frames.free_pages(page, Order::ZERO);
        other
    });
    assert_eq!(frames.inspect_buddy(ZONE, |buddy| buddy.free_pages()), before);
    assert_eq!(count(&frames, 0), 62);
    frames.free_pages(other, Order::ZERO);
    frames.verify().unwrap();
    stepped::assert_quiet();
}

#[test]
fn draining_one_cpu_leaves_the_others() {
    let frames = boot(AllocConfig::default());
    for cpu in 0..4 {
        stepped::set_cpu(cpu);
        take(&frames, Order::ZERO);
    }
    assert_eq!(frames.drain_pages(CpuId::new(2)), 62);
    assert_eq!([0, 1, 2, 3].map(|cpu| count(&frames, cpu)), [62, 62, 0, 62]);
    assert_eq!(frames.drain_all(), 3 * 62);
    assert_eq!(frames.verify().unwrap().cached, 0);
}

#[test]
fn a_hot_page_comes_back_first() {
    let frames = boot(AllocConfig::default());
    let pages = take_many(&frames, Order::ZERO, 3);
    frames.free_pages(pages[1], Order::ZERO);
    frames.free_pages(pages[0], Order::ZERO);
    assert_eq!(take(&frames, Order::ZERO), pages[0]);
    assert_eq!(take(&frames, Order::ZERO), pages[1]);
}

#[test]
fn a_pair_from_the_cache_takes_no_zone_lock() {
    let frames = boot(AllocConfig::default());
    take(&frames, Order::ZERO);
    let before = stepped::lock_acquisitions(LockClass::Zone);
    for _ in 0..100 {
        let page = take(&frames, Order::ZERO);
        frames.free_pages(page, Order::ZERO);
    }
    assert_eq!(stepped::lock_acquisitions(LockClass::Zone), before);
}
