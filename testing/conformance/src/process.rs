//! fork(2), waitpid(2), kill(2), and the state that threads share.

use super::{Message, PAGES, check, check_gone, check_zero, fill, map, unmap};
use core::sync::atomic::Ordering::SeqCst;
use core::sync::atomic::{AtomicBool, AtomicU32};
use mmscale_system::{
    Advice, Backing, Errno, Exit, LockWhat, MapSpec, PAGE_BYTES, ProcessId, Share, System,
    ThreadSpec,
};
use std::sync::Arc;

const BYTES: u64 = PAGES * PAGE_BYTES;

/// The last CPU.
fn other<S: System>(system: &S) -> ThreadSpec {
    ThreadSpec::on(system.cpus() - 1)
}

pub(crate) fn a_child_has_a_copy_and_both_may_change_theirs<S: System>(system: &S) {
    let at = map(system, PAGES);
    fill(system, at, PAGES, 100);
    let child = move |system: &S| {
        check(system, at, PAGES, 100);
        fill(system, at, 4, 200);
        check(system, at, 4, 200);
        check(system, at.page(4), 4, 104);
        unmap(system, at.page(7), 1);
    };
    let child = system.fork(other(system), Box::new(child)).expect("there is memory");
    fill(system, at.page(4), 4, 300);
    assert_eq!(system.wait(child), Ok(Exit::Returned));
    check(system, at, 4, 100);
    check(system, at.page(4), 4, 300);
    fill(system, at, PAGES, 400);
    check(system, at, PAGES, 400);
    unmap(system, at, PAGES);
}

pub(crate) fn a_new_process_has_nothing<S: System>(system: &S) {
    let at = map(system, PAGES);
    fill(system, at, PAGES, 100);
    let child = move |system: &S| {
        check_gone(system, at, PAGES);
        let own = map(system, PAGES);
        check_zero(system, own, PAGES);
        // It ends with memory mapped.
        fill(system, own, PAGES, 500);
    };
    let child = system.process(other(system), Box::new(child)).expect("there is memory");
    assert_eq!(system.wait(child), Ok(Exit::Returned));
    check(system, at, PAGES, 100);
    unmap(system, at, PAGES);
}

pub(crate) fn exec_leaves_nothing_but_files<S: System>(system: &S) {
    let fd = system.file(BYTES, Backing::Memory).expect("there is memory");
    let child = move |system: &S| {
        let part = || MapSpec::new(BYTES).of(fd, 0, Share::Shared);
        let own = system.own_process();
        let grandchild = system.fork(other(system), Box::new(|_: &S| ())).expect("there is memory");
        for round in 0..3 {
            let all = system.mmap(part()).expect("there is room");
            let at = map(system, PAGES);
            check_zero(system, at, PAGES);
            fill(system, at, PAGES, 100);
            check(system, all, round, 200);
            fill(system, all, round + 1, 200);
            let pidfd = system.pidfd_open(own).expect("it lives");
            assert_eq!(system.exec(), Ok(()));
            check_gone(system, at, PAGES);
            check_gone(system, all, PAGES);
            assert_eq!(system.close(pidfd), Err(Errno::Badf));
            assert_eq!(system.own_process(), own);
        }
        assert_eq!(system.wait(grandchild), Ok(Exit::Returned));
        // It ends with memory mapped.
        fill(system, map(system, PAGES), PAGES, 300);
    };
    let child = system.fork(other(system), Box::new(child)).expect("there is memory");
    assert_eq!(system.wait(child), Ok(Exit::Returned));
    assert_eq!(system.close(fd), Ok(()));
}

pub(crate) fn exec_is_for_a_single_thread<S: System>(system: &S) {
    let child = |system: &S| {
        let at = map(system, PAGES);
        fill(system, at, PAGES, 100);
        let done = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&done);
        let wait = move |system: &S| {
            while !seen.load(SeqCst) {
                assert_eq!(system.sleep_ns(50_000), Ok(()));
            }
        };
        let thread = system.spawn(other(system), Box::new(wait)).expect("there is memory");
        assert_eq!(system.exec(), Err(Errno::Inval));
        check(system, at, PAGES, 100);
        done.store(true, SeqCst);
        assert_eq!(system.join(thread), Ok(()));
        assert_eq!(system.exec(), Ok(()));
        check_gone(system, at, PAGES);
    };
    let child = system.fork(other(system), Box::new(child)).expect("there is memory");
    assert_eq!(system.wait(child), Ok(Exit::Returned));
}

pub(crate) fn a_killed_process_stays_killed_over_exec<S: System>(system: &S) {
    let child = |system: &S| loop {
        let Ok(at) = system.mmap(MapSpec::new(PAGE_BYTES)) else { return };
        if system.write(at, 1).is_err() || system.exec().is_err() {
            return;
        }
    };
    for round in 0..8 {
        let child = system.fork(other(system), Box::new(child)).expect("there is memory");
        assert_eq!(system.sleep_ns(100_000 + round * 777), Ok(()));
        assert_eq!(system.kill(child), Ok(()));
        assert_eq!(system.wait(child), Ok(Exit::Killed));
    }
}

pub(crate) fn threads_share_memory<S: System>(system: &S) {
    let at = map(system, PAGES);
    let own = system.own_process();
    let writer = move |system: &S| {
        assert_eq!(system.own_process(), own);
        fill(system, at, PAGES, 100);
    };
    let thread = system.spawn(other(system), Box::new(writer)).expect("there is memory");
    assert_eq!(system.join(thread), Ok(()));
    check(system, at, PAGES, 100);
    // A page that one thread unmaps is gone for all.
    let cutter = move |system: &S| unmap(system, at, 1);
    let thread = system.spawn(other(system), Box::new(cutter)).expect("there is memory");
    assert_eq!(system.join(thread), Ok(()));
    check_gone(system, at, 1);
    unmap(system, at, PAGES);
}

pub(crate) fn memory_advised_so_is_not_inherited<S: System>(system: &S) {
    let (at, wiped) = (map(system, PAGES), map(system, PAGES));
    fill(system, at, PAGES, 100);
    fill(system, wiped, PAGES, 200);
    assert_eq!(system.madvise(at.page(2), PAGE_BYTES, Advice::DontFork), Ok(()));
    assert_eq!(system.madvise(wiped, BYTES, Advice::WipeOnFork), Ok(()));
    assert_eq!(system.madvise(wiped, PAGE_BYTES, Advice::KeepOnFork), Ok(()));
    let child = move |system: &S| {
        check(system, at, 2, 100);
        check_gone(system, at.page(2), 1);
        check(system, at.page(3), 5, 103);
        check(system, wiped, 1, 200);
        check_zero(system, wiped.page(1), PAGES - 1);
    };
    let child = system.fork(other(system), Box::new(child)).expect("there is memory");
    assert_eq!(system.wait(child), Ok(Exit::Returned));
    check(system, at, PAGES, 100);
    check(system, wiped, PAGES, 200);
    unmap(system, at, PAGES);
    unmap(system, wiped, PAGES);
}

pub(crate) fn waiting_is_for_ones_own_children_and_once<S: System>(system: &S) {
    let child = system.process(other(system), Box::new(|_| {})).expect("there is memory");
    assert_eq!(system.wait(child), Ok(Exit::Returned));
    assert_eq!(system.wait(child), Err(Errno::Child));
    assert_eq!(system.wait(system.own_process()), Err(Errno::Child));
    assert_eq!(system.wait(ProcessId(u32::MAX)), Err(Errno::Child));
    assert_eq!(system.kill(ProcessId(u32::MAX)), Err(Errno::Srch));
}

pub(crate) fn a_killed_process_ends<S: System>(system: &S) {
    let victim = system.process(other(system), Box::new(endure)).expect("there is memory");
    let _ = system.sleep_ns(2_000_000);
    assert_eq!(system.kill(victim), Ok(()));
    assert_eq!(system.wait(victim), Ok(Exit::Killed));
}

/// Longer than the limit of any run.
const FOR_EVER_NS: u64 = 1 << 50;

fn sleep_for_ever<S: System>(system: &S) {
    assert_eq!(system.sleep_ns(FOR_EVER_NS), Err(Errno::Stopped));
    assert_eq!(system.sleep_ns(1), Err(Errno::Stopped));
}

pub(crate) fn a_killed_process_wakes_from_its_sleep<S: System>(system: &S) {
    let sleeper = move |system: &S| {
        let thread = match system.spawn(other(system), Box::new(sleep_for_ever)) {
            Ok(thread) => thread,
            Err(why) => return assert_eq!(why, Errno::Stopped),
        };
        sleep_for_ever(system);
        let joined = system.join(thread);
        assert!(matches!(joined, Ok(()) | Err(Errno::Stopped)), "{joined:?}");
    };
    // One process that is asleep by then, and one that may not have begun.
    for pause_ns in [2_000_000, 1] {
        let victim = system.process(other(system), Box::new(sleeper)).expect("there is memory");
        assert_eq!(system.sleep_ns(pause_ns), Ok(()));
        assert_eq!(system.kill(victim), Ok(()));
        assert_eq!(system.wait(victim), Ok(Exit::Killed));
    }
}

/// It waits neither for its threads nor for its children.
pub(crate) fn a_killed_process_waits_no_more<S: System>(system: &S) {
    let orphan = Message::new(system);
    let waiting = move |system: &S| {
        let child = system.process(other(system), Box::new(sleep_for_ever));
        let child = child.expect("there is memory");
        orphan.send(system, u64::from(child.0) + 1);
        let wait = move |system: &S| {
            assert_eq!(system.wait(child), Err(Errno::Stopped));
        };
        let thread = match system.spawn(other(system), Box::new(wait)) {
            Ok(thread) => thread,
            Err(why) => return assert_eq!(why, Errno::Stopped),
        };
        let joined = system.join(thread);
        assert!(matches!(joined, Ok(()) | Err(Errno::Stopped)), "{joined:?}");
    };
    let victim = system.fork(other(system), Box::new(waiting)).expect("there is memory");
    let child = ProcessId(orphan.receive(system) as u32 - 1);
    assert_eq!(system.sleep_ns(2_000_000), Ok(()));
    assert_eq!(system.kill(victim), Ok(()));
    assert_eq!(system.wait(victim), Ok(Exit::Killed));
    // Its child runs on until it is killed too.
    assert_eq!(system.kill(child), Ok(()));
    orphan.forget(system);
}

/// Touches memory until the system reports the end.
fn endure<S: System>(system: &S) {
    loop {
        let spec = mmscale_system::MapSpec::populated(BYTES);
        let at = match system.mmap(spec) {
            Ok(at) => at,
            Err(why) => return assert_eq!(why, Errno::Stopped),
        };
        for page in 0..PAGES {
            if let Err(why) = system.write(at.page(page), 7) {
                return assert_eq!(why, Errno::Stopped);
            }
        }
        if let Err(why) = system.munmap(at, BYTES) {
            return assert_eq!(why, Errno::Stopped);
        }
    }
}

pub(crate) fn grandchildren_keep_the_content_when_the_middle_ends<S: System>(system: &S) {
    let at = map(system, PAGES);
    fill(system, at, PAGES, 100);
    let middle = move |system: &S| {
        fill(system, at, 1, 200);
        let grandchild = move |system: &S| {
            check(system, at, 1, 200);
            check(system, at.page(1), PAGES - 1, 101);
            let _ = system.compute_ns(1_000_000);
            fill(system, at, PAGES, 300);
            check(system, at, PAGES, 300);
        };
        let grandchild = system.fork(other(system), Box::new(grandchild));
        let grandchild = grandchild.expect("there is memory");
        unmap(system, at, PAGES);
        assert_eq!(system.wait(grandchild), Ok(Exit::Returned));
    };
    let middle = system.fork(other(system), Box::new(middle)).expect("there is memory");
    unmap(system, at.page(PAGES - 1), 1);
    assert_eq!(system.wait(middle), Ok(Exit::Returned));
    check(system, at, PAGES - 1, 100);
    unmap(system, at, PAGES);
}

pub(crate) fn locks_are_not_inherited<S: System>(system: &S) {
    let at = map(system, PAGES);
    fill(system, at, PAGES, 100);
    assert_eq!(system.mlock(at, BYTES, LockWhat::Everything), Ok(()));
    let child = move |system: &S| {
        assert_eq!(system.madvise(at, BYTES, Advice::DontNeed), Ok(()));
        check_zero(system, at, PAGES);
    };
    let child = system.fork(other(system), Box::new(child)).expect("there is memory");
    assert_eq!(system.wait(child), Ok(Exit::Returned));
    assert_eq!(system.madvise(at, BYTES, Advice::DontNeed), Err(Errno::Inval));
    check(system, at, PAGES, 100);
    unmap(system, at, PAGES);
}

/// sched(7): a thread that wakes runs before all less urgent ones, and real time before fair.
///
/// No times are checked: a machine may be slow and busy.
pub(crate) fn the_more_urgent_thread_goes_first<S: System>(system: &S) {
    /// The most pieces of computation for which the busy thread waits for the urgent one.
    const PIECES: u32 = 5_000;
    const PIECE_NS: u64 = 100_000;
    const ASLEEP_NS: u64 = 5_000_000;
    const POLL_NS: u64 = 250_000;
    /// The number of threads that have begun, whether all have, and the order in which they
    /// finished.
    #[derive(Default)]
    struct State {
        begun: AtomicU32,
        all: AtomicBool,
        order: AtomicU32,
    }
    impl State {
        /// Adds a number to the order in which threads finished, one digit each.
        fn done(&self, who: u32) {
            let add = |so_far| Some(so_far * 10 + who);
            self.order.fetch_update(SeqCst, SeqCst, add).expect("it always adds");
        }
    }
    let state = Arc::new(State::default());
    let sleeper = |who| {
        let state = Arc::clone(&state);
        move |system: &S| {
            state.begun.fetch_add(1, SeqCst);
            while !state.all.load(SeqCst) {
                system.sleep_ns(POLL_NS).expect("the process is not killed");
            }
            system.sleep_ns(ASLEEP_NS).expect("the process is not killed");
            state.done(who);
        }
    };
    let busy = Arc::clone(&state);
    let computes = move |system: &S| {
        // One of them may have failed to start.
        while busy.begun.load(SeqCst) < 2 && !busy.all.load(SeqCst) {
            system.sleep_ns(POLL_NS).expect("the process is not killed");
        }
        busy.all.store(true, SeqCst);
        // In pieces: a machine may switch tasks between two calls only.
        for _ in 0..PIECES {
            system.compute_ns(PIECE_NS).expect("the process is not killed");
            if busy.order.load(SeqCst) != 0 {
                break;
            }
        }
        // Time for the fair thread too, if it were to run.
        for _ in 0..2 * ASLEEP_NS / PIECE_NS {
            system.compute_ns(PIECE_NS).expect("the process is not killed");
        }
        busy.done(2);
    };
    let cpu = other(system);
    let threads = [
        system.spawn(cpu.real_time(10), Box::new(computes)),
        system.spawn(cpu.real_time(20), Box::new(sleeper(1))),
        system.spawn(cpu, Box::new(sleeper(3))),
    ];
    // Real-time priority is not allowed everywhere.
    if threads.iter().any(Result::is_err) {
        state.all.store(true, SeqCst);
    }
    for thread in threads.into_iter().flatten() {
        assert_eq!(system.join(thread), Ok(()));
    }
    if threads.iter().all(Result::is_ok) {
        assert_eq!(state.order.load(SeqCst), 123);
    }
}
