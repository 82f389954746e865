//! The smallest machines that the frame allocator runs on: threads with a number.
//!
//! It has what an embedding of the allocator needs: a CPU number, counts for preemption and
//! interrupts, and nothing else. The preemption count and the interrupt flag are really maintained,
//! in memory of the thread.

use mmscale_arch::bare::Bare;
use mmscale_arch::{CpuId, IrqState};
use std::cell::Cell;

/// CPUs of the machine, even if fewer threads use them.
const CPUS: usize = 2;

/// Rounds of a wait after which the processor is yielded: the lock's holder may need it.
const PATIENCE: u32 = 256;

/// The part that differs from other machines, as a tag type. Without `COUNTS` it has neither
/// preemption nor interrupts, as a program whose threads stay on their CPUs: the other allocators
/// count neither.
pub struct HostThreads<const COUNTS: bool>;

/// The state of a CPU.
struct Local {
    cpu: Cell<CpuId>,
    preempt: Cell<u32>,
    irq_on: Cell<bool>,
    /// Rounds spent waiting for locks, with wrap-around.
    turns: Cell<u32>,
}

thread_local! {
    static LOCAL: Local = const {
        Local {
            cpu: Cell::new(CpuId::new(0)),
            preempt: Cell::new(0),
            irq_on: Cell::new(true),
            turns: Cell::new(0),
        }
    };
}

/// Makes this thread `cpu`.
pub(crate) fn become_cpu(cpu: usize) {
    assert!(cpu < CPUS);
    LOCAL.with(|local| local.cpu.set(CpuId::new(cpu)));
}

// SAFETY: each thread that allocates has become a CPU of its own and stays on it.
unsafe impl<const COUNTS: bool> Bare for HostThreads<COUNTS> {
    #[inline]
    fn cpu() -> CpuId {
        LOCAL.with(|local| local.cpu.get())
    }
    #[inline]
    fn cpus() -> usize {
        CPUS
    }
    #[inline]
    fn preempt_disable() {
        if COUNTS {
            LOCAL.with(|local| local.preempt.set(local.preempt.get() + 1));
        }
    }
    #[inline]
    fn preempt_enable() {
        if COUNTS {
            LOCAL.with(|local| local.preempt.set(local.preempt.get() - 1));
        }
    }
    #[inline]
    fn irq_save() -> IrqState {
        IrqState(COUNTS && LOCAL.with(|local| local.irq_on.replace(false)))
    }
    #[inline]
    fn irq_restore(state: IrqState) {
        if COUNTS {
            LOCAL.with(|local| local.irq_on.set(state.0));
        }
    }
    fn relax() {
        let turns = LOCAL.with(|local| {
            local.turns.set(local.turns.get().wrapping_add(1));
            local.turns.get()
        });
        if turns.is_multiple_of(PATIENCE) {
            std::thread::yield_now();
        } else {
            std::hint::spin_loop();
        }
    }
}
