//! The spin lock: tickets where every CPU has a host CPU of its own; test-and-set where they share
//! host CPUs, because the next in order may not be running.

use crate::Threads;
use crate::host::Waiting;
use crate::interrupt::{must_switch, relax};
use crate::state::{Cpu, here, try_here};
use mmscale_arch::sync::Osq;
use mmscale_arch::{LockClass, RawOsq, RawSpin};
use std::sync::atomic::{AtomicU32, Ordering};

/// A spin lock.
///
/// # Invariants
/// With tickets it is free exactly if `next == serving`; without, exactly if `serving == 0`.
#[derive(Debug)]
pub struct ThreadsSpin {
    next: AtomicU32,
    serving: AtomicU32,
    class: LockClass,
    waiting: Waiting,
}

// SAFETY: a ticket is served once, or an exchange finds 0 once between two unlocks. The `Acquire`
// with which the lock is taken pairs with the `Release` in `unlock`.
unsafe impl RawSpin for ThreadsSpin {
    fn new(class: LockClass) -> Self {
        let waiting = try_here().map_or(Waiting::Yield, |cpu| cpu.machine().waiting);
        Self { next: AtomicU32::new(0), serving: AtomicU32::new(0), class, waiting }
    }

    #[inline]
    fn lock(&self) {
        match self.waiting {
            Waiting::Spin => {
                let ticket = self.next.fetch_add(1, Ordering::Relaxed);
                if self.serving.load(Ordering::Acquire) != ticket {
                    return self.wait(|| self.serving.load(Ordering::Acquire) == ticket);
                }
            }
            Waiting::Yield => {
                if !self.take() {
                    return self.wait(|| self.take());
                }
            }
        }
        count(here(), |stats, path| stats.acquired(path, self.class));
    }

    #[inline]
    fn try_lock(&self) -> bool {
        let taken = self.try_take();
        if taken {
            count(here(), |stats, path| stats.acquired(path, self.class));
        }
        taken
    }

    #[inline]
    unsafe fn unlock(&self) {
        match self.waiting {
            Waiting::Spin => {
                // Only the holder writes it.
                let ticket = self.serving.load(Ordering::Relaxed);
                self.serving.store(ticket.wrapping_add(1), Ordering::Release);
            }
            Waiting::Yield => self.serving.store(0, Ordering::Release),
        }
    }

    #[inline]
    fn is_locked(&self) -> bool {
        match self.waiting {
            Waiting::Spin => {
                self.next.load(Ordering::Relaxed) != self.serving.load(Ordering::Relaxed)
            }
            Waiting::Yield => self.serving.load(Ordering::Relaxed) != 0,
        }
    }
}

impl ThreadsSpin {
    /// Makes a lock with tickets, for any machine.
    pub(crate) fn fair(class: LockClass) -> Self {
        let waiting = Waiting::Spin;
        Self { next: AtomicU32::new(0), serving: AtomicU32::new(0), class, waiting }
    }

    /// Takes a lock that is free and has no waiters; no statistics. Returns whether the lock was
    /// free. If not, a ticket of `Waiting::Spin` is taken and never served.
    #[inline]
    pub(crate) fn take_free(&self) -> bool {
        match self.waiting {
            Waiting::Spin => {
                let ticket = self.next.fetch_add(1, Ordering::Relaxed);
                self.serving.load(Ordering::Acquire) == ticket
            }
            Waiting::Yield => self.take(),
        }
    }

    /// Takes the lock if it is free; no statistics.
    #[inline]
    fn try_take(&self) -> bool {
        match self.waiting {
            Waiting::Spin => {
                // Pairs with the `Release` in `unlock`. An `Acquire` exchange of `next` would not,
                // because the last holder did not write `next`.
                let ticket = self.serving.load(Ordering::Acquire);
                let next = ticket.wrapping_add(1);
                let ours =
                    self.next.compare_exchange(ticket, next, Ordering::Relaxed, Ordering::Relaxed);
                ours.is_ok()
            }
            Waiting::Yield => self.take(),
        }
    }

    #[inline]
    fn take(&self) -> bool {
        self.serving.load(Ordering::Relaxed) == 0 && self.serving.swap(1, Ordering::Acquire) == 0
    }

    /// Waits until `taken` returns true. The current CPU is read again afterwards: a caller that
    /// left preemption on may be on another one.
    #[cold]
    fn wait(&self, taken: impl Fn() -> bool) {
        let clock = &here().machine().clock;
        let from_ns = clock.now_ns();
        while !taken() {
            relax();
        }
        let wait_ns = clock.now_ns() - from_ns;
        count(here(), |stats, path| stats.waited(path, self.class, wait_ns));
    }
}

/// The queue of CPUs that spin for a sleeping lock. Where CPUs share host CPUs, it is a lock that
/// goes to any of them, as a [`ThreadsSpin`] does.
pub enum ThreadsOsq {
    /// Each CPU has a host CPU of its own.
    InOrder(Osq<Threads>),
    /// They share host CPUs.
    Any(ThreadsSpin),
}

impl RawOsq for ThreadsOsq {
    fn new() -> Self {
        let waiting = try_here().map_or(Waiting::Yield, |cpu| cpu.machine().waiting);
        match waiting {
            Waiting::Spin => Self::InOrder(Osq::new()),
            Waiting::Yield => Self::Any(ThreadsSpin::new(LockClass::Osq)),
        }
    }

    fn lock(&self) -> bool {
        let joined = match self {
            Self::InOrder(queue) => queue.join(),
            Self::Any(lock) => lock.take(),
        };
        if joined {
            count(here(), |stats, path| stats.acquired(path, LockClass::Osq));
            return true;
        }
        let from_ns = here().machine().clock.now_ns();
        let at_head = match self {
            Self::InOrder(queue) => queue.wait(),
            Self::Any(lock) => loop {
                if lock.take() {
                    break true;
                }
                if must_switch() {
                    break false;
                }
                relax();
            },
        };
        if at_head {
            let wait_ns = here().machine().clock.now_ns() - from_ns;
            count(here(), |stats, path| stats.waited(path, LockClass::Osq, wait_ns));
        }
        at_head
    }

    fn unlock(&self) {
        match self {
            Self::InOrder(queue) => queue.unlock(),
            // SAFETY: the caller is at the head of the queue, so it holds the lock.
            Self::Any(lock) => unsafe { lock.unlock() },
        }
    }
}

/// Returns the time of waits for sleeping locks, in ns; 0 on a thread that is no CPU.
pub(crate) fn clock_ns() -> u64 {
    try_here().map_or(0, |cpu| cpu.machine().clock.now_ns())
}

/// Counts that the calling task has taken a sleeping lock, and has waited since `since_ns`.
pub(crate) fn count_sleeping(class: LockClass, since_ns: Option<u64>) {
    let Some(cpu) = try_here() else { return };
    count(cpu, |stats, path| match since_ns {
        None => stats.acquired(path, class),
        Some(since_ns) => {
            stats.waited(path, class, cpu.machine().clock.now_ns().saturating_sub(since_ns));
        }
    });
}

#[inline]
fn count(cpu: &Cpu, add: impl FnOnce(&mut crate::paths::LockStats, u32)) {
    // SAFETY: this thread is `cpu`, and `add` only counts.
    add(unsafe { &mut *cpu.local.stats.get() }, cpu.local.path.get());
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::UnsafeCell;

    /// A number that a lock protects.
    struct Guarded(ThreadsSpin, UnsafeCell<u32>);

    // SAFETY: the number is accessed under the lock only.
    unsafe impl Sync for Guarded {}

    /// Fails where the processor reorders, and under miri, if taking the lock does not order later
    /// accesses after those of its last holder.
    #[test]
    fn a_new_holder_sees_the_writes_of_the_last_one() {
        const TURNS: u32 = 100;
        for waiting in [Waiting::Spin, Waiting::Yield] {
            let lock = ThreadsSpin { waiting, ..ThreadsSpin::fair(LockClass::Other) };
            let guarded = Guarded(lock, UnsafeCell::new(0));
            let count = || {
                let Guarded(lock, number) = &guarded;
                for _ in 0..TURNS {
                    while !lock.try_take() {
                        std::thread::yield_now();
                    }
                    // SAFETY: taken above.
                    unsafe {
                        *number.get() += 1;
                        lock.unlock();
                    }
                }
            };
            std::thread::scope(|scope| (0..2).for_each(|_| _ = scope.spawn(count)));
            assert_eq!(guarded.1.into_inner(), 2 * TURNS, "{waiting:?}");
        }
    }
}
