//! Page faults: an access that the page tables do not allow.
//!
//! A fault holds its VMA's lock for reading, or mmap_lock. It reads the entry without the table's
//! lock, prepares what the page needs, takes the lock, and reads the entry again. If the entry has
//! changed, the fault returns without a change, and the program retries the access.

mod anon;
mod file;
mod huge;
mod populate;
mod remote;
mod swapped;

pub(super) use huge::huge_range;
pub(super) use swapped::{ALONE, SHARED};

use super::zap::PIECE;
use super::{FaultError, KILLED, MmRef, RetryPolicy, Space, Vma, VmaFlags, VmaLockPolicy, Vpn};
use crate::pgtable::{MemAccess, Miss, Pte, PteFlags};
use core::sync::atomic::Ordering::Acquire;
use mmscale_arch::{Atomic, Func, Machine, Op, Pfn, Span};

impl Miss {
    /// The entry as the page-table walk found it.
    const fn entry(self) -> Pte {
        match self {
            Self::NotPresent(pte) | Self::ReadOnly(pte) => pte,
        }
    }
}

/// Action of a fault if another task has the lock of its folio, such as the task that reads it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::space) enum Patience {
    /// It returns, so that the caller can release its lock and wait (`FAULT_FLAG_ALLOW_RETRY`).
    Return,
    /// It sleeps with the caller's lock (`FAULT_FLAG_TRIED`).
    Sleep,
}

/// Outcome of a fault.
#[must_use]
pub(in crate::space) enum Handled {
    /// The program can try its access again.
    Done,
    /// Nothing: this folio is locked. The fault has a reference to it.
    Wait(Pfn),
}

impl<A: Machine> Space<A> {
    /// Accesses `page` as the program on this CPU. Calls `use_page` with the frame, as
    /// [`PageTable::access`](crate::pgtable::PageTable::access) does, after as many faults as
    /// needed.
    pub fn access<R>(
        &self,
        on: MmRef<'_, A>,
        page: Vpn,
        access: MemAccess,
        mut use_page: impl FnMut(Pfn) -> R,
    ) -> Result<R, FaultError> {
        loop {
            match self.table.access(on.paging, page, access, &mut use_page) {
                Ok(result) => return Ok(result),
                Err(miss) => {
                    A::work(Op::FaultEntry, 1);
                    self.fault(on, page, access, miss.entry())?;
                }
            }
        }
    }
    /// Handles a page fault; `seen` is the entry that did not allow the access. A fault that has to
    /// wait for a page releases its lock first, once, and tries again, as [`RetryPolicy`] says.
    fn fault(
        &self,
        on: MmRef<'_, A>,
        page: Vpn,
        access: MemAccess,
        mut seen: Pte,
    ) -> Result<(), FaultError> {
        let mut by_vma = self.config.vma_locks != VmaLockPolicy::None;
        let mut patience = self.patience();
        loop {
            A::work(Op::VmaFind, 1);
            // Pairs with the exchange in `Space::kill` (victim.rs); no other data passes.
            if self.state.load_uncharged(Acquire) & KILLED != 0 {
                return Err(FaultError::Killed);
            }
            let vma = if by_vma { self.lock_vma_now(page) } else { None };
            let vma = vma.filter(|guard| self.is_handled_by_vma(guard.vma(), seen));
            let handled = match vma {
                Some(guard) => self.handle_fault(on, guard.vma(), page, access, seen, patience)?,
                None => {
                    let vmas = self.lock.read();
                    let vma = vmas.at(page).ok_or(FaultError::Segv)?;
                    self.handle_fault(on, &vma, page, access, seen, patience)?
                }
            };
            let Handled::Wait(folio) = handled else { return Ok(()) };
            on.swap.wait_before_retry(on.memory, folio);
            by_vma &= self.config.retry == RetryPolicy::Vma;
            patience = Patience::Sleep;
            seen = self.table.lookup(page).map_or(Pte::NONE, |(pte, _)| pte);
        }
    }
    /// Whether a fault may go on with the lock of its VMA.
    fn is_handled_by_vma(&self, vma: &Vma, seen: Pte) -> bool {
        match self.config.vma_locks {
            VmaLockPolicy::Stock | VmaLockPolicy::Faults => true,
            VmaLockPolicy::Anonymous => vma.file.is_none() && seen.as_swap().is_none(),
            VmaLockPolicy::None => false,
        }
    }
    /// Returns the patience of the first attempt of a fault.
    fn patience(&self) -> Patience {
        match self.config.retry {
            RetryPolicy::Stock | RetryPolicy::Vma => Patience::Return,
            RetryPolicy::Hold => Patience::Sleep,
        }
    }
    /// Handles a fault whose VMA is held by its lock or by mmap_lock (`handle_mm_fault`).
    pub(super) fn handle_fault(
        &self,
        on: MmRef<'_, A>,
        vma: &Vma,
        page: Vpn,
        access: MemAccess,
        seen: Pte,
        patience: Patience,
    ) -> Result<Handled, FaultError> {
        let _span = Span::<A>::enter(Func::HandleMmFault);
        A::work(Op::FaultHandle, 1);
        self.table.note_fault();
        let allowed = match access {
            MemAccess::Read => vma.prot.is_readable(),
            MemAccess::Write => vma.prot.is_writable(),
        };
        if !allowed {
            return Err(FaultError::Segv);
        }
        if let Some(entry) = seen.as_swap() {
            return self.swap_in(on, vma, page, seen, entry, patience);
        }
        if seen.is_none() {
            return self.fill(on, vma, page, access, patience);
        }
        self.handle_present(on, vma, page, access, seen).map(|()| Handled::Done)
    }
    /// Handles a fault on a page that has an entry and is not in swap.
    fn handle_present(
        &self,
        on: MmRef<'_, A>,
        vma: &Vma,
        page: Vpn,
        access: MemAccess,
        seen: Pte,
    ) -> Result<(), FaultError> {
        let denied = seen.is_present() && !seen.flags().contains(PteFlags::WRITE);
        if access == MemAccess::Read || !denied {
            return Ok(());
        }
        if vma.flags.contains(VmaFlags::SHARED) {
            return self.write_shared(on, vma, page);
        }
        if seen.is_huge() {
            return self.huge_write(on, vma, page, seen);
        }
        self.write_protected(on, vma, page, seen)
    }
    /// Handles a fault on an empty entry.
    fn fill(
        &self,
        on: MmRef<'_, A>,
        vma: &Vma,
        page: Vpn,
        access: MemAccess,
        patience: Patience,
    ) -> Result<Handled, FaultError> {
        if let Some(map) = vma.file {
            return self.fill_from_file(on, vma, map, page, access, patience);
        }
        match access {
            MemAccess::Read => self.fill_zero(on, page)?,
            MemAccess::Write if self.fill_huge(on, vma, page)? => {}
            MemAccess::Write => self.fill_anonymous(on, vma, page)?,
        }
        Ok(Handled::Done)
    }
    /// A read fault on anonymous memory: maps the zero page.
    fn fill_zero(&self, on: MmRef<'_, A>, page: Vpn) -> Result<(), FaultError> {
        let mut ptes = match self.table.lock_pte(on.paging, page) {
            Ok(ptes) => ptes,
            Err(why) => return on.table_or_oom(why),
        };
        self.stable()?;
        if ptes.get(page).is_none() {
            ptes.fill(page, Pte::page(on.spaces.zero(), PteFlags::ZERO | PteFlags::ACCESSED));
        }
        Ok(())
    }
    /// A write to a page that is mapped read-only (`do_wp_page`): copies the page, unless this
    /// address space is its only user.
    fn write_protected(
        &self,
        on: MmRef<'_, A>,
        vma: &Vma,
        page: Vpn,
        seen: Pte,
    ) -> Result<(), FaultError> {
        let _span = Span::<A>::enter(Func::DoWpPage);
        if seen.flags().contains(PteFlags::ZERO) {
            let new = self.new_page(on, vma, page)?;
            A::clear_block(new, mmscale_arch::Order::ZERO);
            self.replace(on, vma, page, seen, new);
            return Ok(());
        }
        let Some(pfn) = seen.pfn() else { return Ok(()) };
        let folio;
        {
            let Some(mut ptes) = self.table.find_pte(on.paging, page) else { return Ok(()) };
            let now = ptes.get(page);
            if now.pfn() != Some(pfn) || now.flags().contains(PteFlags::WRITE) {
                return Ok(());
            }
            // The page that the fault has seen may have been part of a huge folio that was freed.
            folio = super::zap::folio_of(pfn, now.flags());
            if self.is_ours(on, folio, now) {
                let marks = PteFlags::WRITE | PteFlags::ACCESSED | PteFlags::DIRTY;
                ptes.update(page, |pte| pte.with(marks));
                return Ok(());
            }
            // Keeps the folio during the copy.
            on.memory.folios.get(folio);
        }
        let new = match self.new_page(on, vma, page) {
            Ok(new) => new,
            Err(why) => {
                on.memory.put(folio);
                return Err(why);
            }
        };
        A::copy_page(pfn, new);
        let replaced = self.replace(on, vma, page, seen, new);
        // If other users have copied it at the same time, its swap slot has no user left.
        on.swap.free_swap_cache(on.memory, folio);
        on.memory.release(&[(folio, 1 + u32::from(replaced))]);
        Ok(())
    }
    /// Whether a write may go to the folio itself, without a copy. Called under the table's lock,
    /// which excludes a fork of this address space.
    fn is_ours(&self, on: MmRef<'_, A>, folio: Pfn, pte: Pte) -> bool {
        use crate::folio::FolioFlags;
        let word = on.memory.folios.word(folio);
        if word.has(FolioFlags::EXCLUSIVE) {
            return true;
        }
        // Pages of a huge folio are not freed one by one; a file's folio belongs to the file.
        if !word.has(FolioFlags::ANON) || pte.flags().contains(PIECE) || word.maps() != 1 {
            return false;
        }
        if word.has(FolioFlags::SWAP_CACHE) && !self.drop_swap_cache(on, folio) {
            return false;
        }
        if !on.memory.is_exclusive(folio, 1) {
            return false;
        }
        self.own(on, folio);
        true
    }
    /// Maps the folio `new` at `page` if the entry still maps what `seen` maps; the mapping takes
    /// over the reference of `new`. Otherwise frees `new` and returns `false`. Removes the old
    /// folio's mapping; the caller drops its reference if this returns `true`.
    fn replace(&self, on: MmRef<'_, A>, vma: &Vma, page: Vpn, seen: Pte, new: Pfn) -> bool {
        let Some(mut ptes) = self.table.find_pte(on.paging, page) else {
            on.memory.put(new);
            return false;
        };
        let now = ptes.get(page);
        let is_other = now.pfn() != seen.pfn() || now.flags().contains(PteFlags::WRITE);
        if is_other {
            drop(ptes);
            on.memory.put(new);
            return false;
        }
        let old = ptes.take(page);
        let one = super::VmaRange::raw(page.get(), page.get() + 1);
        // No CPU may read the old page by this entry once the new page can be written to.
        let extent = crate::tlb::Extent::Range(one, mmscale_arch::PageSize::Base);
        let _ = self.table.flush(on.paging, extent);
        self.map_anonymous(on, vma, &mut ptes, page, new);
        drop(ptes);
        if let Some(pfn) = old.pfn().filter(|_| !old.flags().contains(PteFlags::ZERO)) {
            let folio = super::zap::folio_of(pfn, old.flags());
            self.unmap_folio(on, folio, 1, super::zap::locked_of(vma));
        }
        true
    }
}
