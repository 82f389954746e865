//! The funnel of callers that want an expedited grace period.
//!
//! Many callers may want the same grace period. One of them must run it; the others sleep until it
//! has ended (`exp_funnel_lock`). The funnel is a tree: a leaf for [`LEAF_CPUS`] CPUs, up to
//! [`FANOUT`] nodes under each other node. A caller begins at the leaf of its CPU with the number
//! of the grace period that it needs, and climbs:
//!
//! | the node's last requested number | the caller |
//! |---|---|
//! | lower | stores its own there, and climbs |
//! | the same or higher | sleeps at this node until its grace period has ended |
//! | (above the root) | takes the mutex, runs the grace period unless it has ended |
//!
//! A caller that sleeps relies on the caller that made the request, which has climbed: that one
//! sleeps at a higher node for the same reason, or has left the root. A caller that climbs may find
//! that its grace period has ended, and return. The callers that sleep below it are woken all the
//! same, because each grace period wakes the sleepers of all nodes at its end.
//!
//! A request is only for a grace period that has not begun when it is made. So a caller never
//! sleeps for one that began before its call.
//!
//! Lock order: a node's lock (class Rcu) is held for one comparison, with nothing taken under it.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::sync::atomic::Ordering::SeqCst;
use mmscale_arch::sync::{SpinLock, WaitQueue};
use mmscale_arch::{Atomic, CpuId, DataLine, LockClass, Machine};

/// CPUs of a leaf; Linux's `RCU_FANOUT_LEAF`.
const LEAF_CPUS: usize = 16;
/// Nodes under a node; Linux's `RCU_FANOUT`.
const FANOUT: usize = 64;

/// A node of the tree.
struct FunnelNode<A: Machine> {
    /// The last grace period that was requested here. Written under the lock. Its `SeqCst` store at
    /// the root pairs with the load in [`Funnel::requested`].
    requested: A::AtomicU64,
    lock: SpinLock<A, ()>,
    /// Callers that wait for a grace period with an even number, and with an odd one.
    sleepers: [WaitQueue<A>; 2],
    parent: Option<usize>,
}

impl<A: Machine> FunnelNode<A> {
    fn new(parent: Option<usize>) -> Self {
        Self {
            requested: A::AtomicU64::named(0, DataLine::Rcu),
            lock: SpinLock::new(LockClass::Rcu, ()),
            sleepers: [WaitQueue::new(), WaitQueue::new()],
            parent,
        }
    }

    /// Requests grace period `number`; returns whether the caller is the first to do so here.
    fn request(&self, number: u64) -> bool {
        let _held = self.lock.lock_irqsave();
        // Both are under the lock. The store at the root pairs with the load in
        // `Funnel::requested`: the grace period sees the request, or the caller sees the CPUs that
        // owe.
        let first = self.requested.load(SeqCst) < number;
        if first {
            self.requested.store(number, SeqCst);
        }
        first
    }

    fn sleepers(&self, number: u64) -> &WaitQueue<A> {
        &self.sleepers[(number % 2) as usize]
    }
}

/// The tree, leaves first, the root last.
pub(super) struct Funnel<A: Machine>(Box<[FunnelNode<A>]>);

impl<A: Machine> Funnel<A> {
    /// A funnel without callers, for `cpus` CPUs.
    pub(super) fn new(cpus: usize) -> Self {
        let mut nodes = Vec::new();
        let mut width = cpus.div_ceil(LEAF_CPUS);
        while width > 1 {
            let above = nodes.len() + width;
            nodes.extend((0..width).map(|at| FunnelNode::new(Some(above + at / FANOUT))));
            width = width.div_ceil(FANOUT);
        }
        nodes.push(FunnelNode::new(None));
        Self(nodes.into())
    }

    /// Whether neither the leaf of `cpu` nor the root has a request for grace period `number`. A
    /// hint: if so, the caller may try the mutex before it climbs.
    pub(super) fn is_unrequested(&self, cpu: CpuId, number: u64) -> bool {
        // Hints. Pairs with the store in `request`: a caller that reads old numbers climbs.
        self.0[cpu.index() / LEAF_CPUS].requested.load(SeqCst) < number && self.requested() < number
    }

    /// The last grace period that was requested at the root.
    pub(super) fn requested(&self) -> u64 {
        // Pairs with the store in `request`: see there.
        self.0[self.0.len() - 1].requested.load(SeqCst)
    }

    /// Climbs from the leaf of `cpu`. Returns `true` when grace period `number` has ended, and
    /// `false` if the caller has left the root and must see to it. Sleeps.
    pub(super) fn climb(&self, cpu: CpuId, number: u64, has_ended: impl Fn() -> bool) -> bool {
        let mut at = Some(cpu.index() / LEAF_CPUS);
        while let Some(index) = at {
            let node = &self.0[index];
            if has_ended() {
                return true;
            }
            if !node.request(number) {
                node.sleepers(number).wait_until(has_ended);
                return true;
            }
            at = node.parent;
        }
        false
    }

    /// Wakes the callers that wait for grace period `number`, which has ended.
    pub(super) fn wake(&self, number: u64) {
        self.0.iter().for_each(|node| node.sleepers(number).wake_all());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mmscale_stepped::{self as stepped, Stepped};

    #[test]
    fn the_tree_has_the_shape_of_linux() {
        stepped::boot(1, 1000);
        for (cpus, nodes) in [(1, 1), (16, 1), (17, 3), (512, 33), (1024, 65), (4096, 261)] {
            let funnel = Funnel::<Stepped>::new(cpus);
            assert_eq!(funnel.0.len(), nodes, "{cpus} CPUs");
            let mut at = funnel.0.len() - 1;
            assert_eq!(funnel.0[at].parent, None);
            at = (cpus - 1) / LEAF_CPUS;
            while let Some(parent) = funnel.0[at].parent {
                assert!(parent > at && parent < nodes);
                at = parent;
            }
            assert_eq!(at, nodes - 1, "every leaf is below the root");
        }
    }

    /// 32 leaves and a root: one caller leaves the root for each grace period, and each of the
    /// others would sleep where it meets the first request.
    #[test]
    fn one_caller_leaves_the_root() {
        stepped::boot(1, 1000);
        let funnel = Funnel::<Stepped>::new(512);
        let never = || false;
        assert!(funnel.is_unrequested(CpuId::new(20), 1));
        assert!(!funnel.climb(CpuId::new(0), 1, never));
        assert!(!funnel.is_unrequested(CpuId::new(20), 1), "at the root");
        assert_eq!(funnel.requested(), 1);
        assert!(!funnel.0[0].request(1), "a caller of the same leaf sleeps there");
        assert!(funnel.0[1].request(1) && !funnel.0[32].request(1), "of another leaf: at the root");
        assert!(!funnel.climb(CpuId::new(1), 2, never), "a later caller needs another");
        assert!(funnel.climb(CpuId::new(1), 3, || true), "it has ended");
        assert_eq!(funnel.requested(), 2);
        stepped::assert_quiet();
    }
}
