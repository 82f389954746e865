//! mprotect.

use super::zap::HUGE_PAGES;
use super::{MmRef, Prot, Space, SpaceError, Vma, VmaRange, Vpn};
use crate::folio::FolioFlags;
use crate::pgtable::{Direction, Leaf, Pte, PteFlags};
use crate::tlb::Extent;
use mmscale_arch::{Func, Machine, PageSize, Span, planted};

impl<A: Machine> Space<A> {
    /// Changes the protection of `range` (`mprotect`).
    ///
    /// `NoMemory`: the range is not fully mapped (VMAs before the hole are changed, as in Linux),
    /// or there is no memory to split a VMA.
    pub fn mprotect(
        &self,
        on: MmRef<'_, A>,
        range: VmaRange,
        prot: Prot,
    ) -> Result<(), SpaceError> {
        let _span = Span::<A>::enter(Func::ChangeProtection);
        let mut change = self.change();
        let mut at = range.start();
        change.at(at).ok_or(SpaceError::NoMemory)?;
        if let Some(run) = change.first_run(range) {
            change.plan_alter(run, |vma| vma.prot = prot)?;
        }
        self.split_ends(on, &mut change, range)?;
        while let Some(rest) = VmaRange::new(at, range.end()) {
            let vma = change.at(at).ok_or(SpaceError::NoMemory)?;
            let Some(part) = vma.range.intersection(rest) else { break };
            at = part.end();
            if vma.prot == prot {
                continue;
            }
            change.cut(part.start());
            change.cut(part.end());
            change.alter(part.start(), |vma| vma.prot = prot);
            self.change_entries(on, part, prot);
        }
        change.join_at(range.end());
        Ok(())
    }
    /// Applies `prot` to the entries of `range`, and flushes if rights were removed.
    fn change_entries(&self, on: MmRef<'_, A>, range: VmaRange, prot: Prot) {
        let mut lost: Option<(Vpn, Vpn)> = None;
        let mut note = |start: Vpn, end: Vpn| {
            let (first, last) = lost.unwrap_or((start, end));
            lost = Some((first.min(start), last.max(end)));
        };
        for leaf in self.table.leaves(on.paging, range, Direction::Forward) {
            match leaf {
                Leaf::Ptes(mut ptes, part) => {
                    for page in Direction::Forward.pages(part) {
                        let pte = ptes.get(page);
                        if pte.is_mapped() && self.entry_for(on, pte, prot) != pte {
                            let old = ptes.update(page, |pte| self.entry_for(on, pte, prot));
                            if old.is_present() {
                                note(page, page.offset(1));
                            }
                        }
                    }
                }
                Leaf::Huge(mut pmd, part) => {
                    debug_assert!(part.pages() == HUGE_PAGES, "the ends were split");
                    let page = part.start();
                    if pmd.get(page).is_mapped() {
                        pmd.update(page, |pte| self.entry_for(on, pte, prot));
                        note(page, part.end());
                    }
                }
            }
            A::cond_resched();
        }
        if let Some((start, end)) = lost
            && let Some(lost) = VmaRange::new(start, end)
        {
            if planted!(ProtectUnflushed) {
                return;
            }
            let _ = self.table.flush(on.paging, Extent::Range(lost, PageSize::Base));
        } else {
            on.paging.tlb.flush_batched_pending(self.asid());
        }
    }
    /// The entry for `pte` under `prot`. Write permission is given only to exclusive pages that
    /// were written to: other writes fault.
    fn entry_for(&self, on: MmRef<'_, A>, pte: Pte, prot: Prot) -> Pte {
        let shown = pte.hidden(!prot.is_readable());
        if !prot.is_writable() {
            return shown.without(PteFlags::WRITE);
        }
        let flags = pte.flags();
        let dirty = flags.contains(PteFlags::DIRTY) && !flags.contains(PteFlags::ZERO);
        let Some(pfn) = pte.pfn().filter(|_| dirty) else { return shown };
        let word = on.memory.folios.word(super::zap::folio_of(pfn, flags));
        if word.has(FolioFlags::EXCLUSIVE) { shown.with(PteFlags::WRITE) } else { shown }
    }
    /// Returns a copy of the VMA at `page`.
    pub fn vma_at(&self, page: Vpn) -> Option<Vma> {
        self.lock.read().at(page)
    }
}
