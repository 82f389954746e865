//! Tasks: each stays on its processor, with a stack of its own, and runs until it parks or ends.
//!
//! A processor runs its loop ([`run`]) on the stack that it started with. The loop switches to a
//! task; a task that parks or ends switches back. Nothing else switches tasks.

use crate::lock::Locked;
use crate::per_cpu::{self, MAX_CPUS};
use crate::{callbacks, clock, shadow};
use alloc::alloc::{Layout, alloc, dealloc};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use core::cell::UnsafeCell;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use mmscale_arch::{CpuId, Priority, TaskEntry, TaskId, TaskSpec};
use x86_64::instructions::interrupts as flag;

/// Tasks of a system, ended ones included. The loops of processors have the numbers below
/// [`MAX_CPUS`].
const MAX_TASKS: usize = 8192;
const STACK: Layout = match Layout::from_size_align(64 << 10, 4096) {
    Ok(layout) => layout,
    Err(_) => panic!("a power of two"),
};
/// The lowest word of a stack: it stays there if the task never needs more.
const STACK_END: u64 = 0x57ac_6e4d_57ac_6e4d;

unsafe extern "C" {
    /// In `entry.s`.
    fn switch_stacks(save: *mut u64, load: u64);
}

/// Values of [`Task::state`], which changes under the lock of its processor's queue.
mod state {
    /// In the queue, or running.
    pub(super) const READY: u64 = 0;
    /// As `READY`; the next park returns immediately.
    pub(super) const UNPARKED: u64 = 1;
    pub(super) const PARKED: u64 = 2;
    pub(super) const OVER: u64 = 3;
}

struct Task {
    cpu: CpuId,
    entry: TaskEntry,
    priority: Priority,
    state: AtomicU64,
    /// The lowest address of its stack, and its stack pointer while it does not run.
    stack: *mut u64,
    saved: UnsafeCell<u64>,
    /// The address space of its last access; 0: none.
    space: AtomicUsize,
}

// SAFETY: `stack` and `saved` are used by the task's processor alone.
unsafe impl Sync for Task {}

static TASKS: [AtomicPtr<Task>; MAX_TASKS] = [const { AtomicPtr::new(null_mut()) }; MAX_TASKS];
/// The number of the next task.
static NEXT: AtomicUsize = AtomicUsize::new(MAX_CPUS);
/// Tasks that have not ended.
static LIVE: AtomicUsize = AtomicUsize::new(0);

/// The tasks of one processor.
struct Queue {
    /// Those that wait for it, the most urgent first.
    ready: Locked<VecDeque<TaskId>>,
    /// The one that runs, or the number of the loop.
    current: AtomicUsize,
    /// The stack pointer of the loop while a task runs.
    saved: UnsafeCell<u64>,
}

// SAFETY: `saved` is used by the queue's processor alone.
unsafe impl Sync for Queue {}

static QUEUES: [Queue; MAX_CPUS] = [const {
    Queue {
        ready: Locked::new(VecDeque::new()),
        current: AtomicUsize::new(0),
        saved: UnsafeCell::new(0),
    }
}; MAX_CPUS];

fn queue(cpu: CpuId) -> &'static Queue {
    &QUEUES[cpu.index()]
}

/// The task with this number; `None`: the loop of a processor.
fn task(id: TaskId) -> Option<&'static Task> {
    // Pairs with the store in `spawn`. SAFETY: tasks are never freed.
    unsafe { TASKS[id.index()].load(Ordering::Acquire).as_ref() }
}

/// The running task; in an interrupt, the interrupted one. In a processor's loop, its number.
pub(crate) fn current() -> TaskId {
    TaskId::new(queue(per_cpu::this()).current.load(Ordering::Relaxed))
}

/// Whether a processor runs the task.
pub(crate) fn is_running(id: TaskId) -> bool {
    task(id).is_some_and(|task| queue(task.cpu).current.load(Ordering::Relaxed) == id.index())
}

/// Makes a task.
pub(crate) fn spawn(spec: TaskSpec) -> TaskId {
    let id = NEXT.fetch_add(1, Ordering::Relaxed);
    assert!(id < MAX_TASKS, "a system has at most {MAX_TASKS} tasks");
    // SAFETY: the size is not 0.
    let stack = unsafe { alloc(STACK) }.cast::<u64>();
    assert!(!stack.is_null(), "no memory for the stack of a task");
    let words = STACK.size() / 8;
    // SAFETY: all words are of the stack. `switch_stacks` pops six registers, then returns to
    // `begin`, which finds the stack as after a call.
    let saved = unsafe {
        stack.write(STACK_END);
        let first = stack.add(words - 8);
        first.write_bytes(0, 8);
        first.add(6).write(begin as *const () as u64);
        first as u64
    };
    let task = Box::new(Task {
        cpu: spec.cpu,
        entry: spec.entry,
        priority: spec.priority,
        state: AtomicU64::new(state::READY),
        stack,
        saved: UnsafeCell::new(saved),
        space: AtomicUsize::new(0),
    });
    LIVE.fetch_add(1, Ordering::Relaxed);
    let task = Box::leak(task);
    // Pairs with the load in `task`.
    TASKS[id].store(task, Ordering::Release);
    let id = TaskId::new(id);
    queue(task.cpu).ready.with(|ready| insert(ready, id, task));
    if task.cpu != per_cpu::this() {
        per_cpu::wake(task.cpu);
    }
    id
}

/// Puts a task behind all that are as urgent.
fn insert(ready: &mut VecDeque<TaskId>, id: TaskId, new: &Task) {
    let more_urgent = |&other: &TaskId| task(other).is_some_and(|at| at.priority >= new.priority);
    let at = ready.partition_point(more_urgent);
    ready.insert(at, id);
}

/// Ends the current or the next park of a task.
pub(crate) fn unpark(id: TaskId) {
    let Some(task) = task(id) else { return };
    let queued = queue(task.cpu).ready.with(|ready| match task.state.load(Ordering::Relaxed) {
        state::PARKED => {
            task.state.store(state::READY, Ordering::Relaxed);
            insert(ready, id, task);
            true
        }
        state::READY => {
            task.state.store(state::UNPARKED, Ordering::Relaxed);
            false
        }
        _ => false,
    });
    if queued && task.cpu != per_cpu::this() {
        per_cpu::wake(task.cpu);
    }
}

/// Parks the running task until it is unparked.
pub(crate) fn park() {
    let Some(own) = task(current()) else { panic!("the loop of a processor parks") };
    flag::without_interrupts(|| {
        let parked = queue(own.cpu).ready.with(|_| {
            let unparked = own.state.load(Ordering::Relaxed) == state::UNPARKED;
            own.state.store(if unparked { state::READY } else { state::PARKED }, Ordering::Relaxed);
            !unparked
        });
        if parked {
            leave(own);
        }
    });
}

/// Lets another task run, if one waits.
pub(crate) fn cond_resched() {
    let id = current();
    let Some(own) = task(id) else { return };
    flag::without_interrupts(|| {
        let queued = queue(own.cpu).ready.with(|ready| {
            let waits = !ready.is_empty();
            if waits {
                insert(ready, id, own);
            }
            waits
        });
        if queued {
            leave(own);
        }
    });
}

/// Whether another task waits for this processor.
pub(crate) fn need_resched() -> bool {
    queue(per_cpu::this()).ready.with(|ready| !ready.is_empty())
}

/// Remembers the address space that the running task uses.
pub(crate) fn set_space(space: usize) {
    if let Some(own) = task(current()) {
        own.space.store(space, Ordering::Relaxed);
    }
}

/// Switches from the running task to the loop. Interrupts are off.
fn leave(own: &Task) {
    let queue = queue(own.cpu);
    // SAFETY: the loop saved its stack there when it switched to this task.
    unsafe { switch_stacks(own.saved.get(), *queue.saved.get()) };
}

/// The first function of each task. Interrupts are off.
extern "C" fn begin() -> ! {
    flag::enable();
    let own = task(current()).expect("a task begins");
    callbacks::current().task(own.entry);
    flag::disable();
    queue(own.cpu).ready.with(|_| own.state.store(state::OVER, Ordering::Relaxed));
    leave(own);
    unreachable!("a task runs after its end")
}

/// Runs the tasks of the calling processor until no task of the system is left.
pub(crate) fn run(cpu: usize) {
    let queue = &QUEUES[cpu];
    queue.current.store(cpu, Ordering::Relaxed);
    let system = callbacks::current();
    flag::disable();
    while LIVE.load(Ordering::Acquire) > 0 {
        if let Some(id) = queue.ready.with(VecDeque::pop_front) {
            run_task(queue, id);
            system.context_switch();
            continue;
        }
        system.idle_enter();
        per_cpu::own().is_idle.store(true, Ordering::Relaxed);
        // An interrupt that queues a task comes after this look only with `enable_and_hlt`.
        if queue.ready.with(|ready| ready.is_empty()) && LIVE.load(Ordering::Acquire) > 0 {
            flag::enable_and_hlt();
            flag::disable();
        }
        callbacks::leave_idle();
    }
    clock::cancel();
    flag::enable();
}

/// Runs a task until it parks or ends. Interrupts are off.
fn run_task(queue: &Queue, id: TaskId) {
    let task = task(id).expect("a task is queued");
    queue.current.store(id.index(), Ordering::Relaxed);
    shadow::show(task.space.load(Ordering::Relaxed));
    // SAFETY: the task's stack was saved when it was made or left, and only this processor runs it.
    unsafe { switch_stacks(queue.saved.get(), *task.saved.get()) };
    queue.current.store(task.cpu.index(), Ordering::Relaxed);
    shadow::show(0);
    // SAFETY: the lowest word of its stack.
    assert!(unsafe { task.stack.read() } == STACK_END, "task {} needs a larger stack", id.index());
    if task.state.load(Ordering::Relaxed) == state::OVER {
        // SAFETY: the task has left its stack for good.
        unsafe { dealloc(task.stack.cast(), STACK) };
        // Pairs with the loads in `run`.
        if LIVE.fetch_sub(1, Ordering::AcqRel) == 1 {
            (0..per_cpu::count()).map(CpuId::new).for_each(per_cpu::wake);
        }
    }
}

/// The number of tasks that were made.
pub(crate) fn made() -> u64 {
    (NEXT.load(Ordering::Relaxed) - MAX_CPUS) as u64
}
