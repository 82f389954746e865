//! Files on a disk, and posix_fadvise(2).

use super::{PAGES, check, check_zero, fill, unmap};
use mmscale_system::{
    Addr, Advice, Backing, Errno, Fd, FileAdvice, MapSpec, PAGE_BYTES, Prot, Share, System,
    ThreadSpec,
};

const BYTES: u64 = PAGES * PAGE_BYTES;

fn new<S: System>(system: &S) -> Fd {
    system.file(BYTES, Backing::Disk).expect("TMPDIR, or /var/tmp, is on a disk")
}

/// Maps the whole file, of which each fault reads one page.
fn map<S: System>(system: &S, fd: Fd, share: Share) -> Addr {
    let at = system.mmap(MapSpec::new(BYTES).of(fd, 0, share)).expect("there is room");
    assert_eq!(system.madvise(at, BYTES, Advice::Random), Ok(()));
    at
}

/// The number of pages of a mapping that are in memory.
fn present<S: System>(system: &S, at: Addr) -> usize {
    let there = system.mincore(at, BYTES).expect("it is mapped");
    there.into_iter().filter(|there| *there).count()
}

fn dropped<S: System>(system: &S, fd: Fd) {
    assert_eq!(system.fadvise(fd, 0, BYTES, FileAdvice::DontNeed), Ok(()));
}

pub(crate) fn pages_are_read_when_they_are_needed_and_dropped<S: System>(system: &S) {
    let fd = new(system);
    let at = map(system, fd, Share::Shared);
    assert_eq!(present(system, at), 0);
    check_zero(system, at, 2);
    assert_eq!(present(system, at), 2);
    assert_eq!(system.madvise(at, BYTES, Advice::DontNeed), Ok(()));
    // They are in the file's cache still.
    assert_eq!(present(system, at), 2);
    dropped(system, fd);
    assert_eq!(present(system, at), 0);
    // Populating reads them all.
    assert_eq!(system.madvise(at, BYTES, Advice::PopulateRead), Ok(()));
    assert_eq!(present(system, at), PAGES as usize);
    assert_eq!(system.madvise(at, BYTES, Advice::DontNeed), Ok(()));
    dropped(system, fd);
    // So does advice, at some time.
    assert_eq!(system.fadvise(fd, 0, PAGE_BYTES, FileAdvice::WillNeed), Ok(()));
    check_zero(system, at, PAGES);
    unmap(system, at, PAGES);
    assert_eq!(system.close(fd), Ok(()));
    assert_eq!(system.fadvise(fd, 0, BYTES, FileAdvice::DontNeed), Err(Errno::Badf));
}

pub(crate) fn what_is_written_to_a_shared_mapping_is_not_dropped<S: System>(system: &S) {
    let fd = new(system);
    let at = map(system, fd, Share::Shared);
    // One page was read before it is written, one while writes were not allowed.
    check_zero(system, at, 1);
    assert_eq!(system.mprotect(at, BYTES, Prot::Read), Ok(()));
    check_zero(system, at.page(1), 1);
    assert_eq!(system.write(at.page(1), 7), Err(Errno::Segv));
    assert_eq!(system.mprotect(at, BYTES, Prot::ReadWrite), Ok(()));
    fill(system, at, 3, 100);
    let child = move |system: &S| fill(system, at.page(2), 2, 202);
    let spec = ThreadSpec::on(system.cpus() - 1);
    let child = system.fork(spec, Box::new(child)).expect("there is memory");
    assert_eq!(system.wait(child), Ok(mmscale_system::Exit::Returned));
    unmap(system, at, PAGES);
    dropped(system, fd);
    let again = map(system, fd, Share::Private);
    check(system, again, 2, 100);
    check(system, again.page(2), 2, 202);
    check_zero(system, again.page(4), PAGES - 4);
    unmap(system, again, PAGES);
    assert_eq!(system.close(fd), Ok(()));
}

pub(crate) fn what_is_written_to_a_private_mapping_stays_there<S: System>(system: &S) {
    let fd = new(system);
    let (own, all) = (map(system, fd, Share::Private), map(system, fd, Share::Shared));
    check_zero(system, own, 1);
    fill(system, own, 3, 100);
    dropped(system, fd);
    check(system, own, 3, 100);
    check_zero(system, all, PAGES);
    assert_eq!(system.madvise(own, BYTES, Advice::DontNeed), Ok(()));
    check_zero(system, own, PAGES);
    unmap(system, own, PAGES);
    unmap(system, all, PAGES);
    assert_eq!(system.close(fd), Ok(()));
}

pub(crate) fn a_page_that_is_mapped_is_not_dropped<S: System>(system: &S) {
    let fd = new(system);
    let (at, other) = (map(system, fd, Share::Shared), map(system, fd, Share::Private));
    // First the mapping that stays: a fault may map pages around that are in the cache.
    check_zero(system, other, 1);
    check_zero(system, at, 2);
    assert_eq!(system.madvise(at, BYTES, Advice::DontNeed), Ok(()));
    dropped(system, fd);
    assert_eq!(present(system, at), 1);
    unmap(system, at, PAGES);
    unmap(system, other, PAGES);
    assert_eq!(system.close(fd), Ok(()));
}

pub(crate) fn what_was_written_back_can_be_dropped<S: System>(system: &S) {
    let fd = new(system);
    let at = map(system, fd, Share::Shared);
    fill(system, at, 4, 100);
    assert_eq!(system.msync(at, BYTES), Ok(()));
    // Written to again, through an entry that was there, in this process and in another.
    assert_eq!(system.write(at.page(1), 201), Ok(()));
    let child = move |system: &S| {
        check(system, at.page(2), 2, 102);
        assert_eq!(system.write(at.page(2), 202), Ok(()));
        assert_eq!(system.msync(at, BYTES), Ok(()));
        assert_eq!(system.write(at.page(3), 203), Ok(()));
    };
    let child = system.fork(ThreadSpec::on(0), Box::new(child)).expect("there is memory");
    assert_eq!(system.wait(child), Ok(mmscale_system::Exit::Returned));
    assert_eq!(system.msync(at, BYTES), Ok(()));
    unmap(system, at, PAGES);
    dropped(system, fd);
    let again = map(system, fd, Share::Shared);
    assert_eq!(present(system, again), 0);
    let words = [0, 1, 2, 3, 4].map(|page| system.read(again.page(page)));
    assert_eq!(words, [Ok(100), Ok(201), Ok(202), Ok(203), Ok(0)]);
    unmap(system, again, PAGES);
    assert_eq!(system.msync(again, BYTES), Err(Errno::Nomem));
    assert_eq!(system.close(fd), Ok(()));
}

pub(crate) fn tasks_that_need_a_page_at_the_same_time_all_get_it<S: System>(system: &S) {
    let fd = new(system);
    for share in [Share::Shared, Share::Private] {
        let at = map(system, fd, share);
        let cpus = 0..system.cpus().min(4);
        let tasks = cpus.map(|cpu| {
            let body = move |system: &S| {
                check_zero(system, at, PAGES);
                // A thread that drops what others read.
                if cpu == 0 {
                    dropped(system, fd);
                }
                check_zero(system, at, PAGES);
            };
            system.spawn(ThreadSpec::on(cpu), Box::new(body)).expect("there is memory")
        });
        let tasks: Vec<_> = tasks.collect();
        tasks.into_iter().for_each(|task| assert_eq!(system.join(task), Ok(())));
        unmap(system, at, PAGES);
        dropped(system, fd);
    }
    assert_eq!(system.close(fd), Ok(()));
}

pub(crate) fn a_file_in_memory_takes_no_advice<S: System>(system: &S) {
    let fd = system.file(BYTES, Backing::Memory).expect("there is memory");
    let at = map(system, fd, Share::Shared);
    fill(system, at, 3, 100);
    assert_eq!(system.madvise(at, BYTES, Advice::DontNeed), Ok(()));
    for advice in [FileAdvice::DontNeed, FileAdvice::WillNeed] {
        assert_eq!(system.fadvise(fd, 0, BYTES, advice), Ok(()));
        check(system, at, 3, 100);
    }
    unmap(system, at, PAGES);
    assert_eq!(system.close(fd), Ok(()));
}
