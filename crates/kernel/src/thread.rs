//! The table of a system's threads. A slot is never used twice in a run.

use crate::Kernel;
use crate::process::{Process, TASKS_MAX};
use alloc::sync::Arc;
use core::sync::atomic::Ordering::{AcqRel, Acquire};
use mmscale_arch::sync::{IrqGuard, Sparse, SpinGuard, SpinLock};
use mmscale_arch::{Atomic, LockClass, Machine, TaskEntry, TaskId};
use mmscale_mm::stack::Stack;
use mmscale_system::{Body, ThreadId};

/// What a machine is given to start a thread; the memory manager's own tasks have other numbers
/// (see [`mmscale_mm::mm::MM_TASK`]).
pub(crate) fn entry_of(thread: ThreadId) -> TaskEntry {
    TaskEntry(u64::from(thread.0))
}

/// The thread that a machine was given to start.
pub(crate) fn of_entry(entry: TaskEntry) -> ThreadId {
    ThreadId(entry.0 as u32)
}

/// What a thread begins with.
pub(crate) struct Start<A: Machine> {
    /// Whose thread it is, and its stack. The first thread of all makes its process itself, and
    /// has a stack that was never allocated (`init_stack`).
    pub(crate) process: Option<(Arc<Process<A>>, Option<Stack>)>,
    pub(crate) body: Body<Kernel<A>>,
}

struct Thread<A: Machine> {
    /// There from when it was made until it has begun.
    start: Option<Start<A>>,
    returned: bool,
    /// Who waits for its end.
    waiter: Option<TaskId>,
}

/// All threads of a run, by [`ThreadId`].
///
/// Locks: each thread has its own (class Other), held for moments, with nothing inside.
pub(crate) struct ThreadTable<A: Machine> {
    threads: Sparse<SpinLock<A, Thread<A>>>,
    /// How many there have been.
    made: A::AtomicU32,
}

/// What [`ThreadTable::wait`] found.
pub(crate) enum Wait {
    /// The thread has returned.
    Over,
    /// The caller is noted as its waiter: park, then ask again.
    Park,
    /// There is no such thread, or somebody else waits for it.
    Invalid,
}

impl<A: Machine> ThreadTable<A> {
    pub(crate) fn new() -> Self {
        Self { threads: Sparse::new(TASKS_MAX), made: A::AtomicU32::new(0) }
    }
    /// How many threads there have been, those included that are just being made.
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
    /// The thread begins.
    pub(crate) fn take_start(&self, thread: ThreadId) -> Option<Start<A>> {
        self.of(thread).start.take()
    }
    /// Marks the thread as returned and says whom to wake.
    pub(crate) fn finish(&self, thread: ThreadId) -> Option<TaskId> {
        let mut found = self.of(thread);
        found.returned = true;
        found.waiter.take()
    }
    /// The task `me` waits for `thread`, which exists, no more.
    pub(crate) fn give_up(&self, thread: ThreadId, me: TaskId) {
        let mut found = self.of(thread);
        found.waiter = found.waiter.filter(|&other| other != me);
    }
    /// One step of waiting for `thread` by the task `me`.
    pub(crate) fn wait(&self, thread: ThreadId, me: TaskId) -> Wait {
        if thread.0 as usize >= self.len() {
            return Wait::Invalid;
        }
        let mut found = self.of(thread);
        if found.returned {
            Wait::Over
        } else if found.waiter.is_none_or(|other| other == me) {
            found.waiter = Some(me);
            Wait::Park
        } else {
            Wait::Invalid
        }
    }
}
