//! Tests that corrupt pageblocks: [`FrameAllocator::verify`] must report each corruption.

use super::{AllocConfig, FrameAllocator, Gfp, MemoryMap, PcpPolicy, Violation};
use crate::frame::{FrameState, FrameWord, MigrateType};
use crate::vmstat::ZoneItem;
use crate::zone::ZoneId;
use alloc::string::ToString;
use mmscale_arch::sync::IrqGuard;
use mmscale_arch::{CpuId, Order, Pfn};
use mmscale_stepped::Stepped;

type Frames = FrameAllocator<Stepped>;

const ZONE: ZoneId = ZoneId::new(0);
const ME: CpuId = CpuId::new(0);

fn take(frames: &Frames) -> Pfn {
    frames.alloc_pages(Order::ZERO, MigrateType::Movable, Gfp::KERNEL).unwrap()
}

/// Corrupts a sound allocator with `corrupt` and checks that `verify` reports the violation that it
/// returns. `corrupt` gets an allocated and a cached page, whose pageblock the CPU owns.
#[track_caller]
fn caught(corrupt: impl FnOnce(&Frames, Pfn, Pfn) -> Violation) {
    let config = AllocConfig { caches: PcpPolicy::Posted, ..AllocConfig::default() };
    let frames = Frames::new(&MemoryMap::single(1 << 20), config).unwrap();
    let (held, cached) = (take(&frames), take(&frames));
    frames.free_pages(cached, Order::ZERO);
    assert_eq!(frames.inspect_buddy(ZONE, |buddy| buddy.owner(held)), Some(ME));
    assert_eq!(frames.verify().unwrap().held, 1);
    let expected = corrupt(&frames, held, cached);
    assert_eq!(frames.verify(), Err(expected));
    assert!(!expected.to_string().is_empty());
}

/// A cached page that may merge.
fn merging(list: MigrateType, taken_as: MigrateType) -> FrameWord {
    FrameWord::new(FrameState::Cached, Order::ZERO, list, taken_as, 0).merging()
}

#[test]
fn a_merging_block_in_another_cpus_page_cache() {
    caught(|frames, held, _| {
        let block = held.align_down(Order::PAGEBLOCK);
        frames.listed(ZONE).buddy.lock_irqsave().corrupt_owner(block, CpuId::new(1));
        Violation::Stray(block)
    });
}

#[test]
fn a_page_in_use_that_may_merge() {
    caught(|frames, held, _| {
        frames.frames.set_word(held, frames.frames.word(held).merging());
        Violation::Stray(held)
    });
}

#[test]
fn a_merging_block_allocated_for_another_type() {
    caught(|frames, _, cached| {
        let odd = merging(MigrateType::Movable, MigrateType::Unmovable);
        frames.frames.set_word(cached, odd);
        Violation::Stray(cached)
    });
}

#[test]
fn a_cached_page_on_another_types_list() {
    caught(|frames, _, cached| {
        let odd = merging(MigrateType::Unmovable, MigrateType::Unmovable);
        frames.frames.set_word(cached, odd);
        Violation::List(cached)
    });
}

#[test]
fn a_page_cache_that_miscounts_its_orders() {
    caught(|frames, _, _| {
        frames.listed(ZONE).pcps.of(ME).lock().count -= 1;
        Violation::PcpCount(ZONE)
    });
}

#[test]
fn a_whole_pageblock_in_the_zone_that_has_an_owner() {
    caught(|frames, _, _| {
        let block = Pfn::new(40 * 1024);
        frames.listed(ZONE).buddy.lock_irqsave().corrupt_owner(block, ME);
        Violation::Owner(block)
    });
}

#[test]
fn an_isolated_pageblock_that_has_an_owner() {
    caught(|frames, _, _| {
        let block = Pfn::new(40 * 1024);
        frames.isolate_pageblock(block).unwrap();
        frames.listed(ZONE).buddy.lock_irqsave().corrupt_owner(block, ME);
        Violation::Owner(block)
    });
}

#[test]
fn a_wrong_number_of_owned_pageblocks() {
    caught(|frames, _, _| {
        frames.listed(ZONE).buddy.lock_irqsave().miscount_owned(ME);
        Violation::OwnedCount(ME)
    });
}

#[test]
fn a_pageblock_that_its_owner_does_not_remember() {
    caught(|frames, held, _| {
        let block = held.align_down(Order::PAGEBLOCK);
        assert!(frames.listed(ZONE).buddy.lock_irqsave().remember(block, ME));
        Violation::Remembered(block)
    });
}

#[test]
fn cached_pages_that_the_watermarks_count_as_free() {
    caught(|frames, _, _| {
        frames.stats.mod_zone(&IrqGuard::new(), ZONE, ZoneItem::FreePages, 511);
        Violation::Counter(ZONE)
    });
}

#[test]
fn a_free_block_of_an_isolated_pageblock_that_can_be_allocated() {
    caught(|frames, _, _| {
        let free = frames.inspect_buddy(ZONE, |buddy| {
            let mut lists = buddy.lists().filter(|(order, ..)| *order == Order::PAGEBLOCK);
            lists.find_map(|(_, _, list)| list.first()).expect("the other half is free")
        });
        frames.listed(ZONE).buddy.lock_irqsave().corrupt_isolation(free);
        Violation::Isolation(free)
    });
}

#[test]
fn a_cached_page_of_an_isolated_pageblock() {
    caught(|frames, held, cached| {
        frames.disown(ME);
        let mut buddy = frames.listed(ZONE).buddy.lock_irqsave();
        buddy.corrupt_isolation(held.align_down(Order::PAGEBLOCK));
        buddy.miscount_isolated();
        drop(buddy);
        frames.isolated.set(held, true);
        frames.zone(ZONE).put(super::zone::ISOLATING, true);
        let first = cached.align_down(Order::PAGEBLOCK);
        let inside = (0..512).map(|at| first.offset(at));
        let mut cached =
            inside.filter(|&pfn| frames.frames.word(pfn).state() == FrameState::Cached);
        Violation::Isolation(cached.next().expect("the pageblock has a cached page"))
    });
}

#[test]
fn an_isolated_pageblock_that_frees_cannot_see() {
    caught(|frames, held, _| {
        frames.isolate_pageblock(held).unwrap();
        frames.isolated.set(held, false);
        Violation::IsolatedCount(ZONE)
    });
}

#[test]
fn a_wrong_number_of_isolated_pageblocks() {
    caught(|frames, _, _| {
        frames.listed(ZONE).buddy.lock_irqsave().miscount_isolated();
        Violation::IsolatedCount(ZONE)
    });
}

#[test]
fn an_offline_frame_with_a_record() {
    caught(|frames, _, _| {
        let block = Pfn::new(40 * 1024);
        frames.offline_pageblock(block).unwrap();
        let odd = block.offset(17);
        frames.frames.set_word(odd, merging(MigrateType::Movable, MigrateType::Movable));
        Violation::Isolation(odd)
    });
}

#[test]
fn what_a_cpu_left_behind_that_went_offline() {
    for caches in PcpPolicy::ALL {
        mmscale_stepped::boot(2, 1000);
        let config = AllocConfig { caches, ..AllocConfig::default() };
        let frames = Frames::new(&MemoryMap::single(1 << 20), config).unwrap();
        mmscale_stepped::set_cpu(1);
        frames.free_pages(take(&frames), Order::ZERO);
        mmscale_stepped::set_cpu(0);
        assert_eq!(frames.verify().unwrap().held, 0, "{caches:?}");
        mmscale_stepped::set_online(1, false);
        let defect = match caches {
            // Its pageblock is named first: an owner that is offline.
            PcpPolicy::Posted => Violation::Owner(Pfn::new(0)),
            PcpPolicy::Stock | PcpPolicy::Premerge | PcpPolicy::Blockmap => {
                Violation::LeftBehind(CpuId::new(1))
            }
        };
        assert_eq!(frames.verify(), Err(defect), "{caches:?}");
        frames.cpu_dead(CpuId::new(1));
        assert_eq!(frames.verify().unwrap().cached, 0, "{caches:?}");
    }
}
