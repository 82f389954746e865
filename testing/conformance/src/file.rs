//! mmap(2) of files, and other calls on such mappings.

use super::{PAGES, check, check_gone, check_zero, fill, unmap};
use mmscale_system::{
    Addr, Advice, Backing, Errno, Exit, Fd, MapSpec, MayMove, PAGE_BYTES, Prot, Share, System,
    ThreadSpec,
};

const BYTES: u64 = PAGES * PAGE_BYTES;

fn new<S: System>(system: &S) -> Fd {
    system.file(BYTES, Backing::Memory).expect("there is memory")
}

/// Maps `pages` pages of a file, starting at its page `from`.
fn map<S: System>(system: &S, fd: Fd, from: u64, pages: u64, share: Share) -> Addr {
    let spec = MapSpec::new(pages * PAGE_BYTES).of(fd, from * PAGE_BYTES, share);
    system.mmap(spec).expect("there is room")
}

fn shared<S: System>(system: &S, fd: Fd) -> Addr {
    map(system, fd, 0, PAGES, Share::Shared)
}

fn private<S: System>(system: &S, fd: Fd) -> Addr {
    map(system, fd, 0, PAGES, Share::Private)
}

pub(crate) fn what_is_written_to_a_shared_mapping_is_seen_in_all<S: System>(system: &S) {
    let fd = new(system);
    let (one, two) = (shared(system, fd), shared(system, fd));
    check_zero(system, one, PAGES);
    fill(system, one, PAGES, 100);
    check(system, two, PAGES, 100);
    // A mapping that was never touched, and one of a part of the file.
    let (late, part) = (private(system, fd), map(system, fd, 3, 2, Share::Shared));
    check(system, late, PAGES, 100);
    check(system, part, 2, 103);
    assert_eq!(system.write(part, 7), Ok(()));
    assert_eq!(system.read(one.page(3)), Ok(7));
    [one, two, late].into_iter().for_each(|at| unmap(system, at, PAGES));
    // The file keeps it.
    let again = shared(system, fd);
    assert_eq!((system.read(again), system.read(again.page(3))), (Ok(100), Ok(7)));
    unmap(system, again, PAGES);
    assert_eq!(system.close(fd), Ok(()));
    // A mapping works without the descriptor.
    assert_eq!(system.read(part.page(1)), Ok(104));
    unmap(system, part, 2);
}

pub(crate) fn what_is_written_to_a_private_mapping_stays_there<S: System>(system: &S) {
    let fd = new(system);
    let (all, own) = (shared(system, fd), private(system, fd));
    fill(system, all, PAGES, 100);
    // One page was read before it is written, the others were not.
    check(system, own, 1, 100);
    fill(system, own, 4, 200);
    check(system, own, 4, 200);
    check(system, own.page(4), PAGES - 4, 104);
    check(system, all, PAGES, 100);
    fill(system, all, 4, 300);
    check(system, own, 4, 200);
    // A page that was dropped is read from the file again.
    assert_eq!(system.madvise(own, 2 * PAGE_BYTES, Advice::DontNeed), Ok(()));
    check(system, own, 2, 300);
    check(system, own.page(2), 2, 202);
    assert_eq!(system.madvise(all, BYTES, Advice::DontNeed), Ok(()));
    check(system, all, 4, 300);
    unmap(system, all, PAGES);
    unmap(system, own, PAGES);
    assert_eq!(system.close(fd), Ok(()));
}

pub(crate) fn a_fork_shares_what_is_shared_and_no_more<S: System>(system: &S) {
    let fd = new(system);
    let (all, own) = (shared(system, fd), private(system, fd));
    fill(system, all, 4, 100);
    fill(system, own, 2, 200);
    let child = move |system: &S| {
        check(system, all, 4, 100);
        check(system, own, 2, 200);
        check(system, own.page(2), 2, 102);
        fill(system, all.page(2), PAGES - 2, 300);
        fill(system, own, 1, 400);
        let late = private(system, fd);
        check(system, late.page(2), PAGES - 2, 300);
    };
    let spec = ThreadSpec::on(system.cpus() - 1);
    let child = system.fork(spec, Box::new(child)).expect("there is memory");
    assert_eq!(system.wait(child), Ok(Exit::Returned));
    check(system, all, 2, 100);
    check(system, all.page(2), PAGES - 2, 300);
    check(system, own, 2, 200);
    unmap(system, all, PAGES);
    unmap(system, own, PAGES);
    assert_eq!(system.close(fd), Ok(()));
}

pub(crate) fn a_new_process_has_the_files<S: System>(system: &S) {
    let fd = new(system);
    let all = shared(system, fd);
    fill(system, all, 4, 100);
    let (own, spec) = (system.own_process(), ThreadSpec::on(system.cpus() - 1));
    let pidfd = system.pidfd_open(own).expect("it lives");
    let child = move |system: &S| {
        check_gone(system, all, PAGES);
        let late = shared(system, fd);
        check(system, late, 4, 100);
        fill(system, late, 2, 200);
        assert_eq!(system.close(pidfd), Err(Errno::Badf));
        assert_eq!(system.close(fd), Ok(()));
    };
    let child = system.process(spec, Box::new(child)).expect("there is memory");
    assert_eq!(system.wait(child), Ok(Exit::Returned));
    check(system, all, 2, 200);
    check(system, all.page(2), 2, 102);
    unmap(system, all, PAGES);
    assert_eq!((system.close(fd), system.close(pidfd)), (Ok(()), Ok(())));
}

pub(crate) fn beyond_the_end_there_is_nothing<S: System>(system: &S) {
    let fd = system.file(PAGE_BYTES + 1, Backing::Memory).expect("there is memory");
    for share in [Share::Private, Share::Shared] {
        let at = map(system, fd, 0, 4, share);
        fill(system, at, 2, 100);
        assert_eq!(system.read(at.page(2)), Err(Errno::Bus));
        assert_eq!(system.write(at.page(3), 7), Err(Errno::Bus));
        check(system, at, 2, 100);
        unmap(system, at, 4);
    }
    let beyond = map(system, fd, 5, 1, Share::Shared);
    assert_eq!(system.read(beyond), Err(Errno::Bus));
    unmap(system, beyond, 1);
    assert_eq!(system.close(fd), Ok(()));
}

pub(crate) fn what_is_no_part_of_a_file_is_refused<S: System>(system: &S) {
    let fd = new(system);
    let spec = MapSpec::new(BYTES);
    let pidfd = system.pidfd_open(system.own_process()).expect("it is there");
    assert_eq!(system.mmap(spec.of(Fd(999), 0, Share::Shared)), Err(Errno::Badf));
    assert_eq!(system.mmap(spec.of(pidfd, 0, Share::Shared)), Err(Errno::Nodev));
    assert_eq!(system.mmap(spec.of(fd, 1, Share::Shared)), Err(Errno::Inval));
    assert_eq!(system.mmap(MapSpec::new(0).of(fd, 0, Share::Shared)), Err(Errno::Inval));
    let last = 0_u64.wrapping_sub(PAGE_BYTES);
    assert_eq!(system.mmap(spec.of(fd, last, Share::Shared)), Err(Errno::Overflow));
    assert_eq!(system.process_mrelease(fd, 0), Err(Errno::Badf));
    assert_eq!(system.close(pidfd), Ok(()));
    assert_eq!(system.close(fd), Ok(()));
    assert_eq!(system.mmap(spec.of(fd, 0, Share::Shared)), Err(Errno::Badf));
}

pub(crate) fn advice_for_anonymous_memory_is_refused<S: System>(system: &S) {
    let fd = new(system);
    for share in [Share::Private, Share::Shared] {
        let at = map(system, fd, 0, PAGES, share);
        fill(system, at, PAGES, 100);
        for advice in [Advice::Free, Advice::WipeOnFork] {
            assert_eq!(system.madvise(at, BYTES, advice), Err(Errno::Inval), "{advice:?}");
        }
        for advice in [Advice::Cold, Advice::PageOut, Advice::WillNeed] {
            assert_eq!(system.madvise(at, BYTES, advice), Ok(()), "{advice:?}");
        }
        check(system, at, PAGES, 100);
        unmap(system, at, PAGES);
    }
    assert_eq!(system.close(fd), Ok(()));
}

pub(crate) fn rights_come_and_go<S: System>(system: &S) {
    let fd = new(system);
    let (all, own) = (shared(system, fd), private(system, fd));
    for at in [all, own] {
        check_zero(system, at, 1);
        assert_eq!(system.mprotect(at, BYTES, Prot::Read), Ok(()));
        assert_eq!(system.write(at, 1), Err(Errno::Segv));
        assert_eq!(system.mprotect(at, BYTES, Prot::ReadWrite), Ok(()));
    }
    fill(system, own, PAGES, 200);
    check_zero(system, all, PAGES);
    fill(system, all, PAGES, 100);
    let late = shared(system, fd);
    check(system, late, PAGES, 100);
    check(system, own, PAGES, 200);
    assert_eq!(system.mprotect(all, BYTES, Prot::None), Ok(()));
    assert_eq!(system.read(all), Err(Errno::Segv));
    [all, own, late].into_iter().for_each(|at| unmap(system, at, PAGES));
    assert_eq!(system.close(fd), Ok(()));
}

pub(crate) fn a_mapping_moves_with_its_part<S: System>(system: &S) {
    let fd = new(system);
    let all = shared(system, fd);
    fill(system, all, PAGES, 100);
    for share in [Share::Private, Share::Shared] {
        let at = map(system, fd, 2, 2, share);
        assert_eq!(system.write(at, 7), Ok(()));
        let moved = system.mremap(at, 2 * PAGE_BYTES, 6 * PAGE_BYTES, MayMove::Anywhere);
        let moved = moved.expect("there is room");
        assert_eq!(system.read(moved), Ok(7));
        check(system, moved.page(1), 5, 103);
        // The middle is unmapped, and both ends keep their parts.
        unmap(system, moved.page(2), 2);
        check(system, moved.page(1), 1, 103);
        check(system, moved.page(4), 2, 106);
        assert_eq!(system.write(all.page(2), 102), Ok(()));
        unmap(system, moved, 6);
    }
    unmap(system, all, PAGES);
    assert_eq!(system.close(fd), Ok(()));
}

pub(crate) fn mincore_knows_what_the_file_has<S: System>(system: &S) {
    let fd = new(system);
    let all = shared(system, fd);
    fill(system, all, 3, 100);
    let late = private(system, fd);
    let there = system.mincore(late, BYTES).expect("it is mapped");
    assert_eq!(there[..3], [true; 3]);
    assert_eq!(there.len() as u64, PAGES);
    unmap(system, all, PAGES);
    unmap(system, late, PAGES);
    assert_eq!(system.close(fd), Ok(()));
}

pub(crate) fn populated_and_locked_mappings_keep_the_content<S: System>(system: &S) {
    let fd = new(system);
    let all = shared(system, fd);
    fill(system, all, PAGES, 100);
    for share in [Share::Private, Share::Shared] {
        let at = system.mmap(MapSpec::populated(BYTES).of(fd, 0, share)).expect("there is room");
        let there = system.mincore(at, BYTES).expect("it is mapped");
        assert!(there.into_iter().all(|there| there));
        check(system, at, PAGES, 100);
        assert_eq!(system.mlock(at, BYTES, mmscale_system::LockWhat::Everything), Ok(()));
        assert_eq!(system.munlock(at, BYTES / 2), Ok(()));
        check(system, at, PAGES, 100);
        unmap(system, at, PAGES);
    }
    unmap(system, all, PAGES);
    assert_eq!(system.close(fd), Ok(()));
}
