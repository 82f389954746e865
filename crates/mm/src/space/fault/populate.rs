//! Faulting pages in before they are touched (`mm_populate`).

use super::{Handled, Patience};
use crate::pgtable::{MemAccess, Pte, PteFlags};
use crate::space::change::Vmas;
use crate::space::{FaultError, MmRef, Space, SpaceError, Vma, VmaFlags, VmaRange, Vpn};
use mmscale_arch::{Func, Machine, PageSize, Pfn, Span};

/// Pages between two calls of `cond_resched`.
const RESCHED_EVERY: u64 = 256;

/// Pages that are being faulted in.
struct Populating {
    /// The first page that is not there yet.
    at: Vpn,
    /// The end of the range.
    end: Vpn,
    /// That of the next fault.
    patience: Patience,
}

impl<A: Machine> Space<A> {
    /// Faults in the pages of `range`, with the access that each VMA allows, and drains this CPU's
    /// batches after each VMA, as Linux does. Stops at a hole or at a VMA without access.
    pub(crate) fn populate(&self, on: MmRef<'_, A>, range: VmaRange) -> Result<(), SpaceError> {
        let access = |vma: &Vma| {
            let own = vma.prot.is_writable() && !vma.flags.contains(VmaFlags::SHARED);
            let access = if own { MemAccess::Write } else { MemAccess::Read };
            (!vma.flags.contains(VmaFlags::LOCK_ON_FAULT)).then_some(access)
        };
        self.populate_range(on, range, access, SpaceError::from)
    }
    /// `MADV_POPULATE_READ` and `MADV_POPULATE_WRITE`: faults in all of `range`. Stops at a hole or
    /// at a VMA that does not allow the access; the pages before it stay.
    pub(crate) fn populate_for(
        &self,
        on: MmRef<'_, A>,
        range: VmaRange,
        access: MemAccess,
    ) -> Result<(), SpaceError> {
        let why = |why| match why {
            // According to the manual page, this means that the VMA does not allow the access.
            FaultError::Segv => SpaceError::Inval,
            why => why.into(),
        };
        self.populate_range(on, range, |_| Some(access), why)
    }
    /// Faults in the pages of `range`, with the access that `access` returns for each VMA, which is
    /// skipped if there is none. Releases mmap_lock while it waits for a page, as faults do.
    fn populate_range(
        &self,
        on: MmRef<'_, A>,
        range: VmaRange,
        access: impl Fn(&Vma) -> Option<MemAccess>,
        why: impl Fn(FaultError) -> SpaceError,
    ) -> Result<(), SpaceError> {
        let _span = Span::<A>::enter(Func::MmPopulate);
        let patience = self.patience();
        let mut pages = Populating { at: range.start(), end: range.end(), patience };
        loop {
            let vmas = self.lock.read();
            let waits = self.populate_vmas(on, &vmas, &mut pages, &access, &why)?;
            drop(vmas);
            let Some(folio) = waits else { break };
            on.swap.wait_before_retry(on.memory, folio);
            pages.patience = Patience::Sleep;
        }
        if pages.at == pages.end { Ok(()) } else { Err(SpaceError::NoMemory) }
    }
    /// Faults in pages until one is being read, whose folio it returns with a reference.
    fn populate_vmas(
        &self,
        on: MmRef<'_, A>,
        vmas: &Vmas<A>,
        pages: &mut Populating,
        access: &impl Fn(&Vma) -> Option<MemAccess>,
        why: &impl Fn(FaultError) -> SpaceError,
    ) -> Result<Option<Pfn>, SpaceError> {
        let rest = VmaRange::raw(pages.at.get(), pages.end.get());
        for (vma, part) in vmas.in_range(rest) {
            if part.start() != pages.at {
                return Err(SpaceError::NoMemory);
            }
            let Some(access) = access(&vma) else {
                pages.at = part.end();
                continue;
            };
            let done = self.populate_vma(on, &vma, pages, part.end(), access);
            on.memory.blanket_drain();
            if let Handled::Wait(folio) = done.map_err(why)? {
                return Ok(Some(folio));
            }
            pages.at = part.end();
            self.alive()?;
        }
        Ok(None)
    }
    /// Faults in pages of one VMA; stops when the process is killed.
    fn populate_vma(
        &self,
        on: MmRef<'_, A>,
        vma: &Vma,
        pages: &mut Populating,
        end: Vpn,
        access: MemAccess,
    ) -> Result<Handled, FaultError> {
        while pages.at < end {
            let page = pages.at;
            let (seen, size) = self.table.lookup(page).unwrap_or((Pte::NONE, PageSize::Base));
            let there = match access {
                MemAccess::Read => seen.is_present(),
                MemAccess::Write => seen.is_present() && seen.flags().contains(PteFlags::WRITE),
            };
            if !there {
                // A pending signal stops it before the first page.
                if self.is_killed() {
                    return Ok(Handled::Done);
                }
                let handled = self.handle_fault(on, vma, page, access, seen, pages.patience)?;
                if let Handled::Wait(_) = handled {
                    return Ok(handled);
                }
                pages.patience = self.patience();
                continue;
            }
            pages.at = match size {
                PageSize::Base => page.offset(1),
                PageSize::Huge => super::huge::huge_range(page).end(),
            };
            if pages.at.get().is_multiple_of(RESCHED_EVERY) {
                A::cond_resched();
            }
        }
        Ok(Handled::Done)
    }
}
