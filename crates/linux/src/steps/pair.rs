//! Steps between two tasks, of one CPU or of two.

use super::{StepError, failed, median_ns, now_ns};
use crate::system::bind;
use std::io::Error;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Rounds of one sample.
const TURNS: u32 = 400;

/// Runs `work` on a thread that is bound to a CPU.
pub(super) fn on<T: Send>(
    cpu: usize,
    work: impl FnOnce() -> Result<T, StepError> + Send,
) -> Result<T, StepError> {
    std::thread::scope(|scope| {
        join(scope.spawn(move || {
            bound(cpu)?;
            work()
        }))
    })
}

/// Binds the calling thread. A thread that then has to wait for others does so even if this failed:
/// they wait for it too.
fn bound(cpu: usize) -> Result<(), StepError> {
    bind(cpu).map_err(|_| failed("binding a thread to a CPU")(Error::last_os_error()))
}

fn join<T>(thread: std::thread::ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|why| std::panic::resume_unwind(why))
}

/// Returns how often the calling thread has yielded its CPU, or was preempted.
pub fn switches() -> u64 {
    // SAFETY: a zeroed rusage is valid, and the place is ours.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage);
        usage
    };
    (usage.ru_nvcsw + usage.ru_nivcsw) as u64
}

/// Measures two tasks of a CPU that yield to each other. The time of the calls, `yield_ns` each, is
/// subtracted, and the rest is divided by the number of switches: not every call makes one.
pub(super) fn switch_ns(cpu: usize, yield_ns: f64) -> Result<f64, StepError> {
    let start = Barrier::new(2);
    let give_way = || {
        let bound = bound(cpu);
        start.wait();
        let (begun_ns, before) = (now_ns(), switches());
        for _ in 0..TURNS {
            // SAFETY: the call has no arguments.
            unsafe { libc::sched_yield() };
        }
        bound.map(|()| (begun_ns, now_ns(), switches() - before))
    };
    std::thread::scope(|scope| {
        let [one, other] = [scope.spawn(give_way), scope.spawn(give_way)].map(join);
        let ((begun_ns, ended_ns, ones), (begun_too_ns, ended_too_ns, others)) = (one?, other?);
        // One CPU, whichever task had it.
        let all_ns = ended_ns.max(ended_too_ns) - begun_ns.min(begun_too_ns);
        let switching_ns = all_ns as f64 - 2.0 * f64::from(TURNS) * yield_ns;
        Ok((switching_ns / (ones + others).max(1) as f64).max(0.0))
    })
}

/// A word that two tasks wait on.
#[derive(Default)]
struct Word(AtomicU32);

impl Word {
    fn call(&self, what: i32, value: u32) {
        let at = self.0.as_ptr();
        let none = std::ptr::null::<libc::timespec>();
        // SAFETY: the word lives as long as the call, and there is no timeout to read.
        unsafe { libc::syscall(libc::SYS_futex, at, what | libc::FUTEX_PRIVATE_FLAG, value, none) };
    }
    fn wait_while(&self, value: u32) {
        while self.0.load(Ordering::Acquire) == value {
            self.call(libc::FUTEX_WAIT, value);
        }
    }
    fn set(&self, value: u32) {
        self.0.store(value, Ordering::Release);
        self.call(libc::FUTEX_WAKE, 1);
    }
}

/// Measures two tasks that wake each other alternately; returns ns from one wake-up to the next.
pub(super) fn turn_ns(one: usize, other: usize) -> Result<f64, StepError> {
    let words = [Word::default(), Word::default()];
    let start = Barrier::new(2);
    let turns = |cpu: usize, me: usize| {
        let bound = bound(cpu);
        start.wait();
        let begun_ns = now_ns();
        for turn in 1..=TURNS {
            if me == 0 {
                words[1].set(turn);
                words[0].wait_while(turn - 1);
            } else {
                words[1].wait_while(turn - 1);
                words[0].set(turn);
            }
        }
        bound.map(|()| (now_ns() - begun_ns) as f64 / f64::from(2 * TURNS))
    };
    std::thread::scope(|scope| {
        let second = scope.spawn(|| turns(other, 1));
        let first = join(scope.spawn(|| turns(one, 0)));
        join(second)?;
        first
    })
}

/// membarrier(2).
fn membarrier(command: i32) -> Result<(), Error> {
    // SAFETY: the call has only numbers as arguments.
    let done = unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) };
    if done < 0 { Err(Error::last_os_error()) } else { Ok(()) }
}

/// Measures how much longer an expedited membarrier takes if a thread of the process runs on
/// another CPU, which must be interrupted.
pub(super) fn ipi_ns(one: usize, other: usize) -> Result<Option<f64>, StepError> {
    if membarrier(libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED).is_err() {
        return Ok(None);
    }
    let calls = || {
        let call = || drop(membarrier(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED));
        on(one, || Ok(median_ns(21, 100, call)))
    };
    let (spins, over) = (AtomicBool::new(false), AtomicBool::new(false));
    let alone_ns = calls()?;
    std::thread::scope(|scope| {
        let spinner = scope.spawn(|| {
            let bound = bound(other);
            spins.store(true, Ordering::Release);
            while !over.load(Ordering::Acquire) {
                std::hint::spin_loop();
            }
            bound
        });
        while !spins.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        let both_ns = calls();
        over.store(true, Ordering::Release);
        join(spinner)?;
        Ok(Some((both_ns? - alone_ns).max(0.0)))
    })
}
