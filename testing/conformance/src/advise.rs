//! madvise(2).

use super::{PAGES, check, check_zero, fill, map, unmap};
use mmscale_system::{
    Advice, Errno, HUGE_BYTES, LockWhat, MapSpec, PAGE_BYTES, Place, Prot, System,
};

const BYTES: u64 = PAGES * PAGE_BYTES;

pub(crate) fn dontneed_gives_zeros<S: System>(system: &S) {
    let at = map(system, PAGES);
    fill(system, at, PAGES, 100);
    assert_eq!(system.madvise(at.page(2), 3 * PAGE_BYTES, Advice::DontNeed), Ok(()));
    check(system, at, 2, 100);
    check_zero(system, at.page(2), 3);
    check(system, at.page(5), 3, 105);
    unmap(system, at, PAGES);
}

pub(crate) fn free_gives_the_old_content_or_zeros<S: System>(system: &S) {
    let at = map(system, PAGES);
    fill(system, at, PAGES, 100);
    assert_eq!(system.madvise(at, BYTES, Advice::Free), Ok(()));
    for page in 0..PAGES {
        let found = system.read(at.page(page));
        assert!(found == Ok(0) || found == Ok(100 + page), "page {page}: {found:?}");
    }
    unmap(system, at, PAGES);
}

pub(crate) fn what_is_written_after_free_stays<S: System>(system: &S) {
    let at = map(system, PAGES);
    fill(system, at, PAGES, 100);
    assert_eq!(system.madvise(at, BYTES, Advice::Free), Ok(()));
    fill(system, at, PAGES, 200);
    assert_eq!(system.madvise(at, BYTES, Advice::PageOut), Ok(()));
    check(system, at, PAGES, 200);
    unmap(system, at, PAGES);
}

pub(crate) fn cold_and_pageout_keep_the_content<S: System>(system: &S) {
    for advice in [Advice::Cold, Advice::PageOut, Advice::WillNeed] {
        let at = map(system, PAGES);
        fill(system, at, PAGES - 1, 100);
        assert_eq!(system.madvise(at, BYTES, advice), Ok(()), "{advice:?}");
        check(system, at, PAGES - 1, 100);
        check_zero(system, at.page(PAGES - 1), 1);
        fill(system, at, PAGES, 300);
        assert_eq!(system.madvise(at, BYTES, advice), Ok(()), "{advice:?}");
        fill(system, at, PAGES, 400);
        check(system, at, PAGES, 400);
        unmap(system, at, PAGES);
    }
}

pub(crate) fn populating_brings_pages_in<S: System>(system: &S) {
    for advice in [Advice::PopulateRead, Advice::PopulateWrite] {
        let at = map(system, PAGES);
        assert_eq!(system.write(at.page(1), 7), Ok(()));
        assert_eq!(system.madvise(at, BYTES, advice), Ok(()), "{advice:?}");
        assert_eq!(system.mincore(at, BYTES), Ok(vec![true; PAGES as usize]), "{advice:?}");
        assert_eq!(system.read(at.page(1)), Ok(7));
        check_zero(system, at, 1);
        unmap(system, at, PAGES);
    }
}

pub(crate) fn populating_what_may_not_be_written_is_refused<S: System>(system: &S) {
    let at = map(system, PAGES);
    assert_eq!(system.mprotect(at, BYTES, Prot::Read), Ok(()));
    assert_eq!(system.madvise(at, BYTES, Advice::PopulateWrite), Err(Errno::Inval));
    assert_eq!(system.madvise(at, BYTES, Advice::PopulateRead), Ok(()));
    unmap(system, at.page(1), 1);
    assert_eq!(system.madvise(at, BYTES, Advice::PopulateRead), Err(Errno::Nomem));
    unmap(system, at, PAGES);
}

pub(crate) fn holes_are_told_of_and_the_rest_is_done<S: System>(system: &S) {
    let at = map(system, PAGES);
    fill(system, at, PAGES, 100);
    unmap(system, at.page(3), 1);
    assert_eq!(system.madvise(at, BYTES, Advice::DontNeed), Err(Errno::Nomem));
    check_zero(system, at, 3);
    check_zero(system, at.page(4), 4);
    assert_eq!(system.madvise(at.offset(9), PAGE_BYTES, Advice::Cold), Err(Errno::Inval));
    unmap(system, at, PAGES);
}

pub(crate) fn locked_memory_does_not_go<S: System>(system: &S) {
    let at = map(system, 2);
    fill(system, at, 2, 100);
    assert_eq!(system.mlock(at, 2 * PAGE_BYTES, LockWhat::Everything), Ok(()));
    for advice in [Advice::DontNeed, Advice::Cold, Advice::PageOut] {
        assert_eq!(system.madvise(at, PAGE_BYTES, advice), Err(Errno::Inval), "{advice:?}");
    }
    check(system, at, 2, 100);
    unmap(system, at, 2);
}

pub(crate) fn huge_pages_keep_the_content<S: System>(system: &S) {
    let spec = MapSpec::new(3 * HUGE_BYTES);
    let at = system.mmap(spec).expect("there is room");
    let pages = 3 * HUGE_BYTES / PAGE_BYTES;
    assert_eq!(system.madvise(at, 3 * HUGE_BYTES, Advice::HugePage), Ok(()));
    fill(system, at, pages, 1000);
    check(system, at, pages, 1000);
    // A hole in the middle, another mapping in it, and a part that is unmapped.
    unmap(system, at.page(700), 3);
    let two = MapSpec::new(2 * PAGE_BYTES).at(Place::Fixed(at.page(700)));
    assert_eq!(system.mmap(two), Ok(at.page(700)));
    assert_eq!(system.madvise(at, 5 * PAGE_BYTES, Advice::DontNeed), Ok(()));
    check_zero(system, at, 5);
    check(system, at.page(5), 695, 1005);
    check_zero(system, at.page(700), 2);
    check(system, at.page(703), pages - 703, 1703);
    let collapsed = system.madvise(at, 3 * HUGE_BYTES, Advice::Collapse);
    assert!(collapsed.is_err(), "there is a hole: {collapsed:?}");
    check(system, at.page(5), 695, 1005);
    check(system, at.page(703), pages - 703, 1703);
    unmap(system, at, pages);
}

/// madvise(2): ENOMEM where nothing is mapped, for a range of any length; EINVAL for memory that
/// cannot have a huge page.
pub(crate) fn nothing_to_collapse_is_no_memory<S: System>(system: &S) {
    let at = map(system, PAGES);
    assert_eq!(system.madvise(at, BYTES, Advice::Collapse), Err(Errno::Inval));
    unmap(system, at, PAGES);
    assert_eq!(system.madvise(at, BYTES, Advice::Collapse), Err(Errno::Nomem));
    let at = system.mmap(MapSpec::new(2 * HUGE_BYTES)).expect("there is room");
    let pages = 2 * HUGE_BYTES / PAGE_BYTES;
    unmap(system, at, pages);
    assert_eq!(system.madvise(at, 2 * HUGE_BYTES, Advice::Collapse), Err(Errno::Nomem));
}

/// Advice that only changes how the kernel treats the mapping: for a part of it, then for another.
/// The content stays, and a hole is reported after the rest was advised.
pub(crate) fn advice_about_use_keeps_the_content<S: System>(system: &S) {
    let kinds = [
        Advice::Normal,
        Advice::Random,
        Advice::Sequential,
        Advice::Mergeable,
        Advice::Unmergeable,
        Advice::DontDump,
        Advice::DoDump,
    ];
    let at = map(system, PAGES);
    fill(system, at, PAGES, 100);
    for (first, second) in kinds.iter().flat_map(|&a| kinds.map(|b| (a, b))) {
        for (page, advice) in [(2, first), (3, second), (1, Advice::Normal)] {
            let done = system.madvise(at.page(page), 3 * PAGE_BYTES, advice);
            assert!(is_done(advice, done, Ok(())), "{advice:?}: {done:?}");
        }
        check(system, at, PAGES, 100);
        fill(system, at, PAGES, 100);
    }
    unmap(system, at.page(4), 1);
    for advice in kinds {
        let done = system.madvise(at, BYTES, advice);
        assert!(is_done(advice, done, Err(Errno::Nomem)), "{advice:?}: {done:?}");
        let unaligned = system.madvise(at.offset(9), PAGE_BYTES, advice);
        assert_eq!(unaligned, Err(Errno::Inval), "{advice:?}");
    }
    check(system, at, 4, 100);
    check(system, at.page(5), PAGES - 5, 105);
    unmap(system, at, PAGES);
}

/// Whether the result of advice is as expected. A kernel without KSM refuses two kinds.
fn is_done(advice: Advice, done: Result<(), Errno>, expected: Result<(), Errno>) -> bool {
    let of_ksm = matches!(advice, Advice::Mergeable | Advice::Unmergeable);
    done == expected || of_ksm && done == Err(Errno::Inval)
}

pub(crate) fn no_bytes_are_no_error<S: System>(system: &S) {
    let at = map(system, 1);
    for advice in Advice::ALL {
        let done = system.madvise(at, 0, advice);
        assert!(is_done(advice, done, Ok(())), "{advice:?}: {done:?}");
    }
    unmap(system, at, 1);
}
