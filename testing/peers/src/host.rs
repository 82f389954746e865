//! The smallest machine that the frame allocator runs on: threads with a number.
//!
//! It is what somebody writes who embeds the allocator: a CPU number, counts for preemption and
//! interrupts, and nothing else. The preemption count and the interrupt flag are kept up for real,
//! in memory of the thread.

use mmscale_arch::bare::{Bare, BareCpu};
use mmscale_arch::{CpuId, IrqState};
use std::cell::Cell;

/// CPUs of the machine, whether or not a thread stands for them.
const CPUS: usize = 2;

/// Turns of a wait after which the processor is given away: the lock's holder may need it.
const PATIENCE: u32 = 256;

/// The machine.
pub(crate) type Host = BareCpu<HostThreads>;

/// What is particular to it, as a tag type.
pub(crate) struct HostThreads;

/// What a CPU knows about itself.
struct Local {
    cpu: Cell<CpuId>,
    preempt: Cell<u32>,
    irq_on: Cell<bool>,
    /// Turns spent waiting for locks, with wrap-around.
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

/// From now on this thread is `cpu`.
pub(crate) fn become_cpu(cpu: usize) {
    assert!(cpu < CPUS);
    LOCAL.with(|local| local.cpu.set(CpuId::new(cpu)));
}

// SAFETY: each thread that allocates has become a CPU of its own and stays it.
unsafe impl Bare for HostThreads {
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
        LOCAL.with(|local| local.preempt.set(local.preempt.get() + 1));
    }
    #[inline]
    fn preempt_enable() {
        LOCAL.with(|local| local.preempt.set(local.preempt.get() - 1));
    }
    #[inline]
    fn irq_save() -> IrqState {
        IrqState(LOCAL.with(|local| local.irq_on.replace(false)))
    }
    #[inline]
    fn irq_restore(state: IrqState) {
        LOCAL.with(|local| local.irq_on.set(state.0));
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
