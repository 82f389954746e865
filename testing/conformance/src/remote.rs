//! process_vm_readv(2): one process reads the memory of another one.

use super::{Message, PAGES, check, check_zero, fill, map, unmap};
use mmscale_system::{
    Addr, Advice, Errno, Exit, MapSpec, PAGE_BYTES, Place, ProcessId, Prot, System, ThreadSpec,
};

const BYTES: u64 = PAGES * PAGE_BYTES;

/// The last CPU.
fn other<S: System>(system: &S) -> ThreadSpec {
    ThreadSpec::on(system.cpus() - 1)
}

/// Reads all pages of a process at `from` to the caller's memory at `to`. Returns the number of
/// pages.
fn read<S: System>(system: &S, of: ProcessId, from: Addr, to: Addr) -> Result<u64, Errno> {
    let read = system.process_vm_readv(of, from, BYTES, to)?;
    assert!(read.is_multiple_of(PAGE_BYTES), "{read} bytes are no pages");
    Ok(read / PAGE_BYTES)
}

/// Starts a copy of the caller that calls `work`, tells that it is done, and sleeps until it is
/// killed.
fn copy_that<S: System>(system: &S, work: impl FnOnce(&S) + Send + 'static) -> ProcessId {
    let told = Message::new(system);
    let body = move |system: &S| {
        work(system);
        told.send(system, 1);
        let _ = system.sleep_ns(1 << 50);
    };
    let process = system.fork(other(system), Box::new(body)).expect("there is memory");
    told.receive(system);
    told.forget(system);
    process
}

fn end<S: System>(system: &S, process: ProcessId) {
    assert_eq!(system.kill(process), Ok(()));
    assert_eq!(system.wait(process), Ok(Exit::Killed));
}

pub(crate) fn the_content_of_another_process_is_read<S: System>(system: &S) {
    let (at, to) = (map(system, PAGES), map(system, PAGES));
    fill(system, at, PAGES, 100);
    // Its own pages, pages that it has from its parent, pages without content, pages in swap.
    let of = copy_that(system, move |system: &S| {
        fill(system, at, 2, 200);
        assert_eq!(system.madvise(at.page(4), 2 * PAGE_BYTES, Advice::DontNeed), Ok(()));
        fill(system, at.page(6), 2, 306);
        assert_eq!(system.madvise(at.page(6), 2 * PAGE_BYTES, Advice::PageOut), Ok(()));
    });
    for _ in 0..2 {
        assert_eq!(read(system, of, at, to), Ok(PAGES));
        check(system, to, 2, 200);
        check(system, to.page(2), 2, 102);
        check_zero(system, to.page(4), 2);
        check(system, to.page(6), 2, 306);
        fill(system, to, PAGES, 500);
    }
    check(system, at, PAGES, 100);
    end(system, of);
    unmap(system, at, PAGES);
    unmap(system, to, PAGES);
}

pub(crate) fn a_copy_is_independent_of_its_origin<S: System>(system: &S) {
    let (at, to) = (map(system, PAGES), map(system, PAGES));
    let (turn, written) = (Message::new(system), Message::new(system));
    let body = move |system: &S| {
        fill(system, at, PAGES, 100);
        written.send(system, 1);
        turn.receive(system);
        fill(system, at, PAGES, 200);
    };
    let of = system.fork(other(system), Box::new(body)).expect("there is memory");
    written.receive(system);
    assert_eq!(read(system, of, at, to), Ok(PAGES));
    turn.send(system, 1);
    assert_eq!(system.wait(of), Ok(Exit::Returned));
    check(system, to, PAGES, 100);
    check_zero(system, at, PAGES);
    turn.forget(system);
    written.forget(system);
    unmap(system, at, PAGES);
    unmap(system, to, PAGES);
}

pub(crate) fn huge_pages_are_read<S: System>(system: &S) {
    const HUGE_BYTES: u64 = 512 * PAGE_BYTES;
    let whole = map(system, 2 * 512);
    assert_eq!(system.madvise(whole, 2 * HUGE_BYTES, Advice::HugePage), Ok(()));
    let middle = whole.page(508);
    for page in [504, 508, 511, 512, 515] {
        assert_eq!(system.write(whole.page(page), 1000 + page), Ok(()));
    }
    let to = map(system, PAGES);
    let own = system.own_process();
    assert_eq!(read(system, own, middle, to), Ok(PAGES));
    check(system, to, 1, 1508);
    check_zero(system, to.page(1), 2);
    check(system, to.page(3), 2, 1511);
    check(system, to.page(7), 1, 1515);
    unmap(system, whole, 2 * 512);
    unmap(system, to, PAGES);
}

pub(crate) fn a_read_ends_where_a_side_ends<S: System>(system: &S) {
    let (at, to) = (map(system, PAGES), map(system, PAGES));
    fill(system, at, PAGES, 100);
    let of = copy_that(system, move |system: &S| {
        unmap(system, at.page(5), 1);
        assert_eq!(system.mprotect(at.page(7), PAGE_BYTES, Prot::None), Ok(()));
    });
    assert_eq!(read(system, of, at, to), Ok(5));
    check(system, to, 5, 100);
    check_zero(system, to.page(5), 3);
    // The first page of either side.
    assert_eq!(read(system, of, at.page(5), to), Err(Errno::Fault));
    assert_eq!(read(system, of, at.page(7), to), Err(Errno::Fault));
    assert_eq!(system.process_vm_readv(of, at.page(6), BYTES, to), Ok(PAGE_BYTES));
    unmap(system, to, 1);
    assert_eq!(read(system, of, at, to), Err(Errno::Fault));
    unmap(system, to.page(3), 1);
    assert_eq!(system.process_vm_readv(of, at, BYTES, to.page(1)), Ok(2 * PAGE_BYTES));
    assert_eq!(system.mprotect(to.page(1), PAGE_BYTES, Prot::Read), Ok(()));
    assert_eq!(read(system, of, at, to.page(1)), Err(Errno::Fault));
    end(system, of);
    unmap(system, at, PAGES);
    unmap(system, to, PAGES);
}

pub(crate) fn no_bytes_are_no_error<S: System>(system: &S) {
    let (at, own) = (map(system, 1), system.own_process());
    assert_eq!(system.process_vm_readv(own, at, 0, at), Ok(0));
    assert_eq!(system.process_vm_readv(own, at, 1, at), Err(Errno::Inval));
    assert_eq!(system.process_vm_readv(own, Addr(at.0 + 1), PAGE_BYTES, at), Err(Errno::Inval));
    unmap(system, at, 1);
}

pub(crate) fn a_process_may_read_itself<S: System>(system: &S) {
    let (at, own) = (map(system, 2 * PAGES), system.own_process());
    fill(system, at, PAGES, 100);
    assert_eq!(read(system, own, at, at.page(PAGES)), Ok(PAGES));
    check(system, at.page(PAGES), PAGES, 100);
    // The same pages on both sides.
    assert_eq!(read(system, own, at, at), Ok(PAGES));
    check(system, at, PAGES, 100);
    unmap(system, at, 2 * PAGES);
}

pub(crate) fn the_dead_have_no_memory<S: System>(system: &S) {
    let (at, to) = (map(system, PAGES), map(system, PAGES));
    fill(system, at, PAGES, 100);
    // It ends while it is read.
    let of = system.fork(other(system), Box::new(|_: &S| ())).expect("there is memory");
    loop {
        match read(system, of, at, to) {
            Ok(pages) => check(system, to, pages, 100),
            Err(Errno::Srch) => break,
            // Its exit has unmapped the page.
            Err(why) => assert_eq!(why, Errno::Fault),
        }
        fill(system, to, PAGES, 500);
    }
    assert_eq!(system.wait(of), Ok(Exit::Returned));
    assert_eq!(read(system, of, at, to), Err(Errno::Srch));
    assert_eq!(read(system, ProcessId(u32::MAX), at, to), Err(Errno::Srch));
    unmap(system, at, PAGES);
    unmap(system, to, PAGES);
}

/// Whether the content of a page is what a process of [`changes_are_seen_whole`] wrote there.
fn is_of_a_round(word: u64, page: u64) -> bool {
    word == 0 || word % PAGES == page
}

pub(crate) fn changes_are_seen_whole<S: System>(system: &S) {
    let (at, to) = (map(system, PAGES), map(system, PAGES));
    let stop = Message::new(system);
    let changes = move |system: &S| {
        let fixed = || MapSpec::new(BYTES).at(Place::Fixed(at));
        let mut round = 1;
        while system.read(stop.0) == Ok(0) {
            for page in 0..PAGES {
                assert_eq!(system.write(at.page(page), PAGES * round + page), Ok(()));
            }
            match round % 4 {
                0 => unmap(system, at, PAGES),
                1 => assert_eq!(system.madvise(at, BYTES, Advice::DontNeed), Ok(())),
                2 => assert_eq!(system.madvise(at, BYTES, Advice::PageOut), Ok(())),
                _ => {}
            }
            assert_eq!(system.mmap(fixed()), Ok(at));
            round += 1;
        }
    };
    let of = system.fork(other(system), Box::new(changes)).expect("there is memory");
    let mut reads = 0;
    while reads < 40 {
        // All of it may be unmapped just now.
        let Ok(pages) = read(system, of, at, to) else { continue };
        for page in 0..pages {
            let word = system.read(to.page(page)).expect("it is mapped");
            assert!(is_of_a_round(word, page), "page {page} has {word}");
        }
        reads += 1;
    }
    stop.send(system, 1);
    assert_eq!(system.wait(of), Ok(Exit::Returned));
    stop.forget(system);
    unmap(system, at, PAGES);
    unmap(system, to, PAGES);
}

pub(crate) fn a_process_may_exec_while_it_is_read<S: System>(system: &S) {
    let (at, to) = (map(system, PAGES), map(system, PAGES));
    let execs = move |system: &S| {
        for round in 1..=20 {
            let fixed = MapSpec::new(BYTES).at(Place::Fixed(at));
            assert_eq!(system.mmap(fixed), Ok(at));
            for page in 0..PAGES {
                assert_eq!(system.write(at.page(page), PAGES * round + page), Ok(()));
            }
            assert_eq!(system.exec(), Ok(()));
        }
    };
    let of = system.fork(other(system), Box::new(execs)).expect("there is memory");
    loop {
        let pages = match read(system, of, at, to) {
            Ok(pages) => pages,
            Err(Errno::Srch) => break,
            Err(why) => {
                assert_eq!(why, Errno::Fault);
                continue;
            }
        };
        for page in 0..pages {
            let word = system.read(to.page(page)).expect("it is mapped");
            assert!(is_of_a_round(word, page), "page {page} has {word}");
        }
    }
    assert_eq!(system.wait(of), Ok(Exit::Returned));
    unmap(system, at, PAGES);
    unmap(system, to, PAGES);
}

pub(crate) fn a_dying_process_is_read_and_released<S: System>(system: &S) {
    let (at, to) = (map(system, PAGES), map(system, PAGES));
    fill(system, at, PAGES, 100);
    let of = copy_that(system, move |system: &S| fill(system, at, PAGES, 200));
    let fd = system.pidfd_open(of).expect("there is such a process");
    let releases = move |system: &S| while system.process_mrelease(fd, 0) != Err(Errno::Srch) {};
    assert_eq!(system.kill(of), Ok(()));
    let thread = system.spawn(other(system), Box::new(releases)).expect("there is memory");
    loop {
        match read(system, of, at, to) {
            Ok(pages) => check(system, to, pages, 200),
            Err(Errno::Srch) => break,
            Err(why) => assert_eq!(why, Errno::Fault),
        }
    }
    assert_eq!(system.wait(of), Ok(Exit::Killed));
    assert_eq!(system.join(thread), Ok(()));
    assert_eq!(system.close(fd), Ok(()));
    unmap(system, at, PAGES);
    unmap(system, to, PAGES);
}
