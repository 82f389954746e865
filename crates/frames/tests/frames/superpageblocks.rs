//! The rules of a zone with free lists for each GiB.

use mmscale_arch::{CpuId, Op, Order, Pfn};
use mmscale_frames::frame::MigrateType;
use mmscale_frames::page_alloc::{
    AllocConfig, FrameAllocator, Gfp, MemoryMap, PcpPolicy, ZoneLists,
};
use mmscale_frames::zone::ZoneId;
use mmscale_stepped::{self as stepped, Stepped};
use std::collections::BTreeSet;

type Frames = FrameAllocator<Stepped>;

const ZONE: ZoneId = ZoneId::new(0);
const GIB_PAGES: usize = 1 << 18;
const MOVABLE: MigrateType = MigrateType::Movable;
const UNMOVABLE: MigrateType = MigrateType::Unmovable;

/// A zone of `gib` GiB.
fn boot(lists: ZoneLists, gib: usize) -> Frames {
    stepped::boot(2, 1000);
    let config = AllocConfig { lists, min_free_kb: Some(0), ..AllocConfig::default() };
    FrameAllocator::new(&MemoryMap::single((gib * GIB_PAGES) as u32), config).unwrap()
}

/// Allocates a block past the page caches.
fn take(frames: &Frames, size: u8, wanted: MigrateType) -> Pfn {
    frames.inspect_pcp(ZONE, CpuId::new(0), |_| {
        frames.alloc_pages(order(size), wanted, Gfp::ATOMIC | Gfp::MEMALLOC).unwrap()
    })
}

fn free(frames: &Frames, pfn: Pfn, size: u8) {
    frames.inspect_pcp(ZONE, CpuId::new(0), |_| frames.free_pages(pfn, order(size)));
}

fn order(value: u8) -> Order {
    Order::new(value).unwrap()
}

fn gib(pfn: Pfn) -> usize {
    pfn.index() / GIB_PAGES
}

fn tainted(frames: &Frames) -> (u32, u32) {
    let counted = frames.inspect_buddy(ZONE, |buddy| buddy.tainted_gib());
    let census = frames.census();
    assert_eq!(census.tainted_gib, u64::from(counted.1));
    assert!(census.tainted_blocks >= census.tainted_gib);
    counted
}

#[test]
fn pages_that_cannot_be_moved_stay_in_one_gib() {
    // Both kinds in turn, 40 % of memory: every GiB has both with stock lists.
    let mixed = |lists| {
        let frames = boot(lists, 4);
        let kinds = (0..420).map(|nth| if nth % 3 == 0 { UNMOVABLE } else { MOVABLE });
        let blocks: Vec<_> = kinds.map(|kind| (kind, take(&frames, 10, kind))).collect();
        frames.verify().unwrap();
        let of = |kind| -> BTreeSet<usize> {
            blocks.iter().filter(|(of, _)| *of == kind).map(|(_, pfn)| gib(*pfn)).collect()
        };
        (of(UNMOVABLE), of(MOVABLE), tainted(&frames))
    };
    let (unmovable, movable, tainted) = mixed(ZoneLists::Superpageblocks);
    assert_eq!(unmovable, BTreeSet::from([3]), "the last GiB");
    assert_eq!(movable, BTreeSet::from([0, 1]), "from the first");
    assert_eq!(tainted, (4, 1));
    let (unmovable, _, tainted) = mixed(ZoneLists::Whole);
    assert_eq!((unmovable.len(), tainted), (2, (4, 2)));
}

#[test]
fn pages_that_cannot_be_moved_come_from_the_tainted_gib_first() {
    let frames = boot(ZoneLists::Superpageblocks, 3);
    // All memory has been used, and half of each GiB is free: clean ones have free blocks too.
    let all: Vec<Pfn> = (0..3 * GIB_PAGES / 1024).map(|_| take(&frames, 10, MOVABLE)).collect();
    all.iter().step_by(2).for_each(|&pfn| free(&frames, pfn, 10));
    let fixed: Vec<usize> = (0..40).map(|_| gib(take(&frames, 10, UNMOVABLE))).collect();
    assert!(fixed.iter().all(|&at| at == fixed[0]), "{fixed:?}");
    assert_eq!(tainted(&frames), (3, 1));
    frames.verify().unwrap();
}

#[test]
fn movable_pages_come_from_the_fullest_clean_gib() {
    let frames = boot(ZoneLists::Superpageblocks, 3);
    let blocks: Vec<Pfn> = (0..2 * GIB_PAGES / 1024).map(|_| take(&frames, 10, MOVABLE)).collect();
    let (first, second) = blocks.split_at(blocks.len() / 2);
    assert!(first.iter().all(|&pfn| gib(pfn) == 0) && second.iter().all(|&pfn| gib(pfn) == 1));
    // Most of the first GiB is free, and a little of the second.
    first[20..].iter().for_each(|&pfn| free(&frames, pfn, 10));
    second[..10].iter().for_each(|&pfn| free(&frames, pfn, 10));
    let pages: Vec<Pfn> = (0..10).map(|_| take(&frames, 0, MOVABLE)).collect();
    assert!(pages.iter().all(|&pfn| gib(pfn) == 1), "{pages:?}");
    // A block that only the emptier one has.
    (0..9).for_each(|_| assert_eq!(gib(take(&frames, 10, MOVABLE)), 1));
    assert_eq!(gib(take(&frames, 10, MOVABLE)), 0);
    frames.verify().unwrap();
}

#[test]
fn a_clean_gib_is_tainted_only_when_the_tainted_ones_are_full() {
    let frames = boot(ZoneLists::Superpageblocks, 3);
    let blocks = GIB_PAGES / 1024;
    for nth in 0..2 * blocks {
        let pfn = take(&frames, 10, UNMOVABLE);
        assert_eq!(gib(pfn), if nth < blocks { 2 } else { 1 }, "block {nth}");
    }
    assert_eq!(tainted(&frames), (3, 2));
    // Movable pages go to the clean GiB, and then to the tainted ones.
    let back = (0..blocks).map(|_| take(&frames, 10, MOVABLE)).collect::<Vec<_>>();
    assert!(back.iter().all(|&pfn| gib(pfn) == 0));
    frames.verify().unwrap();
}

#[test]
fn a_gib_whose_pageblocks_are_movable_again_is_clean() {
    let frames = boot(ZoneLists::Superpageblocks, 2);
    let fixed = take(&frames, 10, UNMOVABLE);
    assert_eq!((gib(fixed), tainted(&frames)), (1, (2, 1)));
    free(&frames, fixed, 10);
    // All memory is taken as movable pages: the pageblocks of the other type are claimed.
    let all: Vec<Pfn> = (0..2 * GIB_PAGES / 1024).map(|_| take(&frames, 10, MOVABLE)).collect();
    assert_eq!(tainted(&frames), (2, 0));
    frames.verify().unwrap();
    all.into_iter().for_each(|pfn| free(&frames, pfn, 10));
    frames.verify().unwrap();
}

#[test]
fn each_gib_that_is_looked_at_costs_a_step() {
    // The steps of a search for a pageblock, after `full` GiB that have smaller free blocks.
    let steps = |full: usize| {
        let frames = boot(ZoneLists::Superpageblocks, full + 1);
        let blocks: Vec<Pfn> =
            (0..full * GIB_PAGES / 1024).map(|_| take(&frames, 10, MOVABLE)).collect();
        for (nth, &block) in blocks.iter().step_by(GIB_PAGES / 1024).enumerate() {
            free(&frames, block, 10);
            let sizes = nth as u8 + 1..10;
            sizes.for_each(|size| assert_eq!(gib(take(&frames, size, MOVABLE)), gib(block)));
        }
        let before = stepped::work_count(Op::BuddyStep);
        assert_eq!(gib(take(&frames, 9, MOVABLE)), full);
        frames.verify().unwrap();
        stepped::work_count(Op::BuddyStep) - before
    };
    assert_eq!(steps(6) - steps(2), 4);
}

#[test]
fn lists_by_gib_work_with_every_policy_of_page_caches() {
    for caches in PcpPolicy::ALL {
        stepped::boot(2, 1000);
        let lists = ZoneLists::Superpageblocks;
        let config = AllocConfig { lists, caches, ..AllocConfig::default() };
        let frames = Frames::new(&MemoryMap::single(2 * GIB_PAGES as u32), config).unwrap();
        let page = |wanted| frames.alloc_pages(Order::ZERO, wanted, Gfp::KERNEL).unwrap();
        let pages: Vec<Pfn> =
            (0..3_000).map(|nth| page(MigrateType::from_index(nth % 3))).collect();
        frames.verify().unwrap();
        pages.into_iter().for_each(|pfn| frames.free_pages(pfn, Order::ZERO));
        frames.drain_all();
        assert_eq!(frames.verify().unwrap().free, 2 * GIB_PAGES as u64, "{caches:?}");
    }
}
