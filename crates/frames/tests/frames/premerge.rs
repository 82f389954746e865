//! The rules of page caches that merge the pages of a drain before zone->lock is taken.

use mmscale_arch::{CpuId, LockClass, Op, Order, Pfn};
use mmscale_frames::frame::MigrateType;
use mmscale_frames::page_alloc::{
    AllocConfig, BulkHold, DecayRequest, FrameAllocator, Gfp, MemoryMap, PcpPolicy,
};
use mmscale_stepped::{self as stepped, Stepped};

type Frames = FrameAllocator<Stepped>;

const CPU0: CpuId = CpuId::new(0);
/// The pages of a batch, in a zone of 4 GiB.
const BATCH: u32 = 63;

fn boot_with(caches: PcpPolicy, hold: BulkHold, pages: u32) -> Frames {
    stepped::boot(4, 1000);
    let config = AllocConfig { caches, hold, ..AllocConfig::default() };
    FrameAllocator::new(&MemoryMap::single(pages), config).unwrap()
}

fn boot(caches: PcpPolicy, hold: BulkHold) -> Frames {
    boot_with(caches, hold, 1 << 20)
}

fn take(frames: &Frames, count: usize) -> Vec<Pfn> {
    let page = |_| frames.alloc_pages(Order::ZERO, MigrateType::Movable, Gfp::KERNEL).unwrap();
    (0..count).map(page).collect()
}

fn free(frames: &Frames, pages: impl IntoIterator<Item = Pfn>) {
    pages.into_iter().for_each(|page| frames.free_pages(page, Order::ZERO));
}

/// The blocks that the zone was given, and the holds of its lock, while `act` ran.
fn drained(act: impl FnOnce()) -> (u64, u64) {
    let now = || (stepped::work_count(Op::DrainPage), stepped::lock_acquisitions(LockClass::Zone));
    let before = now();
    act();
    (now().0 - before.0, now().1 - before.1)
}

/// Every second page of a pageblock, and then the others.
fn halves(pages: &[Pfn]) -> impl Iterator<Item = Pfn> + '_ {
    let half = |odd| pages.iter().copied().filter(move |pfn| pfn.index() % 2 == odd);
    half(0).chain(half(1))
}

#[test]
fn neighbours_leave_as_one_block_whatever_the_order_of_their_frees() {
    for (caches, blocks) in [(PcpPolicy::Stock, 64), (PcpPolicy::Premerge, 1)] {
        let frames = boot(caches, BulkHold::Whole);
        let pages = take(&frames, 512);
        let part: Vec<Pfn> = pages.into_iter().filter(|pfn| pfn.index() % 512 / 64 == 3).collect();
        frames.drain_pages(CPU0);
        free(&frames, halves(&part));
        let found = drained(|| assert_eq!(frames.drain_pages(CPU0), 64));
        assert_eq!(found, (blocks, 1), "{caches:?}");
        frames.verify().unwrap();
    }
}

#[test]
fn a_block_does_not_merge_with_a_smaller_one_in_the_place_of_its_buddy() {
    let frames = boot_with(PcpPolicy::Premerge, BulkHold::Whole, 1 << 13);
    let order = |value| Order::new(value).unwrap();
    let take = |size| frames.alloc_pages(order(size), MigrateType::Movable, Gfp::KERNEL).unwrap();
    let whole = take(4);
    frames.free_pages(whole, order(4));
    // A page, its neighbour, which stays in use, and the buddy of both.
    let (below, pair) = (take(1), take(1));
    frames.free_pages(below, order(1));
    frames.drain_pages(CPU0);
    let (one, kept) = (take(0), take(0));
    frames.drain_pages(CPU0);
    assert_eq!((one, one.buddy(order(0)), one.buddy(order(1))), (below, kept, pair));
    frames.free_pages(one, order(0));
    frames.free_pages(pair, order(1));
    assert_eq!(drained(|| assert_eq!(frames.drain_pages(CPU0), 3)), (2, 1));
    frames.verify().unwrap();
    frames.free_pages(kept, order(0));
    frames.drain_pages(CPU0);
    frames.verify().unwrap();
}

#[test]
fn blocks_of_several_orders_merge_with_one_another() {
    // In a zone of 32 MiB a refill has one block.
    let frames = boot_with(PcpPolicy::Premerge, BulkHold::Whole, 1 << 13);
    let order = |value| Order::new(value).unwrap();
    let take = |size| frames.alloc_pages(order(size), MigrateType::Movable, Gfp::KERNEL).unwrap();
    // Of one block of 16 pages: 8, 4, 2 and two single ones.
    let whole = take(4);
    frames.free_pages(whole, order(4));
    let parts = [3, 2, 1, 0, 0].map(|size| (take(size), size));
    frames.drain_pages(CPU0);
    let aligned = parts.iter().map(|(pfn, _)| pfn.align_down(order(4)));
    let same = aligned.clone().all(|pfn| pfn == parts[0].0.align_down(order(4)));
    assert!(same, "{parts:?}");
    parts.iter().for_each(|&(pfn, size)| frames.free_pages(pfn, order(size)));
    assert_eq!(drained(|| assert_eq!(frames.drain_pages(CPU0), 16)), (1, 1));
    frames.verify().unwrap();
}

#[test]
fn pages_apart_leave_one_by_one_and_none_is_lost() {
    let frames = boot(PcpPolicy::Premerge, BulkHold::Whole);
    let pages = take(&frames, 512);
    let (even, odd): (Vec<Pfn>, Vec<Pfn>) = pages.iter().partition(|pfn| pfn.index() % 2 == 0);
    frames.drain_pages(CPU0);
    free(&frames, even);
    // 64 blocks of a hold at most.
    assert_eq!(drained(|| assert_eq!(frames.drain_pages(CPU0), 256)), (256, 4));
    frames.verify().unwrap();
    free(&frames, odd);
    frames.drain_pages(CPU0);
    let audit = frames.verify().unwrap();
    assert_eq!((audit.free, audit.held), (1 << 20, 0));
}

#[test]
fn a_whole_pageblock_is_never_merged_outside_its_zone() {
    let frames = boot(PcpPolicy::Premerge, BulkHold::Whole);
    let huge = || frames.alloc_pages(Order::PAGEBLOCK, MigrateType::Movable, Gfp::KERNEL).unwrap();
    let mut pair = [huge(), huge()];
    pair.sort();
    assert_eq!(pair[0].buddy(Order::PAGEBLOCK), pair[1]);
    frames.drain_pages(CPU0);
    let (blocks, _) = drained(|| {
        pair.iter().for_each(|&pfn| frames.free_pages(pfn, Order::PAGEBLOCK));
        frames.drain_pages(CPU0);
    });
    assert_eq!(blocks, 2);
    frames.verify().unwrap();
}

/// The tick only tries zone->lock, so it cannot take blocks off the lists before it has the lock.
#[test]
fn the_tick_does_not_merge() {
    let frames = boot(PcpPolicy::Premerge, BulkHold::Batch);
    let pages = take(&frames, 2_000);
    free(&frames, pages);
    let mut left = frames.cached_pages(mmscale_frames::zone::ZoneId::new(0), CPU0);
    let request = DecayRequest::Elapsed { elapsed_ns: 2_000_000_000, interval_ns: 1_000_000_000 };
    let (blocks, _) = drained(|| _ = frames.refresh_cpu_vm_stats(request, || ()));
    left -= frames.cached_pages(mmscale_frames::zone::ZoneId::new(0), CPU0);
    assert!(left >= BATCH, "the tick freed {left} pages");
    assert_eq!(blocks, u64::from(left));
    frames.verify().unwrap();
}
