//! Background reclaim: a node's task that frees memory.

use super::scan::FIRST_PRIORITY;
use super::shrink::{BATCH, FreeWhen};
use super::{Reclaim, ReclaimRef, Rmap};
use crate::lru::LruRef;
use crate::tlb::Leave;
use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use mmscale_arch::{Atomic, Func, Machine, NodeId, Span};
use mmscale_frames::page_alloc::Zone;
use mmscale_frames::vmstat::ZoneItem;

/// Consecutive runs that freed nothing, after which a node is skipped until direct reclaim has
/// freed something (`MAX_RECLAIM_RETRIES`).
const MAX_FAILURES: u32 = 16;

impl<A: Machine> Reclaim<A> {
    /// Body of the task that reclaims memory of `node`; returns after [`Reclaim::stop`]. Sleeps
    /// until an allocation finds memory low, then frees pages until the node is balanced. One task
    /// for each node.
    pub fn kswapd<R: Rmap<A>>(&self, on: ReclaimRef<'_, A, R>, node: NodeId) {
        let own = &self.nodes[node.index()];
        // Store buffering with `stop`. Here: `begun`, then `stopping`. There: `stopping`, then
        // `begun`. This sees `stopping`, or `stop` sees `begun` and waits.
        own.begun.store(1, SeqCst);
        on.memory.frames.set_reclaimer(node, Some(A::current()));
        while self.stopping.load(SeqCst) == 0 {
            if !on.memory.frames.take_wake(node) {
                A::park();
            } else if own.failures.load(Relaxed) < MAX_FAILURES {
                self.balance(on, node);
            }
        }
        on.memory.frames.set_reclaimer(node, None);
        own.ended.complete();
    }

    /// Makes all background reclaimers return, and waits for those that have started. A task that
    /// has not run yet returns as soon as it does. Sleeps.
    pub fn stop(&self, memory: LruRef<'_, A>) {
        // Pairs with the loads in `kswapd` and `balance_slowly`: see `kswapd`.
        self.stopping.store(1, SeqCst);
        for (at, node) in self.nodes.iter().enumerate() {
            // A task that starts later sees `stopping`.
            if node.begun.load(SeqCst) != 0 {
                memory.frames.wake_reclaimer(NodeId::new(at));
                node.ended.wait();
            }
        }
    }

    /// Frees memory until the node has enough (`balance_pgdat`).
    fn balance<R: Rmap<A>>(&self, on: ReclaimRef<'_, A, R>, node: NodeId) {
        let _span = Span::<A>::enter(Func::BalancePgdat);
        if self.is_balanced(on.memory, node) {
            return;
        }
        self.tally().background_runs.add(1);
        on.rmap.leave_limbo(Leave::All);
        Self::set_active(on.memory, node, true);
        let freed = self.balance_slowly(on, node);
        Self::set_active(on.memory, node, false);
        let failures = &self.nodes[node.index()].failures;
        if freed > 0 {
            failures.store(0, Relaxed);
        } else {
            failures.fetch_add(1, Relaxed);
        }
    }

    fn balance_slowly<R: Rmap<A>>(&self, on: ReclaimRef<'_, A, R>, node: NodeId) -> u32 {
        let high = |zone: &Zone<A>| zone.watermarks().high.max(BATCH as u32);
        let wanted: u32 = zones_of(on.memory, node).map(high).sum();
        let (mut priority, mut sum) = (FIRST_PRIORITY, 0);
        loop {
            let how = (node, FreeWhen::AfterFlush);
            let mut freed = self.shrink_node(on, how, None, priority, wanted).freed;
            if freed < wanted {
                // The frames in limbo may be enough.
                freed += on.rmap.leave_limbo(Leave::All);
            }
            sum += freed;
            if self.is_balanced(on.memory, node) || self.stopping.load(SeqCst) != 0 {
                return sum;
            }
            // A round that freed enough is repeated with the same priority.
            if freed < wanted {
                let Some(next) = priority.checked_sub(1) else { return sum };
                priority = next;
            }
            A::cond_resched();
        }
    }

    /// Returns whether a zone of the node has more free pages than its high watermark
    /// (`pgdat_balanced`).
    fn is_balanced(&self, memory: LruRef<'_, A>, node: NodeId) -> bool {
        let free = |zone: &Zone<A>| memory.frames.stats().zone(zone.id(), ZoneItem::FreePages);
        zones_of(memory, node).any(|zone| free(zone) > u64::from(zone.watermarks().high))
    }

    /// Keeps the page caches of a node small while it is balanced, and the counters of all CPUs
    /// more exact.
    fn set_active(memory: LruRef<'_, A>, node: NodeId, active: bool) {
        zones_of(memory, node).for_each(|zone| {
            memory.frames.set_reclaim_active(zone.id(), active);
        });
        match active {
            true => memory.frames.node_is_short(),
            false => memory.frames.node_is_balanced(),
        }
    }
}

fn zones_of<'a, A: Machine>(
    memory: LruRef<'a, A>,
    node: NodeId,
) -> impl Iterator<Item = &'a Zone<A>> {
    memory.frames.zones().iter().filter(move |zone| zone.node() == node)
}
