//! The census of free memory, compared with a count of held pages.

use crate::frames::oracle::{Oracle, answer_drains};
use crate::frames::random::Random;
use mmscale_arch::{CpuId, MAX_ORDER, NodeId, ORDERS, Order, PAGEBLOCK_ORDER, Pfn};
use mmscale_frames::frame::{FrameTable, MigrateType};
use mmscale_frames::page_alloc::{
    AllocConfig, Census, FrameAllocator, Gfp, MemoryMap, PcpPolicy, Records, ZoneSpec,
};
use mmscale_frames::zone::ZoneKind;
use mmscale_stepped::{self as stepped, Stepped};
use std::rc::Rc;

const CPUS: usize = 4;
const BLOCK: usize = 1 << PAGEBLOCK_ORDER;
/// Neither end of the zone is the end of a pageblock.
const START: usize = 700;
const PAGES: usize = 20_000;

fn allocator(caches: PcpPolicy) -> Rc<FrameAllocator<Stepped>> {
    stepped::boot(CPUS, 1000);
    let zone = ZoneSpec {
        node: NodeId::new(0),
        kind: ZoneKind::Normal,
        start: Pfn::new(START),
        pages: PAGES as u32,
    };
    let config = AllocConfig { caches, ..AllocConfig::default() };
    let frames = Rc::new(
        FrameAllocator::new(&MemoryMap { zones: vec![zone], ..MemoryMap::default() }, config)
            .unwrap(),
    );
    answer_drains(&frames);
    frames
}

/// The held pages of each pageblock, and all of its pages.
fn held_by_block(oracle: &Oracle) -> Vec<(usize, usize)> {
    let (first, last) = (START / BLOCK, (START + PAGES).div_ceil(BLOCK));
    let mut held = vec![(0, 0); last - first];
    for frame in START..START + PAGES {
        held[frame / BLOCK - first].1 += 1;
    }
    for (start, order) in oracle.blocks() {
        for frame in start..start + order.pages() {
            held[frame / BLOCK - first].0 += 1;
        }
    }
    held
}

/// The free blocks of each order if all free buddies were merged.
fn merged(oracle: &Oracle) -> [u64; ORDERS] {
    let mut free = vec![false; (START + PAGES).next_multiple_of(1 << MAX_ORDER)];
    free[START..START + PAGES].fill(true);
    for (start, order) in oracle.blocks() {
        free[start..start + order.pages()].fill(false);
    }
    let mut blocks = [0; ORDERS];
    for order in Order::all().rev() {
        for block in free.chunks_mut(order.pages()) {
            if block.iter().all(|&free| free) {
                blocks[order.index()] += 1;
                block.fill(false);
            }
        }
    }
    blocks
}

fn check(census: &Census, oracle: &Oracle) {
    let held = held_by_block(oracle);
    let count = |is: &dyn Fn(usize, usize) -> bool| {
        held.iter().filter(|&&(held, pages)| is(held, pages)).count() as u64
    };
    assert_eq!(census.pages, PAGES as u64);
    assert_eq!(census.free_pages(), PAGES as u64 - oracle.pages);
    assert_eq!(census.full_blocks, count(&|held, pages| held == pages));
    assert_eq!(census.partial_blocks, count(&|held, pages| held > 0 && held < pages));
    // The parts of pageblocks at the zone's ends are loose: no zone can allocate them whole.
    assert_eq!(census.whole_blocks + census.loose_blocks, count(&|held, _| held == 0));
    assert_eq!(census.unusable_pages(Order::ZERO), census.cached_pages);
}

/// Allocates and frees blocks of all sizes on all CPUs; returns the blocks that remain held.
fn churn(frames: &FrameAllocator<Stepped>, seed: u64) -> Oracle {
    let mut rng = Random(seed);
    let mut oracle = Oracle::default();
    for step in 0..6_000 {
        stepped::set_cpu(rng.below(CPUS));
        if step % 3 == 2 {
            let Some((pfn, order)) = oracle.take(rng.next() as usize) else { continue };
            frames.free_pages(pfn, order);
        } else {
            let small = rng.next().trailing_zeros().min(u32::from(MAX_ORDER));
            let order = Order::new(small as u8).unwrap();
            if let Ok(pfn) = frames.alloc_pages(order, MigrateType::Movable, Gfp::KERNEL) {
                oracle.add(pfn, order);
            }
        }
        if step % 1_000 == 0 {
            check(&frames.census(), &oracle);
        }
    }
    oracle
}

#[test]
fn a_census_counts_what_is_not_held() {
    let policies = PcpPolicy::ALL;
    for (seed, caches) in (0..8).flat_map(|seed| policies.map(|caches| (seed, caches))) {
        let frames = allocator(caches);
        let mut oracle = churn(&frames, seed);
        check(&frames.census(), &oracle);
        assert!(frames.census().cached_pages > 0, "page caches have pages");
        for cpu in 0..CPUS {
            frames.drain_pages(CpuId::new(cpu));
        }
        let census = frames.census();
        check(&census, &oracle);
        assert_eq!((census.cached_pages, census.free_blocks), (0, merged(&oracle)));
        let huge: u64 = (census.free_blocks[9] << 9) + (census.free_blocks[10] << 10);
        assert_eq!(census.unusable_pages(Order::PAGEBLOCK), census.free_pages() - huge);
        while let Some((pfn, order)) = oracle.take(0) {
            frames.free_pages(pfn, order);
        }
        frames.drain_all();
        check(&frames.census(), &oracle);
        assert_eq!(frames.census().free_blocks, merged(&oracle));
    }
}

#[test]
fn unused_memory_is_whole_and_needs_little_metadata() {
    let frames = allocator(PcpPolicy::Stock);
    let census = frames.census();
    check(&census, &Oracle::default());
    assert_eq!(census.whole_blocks, (PAGES / BLOCK - 1) as u64);
    assert_eq!(census.loose_blocks, 2, "the pageblocks at both ends");
    let records = (START + PAGES) * FrameTable::RECORD_BYTES;
    let rest = census.metadata_bytes - records as u64;
    assert!((1_000..20_000).contains(&rest), "{rest} bytes for a zone and four page caches");
}

/// For any number of pages: per-CPU metadata does not grow with it. Orders are a byte a page.
#[test]
fn without_records_metadata_is_less_than_two_bits_per_page() {
    stepped::boot(4, 1000);
    let kept = |pages: u32, records| {
        let caches = PcpPolicy::Blockmap;
        let config = AllocConfig { caches, records, ..AllocConfig::default() };
        let frames = FrameAllocator::<Stepped>::new(&MemoryMap::single(pages), config).unwrap();
        let census = frames.census();
        (8 * (census.metadata_bytes - census.cpu_metadata_bytes), census.cpu_metadata_bytes)
    };
    let (small, large) = (kept(1 << 16, Records::None), kept(1 << 20, Records::None));
    assert!(small.0 < 2 << 16 && large.0 < 2 << 20, "{small:?} {large:?} bits");
    assert_eq!(small.1, large.1);
    assert_eq!(kept(1 << 20, Records::Orders), (large.0 + (8 << 20), large.1));
}
