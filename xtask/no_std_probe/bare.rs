//! A machine with one CPU, without tasks and timers: all that the frame allocator needs. Both
//! probes have it, and end by it.

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use mmscale_arch::bare::{Bare, BareCpu};
use mmscale_arch::{CpuId, IrqState};

/// The machine.
pub type Machine = BareCpu<OneCpu>;

/// The implementation of [`Bare`] for this machine.
pub struct OneCpu;

static PREEMPT: AtomicU32 = AtomicU32::new(0);
static IRQ_ON: AtomicBool = AtomicBool::new(true);

/// Returns whether no guard is held.
pub fn is_quiet() -> bool {
    PREEMPT.load(Ordering::Relaxed) == 0 && IRQ_ON.load(Ordering::Relaxed)
}

// SAFETY: there is one CPU, and one thread.
unsafe impl Bare for OneCpu {
    fn cpu() -> CpuId {
        CpuId::new(0)
    }
    fn cpus() -> usize {
        1
    }
    fn preempt_disable() {
        PREEMPT.fetch_add(1, Ordering::Relaxed);
    }
    fn preempt_enable() {
        PREEMPT.fetch_sub(1, Ordering::Relaxed);
    }
    fn irq_save() -> IrqState {
        IrqState(IRQ_ON.swap(false, Ordering::Relaxed))
    }
    fn irq_restore(state: IrqState) {
        IRQ_ON.store(state.0, Ordering::Relaxed);
    }
    /// With one CPU, a lock that is held is never released while waiting: this is a bug, not a
    /// wait.
    fn relax() {
        panic!("deadlock: the only CPU waits for a lock that it holds")
    }
}

/// Ends the program.
pub fn abort() -> ! {
    #[cfg(not(target_os = "none"))]
    {
        #[link(name = "c")]
        unsafe extern "C" {
            safe fn abort() -> !;
        }
        abort()
    }
    #[cfg(target_os = "none")]
    loop {
        core::hint::spin_loop();
    }
}

/// Referenced by the precompiled core, although nothing unwinds here.
#[cfg(not(target_os = "none"))]
#[unsafe(no_mangle)]
extern "C" fn rust_eh_personality() {}
