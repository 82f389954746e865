//! Zones with holes: frames that do not exist, or that are reserved from the start.

use crate::frames::oracle::{Oracle, answer_drains, depth};
use crate::frames::parts::configs;
use crate::frames::random::Random;
use mmscale_arch::{NodeId, Order, Pfn};
use mmscale_frames::frame::MigrateType;
use mmscale_frames::page_alloc::{
    AllocConfig, ConfigError, ContigError, FrameAllocator, FreeError, Gfp, MemoryMap, Records,
    ZoneLists, ZoneSpec,
};
use mmscale_frames::zone::{ZoneId, ZoneKind};
use mmscale_stepped::{self as stepped, Stepped};
use proptest::prelude::*;
use std::ops::Range;
use std::rc::Rc;

type Frames = Rc<FrameAllocator<Stepped>>;

fn stretch(kind: ZoneKind, start: usize, pages: u32) -> ZoneSpec {
    ZoneSpec { node: NodeId::new(0), kind, start: Pfn::new(start), pages }
}

fn boot(map: &MemoryMap, config: AllocConfig) -> Frames {
    stepped::boot(2, 1000);
    let frames = Rc::new(FrameAllocator::new(map, config).unwrap());
    answer_drains(&frames);
    frames
}

/// Checks that no frame of a block is in a hole, that all memory can be allocated, and that all of
/// it is free in the end, in as large blocks as at first.
fn no_hole_is_allocated(map: &MemoryMap, config: AllocConfig, seed: u64) {
    let (frames, mut oracle, mut random) = (boot(map, config), Oracle::default(), Random(seed));
    let (fresh, missing) = (frames.census(), |pfn: usize| {
        let of = |zone: &ZoneSpec| pfn.wrapping_sub(zone.start.index()) < zone.pages as usize;
        !map.zones.iter().any(of) || map.holes.iter().any(|hole| hole.contains(&pfn))
    });
    assert_eq!((frames.verify().unwrap().free, fresh.pages), (map.pages(), map.pages()));
    let gfp = Gfp::KERNEL | Gfp::MEMALLOC;
    for _ in 0..1500 * depth() {
        stepped::set_cpu(random.below(2));
        if random.below(5) < 2 {
            let block = oracle.take(random.next() as usize);
            block.into_iter().for_each(|(pfn, of)| frames.free_pages(pfn, of));
        }
        let of = Order::new(random.below(11) as u8).unwrap();
        let block = frames.alloc_pages(of, MigrateType::from_index(random.below(3)), gfp);
        block.into_iter().for_each(|pfn| oracle.add(pfn, of));
    }
    assert_eq!(frames.verify().unwrap().held, oracle.pages);
    while let Ok(pfn) = frames.alloc_pages(Order::ZERO, MigrateType::Movable, gfp) {
        oracle.add(pfn, Order::ZERO);
    }
    assert_eq!(oracle.pages, map.pages(), "all memory is allocated");
    let all = oracle.blocks().flat_map(|(first, of)| first..first + of.pages());
    assert!(all.into_iter().all(|pfn| !missing(pfn)));
    while let Some((pfn, of)) = oracle.take(random.next() as usize) {
        frames.free_pages(pfn, of);
    }
    frames.drain_all();
    assert_eq!(frames.verify().unwrap().free, map.pages());
    let census = frames.census();
    assert_eq!(census.free_blocks, fresh.free_blocks);
    let blocks = |census: mmscale_frames::page_alloc::Census| {
        [census.whole_blocks, census.loose_blocks, census.partial_blocks, census.full_blocks]
    };
    assert_eq!(blocks(census), blocks(fresh));
    for hole in &map.holes {
        for pfn in [hole.start, hole.end - 1].map(Pfn::new) {
            assert_eq!(frames.frame_use(pfn), None);
            assert_eq!(frames.try_free_pages(pfn, Order::ZERO), Err(FreeError::NoFrame));
            assert_eq!(frames.alloc_at(pfn, Order::ZERO), Err(ContigError::Outside(pfn)));
        }
    }
    stepped::assert_quiet();
}

#[test]
fn a_map_of_firmware_with_reservations() {
    let normal = |start, pages| stretch(ZoneKind::Normal, start, pages);
    let low = |start, pages| stretch(ZoneKind::Dma32, start, pages);
    let map = MemoryMap::of_stretches([
        normal(40_000, 3_000),
        low(256, 9_000),
        low(12_000, 5_001),
        normal(20_480, 7_000),
    ]);
    let map = map.with_hole(Pfn::new(4096), 2103).with_hole(Pfn::new(20_999), 1);
    let spans: Vec<(usize, u32)> =
        map.zones.iter().map(|zone| (zone.start.index(), zone.pages)).collect();
    assert_eq!(spans, [(256, 16_745), (20_480, 22_520)]);
    assert_eq!(map.pages(), 24_001 - 2104);
    for config in configs() {
        no_hole_is_allocated(&map, config, 90);
    }
    let by_gib = AllocConfig { lists: ZoneLists::Superpageblocks, ..AllocConfig::default() };
    no_hole_is_allocated(&map, by_gib, 91);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]
    #[test]
    fn holes_anywhere(
        start in 0_usize..2000,
        holes in prop::collection::vec((0_usize..12_000, 1_usize..1500), 0..8),
        seed in 0_u64..1000,
    ) {
        let mut map = MemoryMap::single(12_000);
        map.zones[0].start = Pfn::new(start);
        let inside = |&(at, pages): &(usize, usize)| start + at..start + (at + pages).min(12_000);
        map.holes = holes.iter().map(inside).collect::<Vec<Range<usize>>>();
        prop_assume!(map.pages() > 3000);
        configs().for_each(|config| no_hole_is_allocated(&map, config, seed));
    }
}

#[test]
fn stretches_of_other_zones_in_between_are_refused() {
    let [low, normal] = [ZoneKind::Dma32, ZoneKind::Normal];
    let map = |zones: &[ZoneSpec]| MemoryMap::of_stretches(zones.iter().copied()).check();
    let apart = [stretch(low, 0, 100), stretch(low, 300, 100), stretch(normal, 400, 9)];
    assert_eq!(map(&apart), Ok(()));
    let between = [stretch(low, 0, 100), stretch(low, 300, 100), stretch(normal, 200, 9)];
    assert_eq!(map(&between), Err(ConfigError::Overlap(1)));
    let gone = MemoryMap::single(100).with_hole(Pfn::new(0), 500);
    assert_eq!(gone.check(), Err(ConfigError::EmptyZone(0)));
}

/// Wrong frees are values, and change nothing.
#[test]
fn a_wrong_free_is_an_error() {
    let map = MemoryMap::single(1 << 16).with_hole(Pfn::new(30_000), 10);
    let order = |order: u8| Order::new(order).unwrap();
    for config in configs() {
        let frames = boot(&map, config);
        let take = |of| frames.alloc_pages(order(of), MigrateType::Movable, Gfp::KERNEL).unwrap();
        let free = |pfn: Pfn, of| frames.try_free_pages(pfn, order(of));
        let [page, block, huge, max] = [0, 4, 9, 10].map(take);
        let before = frames.verify().unwrap();
        let recorded = config.records != Records::None;
        for (pfn, of) in [(1 << 16, 0), (1 << 31, 3), (30_003, 0)] {
            assert_eq!(free(Pfn::new(pfn), of), Err(FreeError::NoFrame), "{pfn}");
        }
        let never = Pfn::new(40_000);
        assert_eq!(free(never, 0), Err(FreeError::Free));
        if recorded {
            assert_eq!(free(block, 3), Err(FreeError::Order(order(4))));
            assert_eq!(free(block.offset(4), 2), Err(FreeError::NoBlock));
            assert_eq!(free(max, 9), Err(FreeError::Order(order(10))));
        } else {
            assert_eq!(free(block.offset(1), 4), Err(FreeError::NoBlock));
        }
        assert!(free(huge.align_down(Order::MAX), 10).is_err());
        assert!(free(page.align_down(Order::PAGEBLOCK), 9).is_err());
        assert_eq!(frames.verify().unwrap(), before, "nothing has changed");
        for (pfn, of) in [(page, 0), (block, 4), (huge, 9), (max, 10)] {
            assert_eq!(free(pfn, of), Ok(()));
            assert_eq!(free(pfn, of), Err(FreeError::Free), "order {of}, {config:?}");
        }
        frames.drain_all();
        for (pfn, of) in [(page, 0), (block, 4), (huge, 9), (max, 10)] {
            assert_eq!(free(pfn, of), Err(FreeError::Free), "order {of}, {config:?}");
        }
        assert_eq!(frames.verify().unwrap().free, map.pages());
    }
}

/// Without records too: next to a page that was just freed, a part of a larger block, where the
/// CPU's stack is full, and where memory is short.
#[test]
fn a_free_in_a_hole_is_caught() {
    let map = MemoryMap::single(1 << 16).with_hole(Pfn::new(30_000), 10).with_hole(Pfn::new(5), 1);
    for config in configs() {
        for short in [false, true] {
            let frames = boot(&map, config);
            frames.set_reclaim_active(ZoneId::new(0), short);
            let order = |order| Order::new(order).expect("an order");
            let take = |of| frames.alloc_pages(of, MigrateType::Movable, Gfp::KERNEL);
            let blocks: Vec<Pfn> = (0..200).map_while(|_| take(order(6)).ok()).collect();
            blocks.into_iter().for_each(|pfn| frames.free_pages(pfn, order(6)));
            frames.alloc_contig_range(Pfn::new(29_999), 1).expect("it is free");
            frames.free_pages(Pfn::new(29_999), Order::ZERO);
            let inside = [(30_000, 0), (30_008, 2), (5, 0), (0, 9), (29_696, 10)];
            for (pfn, of) in inside.into_iter().chain([(29_952, 6), (29_696, 8)]) {
                let free = || frames.free_pages(Pfn::new(pfn), order(of));
                let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(free));
                assert!(caught.is_err(), "frame {pfn}, order {of}, short {short}, {config:?}");
            }
        }
    }
}
