//! Tests that corrupt a map: [`BlockMap::verify`] must report each corruption.

use super::head::BUSY;
use super::{AllocRequest, BlockMap, MapError, Refill, ReserveAccess, ReservePages, WORDS, bits};
use crate::frame::MigrateType;
use alloc::vec::Vec;
use core::sync::atomic::Ordering::SeqCst;
use mmscale_arch::sync::PreemptGuard;
use mmscale_arch::{Atomic, CpuId, Order, OwnedCounter, Pfn};
use mmscale_stepped::Stepped;

type Map = BlockMap<Stepped>;

const ME: CpuId = CpuId::new(0);
/// A block that was never used.
const FRESH: usize = 7;
const NO_RESERVE: ReservePages = ReservePages { from_singles: 0, from_larger: 0 };

fn request(order: Order) -> AllocRequest {
    let (kind, refill, reserve) = (MigrateType::Movable, Refill::Batch, ReserveAccess::None);
    AllocRequest { cpu: ME, order, kind, refill, reserve, spare_pages: 512 }
}

fn take(map: &Map) -> Pfn {
    map.claim(&PreemptGuard::new(), request(Order::ZERO), &mut 0).unwrap()
}

/// Corrupts a sound map with `corrupt` and checks that `verify` reports the error that it returns.
/// `corrupt` gets an allocated page, whose block the CPU owns.
#[track_caller]
fn caught(corrupt: impl FnOnce(&Map, Pfn) -> MapError) {
    let map = Map::alone(Pfn::new(0), 1 << 16, NO_RESERVE);
    let held = take(&map);
    let audit = map.verify().unwrap();
    assert_eq!(audit.free + audit.cached, (1 << 16) - 1);
    assert!(audit.cached > 0 && map.head(map.block_of(held)).owned_by(ME));
    let expected = corrupt(&map, held);
    assert_eq!(map.verify(), Err(expected));
}

fn first(map: &Map, block: usize) -> Pfn {
    map.frame((block * WORDS) as u32, 0)
}

#[test]
fn a_frame_in_use_that_its_block_does_not_count() {
    caught(|map, _| {
        // One thread: no partner.
        map.words[FRESH].0[3].store(1 << 9, SeqCst);
        MapError::Count(first(map, FRESH))
    });
}

#[test]
fn a_free_block_without_a_hint() {
    caught(|map, held| {
        let (block, order) = (map.block_of(held), Order::new(5).unwrap());
        map.order_hints.forget(block, order);
        MapError::Unhinted(first(map, block), order)
    });
}

#[test]
fn an_allocated_frame_whose_bit_is_clear() {
    caught(|map, held| {
        let (word, bit) = bits::split(map.index(held));
        // One thread: no partner.
        map.word(word).fetch_and(!(1 << bit), SeqCst);
        MapError::Count(held.align_down(Order::PAGEBLOCK))
    });
}

#[test]
fn a_block_that_is_still_busy() {
    caught(|map, held| {
        let block = map.block_of(held);
        // One thread: no partner.
        map.heads[block].fetch_or(BUSY, SeqCst);
        MapError::Owner(first(map, block))
    });
}

#[test]
fn a_block_that_its_owner_does_not_list() {
    caught(|map, _| {
        let head = map.head(FRESH);
        assert!(map.whole.clear(FRESH) && map.change(FRESH, head, head.owned(ME)));
        MapError::Owner(first(map, FRESH))
    });
}

#[test]
fn a_whole_block_in_no_index() {
    caught(|map, _| {
        assert!(map.whole.clear(FRESH));
        MapError::Unfiled(first(map, FRESH))
    });
}

#[test]
fn a_block_in_use_in_the_index_of_whole_blocks() {
    caught(|map, held| {
        map.whole.set(map.block_of(held));
        MapError::Misfiled(held.align_down(Order::PAGEBLOCK))
    });
}

#[test]
fn a_block_in_use_that_is_filed_under_another_fill() {
    caught(|map, held| {
        let block = map.block_of(held);
        map.caches.of(ME).enter::<Stepped>().unwrap().block.iter().for_each(|cell| _ = cell.take());
        map.disown(block, ME);
        let fill = map.head(block).fill().unwrap();
        let filed = &map.partial[MigrateType::Movable.index()];
        assert!(filed[fill.index()].clear(block));
        filed[0].set(block);
        MapError::Unfiled(first(map, block))
    });
}

#[test]
fn a_cached_frame_that_is_free_in_the_map() {
    caught(|map, _| {
        let word = (FRESH * WORDS) as u32;
        let cache = map.caches.of(ME).enter::<Stepped>().unwrap();
        assert!(cache.stacks.push(bits::join(word, 5), Order::ZERO, MigrateType::Movable));
        MapError::Cached(map.frame(word, 5))
    });
}

#[test]
fn a_cpu_whose_cache_miscounts_its_pages() {
    caught(|map, _| {
        map.caches.of(ME).enter::<Stepped>().unwrap().corrupt_pages(1);
        MapError::CacheCount(ME)
    });
}

/// A CPU that takes several words may take one that another CPU has cleared and not subtracted yet:
/// for a moment `used` is more than the frames of a block.
#[test]
fn frames_are_taken_before_they_are_counted_as_free() {
    let map = Map::alone(Pfn::new(0), 512, NO_RESERVE);
    let (word, pinned, mut change) = (Order::new(6).unwrap(), PreemptGuard::new(), 0);
    let mut claim = || {
        let cached = map.take_cached(&pinned, word, MigrateType::Movable);
        cached.or_else(|| map.claim(&pinned, request(word), &mut change))
    };
    let mut held: Vec<Pfn> = (0..WORDS).map(|_| claim().unwrap()).collect();
    held.sort_unstable();
    map.put_block(0, word);
    let free = map.clear(0, 1, !0);
    assert_eq!([claim(), claim()], [Some(held[0]), Some(held[1])]);
    assert_eq!(map.release_frames(0, 64, || bits::largest(free)), 64);
    assert_eq!((map.head(0).free(), claim()), (0, None));
}

/// 512 pageblocks: each CPU may keep several.
const MANY: u32 = 1 << 18;

fn block(order: u8) -> Order {
    Order::new(order).unwrap()
}

/// A freed page stays in the cache, and a block that is too large for the cache goes to the map and
/// leaves a delta. The flag must be set in both cases, so that a drain finds them.
#[test]
fn cached_pages_and_a_delta_set_the_flag() {
    for (order, owed) in [(0, 0), (7, 128)] {
        let map = Map::alone(Pfn::new(0), 8 << 9, NO_RESERVE);
        let (pinned, order) = (PreemptGuard::new(), block(order));
        let pfn = map.claim(&pinned, request(order), &mut 0).unwrap();
        map.drain_here(&pinned).expect("not in an interrupt");
        map.take_delta(&pinned);
        assert!(!map.shared.of(ME).nonempty.is_nonzero());
        let cache = map.enter_cache(&pinned).expect("not in an interrupt");
        assert_eq!(map.give_part(cache, ME, (pfn, order)), owed);
        assert!(map.shared.of(ME).nonempty.is_nonzero());
        map.verify().unwrap();
    }
}

/// Where memory is short each CPU folds its delta immediately. If it set its flag, it would be
/// drained again and again, and would lose the pageblocks that it owns.
#[test]
fn a_delta_that_is_folded_immediately_does_not_set_the_flag() {
    let map = Map::alone(Pfn::new(0), 8 << 9, NO_RESERVE);
    let pinned = PreemptGuard::new();
    let scarce = AllocRequest { refill: Refill::Exact, ..request(Order::ZERO) };
    let pfn = map.claim(&pinned, scarce, &mut 0).unwrap();
    assert!(map.has_unfolded_delta(&pinned, 0));
    assert_eq!((map.take_delta(&pinned), map.has_unfolded_delta(&pinned, 0)), (Some(-1), false));
    map.give(&pinned, (pfn, Order::ZERO), Refill::Exact, &mut 0);
    assert!(map.has_unfolded_delta(&pinned, 0));
    assert_eq!((map.take_delta(&pinned), map.take_delta(&pinned)), (Some(1), None));
    assert!(!map.shared.of(ME).nonempty.is_nonzero());
    map.verify().unwrap();
}

/// A refill takes several whole pageblocks: at most the CPU's share of the pages above the
/// watermark, at most what its cache has room for, and none of the reserve.
#[test]
fn refills_of_whole_blocks_are_bounded() {
    let pinned = PreemptGuard::new();
    let kept = |order, spare_pages, reserve_pages| {
        let reserve = ReservePages { from_singles: reserve_pages, from_larger: reserve_pages };
        let map = Map::alone(Pfn::new(0), MANY, reserve);
        let req = AllocRequest { spare_pages, ..request(block(order)) };
        let first = map.claim(&pinned, req, &mut 0).unwrap();
        let audit = map.verify().unwrap();
        let held = 1 << order;
        assert_eq!(audit.free + audit.cached + held, MANY.into());
        assert_eq!(audit.unfolded, -((audit.cached + held) as i64));
        let mut taken = alloc::vec![(first, block(order))];
        let again = || map.take_cached(&pinned, block(order), MigrateType::Movable);
        taken.extend(core::iter::from_fn(again).map(|pfn| (pfn, block(order))));
        let mut change = 0;
        for &(pfn, order) in &taken {
            if order < Order::PAGEBLOCK {
                let cache = map.enter_cache(&pinned).expect("not in an interrupt");
                map.give_part(cache, ME, (pfn, order));
            } else {
                map.give(&pinned, (pfn, order), Refill::Batch, &mut change);
            }
        }
        map.drain_here(&pinned).expect("not in an interrupt");
        assert_eq!(map.verify().unwrap().free, MANY.into());
        (audit.cached + held) / 512
    };
    let most = map_limit();
    assert!(most >= 4, "{most}");
    for order in [7, 8] {
        let bounded = if order == 7 { most.min(8) } else { most };
        assert_eq!(kept(order, u32::MAX, 0), bounded, "order {order}");
        assert_eq!(kept(order, 1024, 0), 2, "order {order}");
        assert_eq!(kept(order, 511, 0), 1, "order {order}");
    }
    assert_eq!(kept(9, u32::MAX, 0), most.min(16));
    assert_eq!((kept(9, 1024, 0), kept(9, 511, 0), kept(10, u32::MAX, 0)), (2, 1, 2));
    assert_eq!(
        kept(7, u32::MAX, MANY - 1024),
        1,
        "a refill takes several blocks above the reserve, or none"
    );
    let reserve = ReservePages { from_singles: 0, from_larger: MANY };
    let map = Map::alone(Pfn::new(0), MANY, reserve);
    let urgent =
        AllocRequest { reserve: ReserveAccess::Full, spare_pages: u32::MAX, ..request(block(7)) };
    map.claim(&pinned, urgent, &mut 0).unwrap();
    assert_eq!(
        map.verify().unwrap().cached,
        512 - 128,
        "an urgent request takes one block of the reserve"
    );
}

/// The most pageblocks on a CPU's stacks, with a map of `MANY` pages.
fn map_limit() -> u64 {
    let map = Map::alone(Pfn::new(0), MANY, NO_RESERVE);
    let cache = map.caches.get(ME).unwrap().enter::<Stepped>().unwrap();
    u64::from(cache.stacks.refill_count(Order::PAGEBLOCK, MigrateType::Movable))
}

#[test]
fn a_frame_cached_twice_or_marked_as_used_in_a_held_block() {
    let keep = |map: &Map, frame, order| {
        let cache = map.caches.get(ME).unwrap().enter::<Stepped>().unwrap();
        assert!(cache.stacks.push(frame, block(order), MigrateType::Movable));
    };
    let kept = |corrupt: &dyn Fn(&Map)| {
        let map = Map::alone(Pfn::new(0), MANY, NO_RESERVE);
        let whole = AllocRequest { spare_pages: 0, ..request(block(9)) };
        assert_eq!(map.claim(&PreemptGuard::new(), whole, &mut 0), Some(Pfn::new(0)));
        corrupt(&map);
        map.verify().map(|audit| audit.cached)
    };
    assert_eq!(kept(&|map| keep(map, 0, 9)), Ok(512));
    assert_eq!(kept(&|map| keep(map, 64, 6)), Ok(64), "a part that is being freed");
    // One thread: no partner.
    let marked = |map: &Map| map.word(7).store(1, SeqCst);
    assert_eq!(kept(&marked), Err(MapError::Count(Pfn::new(0))));
    let twice = |map: &Map| (0..2).for_each(|_| keep(map, 0, 9));
    assert_eq!(kept(&twice), Err(MapError::Cached(Pfn::new(0))));
    let part = |map: &Map| {
        map.claim(&PreemptGuard::new(), request(Order::ZERO), &mut 0).unwrap();
        keep(map, 512 + 63, 0);
    };
    assert_eq!(kept(&part), Err(MapError::Cached(Pfn::new(512 + 63))));
}
