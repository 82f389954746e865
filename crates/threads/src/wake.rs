//! Spawning, parking, unparking: how tasks leave a CPU and return to one.

use crate::host::lock;
use crate::queue::WAKE_NS;
use crate::state::{Machine, here, pending};
use crate::task::{FAIR, Pause, Task};
use mmscale_arch::{CpuId, TaskId, TaskSpec};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Makes a task and queues it.
pub(crate) fn spawn(machine: &Machine, spec: TaskSpec) -> TaskId {
    assert!(spec.cpu.index() < machine.cpus.len(), "a task on {}, which does not exist", spec.cpu);
    machine.live.fetch_add(1, Ordering::AcqRel);
    let task = machine.tasks.insert(spec);
    let id = task.id;
    enqueue(machine, task);
    id
}

/// Inserts a task whose state is queued into the queue of its CPU, or of another CPU if its own is
/// closed.
pub(crate) fn enqueue(machine: &Machine, task: Arc<Task>) {
    let cpu = loop {
        let cpu = machine.cpu(task.queue_cpu());
        let mut queue = lock(&cpu.queue);
        if !queue.closed || task.per_cpu {
            queue.push(Arc::clone(&task));
            cpu.queued.store(queue.len(), Ordering::Release);
            break cpu;
        }
        drop(queue);
        task.set_queue_cpu(fallback_cpu(machine, &task));
    };
    let running = cpu.running_rank.load(Ordering::Relaxed);
    let ahead_ns = || {
        let used_ns = cpu.running_used_ns.load(Ordering::Relaxed);
        let used_ns = used_ns.wrapping_add(machine.clock.now_ns());
        used_ns.saturating_sub(task.used_ns.load(Ordering::Relaxed))
    };
    let urgent = task.rank > running || running == FAIR && ahead_ns() > WAKE_NS;
    if running != 0 && urgent {
        cpu.notify(pending::RESCHED);
    } else {
        cpu.kick();
    }
}

/// Returns another CPU for a task whose own is closed: the next that is online.
fn fallback_cpu(machine: &Machine, task: &Task) -> CpuId {
    let (from, count) = (task.queue_cpu().index(), machine.cpus.len());
    let others = (1..=count).map(|step| CpuId::new((from + step) % count));
    let open = |cpu: &CpuId| machine.is_online(*cpu) && !lock(&machine.cpu(*cpu).queue).closed;
    others.into_iter().find(open).unwrap_or(task.queue_cpu())
}

/// Makes a task return from its park.
pub(crate) fn unpark(machine: &Machine, id: TaskId) {
    if let Some(task) = machine.tasks.get(id).filter(|task| task.wake()) {
        enqueue(machine, Arc::clone(task));
    }
}

/// Waits for an unpark, or returns immediately if there was one.
pub(crate) fn park() {
    let cpu = here();
    let local = &cpu.local;
    if cpu.machine().dying.load(Ordering::Relaxed) {
        die();
    }
    let may_sleep = local.preempt.get() == 0 && local.irqs_on.get() && !local.in_interrupt.get();
    assert!(may_sleep, "park with preemption or interrupts off");
    // SAFETY: a task runs, and its CPU's pointer to it is valid as long as it does.
    let task = unsafe { local.task.get().as_ref() }.expect("park in a task");
    if !task.take_token() {
        suspend(Pause::Park);
    }
}

/// Suspends the running task until its CPU's scheduler, or another CPU's, resumes it.
pub(crate) fn suspend(why: Pause) {
    let local = &here().local;
    let task = local.task.get();
    debug_assert!(!task.is_null());
    // SAFETY: the running task is alive, and its yielder lives on its coroutine's stack.
    unsafe {
        (*task).path.set(local.path.get());
        (*(*task).yielder.get()).suspend(why);
    }
}

/// Stops for good: the run has failed.
pub(crate) fn die() -> ! {
    if here().local.task.get().is_null() {
        std::panic::resume_unwind(Box::new(Dying));
    }
    loop {
        suspend(Pause::Dead);
    }
}

/// The payload that unwinds a CPU's own thread after the run has failed.
pub(crate) struct Dying;
