//! mprotect(2).

use super::{PAGES, check, fill, map, unmap};
use mmscale_system::{Errno, PAGE_BYTES, Prot, System};

const BYTES: u64 = PAGES * PAGE_BYTES;

pub(crate) fn reading_is_allowed_and_writing_is_not<S: System>(system: &S) {
    let at = map(system, PAGES);
    fill(system, at, PAGES, 100);
    for prot in [Prot::ReadExec, Prot::Read] {
        assert_eq!(system.mprotect(at, BYTES, prot), Ok(()));
        assert_eq!(system.write(at, 1), Err(Errno::Segv));
    }
    check(system, at, PAGES, 100);
    assert_eq!(system.mprotect(at, BYTES, Prot::ReadWrite), Ok(()));
    fill(system, at, PAGES, 200);
    check(system, at, PAGES, 200);
    unmap(system, at, PAGES);
}

pub(crate) fn nothing_is_allowed_until_it_is_again<S: System>(system: &S) {
    let at = map(system, PAGES);
    fill(system, at, PAGES, 100);
    assert_eq!(system.mprotect(at, BYTES, Prot::None), Ok(()));
    assert_eq!(system.read(at), Err(Errno::Segv));
    assert_eq!(system.write(at, 1), Err(Errno::Segv));
    assert_eq!(system.mprotect(at, BYTES, Prot::Read), Ok(()));
    check(system, at, PAGES, 100);
    unmap(system, at, PAGES);
}

pub(crate) fn a_hole_ends_it_and_what_comes_before_is_changed<S: System>(system: &S) {
    let at = map(system, PAGES);
    fill(system, at, PAGES, 100);
    unmap(system, at.page(4), 1);
    assert_eq!(system.mprotect(at, BYTES, Prot::Read), Err(Errno::Nomem));
    assert_eq!(system.write(at.page(3), 1), Err(Errno::Segv));
    assert_eq!(system.write(at.page(5), 1), Ok(()));
    assert_eq!(system.mprotect(at.page(4), PAGE_BYTES, Prot::Read), Err(Errno::Nomem));
    assert_eq!(system.mprotect(at.offset(1), PAGE_BYTES, Prot::Read), Err(Errno::Inval));
    unmap(system, at, PAGES);
}

pub(crate) fn a_part_can_differ_from_the_rest<S: System>(system: &S) {
    let at = map(system, PAGES);
    fill(system, at, PAGES, 100);
    assert_eq!(system.mprotect(at.page(2), 2 * PAGE_BYTES, Prot::Read), Ok(()));
    for page in 0..PAGES {
        let allowed = !(2..4).contains(&page);
        let expected = if allowed { Ok(()) } else { Err(Errno::Segv) };
        assert_eq!(system.write(at.page(page), 100 + page), expected, "page {page}");
    }
    assert_eq!(system.mprotect(at, BYTES, Prot::ReadWrite), Ok(()));
    check(system, at, PAGES, 100);
    unmap(system, at, PAGES);
}
