//! pidfd_open(2), close(2), process_mrelease(2).

use super::{Message, PAGES, check, fill, map, unmap};
use mmscale_system::{Errno, Exit, Fd, MapSpec, PAGE_BYTES, ProcessId, System, ThreadSpec};

/// Longer than the limit of any run.
const FOR_EVER_NS: u64 = 1 << 50;
/// Long enough for a process to begin, and for a killed one to end.
const PAUSE_NS: u64 = 2_000_000;

/// The last CPU.
fn other<S: System>(system: &S) -> ThreadSpec {
    ThreadSpec::on(system.cpus() - 1)
}

/// Starts a process with memory that sleeps until it is killed.
fn sleeper<S: System>(system: &S) -> ProcessId {
    let body = |system: &S| {
        // It may be killed before it begins.
        let at = match system.mmap(MapSpec::new(PAGES * PAGE_BYTES)) {
            Ok(at) => at,
            Err(why) => return assert_eq!(why, Errno::Stopped),
        };
        for page in 0..PAGES {
            if let Err(why) = system.write(at.page(page), 7) {
                return assert_eq!(why, Errno::Stopped);
            }
        }
        assert_eq!(system.sleep_ns(FOR_EVER_NS), Err(Errno::Stopped));
    };
    system.process(other(system), Box::new(body)).expect("there is memory")
}

fn open<S: System>(system: &S, process: ProcessId) -> Fd {
    system.pidfd_open(process).expect("there is such a process")
}

/// Repeats the call until the process has no memory any more.
fn until_gone<S: System>(system: &S, fd: Fd, meanwhile: &[Errno]) {
    loop {
        match system.process_mrelease(fd, 0) {
            Err(Errno::Srch) => return,
            Ok(()) => {}
            Err(why) => assert!(meanwhile.contains(&why), "{why}"),
        }
        assert_eq!(system.sleep_ns(PAUSE_NS / 8), Ok(()));
    }
}

pub(crate) fn the_living_are_not_released<S: System>(system: &S) {
    let living = sleeper(system);
    let fd = open(system, living);
    assert_eq!(system.process_mrelease(fd, 0), Err(Errno::Inval));
    assert_eq!(system.sleep_ns(PAUSE_NS), Ok(()));
    assert_eq!(system.process_mrelease(fd, 0), Err(Errno::Inval));
    // The caller itself is not released either.
    let (at, own) = (map(system, PAGES), open(system, system.own_process()));
    fill(system, at, PAGES, 100);
    assert_eq!(system.process_mrelease(own, 0), Err(Errno::Inval));
    check(system, at, PAGES, 100);
    unmap(system, at, PAGES);
    assert_eq!(system.close(own), Ok(()));
    assert_eq!(system.kill(living), Ok(()));
    assert_eq!(system.wait(living), Ok(Exit::Killed));
    assert_eq!(system.close(fd), Ok(()));
}

pub(crate) fn there_are_no_flags<S: System>(system: &S) {
    let dying = sleeper(system);
    let fd = open(system, dying);
    assert_eq!(system.kill(dying), Ok(()));
    assert_eq!(system.process_mrelease(fd, 1), Err(Errno::Inval));
    assert_eq!(system.process_mrelease(Fd(u32::MAX), 1), Err(Errno::Inval));
    assert_eq!(system.wait(dying), Ok(Exit::Killed));
    assert_eq!(system.close(fd), Ok(()));
}

pub(crate) fn the_dying_are_released_until_they_are_gone<S: System>(system: &S) {
    let dying = sleeper(system);
    let fd = open(system, dying);
    assert_eq!(system.sleep_ns(PAUSE_NS), Ok(()));
    assert_eq!(system.kill(dying), Ok(()));
    let released = system.process_mrelease(fd, 0);
    let fine = matches!(released, Ok(()) | Err(Errno::Srch | Errno::Again));
    assert!(fine, "{released:?}");
    until_gone(system, fd, &[Errno::Again]);
    // It still exists until it is waited for.
    let again = open(system, dying);
    assert_ne!(again, fd);
    assert_eq!(system.process_mrelease(again, 0), Err(Errno::Srch));
    assert_eq!(system.wait(dying), Ok(Exit::Killed));
    assert_eq!(system.process_mrelease(fd, 0), Err(Errno::Srch));
    assert_eq!(system.pidfd_open(dying), Err(Errno::Srch));
    assert_eq!(system.kill(dying), Err(Errno::Srch));
    assert_eq!(system.close(fd), Ok(()));
    assert_eq!(system.close(again), Ok(()));
}

/// The victim computes, so it cannot notice that it was killed, and its memory is released all the
/// same.
pub(crate) fn what_was_released_is_not_there<S: System>(system: &S) {
    let ready = Message::new(system);
    let body = move |system: &S| {
        let at = map(system, PAGES);
        fill(system, at, PAGES, 100);
        ready.send(system, 1);
        // The kill may be late.
        loop {
            let _ = system.compute_ns(40 * PAUSE_NS);
            match system.read(at) {
                Ok(word) => assert_eq!(word, 100, "it lives, and has its memory"),
                Err(why) => break assert_eq!(why, Errno::Stopped),
            }
        }
        for page in 1..PAGES {
            let read = system.read(at.page(page));
            assert_eq!(read, Err(Errno::Stopped), "page {page}");
        }
    };
    let victim = system.fork(other(system), Box::new(body)).expect("there is memory");
    let fd = open(system, victim);
    ready.receive(system);
    assert_eq!(system.kill(victim), Ok(()));
    // On a machine that runs slower than its clock the victim may have finished.
    let released = system.process_mrelease(fd, 0);
    assert!(matches!(released, Ok(()) | Err(Errno::Srch)), "{released:?}");
    assert_eq!(system.wait(victim), Ok(Exit::Killed));
    ready.forget(system);
    assert_eq!(system.close(fd), Ok(()));
}

/// A process that returns is gone for process_mrelease, and was never dying.
pub(crate) fn the_dead_are_gone<S: System>(system: &S) {
    let child = system.process(other(system), Box::new(|_: &S| {})).expect("there is memory");
    let fd = open(system, child);
    until_gone(system, fd, &[Errno::Inval]);
    // A process that has ended is not killed any more, but the call succeeds.
    assert_eq!(system.kill(child), Ok(()));
    assert_eq!(system.wait(child), Ok(Exit::Returned));
    assert_eq!(system.process_mrelease(fd, 0), Err(Errno::Srch));
    assert_eq!(system.close(fd), Ok(()));
}

/// The victim need not be a child of the caller.
pub(crate) fn the_children_of_others_are_released_too<S: System>(system: &S) {
    let grandchild = Message::new(system);
    let middle = move |system: &S| {
        let child = sleeper(system);
        grandchild.send(system, u64::from(child.0) + 1);
        assert_eq!(system.wait(child), Ok(Exit::Killed));
    };
    let middle = system.fork(other(system), Box::new(middle)).expect("there is memory");
    let foreign = ProcessId(grandchild.receive(system) as u32 - 1);
    let fd = open(system, foreign);
    assert_eq!(system.process_mrelease(fd, 0), Err(Errno::Inval));
    assert_eq!(system.kill(foreign), Ok(()));
    until_gone(system, fd, &[Errno::Again]);
    assert_eq!(system.wait(middle), Ok(Exit::Returned));
    grandchild.forget(system);
    assert_eq!(system.close(fd), Ok(()));
}

/// A number refers to what was last opened under it; a descriptor refers to its process for good.
pub(crate) fn numbers_are_used_again_and_meanings_are_not<S: System>(system: &S) {
    let first = sleeper(system);
    let fd = open(system, first);
    assert_eq!(system.close(fd), Ok(()));
    assert_eq!(system.close(fd), Err(Errno::Badf));
    assert_eq!(system.process_mrelease(fd, 0), Err(Errno::Badf));
    assert_eq!(open(system, first), fd);
    assert_eq!(system.kill(first), Ok(()));
    assert_eq!(system.wait(first), Ok(Exit::Killed));
    // A process that starts now is another one.
    let second = sleeper(system);
    assert_eq!(system.process_mrelease(fd, 0), Err(Errno::Srch));
    assert_eq!(system.close(fd), Ok(()));
    assert_eq!(open(system, second), fd);
    assert_eq!(system.process_mrelease(fd, 0), Err(Errno::Inval));
    // A fork has the descriptor too, another process does not.
    let forked = move |system: &S| {
        assert_eq!(system.process_mrelease(fd, 0), Err(Errno::Inval));
        assert_eq!(system.close(fd), Ok(()));
    };
    let forked = system.fork(other(system), Box::new(forked)).expect("there is memory");
    assert_eq!(system.wait(forked), Ok(Exit::Returned));
    let fresh = move |system: &S| assert_eq!(system.close(fd), Err(Errno::Badf));
    let fresh = system.process(other(system), Box::new(fresh)).expect("there is memory");
    assert_eq!(system.wait(fresh), Ok(Exit::Returned));
    assert_eq!(system.kill(second), Ok(()));
    assert_eq!(system.wait(second), Ok(Exit::Killed));
    assert_eq!(system.close(fd), Ok(()));
    assert_eq!(system.close(Fd(u32::MAX)), Err(Errno::Badf));
}
