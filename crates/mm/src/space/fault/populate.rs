//! Faulting pages in before they are touched (`mm_populate`).

use crate::pgtable::{MemAccess, Pte, PteFlags};
use crate::space::{FaultError, MmRef, Space, SpaceError, Vma, VmaFlags, VmaRange};
use mmscale_arch::{Func, Machine, PageSize, Span};

/// Pages between two calls of `cond_resched`.
const RESCHED_EVERY: u64 = 256;

impl<A: Machine> Space<A> {
    /// Faults in the pages of `range`, with the access that each VMA allows, and drains this CPU's
    /// batches after each VMA, as Linux does. Stops at a hole or at a VMA without access.
    pub(crate) fn populate(&self, on: MmRef<'_, A>, range: VmaRange) -> Result<(), SpaceError> {
        let _span = Span::<A>::enter(Func::MmPopulate);
        let vmas = self.lock.read();
        let mut at = range.start();
        for (vma, part) in vmas.in_range(range) {
            if part.start() != at {
                return Err(SpaceError::NoMemory);
            }
            at = part.end();
            if vma.flags.contains(VmaFlags::LOCK_ON_FAULT) {
                continue;
            }
            let own = vma.prot.is_writable() && !vma.flags.contains(VmaFlags::SHARED);
            let access = if own { MemAccess::Write } else { MemAccess::Read };
            let done = self.populate_vma(on, &vma, part, access);
            on.memory.blanket_drain();
            done.map_err(SpaceError::from)?;
            self.alive()?;
        }
        if at == range.end() { Ok(()) } else { Err(SpaceError::NoMemory) }
    }
    /// `MADV_POPULATE_READ` and `MADV_POPULATE_WRITE`: faults in all of `range`. Stops at a hole or
    /// at a VMA that does not allow the access; the pages before it stay.
    pub(crate) fn populate_for(
        &self,
        on: MmRef<'_, A>,
        range: VmaRange,
        access: MemAccess,
    ) -> Result<(), SpaceError> {
        let _span = Span::<A>::enter(Func::MmPopulate);
        let vmas = self.lock.read();
        let mut at = range.start();
        for (vma, part) in vmas.in_range(range) {
            if part.start() != at {
                return Err(SpaceError::NoMemory);
            }
            at = part.end();
            let done = self.populate_vma(on, &vma, part, access);
            on.memory.blanket_drain();
            done.map_err(|why| match why {
                // According to the manual page, this means that the VMA does not allow the access.
                FaultError::Segv => SpaceError::Inval,
                why => why.into(),
            })?;
            self.alive()?;
        }
        if at == range.end() { Ok(()) } else { Err(SpaceError::NoMemory) }
    }
    /// Faults in pages of one VMA; stops when the process is killed.
    fn populate_vma(
        &self,
        on: MmRef<'_, A>,
        vma: &Vma,
        part: VmaRange,
        access: MemAccess,
    ) -> Result<(), FaultError> {
        let (mut page, end) = (part.start(), part.end());
        while page < end {
            let (seen, size) = self.table.lookup(page).unwrap_or((Pte::NONE, PageSize::Base));
            let there = match access {
                MemAccess::Read => seen.is_present(),
                MemAccess::Write => seen.is_present() && seen.flags().contains(PteFlags::WRITE),
            };
            if !there {
                // A pending signal stops it before the first page.
                if self.is_killed() {
                    return Ok(());
                }
                self.handle_fault(on, vma, page, access, seen)?;
                continue;
            }
            page = match size {
                PageSize::Base => page.offset(1),
                PageSize::Huge => super::huge::huge_range(page).end(),
            };
            if page.get() % RESCHED_EVERY == 0 {
                A::cond_resched();
            }
        }
        Ok(())
    }
}
