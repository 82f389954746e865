//! The example of `docs/internals/blockmap.md`, step by step.

use super::bits::{join, split};
use super::{AllocRequest, BlockMap, Fill, Refill, ReserveAccess, ReservePages};
use crate::frame::MigrateType;
use core::sync::atomic::Ordering::SeqCst;
use mmscale_arch::sync::PreemptGuard;
use mmscale_arch::{Atomic, CpuId, Order, Pfn};
use mmscale_stepped::{self as stepped, Stepped};

const CPU0: CpuId = CpuId::new(0);
const CPU1: CpuId = CpuId::new(1);
const MOVABLE: MigrateType = MigrateType::Movable;

/// Frees the page `frame` on `cpu`; returns the CPU's delta.
fn free(map: &BlockMap<Stepped>, cpu: CpuId, frame: u32) -> i64 {
    stepped::set_cpu(cpu.index());
    let pinned = PreemptGuard::new();
    let cache = map.enter_cache(&pinned).expect("not in an interrupt");
    map.give_part(cache, cpu, (Pfn::new(frame as usize), Order::ZERO))
}

/// The words of pageblock 0.
fn words(map: &BlockMap<Stepped>) -> [u64; 8] {
    // One thread: no partner.
    core::array::from_fn(|at| map.words[0].0[at].load(SeqCst))
}

#[test]
fn the_example_of_the_page_on_the_blockmap() {
    stepped::boot(2, 1000);
    let reserve = ReservePages { from_singles: 0, from_larger: 0 };
    let map = BlockMap::<Stepped>::alone(Pfn::new(0), 1 << 17, reserve);
    assert_eq!((map.heads.len(), map.most_cached_pages()), (256, 2048));

    // 1. The first allocation takes 256 frames of block 0.
    stepped::set_cpu(0);
    let request = AllocRequest {
        cpu: CPU0,
        order: Order::ZERO,
        kind: MOVABLE,
        refill: Refill::Batch,
        reserve: ReserveAccess::None,
        spare_pages: 1 << 16,
    };
    assert_eq!(map.claim(&PreemptGuard::new(), request, &mut 0), Some(Pfn::new(0)));
    let head = map.head(0);
    assert!(head.owned_by(CPU0) && !head.is_busy() && head.used() == 256);
    assert_eq!(head.0, 1 << 32 | 256);
    assert_eq!(words(&map), [!0, !0, !0, !0, 0, 0, 0, 0]);
    let cache = map.caches.of(CPU0).peek();
    assert_eq!((cache.pages(), cache.delta()), (255, -256));

    // 2. The next 255 come from the stack.
    for frame in 1..256 {
        let pfn = map.take_cached(&PreemptGuard::new(), Order::ZERO, MOVABLE);
        assert_eq!(pfn, Some(Pfn::new(frame)));
    }
    assert_eq!((map.head(0).used(), cache.pages()), (256, 0));

    // 3. CPU 1 frees frame 5: a pending free.
    assert_eq!((free(&map, CPU1, 5), map.head(0).used()), (0, 256));
    assert_eq!(words(&map)[0], !0);

    // 4. CPU 1 frees the rest of word 0: one operation on the word, one on the head.
    let (word, bit) = split(5);
    let rest = (0..64).filter(|&at| at != bit).map(|at| join(word, at));
    let delta = rest.map(|frame| free(&map, CPU1, frame)).last();
    assert_eq!((delta, map.head(0).used()), (Some(64), 192));
    assert_eq!(words(&map), [0, !0, !0, !0, 0, 0, 0, 0]);
    assert!(map.head(0).owned_by(CPU0));

    // 5. CPU 0 owns the block: frame 64 goes onto its stack.
    assert_eq!((free(&map, CPU0, 64), cache.pages()), (-256, 1));
    assert_eq!(words(&map)[1], !0);

    // 6. A drain of CPU 0 clears the bit, and the block gets into an index.
    assert_eq!(map.drain_here(&PreemptGuard::new()), Some(1));
    let head = map.head(0);
    assert!(!head.is_owned() && head.used() == 191);
    assert_eq!(words(&map)[1], !1);
    let fill = head.fill().expect("the block is partial");
    assert_eq!(Some(fill), Fill::all().last());
    assert!(map.partial[MOVABLE.index()][fill.index()].contains(0));
}
