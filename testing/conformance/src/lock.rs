//! mlock(2), munlock(2), mbind(2).

use super::{PAGES, check, fill, map, unmap};
use mmscale_system::{Errno, LockWhat, MapSpec, PAGE_BYTES, Populate, Present, Prot, System};

const BYTES: u64 = PAGES * PAGE_BYTES;

pub(crate) fn locked_memory_is_there<S: System>(system: &S) {
    let at = map(system, PAGES);
    assert_eq!(system.write(at, 7), Ok(()));
    assert_eq!(system.mlock(at.offset(5), BYTES - 5, LockWhat::Everything), Ok(()));
    assert_eq!(system.mincore(at, BYTES), Ok(vec![true; PAGES as usize]));
    assert_eq!(system.read(at), Ok(7));
    unmap(system, at, PAGES);
    let spec = MapSpec { populate: Populate::Locked, ..MapSpec::new(BYTES) };
    let at = system.mmap(spec).expect("there is room");
    assert_eq!(system.mincore(at, BYTES), Ok(vec![true; PAGES as usize]));
    unmap(system, at, PAGES);
    let at = map(system, PAGES);
    assert_eq!(system.mlock(at, BYTES, LockWhat::OnFault), Ok(()));
    assert_eq!(system.mincore(at, BYTES), Ok(vec![false; PAGES as usize]));
    fill(system, at, PAGES, 100);
    check(system, at, PAGES, 100);
    unmap(system, at, PAGES);
}

pub(crate) fn the_limit_holds<S: System>(system: &S) {
    // Far above any usual limit. None of it is accessible, so it may be more than there is memory.
    let bytes = 1 << 40;
    let at = system.mmap(MapSpec::new(bytes).prot(Prot::None)).expect("there is room");
    let refused = system.mlock(at, bytes, LockWhat::OnFault);
    assert!(matches!(refused, Err(Errno::Nomem | Errno::Perm)), "{refused:?}");
    assert_eq!(system.munmap(at, bytes), Ok(()));
}

pub(crate) fn a_hole_cannot_be_locked<S: System>(system: &S) {
    let at = map(system, 4);
    unmap(system, at.page(2), 1);
    let locked = system.mlock(at, 4 * PAGE_BYTES, LockWhat::Everything);
    assert_eq!(locked, Err(Errno::Nomem));
    assert_eq!(system.munlock(at, 4 * PAGE_BYTES), Err(Errno::Nomem));
    assert_eq!(system.munlock(at, 2 * PAGE_BYTES), Ok(()));
    unmap(system, at, 4);
}

pub(crate) fn munlock_lets_go<S: System>(system: &S) {
    let at = map(system, PAGES);
    fill(system, at, PAGES, 100);
    assert_eq!(system.mlock(at, BYTES, LockWhat::Everything), Ok(()));
    assert_eq!(system.munlock(at.page(2), PAGE_BYTES), Ok(()));
    let let_go = system.madvise(at.page(2), PAGE_BYTES, mmscale_system::Advice::DontNeed);
    assert_eq!(let_go, Ok(()));
    assert_eq!(system.read(at.page(2)), Ok(0));
    let held = system.madvise(at.page(3), PAGE_BYTES, mmscale_system::Advice::DontNeed);
    assert_eq!(held, Err(Errno::Inval));
    assert_eq!(system.munlock(at, BYTES), Ok(()));
    unmap(system, at, PAGES);
}

pub(crate) fn binding_moves_pages_and_keeps_the_content<S: System>(system: &S) {
    let at = map(system, PAGES);
    fill(system, at, PAGES, 100);
    for node in (0..system.nodes()).rev() {
        assert_eq!(system.mbind(at, BYTES, node, Present::Move), Ok(()), "node {node}");
        check(system, at, PAGES, 100);
        fill(system, at, PAGES, 100);
    }
    assert_eq!(system.mbind(at.page(1), PAGE_BYTES, 0, Present::Stay), Ok(()));
    check(system, at, PAGES, 100);
    unmap(system, at.page(4), 1);
    assert_eq!(system.mbind(at, BYTES, 0, Present::Move), Err(Errno::Fault));
    unmap(system, at, PAGES);
}

pub(crate) fn an_unknown_node_is_refused<S: System>(system: &S) {
    let at = map(system, 1);
    let node = system.nodes() + 7;
    assert_eq!(system.mbind(at, PAGE_BYTES, node, Present::Stay), Err(Errno::Inval));
    assert_eq!(system.mbind(at.offset(1), PAGE_BYTES, 0, Present::Stay), Err(Errno::Inval));
    unmap(system, at, 1);
}
