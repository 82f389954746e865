//! Processes: an address space and its threads.

use crate::descriptor::{Descriptors, Open};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use mmscale_arch::sync::{ArcCell, Completion, Inside, Sparse, SpinLock};
use mmscale_arch::{Atomic, Func, LockClass, Machine, Span, TaskId};
use mmscale_mm::space::{File, MmRef, Space};
use mmscale_system::{Exit, Fd, ProcessId};

/// Maximum number of tasks of a machine.
pub(crate) const TASKS_MAX: usize = 1 << 22;

/// A process.
pub(crate) struct Process<A: Machine> {
    pub(crate) id: ProcessId,
    /// The number of its memory group.
    pub(crate) group: usize,
    /// Its address space, which its only thread replaces at exec. Its own threads use that of
    /// [`Spaces::current`](mmscale_mm::space::Spaces::current).
    space: ArcCell<Space<A>>,
    pub(crate) descriptors: SpinLock<A, Descriptors<A, Self>>,
    /// Whether it has ever had a file. `Relaxed`: a thread that passes a file on got its number
    /// from the thread that opened it, in order.
    had_files: AtomicBool,
    /// Threads that have not ended, including those that are starting.
    threads: A::AtomicU32,
    /// Killed before the last thread returned. Written before `over` completes.
    killed: AtomicBool,
    /// Held while its signals and its list of threads change (`siglock`).
    pub(crate) signals: SpinLock<A, ()>,
    /// Completes when the process has ended.
    over: Completion<A>,
}

/// The parts of a new process.
pub(crate) struct Parts<A: Machine> {
    pub(crate) space: Arc<Space<A>>,
    pub(crate) descriptors: Descriptors<A, Process<A>>,
    /// The number of its memory group.
    pub(crate) group: usize,
}

impl<A: Machine> Process<A> {
    /// Creates a process whose first thread is about to be created.
    fn new(id: ProcessId, parts: Parts<A>) -> Arc<Self> {
        let Parts { space, descriptors, group } = parts;
        Arc::new(Self {
            id,
            group,
            space: ArcCell::new(space),
            had_files: AtomicBool::new(descriptors.has_files()),
            descriptors: SpinLock::new(LockClass::Other, descriptors),
            threads: A::AtomicU32::new(1),
            killed: AtomicBool::new(false),
            signals: SpinLock::new(LockClass::Siglock, ()),
            over: Completion::new(),
        })
    }
    /// Counts one more thread.
    pub(crate) fn add_thread(&self) {
        self.threads.fetch_add(1, Relaxed);
    }
    /// Counts one thread less. The last thread frees the memory and closes the descriptors. Returns
    /// whether it was the last: the caller then calls [`Process::end`].
    pub(crate) fn end_thread(&self, on: MmRef<'_, A>) -> bool {
        let space = self.space();
        space.thread_ends();
        on.paging.tlb.exit_mm();
        let last = self.threads.fetch_sub(1, AcqRel) == 1;
        if last {
            self.killed.store(self.is_stopped(), Relaxed);
            let _span = Span::<A>::enter(Func::DoExit);
            space.exit(on);
            // Outside the lock: a descriptor may hold the last reference to a process or file.
            let open =
                core::mem::replace(&mut *self.descriptors.lock_irqsave(), Descriptors::new());
            open.close(on);
        }
        last
    }
    /// Marks the process as ended, and wakes the tasks that wait for that.
    pub(crate) fn end(&self) {
        self.over.complete();
    }
    /// Whether the process has ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.over.is_done()
    }
    /// Returns whether a thread has not returned, so that the address space still belongs to the
    /// process (`find_lock_task_mm`).
    pub(crate) fn has_memory(&self) -> bool {
        self.threads.load(Acquire) > 0
    }
    /// Makes the threads return. Wakes those that sleep or wait, so that they notice.
    pub(crate) fn kill(&self) {
        loop {
            let space = self.space();
            space.kill();
            // An exec that replaces it later sees that it was killed.
            if Arc::ptr_eq(&space, &self.space()) {
                return;
            }
        }
    }
    pub(crate) fn is_stopped(&self) -> bool {
        self.space().is_killed()
    }
    /// Returns its address space.
    pub(crate) fn space(&self) -> Arc<Space<A>> {
        self.space.get()
    }
    /// Returns its address space, of which the caller is a user then (`get_task_mm`). `None`: its
    /// last thread has returned.
    pub(crate) fn get_space(&self) -> Option<Arc<Space<A>>> {
        while self.has_memory() {
            let space = self.space();
            if space.try_get() {
                return Some(space);
            }
            // An exec has replaced it, or the last thread is returning.
        }
        None
    }
    /// Replaces its address space, on its only thread, and frees the one before (`exec_mmap`).
    /// Returns whether the process was killed.
    pub(crate) fn exec(&self, on: MmRef<'_, A>, next: Arc<Space<A>>) -> bool {
        // Dropped outside the lock: a descriptor may hold the last reference to a process.
        let closed = self.descriptors.lock_irqsave().take_processes();
        closed.close(on);
        let old = self.space.replace(Arc::clone(&next));
        old.exec_mmap(on, &next);
        old.thread_ends();
        old.exit(on);
        // `kill` has seen the old one only, if it was before the exchange.
        let killed = old.is_killed();
        if killed {
            next.kill();
        }
        killed
    }
    /// Opens a file.
    pub(crate) fn open_file(&self, file: Arc<File<A>>) -> Fd {
        self.had_files.store(true, Relaxed);
        self.descriptors.lock_irqsave().insert(Open::File(file))
    }
    /// Returns the descriptors of a process that it starts with empty memory.
    pub(crate) fn files(&self) -> Descriptors<A, Self> {
        // A process that never had files has nothing to copy, and takes no lock.
        if self.had_files.load(Relaxed) {
            self.descriptors.lock_irqsave().share_files()
        } else {
            Descriptors::new()
        }
    }
    /// Whether it has one thread.
    pub(crate) fn is_single(&self) -> bool {
        self.threads.load(Acquire) == 1
    }
    pub(crate) fn wait(&self) {
        self.over.wait();
    }
    /// Waits for the end of this process on behalf of `caller`, which may be killed meanwhile.
    /// Returns whether it has ended.
    pub(crate) fn wait_for(&self, caller: &Self) -> bool {
        self.over.wait_unless(|| caller.is_stopped())
    }
    /// Returns how the process ended.
    pub(crate) fn exit(&self) -> Exit {
        if self.killed.load(Relaxed) { Exit::Killed } else { Exit::Returned }
    }
}

struct ProcessSlot<A: Machine> {
    /// Present until a caller has waited for the end of the process.
    process: Option<Arc<Process<A>>>,
    parent: ProcessId,
    waited_for: bool,
}

/// All processes of a run, indexed by [`ProcessId`]. A number is never reused.
pub(crate) struct ProcessTable<A: Machine> {
    slots: Vec<ProcessSlot<A>>,
}

impl<A: Machine> ProcessTable<A> {
    pub(crate) const fn new() -> Self {
        Self { slots: Vec::new() }
    }
    pub(crate) fn insert(&mut self, parts: Parts<A>, parent: ProcessId) -> Arc<Process<A>> {
        let process = Process::new(ProcessId(self.slots.len() as u32), parts);
        let slot = ProcessSlot { process: Some(Arc::clone(&process)), parent, waited_for: false };
        self.slots.push(slot);
        process
    }
    /// Returns the number of processes created so far.
    pub(crate) fn len(&self) -> u32 {
        self.slots.len() as u32
    }
    /// Returns the process. `None`: a caller has already waited for its end.
    pub(crate) fn get(&self, id: ProcessId) -> Option<Arc<Process<A>>> {
        self.slots.get(id.0 as usize)?.process.clone()
    }
    /// Returns the parent of process `id`, unless a caller has waited for the parent's end. The
    /// first process has no parent.
    pub(crate) fn parent_of(&self, id: ProcessId) -> Option<Arc<Process<A>>> {
        let parent = self.slots.get(id.0 as usize)?.parent;
        if parent == id { None } else { self.get(parent) }
    }
    /// Returns the child `id` of `parent`, to the first caller that waits for it.
    pub(crate) fn claim(&mut self, id: ProcessId, parent: ProcessId) -> Option<Arc<Process<A>>> {
        let slot = self.slots.get_mut(id.0 as usize)?;
        let own = slot.parent == parent && id != parent;
        if !own || core::mem::replace(&mut slot.waited_for, true) {
            return None;
        }
        slot.process.clone()
    }
    /// Removes a process after a caller has waited for its end. Later look-ups fail.
    pub(crate) fn forget(&mut self, id: ProcessId) -> Option<Arc<Process<A>>> {
        self.slots.get_mut(id.0 as usize)?.process.take()
    }
}

/// The process of each task. A task looks up only itself, so this needs no lock, and no turn on a
/// machine in virtual time.
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
    /// Runs `run` with the calling task in `process`.
    pub(crate) fn run<R>(
        &self,
        on: MmRef<'_, A>,
        process: &Arc<Process<A>>,
        run: impl FnOnce() -> R,
    ) -> R {
        self.slot(A::current()).enter(process, || process.space().run(on, run))
    }
    /// Returns the process of the calling task. Panics in a task without a process.
    pub(crate) fn process(&self) -> &Process<A> {
        // SAFETY: the slot is the calling task's, and the reference is used within a call that
        // `run` has made.
        let process = unsafe { self.slot(A::current()).get() };
        process.expect("the calling task is a program's thread")
    }
}
