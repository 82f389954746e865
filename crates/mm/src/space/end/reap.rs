//! Unmapping the pages of a dying process from another task (`__oom_reap_task_mm`): by the OOM
//! reaper, or by a caller of process_mrelease.
//!
//! A reaper holds mmap_lock for reading, as the exit does while it unmaps pages: both may walk at
//! the same time. The VMAs stay; only the exit removes them. The exit takes mmap_lock for writing
//! before it frees page tables, so no table is freed under a reaper. (With `claims` a walker frees
//! a table that it has claimed: no other walker uses that table.)

use crate::pgtable::Gather;
use crate::space::change::Vmas;
use crate::space::zap::{Retire, locked_of};
use crate::space::{ExitPolicy, FaultError, MmRef, SKIP, Space, UNSTABLE, Vma, VmaFlags, VmaRange};
use crate::tlb::Leave;
use core::sync::atomic::Ordering::{AcqRel, Acquire};
use mmscale_arch::sync::ReadGuard;
use mmscale_arch::{Atomic, Func, Machine, Span};

/// How a reaper takes mmap_lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReapLock {
    /// Only if it is free: the OOM reaper, which retries later.
    Try,
    /// Waits for it.
    Wait,
}

/// The result of an attempt to reap.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reaped {
    /// All pages that a reaper may unmap are unmapped.
    Done,
    /// Nothing was to be done: the exit has unmapped all pages, or [`Space::skip`] was called.
    Skipped,
    /// mmap_lock was not free: nothing was done.
    Busy,
    /// Some pages could not be unmapped without waiting (EAGAIN).
    Partly,
    /// The caller was killed while it waited for mmap_lock: nothing was done (EINTR).
    Interrupted,
}

/// Whether pages of a VMA may be unmapped while threads of its process may still run.
pub(super) const fn is_reapable(vma: &Vma) -> bool {
    // Pages of a shared mapping may have other users, so unmapping them frees nothing.
    !vma.flags.contains(VmaFlags::SHARED)
}

impl<A: Machine> Space<A> {
    /// Unmaps the pages of private memory. The process is dying, but its threads may still run. An
    /// access to a page that was unmapped fails with [`FaultError::Bus`].
    ///
    /// Does not set `SKIP`: see [`Space::skip`].
    pub fn reap(&self, on: MmRef<'_, A>, how: ReapLock) -> Reaped {
        self.reap_while(on, how, || true)
    }
    /// Like [`Space::reap`], while `more` returns true. `more` is called before each VMA, or before
    /// each page table with `claims`. If it returns false, the current VMA or table is finished
    /// first: [`Reaped::Partly`].
    pub fn reap_while(&self, on: MmRef<'_, A>, how: ReapLock, more: impl Fn() -> bool) -> Reaped {
        match self.lock_to_reap(how) {
            Some(vmas) => self.reap_locked(on, how, vmas, more),
            None => Reaped::Busy,
        }
    }
    /// Like [`Space::reap`], for process_mrelease: waits for mmap_lock until the caller is woken
    /// and `over` returns true.
    pub fn reap_unless(&self, on: MmRef<'_, A>, over: impl Fn() -> bool) -> Reaped {
        match self.lock.read_unless(over) {
            Some(vmas) => self.reap_locked(on, ReapLock::Wait, vmas, || true),
            None => Reaped::Interrupted,
        }
    }
    fn reap_locked<'t>(
        &'t self,
        on: MmRef<'_, A>,
        how: ReapLock,
        vmas: ReadGuard<'t, A, Vmas<A>>,
        more: impl Fn() -> bool,
    ) -> Reaped {
        let reaped = self.reap_pages(on, how, vmas, more);
        // Most CPUs have flushed by now.
        on.leave_limbo(Leave::Passed);
        reaped
    }
    fn reap_pages<'t>(
        &'t self,
        on: MmRef<'_, A>,
        how: ReapLock,
        vmas: ReadGuard<'t, A, Vmas<A>>,
        more: impl Fn() -> bool,
    ) -> Reaped {
        if self.is_skipped() {
            return Reaped::Skipped;
        }
        let _span = Span::<A>::enter(Func::OomReapTaskMm);
        // Pairs with the loads in `stable` and in `Space::change` (mod.rs): see there.
        self.state.fetch_or(UNSTABLE, AcqRel);
        match self.config.exit {
            ExitPolicy::Stock => self.reap_vmas(on, vmas.in_range(VmaRange::USER), more),
            ExitPolicy::Posted => self.reap_vmas(on, vmas.in_range(VmaRange::USER).rev(), more),
            ExitPolicy::Claims => self.reap_claims(on, how, vmas, more),
        }
    }
    pub(super) fn lock_to_reap(&self, how: ReapLock) -> Option<ReadGuard<'_, A, Vmas<A>>> {
        match how {
            ReapLock::Wait => Some(self.lock.read()),
            ReapLock::Try => self.lock.try_read(),
        }
    }
    /// Walks VMAs in the given order, each with its own gather (`tlb_gather_mmu` per VMA).
    fn reap_vmas(
        &self,
        on: MmRef<'_, A>,
        vmas: impl Iterator<Item = (Vma, VmaRange)>,
        more: impl Fn() -> bool,
    ) -> Reaped {
        let mut result = Reaped::Done;
        for (vma, range) in vmas.filter(|(vma, _)| is_reapable(vma)) {
            if !more() {
                return Reaped::Partly;
            }
            let mut gather = Gather::new_dying(&self.table);
            if !self.zap(on, &mut gather, range, locked_of(&vma)) {
                result = Reaped::Partly;
            }
            gather.finish(on.paging, &mut Retire(on));
        }
        result
    }
    /// Marks it as done (`MMF_OOM_SKIP`): reapers return immediately, and the OOM killer neither
    /// chooses nor waits for it. Called when all pages are out, or when the OOM reaper gives up.
    pub fn skip(&self) {
        // Pairs with the loads in `is_skipped`, and in `state` and `due_ns` (victim.rs): the pages
        // are out, or the reaper has given up.
        self.state.fetch_or(SKIP, AcqRel);
    }
    /// Whether [`Space::skip`] was called.
    pub fn is_skipped(&self) -> bool {
        // Pairs with the exchange in `skip`.
        self.state.load(Acquire) & SKIP != 0
    }
    /// Whether a reaper has started: pages may be missing.
    pub fn is_unstable(&self) -> bool {
        // Pairs with the exchange in `reap_pages`. A hint.
        self.state.load(Acquire) & UNSTABLE != 0
    }
    /// Whether a fault may make a page (`check_stable_address_space`). Called with the lock of the
    /// table that gets the entry: if the flag is not seen, the reaper has not locked this table
    /// yet, and unmaps the page later.
    pub(crate) fn stable(&self) -> Result<(), FaultError> {
        // Pairs with the exchange in `reap_pages`, by way of the table's lock.
        if self.state.load_uncharged(Acquire) & UNSTABLE == 0 {
            Ok(())
        } else {
            Err(FaultError::Bus)
        }
    }
}
