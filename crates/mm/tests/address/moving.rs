//! mremap, fork and mbind: pages move and keep their content.

use crate::address::machine::{GROUP, Machine, POLICIES, range};
use mmscale_arch::{NodeId, Vpn};
use mmscale_mm::memcg::GroupId;
use mmscale_mm::space::{
    Advice, FaultError, HugePages, LockWhat, MapRequest, MayMove, Place, Present, Prot,
    RemapRequest, Space, SpaceError, VmaFlags, VmaRange,
};
use mmscale_stepped::Stepped;

const AT: u64 = 0x1000;
const TO: u64 = 0x9000;

fn map(machine: &Machine, space: &Space<Stepped>, at: u64, pages: u64) {
    let request = MapRequest::new(pages).at(Place::Fixed(Vpn::new(at)));
    assert_eq!(space.mmap(machine.on(), request), Ok(Vpn::new(at)));
}

fn fill(machine: &Machine, space: &Space<Stepped>, at: u64, pages: u64, stamp: u64) {
    (0..pages).for_each(|page| machine.write(space, at + page, stamp + page).expect("it is there"));
}

fn remap(
    machine: &Machine,
    space: &Space<Stepped>,
    request: RemapRequest,
) -> Result<u64, SpaceError> {
    space.mremap(machine.on(), request).map(|page| page.get())
}

fn resize(old_pages: u64, new_pages: u64, may_move: MayMove) -> RemapRequest {
    RemapRequest { from: Vpn::new(AT), old_pages, new_pages, may_move }
}

const HERE: MayMove = MayMove::To(Vpn::new(TO));

#[test]
fn mremap_says_what_is_wrong() {
    let machine = Machine::stock();
    let space = machine.space();
    map(&machine, &space, AT, 10);
    map(&machine, &space, AT + 12, 2);
    let error = |request| remap(&machine, &space, request).expect_err("it is wrong");
    for request in [
        resize(0, 5, MayMove::No),
        resize(5, 0, MayMove::No),
        resize(5, 0, HERE),
        resize(10, 10, MayMove::To(Vpn::new(AT + 9))),
        resize(10, 10, MayMove::To(Vpn::new(AT - 9))),
        resize(10, 10, MayMove::To(Vpn::USER_END)),
        resize(10, 9, MayMove::Leave),
    ] {
        assert_eq!(error(request), SpaceError::Inval, "{request:?}");
    }
    for request in [
        resize(11, 12, MayMove::Anywhere),
        resize(14, 20, MayMove::Anywhere),
        resize(11, 11, HERE),
        resize(u64::MAX, u64::MAX / 2, MayMove::No),
        RemapRequest { from: Vpn::new(AT + 10), ..resize(1, 1, MayMove::No) },
    ] {
        let expect =
            if request.new_pages > 1 << 35 { SpaceError::Inval } else { SpaceError::Fault };
        assert_eq!(error(request), expect, "{request:?}");
    }
    assert_eq!(error(resize(10, 13, MayMove::No)), SpaceError::NoMemory);
    assert_eq!(error(resize(5, 6, MayMove::No)), SpaceError::NoMemory);
    let most = VmaRange::USER.pages();
    assert_eq!(error(resize(10, most, MayMove::Anywhere)), SpaceError::NoMemory);
    assert_eq!(error(resize(10, 10, MayMove::To(Vpn::new(3)))), SpaceError::Perm);
    assert_eq!(space.vmas().len(), 2);
    machine.exit(space);
    machine.end();
}

#[test]
fn mremap_grows_in_place_or_moves() {
    for policy in POLICIES {
        let machine = Machine::boot(1, |config| config.lru = policy);
        let space = machine.space();
        map(&machine, &space, AT, 5);
        map(&machine, &space, AT + 8, 1);
        fill(&machine, &space, AT, 5, 50);
        assert_eq!(remap(&machine, &space, resize(5, 8, MayMove::No)), Ok(AT));
        assert_eq!(space.vmas().len(), 1, "it has grown up to its neighbour, which is alike");
        assert_eq!(machine.read(&space, AT + 7), Ok(0));
        let to = remap(&machine, &space, resize(5, 700, MayMove::Anywhere)).expect("room");
        assert_ne!(to, AT);
        assert_eq!(machine.read(&space, AT), Err(FaultError::Segv));
        assert_eq!(machine.read(&space, AT + 5), Ok(0), "the rest stays");
        assert_eq!([0, 4, 5].map(|page| machine.read(&space, to + page)), [Ok(50), Ok(54), Ok(0)]);
        let shrink = RemapRequest { from: Vpn::new(to), ..resize(700, 2, MayMove::No) };
        assert_eq!(remap(&machine, &space, shrink), Ok(to));
        assert_eq!(machine.read(&space, to + 1), Ok(51));
        assert_eq!(machine.read(&space, to + 2), Err(FaultError::Segv));
        machine.check();
        machine.exit(space);
        machine.end();
    }
}

#[test]
fn mremap_moves_onto_others_and_back() {
    let machine = Machine::stock();
    let space = machine.space();
    map(&machine, &space, AT, 6);
    map(&machine, &space, TO - 2, 10);
    fill(&machine, &space, AT, 6, 50);
    fill(&machine, &space, TO - 2, 10, 70);
    assert_eq!(remap(&machine, &space, resize(6, 4, HERE)), Ok(TO));
    let expect = [71, 50, 51, 52, 53, 76].map(Ok);
    assert_eq!([0, 1, 2, 3, 4, 5].map(|page| machine.read(&space, TO - 1 + page)), expect);
    assert_eq!(space.vmas().len(), 3, "moved pages are not one VMA with those around");
    assert!((0..6).all(|page| machine.read(&space, AT + page) == Err(FaultError::Segv)));
    map(&machine, &space, AT + 4, 2);
    let back = MayMove::To(Vpn::new(AT));
    let request = RemapRequest { from: Vpn::new(TO), ..resize(4, 4, back) };
    assert_eq!(remap(&machine, &space, request), Ok(AT));
    assert_eq!(space.vmas().len(), 3, "back where they were first, they are one with the rest");
    assert_eq!(machine.read(&space, AT + 3), Ok(53));
    machine.check();
    machine.exit(space);
    machine.end();
}

#[test]
fn mremap_may_leave_an_empty_mapping() {
    let machine = Machine::stock();
    let (on, space) = (machine.on(), machine.space());
    map(&machine, &space, AT, 4);
    fill(&machine, &space, AT, 4, 50);
    assert_eq!(space.mlock(on, range(AT, 4), LockWhat::Everything), Ok(()));
    let to = remap(&machine, &space, resize(4, 4, MayMove::Leave)).expect("there is room");
    assert_eq!(machine.mincore(&space, AT, 4), [false; 4]);
    assert_eq!([0, 3].map(|page| machine.read(&space, to + page)), [Ok(50), Ok(53)]);
    assert_eq!(machine.read(&space, AT + 3), Ok(0));
    assert_eq!(space.pages(), (8, 4), "the lock has gone with the pages");
    machine.check();
    machine.exit(space);
    machine.end();
}

#[test]
fn growing_locked_memory_is_limited_and_populated() {
    let machine = Machine::boot(1, |config| config.space.memlock_pages = 8);
    let (on, space) = (machine.on(), machine.space());
    map(&machine, &space, AT, 4);
    assert_eq!(space.mlock(on, range(AT, 4), LockWhat::Everything), Ok(()));
    assert_eq!(remap(&machine, &space, resize(4, 9, MayMove::Anywhere)), Err(SpaceError::Again));
    assert_eq!(remap(&machine, &space, resize(4, 8, MayMove::No)), Ok(AT));
    assert_eq!(machine.mincore(&space, AT, 8), [true; 8]);
    assert_eq!(space.munlock(on, range(AT, 8)), Ok(()));
    machine.exit(space);
    machine.end();
}

#[test]
fn huge_pages_move_whole_or_in_pieces() {
    for (policy, to) in POLICIES.into_iter().zip([512 * 40, 512 * 40 + 7, 512 * 40]) {
        let machine = Machine::boot(1, |config| {
            config.lru = policy;
            config.space.huge = HugePages::Always;
        });
        let space = machine.space();
        let at = 512 * 8;
        map(&machine, &space, at, 1024);
        fill(&machine, &space, at, 1024, 1000);
        assert_eq!(machine.check().mapped, 2);
        // The second one is cut at its end.
        let request = RemapRequest {
            from: Vpn::new(at),
            old_pages: 1024,
            new_pages: 900,
            may_move: MayMove::To(Vpn::new(to)),
        };
        assert_eq!(remap(&machine, &space, request), Ok(to));
        let stamps = (0..900).map(|page| machine.read(&space, to + page));
        assert!(stamps.eq((1000..1900).map(Ok)));
        let mapped = if to.is_multiple_of(512) { 1 + 388 } else { 900 };
        assert_eq!(machine.check().mapped, mapped);
        machine.exit(space);
        machine.end();
    }
}

#[test]
fn after_a_fork_each_side_has_its_own() {
    for policy in POLICIES {
        let machine = Machine::boot(2, |config| config.lru = policy);
        let (on, parent) = (machine.on(), machine.space());
        map(&machine, &parent, AT, 8);
        fill(&machine, &parent, AT, 6, 50);
        machine.read(&parent, AT + 6).unwrap();
        let child = parent.fork(on).expect("there is memory");
        assert_eq!(machine.check().mapped, 12);
        machine.write(&parent, AT, 150).unwrap();
        machine.go_to(1);
        machine.write(&child, AT + 1, 151).unwrap();
        machine.write(&child, AT + 6, 156).unwrap();
        assert_eq!(
            [0, 1, 2, 6].map(|page| machine.read(&child, AT + page)),
            [50, 151, 52, 156].map(Ok)
        );
        machine.go_to(0);
        assert_eq!(
            [0, 1, 2, 6].map(|page| machine.read(&parent, AT + page)),
            [150, 51, 52, 0].map(Ok)
        );
        // A page stays mapped on one side when the other side unmaps it.
        assert_eq!(parent.munmap(on, range(AT + 2, 1)), Ok(()));
        assert_eq!(machine.read(&child, AT + 2), Ok(52));
        let grandchild = child.fork(on).expect("there is memory");
        machine.exit(child);
        machine.write(&grandchild, AT + 2, 252).unwrap();
        assert_eq!(machine.read(&grandchild, AT + 3), Ok(53));
        assert_eq!(machine.read(&parent, AT + 3), Ok(53));
        machine.check();
        machine.exit(parent);
        machine.write(&grandchild, AT + 3, 253).unwrap();
        machine.exit(grandchild);
        machine.end();
    }
}

#[test]
fn a_fork_into_another_of_the_groups_is_charged_there() {
    let machine = Machine::boot(1, |config| config.groups = 3);
    let (on, other) = (machine.on(), GroupId::new(2));
    let parent = machine.space();
    let at = parent.mmap(on, MapRequest::new(4)).expect("there is memory").get();
    (at..at + 4).for_each(|page| machine.write(&parent, page, 1).expect("there is memory"));
    let child = parent.fork_into(on, other).expect("there is memory");
    assert_eq!((parent.group(), child.group()), (GROUP, other));
    let charged = || {
        on.memory.groups.drain_stock();
        [GROUP, other].map(|group| on.memory.groups.usage(group))
    };
    assert_eq!(charged(), [4, 0]);
    // It copies two of the pages that it shares with its parent.
    (at..at + 2).for_each(|page| machine.write(&child, page, 2).expect("there is memory"));
    assert_eq!(charged(), [4, 2]);
    machine.check();
    machine.exit(child);
    machine.exit(parent);
    machine.end();
}

#[test]
fn fork_skips_dont_fork_and_wipes_wipe_on_fork() {
    let machine = Machine::stock();
    let (on, parent) = (machine.on(), machine.space());
    map(&machine, &parent, AT, 9);
    fill(&machine, &parent, AT, 9, 50);
    assert_eq!(parent.madvise(on, range(AT, 3), Advice::DontFork), Ok(()));
    assert_eq!(parent.madvise(on, range(AT + 3, 3), Advice::WipeOnFork), Ok(()));
    assert_eq!(parent.mlock(on, range(AT + 6, 3), LockWhat::OnFault), Ok(()));
    let child = parent.fork(on).expect("there is memory");
    assert_eq!(machine.read(&child, AT + 2), Err(FaultError::Segv));
    assert_eq!([3, 6].map(|page| machine.read(&child, AT + page)), [Ok(0), Ok(56)]);
    assert_eq!(child.pages(), (6, 0), "locks in memory are not inherited");
    assert_eq!(child.vmas()[0].flags, VmaFlags::WIPE_ON_FORK);
    machine.exit(child);
    machine.exit(parent);
    machine.end();
}

#[test]
fn a_huge_page_is_shared_and_then_copied_in_pieces() {
    for policy in POLICIES {
        let machine = Machine::boot(1, |config| {
            config.lru = policy;
            config.space.huge = HugePages::Always;
        });
        let (on, parent) = (machine.on(), machine.space());
        let at = 512 * 8;
        map(&machine, &parent, at, 512);
        fill(&machine, &parent, at, 512, 1000);
        let child = parent.fork(on).expect("there is memory");
        assert_eq!(machine.check().mapped, 2);
        machine.write(&child, at + 5, 1).unwrap();
        assert_eq!(machine.check().mapped, 1 + 512);
        let stamps = |space: &Space<Stepped>| -> u64 {
            (0..512).map(|page| machine.read(space, at + page).unwrap()).sum()
        };
        let sum = (1000..1512).sum::<u64>();
        assert_eq!((stamps(&parent), stamps(&child)), (sum, sum - 1005 + 1));
        machine.exit(child);
        // The only user again: the huge page need not be split.
        machine.write(&parent, at + 6, 2).unwrap();
        assert_eq!(machine.check().mapped, 1);
        machine.exit(parent);
        machine.end();
    }
}

#[test]
fn mbind_moves_pages_with_their_content() {
    for policy in POLICIES {
        let machine = Machine::boot(2, |config| config.lru = policy);
        let (on, space) = (machine.on(), machine.space());
        map(&machine, &space, AT, 40);
        fill(&machine, &space, AT, 20, 50);
        let there = NodeId::new(1);
        let nodes = |space: &Space<Stepped>| {
            (0..20).filter(|page| machine.node_of(space, AT + page) == there).count()
        };
        assert_eq!(nodes(&space), 0);
        let bind = |at, pages, present| space.mbind(on, range(at, pages), there, present);
        assert_eq!(bind(AT + 39, 2, Present::Move), Err(SpaceError::Fault));
        assert_eq!(bind(AT, 40, Present::Stay), Ok(0));
        assert_eq!(nodes(&space), 0);
        machine.write(&space, AT + 20, 70).unwrap();
        assert_eq!(machine.node_of(&space, AT + 20), there, "new pages come from there");
        // Another process has one of the pages too: it is not moved.
        let parent = space.mprotect(on, range(AT, 1), Prot::READ);
        assert_eq!(parent, Ok(()));
        assert_eq!(space.madvise(on, range(AT + 1, 39), Advice::DontFork), Ok(()));
        let child = space.fork(on).expect("there is memory");
        assert_eq!(bind(AT, 40, Present::Move), Ok(1));
        assert_eq!(nodes(&space), 19);
        let stamps = (0..21).map(|page| machine.read(&space, AT + page).unwrap());
        assert!(stamps.eq((50..70).chain([70])));
        machine.exit(child);
        machine.check();
        machine.exit(space);
        machine.end();
    }
}

#[test]
fn huge_pages_that_are_where_they_should_be_count_as_moved() {
    let machine = Machine::boot(2, |config| config.space.huge = HugePages::Always);
    let (on, space) = (machine.on(), machine.space());
    map(&machine, &space, 512 * 8, 512);
    machine.write(&space, 512 * 8, 1).unwrap();
    let bind = |node| space.mbind(on, range(512 * 8, 512), NodeId::new(node), Present::Move);
    assert_eq!(bind(0), Ok(0));
    assert_eq!(bind(1), Ok(512), "huge pages are not moved");
    machine.exit(space);
    machine.end();
}

#[test]
fn of_a_huge_page_a_part_may_be_shared_and_the_rest_written_to() {
    let machine = Machine::boot(1, |config| config.space.huge = HugePages::Always);
    let (on, parent, at) = (machine.on(), machine.space(), 512 * 8);
    map(&machine, &parent, at, 512);
    fill(&machine, &parent, at, 512, 1000);
    assert_eq!(parent.madvise(on, range(at, 100), Advice::DontFork), Ok(()));
    let child = parent.fork(on).expect("there is memory");
    machine.check();
    machine.write(&parent, at + 5, 1).unwrap();
    machine.write(&parent, at + 200, 2).unwrap();
    machine.write(&child, at + 201, 3).unwrap();
    machine.check();
    let stamps = |space: &Space<Stepped>| [5, 200, 201].map(|page| machine.read(space, at + page));
    assert_eq!(stamps(&parent), [Ok(1), Ok(2), Ok(1201)]);
    assert_eq!(stamps(&child), [Err(FaultError::Segv), Ok(1200), Ok(3)]);
    machine.exit(child);
    machine.exit(parent);
    machine.end();
}
