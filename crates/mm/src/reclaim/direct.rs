//! Direct reclaim, in the task that needs the memory.

use super::scan::{FIRST_PRIORITY, ScanTarget};
use super::shrink::{BATCH, FreeWhen, ReferenceUse};
use super::{Reclaim, ReclaimRef, Rmap};
use crate::memcg::GroupId;
use crate::tlb::Leave;
use core::sync::atomic::Ordering::Relaxed;
use mmscale_arch::{Atomic, Func, Machine, NodeId, Pfn, Span};

/// Number of times that a last round that freed nothing is repeated (`MAX_RECLAIM_RETRIES`).
const MAX_REPEATS: usize = 16;

/// Result of a round, in pages.
#[derive(Clone, Copy, Default)]
pub(super) struct ScanTotals {
    /// Pages scanned.
    pub(super) scanned: u32,
    /// Pages freed.
    pub(super) freed: u32,
}

impl<A: Machine> Reclaim<A> {
    /// Tries to free at least max(`pages`, 32) pages and returns how many it freed
    /// (`try_to_free_pages`). Reclaims from `group` on all nodes, for a charge that found the group
    /// at its limit; or from all groups, for an allocation that found no memory. Starts with memory
    /// of `node`. Counts only pages that it freed itself; other tasks may have allocated them
    /// already. Sleeps.
    ///
    /// Returns 0 if nothing can be freed. A last round that scanned folios and freed none is
    /// repeated first, because these may have been in use or under writeback.
    pub fn direct<R: Rmap<A>>(
        &self,
        on: ReclaimRef<'_, A, R>,
        node: NodeId,
        pages: u32,
        group: Option<GroupId>,
    ) -> u32 {
        let _span = Span::<A>::enter(Func::TryToFreePages);
        self.tally().direct_calls.add(1);
        // Frames in limbo are as good as free: release them first. Their groups are not known, so
        // for a group they count as nothing.
        let left = on.rmap.leave_limbo(Leave::All);
        let mut freed = if group.is_some() { 0 } else { left };
        let wanted = pages.max(BATCH as u32);
        if freed >= wanted {
            return freed;
        }
        let again = core::iter::repeat_n(0, MAX_REPEATS);
        for (round, priority) in (0..=FIRST_PRIORITY).rev().chain(again).enumerate() {
            let found = self.round(on, node, group, priority, wanted - freed);
            freed += found.freed;
            let last = round >= FIRST_PRIORITY as usize && (freed > 0 || found.scanned == 0);
            if freed >= wanted || last {
                break;
            }
        }
        if freed > 0 {
            self.nodes.iter().for_each(|node| node.failures.store(0, Relaxed));
        }
        freed
    }

    /// Runs one round over all nodes, starting with `node`, until `wanted` pages are free.
    fn round<R: Rmap<A>>(
        &self,
        on: ReclaimRef<'_, A, R>,
        node: NodeId,
        group: Option<GroupId>,
        priority: u32,
        wanted: u32,
    ) -> ScanTotals {
        let mut sum = ScanTotals::default();
        for step in 0..self.nodes.len() {
            let node = NodeId::new((node.index() + step) % self.nodes.len());
            let found = self.shrink_node(
                on,
                (node, FreeWhen::OnReturn),
                group,
                priority,
                wanted - sum.freed,
            );
            sum.freed += found.freed;
            sum.scanned += found.scanned;
            if sum.freed >= wanted {
                break;
            }
        }
        sum
    }

    /// Runs one round over the lists of one group, or of all, on a node. If it frees nothing while
    /// folios are under writeback, waits for one of them.
    pub(super) fn shrink_node<R: Rmap<A>>(
        &self,
        on: ReclaimRef<'_, A, R>,
        (node, free_when): (NodeId, FreeWhen),
        group: Option<GroupId>,
        priority: u32,
        wanted: u32,
    ) -> ScanTotals {
        on.memory.groups.stats().flush_late(group.unwrap_or(GroupId::ROOT));
        let groups = match group {
            Some(group) => group.index()..group.index() + 1,
            None => 0..on.memory.groups.count(),
        };
        let (mut sum, mut writing) = (ScanTotals::default(), None);
        let exists = |group: &GroupId| on.memory.groups.may_exist(*group);
        for group in groups.map(GroupId::new).filter(exists) {
            let shrunk =
                self.shrink_lruvec(on, ScanTarget { group, node, free_when }, priority, wanted);
            sum.freed += shrunk.freed;
            sum.scanned += shrunk.scanned;
            if let Some(before) = shrunk.writing.and_then(|pfn| writing.replace(pfn)) {
                on.memory.put(before);
            }
        }
        if let Some(pfn) = writing {
            if sum.freed == 0 {
                on.swap.wait_writeback(on.memory, pfn);
            }
            on.memory.put(pfn);
        }
        sum
    }

    /// Tries to free folios that the caller has isolated, ignoring recent use, and puts the others
    /// back (`reclaim_pages`, for `MADV_PAGEOUT`). Returns how many were freed. Not counted are
    /// folios under writeback, which move to the tail of their list when it ends, and folios in
    /// limbo. Sleeps.
    pub fn reclaim_pages<R: Rmap<A>>(&self, on: ReclaimRef<'_, A, R>, isolated: &[Pfn]) -> u32 {
        let _span = Span::<A>::enter(Func::ReclaimPages);
        let mut freed = 0;
        for some in isolated.chunks(BATCH) {
            let shrunk =
                self.shrink_folio_list(on, some, ReferenceUse::Ignore, FreeWhen::AfterFlush);
            freed += shrunk.freed;
            if let Some(pfn) = shrunk.writing {
                on.memory.put(pfn);
            }
        }
        freed
    }
}
