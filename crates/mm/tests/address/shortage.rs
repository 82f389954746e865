//! The order of remedies when no page is free.

use crate::address::machine::{Machine, range};
use mmscale_arch::{CpuId, Vpn};
use mmscale_frames::page_alloc::MemoryMap;
use mmscale_frames::zone::ZoneId;
use mmscale_mm::space::{Advice, HugePages, MapRequest, Place};

const AT: u64 = 512 * 16;
const FRAMES: u32 = 1 << 12;

/// Reclaim comes before a drain of page caches: the pages in the caches of other CPUs stay there
/// until reclaim has run.
#[test]
fn memory_is_reclaimed_before_page_caches_are_drained() {
    let machine = Machine::boot(2, |config| {
        config.map = MemoryMap::single(FRAMES);
        config.space.huge = HugePages::Never;
    });
    let (on, space) = (machine.on(), machine.space());
    let map = |at, pages| {
        let request = MapRequest::new(pages).at(Place::Fixed(Vpn::new(at)));
        assert_eq!(space.mmap(on, request), Ok(Vpn::new(at)));
    };
    let cached = || machine.mm.frames().cached_pages(ZoneId::new(0), CpuId::new(1));
    let reclaims = || on.reclaim.counters().direct_calls;
    map(AT, u64::from(FRAMES));
    map(AT + u64::from(FRAMES), 64);
    // Pages in the cache of cpu1.
    machine.go_to(1);
    (0..40).for_each(|page| machine.write(&space, AT + u64::from(FRAMES) + page, 7).unwrap());
    assert_eq!(space.munmap(on, range(AT + u64::from(FRAMES), 64)), Ok(()));
    machine.mm.memory().drain();
    machine.go_to(0);
    // Pages that reclaim can drop.
    (0..400).for_each(|page| machine.write(&space, AT + page, 9).unwrap());
    assert_eq!(space.madvise(on, range(AT, 400), Advice::Free), Ok(()));
    machine.mm.memory().drain();
    let before = cached();
    assert!(before >= 40 && reclaims() == 0, "{before} pages");
    let mut page = 400;
    while cached() == before {
        machine.write(&space, AT + page, 9).unwrap();
        page += 1;
    }
    assert!(reclaims() > 0, "the cache of cpu1 was drained first");
    machine.exit(space);
    machine.end();
}
