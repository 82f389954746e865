//! mprotect.

use crate::folio::FolioFlags;
use crate::pgtable::{Direction, Leaf, Pte, PteFlags};
use crate::space::zap::HUGE_PAGES;
use crate::space::{MmRef, Prot, Space, SpaceError, Vma, VmaFlags, VmaRange, Vpn};
use crate::tlb::Extent;
use mmscale_arch::{Func, Machine, PageSize, Span};

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
            self.change_entries(on, Vma { prot, ..vma.part(part) });
        }
        change.join_at(range.end());
        Ok(())
    }
    /// Applies the protection of `vma` to its entries, and flushes if rights were removed
    /// (`pte_needs_flush`): a CPU whose TLB shows fewer rights walks the tables.
    fn change_entries(&self, on: MmRef<'_, A>, vma: Vma) {
        let mut lost: Option<(Vpn, Vpn)> = None;
        let mut note = |start: Vpn, end: Vpn| {
            let (first, last) = lost.unwrap_or((start, end));
            lost = Some((first.min(start), last.max(end)));
        };
        let new = |pte| self.entry_for(on, pte, &vma);
        for leaf in self.table.leaves(on.paging, vma.range, Direction::Forward) {
            match leaf {
                Leaf::Ptes(mut ptes, part) => {
                    for page in Direction::Forward.pages(part) {
                        let pte = ptes.get(page);
                        if pte.is_mapped() && new(pte) != pte {
                            let old = ptes.update(page, new);
                            if removes_rights(old, new(old)) {
                                note(page, page.offset(1));
                            }
                        }
                    }
                }
                Leaf::Huge(mut pmd, part) => {
                    debug_assert!(part.pages() == HUGE_PAGES, "the ends were split");
                    let page = part.start();
                    if pmd.get(page).is_mapped() {
                        let old = pmd.update(page, new);
                        if removes_rights(old, new(old)) {
                            note(page, part.end());
                        }
                    }
                }
            }
            A::cond_resched();
        }
        if let Some((start, end)) = lost
            && let Some(lost) = VmaRange::new(start, end)
        {
            let _ = self.table.flush(on.paging, Extent::Range(lost, PageSize::Base));
        } else {
            on.paging.tlb.flush_batched_pending(self.asid());
        }
    }
    /// The entry for `pte` in `vma`. Write permission is given to all pages of a shared mapping,
    /// and in a private one to exclusive pages that were written to: other writes fault
    /// (`can_change_pte_writable`).
    fn entry_for(&self, on: MmRef<'_, A>, pte: Pte, vma: &Vma) -> Pte {
        let shown = pte.hidden(!vma.prot.is_readable());
        if !vma.prot.is_writable() {
            return shown.without(PteFlags::WRITE);
        }
        if vma.flags.contains(VmaFlags::SHARED) {
            // The first write to a page of a file on the disk faults.
            return if self.maps_disk(vma) { shown } else { shown.with(PteFlags::WRITE) };
        }
        let flags = pte.flags();
        let dirty = flags.contains(PteFlags::DIRTY) && !flags.contains(PteFlags::ZERO);
        let Some(pfn) = pte.pfn().filter(|_| dirty) else { return shown };
        let word = on.memory.folios.word(crate::space::zap::folio_of(pfn, flags));
        if word.has(FolioFlags::EXCLUSIVE) { shown.with(PteFlags::WRITE) } else { shown }
    }
    /// Returns a copy of the VMA at `page`.
    pub fn vma_at(&self, page: Vpn) -> Option<Vma> {
        self.lock.read().at(page)
    }
}

/// Whether a CPU whose TLB has `old` may do what `new` forbids.
fn removes_rights(old: Pte, new: Pte) -> bool {
    let loses = |flag| old.flags().contains(flag) && !new.flags().contains(flag);
    old.is_present() && (!new.is_present() || loses(PteFlags::WRITE))
}
