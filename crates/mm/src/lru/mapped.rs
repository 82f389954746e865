//! Mappings of folios, and the statistics of nodes, groups and lruvecs.
//!
//! A folio counts as mapped with all its pages as long as it has a mapping, as large folios do in
//! Linux without mappings of single pages (`CONFIG_NO_PAGE_MAPCOUNT`).

use super::LruRef;
use super::lists::LruLocation;
use crate::folio::{FolioFlags, FolioWord};
use crate::memcg::GroupId;
use mmscale_arch::sync::{IrqGuard, NoPreempt, PreemptGuard};
use mmscale_arch::{Machine, Op, Pfn};
use mmscale_frames::vmstat::{IrqOff, NodeItem};

impl<A: Machine> LruRef<'_, A> {
    /// Adds one page-table mapping; returns the state before. The first one makes the folio's pages
    /// count as mapped (`folio_add_anon_rmap_pte`, `folio_add_file_rmap_pte`).
    #[inline]
    pub fn add_map(&self, pfn: Pfn) -> FolioWord {
        let old = self.folios.add_map(pfn);
        if old.maps() == 0 {
            self.count_mapped(pfn, old.flags(), 1);
        }
        old
    }
    /// Removes `count` page-table mappings; returns the state after. With the last one, the folio's
    /// pages do not count as mapped any more (`folio_remove_rmap_ptes`).
    #[inline]
    pub fn remove_maps(&self, pfn: Pfn, count: u32) -> FolioWord {
        let left = self.folios.remove_maps(pfn, count);
        if left.maps() == 0 {
            self.count_mapped(pfn, left.flags(), -1);
        }
        left
    }
    /// Adds the folio's pages, times `sign`, to the statistics of mapped pages
    /// (`__folio_mod_stat`). No interrupt changes these, so preemption is off and interrupts are
    /// on.
    pub(super) fn count_mapped(&self, pfn: Pfn, flags: FolioFlags, sign: i64) {
        let is_anon = flags.contains(FolioFlags::ANON);
        let item = if is_anon { NodeItem::AnonMapped } else { NodeItem::FileMapped };
        let (pinned, location) = (PreemptGuard::<A>::new(), self.location(pfn));
        let pages = sign * i64::from(location.pages);
        A::work(Op::PercpuAdd, 1);
        self.frames.stats().mod_node_of_tasks(&pinned, location.node, item, pages);
        self.mod_memcg_lruvec(&pinned, location, item, pages);
    }
    /// Adds the folio's pages, times `sign`, to the statistics of pages in page caches of files.
    pub(crate) fn count_file_pages(&self, pfn: Pfn, sign: i64) {
        let (off, location) = (IrqGuard::<A>::new(), self.location(pfn));
        A::work(Op::PercpuAdd, 1);
        self.mod_lruvec_state(
            &off,
            location,
            NodeItem::FilePages,
            sign * i64::from(location.pages),
        );
    }
    /// Adds the folio's pages, times `sign`, to the node's pages in page caches: those in the swap
    /// cache are among them, but not among the group's.
    pub(crate) fn count_swap_cache(&self, pfn: Pfn, sign: i64) {
        let (off, location) = (IrqGuard::<A>::new(), self.location(pfn));
        A::work(Op::PercpuAdd, 1);
        let pages = sign * i64::from(location.pages);
        self.frames.stats().mod_node(&off, location.node, NodeItem::FilePages, pages);
    }
    /// Adds `pages` to a statistic of the node, the group and the lruvec (`__mod_lruvec_state`).
    /// The change of the node's byte is charged by the caller.
    pub(super) fn mod_lruvec_state(
        &self,
        off: &impl IrqOff<A>,
        location: LruLocation,
        item: NodeItem,
        pages: i64,
    ) {
        self.frames.stats().mod_node(off, location.node, item, pages);
        self.mod_memcg_lruvec(off, location, item, pages);
    }
    fn mod_memcg_lruvec(
        &self,
        pinned: &impl NoPreempt<A>,
        location: LruLocation,
        item: NodeItem,
        pages: i64,
    ) {
        let group = GroupId::new(location.lruvec / self.lru.nodes);
        self.groups.stats().add(pinned, group, location.node, item, pages);
    }
}
