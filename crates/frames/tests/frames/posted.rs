//! The rules of page caches that own pageblocks, with the numbers of a zone of 4 GiB and four CPUs.

use mmscale_arch::{Cpu as _, CpuId, LockClass, Op, Order, PcpEvent, Pfn, Trace};
use mmscale_frames::frame::{FrameState, MigrateType};
use mmscale_frames::page_alloc::{AllocConfig, FrameAllocator, Gfp, MemoryMap, PcpPolicy};
use mmscale_frames::pcp::{REMEMBERED_BLOCKS, RefillPhase};
use mmscale_frames::zone::ZoneId;
use mmscale_stepped::{self as stepped, Stepped};

const ZONE: ZoneId = ZoneId::new(0);
const BLOCK: u32 = 512;
const CPU0: CpuId = CpuId::new(0);
const CPU1: CpuId = CpuId::new(1);

type Frames = FrameAllocator<Stepped>;

fn boot_with(map: &MemoryMap, config: AllocConfig) -> Frames {
    stepped::boot(4, 1000);
    let config = AllocConfig { caches: PcpPolicy::Posted, ..config };
    FrameAllocator::new(map, config).unwrap()
}

/// `high` starts at 774 pages: one pageblock fits.
fn boot() -> Frames {
    boot_with(&MemoryMap::single(1 << 20), AllocConfig::default())
}

fn order(value: u8) -> Order {
    Order::new(value).unwrap()
}

fn take_as(frames: &Frames, size: u8, wanted: MigrateType) -> Pfn {
    frames.alloc_pages(order(size), wanted, Gfp::KERNEL).unwrap()
}

fn take(frames: &Frames, size: u8) -> Pfn {
    take_as(frames, size, MigrateType::Movable)
}

fn take_many(frames: &Frames, count: u32) -> Vec<Pfn> {
    (0..count).map(|_| take(frames, 0)).collect()
}

fn free_on(frames: &Frames, cpu: usize, pages: impl IntoIterator<Item = Pfn>) {
    let before = Stepped::cpu().index();
    stepped::set_cpu(cpu);
    pages.into_iter().for_each(|page| frames.free_pages(page, Order::ZERO));
    stepped::set_cpu(before);
}

fn count(frames: &Frames, cpu: CpuId) -> u32 {
    frames.inspect_pcp(ZONE, cpu, |pcp| pcp.count())
}

fn owner(frames: &Frames, pfn: Pfn) -> Option<CpuId> {
    frames.inspect_buddy(ZONE, |buddy| buddy.owner(pfn))
}

fn owned(frames: &Frames, cpu: CpuId) -> u32 {
    frames.inspect_buddy(ZONE, |buddy| buddy.owned_by(cpu))
}

fn remembered(frames: &Frames, cpu: CpuId) -> Vec<Pfn> {
    frames.inspect_pcp(ZONE, cpu, |pcp| pcp.remembered().collect())
}

fn phases() -> Vec<(RefillPhase, u32)> {
    let events = stepped::take_traces().into_iter();
    let moved = events.filter_map(|(_, event)| match event {
        Trace::Pcp(PcpEvent::Phase { phase, pages, .. }) => {
            Some((RefillPhase::ALL[phase as usize], pages))
        }
        _ => None,
    });
    moved.collect()
}

fn zone_locks() -> u64 {
    stepped::lock_acquisitions(LockClass::Zone)
}

/// The page's pageblock.
fn block(pfn: Pfn) -> Pfn {
    pfn.align_down(Order::PAGEBLOCK)
}

#[test]
fn a_refill_claims_a_whole_pageblock_and_splits_it_outside_the_zone_lock() {
    let frames = boot();
    stepped::record(true);
    let first = take(&frames, 0);
    assert_eq!(phases(), [(RefillPhase::Claim, BLOCK)]);
    assert_eq!((owner(&frames, first), count(&frames, CPU0)), (Some(CPU0), BLOCK - 1));
    let locks = zone_locks();
    let pages = take_many(&frames, BLOCK - 1);
    assert!(pages.iter().all(|&page| block(page) == block(first)));
    assert_eq!((zone_locks(), count(&frames, CPU0)), (locks, 0));
    frames.verify().unwrap();
}

#[test]
fn a_page_freed_on_another_cpu_goes_to_its_owners_cache() {
    let frames = boot();
    let page = take(&frames, 0);
    let before = count(&frames, CPU0);
    stepped::record(true);
    free_on(&frames, 1, [page]);
    assert_eq!((count(&frames, CPU0), count(&frames, CPU1)), (before + 1, 0));
    assert!(frames.frames().word(page).may_merge());
    let remote = Trace::Pcp(PcpEvent::FreeRemote { owner: CPU0, pages: 1 });
    assert!(stepped::take_traces().contains(&(CPU1, remote)));
    assert_eq!(take(&frames, 0), page);
}

#[test]
fn a_fragment_goes_to_the_end_of_the_zones_list_if_its_owner_is_busy() {
    let frames = boot();
    let page = take(&frames, 0);
    stepped::record(true);
    stepped::set_cpu(1);
    frames.inspect_pcp(ZONE, CPU0, |_| frames.free_pages(page, Order::ZERO));
    stepped::set_cpu(0);
    assert!(
        stepped::take_traces()
            .contains(&(CPU1, Trace::Pcp(PcpEvent::Busy { cpu: CPU0, pages: 1 })))
    );
    let word = frames.frames().word(page);
    assert_eq!((word.state(), word.may_merge()), (FrameState::Free, false));
    // Another free page, whose pageblock has no owner, comes before it.
    let other = frames.inspect_pcp(ZONE, CPU0, |_| {
        frames.alloc_pages(order(4), MigrateType::Movable, Gfp::ATOMIC).unwrap()
    });
    assert_ne!(block(other), block(page));
    frames.free_pages(other, order(4));
    assert_eq!(owner(&frames, page), Some(CPU0));
    frames.verify().unwrap();
}

#[test]
fn buddies_merge_on_the_page_cache_and_leave_it_as_one() {
    let frames = boot();
    let pages = take_many(&frames, BLOCK);
    free_on(&frames, 1, pages.iter().copied());
    assert_eq!(count(&frames, CPU0), BLOCK);
    let (drained, locks) = (stepped::work_count(Op::DrainPage), zone_locks());
    assert_eq!(frames.drain_pages(CPU0), BLOCK);
    // One block, which meets its other half: one hold, one list entry.
    assert_eq!((stepped::work_count(Op::DrainPage) - drained, zone_locks() - locks), (1, 1));
    assert_eq!((owner(&frames, pages[0]), owned(&frames, CPU0)), (None, 0));
    frames.verify().unwrap();
}

#[test]
fn a_partial_block_stays_owned_and_is_recovered_before_another_is_claimed() {
    let frames = boot();
    let mut pages = take_many(&frames, BLOCK);
    let kept = pages.swap_remove(100);
    free_on(&frames, 2, pages);
    frames.drain_pages(CPU0);
    assert_eq!((owner(&frames, kept), owned(&frames, CPU0)), (Some(CPU0), 1));
    assert_eq!(remembered(&frames, CPU0), [block(kept)]);
    frames.verify().unwrap();
    stepped::record(true);
    let again = take(&frames, 0);
    assert_eq!(phases(), [(RefillPhase::Recover, BLOCK - 1)]);
    assert_eq!(block(again), block(kept));
    assert_eq!(remembered(&frames, CPU0), []);
    // The recovered blocks merge again: with the two pages they leave the cache as one block.
    free_on(&frames, 1, [again, kept]);
    frames.drain_pages(CPU0);
    assert_eq!(owned(&frames, CPU0), 0);
    frames.verify().unwrap();
}

#[test]
fn only_blocks_of_the_wanted_type_are_recovered() {
    let frames = boot();
    let pages = take_many(&frames, 2);
    frames.drain_pages(CPU0);
    assert_eq!(remembered(&frames, CPU0), [block(pages[0])]);
    stepped::record(true);
    take_as(&frames, 0, MigrateType::Unmovable);
    assert_eq!(phases(), [(RefillPhase::Claim, BLOCK)]);
    assert_eq!(remembered(&frames, CPU0), [block(pages[0])]);
    take(&frames, 0);
    assert_eq!(phases()[0], (RefillPhase::Recover, BLOCK - 2));
}

#[test]
fn without_room_for_a_pageblock_chunks_are_split_and_have_no_owner() {
    let config = AllocConfig { high_fraction: Some(1000), ..AllocConfig::default() };
    let frames = boot_with(&MemoryMap::single(1 << 20), config);
    let high = frames.inspect_pcp(ZONE, CPU0, |pcp| pcp.high());
    assert!((63..BLOCK).contains(&high), "{high}");
    stepped::record(true);
    let pages = take_many(&frames, 400);
    let phases = phases();
    assert!(phases.iter().all(|(phase, _)| *phase == RefillPhase::Chunks), "{phases:?}");
    assert_eq!((owner(&frames, pages[0]), owned(&frames, CPU0)), (None, 0));
    // 63 pages are a handful of blocks, not 63.
    assert_eq!(phases[0].1, 63);
    assert!(stepped::work_count(Op::BuddyTake) < 100);
    // Such a page stays in the cache of the freeing CPU, and does not merge there.
    free_on(&frames, 1, [pages[0], pages[1]]);
    assert_eq!(count(&frames, CPU1), 2);
    assert!(!frames.frames().word(pages[0]).may_merge());
    frames.verify().unwrap();
}

#[test]
fn chunks_are_of_the_right_type_and_the_last_phase_takes_what_there_is() {
    let frames = boot_with(&MemoryMap::single(1 << 18), AllocConfig::default());
    // All memory in blocks of 256 pages, every other one free: movable.
    let gfp = Gfp::KERNEL | Gfp::MEMALLOC;
    let mut held = Vec::new();
    while let Ok(pfn) = frames.alloc_pages(order(8), MigrateType::Movable, gfp) {
        held.push(pfn);
    }
    for &pfn in held.iter().filter(|pfn| pfn.index() % 512 == 0) {
        frames.free_pages(pfn, order(8));
    }
    stepped::record(true);
    take(&frames, 0);
    assert!(phases().iter().all(|(phase, _)| *phase == RefillPhase::Chunks));
    let unmovable = take_as(&frames, 0, MigrateType::Unmovable);
    assert_eq!(phases()[0].0, RefillPhase::Classic);
    assert_eq!(owner(&frames, unmovable), None);
    frames.verify().unwrap();
}

#[test]
fn higher_orders_are_cut_from_what_is_cached() {
    let frames = boot();
    take(&frames, 0);
    let locks = zone_locks();
    let block3 = take(&frames, 3);
    assert_eq!((zone_locks(), count(&frames, CPU0)), (locks, BLOCK - 9));
    free_on(&frames, 0, []);
    stepped::set_cpu(1);
    frames.free_pages(block3, order(3));
    stepped::set_cpu(0);
    assert_eq!(count(&frames, CPU0), BLOCK - 1);
    // Orders above a pageblock's bypass page caches, in both directions.
    let block5 = take(&frames, 5);
    frames.free_pages(block5, order(5));
    assert_eq!(zone_locks(), locks + 2);
    frames.verify().unwrap();
}

#[test]
fn a_pageblock_that_another_type_claims_loses_its_owner() {
    let config = AllocConfig { min_free_kb: Some(0), ..AllocConfig::default() };
    let frames = boot_with(&MemoryMap::single(1 << 18), config);
    let gfp = Gfp::KERNEL | Gfp::MEMALLOC;
    let pages: Vec<Pfn> = {
        let next = || frames.alloc_pages(Order::ZERO, MigrateType::Movable, gfp).ok();
        core::iter::from_fn(next).collect()
    };
    // Most of one owned pageblock is freed to the zone, nothing of all others.
    let mine = block(pages[BLOCK as usize * 20]);
    assert_eq!(owner(&frames, mine), Some(CPU0));
    let (_, back): (Vec<Pfn>, Vec<Pfn>) =
        pages.iter().partition(|&&page| block(page) != mine || page.index() % 512 < 100);
    free_on(&frames, 1, back);
    frames.drain_pages(CPU0);
    assert_eq!(owner(&frames, mine), Some(CPU0));
    let before = owned(&frames, CPU0);
    stepped::set_cpu(2);
    let stolen = frames.alloc_pages(Order::ZERO, MigrateType::Unmovable, gfp).unwrap();
    assert_eq!((block(stolen), owner(&frames, mine)), (mine, None));
    assert_eq!(owned(&frames, CPU0), before - 1);
    frames.verify().unwrap();
    // The old entry is stale.
    stepped::set_cpu(0);
    assert_eq!(remembered(&frames, CPU0), [mine]);
    assert!(frames.alloc_pages(Order::ZERO, MigrateType::Movable, gfp).is_ok());
    frames.verify().unwrap();
}

#[test]
fn an_offline_cpu_owns_nothing() {
    let frames = boot();
    stepped::set_cpu(3);
    let page = take(&frames, 0);
    assert_eq!(owned(&frames, CpuId::new(3)), 1);
    stepped::set_cpu(0);
    stepped::set_online(3, false);
    frames.cpu_dead(CpuId::new(3));
    assert_eq!((owner(&frames, page), owned(&frames, CpuId::new(3))), (None, 0));
    frames.verify().unwrap();
    free_on(&frames, 1, [page]);
    assert_eq!((count(&frames, CpuId::new(3)), count(&frames, CPU1)), (0, 1));
    frames.verify().unwrap();
}

#[test]
fn a_cpu_that_goes_away_owns_nothing_in_the_whole_of_a_large_zone() {
    // Owners of 1024 pageblocks are looked at under one hold of the zone lock; the zone has 2048.
    let (frames, gone) = (boot(), CpuId::new(3));
    stepped::set_cpu(3);
    let first = take(&frames, 0);
    stepped::set_cpu(0);
    (0..1_100).for_each(|_| _ = take(&frames, 9));
    stepped::set_cpu(3);
    let last = take_many(&frames, BLOCK).pop().expect("some pages");
    assert!(block(first).index().abs_diff(block(last).index()) > 1024 * BLOCK as usize);
    assert_eq!(owned(&frames, gone), 2);
    stepped::set_cpu(0);
    stepped::set_online(3, false);
    let before = zone_locks();
    frames.cpu_dead(gone);
    assert_eq!((owner(&frames, first), owner(&frames, last)), (None, None));
    assert_eq!(owned(&frames, gone), 0);
    assert!(zone_locks() - before >= 2, "one hold for each 1024 pageblocks");
    frames.verify().unwrap();
}

#[test]
fn what_a_cpu_remembers_is_bounded() {
    let frames = boot();
    let blocks = REMEMBERED_BLOCKS as u32 + 5;
    let mut pages = take_many(&frames, blocks * BLOCK);
    pages.retain(|page| page.index() % 512 < 510);
    free_on(&frames, 1, pages.iter().copied());
    frames.drain_pages(CPU0);
    assert_eq!(owned(&frames, CPU0), blocks);
    assert_eq!(remembered(&frames, CPU0).len(), REMEMBERED_BLOCKS);
    frames.verify().unwrap();
}

#[test]
fn a_cache_filled_by_other_cpus_drains_above_its_limit() {
    let frames = boot();
    let pages = take_many(&frames, 40 * BLOCK);
    free_on(&frames, 1, pages);
    let (held, high) = frames.inspect_pcp(ZONE, CPU0, |pcp| (pcp.count(), pcp.high()));
    assert!(held <= high, "{held} of {high}");
    assert_eq!(count(&frames, CPU1), 0);
    let audit = frames.verify().unwrap();
    assert_eq!((audit.held, audit.cached), (0, u64::from(held)));
    frames.drain_all();
    let whole = frames.inspect_buddy(ZONE, |buddy| buddy.free_blocks(Order::MAX));
    assert_eq!(whole, 1 << 10);
}
