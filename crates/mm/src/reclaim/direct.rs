//! Reclaim on behalf of whoever needs the memory, at once.

use super::scan::{FIRST_PRIORITY, Lruvec};
use super::shrink::{BATCH, Haste, Uses};
use super::{Reclaim, Rmap, Scope};
use crate::group::GroupId;
use crate::tlb::Leave;
use core::sync::atomic::Ordering::Relaxed;
use mmscale_arch::{Atomic, Func, Machine, NodeId, Pfn, Span};

/// How often a last round that freed nothing is repeated (`MAX_RECLAIM_RETRIES`).
const MAX_REPEATS: usize = 16;

/// What a round came to, in pages.
#[derive(Clone, Copy, Default)]
pub(super) struct Found {
    /// Looked at.
    pub(super) scanned: u32,
    /// Freed.
    pub(super) freed: u32,
}

impl<A: Machine> Reclaim<A> {
    /// Frees at least `pages` pages, or 32 if that is more, if it can (`try_to_free_pages`), and
    /// returns how many: of `group` on all nodes, for a charge that found the group at its limit;
    /// or of any group, for an allocation that found no memory. Memory of `node` goes first. It
    /// counts what it freed itself; others may have taken that already. Sleeps.
    ///
    /// 0 means that there is nothing to be had: a last round that looked at folios and freed none
    /// is repeated, as what it looked at may have been in use, or on its way out.
    pub fn direct<R: Rmap<A>>(
        &self,
        on: Scope<'_, A, R>,
        node: NodeId,
        pages: u32,
        group: Option<GroupId>,
    ) -> u32 {
        let _span = Span::<A>::enter(Func::TryToFreePages);
        self.tally().direct_calls.add(1);
        // What is as good as free goes first. Whose it was is not known: for a group it is nothing.
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

    /// One round over all nodes, `node` first, until `wanted` pages are free.
    fn round<R: Rmap<A>>(
        &self,
        on: Scope<'_, A, R>,
        node: NodeId,
        group: Option<GroupId>,
        priority: u32,
        wanted: u32,
    ) -> Found {
        let mut sum = Found::default();
        for step in 0..self.nodes.len() {
            let node = NodeId::new((node.index() + step) % self.nodes.len());
            let found =
                self.shrink_node(on, (node, Haste::Now), group, priority, wanted - sum.freed);
            sum.freed += found.freed;
            sum.scanned += found.scanned;
            if sum.freed >= wanted {
                break;
            }
        }
        sum
    }

    /// One round over the lists of one group, or of all, on a node. If it frees nothing while
    /// folios are being written it waits for one of them.
    pub(super) fn shrink_node<R: Rmap<A>>(
        &self,
        on: Scope<'_, A, R>,
        (node, haste): (NodeId, Haste),
        group: Option<GroupId>,
        priority: u32,
        wanted: u32,
    ) -> Found {
        let groups = match group {
            Some(group) => group.index()..group.index() + 1,
            None => 0..on.memory.groups.count(),
        };
        let (mut sum, mut writing) = (Found::default(), None);
        for group in groups.map(GroupId::new) {
            let shrunk = self.shrink_lruvec(on, Lruvec { group, node, haste }, priority, wanted);
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

    /// Tries to free folios that the caller has isolated, whether they were used lately or not, and
    /// puts back what stays (`reclaim_pages`, for `MADV_PAGEOUT`). Returns how many are free now;
    /// those that have to be written first are not, and go to the end of their list once they are;
    /// nor are those that wait for CPUs to forget them. Sleeps.
    pub fn reclaim_pages<R: Rmap<A>>(&self, on: Scope<'_, A, R>, isolated: &[Pfn]) -> u32 {
        let _span = Span::<A>::enter(Func::ReclaimPages);
        let mut freed = 0;
        for some in isolated.chunks(BATCH) {
            let shrunk = self.shrink_folio_list(on, some, Uses::Ignored, Haste::Later);
            freed += shrunk.freed;
            if let Some(pfn) = shrunk.writing {
                on.memory.put(pfn);
            }
        }
        freed
    }
}
