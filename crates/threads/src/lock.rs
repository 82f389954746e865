//! The spin lock: tickets where every CPU has a host CPU of its own, first come first served by
//! chance where they share.

use crate::host::Waiting;
use crate::interrupt::relax;
use crate::state::{Cpu, here, try_here};
use mmscale_mm::arch::{LockClass, RawSpin};
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

// SAFETY: a ticket is served once, or an exchange finds 0 once between two unlocks; `Acquire` where
// it is taken pairs with `Release` in `unlock`.
unsafe impl RawSpin for ThreadsSpin {
    fn new(class: LockClass) -> Self {
        let waiting = try_here().map_or(Waiting::Yield, |cpu| cpu.machine().waiting);
        Self { next: AtomicU32::new(0), serving: AtomicU32::new(0), class, waiting }
    }

    #[inline]
    fn lock(&self) {
        let cpu = here();
        match self.waiting {
            Waiting::Spin => {
                let ticket = self.next.fetch_add(1, Ordering::Relaxed);
                if self.serving.load(Ordering::Acquire) != ticket {
                    return self.wait(cpu, || self.serving.load(Ordering::Acquire) == ticket);
                }
            }
            Waiting::Yield => {
                if !self.take() {
                    return self.wait(cpu, || self.take());
                }
            }
        }
        count(cpu, |stats, path| stats.acquired(path, self.class));
    }

    #[inline]
    fn try_lock(&self) -> bool {
        let taken = match self.waiting {
            Waiting::Spin => {
                let ticket = self.serving.load(Ordering::Relaxed);
                let next = ticket.wrapping_add(1);
                self.next
                    .compare_exchange(ticket, next, Ordering::Acquire, Ordering::Relaxed)
                    .is_ok()
            }
            Waiting::Yield => self.take(),
        };
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
    /// A lock with tickets, whatever machine it is for.
    pub(crate) fn fair(class: LockClass) -> Self {
        let waiting = Waiting::Spin;
        Self { next: AtomicU32::new(0), serving: AtomicU32::new(0), class, waiting }
    }

    /// Takes a lock that nobody holds or wants; no statistics. Says whether that was so.
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

    #[inline]
    fn take(&self) -> bool {
        self.serving.load(Ordering::Relaxed) == 0 && self.serving.swap(1, Ordering::Acquire) == 0
    }

    /// Waits until `taken`. The caller keeps preemption off, so it stays on `cpu`.
    #[cold]
    fn wait(&self, cpu: &Cpu, taken: impl Fn() -> bool) {
        let clock = &cpu.machine().clock;
        let from_ns = clock.now_ns();
        while !taken() {
            relax();
        }
        let wait_ns = clock.now_ns() - from_ns;
        count(cpu, |stats, path| stats.waited(path, self.class, wait_ns));
    }
}

#[inline]
fn count(cpu: &Cpu, add: impl FnOnce(&mut crate::paths::LockStats, u32)) {
    // SAFETY: this thread is `cpu`, and `add` does nothing but count.
    add(unsafe { &mut *cpu.local.stats.get() }, cpu.local.path.get());
}
