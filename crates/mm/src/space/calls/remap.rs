//! mremap: growing, shrinking and moving.

use crate::pgtable::Gather;
use crate::space::change::Change;
use crate::space::zap::{HUGE_PAGES, Retire};
use crate::space::{GapRequest, MapRequest, MmRef, Place, Space, SpaceError, Vma, VmaFlags};
use crate::space::{MAP_MIN, VmaRange, Vpn};
use mmscale_arch::{Func, Machine, Span};

/// Where the pages may end up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MayMove {
    /// Where they are.
    No,
    /// Anywhere (`MREMAP_MAYMOVE`).
    Anywhere,
    /// At this page; replaces existing mappings (`MREMAP_FIXED`).
    To(Vpn),
    /// Anywhere, and the old range stays mapped but empty (`MREMAP_DONTUNMAP`).
    Leave,
}

/// The arguments of mremap.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RemapRequest {
    /// The first page.
    pub from: Vpn,
    /// The old number of pages; at least 1.
    pub old_pages: u64,
    /// The new number of pages; at least 1.
    pub new_pages: u64,
    /// Where the pages may end up.
    pub may_move: MayMove,
}

impl<A: Machine> Space<A> {
    /// Resizes or moves a part of one VMA; returns its new first page (`mremap`).
    ///
    /// `Inval`: no pages, or more than an address space has; the new range overlaps the old one;
    /// [`MayMove::Leave`] with another size. `Fault`: the old range is not inside one VMA. `Again`:
    /// the limit on locked pages would be exceeded. `Perm`: below [`MAP_MIN`]. `NoMemory`: no free
    /// range at the old place and moving is not allowed, no memory, or too many VMAs.
    pub fn mremap(&self, on: MmRef<'_, A>, request: RemapRequest) -> Result<Vpn, SpaceError> {
        let _span = Span::<A>::enter(Func::DoMremap);
        let RemapRequest { from, old_pages, new_pages, may_move } = request;
        if old_pages == 0 || new_pages == 0 {
            return Err(SpaceError::Inval);
        }
        let (start, grown, locked) = {
            let old = VmaRange::with_pages(from, old_pages);
            match may_move {
                MayMove::To(to) => {
                    let new = VmaRange::with_pages(to, new_pages).ok_or(SpaceError::Inval)?;
                    if new.start().get() < from.get().saturating_add(old_pages) && from < new.end()
                    {
                        return Err(SpaceError::Inval);
                    }
                }
                MayMove::Leave if old_pages != new_pages => return Err(SpaceError::Inval),
                // EINVAL since Linux 6.17; ENOMEM before.
                _ if new_pages > VmaRange::USER.pages() => return Err(SpaceError::Inval),
                _ => {}
            }
            let old = old.ok_or(SpaceError::Fault)?;
            let mut change = self.change();
            let vma = change.at(from).ok_or(SpaceError::Fault)?;
            let locked = vma.flags.contains(VmaFlags::LOCKED);
            if new_pages > old_pages || matches!(may_move, MayMove::To(_) | MayMove::Leave) {
                if !vma.range.covers(old) {
                    return Err(SpaceError::Fault);
                }
                let more = new_pages.saturating_sub(old_pages);
                if locked && change.locked_pages + more > self.config.memlock_pages {
                    return Err(SpaceError::Again);
                }
            }
            let start = self.remap(on, &mut change, &vma, old, request)?;
            (start, new_pages.saturating_sub(old_pages), locked)
        };
        if locked && let Some(new) = VmaRange::with_pages(start.offset(old_pages), grown) {
            let _ = self.populate(on, new);
        }
        Ok(start)
    }
    fn remap(
        &self,
        on: MmRef<'_, A>,
        change: &mut Change<'_, A>,
        vma: &Vma,
        old: VmaRange,
        request: RemapRequest,
    ) -> Result<Vpn, SpaceError> {
        let new_pages = request.new_pages;
        let in_place = !matches!(request.may_move, MayMove::To(_) | MayMove::Leave);
        if in_place && new_pages <= old.pages() {
            if let Some((_, tail)) = old.split(old.start().offset(new_pages)) {
                change.plan_unmap(tail, 0)?;
                self.split_ends(on, change, tail)?;
                self.unmap(on, change, tail);
            }
            return Ok(old.start());
        }
        let whole_end = old.end() == vma.range.end();
        if in_place && whole_end && self.has_room(change, old, new_pages) {
            change.stretch(old.end(), old.start().offset(new_pages));
            return Ok(old.start());
        }
        match request.may_move {
            MayMove::No => Err(SpaceError::NoMemory),
            MayMove::Anywhere | MayMove::Leave => {
                let to = self.place_for(change, vma, old, new_pages)?;
                self.move_to(on, change, old, to, request)
            }
            MayMove::To(page) => {
                let to = VmaRange::with_pages(page, new_pages).ok_or(SpaceError::Inval)?;
                self.move_to(on, change, old, to, request)
            }
        }
    }
    /// Whether the VMA that ends with `old` can grow to `pages` from the start of `old`.
    fn has_room(&self, change: &Change<'_, A>, old: VmaRange, pages: u64) -> bool {
        let new = VmaRange::with_pages(old.start(), pages);
        let more = new.and_then(|new| VmaRange::new(old.end(), new.end()));
        more.is_some_and(|more| change.tree.first_in(more).is_none())
    }
    /// Chooses a free range elsewhere, if possible with the old offset from a huge page's start.
    fn place_for(
        &self,
        change: &Change<'_, A>,
        vma: &Vma,
        old: VmaRange,
        pages: u64,
    ) -> Result<VmaRange, SpaceError> {
        let offset = vma.index_of(old.start()) % HUGE_PAGES;
        if pages >= HUGE_PAGES {
            let gap = GapRequest::new(pages + offset).aligned(HUGE_PAGES);
            let gap = gap.within(super::mmap::MAP_WINDOW);
            let found = change.tree.highest_gap(&gap).map(|gap| gap.start().offset(offset));
            if let Some(new) = found.and_then(|at| VmaRange::with_pages(at, pages)) {
                return Ok(new);
            }
        }
        self.place(change, &MapRequest::new(pages).at(Place::Any))
    }
    /// Moves pages and VMA. On failure nothing has changed, except that with [`MayMove::To`]
    /// mappings at the target may be gone, as in Linux.
    fn move_to(
        &self,
        on: MmRef<'_, A>,
        change: &mut Change<'_, A>,
        old: VmaRange,
        to: VmaRange,
        request: RemapRequest,
    ) -> Result<Vpn, SpaceError> {
        if change.first_in(to).is_some() {
            change.plan_unmap(to, 0)?;
            self.split_ends(on, change, to)?;
            self.unmap(on, change, to);
        }
        if to.start() < MAP_MIN {
            return Err(SpaceError::Perm);
        }
        // A target smaller than the source: the rest of the source is unmapped.
        let kept = old.pages().min(to.pages());
        let source = VmaRange::raw(old.start().get(), old.start().get() + kept);
        change.plan(1 + change.cuts(source) + change.cuts(old))?;
        change.hold_at(old.start());
        change.hold_at(old.end());
        self.split_ends(on, change, old)?;
        self.split_ends(on, change, source)?;
        self.split_for_move(on, source, to.start())?;
        change.cut(old.start());
        change.cut(source.end());
        change.cut(old.end());
        let Some(vma) = change.at(old.start()) else { return Err(SpaceError::Fault) };
        let origin = vma.index_of(old.start());
        let file = vma.file.map(|map| map.moved(old.start(), to.start()));
        let new = Vma { range: to, origin, file, ..vma };
        change.add_held(new);
        if new.is_moved() {
            self.moved.lock().note(&new);
        }
        if let Err(why) = self.table.move_range(on.paging, source, to.start()) {
            self.move_back(on, change, source, to, why.moved);
            change.join_at(old.end());
            return Err(SpaceError::NoMemory);
        }
        if request.may_move == MayMove::Leave {
            // The old VMA stays but is empty, and its indices start anew.
            if vma.is_moved() {
                self.moved.lock().forget(&vma);
            }
            change.alter(old.start(), |vma| {
                vma.origin = vma.range.start().get();
                vma.flags -= VmaFlags::LOCKED | VmaFlags::LOCK_ON_FAULT;
            });
            self.free_tables_of(on, change, old);
        } else {
            self.unmap(on, change, old);
        }
        change.join_at(old.start());
        change.join_at(old.end());
        Ok(to.start())
    }
    /// Splits huge pages if whole tables cannot be moved.
    fn split_for_move(
        &self,
        on: MmRef<'_, A>,
        source: VmaRange,
        to: Vpn,
    ) -> Result<(), SpaceError> {
        if (to.get().wrapping_sub(source.start().get())).is_multiple_of(HUGE_PAGES) {
            return Ok(());
        }
        let mut page = Vpn::new(source.start().get().next_multiple_of(HUGE_PAGES));
        while page < source.end() {
            self.split_huge_page(on, page)?;
            page = page.offset(HUGE_PAGES);
        }
        Ok(())
    }
    /// Undoes a move that ran out of memory: the tables that the pages came from are still there.
    fn move_back(
        &self,
        on: MmRef<'_, A>,
        change: &mut Change<'_, A>,
        source: VmaRange,
        to: VmaRange,
        moved: u64,
    ) {
        if let Some(back) = VmaRange::with_pages(to.start(), moved) {
            let undone = self.table.move_range(on.paging, back, source.start());
            debug_assert!(undone.is_ok(), "moving back makes no table: {undone:?}");
        }
        self.unmap(on, change, to);
        change.join_at(source.start());
        change.join_at(source.end());
    }
    /// Frees the tables of a range that maps nothing but stays.
    fn free_tables_of(&self, on: MmRef<'_, A>, change: &Change<'_, A>, range: VmaRange) {
        let mut gather = Gather::new(&self.table);
        let mut sink = Retire(on);
        // Tables that map other pages stay. No fault adds pages here: the VMA is locked.
        let bounds = change.bounds_of(range);
        self.table.free_tables(on.paging, &mut gather, &mut sink, range, bounds);
        gather.finish(on.paging, &mut sink);
    }
}
