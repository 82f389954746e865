//! The reverse map after forks, moves and splits.

use crate::address::machine::{Machine, POLICIES, range};
use mmscale_arch::{Pfn, Vpn};
use mmscale_mm::pgtable::MemAccess;
use mmscale_mm::reclaim::{References, Rmap, UnmapTo};
use mmscale_mm::space::{Advice, LockWhat, MapRequest, MayMove, Place, Prot, RemapRequest, Space};
use mmscale_mm::tlb::UnmapBatch;
use mmscale_stepped::Stepped;

const AT: u64 = 512 * 8;
const TO: u64 = 512 * 60 + 3;

fn map(machine: &Machine, space: &Space<Stepped>, at: u64, pages: u64) {
    let request = MapRequest::new(pages).at(Place::Fixed(Vpn::new(at)));
    assert_eq!(space.mmap(machine.on(), request), Ok(Vpn::new(at)));
}

fn frame(machine: &Machine, space: &Space<Stepped>, at: u64) -> Pfn {
    space.access(machine.on(), Vpn::new(at), MemAccess::Read, |pfn| pfn).expect("it is there")
}

fn remap(
    machine: &Machine,
    space: &Space<Stepped>,
    from: u64,
    pages: (u64, u64),
    to: MayMove,
) -> u64 {
    let (from, old_pages, new_pages) = (Vpn::new(from), pages.0, pages.1);
    let request = RemapRequest { from, old_pages, new_pages, may_move: to };
    space.mremap(machine.on(), request).expect("there is room").get()
}

/// The number of entries that were accessed since the last call.
fn used(machine: &Machine, pfn: Pfn) -> u32 {
    machine.on().referenced(pfn).accessed
}

/// Where pages are read in a known or a random order, an access does not predict another.
#[test]
fn accesses_in_order_do_not_count_as_use() {
    let machine = Machine::stock();
    let space = machine.space();
    map(&machine, &space, AT, 3);
    let advice = [Advice::Normal, Advice::Random, Advice::Sequential];
    for (page, (advice, counted)) in advice.into_iter().zip([1, 0, 0]).enumerate() {
        let at = AT + page as u64;
        machine.write(&space, at, 7).unwrap();
        assert_eq!(space.madvise(machine.on(), range(at, 1), advice), Ok(()));
        assert_eq!(used(&machine, frame(&machine, &space, at)), counted, "{advice:?}");
    }
    machine.exit(space);
    machine.end();
}

#[test]
fn every_user_of_a_shared_page_is_found() {
    for policy in POLICIES {
        let machine = Machine::boot(2, |config| config.lru = policy);
        let parent = machine.space();
        map(&machine, &parent, AT, 4);
        machine.write(&parent, AT + 1, 7).unwrap();
        let pfn = frame(&machine, &parent, AT + 1);
        assert_eq!((used(&machine, pfn), used(&machine, pfn)), (1, 0), "once for each use");
        let children = [0, 1].map(|_| parent.fork(machine.on()).expect("there is memory"));
        assert_eq!(used(&machine, pfn), 0);
        // A CPU with a cached translation does not set the bit; other CPUs do.
        machine.go_to(1);
        for child in &children {
            assert_eq!(machine.read(child, AT + 1), Ok(7));
        }
        assert_eq!(used(&machine, pfn), 2);
        // One child moves it, the other one has its own copy.
        let to = remap(&machine, &children[0], AT, (4, 4), MayMove::To(Vpn::new(TO))) + 1;
        machine.write(&children[1], AT + 1, 8).unwrap();
        assert_eq!(machine.read(&children[0], to), Ok(7));
        assert_eq!(machine.read(&parent, AT + 1), Ok(7));
        assert_eq!(used(&machine, pfn), 2);
        // A child of the child that has moved it.
        let grandchild = children[0].fork(machine.on()).expect("there is memory");
        machine.go_to(0);
        assert_eq!(machine.read(&grandchild, to), Ok(7));
        assert_eq!(used(&machine, pfn), 1);
        machine.exit(parent);
        let [moved, copied] = children;
        machine.exit(copied);
        assert_eq!(machine.read(&moved, to), Ok(7));
        assert_eq!(used(&machine, pfn), 1, "the first owner has unmapped it");
        machine.check();
        machine.exit(moved);
        machine.exit(grandchild);
        machine.end();
    }
}

#[test]
fn a_page_is_found_wherever_it_was_moved() {
    let machine = Machine::stock();
    let (on, space) = (machine.on(), machine.space());
    map(&machine, &space, AT, 8);
    let to = remap(&machine, &space, AT, (4, 4), MayMove::To(Vpn::new(TO)));
    // The VMA grows there and is moved again in part; the first range is used anew.
    assert_eq!(remap(&machine, &space, to, (4, 9), MayMove::No), to);
    map(&machine, &space, AT, 4);
    let part = remap(&machine, &space, to + 6, (2, 2), MayMove::To(Vpn::new(TO + 100)));
    assert_eq!(space.mprotect(on, range(to + 1, 1), Prot::READ), Ok(()));
    assert_eq!(space.mprotect(on, range(to + 1, 1), Prot::RW), Ok(()));
    for at in [AT, AT + 3, AT + 4, to, to + 1, to + 5, to + 8, part, part + 1] {
        machine.write(&space, at, at).expect("it is mapped");
        assert_eq!(used(&machine, frame(&machine, &space, at)), 1, "page {at:#x}");
    }
    // Moved back, and left mapped.
    map(&machine, &space, AT + 20, 1);
    let back = remap(&machine, &space, part, (2, 2), MayMove::To(Vpn::new(AT + 6)));
    let left = remap(&machine, &space, back, (2, 2), MayMove::Leave);
    for at in [left, left + 1, back, back + 1] {
        machine.write(&space, at, at).expect("it is mapped");
        machine.mm.tlb().enter_lazy();
        let pfn = frame(&machine, &space, at);
        let found = on.referenced(pfn);
        assert!(!found.locked, "page {at:#x}");
        assert!(on.memory.folios.word(pfn).maps() == 1);
    }
    machine.check();
    machine.exit(space);
    machine.end();
}

#[test]
fn a_clean_page_that_was_given_up_is_dropped_everywhere_and_a_dirty_one_is_not() {
    for policy in POLICIES {
        let machine = Machine::boot(1, |config| config.lru = policy);
        let (on, space) = (machine.on(), machine.space());
        map(&machine, &space, AT, 4);
        (0..3).for_each(|page| machine.write(&space, AT + page, 5).unwrap());
        let folios = [0, 1, 2].map(|page| frame(&machine, &space, AT + page));
        assert_eq!(space.madvise(on, range(AT, 3), Advice::Free), Ok(()));
        machine.write(&space, AT + 1, 6).unwrap();
        assert_eq!(space.mlock(on, range(AT + 2, 1), LockWhat::Everything), Ok(()));
        let child = space.fork(on).expect("there is memory");
        let dropped = folios.map(|pfn| {
            on.memory.folios.get(pfn);
            let dropped = on.unmap(pfn, UnmapTo::Drop, &mut UnmapBatch::new());
            on.memory.put(pfn);
            dropped
        });
        assert_eq!(dropped, [true, false, false]);
        for space in [&space, &child] {
            let there = [0, 1, 2].map(|page| machine.read(space, AT + page).unwrap());
            assert_eq!(there, [0, 6, 5]);
        }
        assert_eq!(
            on.referenced(folios[2]),
            References { accessed: 2, locked: true, contended: false }
        );
        machine.check();
        machine.exit(child);
        machine.exit(space);
        machine.end();
    }
}
