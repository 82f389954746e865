//! Processes: an address space and the threads in it.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ptr::null_mut;
use core::sync::atomic::AtomicPtr;
use core::sync::atomic::Ordering::{AcqRel, Relaxed};
use mmscale_mm::arch::{Arch, Atomic, TaskId};
use mmscale_mm::space::{Backing, Space};
use mmscale_mm::sync::{Completion, Sparse};
use mmscale_system::{Exit, ProcessId};

/// Tasks that a machine may have.
const TASKS_MAX: usize = 1 << 22;

/// A process.
pub(crate) struct Process<A: Arch> {
    pub(crate) id: ProcessId,
    pub(crate) space: Arc<Space<A>>,
    /// Threads that have not ended, the starting ones included.
    threads: A::AtomicU32,
    /// All of it has ended.
    over: Completion<A>,
}

impl<A: Arch> Process<A> {
    /// A process whose first thread is about to be made.
    pub(crate) fn new(id: ProcessId, space: Arc<Space<A>>) -> Arc<Self> {
        Arc::new(Self { id, space, threads: A::AtomicU32::new(1), over: Completion::new() })
    }
    /// One more thread.
    pub(crate) fn add_thread(&self) {
        self.threads.fetch_add(1, Relaxed);
    }
    /// One thread less; with the last the memory is given back.
    pub(crate) fn end_thread(&self, on: Backing<'_, A>) {
        if self.threads.fetch_sub(1, AcqRel) == 1 {
            self.space.exit(on);
            self.over.complete();
        }
    }
    /// Its threads are to return. Those that sleep have to be woken afterwards: see
    /// [`ThreadTable::wake`](crate::thread::ThreadTable::wake).
    pub(crate) fn kill(&self) {
        self.space.kill();
    }
    pub(crate) fn is_stopped(&self) -> bool {
        self.space.is_killed()
    }
    pub(crate) fn wait(&self) {
        self.over.wait();
    }
    /// Waits for it on behalf of `caller`, who may be killed meanwhile. Whether it has ended.
    pub(crate) fn wait_for(&self, caller: &Self) -> bool {
        self.over.wait_unless(|| caller.is_stopped())
    }
}

struct Slot<A: Arch> {
    process: Arc<Process<A>>,
    parent: ProcessId,
    waited_for: bool,
    killed: bool,
}

/// All processes of a run, by [`ProcessId`]. A number is never used twice.
pub(crate) struct ProcessTable<A: Arch> {
    slots: Vec<Slot<A>>,
}

impl<A: Arch> ProcessTable<A> {
    pub(crate) const fn new() -> Self {
        Self { slots: Vec::new() }
    }
    pub(crate) fn insert(&mut self, space: Arc<Space<A>>, parent: ProcessId) -> Arc<Process<A>> {
        let process = Process::new(ProcessId(self.slots.len() as u32), space);
        let slot = Slot { process: Arc::clone(&process), parent, waited_for: false, killed: false };
        self.slots.push(slot);
        process
    }
    pub(crate) fn get(&self, id: ProcessId) -> Option<Arc<Process<A>>> {
        self.slots.get(id.0 as usize).map(|slot| Arc::clone(&slot.process))
    }
    /// The child `id` of `parent`, for the first who waits for it.
    pub(crate) fn claim(&mut self, id: ProcessId, parent: ProcessId) -> Option<Arc<Process<A>>> {
        let slot = self.slots.get_mut(id.0 as usize)?;
        let own = slot.parent == parent && slot.process.id != parent;
        if !own || core::mem::replace(&mut slot.waited_for, true) {
            return None;
        }
        Some(Arc::clone(&slot.process))
    }
    /// Notes that somebody has killed it.
    pub(crate) fn kill(&mut self, id: ProcessId) -> Option<Arc<Process<A>>> {
        let slot = self.slots.get_mut(id.0 as usize)?;
        slot.killed = true;
        Some(Arc::clone(&slot.process))
    }
    /// How it ended.
    pub(crate) fn exit_of(&self, id: ProcessId) -> Exit {
        let killed = self.slots.get(id.0 as usize).is_some_and(|slot| slot.killed);
        if killed { Exit::Killed } else { Exit::Returned }
    }
}

/// Which process each task is in. A task asks only for itself, so this needs no lock, and takes no
/// turn on a machine in virtual time.
pub(crate) struct Current<A: Arch> {
    tasks: Sparse<AtomicPtr<Process<A>>>,
}

impl<A: Arch> Current<A> {
    pub(crate) fn new() -> Self {
        Self { tasks: Sparse::new(TASKS_MAX) }
    }
    fn slot(&self, task: TaskId) -> &AtomicPtr<Process<A>> {
        self.tasks.get_or_make(task.index(), |_| AtomicPtr::new(null_mut()))
    }
    /// The calling task is in `process` for as long as `run` runs.
    pub(crate) fn run<R>(&self, process: &Arc<Process<A>>, run: impl FnOnce() -> R) -> R {
        let slot = self.slot(A::current());
        slot.store(Arc::as_ptr(process).cast_mut(), Relaxed);
        let result = run();
        slot.store(null_mut(), Relaxed);
        result
    }
    /// The process of the calling task. Panics in a task that is in none.
    pub(crate) fn process(&self) -> &Process<A> {
        let process = self.slot(A::current()).load(Relaxed);
        // SAFETY: not null only while `run` is on this task's stack, whose caller keeps the `Arc`;
        // the reference is used within a call that `run` has made.
        unsafe { process.as_ref() }.expect("the calling task is a program's thread")
    }
}
