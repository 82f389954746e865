//! The reverse map: from a folio to the pages that map it.
//!
//! A folio has a family of address spaces that may map it, and an index. Unless mremap has moved
//! the VMA, the index is the page's number; [`Moved`] has the moves. A walk visits the members of
//! the family, the last exclusive owner first, until it has seen as many entries as the folio has
//! mappings. It locks each VMA as a page fault does: it only tries, and skips a VMA that it cannot
//! lock. The caller then sees that mappings are left. If a VMA was forked, the walk also holds the
//! lock of its root (`vma::roots`) until its end.

use crate::folio::FolioFlags;
use crate::pgtable::{Pte, PteFlags, PteTable};
use crate::reclaim::{References, Rmap, UnmapTo};
use crate::smp::Wait;
use crate::space::fault::{ALONE, SHARED};
use crate::space::registry::Mapping;
use crate::space::vma::RootId;
use crate::space::vma::VmaReadGuard;
use crate::space::zap::folio_of;
use crate::space::{MmRef, Space, Vma, VmaFlags, Vpn};
use crate::tlb::{Extent, Leave, UnmapBatch};
use alloc::vec::Vec;
use mmscale_arch::sync::ReadGuard;
use mmscale_arch::{Func, Machine, PageSize, Pfn, Span};

/// A range of folio indices that mremap has moved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Stretch {
    index: u64,
    pages: u64,
    to: Vpn,
}

/// Where mremap has moved pages. More than one page may have the same index.
pub(crate) struct Moved {
    stretches: Vec<Stretch>,
}

impl Moved {
    pub(crate) const fn new() -> Self {
        Self { stretches: Vec::new() }
    }
    /// Records the range of `vma`, which was moved.
    pub(crate) fn note(&mut self, vma: &Vma) {
        let (pages, to) = (vma.range.pages(), vma.range.start());
        self.stretches.push(Stretch { index: vma.origin, pages, to });
    }
    /// Removes the range of `vma`.
    pub(crate) fn forget(&mut self, vma: &Vma) {
        let (from, to) = (vma.range.start().get(), vma.range.end().get());
        let mut kept = Vec::new();
        self.stretches.retain(|stretch| {
            let (start, end) = (stretch.to.get(), stretch.to.get() + stretch.pages);
            if end <= from || to <= start {
                return true;
            }
            let part = |first: u64, last: u64| Stretch {
                index: stretch.index + (first - start),
                pages: last - first,
                to: Vpn::new(first),
            };
            if start < from {
                kept.push(part(start, from));
            }
            if to < end {
                kept.push(part(to, end));
            }
            false
        });
        self.stretches.extend(kept);
    }
    /// The `at`th page that may have `index`.
    fn page_of(&self, index: u64, at: usize) -> Option<Vpn> {
        let holds = |it: &&Stretch| index.wrapping_sub(it.index) < it.pages;
        self.stretches.iter().filter(holds).nth(at).map(|it| it.to.offset(index - it.index))
    }
}

/// Whether a walk continues.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Walk {
    On,
    Enough,
}

/// The behaviour of a walk if a root's lock is taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum IfTaken {
    Wait,
    /// It ends.
    Stop,
}

/// The root that a walk has locked.
struct RootHold<'a, A: Machine> {
    root: Option<RootId>,
    guard: Option<ReadGuard<'a, A, ()>>,
    if_taken: IfTaken,
    contended: bool,
}

impl<'a, A: Machine> RootHold<'a, A> {
    const fn new(if_taken: IfTaken) -> Self {
        Self { root: None, guard: None, if_taken, contended: false }
    }
    /// Locks the root of `vma`, if it has one, in place of the one before. Returns whether the walk
    /// may visit the VMA.
    fn lock(&mut self, on: MmRef<'a, A>, vma: &Vma) -> bool {
        let root = vma.anon.map(|chain| chain.root);
        if root == self.root {
            return true;
        }
        (self.root, self.guard) = (None, None);
        if let Some(root) = root {
            self.guard = match self.if_taken {
                IfTaken::Wait => Some(on.spaces.roots().read(root)),
                IfTaken::Stop => on.spaces.roots().try_read(root),
            };
            self.contended = self.guard.is_none();
        }
        self.root = root.filter(|_| !self.contended);
        !self.contended
    }
}

impl<'a, A: Machine> MmRef<'a, A> {
    /// Calls `see` for every entry of a single page that maps `folio`, under its table's lock.
    /// Returns `false` if the walk has ended because a root's lock was taken.
    pub(super) fn each_entry(
        self,
        folio: Pfn,
        if_taken: IfTaken,
        mut see: impl FnMut(&Space<A>, &Vma, &mut PteTable<'_, A>, Vpn) -> Walk,
    ) -> bool {
        let _span = Span::<A>::enter(Func::RmapWalk);
        let mut hold = RootHold::new(if_taken);
        let mapping = Mapping::of(self.memory.folios.mapping(folio));
        let index = self.memory.folios.index(folio);
        let mut visit =
            |space: &Space<A>| space.each_page_of(self, folio, index, &mut hold, &mut see);
        if let Some(owner) = self.spaces.get(mapping.owner)
            && owner.family == mapping.family
            && visit(&owner) == Walk::Enough
        {
            return !hold.contended;
        }
        let mut at = 0;
        while let Some(member) = self.spaces.member(mapping.family, at) {
            at += 1;
            if member != mapping.owner
                && let Some(space) = self.spaces.get(member)
                && visit(&space) == Walk::Enough
            {
                return !hold.contended;
            }
        }
        true
    }
}

impl<A: Machine> Space<A> {
    fn each_page_of<'a>(
        &self,
        on: MmRef<'a, A>,
        folio: Pfn,
        index: u64,
        hold: &mut RootHold<'a, A>,
        see: &mut impl FnMut(&Self, &Vma, &mut PteTable<'_, A>, Vpn) -> Walk,
    ) -> Walk {
        let mut visit = |vma: &Vma, page: Vpn| {
            if vma.page_of(index) != Some(page) {
                return None;
            }
            if !hold.lock(on, vma) {
                return Some(Walk::Enough);
            }
            let mut ptes = self.table.find_pte(on.paging, page)?;
            let pte = ptes.get(page);
            let found = pte.pfn().map(|pfn| folio_of(pfn, pte.flags()));
            if found != Some(folio) || pte.flags().contains(PteFlags::ZERO) {
                return None;
            }
            Some(see(self, vma, &mut ptes, page))
        };
        let mut step = |page: Vpn| {
            let guard: VmaReadGuard<'_, A> = self.lock_vma(page)?;
            visit(guard.vma(), page)
        };
        if step(Vpn::new(index)) == Some(Walk::Enough) {
            return Walk::Enough;
        }
        let mut at = 0;
        loop {
            let next = self.moved.lock().page_of(index, at);
            let Some(page) = next else { return Walk::On };
            at += 1;
            if step(page) == Some(Walk::Enough) {
                return Walk::Enough;
            }
        }
    }
}

/// The extent of a single page.
fn one(page: Vpn) -> Extent {
    Extent::Range(crate::space::VmaRange::raw(page.get(), page.get() + 1), PageSize::Base)
}

impl<A: Machine> Rmap<A> for MmRef<'_, A> {
    fn referenced(&self, pfn: Pfn) -> References {
        let mut found = References::default();
        let mut left = self.memory.folios.word(pfn).maps();
        if left == 0 {
            return found;
        }
        let whole = self.each_entry(pfn, IfTaken::Stop, |_, vma, ptes, page| {
            found.locked |= vma.flags.contains(VmaFlags::LOCKED);
            // An access to a page that is read in a known or a random order says nothing about the
            // next one (`vma_has_recency`).
            let ordered = VmaFlags::RANDOM_READ | VmaFlags::SEQUENTIAL_READ;
            let recent = !vma.flags.intersects(ordered);
            // No flush: an outdated translation only makes the page look unused for longer.
            if recent && ptes.get(page).flags().contains(PteFlags::ACCESSED) {
                ptes.clear(page, PteFlags::ACCESSED);
                found.accessed += 1;
            }
            left -= 1;
            if left == 0 { Walk::Enough } else { Walk::On }
        });
        found.contended = !whole;
        found
    }
    fn unmap(&self, pfn: Pfn, to: UnmapTo, batch: &mut UnmapBatch) -> bool {
        let on = *self;
        let mut dropped = 0;
        self.each_entry(pfn, IfTaken::Wait, |space, vma, ptes, page| {
            if vma.flags.contains(VmaFlags::LOCKED) {
                return Walk::Enough;
            }
            let pte = ptes.take(page);
            match to {
                // A fault on the swap entry finds the same folio in the swap cache.
                UnmapTo::Swap(_) => on.paging.tlb.defer(batch, space.asid(), one(page)),
                // A fault gets another folio: after the entry is gone, no CPU may read this one.
                UnmapTo::Drop => {
                    let _ = on.paging.tlb.flush(space.asid(), one(page));
                }
            }
            let dirty = pte.flags().contains(PteFlags::DIRTY);
            if dirty {
                // Until the flush a CPU whose translation is marked dirty may go on writing. A CPU
                // whose translation is clean reads the entry before it writes, and faults.
                batch.note_dirty();
                on.memory.folios.set(pfn, FolioFlags::DIRTY);
            }
            if to == UnmapTo::Drop && dirty {
                ptes.fill(page, pte);
                return Walk::Enough;
            }
            if let UnmapTo::Swap(entry) = to {
                let alone = on.memory.folios.clear(pfn, FolioFlags::EXCLUSIVE);
                let kind = if alone.has(FolioFlags::EXCLUSIVE) { ALONE } else { SHARED };
                on.dup_swap(entry);
                ptes.fill(page, Pte::swap(kind, entry.word()));
            }
            dropped += 1;
            let left = on.memory.remove_maps(pfn, 1).maps();
            if left == 0 { Walk::Enough } else { Walk::On }
        });
        let unmapped = self.memory.folios.word(pfn).maps() == 0;
        if dropped > 0 {
            self.memory.release(&[(pfn, dropped)]);
        }
        unmapped
    }
    fn leave_limbo(&self, leave: Leave) -> u32 {
        MmRef::leave_limbo(*self, leave)
    }
    fn has_limbo(&self) -> bool {
        self.paging.tlb.has_limbo()
    }
    fn park(&self, batch: &mut UnmapBatch, folios: &[Pfn]) -> bool {
        self.paging.tlb.park_batch(batch, folios)
    }
    fn flush(&self, batch: &mut UnmapBatch) {
        self.paging.tlb.flush_batch(batch, Wait::Sleep);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::space::Prot;
    use mmscale_arch::VmaRange;

    /// Returns 10 pages, the first of which is `start` and has a folio with the index 100.
    fn area(start: u64) -> Vma {
        Vma {
            range: VmaRange::raw(start, start + 10),
            prot: Prot::RW,
            flags: VmaFlags::empty(),
            origin: 100,
            node: None,
            file: None,
            anon: None,
        }
    }

    fn pages_of(moved: &Moved, index: u64) -> Vec<u64> {
        (0..).map_while(|at| moved.page_of(index, at)).map(Vpn::get).collect()
    }

    #[test]
    fn moved_pages_are_found_and_the_forgotten_ones_are_not() {
        let mut moved = Moved::new();
        moved.note(&area(1_000));
        moved.note(&area(2_000));
        assert_eq!(pages_of(&moved, 104), [1_004, 2_004]);
        // The middle of one of them: what is before and after it stays.
        let gone = area(2_000).part(VmaRange::raw(2_003, 2_006));
        moved.forget(&gone);
        let found = |index| pages_of(&moved, index);
        for index in 100..110 {
            let second = (!(103..106).contains(&index)).then_some(index + 1_900);
            let wanted: Vec<u64> = [index + 900].into_iter().chain(second).collect();
            assert_eq!(found(index), wanted, "{index}");
        }
        assert!(found(99).is_empty() && found(110).is_empty());
        moved.forget(&area(1_000));
        moved.forget(&area(2_000));
        assert!(moved.stretches.is_empty(), "{:?}", moved.stretches);
    }
}
