//! Reclaim on behalf of whoever needs the memory, at once.

use super::scan::{FIRST_PRIORITY, Lruvec};
use super::shrink::{BATCH, Uses};
use super::{Event, Reclaim, Rmap, Scope};
use crate::arch::{Arch, Atomic, Func, NodeId, Pfn, Span};
use crate::group::GroupId;
use core::sync::atomic::Ordering::Relaxed;

impl<A: Arch> Reclaim<A> {
    /// Frees at least `pages` pages, or 32 if that is more, if it can (`try_to_free_pages`), and
    /// returns how many: of `group` on all nodes, for a charge that found the group at its limit;
    /// or of any group, for an allocation that found no memory. Memory of `node` goes first. It
    /// counts what it freed itself; others may have taken that already. Sleeps.
    pub fn direct<R: Rmap<A>>(
        &self,
        on: Scope<'_, A, R>,
        node: NodeId,
        pages: u32,
        group: Option<GroupId>,
    ) -> u32 {
        let _span = Span::<A>::enter(Func::TryToFreePages);
        self.tally(Event::Direct, 1);
        let (wanted, mut freed) = (pages.max(BATCH as u32), 0);
        for priority in (0..=FIRST_PRIORITY).rev() {
            for step in 0..self.nodes.len() {
                let node = NodeId::new((node.index() + step) % self.nodes.len());
                freed += self.shrink_node(on, node, group, priority, wanted - freed);
                if freed >= wanted {
                    break;
                }
            }
            if freed >= wanted {
                break;
            }
        }
        if freed > 0 {
            self.nodes.iter().for_each(|node| node.failures.store(0, Relaxed));
        }
        freed
    }

    /// One round over the lists of one group, or of all, on a node; returns how many pages are
    /// free by it. A round that frees nothing while folios are being written waits for one.
    pub(super) fn shrink_node<R: Rmap<A>>(
        &self,
        on: Scope<'_, A, R>,
        node: NodeId,
        group: Option<GroupId>,
        priority: u32,
        wanted: u32,
    ) -> u32 {
        let groups = match group {
            Some(group) => group.index()..group.index() + 1,
            None => 0..on.memory.groups.count(),
        };
        let (mut freed, mut writing) = (0, None);
        for group in groups.map(GroupId::new) {
            let shrunk = self.shrink_lruvec(on, Lruvec { group, node }, priority, wanted);
            freed += shrunk.freed;
            if let Some(before) = shrunk.writing.and_then(|pfn| writing.replace(pfn)) {
                on.memory.put(before);
            }
        }
        if let Some(pfn) = writing {
            if freed == 0 {
                on.swap.wait_writeback(on.memory, pfn);
            }
            on.memory.put(pfn);
        }
        freed
    }

    /// Tries to free folios that the caller has isolated, whether they were used lately or not, and
    /// puts back what stays (`reclaim_pages`, for `MADV_PAGEOUT`). Returns how many are free now;
    /// those that have to be written first are not, and go to the end of their list once they are.
    /// Sleeps.
    pub fn reclaim_pages<R: Rmap<A>>(&self, on: Scope<'_, A, R>, isolated: &[Pfn]) -> u32 {
        let _span = Span::<A>::enter(Func::ReclaimPages);
        let mut freed = 0;
        for some in isolated.chunks(BATCH) {
            let shrunk = self.shrink_folio_list(on, some, Uses::Ignored);
            freed += shrunk.freed;
            if let Some(pfn) = shrunk.writing {
                on.memory.put(pfn);
            }
        }
        freed
    }
}
