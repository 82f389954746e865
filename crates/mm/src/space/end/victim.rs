//! An address space and its tasks, as the OOM killer sees them.

use crate::lru::LruRef;
use crate::memcg::GroupId;
use crate::oom::{ADJ_MAX, ADJ_MIN, Attempt, OomContext, Victim, VictimState};
use crate::space::{
    KILLED, MmRef, OWNED, ReapLock, Reaped, SKIP, Space, Spaces, VICTIM, is_unused,
};
use crate::time::Time;
use alloc::sync::Arc;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use mmscale_arch::sync::IrqGuard;
use mmscale_arch::{Asid, Atomic, Machine};

impl<A: Machine> Space<A> {
    /// Runs `run` as a thread of this address space (`current->mm`). [`Space::kill`] wakes the
    /// calling task, and its allocations count as those of this process.
    pub fn run<R>(self: &Arc<Self>, on: MmRef<'_, A>, run: impl FnOnce() -> R) -> R {
        self.tasks.lock().push(A::current());
        on.spaces.run_in(self, || {
            let result = run();
            // The task may have moved to another address space.
            on.spaces.current().into_iter().for_each(Self::task_leaves);
            result
        })
    }
    fn task_leaves(&self) {
        let me = A::current();
        let mut tasks = self.tasks.lock();
        if let Some(at) = tasks.iter().position(|&task| task == me) {
            tasks.swap_remove(at);
        }
    }
    /// Moves the calling task, the only one of this address space, to `next` (`exec_mmap`). The
    /// caller then [exits](Space::exit) this one.
    pub fn exec_mmap(self: &Arc<Self>, on: MmRef<'_, A>, next: &Arc<Self>) {
        next.tasks.lock().push(A::current());
        on.spaces.exec_mmap(self, next);
        self.task_leaves();
        on.paging.tlb.load(&IrqGuard::new(), next.asid());
    }
    /// Sends SIGKILL: populating and copying stop, and sleeping tasks wake to see it.
    pub fn kill(&self) {
        // Pairs with the loads in `is_killed` (mod.rs) and `fault` (fault.rs). Before the wake-ups,
        // so that a task that wakes sees it.
        self.state.fetch_or(KILLED, AcqRel);
        self.tasks.lock().iter().for_each(|&task| A::unpark(task));
    }
    /// Sets `oom_score_adj`, which a fork inherits: -1000 (never kill) to 1000. Returns `false` if
    /// the value is out of range.
    pub fn set_oom_adjustment(&self, thousandths: i32) -> bool {
        let fine = (ADJ_MIN..=ADJ_MAX).contains(&thousandths);
        if fine {
            // Pairs with the load in `oom_adjustment`; no other data passes.
            self.adjustment.store(thousandths as u32, Release);
        }
        fine
    }
    /// Returns `oom_score_adj`.
    pub fn oom_adjustment(&self) -> i32 {
        // Pairs with the store in `set_oom_adjustment`.
        self.adjustment.load(Acquire) as i32
    }
}

impl<A: Machine> Victim for Space<A> {
    fn asid(&self) -> Asid {
        self.table.asid()
    }
    fn group(&self) -> GroupId {
        self.group
    }
    fn state(&self) -> VictimState {
        // Pairs with the exchanges that set the flags: see the table in mod.rs.
        let state = self.state.load(Acquire);
        let marked = state & VICTIM != 0;
        if is_unused(state) {
            VictimState::Exiting { marked }
        } else if state & (SKIP | OWNED | VICTIM) == VICTIM {
            // Its process has left. A task that reads it from outside keeps it until the reaper
            // comes.
            VictimState::Dying { marked }
        } else if state & SKIP != 0 || self.tasks.lock().is_empty() {
            VictimState::Done
        } else if state & KILLED != 0 {
            VictimState::Dying { marked }
        } else {
            VictimState::Living
        }
    }
    fn pages(&self) -> u64 {
        self.table.resident_pages() + u64::from(self.table.tables())
    }
    fn pages_error_max(&self) -> Option<u64> {
        self.table.resident_error_max()
    }
    fn adjustment(&self) -> i32 {
        self.oom_adjustment()
    }
    fn kill(&self) {
        Self::kill(self);
    }
    fn mark(&self, due_ns: u64) -> bool {
        self.due_ns.store(due_ns, Relaxed);
        // Pairs with the load in `due_ns`: a task that sees the flag sees the time.
        self.state.fetch_or(VICTIM, AcqRel) & VICTIM == 0
    }
    fn due_ns(&self) -> Option<u64> {
        // Pairs with the exchange in `mark`: the time was stored before.
        let state = self.state.load(Acquire);
        (state & (VICTIM | SKIP) == VICTIM).then(|| self.due_ns.load(Relaxed))
    }
    fn skip(&self) {
        Self::skip(self);
    }
}

impl<A: Machine> OomContext<A> for MmRef<'_, A> {
    type Space = Space<A>;

    fn memory(&self) -> LruRef<'_, A> {
        self.memory
    }
    fn time(&self) -> &Time<A> {
        self.time
    }
    fn each(&self, see: impl FnMut(&Arc<Space<A>>)) {
        self.spaces.each_shared(see);
    }
    fn exits(&self) -> u32 {
        self.spaces.exits()
    }
    fn swap_pages(&self) -> u64 {
        self.swap.config().pages.into()
    }
    fn sum_pages(&self, space: &Space<A>) -> u64 {
        space.table.resident_sum(self.paging) + u64::from(space.table.tables())
    }
    fn reap(&self, space: &Space<A>) -> Attempt {
        match space.reap(*self, ReapLock::Try) {
            Reaped::Done => Attempt::Done,
            Reaped::Skipped => Attempt::Skipped,
            Reaped::Busy | Reaped::Partly | Reaped::Interrupted => Attempt::Later,
        }
    }
}

impl<A: Machine> Spaces<A> {
    /// Whether the calling task is a thread of a killed process. If so, marks this process as a
    /// victim, so that it may use the reserve and exit.
    pub(crate) fn is_caller_dying(&self, on: MmRef<'_, A>) -> bool {
        let Some(own) = self.current() else { return false };
        // Pairs with the exchanges in `kill` and `mark`.
        let state = own.state.load(Acquire);
        if state & KILLED != 0 && state & VICTIM == 0 {
            on.oom.mark_victim(own);
        }
        state & KILLED != 0
    }
}
