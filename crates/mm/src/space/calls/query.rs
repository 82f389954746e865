//! Queries about an address space.

use crate::pgtable::{Direction, Leaf};
use crate::space::{MmRef, Space, SpaceError, Vma, VmaRange, Vpn};
use alloc::vec::Vec;
use mmscale_arch::{Func, Machine, Span};

impl<A: Machine> Space<A> {
    /// Calls `see` for each page of `range` with whether it is in memory (`mincore`).
    ///
    /// `NoMemory`: the range is not fully mapped; `see` was not called.
    pub fn mincore(
        &self,
        on: MmRef<'_, A>,
        range: VmaRange,
        mut see: impl FnMut(bool),
    ) -> Result<(), SpaceError> {
        let _span = Span::<A>::enter(Func::DoMincore);
        let vmas = self.lock.read();
        if !vmas.covers(range) {
            return Err(SpaceError::NoMemory);
        }
        // A page without an entry may be in the page cache of a file.
        let files = vmas.in_range(range).any(|(vma, _)| vma.file.is_some());
        let cached =
            |page| files && vmas.at(page).is_some_and(|vma| self.is_in_file(on, &vma, page));
        let mut at = range.start();
        for leaf in self.table.leaves(on.paging, range, Direction::Forward) {
            let part = leaf.range();
            (at.get()..part.start().get()).for_each(|page| see(cached(Vpn::new(page))));
            at = part.end();
            match leaf {
                Leaf::Ptes(ptes, part) => {
                    for page in Direction::Forward.pages(part) {
                        let pte = ptes.get(page);
                        let swapped = || pte.as_swap().is_some_and(|it| self.is_cached(on, it));
                        see(pte.is_mapped() || swapped() || pte.is_none() && cached(page));
                    }
                }
                Leaf::Huge(_, part) => (0..part.pages()).for_each(|_| see(true)),
            }
        }
        (at.get()..range.end().get()).for_each(|page| see(cached(Vpn::new(page))));
        Ok(())
    }
    /// The VMAs, in order (`/proc/PID/maps`).
    pub fn vmas(&self) -> Vec<Vma> {
        self.lock.read().in_range(VmaRange::USER).map(|(vma, _)| vma).collect()
    }
    /// The pages of all VMAs (`total_vm`), and of locked VMAs (`locked_vm`).
    pub fn pages(&self) -> (u64, u64) {
        let vmas = self.lock.read();
        (vmas.pages, vmas.locked_pages)
    }
}
