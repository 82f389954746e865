//! The table of threads. A slot is never reused within a run.

use crate::Os;
use crate::process::{Process, TASKS_MAX};
use alloc::sync::Arc;
use core::sync::atomic::Ordering::{AcqRel, Acquire};
use mmscale_arch::sync::{IrqGuard, Sparse, SpinGuard, SpinLock};
use mmscale_arch::{Atomic, LockClass, Machine, TaskEntry, TaskId};
use mmscale_mm::stack::Stack;
use mmscale_system::{Body, ThreadId};

/// Returns the entry with which a machine starts a thread. The memory manager's own tasks have
/// other numbers (see [`mmscale_mm::mm::MM_TASK`]).
pub(crate) fn entry_of(thread: ThreadId) -> TaskEntry {
    TaskEntry(u64::from(thread.0))
}

/// Returns the thread for an entry that the machine starts.
pub(crate) fn of_entry(entry: TaskEntry) -> ThreadId {
    ThreadId(entry.0 as u32)
}

/// The initial state of a thread.
pub(crate) struct Start<A: Machine> {
    /// The thread's process and stack. `None` for the first thread, which creates its process
    /// itself and has a stack that was never allocated (`init_stack`).
    pub(crate) process: Option<(Arc<Process<A>>, Option<Stack>)>,
    pub(crate) body: Body<Os>,
}

struct Thread<A: Machine> {
    /// Present from creation until the thread starts.
    start: Option<Start<A>>,
    returned: bool,
    /// The task that waits for the end of the thread.
    waiter: Option<TaskId>,
}

/// All threads of a run, indexed by [`ThreadId`].
///
/// Locks: each thread has its own (class Other), held briefly, with no other lock inside.
pub(crate) struct ThreadTable<A: Machine> {
    threads: Sparse<SpinLock<A, Thread<A>>>,
    /// Number of threads created so far.
    made: A::AtomicU32,
}

/// Result of [`ThreadTable::wait`].
pub(crate) enum JoinStep {
    /// The thread has returned.
    Over,
    /// The caller is registered as the waiter: park, then call again.
    Park,
    /// The thread does not exist, or another task waits for it.
    Invalid,
}

impl<A: Machine> ThreadTable<A> {
    pub(crate) fn new() -> Self {
        Self { threads: Sparse::new(TASKS_MAX), made: A::AtomicU32::new(0) }
    }
    /// Returns the number of threads created so far, including those that are just being created.
    pub(crate) fn len(&self) -> usize {
        self.made.load(Acquire) as usize
    }
    pub(crate) fn insert(&self, start: Start<A>) -> ThreadId {
        let thread = ThreadId(self.made.fetch_add(1, AcqRel));
        self.of(thread).start = Some(start);
        thread
    }
    fn of(&self, thread: ThreadId) -> SpinGuard<'_, A, Thread<A>, IrqGuard<A>> {
        let new = |_| {
            let thread = Thread { start: None, returned: false, waiter: None };
            SpinLock::new(LockClass::Other, thread)
        };
        self.threads.get_or_make(thread.0 as usize, new).lock_irqsave()
    }
    /// Takes the initial state, when the thread starts.
    pub(crate) fn take_start(&self, thread: ThreadId) -> Option<Start<A>> {
        self.of(thread).start.take()
    }
    /// Marks the thread as returned. Returns the task to wake.
    pub(crate) fn finish(&self, thread: ThreadId) -> Option<TaskId> {
        let mut found = self.of(thread);
        found.returned = true;
        found.waiter.take()
    }
    /// Unregisters the task `me` as the waiter of `thread`, which must exist.
    pub(crate) fn give_up(&self, thread: ThreadId, me: TaskId) {
        let mut found = self.of(thread);
        found.waiter = found.waiter.filter(|&other| other != me);
    }
    /// Executes one step of waiting for `thread` by the task `me`.
    pub(crate) fn wait(&self, thread: ThreadId, me: TaskId) -> JoinStep {
        if thread.0 as usize >= self.len() {
            return JoinStep::Invalid;
        }
        let mut found = self.of(thread);
        if found.returned {
            JoinStep::Over
        } else if found.waiter.is_none_or(|other| other == me) {
            found.waiter = Some(me);
            JoinStep::Park
        } else {
            JoinStep::Invalid
        }
    }
}
