//! The table of a system's threads. A slot is never used twice in a run.

use crate::Kernel;
use crate::process::Process;
use alloc::sync::Arc;
use alloc::vec::Vec;
use mmscale_mm::arch::{Arch, TaskEntry, TaskId};
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
pub(crate) struct Start<A: Arch> {
    /// Whose thread it is. The first thread of all makes its process itself.
    pub(crate) process: Option<Arc<Process<A>>>,
    pub(crate) body: Body<Kernel<A>>,
}

struct Thread<A: Arch> {
    /// Gone once it has begun.
    start: Option<Start<A>>,
    returned: bool,
    /// Who waits for its end.
    waiter: Option<TaskId>,
}

/// All threads of a run, by [`ThreadId`].
pub(crate) struct ThreadTable<A: Arch> {
    slots: Vec<Thread<A>>,
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

impl<A: Arch> ThreadTable<A> {
    pub(crate) fn new() -> Self {
        Self { slots: Vec::new() }
    }
    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }
    pub(crate) fn insert(&mut self, start: Start<A>) -> ThreadId {
        self.slots.push(Thread { start: Some(start), returned: false, waiter: None });
        ThreadId((self.slots.len() - 1) as u32)
    }
    /// The thread begins.
    pub(crate) fn take_start(&mut self, thread: ThreadId) -> Option<Start<A>> {
        self.slots[thread.0 as usize].start.take()
    }
    /// Marks the thread as returned and says whom to wake.
    pub(crate) fn finish(&mut self, thread: ThreadId) -> Option<TaskId> {
        let slot = &mut self.slots[thread.0 as usize];
        slot.returned = true;
        slot.waiter.take()
    }
    /// The task `me` waits for `thread` no more.
    pub(crate) fn give_up(&mut self, thread: ThreadId, me: TaskId) {
        if let Some(slot) = self.slots.get_mut(thread.0 as usize) {
            slot.waiter = slot.waiter.filter(|&other| other != me);
        }
    }
    /// One step of waiting for `thread` by the task `me`.
    pub(crate) fn wait(&mut self, thread: ThreadId, me: TaskId) -> Wait {
        match self.slots.get_mut(thread.0 as usize) {
            None => Wait::Invalid,
            Some(slot) if slot.returned => Wait::Over,
            Some(slot) if slot.waiter.is_none_or(|other| other == me) => {
                slot.waiter = Some(me);
                Wait::Park
            }
            Some(_) => Wait::Invalid,
        }
    }
}
