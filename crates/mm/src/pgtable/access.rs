//! The hardware's use of page tables, and the memory accesses of programs.

use super::entry::{Pte, PteFlags};
use super::level::Level;
use super::{PageTable, PtRef};
use mmscale_arch::sync::IrqGuard;
use mmscale_arch::{Asid, Machine, Op, PageSize, Pfn, Translation, Vpn};

/// The kind of a memory access.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MemAccess {
    /// A read.
    Read,
    /// A write.
    Write,
}

impl MemAccess {
    /// Returns the flags that the hardware sets in the entry for this access.
    const fn marks(self) -> PteFlags {
        match self {
            Self::Read => PteFlags::ACCESSED,
            Self::Write => PteFlags::ACCESSED.union(PteFlags::DIRTY),
        }
    }
}

/// The reason for a page fault, with the entry that the hardware read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Miss {
    /// The hardware may not use the entry: it is empty, names a page in swap, or is `PROT_NONE`.
    NotPresent(Pte),
    /// A write to a page that is mapped read-only.
    ReadOnly(Pte),
}

impl<A: Machine> PageTable<A> {
    /// Performs an access of a program on this CPU to `page` and calls `use_page` with the frame.
    ///
    /// `use_page` runs with interrupts off and must not wait: no flush that would allow the frame
    /// to be freed can end before it returns. The access first looks in the CPU's TLB, then walks
    /// the tables. On a fault the caller fills the entry and retries.
    #[inline]
    pub fn access<R>(
        &self,
        on: PtRef<'_, A>,
        page: Vpn,
        access: MemAccess,
        use_page: impl FnOnce(Pfn) -> R,
    ) -> Result<R, Miss> {
        let off = IrqGuard::<A>::new();
        // The kernel's translations are valid whatever address space is loaded.
        if self.asid() != Asid::KERNEL {
            on.tlb.load(&off, self.asid());
        }
        if let Some(known) = A::tlb_lookup(self.asid(), page)
            && (access == MemAccess::Read || known.writable && known.dirty)
        {
            A::work(Op::Access, 1);
            return Ok(use_page(known.frame(page)));
        }
        A::work(Op::PageWalk, 1);
        let translation = self.hardware_walk(page, access)?;
        A::tlb_fill(self.asid(), page, translation);
        Ok(use_page(translation.frame(page)))
    }
    /// Walks the tables as the hardware does, and sets the accessed and dirty flags. Takes no
    /// virtual time: where flushes are broadcast, the walk and the TLB fill after it must be one
    /// step.
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
