//! Allocation of named frames, compared with an oracle.

use crate::frames::oracle::{Oracle, depth};
use crate::frames::parts::{PAGES, START, all_is_whole, boot, configs, fresh};
use crate::frames::random::Random;
use mmscale_arch::{Order, Pfn};
use mmscale_frames::frame::MigrateType;
use mmscale_frames::page_alloc::{
    AllocConfig, ContigError, FrameAllocator, Gfp, MemoryMap, ZoneLists,
};
use mmscale_stepped::{self as stepped, Stepped};
use proptest::prelude::*;

type Frames = FrameAllocator<Stepped>;

/// The first frame of a range that the oracle has.
fn first_held(oracle: &Oracle, start: usize, pages: usize) -> Option<usize> {
    (start..start + pages).find(|&pfn| oracle.held_of(Pfn::new(pfn), 1) > 0)
}

/// Allocates a range, which must succeed exactly if no frame of it is held.
fn take(frames: &Frames, oracle: &mut Oracle, (start, pages): (usize, usize)) -> bool {
    let expected = match first_held(oracle, start, pages) {
        None => Ok(()),
        Some(held) => Err(ContigError::InUse(Pfn::new(held))),
    };
    assert_eq!(frames.alloc_contig_range(Pfn::new(start), pages), expected);
    let taken = if expected.is_ok() { start..start + pages } else { 0..0 };
    taken.for_each(|pfn| oracle.add(Pfn::new(pfn), Order::ZERO));
    expected.is_ok()
}

fn random_ranges(config: AllocConfig, seed: u64) {
    let (frames, mut oracle, mut random) = (boot(config), Oracle::default(), Random(seed));
    let (fresh, mut taken) = (fresh(&frames), [0; 2]);
    for step in 0..6000 * depth() {
        if step % 20 == 0 {
            stepped::set_cpu(random.below(3));
        }
        let of = Order::new(random.below(11) as u8).unwrap();
        match random.below(12) {
            0 => {
                let most = [20, 700, 3000][random.below(3)];
                let pages = 1 + random.below(most);
                let start = START + random.below(PAGES as usize - pages);
                taken[0] += usize::from(take(&frames, &mut oracle, (start, pages)));
            }
            1 => {
                let pfn = Pfn::new(START + random.below(PAGES as usize)).align_down(of);
                let inside =
                    pfn.index() >= START && pfn.index() + of.pages() <= START + PAGES as usize;
                let free = first_held(&oracle, pfn.index(), of.pages()).is_none();
                let at = frames.alloc_at(pfn, of);
                assert_eq!(at.is_ok(), inside && free, "{pfn:?} {of:?} {at:?}");
                if at.is_ok() {
                    taken[1] += 1;
                    oracle.add(pfn, of);
                }
            }
            2..6 if oracle.pages < u64::from(PAGES) / 3 => {
                let wanted = MigrateType::from_index(random.below(3));
                let block = frames.alloc_pages(of, wanted, Gfp::KERNEL);
                block.into_iter().for_each(|pfn| oracle.add(pfn, of));
            }
            _ => {
                let block = oracle.take(random.next() as usize);
                block.into_iter().for_each(|(pfn, of)| frames.free_pages(pfn, of));
            }
        }
        if step % 1000 == 0 {
            assert_eq!(frames.verify().unwrap().held, oracle.pages);
        }
    }
    assert!(taken.into_iter().all(|taken| taken > 20), "{taken:?}");
    while let Some((pfn, of)) = oracle.take(0) {
        frames.free_pages(pfn, of);
    }
    all_is_whole(&frames, fresh);
    stepped::assert_quiet();
}

#[test]
fn a_range_is_allocated_exactly_if_all_of_it_is_free() {
    let by_gib = AllocConfig { lists: ZoneLists::Superpageblocks, ..AllocConfig::default() };
    for config in configs().chain([by_gib]) {
        (80..83).for_each(|seed| random_ranges(config, seed));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]
    /// Ranges of a fresh zone, in any order, some of which overlap.
    #[test]
    fn ranges_of_memory_that_was_never_used(
        ranges in prop::collection::vec((0..PAGES as usize, 1_usize..5000), 1..8),
    ) {
        for config in configs() {
            let (frames, mut oracle) = (boot(config), Oracle::default());
            let (fresh, mut taken) = (fresh(&frames), Vec::new());
            for &(at, pages) in &ranges {
                let pages = pages.min(PAGES as usize - at);
                if take(&frames, &mut oracle, (START + at, pages)) {
                    taken.push((Pfn::new(START + at), pages));
                }
                prop_assert_eq!(frames.verify().unwrap().held, oracle.pages);
            }
            for (start, pages) in taken {
                frames.free_contig_range(start, pages);
            }
            all_is_whole(&frames, fresh);
        }
    }
}

#[test]
fn a_range_with_frames_outside_of_the_zone_or_of_an_isolated_pageblock_is_refused() {
    for config in configs() {
        let frames = boot(config);
        let range = |start, pages| frames.alloc_contig_range(Pfn::new(start), pages);
        let end = START + PAGES as usize;
        assert_eq!(range(START - 1, 2), Err(ContigError::Outside(Pfn::new(START - 1))));
        assert_eq!(range(end - 1, 2), Err(ContigError::Outside(Pfn::new(end))));
        assert_eq!(range(START, 0), Ok(()));
        let at = |pfn, order| frames.alloc_at(Pfn::new(pfn), Order::large(order).unwrap());
        assert_eq!(at(1025, 1), Err(ContigError::Unaligned(Pfn::new(1025))));
        assert_eq!(at(4096, 11), Err(ContigError::Unaligned(Pfn::new(4096))));
        let block = Pfn::new(10 * 512);
        frames.isolate_pageblock(block).unwrap();
        assert_eq!(range(block.index() - 3, 9), Err(ContigError::Isolated(block)));
        frames.unisolate_pageblock(block).unwrap();
        assert_eq!(frames.verify().unwrap().held, 0);
        assert_eq!(range(block.index() - 3, 9), Ok(()));
        frames.free_contig_range(Pfn::new(block.index() - 3), 9);
        assert_eq!(frames.verify().unwrap().held, 0);
    }
}

/// Pageblocks of other sizes, and blocks of order 11.
#[test]
fn ranges_of_larger_pages() {
    stepped::boot(1, 1000);
    let config = AllocConfig { page_kib: 16, ..AllocConfig::default() };
    let frames = Frames::new(&MemoryMap::single(1 << 16), config).unwrap();
    assert_eq!(frames.alloc_contig_range(Pfn::new(2047), 2050), Ok(()));
    let order = Order::large(11).unwrap();
    assert_eq!(frames.alloc_at(Pfn::new(0), order), Err(ContigError::InUse(Pfn::new(2047))));
    assert_eq!(frames.alloc_at(Pfn::new(6144), order), Ok(()));
    assert_eq!(frames.verify().unwrap().held, 2050 + 2048);
    frames.free_contig_range(Pfn::new(2047), 2050);
    frames.free_pages(Pfn::new(6144), order);
    frames.drain_all();
    assert_eq!(frames.verify().unwrap().free, 1 << 16);
}
