//! Page caches that are drained by an allocation: only if it asks for that.

use super::oracle::answer_drains;
use mmscale_arch::{CpuId, Order, Pfn};
use mmscale_frames::frame::MigrateType;
use mmscale_frames::page_alloc::{
    AllocConfig, AllocError, FrameAllocator, Gfp, MemoryMap, PcpPolicy,
};
use mmscale_frames::zone::ZoneId;
use mmscale_stepped::{self as stepped, Stepped};
use std::rc::Rc;

const ZONE: ZoneId = ZoneId::new(0);
const OTHER: CpuId = CpuId::new(1);

/// While reclaim may free memory, the caches of other CPUs stay as they are. The attempt after it
/// drains them.
#[test]
fn an_allocation_drains_page_caches_only_with_the_flag() {
    for caches in [PcpPolicy::Stock, PcpPolicy::Posted] {
        stepped::boot(2, 1000);
        let config = AllocConfig { caches, ..AllocConfig::default() };
        let frames =
            Rc::new(FrameAllocator::<Stepped>::new(&MemoryMap::single(1 << 13), config).unwrap());
        answer_drains(&frames);
        let take = |gfp| frames.alloc_pages(Order::ZERO, MigrateType::Movable, gfp);
        let fill = |gfp| -> Vec<Pfn> { (0..).map_while(|_| take(gfp).ok()).collect() };
        stepped::set_cpu(1);
        let some: Vec<Pfn> = (0..16).map(|_| take(Gfp::RECLAIMING).unwrap()).collect();
        some.into_iter().for_each(|pfn| frames.free_pages(pfn, Order::ZERO));
        stepped::set_cpu(0);
        let first = fill(Gfp::RECLAIMING);
        let cached = frames.cached_pages(ZONE, OTHER);
        assert!(cached >= 16, "{caches:?}: {cached} pages");
        assert_eq!(take(Gfp::RECLAIMING), Err(AllocError::NoMemory), "{caches:?}");
        assert_eq!(frames.cached_pages(ZONE, OTHER), cached, "{caches:?}");
        let second = fill(Gfp::RECLAIMING | Gfp::DRAIN);
        assert!(second.len() >= 16, "{caches:?}: {} pages", second.len());
        assert_eq!(frames.cached_pages(ZONE, OTHER), 0, "{caches:?}");
        let held = first.into_iter().chain(second);
        held.for_each(|pfn| frames.free_pages(pfn, Order::ZERO));
        frames.drain_all();
        frames.verify().unwrap();
    }
}
