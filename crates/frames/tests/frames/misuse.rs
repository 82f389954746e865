//! Frees of what is not held: each says which frame it was, under every policy, whether records
//! of frames are kept or not.

use mmscale_arch::{Order, Pfn};
use mmscale_frames::frame::MigrateType;
use mmscale_frames::page_alloc::{AllocConfig, FrameAllocator, Gfp, MemoryMap, PcpPolicy, Records};
use mmscale_stepped::{self as stepped, Stepped};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// So many that a CPU may keep whole pageblocks.
const PAGES: u32 = 1 << 17;

type Frames = FrameAllocator<Stepped>;

fn take(frames: &Frames, order: Order) -> Pfn {
    frames.alloc_pages(order, MigrateType::Movable, Gfp::KERNEL).unwrap()
}

/// `wrong` frees something that it does not hold, last of all; it gets a new allocator each time.
fn refused(records: &[Records], wrong: impl Fn(&Frames)) {
    let all = PcpPolicy::ALL;
    for caches in all {
        for &records in records {
            if records == Records::None && caches != PcpPolicy::Blockmap {
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

/// On a CPU's stack that is known without records only where debug assertions look for it.
#[test]
fn what_was_just_freed() {
    let all = [Records::Kept, Records::None];
    let found = if cfg!(debug_assertions) { &all[..] } else { &all[..1] };
    for order in [Order::ZERO, Order::new(3).unwrap(), Order::PAGEBLOCK, Order::MAX] {
        refused(found, |frames| {
            let page = take(frames, order);
            frames.free_pages(page, order);
            frames.free_pages(page, order);
        });
    }
}

/// Without records that is found when the frame goes home once more.
#[test]
fn what_was_freed_and_went_home() {
    refused(&[Records::Kept, Records::None], |frames| {
        let page = take(frames, Order::ZERO);
        frames.free_pages(page, Order::ZERO);
        frames.drain_all();
        frames.free_pages(page, Order::ZERO);
        frames.drain_all();
    });
}

/// Who survives the panic has the map as it was: the bits of frames that were wrong are set back.
#[test]
fn a_frame_that_goes_home_twice_harms_no_other() {
    stepped::boot(1, 1000);
    let (caches, records) = (PcpPolicy::Blockmap, Records::None);
    let config = AllocConfig { caches, records, ..AllocConfig::default() };
    let frames = FrameAllocator::<Stepped>::new(&MemoryMap::single(PAGES), config).unwrap();
    // Of one word: some stay out, so that there are bits to harm beside it.
    let mut pages: Vec<Pfn> = (0..20).map(|_| take(&frames, Order::ZERO)).collect();
    pages.sort_unstable();
    let twice = pages.remove(10);
    frames.free_pages(twice, Order::ZERO);
    frames.drain_all();
    let before = frames.verify().expect("it adds up");
    frames.free_pages(twice, Order::ZERO);
    let drain = AssertUnwindSafe(|| frames.drain_all());
    assert!(catch_unwind(drain).is_err(), "nobody saw that it was free");
    assert_eq!(frames.verify().expect("it still adds up"), before);
    pages.into_iter().for_each(|page| frames.free_pages(page, Order::ZERO));
    frames.drain_all();
    let after = frames.verify().expect("it adds up at the end");
    assert_eq!((after.free, after.held), (PAGES.into(), 0));
}

#[test]
fn what_is_no_block_or_in_no_zone() {
    refused(&[Records::Kept, Records::None], |frames| {
        let page = take(frames, Order::PAGEBLOCK);
        frames.free_pages(Pfn::new(page.index() + 1), Order::PAGEBLOCK);
    });
    refused(&[Records::None], |frames| frames.free_pages(Pfn::new(PAGES as usize), Order::ZERO));
}

/// Who gives a whole pageblock back must have had it as one: that is known without records, too.
#[test]
fn a_pageblock_that_is_out_in_parts_or_as_part_of_more() {
    for (taken, given) in [(0, 9), (8, 9), (10, 9), (9, 10)] {
        let [taken, given] = [taken, given].map(|order| Order::new(order).unwrap());
        refused(&[Records::Kept, Records::None], |frames| {
            let block = take(frames, taken).align_down(given);
            frames.free_pages(block, given);
        });
    }
}

/// Without records another wrong order is not found: that is documented.
#[test]
fn what_was_handed_out_with_another_order() {
    refused(&[Records::Kept], |frames| {
        let page = take(frames, Order::new(2).unwrap());
        frames.free_pages(page, Order::new(1).unwrap());
    });
}
