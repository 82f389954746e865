//! Interrupts and preemption: a CPU polls for them where interrupts or preemption are turned on,
//! and in wait loops.
//!
//! A sender sets a bit of `pending` with `Release` (`Cpu::notify`). The relaxed loads here are only
//! polls; the `Acquire` swap in [`take_interrupts`] and the `Acquire` load in [`is_due`] pair with
//! it. `deadline_ns` is written by the CPU itself.

use crate::host::Waiting;
use crate::paths::INTERRUPT;
use crate::queue::SLICE_NS;
use crate::state::{Cpu, NEVER, here, pending};
use crate::task::{FAIR, Pause};
use crate::wake::{die, suspend};
use mmscale_arch::{CpuId, Ipi};
use std::sync::atomic::Ordering;

/// Polls between two reads of the clock. A read costs 10 to 25 ns, a poll about 1 ns; code that
/// allocates polls several times in 100 ns, so a timer is late by about a microsecond at most.
const CLOCK_EVERY: u32 = 16;

/// Rounds of a wait loop after which a CPU that shares its host CPU yields.
const YIELD_EVERY_SHARED: u32 = 64;
/// Rounds of a wait loop after which a CPU with a host CPU to itself yields: other programs may
/// want that one too.
const YIELD_EVERY_OWN: u32 = 1 << 14;

/// Reasons of interrupts, in the order in which they are taken.
const REASONS: [Ipi; Ipi::COUNT] =
    [Ipi::CallFunction, Ipi::RcuExpedited, Ipi::Timer, Ipi::Block, Ipi::DrainPages];

/// Polls for interrupts. Interrupts are on.
#[inline]
pub(crate) fn poll(cpu: &Cpu) {
    let polls = cpu.local.polls.get();
    cpu.local.polls.set(polls.wrapping_sub(1));
    if polls == 0 || cpu.pending.load(Ordering::Relaxed) != 0 {
        attend();
    }
}

/// Handles everything that is pending, the timer included. Interrupts are on. The task may be on
/// another CPU afterwards.
#[cold]
#[inline(never)]
pub(crate) fn attend() {
    loop {
        let cpu = here();
        cpu.local.polls.set(CLOCK_EVERY);
        if std::thread::panicking() {
            // A panic drops a guard: the run is about to fail.
            return;
        }
        if cpu.machine().dying.load(Ordering::Relaxed) {
            die();
        }
        let now_ns = cpu.machine().clock.now_ns();
        if take_interrupts(cpu, now_ns) {
            continue;
        }
        if !is_to_switch(cpu, now_ns) {
            return;
        }
        let local = &cpu.local;
        if local.preempt.get() != 0 {
            // The next poll checks again.
            local.polls.set(0);
            return;
        }
        suspend(Pause::Preempted);
    }
}

/// Whether this CPU is to switch tasks as soon as preemption is on.
pub(crate) fn must_switch() -> bool {
    let cpu = here();
    is_to_switch(cpu, cpu.machine().clock.now_ns())
}

fn is_to_switch(cpu: &Cpu, now_ns: u64) -> bool {
    cpu.local.need_resched.get() || slice_is_over(cpu, now_ns)
}

/// Whether the running task has used up its slice while another waits.
fn slice_is_over(cpu: &Cpu, now_ns: u64) -> bool {
    let fair = cpu.running_rank.load(Ordering::Relaxed) == FAIR;
    let turn_ns = now_ns.saturating_sub(cpu.local.started_ns.get());
    fair && turn_ns >= SLICE_NS && cpu.queued.load(Ordering::Relaxed) > 0
}

/// Whether an interrupt is pending.
pub(crate) fn is_due(cpu: &Cpu, now_ns: u64) -> bool {
    cpu.pending.load(Ordering::Acquire) & pending::INTERRUPTS != 0
        || cpu.deadline_ns.load(Ordering::Relaxed) <= now_ns
}

/// Takes the pending interrupts, in a task or in idle; returns whether there were any.
pub(crate) fn take_interrupts(cpu: &Cpu, now_ns: u64) -> bool {
    let local = &cpu.local;
    let bits = match cpu.pending.load(Ordering::Relaxed) {
        0 => 0,
        _ => cpu.pending.swap(0, Ordering::Acquire),
    };
    if bits & pending::RESCHED != 0 {
        local.need_resched.set(true);
    }
    let deadline_ns = cpu.deadline_ns.load(Ordering::Relaxed);
    let timer = deadline_ns <= now_ns;
    if bits & pending::INTERRUPTS == 0 && !timer {
        return false;
    }
    let (irqs_on, path) = (local.irqs_on.replace(false), cpu.go_to_path(INTERRUPT));
    local.in_interrupt.set(true);
    local.preempt.set(local.preempt.get() + 1);
    let callbacks = cpu.machine().callbacks();
    for reason in REASONS.into_iter().filter(|&reason| bits & pending::bit(reason) != 0) {
        callbacks.ipi(reason);
    }
    if timer {
        let late_ns = now_ns - deadline_ns;
        local.timer_late_max_ns.set(local.timer_late_max_ns.get().max(late_ns));
        cpu.deadline_ns.store(NEVER, Ordering::Relaxed);
        callbacks.timer();
    }
    local.preempt.set(local.preempt.get() - 1);
    local.in_interrupt.set(false);
    local.irqs_on.set(irqs_on);
    cpu.go_to_path(path);
    true
}

/// Sends an interrupt.
pub(crate) fn send(target: CpuId, reason: Ipi) {
    here().machine().cpu(target).notify(pending::bit(reason));
}

/// Passes one round of a wait loop.
pub(crate) fn relax() {
    core::hint::spin_loop();
    let cpu = here();
    let (local, machine) = (&cpu.local, cpu.machine());
    let turns = local.relaxes.get().wrapping_add(1);
    local.relaxes.set(turns);
    let yield_every = match machine.waiting {
        Waiting::Spin => YIELD_EVERY_OWN,
        Waiting::Yield => YIELD_EVERY_SHARED,
    };
    if turns.is_multiple_of(yield_every) {
        std::thread::yield_now();
    }
    if local.irqs_on.get() && !local.in_interrupt.get() {
        attend();
    } else if machine.dying.load(Ordering::Relaxed) && !std::thread::panicking() {
        die();
    }
}

/// Lets the running task compute for `ns` of its own time.
pub(crate) fn compute(ns: u64) {
    /// Rounds between two reads of the clock: a microsecond or two.
    const TURNS: u32 = 32;
    let mut left_ns = ns;
    while left_ns > 0 {
        let from_ns = here().machine().clock.now_ns();
        (0..TURNS).for_each(|_| core::hint::spin_loop());
        let turn_ns = here().machine().clock.now_ns() - from_ns;
        left_ns = left_ns.saturating_sub(turn_ns.max(1));
        attend();
    }
}
