//! Spin locks that block instead: the checker need not try every round of a spin. Only a CPU that
//! waits with interrupts on does spin, because interrupts must reach it: the holder may wait for
//! that.

use crate::Model;
use crate::memory::Id;
use crate::world::{self, here, with};
use mmscale_arch::{Cpu as _, LockClass, Machine as _, RawOsq, RawSpin};
use shuttle::sync::{Condvar, Mutex};

/// A spin lock of the model.
pub struct ModelSpin {
    held: Mutex<bool>,
    freed: Condvar,
    id: Id,
}

impl ModelSpin {
    /// The new holder sees what earlier holders have written.
    fn taken(&self) {
        with(|w| w.memory.learn(here(), &self.id));
    }
}

// SAFETY: the flag is set and cleared under a mutex of the model checker, and found clear once
// between two unlocks.
unsafe impl RawSpin for ModelSpin {
    fn new(_: LockClass) -> Self {
        Self { held: Mutex::new(false), freed: Condvar::new(), id: Id::default() }
    }
    fn lock(&self) {
        world::deliver();
        while world::on_here(|cpu| cpu.irqs_on) {
            if !core::mem::replace(&mut *self.held.lock().expect("no holder has panicked"), true) {
                return self.taken();
            }
            shuttle::thread::yield_now();
            world::deliver();
        }
        let mut held = self.held.lock().expect("no holder has panicked");
        while *held {
            held = self.freed.wait(held).expect("no holder has panicked");
        }
        *held = true;
        self.taken();
    }
    fn try_lock(&self) -> bool {
        world::deliver();
        let mut held = self.held.lock().expect("no holder has panicked");
        let free = !core::mem::replace(&mut *held, true);
        if free {
            self.taken();
        }
        free
    }
    unsafe fn unlock(&self) {
        // After a panic the schedule has ended, and no CPU waits.
        if let Ok(mut held) = self.held.lock() {
            with(|w| w.memory.teach(here(), &self.id));
            *held = false;
            self.freed.notify_one();
        }
    }
    fn is_locked(&self) -> bool {
        *self.held.lock().expect("no holder has panicked")
    }
}

/// A queue of spinners in which the next one is any of them. Scenarios of the queue that machines
/// use, [`mmscale_arch::sync::Osq`], use that type itself.
pub struct ModelOsq(ModelSpin);

impl RawOsq for ModelOsq {
    fn new() -> Self {
        Self(ModelSpin::new(LockClass::Osq))
    }
    fn lock(&self) -> bool {
        while !self.0.try_lock() {
            if Model::need_resched() {
                return false;
            }
            Model::relax();
        }
        true
    }
    fn unlock(&self) {
        // SAFETY: the caller is at the head of the queue: it has taken the lock.
        unsafe { self.0.unlock() };
    }
}
