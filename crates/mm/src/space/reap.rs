//! Taking the pages out of an address space whose process is dying, by somebody else than the
//! process (`__oom_reap_task_mm`): the out-of-memory reaper, or a caller of process_mrelease.
//!
//! A reaper holds mmap_lock for reading, as the exit does while it takes pages out: both may walk
//! at the same time. The VMAs stay; they are the exit's. As the exit takes mmap_lock for writing
//! before it frees page tables, no table goes under a reaper.

use super::change::Vmas;
use super::mmap::locked_of;
use super::zap::Retire;
use super::{Area, AreaFlags, Backing, ExitPolicy, FaultError, SKIP, Space, UNSTABLE, VmaRange};
use crate::table::Gather;
use crate::tlb::Leave;
use core::sync::atomic::Ordering::{AcqRel, Acquire};
use mmscale_arch::sync::ReadGuard;
use mmscale_arch::{Atomic, Func, Machine, Span, planted};

/// How a reaper gets mmap_lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReapLock {
    /// If it need not wait for it: the out-of-memory reaper, which tries again later.
    Try,
    /// It waits.
    Wait,
}

/// What became of an attempt to reap.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reaped {
    /// All pages that a reaper may take are out.
    Done,
    /// There was nothing to do: the exit has taken all pages out, or [`Space::skip`] was said.
    Skipped,
    /// mmap_lock was not to be had without a wait: nothing was done.
    Busy,
    /// Some pages could not be taken out without a wait (EAGAIN).
    Partly,
    /// The caller was killed while it waited for mmap_lock: nothing was done (EINTR).
    Interrupted,
}

/// Whether pages of a VMA may be taken out while threads of its process may still run.
pub(super) const fn is_reapable(area: &Area) -> bool {
    // Others may have the pages of a shared mapping, and nothing would come back.
    !area.flags.contains(AreaFlags::SHARED)
}

impl<A: Machine> Space<A> {
    /// Takes the pages of private memory out. The process is dying; its threads may still run, and
    /// what they access from now on fails ([`FaultError::Bus`]) unless it is still there.
    ///
    /// That there is nothing left to do is not noted: see [`Space::skip`].
    pub fn reap(&self, on: Backing<'_, A>, how: ReapLock) -> Reaped {
        self.reap_while(on, how, || true)
    }
    /// The same for as long as `more` says so, asked before each VMA, or before each page table
    /// where they are claimed. Who gives up leaves nothing half done: [`Reaped::Partly`].
    pub fn reap_while(&self, on: Backing<'_, A>, how: ReapLock, more: impl Fn() -> bool) -> Reaped {
        match self.lock_to_reap(how) {
            Some(vmas) => self.reap_locked(on, how, vmas, more),
            None => Reaped::Busy,
        }
    }
    /// The same for process_mrelease, which waits for mmap_lock unless its caller is woken and
    /// `over` is true.
    pub fn reap_unless(&self, on: Backing<'_, A>, over: impl Fn() -> bool) -> Reaped {
        match self.lock.read_unless(over) {
            Some(vmas) => self.reap_locked(on, ReapLock::Wait, vmas, || true),
            None => Reaped::Interrupted,
        }
    }
    fn reap_locked<'t>(
        &'t self,
        on: Backing<'_, A>,
        how: ReapLock,
        vmas: ReadGuard<'t, A, Vmas<A>>,
        more: impl Fn() -> bool,
    ) -> Reaped {
        let reaped = self.reap_pages(on, how, vmas, more);
        // By now most CPUs have answered.
        on.leave_limbo(Leave::Passed);
        reaped
    }
    fn reap_pages<'t>(
        &'t self,
        on: Backing<'_, A>,
        how: ReapLock,
        vmas: ReadGuard<'t, A, Vmas<A>>,
        more: impl Fn() -> bool,
    ) -> Reaped {
        if self.is_skipped() {
            return Reaped::Skipped;
        }
        let _span = Span::<A>::enter(Func::OomReapTaskMm);
        self.state.fetch_or(UNSTABLE, AcqRel);
        match self.config.exit {
            ExitPolicy::Stock => self.reap_areas(on, vmas.areas(VmaRange::USER), more),
            ExitPolicy::Posted => self.reap_areas(on, vmas.areas(VmaRange::USER).rev(), more),
            ExitPolicy::Claims => self.reap_claims(on, how, vmas, more),
        }
    }
    pub(super) fn lock_to_reap(&self, how: ReapLock) -> Option<ReadGuard<'_, A, Vmas<A>>> {
        match how {
            ReapLock::Wait => Some(self.lock.read()),
            ReapLock::Try => self.lock.try_read(),
        }
    }
    /// Each VMA has a gather of its own.
    fn reap_areas(
        &self,
        on: Backing<'_, A>,
        areas: impl Iterator<Item = (Area, VmaRange)>,
        more: impl Fn() -> bool,
    ) -> Reaped {
        let mut result = Reaped::Done;
        for (area, range) in areas.filter(|(area, _)| is_reapable(area)) {
            if !more() {
                return Reaped::Partly;
            }
            let mut gather = Gather::new_dying(&self.table);
            if !self.zap(on, &mut gather, range, locked_of(&area)) {
                result = Reaped::Partly;
            }
            gather.finish(on.paging, &mut Retire(on));
        }
        result
    }
    /// Nobody need reap it any more, or choose its process as a victim: it was reaped, or whoever
    /// tried has given up.
    pub fn skip(&self) {
        self.state.fetch_or(SKIP, AcqRel);
    }
    /// Whether [`Space::skip`] was said, or all pages are out.
    pub fn is_skipped(&self) -> bool {
        self.state.load(Acquire) & SKIP != 0
    }
    /// Whether a reaper has begun: pages are missing.
    pub fn is_unstable(&self) -> bool {
        self.state.load(Acquire) & UNSTABLE != 0
    }
    /// Whether new pages may be made (`check_stable_address_space`). Under the lock of the table
    /// that gets the entry: a reaper that has not been there yet takes the page out again.
    pub(super) fn stable(&self) -> Result<(), FaultError> {
        if self.state.load_uncharged(Acquire) & UNSTABLE == 0 || planted!(ReapedRefilled) {
            Ok(())
        } else {
            Err(FaultError::Bus)
        }
    }
}
