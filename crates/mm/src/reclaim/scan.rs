//! Scanning the lists: how much of which.

use super::shrink::{BATCH, FreeWhen, ReferenceUse, Shrunk};
use super::{Reclaim, ReclaimRef, Rmap};
use crate::folio::FolioFlags;
use crate::lru::LruList;
use crate::memcg::GroupId;
use mmscale_arch::{Func, Machine, NodeId, Pfn, Span};

/// The first round scans 1/2^12 of each list (`DEF_PRIORITY`).
pub(super) const FIRST_PRIORITY: u32 = 12;

/// One group's memory on one node.
#[derive(Clone, Copy)]
pub(super) struct ScanTarget {
    pub(super) group: GroupId,
    pub(super) node: NodeId,
    /// Used for all folios of the lists.
    pub(super) free_when: FreeWhen,
}

/// Number of pages to scan on each list.
struct Counts {
    active_anon: u64,
    inactive_anon: u64,
    inactive_file: u64,
}

/// Returns whether there are too few inactive pages, so that active ones must be deactivated
/// (`inactive_is_low`). The target ratio of active to inactive is 1 up to 1 GiB of both, and
/// sqrt(10 * GiB) above.
fn inactive_is_low(inactive: u64, active: u64) -> bool {
    const GIB_SHIFT: u32 = 30 - mmscale_arch::PAGE_SHIFT;
    let gib = (inactive + active) >> GIB_SHIFT;
    let ratio = if gib == 0 { 1 } else { (10 * gib).isqrt() };
    inactive * ratio < active
}

impl<A: Machine> Reclaim<A> {
    /// Runs one round over a group's lists on a node, until `wanted` pages are free
    /// (`shrink_lruvec`). The caller drops the reference of the returned folio under writeback.
    pub(super) fn shrink_lruvec<R: Rmap<A>>(
        &self,
        on: ReclaimRef<'_, A, R>,
        of: ScanTarget,
        priority: u32,
        wanted: u32,
    ) -> Shrunk {
        let mut left = self.scan_counts(on, of, priority);
        let mut sum = Shrunk::default();
        while left.active_anon + left.inactive_anon + left.inactive_file > 0 {
            if left.inactive_file > 0 {
                left.inactive_file = left.inactive_file.saturating_sub(BATCH as u64);
                self.shrink_inactive_list(on, of, LruList::InactiveFile, &mut sum);
            }
            if left.inactive_anon > 0 {
                left.inactive_anon = left.inactive_anon.saturating_sub(BATCH as u64);
                self.shrink_inactive_list(on, of, LruList::InactiveAnon, &mut sum);
            }
            if left.active_anon > 0 {
                left.active_anon = left.active_anon.saturating_sub(BATCH as u64);
                self.age_active_anon(on, of);
            }
            if sum.freed >= wanted {
                break;
            }
        }
        if on.swap.is_on() {
            self.age_active_anon(on, of);
        }
        sum
    }

    /// Returns how much to scan. Without free slots only lazily freed memory is scanned.
    fn scan_counts<R>(&self, on: ReclaimRef<'_, A, R>, of: ScanTarget, priority: u32) -> Counts {
        let sizes = on.memory.list_sizes(of.group, of.node);
        let part = |list: LruList| sizes[list as usize] >> priority;
        if !on.swap.has_room(on.memory) {
            let inactive_file = part(LruList::InactiveFile);
            return Counts { active_anon: 0, inactive_anon: 0, inactive_file };
        }
        Counts {
            active_anon: part(LruList::ActiveAnon),
            inactive_anon: part(LruList::InactiveAnon),
            inactive_file: part(LruList::InactiveFile),
        }
    }

    fn shrink_inactive_list<R: Rmap<A>>(
        &self,
        on: ReclaimRef<'_, A, R>,
        of: ScanTarget,
        list: LruList,
        sum: &mut Shrunk,
    ) {
        let _span = Span::<A>::enter(Func::ShrinkInactiveList);
        let mut folios = [Pfn::new(0); BATCH];
        on.memory.blanket_drain();
        let scan = on.memory.isolate_oldest(of.group, of.node, list, BATCH, &mut folios);
        let shrunk =
            self.shrink_folio_list(on, &folios[..scan.taken], ReferenceUse::Count, of.free_when);
        sum.freed += shrunk.freed;
        sum.scanned += shrunk.scanned;
        // The last folio under writeback is enough to wait for.
        if let Some(before) = shrunk.writing.and_then(|pfn| sum.writing.replace(pfn)) {
            on.memory.put(before);
        }
    }

    /// Deactivates the oldest folios of the active list, if there are too few inactive ones.
    fn age_active_anon<R: Rmap<A>>(&self, on: ReclaimRef<'_, A, R>, of: ScanTarget) {
        let sizes = on.memory.list_sizes(of.group, of.node);
        let size = |list: LruList| sizes[list as usize];
        if inactive_is_low(size(LruList::InactiveAnon), size(LruList::ActiveAnon)) {
            self.shrink_active_list(on, of);
        }
    }

    fn shrink_active_list<R: Rmap<A>>(&self, on: ReclaimRef<'_, A, R>, of: ScanTarget) {
        let _span = Span::<A>::enter(Func::ShrinkActiveList);
        let (memory, list) = (on.memory, LruList::ActiveAnon);
        let mut folios = [Pfn::new(0); BATCH];
        memory.blanket_drain();
        let scan = memory.isolate_oldest(of.group, of.node, list, BATCH, &mut folios);
        for &pfn in &folios[..scan.taken] {
            A::cond_resched();
            // Clears the accessed flags, so that the next use shows.
            if memory.folios.word(pfn).maps() > 0 {
                on.rmap.referenced(pfn);
            }
            memory.folios.set(pfn, FolioFlags::WORKINGSET);
            memory.folios.clear(pfn, FolioFlags::ACTIVE);
        }
        self.tally().deactivated.add(scan.taken as u64);
        memory.putback_now(&folios[..scan.taken]);
    }
}

#[cfg(test)]
mod tests {
    use super::inactive_is_low;

    #[test]
    fn larger_memories_keep_a_smaller_part_inactive() {
        // 100 MiB: half and half.
        assert!(inactive_is_low(12_000, 13_600) && !inactive_is_low(12_800, 12_800));
        // 10 GiB: one in eleven, as sqrt(100) = 10.
        let pages = 10 << 18;
        assert!(!inactive_is_low(pages / 11 + 1, pages - pages / 11 - 1));
        assert!(inactive_is_low(pages / 12, pages - pages / 12));
    }
}
