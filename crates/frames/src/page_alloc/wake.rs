//! Waking reclaim: each node may have a task that frees memory in the background, and an
//! allocation that finds every zone below its low watermark wakes those of its zones' nodes.

use super::FrameAllocator;
use core::sync::atomic::Ordering::SeqCst;
use mmscale_arch::{Atomic, Cpu, NodeId, TaskId};

/// The background reclaimer of a node.
///
/// A waker sets `wanted` before it unparks the task. The task clears `wanted` and parks only if it
/// was 0, and `park` returns immediately after an `unpark`. So no wake-up is lost.
pub(super) struct Reclaimer<A: Cpu> {
    /// The task's number plus 1; 0: there is none.
    task: A::AtomicU32,
    /// Not 0: it was woken since its last call of [`FrameAllocator::take_wake`].
    wanted: A::AtomicU32,
}

impl<A: Cpu> Reclaimer<A> {
    pub(super) fn none() -> Self {
        Self { task: A::AtomicU32::new(0), wanted: A::AtomicU32::new(0) }
    }
}

impl<A: Cpu> FrameAllocator<A> {
    /// Sets the task to wake when memory of `node` is low. The task parks while
    /// [`FrameAllocator::take_wake`] returns false. Panics if another task is set, which would
    /// never be woken again.
    pub fn set_reclaimer(&self, node: NodeId, task: Option<TaskId>) {
        let number = task.map_or(0, |task| task.index() as u32 + 1);
        // Pairs with the load in `wake_reclaimer`: the waker finds the task, or the task sees later
        // what the waker stored before, for instance that it must stop.
        let before = self.reclaimers[node.index()].task.swap(number, SeqCst);
        assert!(before == 0 || number == 0, "node {} has a reclaimer already", node.index());
    }
    /// Wakes the task that frees memory of `node`, if there is one and it was not woken since its
    /// last [`FrameAllocator::take_wake`] (`wakeup_kswapd`). May be called under spin locks and in
    /// interrupts.
    pub fn wake_reclaimer(&self, node: NodeId) {
        let Some(reclaimer) = self.reclaimers.get(node.index()) else { return };
        // `task` pairs with the swap in `set_reclaimer`. `wanted` pairs with the swap in
        // `take_wake`: if this finds 1, that swap comes later, and the task sees what this CPU
        // stored before.
        let Some(task) = reclaimer.task.load(SeqCst).checked_sub(1) else { return };
        let first = reclaimer.wanted.load(SeqCst) == 0 && reclaimer.wanted.swap(1, SeqCst) == 0;
        if first {
            A::unpark(TaskId::new(task as usize));
        }
    }
    /// Returns whether the task of `node` was woken since the last call.
    pub fn take_wake(&self, node: NodeId) -> bool {
        // Pairs with the operations on `wanted` in `wake_reclaimer`: see there.
        self.reclaimers[node.index()].wanted.swap(0, SeqCst) != 0
    }
}
