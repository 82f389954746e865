//! mremap(2).

use super::{PAGES, check, check_gone, check_zero, fill, map, map_apart, unmap};
use mmscale_system::{Errno, MapSpec, MayMove, PAGE_BYTES, Place, System};

const BYTES: u64 = PAGES * PAGE_BYTES;

pub(crate) fn shrinking_cuts_the_end_off<S: System>(system: &S) {
    let at = map(system, PAGES);
    fill(system, at, PAGES, 100);
    assert_eq!(system.mremap(at, BYTES, 3 * PAGE_BYTES, MayMove::No), Ok(at));
    check(system, at, 3, 100);
    check_gone(system, at.page(3), PAGES - 3);
    unmap(system, at, 3);
}

pub(crate) fn growing_adds_zeros<S: System>(system: &S) {
    let at = map_apart(system, PAGES, PAGES);
    fill(system, at, PAGES, 100);
    assert_eq!(system.mremap(at, BYTES, 2 * BYTES, MayMove::No), Ok(at));
    check(system, at, PAGES, 100);
    check_zero(system, at.page(PAGES), PAGES);
    unmap(system, at, 2 * PAGES);
}

pub(crate) fn growing_where_there_is_no_room_needs_leave_to_move<S: System>(system: &S) {
    let at = map_apart(system, PAGES, PAGES);
    fill(system, at, PAGES, 100);
    let wall = MapSpec::new(PAGE_BYTES).at(Place::Fixed(at.page(PAGES)));
    let wall = wall.prot(mmscale_system::Prot::Read);
    assert_eq!(system.mmap(wall), Ok(at.page(PAGES)));
    assert_eq!(system.mremap(at, BYTES, 2 * BYTES, MayMove::No), Err(Errno::Nomem));
    check(system, at, PAGES, 100);
    let new = system.mremap(at, BYTES, 2 * BYTES, MayMove::Anywhere).expect("there is room");
    assert_ne!(new, at);
    check(system, new, PAGES, 100);
    check_zero(system, new.page(PAGES), PAGES);
    check_gone(system, at, PAGES);
    unmap(system, new, 2 * PAGES);
    unmap(system, at.page(PAGES), 1);
}

pub(crate) fn moving_carries_the_content<S: System>(system: &S) {
    let to = map(system, PAGES);
    unmap(system, to, PAGES);
    let at = map_apart(system, PAGES, PAGES);
    fill(system, at, PAGES, 100);
    let target = if to == at { to.page(2 * PAGES) } else { to };
    let to = to_free(system, target);
    // A page in the middle of the mapping moves, and the rest stays.
    assert_eq!(system.mremap(at.page(3), PAGE_BYTES, PAGE_BYTES, MayMove::To(to)), Ok(to));
    check(system, to, 1, 103);
    check(system, at, 3, 100);
    check_gone(system, at.page(3), 1);
    check(system, at.page(4), 4, 104);
    unmap(system, at, PAGES);
    unmap(system, to, 1);
}

/// Returns a free place for some pages: `hint` or another one.
fn to_free<S: System>(system: &S, hint: mmscale_system::Addr) -> mmscale_system::Addr {
    let spec = MapSpec::new(BYTES).at(Place::Hint(hint));
    let at = system.mmap(spec).expect("there is room");
    unmap(system, at, PAGES);
    at
}

pub(crate) fn moving_onto_something_replaces_it<S: System>(system: &S) {
    let (at, to) = (map_apart(system, PAGES, 1), map_apart(system, PAGES, 1));
    fill(system, at, PAGES, 100);
    fill(system, to, PAGES, 200);
    let three = 3 * PAGE_BYTES;
    assert_eq!(system.mremap(at, three, three, MayMove::To(to.page(2))), Ok(to.page(2)));
    check(system, to, 2, 200);
    check(system, to.page(2), 3, 100);
    check(system, to.page(5), 3, 205);
    unmap(system, at, PAGES);
    unmap(system, to, PAGES);
}

pub(crate) fn moving_onto_itself_is_refused<S: System>(system: &S) {
    let at = map(system, PAGES);
    fill(system, at, PAGES, 100);
    let two = 2 * PAGE_BYTES;
    assert_eq!(system.mremap(at, two, two, MayMove::To(at.page(1))), Err(Errno::Inval));
    assert_eq!(system.mremap(at, two, two, MayMove::To(at.offset(7))), Err(Errno::Inval));
    check(system, at, PAGES, 100);
    unmap(system, at, PAGES);
}

pub(crate) fn an_unmapped_range_cannot_be_moved<S: System>(system: &S) {
    let at = map_apart(system, PAGES, PAGES);
    unmap(system, at.page(4), 4);
    let grown = system.mremap(at, BYTES, 2 * BYTES, MayMove::Anywhere);
    assert_eq!(grown, Err(Errno::Fault), "a part of it is not mapped");
    let moved = system.mremap(at.page(5), PAGE_BYTES, 2 * PAGE_BYTES, MayMove::Anywhere);
    assert_eq!(moved, Err(Errno::Fault));
    unmap(system, at, 4);
}

pub(crate) fn what_is_left_behind_is_empty<S: System>(system: &S) {
    let at = map(system, PAGES);
    fill(system, at, PAGES, 100);
    let new = system.mremap(at, BYTES, BYTES, MayMove::Leave).expect("there is room");
    assert_ne!(new, at);
    check(system, new, PAGES, 100);
    check_zero(system, at, PAGES);
    fill(system, at, PAGES, 200);
    check(system, new, PAGES, 100);
    assert_eq!(system.mremap(at, BYTES, 2 * BYTES, MayMove::Leave), Err(Errno::Inval));
    unmap(system, at, PAGES);
    unmap(system, new, PAGES);
}

pub(crate) fn no_size_is_no_mapping<S: System>(system: &S) {
    let at = map(system, 1);
    assert_eq!(system.mremap(at, PAGE_BYTES, 0, MayMove::No), Err(Errno::Inval));
    assert_eq!(system.mremap(at.offset(1), PAGE_BYTES, 1, MayMove::No), Err(Errno::Inval));
    unmap(system, at, 1);
}
