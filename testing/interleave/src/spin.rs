//! Spin locks that block instead: the checker need not try every round of a spin. Only a CPU that
//! waits with interrupts on does spin, because interrupts must reach it: the holder may wait for
//! that.

use crate::Model;
use crate::memory::Id;
use crate::world::{self, here, with};
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicBool, AtomicUsize};
use mmscale_arch::{Cpu as _, LockClass, Machine as _, RawOsq, RawSpin};
use shuttle::sync::{Condvar, Mutex};

/// A spin lock of the model. All CPUs run on one thread of the host, so its fields need no order.
pub struct ModelSpin {
    held: AtomicBool,
    /// CPUs that wait with interrupts off.
    waiting: AtomicUsize,
    /// Held between a look at `held` and the wait for `freed`.
    gate: Mutex<()>,
    freed: Condvar,
    id: Id,
}

impl ModelSpin {
    fn take(&self) -> bool {
        let free = !self.held.swap(true, Relaxed);
        if free {
            // The new holder sees what earlier holders have written.
            with(|w| w.memory.learn(here(), &self.id));
        }
        free
    }
    /// Takes the lock, with interrupts off.
    fn wait(&self) {
        self.waiting.fetch_add(1, Relaxed);
        let mut gate = self.gate.lock().expect("no CPU panics with it");
        while !self.take() {
            gate = self.freed.wait(gate).expect("no CPU panics with it");
        }
        self.waiting.fetch_sub(1, Relaxed);
    }
}

// SAFETY: the flag is found clear and set with no step of another CPU in between, and cleared by
// the holder alone.
unsafe impl RawSpin for ModelSpin {
    fn new(_: LockClass) -> Self {
        Self {
            held: AtomicBool::new(false),
            waiting: AtomicUsize::new(0),
            gate: Mutex::new(()),
            freed: Condvar::new(),
            id: Id::default(),
        }
    }
    fn lock(&self) {
        world::step();
        while !self.take() {
            if !world::on_here(|cpu| cpu.irqs_on) {
                return self.wait();
            }
            shuttle::thread::yield_now();
            world::deliver();
        }
    }
    fn try_lock(&self) -> bool {
        world::step();
        self.take()
    }
    unsafe fn unlock(&self) {
        // Others find it held, even if the holder had no other point of the schedule.
        world::switch();
        with(|w| w.memory.teach(here(), &self.id));
        self.held.store(false, Relaxed);
        // After a panic the schedule has ended, and no CPU waits.
        if self.waiting.load(Relaxed) > 0
            && let Ok(_gate) = self.gate.lock()
        {
            self.freed.notify_one();
        }
    }
    fn is_locked(&self) -> bool {
        world::switch();
        self.held.load(Relaxed)
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
