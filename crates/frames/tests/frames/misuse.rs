//! Invalid frees: each panics and names the frame, under every policy, with and without records of
//! frames.

use mmscale_arch::{Order, Pfn};
use mmscale_frames::frame::MigrateType;
use mmscale_frames::page_alloc::{AllocConfig, FrameAllocator, Gfp, MemoryMap, PcpPolicy, Records};
use mmscale_stepped::{self as stepped, Stepped};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Enough pages that a CPU's cache may have whole pageblocks.
const PAGES: u32 = 1 << 17;

type Frames = FrameAllocator<Stepped>;

fn take(frames: &Frames, order: Order) -> Pfn {
    frames.alloc_pages(order, MigrateType::Movable, Gfp::KERNEL).unwrap()
}

/// Checks that `wrong` panics with the number of the frame. It gets a new allocator each time, and
/// its last operation is an invalid free.
fn refused(records: &[Records], wrong: impl Fn(&Frames)) {
    let all = PcpPolicy::ALL;
    for caches in all {
        for &records in records {
            if records != Records::Kept && caches != PcpPolicy::Blockmap {
                continue;
            }
            stepped::boot(1, 1000);
            let config = AllocConfig { caches, records, ..AllocConfig::default() };
            let frames = FrameAllocator::new(&MemoryMap::single(PAGES), config).unwrap();
            let said = catch_unwind(AssertUnwindSafe(|| wrong(&frames))).unwrap_err();
            let said = said.downcast_ref::<String>().expect("a message with a frame's number");
            assert!(said.contains("frame ") && said.contains("freed"), "{caches:?}: {said}");
        }
    }
}

/// Without records a double free of a block on a CPU's stack is detected in checked builds only.
#[test]
fn a_double_free_in_the_cache() {
    let all = [Records::Kept, Records::Orders, Records::None];
    let found = if cfg!(debug_assertions) { &all[..] } else { &all[..2] };
    for order in [Order::ZERO, Order::new(3).unwrap(), Order::PAGEBLOCK, Order::MAX] {
        refused(found, |frames| {
            let page = take(frames, order);
            frames.free_pages(page, order);
            frames.free_pages(page, order);
        });
    }
}

/// Without records the double free is detected when the frame is freed to the map again.
#[test]
fn a_double_free_after_a_drain() {
    refused(&[Records::Kept, Records::Orders, Records::None], |frames| {
        let page = take(frames, Order::ZERO);
        frames.free_pages(page, Order::ZERO);
        frames.drain_all();
        frames.free_pages(page, Order::ZERO);
        frames.drain_all();
    });
}

/// The map is unchanged after the panic: the bits that were changed by mistake are restored.
#[test]
fn a_double_free_to_the_map_leaves_other_frames_unchanged() {
    stepped::boot(1, 1000);
    let (caches, records) = (PcpPolicy::Blockmap, Records::None);
    let config = AllocConfig { caches, records, ..AllocConfig::default() };
    let frames = FrameAllocator::<Stepped>::new(&MemoryMap::single(PAGES), config).unwrap();
    // Pages of one word: some stay allocated, so that there are other bits to damage.
    let mut pages: Vec<Pfn> = (0..20).map(|_| take(&frames, Order::ZERO)).collect();
    pages.sort_unstable();
    let twice = pages.remove(10);
    frames.free_pages(twice, Order::ZERO);
    frames.drain_all();
    let before = frames.verify().expect("the map is consistent");
    frames.free_pages(twice, Order::ZERO);
    let drain = AssertUnwindSafe(|| frames.drain_all());
    assert!(catch_unwind(drain).is_err(), "the double free was not detected");
    assert_eq!(frames.verify().expect("the map is still consistent"), before);
    pages.into_iter().for_each(|page| frames.free_pages(page, Order::ZERO));
    frames.drain_all();
    let after = frames.verify().expect("the map is consistent at the end");
    assert_eq!((after.free, after.held), (PAGES.into(), 0));
}

#[test]
fn a_free_of_no_block_or_outside_all_zones() {
    refused(&[Records::Kept, Records::Orders, Records::None], |frames| {
        let page = take(frames, Order::PAGEBLOCK);
        frames.free_pages(Pfn::new(page.index() + 1), Order::PAGEBLOCK);
    });
    refused(&[Records::Orders, Records::None], |frames| {
        frames.free_pages(Pfn::new(PAGES as usize), Order::ZERO);
    });
}

/// A pageblock that is freed as one block must have been allocated as one, or as part of a larger
/// block. This is checked without records too. With records the larger block must have been split.
#[test]
fn a_pageblock_allocated_in_parts_or_as_part_of_a_larger_block() {
    for (taken, given) in [(0, 9), (8, 9), (10, 9), (9, 10)] {
        let all = [Records::Kept, Records::Orders, Records::None];
        let refusing = if taken > given { &all[..2] } else { &all[..] };
        let [taken, given] = [taken, given].map(|order| Order::new(order).unwrap());
        refused(refusing, |frames| {
            let block = take(frames, taken).align_down(given);
            frames.free_pages(block, given);
        });
    }
}

/// Without records other wrong orders are not detected, as documented.
#[test]
fn a_free_with_another_order() {
    refused(&[Records::Kept, Records::Orders], |frames| {
        let page = take(frames, Order::new(2).unwrap());
        frames.free_pages(page, Order::new(1).unwrap());
    });
}
