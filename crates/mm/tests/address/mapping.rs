//! mmap, munmap and mprotect behave as their manual pages describe.

use crate::address::machine::{Machine, POLICIES, range};
use mmscale_arch::{Op, Vpn};
use mmscale_mm::space::{
    Advice, FaultError, LockWhat, MAP_MIN, MapRequest, Place, Prot, Space, SpaceError, VmaFlags,
    VmaRange,
};
use mmscale_stepped::{self as stepped, Stepped};

const AT: u64 = 0x1000;

fn fixed(at: u64, pages: u64) -> MapRequest {
    MapRequest::new(pages).at(Place::Fixed(Vpn::new(at)))
}

/// Starts and ends of the VMAs.
fn vmas(space: &Space<Stepped>) -> Vec<(u64, u64)> {
    let ends = |range: VmaRange| (range.start().get(), range.end().get());
    space.vmas().into_iter().map(|vma| ends(vma.range)).collect()
}

#[test]
fn memory_is_zero_until_it_is_written_to_and_after_it_was_unmapped() {
    for policy in POLICIES {
        let machine = Machine::boot(1, |config| config.lru = policy);
        let (on, space) = (machine.on(), machine.space());
        let at = space.mmap(on, MapRequest::new(3)).expect("there is room").get();
        assert_eq!(machine.read(&space, at), Ok(0));
        assert_eq!(machine.check().mapped, 0, "a page that was only read needs no frame");
        (0..3).for_each(|page| machine.write(&space, at + page, 7 + page).unwrap());
        assert_eq!([0, 1, 2].map(|page| machine.read(&space, at + page)), [Ok(7), Ok(8), Ok(9)]);
        assert_eq!(machine.check().mapped, 3);
        assert_eq!(space.munmap(on, range(at + 1, 1)), Ok(()));
        assert_eq!(machine.read(&space, at + 1), Err(FaultError::Segv));
        assert_eq!(space.mmap(on, fixed(at + 1, 1)), Ok(Vpn::new(at + 1)));
        assert_eq!([0, 1, 2].map(|page| machine.read(&space, at + page)), [Ok(7), Ok(0), Ok(9)]);
        assert_eq!(vmas(&space), [(at, at + 3)]);
        machine.exit(space);
        machine.end();
    }
}

#[test]
fn mmap_says_what_is_wrong() {
    let machine = Machine::boot(1, |config| config.space.memlock_pages = 10);
    let (on, space) = (machine.on(), machine.space());
    let map = |request| space.mmap(on, request);
    assert_eq!(map(MapRequest::new(0)), Err(SpaceError::Inval));
    for pages in [VmaRange::USER.pages(), VmaRange::USER.pages() + 1, u64::MAX] {
        assert_eq!(map(MapRequest::new(pages)), Err(SpaceError::NoMemory));
    }
    assert_eq!(map(fixed(Vpn::USER_END.get() - 1, 2)), Err(SpaceError::NoMemory));
    assert_eq!(map(fixed(MAP_MIN.get() - 1, 2)), Err(SpaceError::Perm));
    assert_eq!(map(fixed(AT, 4)), Ok(Vpn::new(AT)));
    let free = |at: u64| MapRequest::new(2).at(Place::Free(Vpn::new(at)));
    for at in [AT - 1, AT, AT + 3] {
        assert_eq!(map(free(at)), Err(SpaceError::Exists));
    }
    assert_eq!(map(free(AT + 4)), Ok(Vpn::new(AT + 4)));
    // EEXIST takes precedence over the limit on locked memory.
    assert_eq!(map(MapRequest { pages: 11, ..free(AT + 5) }.locked()), Err(SpaceError::Exists));
    assert_eq!(map(MapRequest::new(11).locked()), Err(SpaceError::Again));
    assert!(map(MapRequest::new(10).locked()).is_ok());
    assert_eq!(map(MapRequest::new(1).locked()), Err(SpaceError::Again));
    assert_eq!(space.pages(), (16, 10));
    machine.exit(space);
    machine.end();
}

#[test]
fn a_hint_is_followed_where_there_is_room() {
    let machine = Machine::stock();
    let (on, space) = (machine.on(), machine.space());
    let hint = |at: u64| MapRequest::new(4).at(Place::Hint(Vpn::new(at)));
    assert_eq!(space.mmap(on, hint(AT)), Ok(Vpn::new(AT)));
    let other = space.mmap(on, hint(AT + 3)).expect("there is room");
    assert!(other > Vpn::new(AT + 100), "the highest gap is far up: {other:?}");
    let lowest = space.mmap(on, hint(2)).expect("there is room");
    assert_eq!(lowest, MAP_MIN, "nothing is mapped below the lowest address");
    let highest = space.mmap(on, hint(0)).expect("there is room");
    assert_eq!(highest.get(), other.get() - 4, "0 is no hint");
    // Multiples of huge pages are aligned to huge pages.
    let huge = space.mmap(on, MapRequest::new(1024)).expect("there is room");
    assert!(huge.get().is_multiple_of(512));
    machine.exit(space);
    machine.end();
}

#[test]
fn neighbours_that_are_alike_are_one_vma() {
    let machine = Machine::stock();
    let (on, space) = (machine.on(), machine.space());
    for (at, pages) in [(AT, 2), (AT + 4, 2), (AT + 2, 2)] {
        assert_eq!(space.mmap(on, fixed(at, pages)), Ok(Vpn::new(at)));
    }
    assert_eq!(vmas(&space), [(AT, AT + 6)]);
    let other = fixed(AT + 6, 2).prot(Prot::READ);
    assert_eq!(space.mmap(on, other), Ok(Vpn::new(AT + 6)));
    assert_eq!(vmas(&space), [(AT, AT + 6), (AT + 6, AT + 8)]);
    // A part in the middle of a VMA is changed, and changed back.
    assert_eq!(space.mprotect(on, range(AT + 2, 2), Prot::READ), Ok(()));
    assert_eq!(vmas(&space).len(), 4);
    assert_eq!(space.mprotect(on, range(AT, 8), Prot::READ), Ok(()));
    assert_eq!(vmas(&space), [(AT, AT + 8)], "also over a piece that was right already");
    machine.check();
    machine.exit(space);
    machine.end();
}

#[test]
fn munmap_takes_what_is_there() {
    let machine = Machine::boot(1, |config| config.space.vmas_max = 3);
    let (on, space) = (machine.on(), machine.space());
    assert_eq!(space.munmap(on, range(AT, 100)), Ok(()), "no error if nothing is mapped");
    for at in [AT, AT + 10] {
        assert_eq!(space.mmap(on, fixed(at, 5).populated()), Ok(Vpn::new(at)));
    }
    assert_eq!(space.munmap(on, range(AT + 3, 9)), Ok(()), "a hole is no error");
    assert_eq!(vmas(&space), [(AT, AT + 3), (AT + 12, AT + 15)]);
    assert_eq!(machine.check().mapped, 6);
    assert_eq!(space.munmap(on, range(AT + 1, 1)), Ok(()));
    assert_eq!(vmas(&space).len(), 3);
    // One more VMA is above the limit; cutting off an end adds none.
    assert_eq!(space.munmap(on, range(AT + 13, 1)), Err(SpaceError::NoMemory));
    assert_eq!(vmas(&space).len(), 3);
    assert_eq!(space.munmap(on, range(AT + 14, 1)), Ok(()));
    machine.exit(space);
    machine.end();
}

/// At the limit on VMAs, a change that adds none still succeeds.
#[test]
fn vmas_are_joined_before_they_are_cut() {
    let machine = Machine::boot(1, |config| config.space.vmas_max = 3);
    let (on, space) = (machine.on(), machine.space());
    let gone = SpaceError::NoMemory;
    assert_eq!(space.mmap(on, fixed(AT, 9)), Ok(Vpn::new(AT)));
    assert_eq!(space.mprotect(on, range(AT + 3, 3), Prot::READ), Ok(()));
    // The border between two VMAs moves in both directions.
    assert_eq!(space.mprotect(on, range(AT + 3, 1), Prot::RW), Ok(()));
    assert_eq!(vmas(&space), [(AT, AT + 4), (AT + 4, AT + 6), (AT + 6, AT + 9)]);
    assert_eq!(space.mprotect(on, range(AT + 5, 1), Prot::RW), Ok(()));
    assert_eq!(space.mprotect(on, range(AT + 3, 1), Prot::READ), Ok(()));
    assert_eq!(vmas(&space), [(AT, AT + 3), (AT + 3, AT + 5), (AT + 5, AT + 9)]);
    assert_eq!(space.mprotect(on, range(AT + 4, 1), Prot::READ), Ok(()), "nothing to change");
    // This adds one VMA too many, although the next step would merge two.
    assert_eq!(space.mprotect(on, range(AT + 1, 1), Prot::NONE), Err(gone));
    assert_eq!(space.mprotect(on, range(AT + 2, 2), Prot::NONE), Err(gone));
    assert_eq!(space.madvise(on, range(AT + 8, 1), Advice::DontFork), Err(gone));
    assert_eq!(space.mlock(on, range(AT + 8, 1), LockWhat::OnFault), Err(gone));
    assert_eq!(space.madvise(on, range(AT + 5, 4), Advice::DontFork), Ok(()));
    assert_eq!(space.madvise(on, range(AT + 5, 2), Advice::DoFork), Err(gone));
    assert_eq!(space.mprotect(on, range(AT + 3, 2), Prot::RW), Ok(()));
    assert_eq!(vmas(&space), [(AT, AT + 5), (AT + 5, AT + 9)]);
    assert_eq!(space.madvise(on, range(AT + 5, 2), Advice::DoFork), Ok(()));
    assert_eq!(vmas(&space), [(AT, AT + 7), (AT + 7, AT + 9)]);
    // mmap may exceed the limit by one.
    for at in [AT + 20, AT + 30] {
        assert_eq!(space.mmap(on, fixed(at, 1)), Ok(Vpn::new(at)));
    }
    assert_eq!(space.mmap(on, fixed(AT + 40, 1)), Err(gone));
    machine.check();
    machine.exit(space);
    machine.end();
}

#[test]
fn mprotect_gives_and_takes_rights() {
    for policy in POLICIES {
        let machine = Machine::boot(1, |config| config.lru = policy);
        let (on, space) = (machine.on(), machine.space());
        assert_eq!(space.mmap(on, fixed(AT, 4)), Ok(Vpn::new(AT)));
        machine.write(&space, AT, 5).unwrap();
        machine.read(&space, AT + 1).unwrap();
        assert_eq!(space.mprotect(on, range(AT, 4), Prot::NONE), Ok(()));
        assert_eq!(machine.read(&space, AT), Err(FaultError::Segv));
        assert_eq!(machine.mincore(&space, AT, 4), [true, true, false, false]);
        assert_eq!(space.mprotect(on, range(AT, 4), Prot::READ), Ok(()));
        assert_eq!(machine.read(&space, AT), Ok(5));
        assert_eq!(machine.write(&space, AT, 6), Err(FaultError::Segv));
        assert_eq!(space.mprotect(on, range(AT, 4), Prot::RW), Ok(()));
        (0..4).for_each(|page| machine.write(&space, AT + page, 10 + page).unwrap());
        assert_eq!(machine.read(&space, AT + 1), Ok(11), "not the frame of zeros");
        machine.exit(space);
        machine.end();
    }
}

#[test]
fn mprotect_stops_at_a_hole() {
    let machine = Machine::stock();
    let (on, space) = (machine.on(), machine.space());
    for at in [AT, AT + 4] {
        assert_eq!(space.mmap(on, fixed(at, 2)), Ok(Vpn::new(at)));
    }
    let protect = |at, pages| space.mprotect(on, range(at, pages), Prot::READ);
    assert_eq!(protect(AT + 3, 3), Err(SpaceError::NoMemory));
    assert_eq!(protect(AT + 1, 4), Err(SpaceError::NoMemory));
    let prots: Vec<Prot> = space.vmas().into_iter().map(|vma| vma.prot).collect();
    assert_eq!(prots, [Prot::RW, Prot::READ, Prot::RW], "what comes before the hole is changed");
    machine.exit(space);
    machine.end();
}

#[test]
fn populated_memory_is_there() {
    for policy in POLICIES {
        let machine = Machine::boot(1, |config| config.lru = policy);
        let (on, space) = (machine.on(), machine.space());
        assert_eq!(space.mmap(on, fixed(AT, 600).populated()), Ok(Vpn::new(AT)));
        assert!(machine.mincore(&space, AT, 600).into_iter().all(|there| there));
        assert_eq!(machine.check().mapped, 600);
        // Read-only memory maps the zero page; memory without access is not populated, without an
        // error.
        let read = fixed(AT + 600, 3).prot(Prot::READ).populated();
        assert_eq!(space.mmap(on, read), Ok(Vpn::new(AT + 600)));
        let none = fixed(AT + 603, 3).prot(Prot::NONE).populated();
        assert_eq!(space.mmap(on, none), Ok(Vpn::new(AT + 603)));
        let there = machine.mincore(&space, AT + 600, 6);
        assert_eq!(there, [true, true, true, false, false, false]);
        assert_eq!(machine.check().mapped, 600);
        machine.exit(space);
        machine.end();
    }
}

#[test]
fn a_long_populate_lets_other_tasks_run_every_256_pages() {
    let machine = Machine::stock();
    let (on, space) = (machine.on(), machine.space());
    let before = stepped::resched_points();
    assert_eq!(space.mmap(on, fixed(AT, 1024).populated()), Ok(Vpn::new(AT)));
    assert_eq!(stepped::resched_points() - before, 4);
    machine.exit(space);
    machine.end();
}

#[test]
fn a_fixed_mapping_replaces_what_is_there() {
    let machine = Machine::stock();
    let (on, space) = (machine.on(), machine.space());
    assert_eq!(space.mmap(on, fixed(AT, 10)), Ok(Vpn::new(AT)));
    (0..10).for_each(|page| machine.write(&space, AT + page, 100 + page).unwrap());
    let flags = VmaFlags::DONT_FORK;
    let request = MapRequest { flags, ..fixed(AT + 3, 4) };
    assert_eq!(space.mmap(on, request), Ok(Vpn::new(AT + 3)));
    assert_eq!(vmas(&space).len(), 3);
    for page in 0..10 {
        let expect = if (3..7).contains(&page) { 0 } else { 100 + page };
        assert_eq!(machine.read(&space, AT + page), Ok(expect));
    }
    assert_eq!(machine.check().mapped, 6);
    machine.exit(space);
    machine.end();
}

/// fork and exit handle all VMAs in their order, which costs less than as many calls of mmap.
#[test]
fn fork_and_exit_copy_and_free_vmas_in_bulk() {
    let machine = Machine::stock();
    let (on, parent) = (machine.on(), machine.space());
    for at in 0..20 {
        let prot = if at % 2 == 0 { Prot::RW } else { Prot::READ };
        assert!(parent.mmap(on, fixed(AT + at, 1).prot(prot)).is_ok());
    }
    assert_eq!(vmas(&parent).len(), 20);
    let done = || [Op::VmaCopy, Op::VmaEdit].map(stepped::work_count);
    let [copies, edits] = done();
    let child = parent.fork(on).expect("there is memory");
    assert_eq!(done(), [copies + 20, edits]);
    machine.exit(child);
    assert_eq!(done(), [copies + 40, edits]);
    machine.exit(parent);
    machine.end();
}
