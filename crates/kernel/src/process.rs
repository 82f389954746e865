//! Processes: an address space and the threads in it.

use crate::descriptor::Descriptors;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use mmscale_arch::sync::{Completion, Inside, Sparse, SpinLock};
use mmscale_arch::{Atomic, Func, LockClass, Machine, Span, TaskId};
use mmscale_mm::space::{Backing, Space};
use mmscale_system::{Exit, ProcessId};

/// Tasks that a machine may have.
pub(crate) const TASKS_MAX: usize = 1 << 22;

/// A process.
pub(crate) struct Process<A: Machine> {
    pub(crate) id: ProcessId,
    pub(crate) space: Arc<Space<A>>,
    pub(crate) descriptors: SpinLock<A, Descriptors<A, Self>>,
    /// Threads that have not ended, the starting ones included.
    threads: A::AtomicU32,
    /// It was killed before its last thread had returned. Written before `over`.
    killed: AtomicBool,
    /// All of it has ended.
    over: Completion<A>,
}

impl<A: Machine> Process<A> {
    /// A process whose first thread is about to be made.
    fn new(id: ProcessId, space: Arc<Space<A>>, descriptors: Descriptors<A, Self>) -> Arc<Self> {
        Arc::new(Self {
            id,
            space,
            descriptors: SpinLock::new(LockClass::Other, descriptors),
            threads: A::AtomicU32::new(1),
            killed: AtomicBool::new(false),
            over: Completion::new(),
        })
    }
    /// One more thread.
    pub(crate) fn add_thread(&self) {
        self.threads.fetch_add(1, Relaxed);
    }
    /// One thread less; with the last, memory and descriptors are given back.
    pub(crate) fn end_thread(&self, on: Backing<'_, A>) {
        on.paging.tlb.exit_mm();
        if self.threads.fetch_sub(1, AcqRel) == 1 {
            self.killed.store(self.is_stopped(), Relaxed);
            let _span = Span::<A>::enter(Func::DoExit);
            self.space.exit(on);
            // Outside the lock: some may be the last to know a process, or a file.
            let open =
                core::mem::replace(&mut *self.descriptors.lock_irqsave(), Descriptors::new());
            open.close(on);
            self.over.complete();
        }
    }
    /// Whether some thread has not returned, so that its memory is still its own
    /// (`find_lock_task_mm`).
    pub(crate) fn has_memory(&self) -> bool {
        self.threads.load(Acquire) > 0
    }
    /// Its threads are to return. Those that sleep, or wait for others, wake up to see it.
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
    /// How it has ended.
    pub(crate) fn exit(&self) -> Exit {
        if self.killed.load(Relaxed) { Exit::Killed } else { Exit::Returned }
    }
}

struct Slot<A: Machine> {
    /// There until somebody has waited for its end.
    process: Option<Arc<Process<A>>>,
    parent: ProcessId,
    waited_for: bool,
}

/// All processes of a run, by [`ProcessId`]. A number is never used twice.
pub(crate) struct ProcessTable<A: Machine> {
    slots: Vec<Slot<A>>,
}

impl<A: Machine> ProcessTable<A> {
    pub(crate) const fn new() -> Self {
        Self { slots: Vec::new() }
    }
    pub(crate) fn insert(
        &mut self,
        space: Arc<Space<A>>,
        descriptors: Descriptors<A, Process<A>>,
        parent: ProcessId,
    ) -> Arc<Process<A>> {
        let process = Process::new(ProcessId(self.slots.len() as u32), space, descriptors);
        let slot = Slot { process: Some(Arc::clone(&process)), parent, waited_for: false };
        self.slots.push(slot);
        process
    }
    /// How many processes there have been.
    pub(crate) fn len(&self) -> u32 {
        self.slots.len() as u32
    }
    /// The process, unless somebody has waited for its end.
    pub(crate) fn get(&self, id: ProcessId) -> Option<Arc<Process<A>>> {
        self.slots.get(id.0 as usize)?.process.clone()
    }
    /// The child `id` of `parent`, for the first who waits for it.
    pub(crate) fn claim(&mut self, id: ProcessId, parent: ProcessId) -> Option<Arc<Process<A>>> {
        let slot = self.slots.get_mut(id.0 as usize)?;
        let own = slot.parent == parent && id != parent;
        if !own || core::mem::replace(&mut slot.waited_for, true) {
            return None;
        }
        slot.process.clone()
    }
    /// Somebody has waited for its end: nobody finds it any more.
    pub(crate) fn forget(&mut self, id: ProcessId) -> Option<Arc<Process<A>>> {
        self.slots.get_mut(id.0 as usize)?.process.take()
    }
}

/// Which process each task is in. A task asks only for itself, so this needs no lock, and takes no
/// turn on a machine in virtual time.
pub(crate) struct Current<A: Machine> {
    tasks: Sparse<Inside<Process<A>>>,
}

impl<A: Machine> Current<A> {
    pub(crate) fn new() -> Self {
        Self { tasks: Sparse::new(TASKS_MAX) }
    }
    fn slot(&self, task: TaskId) -> &Inside<Process<A>> {
        self.tasks.get_or_make(task.index(), |_| Inside::nothing())
    }
    /// The calling task is in `process` for as long as `run` runs.
    pub(crate) fn run<R>(
        &self,
        on: Backing<'_, A>,
        process: &Arc<Process<A>>,
        run: impl FnOnce() -> R,
    ) -> R {
        self.slot(A::current()).enter(process, || process.space.run(on, run))
    }
    /// The process of the calling task. Panics in a task that is in none.
    pub(crate) fn process(&self) -> &Process<A> {
        // SAFETY: the slot is the calling task's, and the reference is used within a call that
        // `run` has made.
        let process = unsafe { self.slot(A::current()).get() };
        process.expect("the calling task is a program's thread")
    }
}
