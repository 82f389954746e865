//! What the hardware does with page tables, and what a program's access comes to.

use super::entry::{Pte, PteFlags};
use super::level::Level;
use super::{PageTable, Paging};
use mmscale_arch::sync::IrqGuard;
use mmscale_arch::{Asid, Machine, Op, PageSize, Pfn, Translation, Vpn};

/// How a program uses a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MemAccess {
    /// It reads.
    Read,
    /// It writes.
    Write,
}

impl MemAccess {
    /// What the entry must say for the access to leave no trace there.
    const fn marks(self) -> PteFlags {
        match self {
            Self::Read => PteFlags::ACCESSED,
            Self::Write => PteFlags::ACCESSED.union(PteFlags::DIRTY),
        }
    }
}

/// Why an access faults, and the entry as the hardware found it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Miss {
    /// The hardware may not use the entry: there is none, the page is elsewhere, or hidden.
    NotPresent(Pte),
    /// A write to a page that may only be read.
    ReadOnly(Pte),
}

impl<A: Machine> PageTable<A> {
    /// A program on this CPU uses `page`: `use_page` gets the frame, and runs with interrupts off,
    /// before any flush that would take the frame away can end; it does nothing that waits. First
    /// the CPU's translations are asked, then the hardware reads the tables. A fault is left to
    /// the caller, who fills the entry and tries again.
    #[inline]
    pub fn access<R>(
        &self,
        on: Paging<'_, A>,
        page: Vpn,
        access: MemAccess,
        use_page: impl FnOnce(Pfn) -> R,
    ) -> Result<R, Miss> {
        let off = IrqGuard::<A>::new();
        // The kernel's translations are there whatever is loaded.
        if self.asid() != Asid::KERNEL {
            on.tlb.load(&off, self.asid());
        }
        if let Some(known) = A::tlb_lookup(self.asid(), page)
            && (access == MemAccess::Read || known.writable && known.dirty)
        {
            return Ok(use_page(known.frame(page)));
        }
        A::work(Op::PageWalk, 1);
        let translation = self.hardware_walk(page, access)?;
        A::tlb_fill(self.asid(), page, translation);
        Ok(use_page(translation.frame(page)))
    }
    /// Reads the tables as the hardware does, and marks the entry. No time passes: where flushes
    /// are broadcast, the walk and the fill after it are one step.
    fn hardware_walk(&self, page: Vpn, access: MemAccess) -> Result<Translation, Miss> {
        loop {
            let Some((table, entry, size)) = self.leaf(page) else {
                return Err(Miss::NotPresent(Pte::NONE));
            };
            if !entry.is_present() {
                return Err(Miss::NotPresent(entry));
            }
            let writable = entry.flags().contains(PteFlags::WRITE);
            if access == MemAccess::Write && !writable {
                return Err(Miss::ReadOnly(entry));
            }
            let marked = entry.with(access.marks());
            let index = match size {
                PageSize::Base => Level::Pte.index(page),
                PageSize::Huge => Level::Pmd.index(page),
            };
            if marked != entry
                && A::table_compare_exchange(table, index, entry.word(), marked.word()).is_err()
            {
                continue;
            }
            let dirty = marked.flags().contains(PteFlags::DIRTY);
            return Ok(Translation { pfn: entry.frame(), size, writable, dirty });
        }
    }
}
