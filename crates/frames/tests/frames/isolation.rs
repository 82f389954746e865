//! Isolating pageblocks, taking them offline and bringing them online.

use mmscale_arch::{CpuId, Order, Pfn};
use mmscale_frames::frame::MigrateType;
use mmscale_frames::page_alloc::{
    AllocConfig, FrameAllocator, Gfp, IsolateError, MemoryMap, PcpPolicy,
};
use mmscale_frames::vmstat::ZoneItem;
use mmscale_frames::zone::ZoneId;
use mmscale_stepped::{self as stepped, Stepped};

const ZONE: ZoneId = ZoneId::new(0);
const PAGES: u32 = 1 << 18;

type Frames = FrameAllocator<Stepped>;

fn each_policy(test: impl Fn(&Frames)) {
    for caches in [PcpPolicy::Stock, PcpPolicy::Posted] {
        stepped::boot(2, 1000);
        let config = AllocConfig { caches, ..AllocConfig::default() };
        let frames = FrameAllocator::new(&MemoryMap::single(PAGES), config).unwrap();
        test(&frames);
        stepped::assert_quiet();
    }
}

fn take(frames: &Frames) -> Pfn {
    frames.alloc_pages(Order::ZERO, MigrateType::Movable, Gfp::KERNEL).unwrap()
}

fn free_pages(frames: &Frames) -> u64 {
    frames.verify().unwrap();
    frames.stats().zone_snapshot(ZONE, ZoneItem::FreePages) as u64
}

fn blocks(frames: &Frames, order: Order) -> u32 {
    frames.inspect_buddy(ZONE, |buddy| buddy.free_blocks(order))
}

#[test]
fn isolated_pages_are_not_allocated_until_the_isolation_ends() {
    each_policy(|frames| {
        let target = Pfn::new(100 * 512 + 77);
        let whole = target.align_down(Order::PAGEBLOCK);
        frames.isolate_pageblock(target).unwrap();
        assert_eq!(frames.isolate_pageblock(target), Err(IsolateError::NotNow));
        assert_eq!(free_pages(frames), u64::from(PAGES) - 512);
        // Its neighbour, the other half of a largest block, is a separate block.
        assert_eq!(blocks(frames, Order::PAGEBLOCK), 1);
        let gfp = Gfp::KERNEL | Gfp::MEMALLOC;
        let mut held = Vec::new();
        while let Ok(pfn) = frames.alloc_pages(Order::ZERO, MigrateType::Movable, gfp) {
            assert_ne!(pfn.align_down(Order::PAGEBLOCK), whole);
            held.push(pfn);
        }
        assert_eq!(held.len(), PAGES as usize - 512);
        frames.unisolate_pageblock(target).unwrap();
        assert_eq!(frames.unisolate_pageblock(target), Err(IsolateError::NotNow));
        assert_eq!(free_pages(frames), 512);
        let page = frames.alloc_pages(Order::PAGEBLOCK, MigrateType::Movable, gfp).unwrap();
        assert_eq!(page, whole);
        frames.free_pages(page, Order::PAGEBLOCK);
        held.into_iter().for_each(|pfn| frames.free_pages(pfn, Order::ZERO));
        frames.drain_all();
        frames.verify().unwrap();
        assert_eq!(blocks(frames, Order::MAX), PAGES >> 10);
    });
}

#[test]
fn what_is_freed_into_an_isolated_block_stays_there() {
    each_policy(|frames| {
        let pages: Vec<Pfn> = (0..600).map(|_| take(frames)).collect();
        let target = pages[0].align_down(Order::PAGEBLOCK);
        let (inside, outside): (Vec<Pfn>, Vec<Pfn>) =
            pages.into_iter().partition(|page| page.align_down(Order::PAGEBLOCK) == target);
        frames.isolate_pageblock(target).unwrap();
        assert_eq!(frames.verify().unwrap().cached, 0, "page caches were drained");
        assert_eq!(frames.inspect_buddy(ZONE, |buddy| buddy.owner(target)), None);
        let before = free_pages(frames);
        let held = inside.len() as u32;
        assert_eq!(frames.offline_pageblock(target), Err(IsolateError::Busy(held)));
        stepped::set_cpu(1);
        for page in inside {
            frames.free_pages(page, Order::ZERO);
        }
        stepped::set_cpu(0);
        assert_eq!(free_pages(frames), before);
        let audit = frames.verify().unwrap();
        assert_eq!((audit.isolated, audit.cached), (512, 0));
        outside.into_iter().for_each(|page| frames.free_pages(page, Order::ZERO));
        assert!(frames.verify().unwrap().cached > 0, "other pages are cached");
        frames.offline_pageblock(target).unwrap();
    });
}

#[test]
fn an_offline_block_is_gone_until_it_is_brought_back() {
    each_policy(|frames| {
        let target = Pfn::new(0);
        let limits = || frames.inspect_pcp(ZONE, CpuId::new(0), |pcp| pcp.limits().high_max);
        let before = limits();
        for block in 0..64 {
            frames.offline_pageblock(Pfn::new(block * 512)).unwrap();
        }
        assert_eq!(frames.zone(ZONE).managed_pages(), PAGES - 64 * 512);
        assert_eq!(frames.zone(ZONE).pages(), PAGES);
        assert_eq!(frames.verify().unwrap().offline, 64 * 512);
        assert!(limits() < before, "caches are sized by managed pages");
        assert_eq!(frames.offline_pageblock(target), Err(IsolateError::NotNow));
        assert_eq!(frames.isolate_pageblock(target), Err(IsolateError::NotNow));
        for block in 0..64 {
            frames.online_pageblock(Pfn::new(block * 512)).unwrap();
        }
        assert_eq!(frames.online_pageblock(target), Err(IsolateError::NotNow));
        assert_eq!((limits(), free_pages(frames)), (before, u64::from(PAGES)));
        assert_eq!(blocks(frames, Order::MAX), PAGES >> 10);
    });
}

#[test]
fn a_block_in_use_stays_as_it_was() {
    each_policy(|frames| {
        let page = take(frames);
        assert_eq!(frames.offline_pageblock(page), Err(IsolateError::Busy(1)));
        let audit = frames.verify().unwrap();
        assert_eq!((audit.isolated, audit.offline), (0, 0));
        assert_eq!(free_pages(frames), u64::from(PAGES) - 1);
    });
}

#[test]
fn a_block_of_two_pageblocks_comes_back_in_halves_if_one_is_isolated() {
    each_policy(|frames| {
        let pair = frames.alloc_pages(Order::MAX, MigrateType::Movable, Gfp::KERNEL).unwrap();
        frames.isolate_pageblock(pair.offset(600)).unwrap();
        frames.free_pages(pair, Order::MAX);
        let audit = frames.verify().unwrap();
        assert_eq!((audit.isolated, audit.held), (512, 0));
        assert_eq!(blocks(frames, Order::PAGEBLOCK), 1);
        frames.unisolate_pageblock(pair.offset(600)).unwrap();
        assert_eq!((blocks(frames, Order::PAGEBLOCK), free_pages(frames)), (0, PAGES.into()));
    });
}

#[test]
fn only_whole_pageblocks_of_one_zone_can_be_isolated() {
    stepped::boot(1, 1000);
    let map = MemoryMap::single(5000).with_dma32(1000);
    let frames: Frames = FrameAllocator::new(&map, AllocConfig::default()).unwrap();
    let isolate = |pfn| frames.isolate_pageblock(Pfn::new(pfn));
    assert_eq!(isolate(999), Err(IsolateError::NoBlock));
    assert_eq!(isolate(1000), Err(IsolateError::NoBlock));
    assert_eq!(isolate(4999), Err(IsolateError::NoBlock));
    assert_eq!(isolate(70_000), Err(IsolateError::NoBlock));
    assert_eq!((isolate(511), isolate(1024)), (Ok(()), Ok(())));
    assert!(frames.verify().is_ok());
    assert!(!IsolateError::NoBlock.to_string().is_empty());
}
