//! The system that runs on the processors: the callbacks of interrupts and tasks.

use crate::per_cpu;
use core::sync::atomic::{AtomicPtr, Ordering};
use mmscale_arch::Callbacks;

/// A reference to callbacks, which [`with`] keeps alive.
struct Current(&'static dyn Callbacks);

static CALLBACKS: AtomicPtr<Current> = AtomicPtr::new(core::ptr::null_mut());

/// Runs `run`, during which interrupts call `callbacks`; waits until all that were sent are
/// handled.
pub(crate) fn with<R>(callbacks: &dyn Callbacks, run: impl FnOnce() -> R) -> R {
    // SAFETY: no interrupt uses it after this function, and no task.
    let forever =
        unsafe { core::mem::transmute::<&dyn Callbacks, &'static dyn Callbacks>(callbacks) };
    let mut forever = Current(forever);
    // Pairs with the load in `current`.
    CALLBACKS.store(&raw mut forever, Ordering::Release);
    let result = run();
    while {
        let (sent, handled) = per_cpu::interrupts_so_far();
        sent != handled
    } {
        core::hint::spin_loop();
    }
    CALLBACKS.store(core::ptr::null_mut(), Ordering::Release);
    result
}

/// The callbacks of the running system. Panics if none does.
pub(crate) fn current() -> &'static dyn Callbacks {
    // Pairs with the store in `with`. SAFETY: `with` keeps it alive.
    let running = unsafe { CALLBACKS.load(Ordering::Acquire).as_ref() };
    running.expect("an interrupt comes while a system runs").0
}

/// Leaves idle, if the calling processor is idle. Interrupts are off.
pub(crate) fn leave_idle() {
    if per_cpu::own().is_idle.swap(false, Ordering::Relaxed) {
        current().idle_exit();
    }
}
