//! Blocks that come back in parts: split by their holder where frames have records, and simply
//! freed where they have none.

use crate::frames::oracle::{Oracle, answer_drains, depth};
use crate::frames::random::Random;
use mmscale_arch::{Order, Pfn};
use mmscale_frames::frame::MigrateType;
use mmscale_frames::page_alloc::{AllocConfig, FrameAllocator, Gfp, MemoryMap, PcpPolicy, Records};
use mmscale_stepped::{self as stepped, Stepped};
use proptest::prelude::*;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

const CPUS: usize = 3;
/// Neither end of the zone is the end of a pageblock.
pub(crate) const START: usize = 700;
pub(crate) const PAGES: u32 = 40_000;

type Frames = Rc<FrameAllocator<Stepped>>;

/// Every policy with records, and with less where it can do without them.
pub(crate) fn configs() -> impl Iterator<Item = AllocConfig> {
    let all = PcpPolicy::ALL.into_iter();
    let with = |caches, records| AllocConfig { caches, records, ..AllocConfig::default() };
    let fewer = [Records::Orders, Records::None].map(|fewer| with(PcpPolicy::Blockmap, fewer));
    all.map(move |caches| with(caches, Records::Kept)).chain(fewer)
}

pub(crate) fn boot(config: AllocConfig) -> Frames {
    stepped::boot(CPUS, 1000);
    let mut map = MemoryMap::single(PAGES);
    map.zones[0].start = Pfn::new(START);
    let frames = Rc::new(FrameAllocator::new(&map, config).unwrap());
    answer_drains(&frames);
    frames
}

fn order(order: usize) -> Order {
    Order::new(order as u8).unwrap()
}

fn take(frames: &Frames, of: Order) -> Option<Pfn> {
    frames.alloc_pages(of, MigrateType::Movable, Gfp::KERNEL).ok()
}

/// Checks that all is free and merged again when everything has come back.
pub(crate) fn all_is_whole(frames: &Frames, fresh: [u64; 11]) {
    frames.drain_all();
    let audit = frames.verify().unwrap();
    assert_eq!((audit.free, audit.held), (PAGES.into(), 0));
    assert_eq!(frames.census().free_blocks[..11], fresh);
}

pub(crate) fn fresh(frames: &Frames) -> [u64; 11] {
    frames.census().free_blocks[..11].try_into().unwrap()
}

/// One block of every order in parts of every order, which come back in any order of time, on any
/// CPU.
#[test]
fn a_block_of_any_order_comes_back_in_parts_of_any_order() {
    for config in configs() {
        for whole in 0..=10 {
            for part in 0..=whole {
                let frames = boot(config);
                let (fresh, mut random) = (fresh(&frames), Random((whole * 11 + part) as u64));
                let block = take(&frames, order(whole)).unwrap();
                frames.split_page(block, order(whole), order(part));
                let parts = (0..1 << whole).step_by(1 << part).map(|at| block.offset(at));
                let mut parts: Vec<Pfn> = parts.collect();
                while !parts.is_empty() {
                    stepped::set_cpu(random.below(CPUS));
                    let one = parts.swap_remove(random.below(parts.len()));
                    frames.free_pages(one, order(part));
                }
                all_is_whole(&frames, fresh);
            }
        }
    }
}

/// Blocks are split again and again while others are allocated and freed.
fn random_parts(config: AllocConfig, seed: u64, steps: usize) {
    let (frames, mut oracle, mut random) = (boot(config), Oracle::default(), Random(seed));
    let fresh = fresh(&frames);
    for step in 0..steps {
        if step % 31 == 0 {
            stepped::set_cpu(random.below(CPUS));
        }
        let room = oracle.pages < u64::from(PAGES) / 3 * 2;
        match random.below(8) {
            0..3 if room => {
                let of = order(random.below(11));
                take(&frames, of).into_iter().for_each(|pfn| oracle.add(pfn, of));
            }
            3..6 => {
                let Some((pfn, of)) = oracle.take(random.next() as usize) else { continue };
                let to = order(random.below(of.index() + 1));
                frames.split_page(pfn, of, to);
                let parts = (0..of.pages()).step_by(to.pages()).map(|at| pfn.offset(at));
                parts.for_each(|pfn| oracle.add(pfn, to));
            }
            6 if random.below(100) == 0 => _ = frames.drain_all(),
            _ => {
                let Some((pfn, of)) = oracle.take(random.next() as usize) else { continue };
                frames.free_pages(pfn, of);
            }
        }
        if step % 5000 == 0 {
            assert_eq!(frames.verify().unwrap().held, oracle.pages);
        }
    }
    assert_eq!(frames.verify().unwrap().held, oracle.pages);
    while let Some((pfn, of)) = oracle.take(0) {
        frames.free_pages(pfn, of);
    }
    all_is_whole(&frames, fresh);
    stepped::assert_quiet();
}

#[test]
fn blocks_are_split_at_random() {
    for config in configs() {
        (60..63).for_each(|seed| random_parts(config, seed, 20_000 * depth()));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]
    /// Any numbers of pages, allocated and freed.
    #[test]
    fn any_number_of_pages_is_allocated_and_all_of_it_comes_back(
        sizes in prop::collection::vec(1_usize..=1024, 1..20),
    ) {
        for config in configs() {
            let (frames, mut held) = (boot(config), 0);
            let fresh = fresh(&frames);
            let mut blocks: Vec<(Pfn, usize)> = Vec::new();
            for &pages in &sizes {
                let exact = frames.alloc_pages_exact(pages, MigrateType::Unmovable, Gfp::KERNEL);
                let pfn = exact.unwrap();
                prop_assert!(pfn.index().is_multiple_of(pages.next_power_of_two()));
                let apart = |&(other, size): &(Pfn, usize)| {
                    other.index() + size <= pfn.index() || pfn.index() + pages <= other.index()
                };
                prop_assert!(blocks.iter().all(apart));
                blocks.push((pfn, pages));
                held += pages as u64;
                prop_assert_eq!(frames.verify().unwrap().held, held);
            }
            blocks.iter().for_each(|&(pfn, pages)| frames.free_pages_exact(pfn, pages));
            all_is_whole(&frames, fresh);
        }
    }
}

/// The type of a whole pageblock stays that of its last user: only blocks are compared.
#[test]
fn more_pages_than_the_largest_block_has_are_refused() {
    let frames = boot(AllocConfig::default());
    let exact = |pages| frames.alloc_pages_exact(pages, MigrateType::Movable, Gfp::KERNEL);
    assert!(exact(1024).is_ok() && exact(1025).is_err());
}

/// With records a part that was not split off is refused, and a second free of one too. Without
/// records the second is found when the part goes to the map.
#[test]
fn a_wrong_part_is_refused() {
    for config in configs() {
        let refused = |wrong: &dyn Fn(&Frames, Pfn)| {
            let frames = boot(config);
            let block = take(&frames, Order::MAX).unwrap();
            let said = catch_unwind(AssertUnwindSafe(|| wrong(&frames, block))).unwrap_err();
            let said = said.downcast_ref::<String>().expect("a message with a frame's number");
            assert!(said.contains("freed"), "{:?}: {said}", config.caches);
        };
        if config.records != Records::None {
            refused(&|frames, block| frames.free_pages(block.offset(4), order(2)));
            refused(&|frames, block| frames.split_page(block, order(9), order(2)));
        }
        refused(&|frames, block| {
            frames.split_page(block, Order::MAX, order(2));
            for _ in 0..2 {
                frames.free_pages(block.offset(4), order(2));
                frames.drain_all();
            }
        });
        refused(&|frames, block| {
            frames.split_page(block, Order::MAX, order(7));
            for _ in 0..2 {
                frames.free_pages(block.offset(128), order(7));
                frames.drain_all();
            }
        });
    }
}
