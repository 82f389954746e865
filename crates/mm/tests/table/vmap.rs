//! The kernel's own range: which CPUs are interrupted for it, and when addresses are reused.

use crate::table::common::{World, range};
use mmscale_arch::{Pfn, VmaRange, Vpn};
use mmscale_mm::pgtable::MemAccess;
use mmscale_mm::smp::CallPolicy;
use mmscale_mm::vmap::{Purge, Vmap, VmapError};
use mmscale_stepped::{self as stepped, Stepped};

const POLICIES: [CallPolicy; CallPolicy::ALL.len()] = CallPolicy::ALL;
const FRAMES: [Pfn; 4] = [Pfn::new(70), Pfn::new(71), Pfn::new(72), Pfn::new(73)];

fn vmap(world: &World, pages: u64, lazy_max_pages: u64) -> Vmap<Stepped> {
    Vmap::with(world.on(), range(1 << 30, pages), lazy_max_pages).expect("there is memory")
}

/// The frame that each CPU reaches at `page`.
fn reached(world: &World, vmap: &Vmap<Stepped>, page: Vpn) -> Vec<Option<Pfn>> {
    let see = |cpu| {
        stepped::set_cpu(cpu);
        vmap.access(world.on(), page, MemAccess::Read, |pfn| pfn).ok()
    };
    let all = [2, 1, 0].map(see);
    all.to_vec()
}

#[test]
fn addresses_are_mapped_anew_only_after_all_cpus_have_forgotten_them() {
    for policy in POLICIES {
        let world = World::with(3, policy);
        let vmap = vmap(&world, 10, 100);
        let first = vmap.map(world.on(), &FRAMES).expect("there is room");
        assert_eq!(reached(&world, &vmap, first.start()), [Some(FRAMES[0]); 3]);
        assert_eq!(vmap.unmap(world.on(), first), Purge::NotNeeded);
        // No interrupt so far; the other half is used first.
        let second = vmap.map(world.on(), &FRAMES).expect("there is room");
        assert!(second != first && world.tlb.stats().ipis_sent == 0, "{policy:?}");
        // Nothing else is left.
        let other = FRAMES.map(|pfn| pfn.offset(20));
        let third = vmap.map(world.on(), &other).expect("what is in limbo will do");
        assert_eq!((third, world.tlb.stats().ipis_sent), (first, 2), "{policy:?}");
        assert_eq!(reached(&world, &vmap, third.start()), [Some(other[0]); 3], "{policy:?}");
        assert_eq!(vmap.map(world.on(), &FRAMES[..1]), Err(VmapError::NoAddresses));
        for range in [second, third] {
            assert_eq!(vmap.unmap(world.on(), range), Purge::NotNeeded);
        }
        vmap.destroy(world.on());
        assert_eq!(world.held(), 0, "{policy:?}");
    }
}

#[test]
fn limbo_is_bounded_and_many_share_a_flush() {
    let world = World::with(4, CallPolicy::Stock);
    let vmap = vmap(&world, 1000, 20);
    for nth in 0..60 {
        let range = vmap.map(world.on(), &FRAMES[..2]).expect("there is room");
        stepped::advance(1_000);
        let limbo = vmap.unmap(world.on(), range);
        let lazy_pages = vmap.stats().lazy_pages;
        assert_eq!(limbo == Purge::Needed, lazy_pages > vmap.lazy_max_pages(), "{nth}");
        if limbo == Purge::Needed {
            vmap.purge(world.on());
        }
    }
    let stats = vmap.stats();
    // With the guard page each takes three pages; the seventh exceeds the limit.
    assert_eq!((stats.purges, stats.lazy_pages_max, stats.lazy_age_max_ns), (8, 21, 6_000));
    assert_eq!(world.tlb.stats().ipis_sent, 8 * 3);
    vmap.destroy(world.on());
    assert_eq!(vmap.stats().free_stretches, 1);
}

#[test]
fn without_memory_for_the_books_nothing_is_mapped_and_what_is_mapped_needs_none() {
    const COUNT: usize = 300;
    let world = World::with(2, CallPolicy::Stock);
    let vmap = vmap(&world, 1000, 1000);
    let (mut mapped, mut refused) = (Vec::new(), Vec::new());
    for nth in 0..COUNT {
        stepped::fail_allocs(1);
        let before = vmap.stats();
        let mut range = vmap.map(world.on(), &FRAMES[..1]);
        if range == Err(VmapError::NoMemory) {
            assert_eq!(vmap.stats(), before);
            refused.push(nth);
            range = vmap.map(world.on(), &FRAMES[..1]);
        }
        mapped.push(range.expect("there is memory now"));
    }
    assert_eq!(refused, [0, 64, 128, 256], "room is made rarely");
    stepped::fail_allocs(1);
    (0..COUNT).for_each(|nth| {
        assert_eq!(vmap.unmap(world.on(), mapped[7 * nth % COUNT]), Purge::NotNeeded);
    });
    vmap.purge(world.on());
    assert_eq!((vmap.stats().free_pages, vmap.stats().free_stretches), (1000, 1));
    assert_eq!(stepped::failures_left(), 1);
    vmap.destroy(world.on());
}

#[test]
fn nothing_is_no_stretch_of_addresses() {
    let world = World::with(1, CallPolicy::Stock);
    let vmap = Vmap::new(world.on(), None).expect("there is memory");
    assert_eq!(vmap.map(world.on(), &[]), Err(VmapError::NoAddresses));
    assert_eq!((vmap.stats().free_pages, vmap.lazy_max_pages()), (1 << 24, 8192));
    assert!(VmaRange::USER.pages() > 1 << 24);
    vmap.destroy(world.on());
}
