//! The users of an address space (`mm_users`): its process, and tasks that read its memory from
//! outside.
//!
//! They are in the word with the flags of its end, so the exit of a process leaves and learns in
//! one step whether it was the last user.

use crate::space::{MmRef, OWNED, READER, Space, is_unused};
use core::sync::atomic::Ordering::{AcqRel, Acquire};
use mmscale_arch::{Atomic, Func, Machine, Span};

impl<A: Machine> Space<A> {
    /// Leaves, as its process: no thread of it uses the address space any more. Frees everything if
    /// no task [reads](Space::read_from) its memory from outside; otherwise the last of these tasks
    /// does. Called once.
    pub fn exit(&self, on: MmRef<'_, A>) {
        let _span = Span::<A>::enter(Func::ExitMmap);
        // The counter first: if an OOM kill decision has read it before, and misses that there are
        // no users, it reads another count when it ends.
        on.spaces.begin_exit();
        // Pairs with the updates in `try_get` and `put`: the last user sees what the others did.
        let before = self.state.fetch_and(!OWNED, AcqRel);
        debug_assert!(before & OWNED != 0, "a process leaves its address space once");
        if is_unused(before & !OWNED) {
            self.free_all(on);
        }
    }
    /// Adds the calling task as a user, which reads its memory from outside (`get_task_mm`).
    /// Returns `false` if its process has left. Otherwise the caller [removes](Space::put) itself
    /// later.
    #[must_use]
    pub fn try_get(&self) -> bool {
        let join = |state| (state & OWNED != 0).then_some(state + READER);
        // Pairs with the exchange in `exit`.
        self.state.fetch_update(AcqRel, Acquire, join).is_ok()
    }
    /// Removes a user that [`Space::try_get`] has added (`mmput`). The last user frees everything.
    pub fn put(&self, on: MmRef<'_, A>) {
        let leave = |state| (!is_unused(state - READER)).then_some(state - READER);
        // Pairs with the exchange in `exit`, and with itself in other tasks: the last user sees
        // what the others did.
        if self.state.fetch_update(AcqRel, Acquire, leave).is_ok() {
            return;
        }
        // Its process has left, so no task joins, and the caller is the last user.
        let _span = Span::<A>::enter(Func::ExitMmap);
        // The counter first: see `exit`.
        on.spaces.begin_exit();
        self.state.fetch_sub(READER, AcqRel);
        self.free_all(on);
    }
}
