//! madvise.

use crate::folio::FolioFlags;
use crate::pgtable::{Direction, Gather, Leaf, MemAccess, PteFlags, PteTable};
use crate::space::zap::{HUGE_PAGES, Retire, folio_of, locked_of};
use crate::space::{MmRef, Space, SpaceError, Vma, VmaFlags, VmaLockPolicy, VmaRange};
use mmscale_arch::{Func, Machine, PageSize, Span};

/// Advice of a program about its pages.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Advice {
    /// Unmap them; the next read gets zeros (`MADV_DONTNEED`).
    DontNeed,
    /// They may be freed unless they are written to before (`MADV_FREE`).
    Free,
    /// They were not used recently (`MADV_COLD`).
    Cold,
    /// Write them to swap (`MADV_PAGEOUT`).
    PageOut,
    /// Fault them in for reading (`MADV_POPULATE_READ`).
    PopulateRead,
    /// Fault them in for writing (`MADV_POPULATE_WRITE`).
    PopulateWrite,
    /// Read them from swap (`MADV_WILLNEED`).
    WillNeed,
    /// Make them huge pages (`MADV_COLLAPSE`).
    Collapse,
    /// They may be huge pages (`MADV_HUGEPAGE`).
    HugePage,
    /// They may not be huge pages (`MADV_NOHUGEPAGE`).
    NoHugePage,
    /// fork does not copy them (`MADV_DONTFORK`).
    DontFork,
    /// fork copies them (`MADV_DOFORK`).
    DoFork,
    /// The child of a fork gets zeros (`MADV_WIPEONFORK`).
    WipeOnFork,
    /// The child of a fork gets the parent's content (`MADV_KEEPONFORK`).
    KeepOnFork,
    /// They are read in no particular order (`MADV_NORMAL`).
    Normal,
    /// They are read in random order (`MADV_RANDOM`).
    Random,
    /// They are read in ascending order (`MADV_SEQUENTIAL`).
    Sequential,
    /// Those with equal content may be merged (`MADV_MERGEABLE`).
    Mergeable,
    /// They may not be merged (`MADV_UNMERGEABLE`).
    Unmergeable,
    /// A core dump leaves them out (`MADV_DONTDUMP`).
    DontDump,
    /// A core dump has them (`MADV_DODUMP`).
    DoDump,
}

impl Advice {
    /// The flags that it sets and clears, if that is its only effect.
    const fn flags(self) -> Option<(VmaFlags, VmaFlags)> {
        const NONE: VmaFlags = VmaFlags::empty();
        const RANDOM: VmaFlags = VmaFlags::RANDOM_READ;
        const SEQUENTIAL: VmaFlags = VmaFlags::SEQUENTIAL_READ;
        Some(match self {
            Self::HugePage => (VmaFlags::HUGE, VmaFlags::NO_HUGE),
            Self::NoHugePage => (VmaFlags::NO_HUGE, VmaFlags::HUGE),
            Self::DontFork => (VmaFlags::DONT_FORK, NONE),
            Self::DoFork => (NONE, VmaFlags::DONT_FORK),
            Self::WipeOnFork => (VmaFlags::WIPE_ON_FORK, NONE),
            Self::KeepOnFork => (NONE, VmaFlags::WIPE_ON_FORK),
            Self::Normal => (NONE, RANDOM.union(SEQUENTIAL)),
            Self::Random => (RANDOM, SEQUENTIAL),
            Self::Sequential => (SEQUENTIAL, RANDOM),
            Self::Mergeable => (VmaFlags::MERGEABLE, NONE),
            Self::Unmergeable => (NONE, VmaFlags::MERGEABLE),
            Self::DontDump => (VmaFlags::DONT_DUMP, NONE),
            Self::DoDump => (NONE, VmaFlags::DONT_DUMP),
            _ => return None,
        })
    }
}

impl<A: Machine> Space<A> {
    /// Takes advice for `range` (`madvise`). Holes are skipped, and make it fail at the end.
    ///
    /// `NoMemory`: the range is not fully mapped, or there is no memory. `Inval`: the advice does
    /// not apply to such memory; locked pages are not unmapped. `Fault`, `Again`, `Busy`: for
    /// populating and collapsing, as in the manual page.
    pub fn madvise(
        &self,
        on: MmRef<'_, A>,
        range: VmaRange,
        advice: Advice,
    ) -> Result<(), SpaceError> {
        let _span = Span::<A>::enter(Func::DoMadvise);
        if let Some((set, clear)) = advice.flags() {
            return self.set_flags(on, range, set, clear);
        }
        match advice {
            Advice::PopulateRead => return self.populate_for(on, range, MemAccess::Read),
            Advice::PopulateWrite => return self.populate_for(on, range, MemAccess::Write),
            Advice::Collapse => return self.collapse(on, range),
            _ => {}
        }
        // One VMA, and no long sleep: the VMA's own lock is enough.
        if matches!(advice, Advice::DontNeed | Advice::Free)
            && self.config.vma_locks == VmaLockPolicy::Stock
            && let Some(guard) = self.lock_vma(range.start())
            && guard.vma().range.covers(range)
        {
            return self.advise_vma(on, guard.vma(), range, advice);
        }
        let vmas = self.lock.read();
        let mut mapped = 0;
        for (vma, part) in vmas.in_range(range) {
            mapped += part.pages();
            self.advise_vma(on, &vma, part, advice)?;
        }
        if mapped == range.pages() { Ok(()) } else { Err(SpaceError::NoMemory) }
    }
    fn set_flags(
        &self,
        on: MmRef<'_, A>,
        range: VmaRange,
        set: VmaFlags,
        clear: VmaFlags,
    ) -> Result<(), SpaceError> {
        let mut change = self.change();
        change.plan_alter(range, |vma| vma.flags = advised(vma.flags, set, clear))?;
        self.split_ends(on, &mut change, range)?;
        let mut mapped = 0;
        let mut next = Some(range);
        while let Some(rest) = next {
            let Some(vma) = change.first_in(rest) else { break };
            let Some(part) = vma.range.intersection(rest) else { break };
            next = VmaRange::new(part.end(), range.end());
            mapped += part.pages();
            // Only private anonymous memory is wiped.
            if set.contains(VmaFlags::WIPE_ON_FORK) && vma.file.is_some() {
                return Err(SpaceError::Inval);
            }
            let flags = advised(vma.flags, set, clear);
            if flags != vma.flags {
                change.cut(part.start());
                change.cut(part.end());
                change.alter(part.start(), |vma| vma.flags = flags);
            }
        }
        change.join_at(range.end());
        if mapped == range.pages() { Ok(()) } else { Err(SpaceError::NoMemory) }
    }
    /// Applies advice to a part of one VMA.
    fn advise_vma(
        &self,
        on: MmRef<'_, A>,
        vma: &Vma,
        part: VmaRange,
        advice: Advice,
    ) -> Result<(), SpaceError> {
        if vma.flags.contains(VmaFlags::LOCKED) && advice != Advice::WillNeed {
            return Err(SpaceError::Inval);
        }
        if advice == Advice::Free && vma.file.is_some() {
            return Err(SpaceError::Inval);
        }
        match advice {
            Advice::DontNeed => {
                self.drain_before_unmap(on);
                let mut gather = Gather::new(&self.table);
                let done = self.zap(on, &mut gather, part, locked_of(vma));
                gather.finish(on.paging, &mut Retire(on));
                if done { Ok(()) } else { Err(SpaceError::NoMemory) }
            }
            Advice::Free | Advice::Cold => {
                on.memory.blanket_drain();
                self.cool(on, part, advice)
            }
            Advice::PageOut => {
                on.memory.blanket_drain();
                self.page_out(on, part)
            }
            Advice::WillNeed => self.will_need(on, vma, part),
            _ => Ok(()),
        }
    }
    /// `MADV_FREE` and `MADV_COLD`: makes entries look unused, and moves folios to where they are
    /// reclaimed earlier. Shared pages are skipped.
    fn cool(&self, on: MmRef<'_, A>, part: VmaRange, advice: Advice) -> Result<(), SpaceError> {
        let mut gather = Gather::new(&self.table);
        let mut leaves = self.table.leaves(on.paging, part, Direction::Forward);
        let mut result = Ok(());
        while let Some(leaf) = leaves.next() {
            match leaf {
                Leaf::Ptes(mut ptes, some) => {
                    self.cool_entries(on, &mut gather, &mut ptes, some, advice);
                }
                Leaf::Huge(mut pmd, some) if some.pages() == HUGE_PAGES => {
                    let pte = pmd.get(some.start());
                    if let Some(folio) = pte.pfn()
                        && on.memory.folios.word(folio).maps() == 1
                    {
                        pmd.clear(some.start(), cooled(advice));
                        gather.note(some.start(), PageSize::Huge);
                        advise_folio(on, folio, advice);
                    }
                }
                Leaf::Huge(pmd, some) => {
                    drop(pmd);
                    match self.split_huge_page(on, some.start()) {
                        Ok(()) => leaves.back_to(some.start(), part),
                        Err(why) => result = Err(why),
                    }
                }
            }
            A::cond_resched();
        }
        gather.finish(on.paging, &mut Retire(on));
        result
    }
    fn cool_entries(
        &self,
        on: MmRef<'_, A>,
        gather: &mut Gather<'_, A>,
        ptes: &mut PteTable<'_, A>,
        part: VmaRange,
        advice: Advice,
    ) {
        for page in Direction::Forward.pages(part) {
            let pte = ptes.get(page);
            if let Some(entry) = pte.as_swap() {
                if advice == Advice::Free {
                    ptes.take(page);
                    self.forget_swap(on, entry);
                }
                continue;
            }
            let flags = pte.flags();
            let Some(pfn) = pte.pfn().filter(|_| !flags.contains(PteFlags::ZERO)) else {
                continue;
            };
            let folio = folio_of(pfn, flags);
            let word = on.memory.folios.word(folio);
            // An access to one page of a huge folio, or by one user of a file, says nothing about
            // the rest.
            if word.maps() != 1 || !word.has(FolioFlags::ANON) {
                continue;
            }
            if advice == Advice::Free
                && word.has(FolioFlags::SWAP_CACHE)
                && !self.drop_swap_cache(on, folio)
            {
                continue;
            }
            let old = ptes.clear(page, cooled(advice));
            if old.is_present() && old.flags().intersects(cooled(advice)) {
                gather.note(page, PageSize::Base);
            }
            advise_folio(on, folio, advice);
        }
    }
}

/// The flags of a VMA after the advice. Pages of a file that processes share are never merged.
fn advised(flags: VmaFlags, set: VmaFlags, clear: VmaFlags) -> VmaFlags {
    let refused =
        if flags.contains(VmaFlags::SHARED) { VmaFlags::MERGEABLE } else { VmaFlags::empty() };
    (flags - clear) | (set - refused)
}

/// The entry flags that the advice clears.
const fn cooled(advice: Advice) -> PteFlags {
    match advice {
        Advice::Free => PteFlags::ACCESSED.union(PteFlags::DIRTY),
        _ => PteFlags::ACCESSED,
    }
}

fn advise_folio<A: Machine>(on: MmRef<'_, A>, folio: mmscale_arch::Pfn, advice: Advice) {
    if advice == Advice::Free {
        on.memory.folios.clear(folio, FolioFlags::DIRTY);
        on.memory.lazyfree(folio);
    } else {
        on.memory.deactivate(folio);
    }
}
