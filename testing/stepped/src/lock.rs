//! Spin locks that never spin: with one host thread, a lock that is held can never be taken.

use crate::machine;
use core::cell::Cell;
use mmscale_arch::{LockClass, RawSpin};

/// A spin lock that panics where a real one would spin for ever.
#[derive(Debug)]
pub struct SteppedSpin {
    class: LockClass,
    id: u32,
    /// The CPU that holds it.
    holder: Cell<Option<usize>>,
    /// Whether it was once waited for in an interrupt.
    in_interrupt: Cell<bool>,
    /// Whether it was once taken with interrupts on.
    irqs_on: Cell<bool>,
}

impl SteppedSpin {
    fn take(&self, wait: bool) {
        let cpu = machine::cpu().index();
        machine::here(|state| {
            assert!(state.preempt > 0, "lock {:?} taken with preemption on", self.class);
            if wait
                && let Some(&(held, _)) = state.held.iter().find(|(held, _)| *held >= self.class)
            {
                panic!("lock order: {:?} taken on cpu{cpu} under {held:?}", self.class);
            }
            // An interrupt that only tries the lock never waits for the task that it interrupted.
            if state.in_interrupt && wait {
                self.in_interrupt.set(true);
            } else if state.irqs_on {
                self.irqs_on.set(true);
            }
            assert!(
                !(self.in_interrupt.get() && self.irqs_on.get()),
                "lock {:?} is waited for in interrupts and taken with interrupts on",
                self.class
            );
            state.held.push((self.class, self.id));
        });
        self.holder.set(Some(cpu));
        machine::count_lock(self.class);
    }
}

// SAFETY: one thread; taking a lock that is held panics.
unsafe impl RawSpin for SteppedSpin {
    fn new(class: LockClass) -> Self {
        Self {
            class,
            id: machine::next_lock(),
            holder: Cell::new(None),
            in_interrupt: Cell::new(false),
            irqs_on: Cell::new(false),
        }
    }
    #[inline]
    fn lock(&self) {
        if let Some(holder) = self.holder.get() {
            panic!("lock {:?} is held by cpu{holder}: it would spin for ever", self.class);
        }
        self.take(true);
    }
    #[inline]
    fn try_lock(&self) -> bool {
        let free = self.holder.get().is_none();
        if free {
            self.take(false);
        }
        free
    }
    #[inline]
    unsafe fn unlock(&self) {
        let cpu = machine::cpu().index();
        machine::expect(self.holder.get() == Some(cpu), "a lock is unlocked by another CPU");
        self.holder.set(None);
        machine::here(|state| {
            let at = state.held.iter().rposition(|&(_, id)| id == self.id);
            machine::expect(at.is_some(), "a lock is unlocked that this CPU does not hold");
            at.map(|at| state.held.remove(at));
        });
    }
    #[inline]
    fn is_locked(&self) -> bool {
        self.holder.get().is_some()
    }
}
