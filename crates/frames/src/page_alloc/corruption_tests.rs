//! Tests that corrupt an allocator: [`FrameAllocator::verify`] must report each corruption.

use super::{AllocConfig, FrameAllocator, Gfp, MemoryMap, Violation, ZoneLists};
use crate::frame::{FrameState, FrameWord, MigrateType};
use crate::vmstat::ZoneItem;
use crate::zone::ZoneId;
use alloc::string::ToString;
use mmscale_arch::sync::IrqGuard;
use mmscale_arch::{CpuId, Order, Pfn};
use mmscale_stepped::Stepped;

type Frames = FrameAllocator<Stepped>;

const ZONE: ZoneId = ZoneId::new(0);

fn order(value: u8) -> Order {
    Order::new(value).unwrap()
}

fn take(frames: &Frames, size: u8) -> Pfn {
    frames.alloc_pages(order(size), MigrateType::Movable, Gfp::KERNEL).unwrap()
}

/// Allocated blocks.
struct Held {
    /// A block of order 2.
    block: Pfn,
    page: Pfn,
}

/// Corrupts a sound allocator with `corrupt` and checks that `verify` reports the violation that it
/// returns.
#[track_caller]
fn caught(corrupt: impl Fn(&Frames, Held) -> Violation) {
    let map = MemoryMap::single(1 << 16);
    for lists in ZoneLists::ALL {
        let frames = Frames::new(&map, AllocConfig { lists, ..AllocConfig::default() }).unwrap();
        let held = Held { block: take(&frames, 2), page: take(&frames, 0) };
        assert_eq!(frames.verify().unwrap().held, 5);
        let expected = corrupt(&frames, held);
        assert_eq!(frames.verify(), Err(expected), "{lists:?}");
        assert!(!expected.to_string().is_empty());
    }
}

#[test]
fn a_superpageblock_that_counts_other_free_pages_than_it_has() {
    let config = AllocConfig { lists: ZoneLists::Superpageblocks, ..AllocConfig::default() };
    let frames = Frames::new(&MemoryMap::single(3 << 18), config).unwrap();
    let page = take(&frames, 0);
    frames.verify().unwrap();
    frames.listed(ZONE).buddy.lock_irqsave().miscount_superpageblock(page);
    assert_eq!(frames.verify(), Err(Violation::Superpageblock(Pfn::new(0))));
}

fn word(state: FrameState, size: u8, zone: u8) -> FrameWord {
    FrameWord::new(state, order(size), MigrateType::Movable, MigrateType::Movable, zone)
}

/// A free block of a buddy list above order `above`, and its order.
fn free_block(frames: &Frames, above: u8) -> (Pfn, Order) {
    frames.inspect_buddy(ZONE, |buddy| {
        let mut lists = buddy.lists().filter(|(size, ..)| *size > order(above));
        let found = lists.find_map(|(size, _, list)| Some((list.first()?, size)));
        found.expect("splitting left free blocks of most orders")
    })
}

#[test]
fn a_frame_that_no_block_covers() {
    caught(|frames, held| {
        frames.frames.set_inside(held.block);
        Violation::Cover(held.block)
    });
}

#[test]
fn a_frame_that_two_blocks_cover() {
    caught(|frames, held| {
        let inner = held.block.offset(3);
        frames.frames.set_word(inner, word(FrameState::Held, 0, 0));
        Violation::Cover(inner)
    });
}

#[test]
fn a_block_in_a_place_that_its_size_does_not_allow() {
    caught(|frames, held| {
        assert!(!held.page.is_aligned(Order::MAX));
        frames.frames.set_word(held.page, word(FrameState::Held, 10, 0));
        Violation::Shape(held.page)
    });
}

#[test]
fn a_block_that_claims_another_zone() {
    caught(|frames, held| {
        frames.frames.set_word(held.block, word(FrameState::Held, 2, 1));
        Violation::Shape(held.block)
    });
}

#[test]
fn a_free_block_whose_record_contradicts_its_list() {
    caught(|frames, _| {
        let (pfn, size) = free_block(frames, 0);
        frames.frames.set_word(pfn, word(FrameState::Held, size.get(), 0));
        Violation::List(pfn)
    });
}

#[test]
fn a_cached_page_whose_record_contradicts_its_list() {
    caught(|frames, _| {
        let page = take(frames, 0);
        frames.free_pages(page, Order::ZERO);
        frames.frames.set_word(page, word(FrameState::Held, 0, 0));
        Violation::List(page)
    });
}

#[test]
fn free_buddies_that_were_not_merged() {
    caught(|frames, held| {
        let mut buddy = frames.listed(ZONE).buddy.lock_irqsave();
        for half in [held.block, held.block.offset(2)] {
            buddy.misplace(&frames.frames, half, order(1), MigrateType::Movable);
        }
        Violation::Unmerged(held.block)
    });
}

#[test]
fn a_free_block_on_no_list() {
    caught(|frames, held| {
        frames.frames.set_word(held.block, word(FrameState::Free, 2, 0));
        Violation::Lost(held.block)
    });
}

#[test]
fn a_free_block_on_another_types_list() {
    caught(|frames, _| {
        let (pfn, _) = free_block(frames, 8);
        frames.listed(ZONE).buddy.lock_irqsave().mistype(pfn, MigrateType::Unmovable);
        Violation::BlockType(pfn)
    });
}

#[test]
fn a_page_cache_that_miscounts() {
    caught(|frames, _| {
        frames.listed(ZONE).pcps.of(CpuId::new(0)).lock().count += 1;
        Violation::PcpCount(ZONE)
    });
}

#[test]
fn an_area_that_miscounts() {
    caught(|frames, _| {
        frames.listed(ZONE).buddy.lock_irqsave().miscount(order(7));
        Violation::AreaCount(ZONE, order(7))
    });
}

#[test]
fn a_counter_that_lost_a_page() {
    caught(|frames, _| {
        frames.stats.mod_zone(&IrqGuard::new(), ZONE, ZoneItem::FreePages, -1);
        Violation::Counter(ZONE)
    });
}
