//! mbind: the node of new pages, and migration of present ones.

use crate::folio::FolioFlags;
use crate::lru::Pending;
use crate::pgtable::{Direction, Gather, Leaf, PteFlags};
use crate::space::zap::{Locked, Retire, folio_of};
use crate::space::{MmRef, Space, SpaceError, Vma, VmaRange, Vpn};
use alloc::vec::Vec;
use mmscale_arch::{Func, Machine, NodeId, Order, PageSize, Pfn, Span};
use mmscale_frames::page_alloc::Gfp;
use mmscale_frames::zone::ZoneId;

impl<A: Machine> Space<A> {
    /// Takes new pages of `range` from `node`, and with [`Present::Move`] migrates present pages of
    /// other nodes that are mapped here only (`mbind` with `MPOL_BIND` and `MPOL_MF_MOVE`). Returns
    /// the number of pages that could not be moved.
    ///
    /// `Fault`: the range is not fully mapped. `NoMemory`: a VMA cannot be split.
    pub fn mbind(
        &self,
        on: MmRef<'_, A>,
        range: VmaRange,
        node: NodeId,
        present: Present,
    ) -> Result<u64, SpaceError> {
        // Linux disables LRU batches on all CPUs while it isolates and migrates pages
        // (`lru_cache_disable`).
        let blanket = on.memory.lru.pending() == Pending::Batch;
        let off = (present == Present::Move && blanket).then(|| on.memory.batches_off());
        let misplaced = {
            let mut change = self.change();
            if !change.covers(range) {
                return Err(SpaceError::Fault);
            }
            change.plan_alter(range, |vma| vma.node = Some(node))?;
            self.split_ends(on, &mut change, range)?;
            self.set_node(&mut change, range, node);
            if present == Present::Stay {
                return Ok(0);
            }
            self.isolate_misplaced(on, range, node)
        };
        let failed = self.migrate(on, &misplaced.taken, node);
        drop(off);
        Ok(failed + misplaced.left)
    }
    fn set_node(
        &self,
        change: &mut crate::space::change::Change<'_, A>,
        range: VmaRange,
        node: NodeId,
    ) {
        let mut at = range.start();
        while let Some(rest) = VmaRange::new(at, range.end()) {
            let Some(vma) = change.at(at) else { break };
            let Some(part) = vma.range.intersection(rest) else { break };
            at = part.end();
            if vma.node != Some(node) {
                change.cut(part.start());
                change.cut(part.end());
                change.alter(part.start(), |vma| vma.node = Some(node));
            }
        }
        change.join_at(range.end());
    }
    /// Isolates the folios of `range` that are not on `node` (`queue_pages_range`).
    fn isolate_misplaced(&self, on: MmRef<'_, A>, range: VmaRange, node: NodeId) -> Misplaced {
        let mut misplaced = Misplaced { taken: Vec::new(), left: 0 };
        for leaf in self.table.leaves(on.paging, range, Direction::Forward) {
            let (ptes, part) = match leaf {
                Leaf::Ptes(ptes, part) => (ptes, part),
                Leaf::Huge(pmd, part) => {
                    // Huge pages are not migrated.
                    let folio = pmd.get(part.start()).pfn();
                    if folio.is_some_and(|folio| on.node_of(folio) != node) {
                        misplaced.left += part.pages();
                    }
                    continue;
                }
            };
            for page in Direction::Forward.pages(part) {
                let pte = ptes.get(page);
                let flags = pte.flags();
                let Some(pfn) = pte.pfn().filter(|_| !flags.contains(PteFlags::ZERO)) else {
                    continue;
                };
                let folio = folio_of(pfn, flags);
                if on.node_of(folio) == node {
                    continue;
                }
                let word = on.memory.folios.word(folio);
                let order = on.memory.frames.frames().word(folio).order();
                if word.maps() == 1 && order == Order::ZERO && on.memory.isolate(folio) {
                    misplaced.taken.push((page, folio));
                } else {
                    misplaced.left += 1;
                }
            }
        }
        misplaced
    }
    /// Migrates isolated folios; returns how many stayed (`migrate_pages`).
    fn migrate(&self, on: MmRef<'_, A>, taken: &[(Vpn, Pfn)], node: NodeId) -> u64 {
        let _span = Span::<A>::enter(Func::MigratePages);
        let mut failed = 0;
        for &(page, folio) in taken {
            let vmas = self.lock.read();
            let moved =
                vmas.at(page).is_some_and(|vma| self.migrate_one(on, &vma, page, folio, node));
            failed += u64::from(!moved);
            drop(vmas);
            if moved {
                on.memory.put(folio);
            } else {
                on.memory.putback(folio);
            }
            A::cond_resched();
        }
        failed
    }
    /// Replaces `folio`, which the caller has isolated and which `page` maps, by a copy on `node`,
    /// if it has no other user. Drops the entry's reference, but not the caller's.
    fn migrate_one(
        &self,
        on: MmRef<'_, A>,
        vma: &Vma,
        page: Vpn,
        folio: Pfn,
        node: NodeId,
    ) -> bool {
        let mut what = self.init_for(vma, page);
        what.index = on.memory.folios.index(folio);
        let gfp = Gfp::NOWAIT | Gfp::THIS_NODE;
        let Ok(new) = on.memory.alloc_folio(node, Order::ZERO, gfp, what) else { return false };
        let mut gather = Gather::new(&self.table);
        let moved = self.exchange(on, vma, &mut gather, page, folio, new);
        gather.finish(on.paging, &mut Retire(on));
        if !moved {
            on.memory.put(new);
        }
        moved
    }
    fn exchange(
        &self,
        on: MmRef<'_, A>,
        vma: &Vma,
        gather: &mut Gather<'_, A>,
        page: Vpn,
        folio: Pfn,
        new: Pfn,
    ) -> bool {
        let Some(mut ptes) = self.table.find_pte(on.paging, page) else { return false };
        if ptes.get(page).pfn() != Some(folio) {
            return false;
        }
        let old = ptes.take(page);
        gather.note(page, PageSize::Base);
        // After the flush no CPU writes to the old page.
        let _ = gather.flush_tlb(on.paging);
        let word = on.memory.folios.word(folio);
        // The references are the entry's and the isolation's. While the folio is frozen, no other
        // task gets a reference.
        let kept = FolioFlags::SWAP_CACHE | FolioFlags::WRITEBACK | FolioFlags::LOCKED;
        if word.flags().intersects(kept) || !on.memory.freeze(folio, 2) {
            ptes.fill(page, old);
            return false;
        }
        A::copy_page(folio, new);
        let passed = FolioFlags::ACTIVE | FolioFlags::REFERENCED | FolioFlags::DIRTY;
        on.memory.folios.set(new, word.flags() & passed);
        if !word.has(FolioFlags::SWAP_BACKED) {
            on.memory.folios.clear(new, FolioFlags::SWAP_BACKED);
        }
        on.memory.folios.unfreeze(folio, 1);
        self.unmap_folio(on, folio, 1, Locked::No);
        on.memory.add_map(new);
        on.memory.add(new);
        if vma.flags.contains(crate::space::VmaFlags::LOCKED) {
            on.memory.mlock(new);
        }
        ptes.fill(page, old.to(new));
        true
    }
}

/// The treatment of present pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Present {
    /// They stay where they are.
    Stay,
    /// They are migrated (`MPOL_MF_MOVE`).
    Move,
}

/// Folios that are on another node than requested.
struct Misplaced {
    taken: Vec<(Vpn, Pfn)>,
    /// Pages that could not be isolated.
    left: u64,
}

impl<A: Machine> MmRef<'_, A> {
    /// The node of a frame.
    pub(super) fn node_of(self, pfn: Pfn) -> NodeId {
        let zone = ZoneId::new(usize::from(self.memory.frames.frames().word(pfn).zone()));
        self.memory.frames.zone(zone).node()
    }
}
