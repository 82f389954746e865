//! Taking CPUs offline and online again.
//!
//! [`crate::state::hotplug`] lists the states of a CPU. The CPU's own thread makes the steps
//! STOPPING -> DEAD and STARTING -> STARTED; the task that requested the change makes all others.
//!
//! Orderings: each store of a state with `Release`, and each exchange, pairs with the `Acquire`
//! loads of the states in the wait loops here and in the scheduler. `hotplug_waiter` is relaxed
//! because the next store or exchange of the state publishes it.

use crate::host::lock;
use crate::interrupt::take_interrupts;
use crate::state::{Cpu, Machine, NEVER, here, hotplug, pending};
use crate::task::Pause;
use crate::wake::{enqueue, park, suspend, unpark};
use mmscale_arch::{CpuId, HotplugError, TaskId};
use std::sync::atomic::Ordering;

/// Takes `cpu` offline; see [`mmscale_arch::Machine::cpu_offline`].
pub(crate) fn offline(cpu: CpuId) -> Result<(), HotplugError> {
    let machine = here().machine();
    let target = find(machine, cpu)?;
    change(target, hotplug::ONLINE, hotplug::LEAVING)?;
    let more = |count: usize| (count > 1).then(|| count - 1);
    if machine.online_count.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).is_err() {
        target.hotplug.store(hotplug::ONLINE, Ordering::Release);
        return Err(HotplugError::LastCpu);
    }
    machine.set_offline(cpu);
    leave(cpu);
    machine.callbacks().cpu_down_prepare(cpu);
    target.hotplug_waiter.store(me().index() as u32, Ordering::Relaxed);
    target.hotplug.store(hotplug::STOPPING, Ordering::Release);
    target.notify(pending::RESCHED);
    while target.hotplug.load(Ordering::Acquire) != hotplug::DEAD {
        park();
    }
    machine.callbacks().cpu_dead(cpu);
    target.hotplug.store(hotplug::OFFLINE, Ordering::Release);
    Ok(())
}

/// Takes `cpu` online; see [`mmscale_arch::Machine::cpu_online`].
pub(crate) fn online(cpu: CpuId) -> Result<(), HotplugError> {
    let machine = here().machine();
    let target = find(machine, cpu)?;
    target.hotplug_waiter.store(me().index() as u32, Ordering::Relaxed);
    change(target, hotplug::OFFLINE, hotplug::STARTING)?;
    target.kick();
    while target.hotplug.load(Ordering::Acquire) != hotplug::STARTED {
        park();
    }
    machine.online_count.fetch_add(1, Ordering::AcqRel);
    machine.set_online(cpu);
    target.hotplug.store(hotplug::ONLINE, Ordering::Release);
    machine.callbacks().cpu_online(cpu);
    Ok(())
}

fn find(machine: &Machine, cpu: CpuId) -> Result<&Cpu, HotplugError> {
    machine.cpus.get(cpu.index()).ok_or(HotplugError::NoSuchCpu)
}

fn change(cpu: &Cpu, from: u8, to: u8) -> Result<(), HotplugError> {
    let changed = cpu.hotplug.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire);
    changed.map(|_| ()).map_err(|_| HotplugError::NotNow)
}

/// Returns the id of the calling task.
fn me() -> TaskId {
    // SAFETY: the running task is alive; hotplug functions are called in tasks.
    unsafe { here().local.task.get().as_ref() }.expect("hotplug is asked for in a task").id
}

/// Moves the calling task away from `cpu`, if it runs there.
fn leave(cpu: CpuId) {
    while here().id == cpu {
        let machine = here().machine();
        let others = (1..machine.cpus.len()).map(|step| (cpu.index() + step) % machine.cpus.len());
        let mut others = others.map(CpuId::new);
        let other = others.find(|&other| machine.is_online(other));
        suspend(Pause::MoveTo(other.expect("another CPU is online")));
    }
}

/// Stops this CPU until it is asked to start, or until the run has ended. The scheduler calls it.
pub(crate) fn stop(cpu: &Cpu) {
    let machine = cpu.machine();
    // The completion of a swap request must not be lost with its interrupt.
    while !lock(&cpu.finished).is_empty() && take_interrupts(cpu, machine.clock.now_ns()) {}
    let callbacks = machine.callbacks();
    callbacks.idle_enter();
    while !callbacks.cpu_dying() && !machine.over.load(Ordering::Acquire) {
        take_interrupts(cpu, machine.clock.now_ns());
        std::thread::yield_now();
    }
    let moved = {
        let mut queue = lock(&cpu.queue);
        queue.closed = true;
        cpu.queued.store(0, Ordering::Release);
        queue.take_unbound()
    };
    moved.into_iter().for_each(|task| enqueue(machine, task));
    cpu.deadline_ns.store(NEVER, Ordering::Relaxed);
    cpu.pending.fetch_and(pending::DYING, Ordering::Relaxed);
    set_state(cpu, hotplug::DEAD);
    let called = || {
        cpu.hotplug.load(Ordering::Acquire) == hotplug::STARTING
            || machine.over.load(Ordering::Acquire)
    };
    while !called() {
        cpu.sleep_until(NEVER, called);
    }
    if machine.over.load(Ordering::Acquire) {
        return;
    }
    {
        let mut queue = lock(&cpu.queue);
        queue.closed = false;
        cpu.queued.store(queue.len(), Ordering::Release);
    }
    cpu.pending.fetch_and(pending::DYING, Ordering::Relaxed);
    callbacks.idle_exit();
    set_state(cpu, hotplug::STARTED);
}

/// Goes to `state` and wakes the task that asked for it.
fn set_state(cpu: &Cpu, state: u8) {
    let waiter = TaskId::new(cpu.hotplug_waiter.load(Ordering::Relaxed) as usize);
    cpu.hotplug.store(state, Ordering::Release);
    unpark(cpu.machine(), waiter);
}
