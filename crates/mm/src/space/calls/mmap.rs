//! mmap and munmap.

use crate::pgtable::Gather;
use crate::space::zap::{HUGE_PAGES, Retire, locked_of};
use crate::space::{ADDRESS_BITS, GapRequest, PAGE_SHIFT, VmaRange, Vpn};
use crate::space::{FileId, FileMap, MmRef, Prot, Space, SpaceError, Vma, VmaFlags};
use alloc::vec::Vec;
use mmscale_arch::{Func, Machine, Op, Span};

/// The first page that a program without CAP_SYS_RAWIO may map. The lowest 64 KiB stay unmapped, so
/// that a null pointer in the kernel faults (`vm.mmap_min_addr`).
pub const MAP_MIN: Vpn = Vpn::new(16);

/// Where mmap searches for free pages: from [`MAP_MIN`] up to the stack's 128 MiB. The highest gap
/// is taken. The end is aligned to huge pages.
pub(super) const MAP_WINDOW: VmaRange =
    VmaRange::raw(MAP_MIN.get(), (1 << (ADDRESS_BITS - PAGE_SHIFT)) - (128 << 20 >> PAGE_SHIFT));

/// Where a mapping goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// Anywhere.
    Any,
    /// At this page if the range is free, otherwise anywhere.
    Hint(Vpn),
    /// At this page; replaces existing mappings (`MAP_FIXED`).
    Fixed(Vpn),
    /// At this page; fails if the range is not free (`MAP_FIXED_NOREPLACE`).
    Free(Vpn),
}

/// The arguments of mmap.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MapRequest {
    /// Where.
    pub place: Place,
    /// The number of pages.
    pub pages: u64,
    /// The protection.
    pub prot: Prot,
    /// The flags of the VMA.
    pub flags: VmaFlags,
    /// Faults its pages in before mmap returns (`MAP_POPULATE`), as far as there is memory.
    pub populate: bool,
    /// The file and its first page to map; `None`: anonymous memory. The mapping is private unless
    /// `flags` has [`VmaFlags::SHARED`].
    pub file: Option<(FileId, u64)>,
}

impl MapRequest {
    /// `pages` pages for reading and writing, anywhere.
    pub const fn new(pages: u64) -> Self {
        Self {
            place: Place::Any,
            pages,
            prot: Prot::RW,
            flags: VmaFlags::empty(),
            populate: false,
            file: None,
        }
    }
    /// Sets the place.
    #[must_use]
    pub const fn at(self, place: Place) -> Self {
        Self { place, ..self }
    }
    /// Sets the protection.
    #[must_use]
    pub const fn prot(self, prot: Prot) -> Self {
        Self { prot, ..self }
    }
    /// Maps the file `id`, which the address space holds ([`Space::hold_file`]), from its page
    /// `index` on; private.
    #[must_use]
    pub const fn of_file(self, id: FileId, index: u64) -> Self {
        Self { file: Some((id, index)), ..self }
    }
    /// Makes the mapping shared: writes go to the file.
    #[must_use]
    pub const fn shared(self) -> Self {
        Self { flags: self.flags.union(VmaFlags::SHARED), ..self }
    }
    /// Populates the mapping (`MAP_POPULATE`).
    #[must_use]
    pub const fn populated(self) -> Self {
        Self { populate: true, ..self }
    }
    /// Locks the mapping in memory (`MAP_LOCKED`).
    #[must_use]
    pub const fn locked(self) -> Self {
        Self { flags: self.flags.union(VmaFlags::LOCKED), ..self }
    }
}

impl<A: Machine> Space<A> {
    /// Maps memory; returns the first page (`mmap`).
    ///
    /// `Inval`: no pages, a file that it does not hold, or shared anonymous memory. `NoMemory`: no
    /// free range, no memory, or too many VMAs (one more than the limit is possible, as in Linux).
    /// `Exists`: the range of [`Place::Free`] is not free. `Perm`: below [`MAP_MIN`], or the
    /// process may not lock memory. `Again`: the limit on locked pages would be exceeded.
    pub fn mmap(&self, on: MmRef<'_, A>, request: MapRequest) -> Result<Vpn, SpaceError> {
        let _span = Span::<A>::enter(Func::DoMmap);
        if request.pages == 0 {
            return Err(SpaceError::Inval);
        }
        if request.pages > VmaRange::USER.pages() {
            return Err(SpaceError::NoMemory);
        }
        let locked = request.flags.contains(VmaFlags::LOCKED);
        if let Some((id, _)) = request.file {
            self.file(id).ok_or(SpaceError::Inval)?;
        } else if request.flags.contains(VmaFlags::SHARED) {
            return Err(SpaceError::Inval);
        }
        let range = {
            let mut change = self.change();
            if change.tree.len() > self.config.vmas_max as usize {
                return Err(SpaceError::NoMemory);
            }
            let range = self.place(&change, &request)?;
            let taken = change.first_in(range).is_some();
            if taken && matches!(request.place, Place::Free(_)) {
                return Err(SpaceError::Exists);
            }
            if locked && self.config.memlock_pages == 0 {
                return Err(SpaceError::Perm);
            }
            if locked && change.locked_pages + request.pages > self.config.memlock_pages {
                return Err(SpaceError::Again);
            }
            change.plan_unmap(range, 1)?;
            if taken {
                self.split_ends(on, &mut change, range)?;
                self.unmap(on, &mut change, range);
            }
            change.add(Vma {
                range,
                prot: request.prot,
                flags: request.flags,
                origin: range.start().get(),
                node: None,
                file: request
                    .file
                    .map(|(id, index)| self.map_here(FileMap::new(id, index, range.start()))),
                anon: None,
            });
            range
        };
        let lock_now = locked && !request.flags.contains(VmaFlags::LOCK_ON_FAULT);
        if request.populate || lock_now {
            // A page that cannot be populated is faulted in when it is touched.
            let _ = self.populate(on, range);
        }
        Ok(range.start())
    }
    /// Chooses the range (`get_unmapped_area`).
    pub(super) fn place(
        &self,
        vmas: &crate::space::change::Vmas<A>,
        request: &MapRequest,
    ) -> Result<VmaRange, SpaceError> {
        let at = |page| VmaRange::with_pages(page, request.pages).ok_or(SpaceError::NoMemory);
        match request.place {
            Place::Fixed(page) | Place::Free(page) => {
                let range = at(page)?;
                return if page < MAP_MIN { Err(SpaceError::Perm) } else { Ok(range) };
            }
            Place::Hint(page) => {
                // A hint that is too low is raised (`round_hint_to_min`); 0 is no hint.
                let low = page > Vpn::ZERO && page < MAP_MIN;
                if let Ok(range) = at(if low { MAP_MIN } else { page })
                    && MAP_WINDOW.covers(range)
                    && vmas.first_in(range).is_none()
                {
                    return Ok(range);
                }
            }
            Place::Any => {}
        }
        A::work(Op::VmaFind, 1);
        let gap = GapRequest::new(request.pages).within(MAP_WINDOW);
        // Multiples of huge pages are aligned to huge pages (since Linux 6.13 only those).
        let huge = request.pages.is_multiple_of(HUGE_PAGES);
        let aligned = if huge { vmas.tree.highest_gap(&gap.aligned(HUGE_PAGES)) } else { None };
        let start = aligned.or_else(|| vmas.tree.highest_gap(&gap));
        start.ok_or(SpaceError::NoMemory)
    }
    /// Removes VMAs and pages of `range`, with mmap_lock held for writing. Planned for both ends.
    pub(super) fn unmap(
        &self,
        on: MmRef<'_, A>,
        change: &mut crate::space::change::Change<'_, A>,
        range: VmaRange,
    ) {
        let taken = self.remove_vmas(change, range, Op::VmaEdit);
        self.zap_vmas(on, &taken, range, change.bounds_of(range));
    }
    /// Removes the VMAs of `range` from the tree; splits VMAs at its ends. The work for each is
    /// `op`.
    pub(crate) fn remove_vmas(
        &self,
        change: &mut crate::space::change::Change<'_, A>,
        range: VmaRange,
        op: Op,
    ) -> RemovedVmas {
        let mut taken = RemovedVmas::new();
        let Some(first) = change.tree.first_in(range).map(|entry| entry.range) else {
            return taken;
        };
        let ends_inside = change.ends_inside(first, range);
        if first.start() < range.start() {
            change.cut(range.start());
        }
        if ends_inside {
            change.cut(range.end());
        }
        let mut rest = Some(range);
        while let Some(vma) = rest.and_then(|rest| change.take_first(rest, op)) {
            if vma.is_moved() {
                self.moved.lock().forget(&vma);
            }
            rest = VmaRange::new(vma.range.end(), range.end());
            taken.push(vma);
        }
        taken
    }
    /// Unmaps the pages of VMAs that were removed from the tree, and frees their tables.
    pub(super) fn zap_vmas(
        &self,
        on: MmRef<'_, A>,
        taken: &RemovedVmas,
        range: VmaRange,
        bounds: VmaRange,
    ) {
        self.drain_before_unmap(on);
        let mut gather = Gather::new(&self.table);
        for vma in taken.iter() {
            let done = self.zap(on, &mut gather, vma.range, locked_of(vma));
            debug_assert!(done, "huge pages at the ends were split before");
        }
        let mut sink = Retire(on);
        self.unlink(taken.iter().copied());
        self.table.free_tables(on.paging, &mut gather, &mut sink, range, bounds);
        gather.finish(on.paging, &mut sink);
    }
    /// Unmaps all of `range` (`munmap`). Unmapped parts are no error.
    ///
    /// `NoMemory`: a VMA would be split, and there is no memory or there are too many VMAs.
    pub fn munmap(&self, on: MmRef<'_, A>, range: VmaRange) -> Result<(), SpaceError> {
        let _span = Span::<A>::enter(Func::DoMunmap);
        let mut change = self.change();
        if change.first_in(range).is_none() {
            return Ok(());
        }
        change.plan_unmap(range, 0)?;
        self.split_ends(on, &mut change, range)?;
        let taken = self.remove_vmas(&mut change, range, Op::VmaEdit);
        let bounds = change.bounds_of(range);
        // These VMAs cannot be found any more: other tasks may take mmap_lock for reading.
        let _reading = change.downgrade();
        self.zap_vmas(on, &taken, range, bounds);
        Ok(())
    }
    /// Splits huge pages that extend across an end of `range`, so that unmapping it cannot fail. A
    /// huge page lies in one VMA, so only VMAs that are about to be split have one. Those VMAs are
    /// locked, so no fault makes a new huge page.
    pub(super) fn split_ends(
        &self,
        on: MmRef<'_, A>,
        change: &mut crate::space::change::Change<'_, A>,
        range: VmaRange,
    ) -> Result<(), SpaceError> {
        for end in [range.start(), range.end()] {
            if !end.get().is_multiple_of(HUGE_PAGES) && change.spans(end) {
                change.hold_at(end);
                self.split_huge_page(on, end)?;
            }
        }
        Ok(())
    }
}

/// VMAs that were removed from the tree. One VMA, the common case, needs no allocation.
pub(crate) struct RemovedVmas {
    first: Option<Vma>,
    more: Vec<Vma>,
}

impl RemovedVmas {
    fn new() -> Self {
        Self { first: None, more: Vec::new() }
    }
    fn push(&mut self, vma: Vma) {
        if self.first.is_none() {
            self.first = Some(vma);
        } else {
            self.more.push(vma);
        }
    }
    pub(super) fn iter(&self) -> impl Iterator<Item = &Vma> {
        self.first.iter().chain(&self.more)
    }
}
