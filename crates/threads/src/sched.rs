//! The main loop of a CPU's thread: run the next task, or idle.

use crate::config::{Failure, panic_message};
use crate::host::{Waiting, lock};
use crate::hotplug;
use crate::interrupt::{is_due, take_interrupts};
use crate::paths::ROOT;
use crate::state::{Cpu, Machine, here, hotplug as cpu_state, pending};
use crate::task::{Body, FAIR, Pause, Task};
use crate::wake::enqueue;
use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Address space of a task's stack; only its touched pages use memory.
const STACK_BYTES: usize = 256 * 1024;
/// Checks before an idle CPU with a host CPU to itself sleeps: about 10 us, the time that the host
/// takes to put a thread to sleep and wake it.
const IDLE_LOOKS: u32 = 200;

/// Runs the CPU of the calling thread until the run has ended. Interrupts are off in here, except
/// while a task runs.
pub(crate) fn main_loop() {
    let cpu = here();
    let machine = cpu.machine();
    while !machine.over.load(Ordering::Acquire) {
        if cpu.hotplug.load(Ordering::Acquire) == cpu_state::STOPPING {
            hotplug::stop(cpu);
            continue;
        }
        match next(cpu) {
            Some(task) => run(cpu, task),
            None => idle(cpu),
        }
    }
}

fn next(cpu: &Cpu) -> Option<Arc<Task>> {
    let mut queue = lock(&cpu.queue);
    let task = queue.pop();
    cpu.queued.store(queue.len(), Ordering::Release);
    task
}

/// Runs a task until it yields the CPU.
fn run(cpu: &Cpu, task: Arc<Task>) {
    let (machine, local) = (cpu.machine(), &cpu.local);
    // SAFETY: the task was queued and has left its queue: only this CPU uses its body.
    let slot = unsafe { &mut *task.body.get() };
    let body = slot.get_or_insert_with(|| make_body(cpu, &task));
    let start_ns = machine.clock.now_ns();
    let used_ns = task.used_ns.load(Ordering::Relaxed);
    cpu.running_used_ns.store(used_ns.wrapping_sub(start_ns), Ordering::Relaxed);
    cpu.running_rank.store(task.rank, Ordering::Relaxed);
    task.begin();
    local.started_ns.set(start_ns);
    local.need_resched.set(false);
    local.task.set(Arc::as_ptr(&task));
    cpu.go_to_path(task.path.get());
    local.irqs_on.set(true);
    let result = body.resume(());
    local.irqs_on.set(false);
    cpu.go_to_path(ROOT);
    local.task.set(core::ptr::null());
    cpu.running_rank.store(0, Ordering::Relaxed);
    task.used_ns.store(used_ns + (machine.clock.now_ns() - start_ns), Ordering::Relaxed);
    if result != CoroutineResult::Yield(Pause::Dead) {
        machine.callbacks().context_switch();
    }
    after(cpu, task, result);
}

/// Queues, parks or ends a task after it yielded the CPU.
fn after(cpu: &Cpu, task: Arc<Task>, result: CoroutineResult<Pause, ()>) {
    let machine = cpu.machine();
    match result {
        CoroutineResult::Yield(Pause::Preempted) => {
            task.requeue();
            enqueue(machine, task);
        }
        CoroutineResult::Yield(Pause::MoveTo(target)) => {
            task.set_queue_cpu(target);
            task.requeue();
            enqueue(machine, task);
        }
        CoroutineResult::Yield(Pause::Park) => {
            if !task.wait() {
                enqueue(machine, task);
            }
        }
        CoroutineResult::Yield(Pause::Dead) => {}
        CoroutineResult::Return(()) => {
            // SAFETY: the task does not run, and is in no queue: only this CPU uses its body.
            let body = unsafe { (*task.body.get()).take() };
            // SAFETY: as for `probe` and `stats`: only this thread uses its pool of stacks.
            let stacks = unsafe { &mut *cpu.local.stacks.get() };
            stacks.extend(body.map(Coroutine::into_stack));
            task.end();
            if machine.live.fetch_sub(1, Ordering::AcqRel) == 1 {
                machine.finish();
            }
        }
    }
}

fn make_body(cpu: &Cpu, task: &Arc<Task>) -> Body {
    // SAFETY: only this thread uses its pool of stacks.
    let pooled = unsafe { &mut *cpu.local.stacks.get() }.pop();
    let stack = pooled.unwrap_or_else(|| {
        DefaultStack::new(STACK_BYTES).expect("the system gives address space for a stack")
    });
    let task: *const Task = Arc::as_ptr(task);
    Coroutine::with_stack(stack, move |yielder, ()| {
        // SAFETY: the machine's table keeps its tasks for the whole run.
        let task = unsafe { &*task };
        task.yielder.set(yielder);
        let entry = task.entry;
        let result = catch_unwind(AssertUnwindSafe(|| {
            here().machine().callbacks().task(entry);
            let local = &here().local;
            let balanced = local.preempt.get() == 0 && local.irqs_on.get();
            assert!(balanced, "a task returned with preemption or interrupts off");
        }));
        if let Err(payload) = result {
            let (cpu, message) = (here().id, panic_message(&*payload));
            here().machine().fail(Failure::Panic { cpu, message });
            crate::wake::die();
        }
    })
}

/// Idles until there is a task to run or an interrupt was taken.
fn idle(cpu: &Cpu) {
    let machine = cpu.machine();
    let callbacks = machine.callbacks();
    callbacks.idle_enter();
    let looks = if machine.waiting == Waiting::Spin { IDLE_LOOKS } else { 0 };
    let mut looked = 0;
    while !has_work(cpu) {
        let now_ns = machine.clock.now_ns();
        if is_due(cpu, now_ns) {
            callbacks.idle_exit();
            take_interrupts(cpu, now_ns);
            return;
        }
        looked += 1;
        if looked <= looks {
            core::hint::spin_loop();
        } else {
            cpu.pending.fetch_and(pending::INTERRUPTS, Ordering::Relaxed);
            let deadline_ns = cpu.deadline_ns.load(Ordering::Relaxed);
            cpu.sleep_until(deadline_ns, || has_work(cpu) || is_due(cpu, 0));
        }
    }
    callbacks.idle_exit();
}

/// Whether the scheduler has something to do. The loads pair with the `Release` stores in
/// `enqueue`, `finish` and `notify`.
fn has_work(cpu: &Cpu) -> bool {
    cpu.queued.load(Ordering::Acquire) > 0
        || cpu.machine().over.load(Ordering::Acquire)
        || cpu.hotplug.load(Ordering::Acquire) == cpu_state::STOPPING
}

/// Drops the coroutines that a failed run has left. Their stacks are not unwound, because a
/// destructor might wait for something that will never happen. Everything that they own is leaked.
pub(crate) fn leak_coroutines(machine: &Machine) {
    for task in machine.tasks.iter() {
        // SAFETY: all threads of the machine have been joined.
        if let Some(body) = unsafe { (*task.body.get()).as_mut() } {
            // SAFETY: the machine is not used any more, so nothing refers to data on the stack; its
            // destructors do not run, which only leaks.
            unsafe { body.force_reset() };
        }
    }
}

const _: () = assert!(FAIR > 0);
