//! mmap(2), munmap(2), mincore(2).

use super::{PAGES, check, check_gone, check_zero, fill, map, map_apart, unmap};
use mmscale_system::{Addr, Errno, MapSpec, MayMove, PAGE_BYTES, Place, System};

pub(crate) fn memory_is_zero_and_keeps_what_is_written<S: System>(system: &S) {
    let at = map(system, PAGES);
    check_zero(system, at, PAGES);
    fill(system, at, PAGES, 100);
    check(system, at, PAGES, 100);
    unmap(system, at, PAGES);
    check_gone(system, at, PAGES);
}

pub(crate) fn populated_memory_is_there_and_zero<S: System>(system: &S) {
    let bytes = PAGES * PAGE_BYTES;
    let at = system.mmap(MapSpec::populated(bytes)).expect("there is room");
    assert_eq!(system.mincore(at, bytes), Ok(vec![true; PAGES as usize]));
    check_zero(system, at, PAGES);
    unmap(system, at, PAGES);
}

pub(crate) fn lengths_round_up_and_nothing_is_refused<S: System>(system: &S) {
    let at = system.mmap(MapSpec::new(PAGE_BYTES + 1)).expect("there is room");
    fill(system, at, 2, 5);
    assert_eq!(system.munmap(at, PAGE_BYTES + 1), Ok(()));
    check_gone(system, at, 2);
    assert_eq!(system.mmap(MapSpec::new(0)), Err(Errno::Inval));
    assert_eq!(system.munmap(at, 0), Err(Errno::Inval));
}

pub(crate) fn fixed_replaces_and_free_does_not<S: System>(system: &S) {
    let at = map(system, PAGES);
    fill(system, at, PAGES, 100);
    let two = MapSpec::new(2 * PAGE_BYTES);
    assert_eq!(system.mmap(two.at(Place::Free(at.page(3)))), Err(Errno::Exist));
    check(system, at, PAGES, 100);
    assert_eq!(system.mmap(two.at(Place::Fixed(at.page(3)))), Ok(at.page(3)));
    check(system, at, 3, 100);
    check_zero(system, at.page(3), 2);
    check(system, at.page(5), 3, 105);
    unmap(system, at.page(3), 2);
    assert_eq!(system.mmap(two.at(Place::Free(at.page(3)))), Ok(at.page(3)));
    unmap(system, at, PAGES);
}

pub(crate) fn hints_are_taken_where_there_is_room<S: System>(system: &S) {
    let at = map_apart(system, 1, PAGES);
    let hint = at.page(2);
    assert_eq!(system.mmap(MapSpec::new(PAGE_BYTES).at(Place::Hint(hint))), Ok(hint));
    let other = system.mmap(MapSpec::new(PAGE_BYTES).at(Place::Hint(hint)));
    let other = other.expect("there is room elsewhere");
    assert_ne!(other, hint);
    [at, hint, other].into_iter().for_each(|page| unmap(system, page, 1));
}

pub(crate) fn unmapping_a_hole_is_no_error<S: System>(system: &S) {
    let at = map(system, PAGES);
    unmap(system, at, PAGES);
    unmap(system, at, PAGES);
}

pub(crate) fn unmapping_the_middle_leaves_both_ends<S: System>(system: &S) {
    let at = map(system, PAGES);
    fill(system, at, PAGES, 100);
    unmap(system, at.page(2), 3);
    check(system, at, 2, 100);
    check_gone(system, at.page(2), 3);
    check(system, at.page(5), 3, 105);
    unmap(system, at, PAGES);
}

pub(crate) fn unaligned_addresses_are_refused<S: System>(system: &S) {
    let at = map(system, 2);
    let inside = at.offset(8);
    assert_eq!(system.munmap(inside, PAGE_BYTES), Err(Errno::Inval));
    let fixed = MapSpec::new(PAGE_BYTES).at(Place::Fixed(inside));
    assert_eq!(system.mmap(fixed), Err(Errno::Inval));
    assert_eq!(system.mincore(inside, PAGE_BYTES), Err(Errno::Inval));
    unmap(system, at, 2);
}

pub(crate) fn memory_that_was_unmapped_is_zero_when_it_comes_back<S: System>(system: &S) {
    for round in 1..50 {
        let at = map(system, PAGES);
        check_zero(system, at, PAGES);
        fill(system, at, PAGES, round * 1000);
        unmap(system, at, PAGES);
    }
}

pub(crate) fn too_much_is_refused<S: System>(system: &S) {
    assert_eq!(system.mmap(MapSpec::new(1 << 60)), Err(Errno::Nomem));
    let beyond = Place::Fixed(Addr(1 << 62));
    assert_eq!(system.mmap(MapSpec::new(PAGE_BYTES).at(beyond)), Err(Errno::Nomem));
}

/// mmap(2): EPERM below `vm.mmap_min_addr`, unless the caller has CAP_SYS_RAWIO; a hint there
/// becomes the first address that is allowed. Processors that can reach the last page of the lower
/// half keep it empty: a mapping there is ENOMEM.
pub(crate) fn the_lowest_and_the_last_page_are_refused<S: System>(system: &S) {
    let one = MapSpec::new(PAGE_BYTES);
    for place in [Place::Fixed(Addr(0)), Place::Free(Addr(PAGE_BYTES))] {
        assert_eq!(system.mmap(one.at(place)), Err(Errno::Perm), "{place:?}");
    }
    let at = map(system, 1);
    let move_to = MayMove::To(Addr(PAGE_BYTES));
    assert_eq!(system.mremap(at, PAGE_BYTES, PAGE_BYTES, move_to), Err(Errno::Perm));
    check_zero(system, at, 1);
    unmap(system, at, 1);
    let hinted = system.mmap(one.at(Place::Hint(Addr(PAGE_BYTES)))).expect("there is room");
    assert!(hinted.0 > PAGE_BYTES, "{hinted:?}");
    unmap(system, hinted, 1);
    let last = Addr((1 << 47) - PAGE_BYTES);
    assert_eq!(system.mmap(one.at(Place::Fixed(last))), Err(Errno::Nomem));
    let before = Addr(last.0 - PAGE_BYTES);
    assert_eq!(system.mmap(one.at(Place::Free(before))), Ok(before));
    unmap(system, before, 1);
}

pub(crate) fn mincore_tells_what_is_there<S: System>(system: &S) {
    let at = map(system, 4);
    let bytes = 4 * PAGE_BYTES;
    assert_eq!(system.mincore(at, bytes), Ok(vec![false; 4]));
    assert_eq!(system.write(at.page(1), 7), Ok(()));
    assert_eq!(system.mincore(at, bytes), Ok(vec![false, true, false, false]));
    unmap(system, at.page(3), 1);
    assert_eq!(system.mincore(at, bytes), Err(Errno::Nomem));
    unmap(system, at, 3);
}

pub(crate) fn zoneinfo_can_be_read_at_any_time<S: System>(system: &S) {
    let at = map(system, 4);
    assert_eq!(system.zoneinfo(), Ok(()));
    assert_eq!(system.write(at.page(1), 7), Ok(()));
    assert_eq!(system.zoneinfo(), Ok(()));
    assert_eq!(system.read(at.page(1)), Ok(7));
    unmap(system, at, 4);
}
