//! Taking the pages out of an address space whose process is dying, by somebody else than the
//! process (`__oom_reap_task_mm`): the out-of-memory reaper, or a caller of process_mrelease.
//!
//! A reaper holds mmap_lock for reading, as the exit does while it takes pages out: both may walk
//! at the same time. The VMAs stay; they are the exit's. As the exit takes mmap_lock for writing
//! before it frees page tables, no table goes under a reaper.

use super::change::Vmas;
use super::mmap::locked_of;
use super::zap::Retire;
use super::{Area, Backing, ExitPolicy, FaultError, SKIP, Space, UNSTABLE, VmaRange};
use crate::arch::{Arch, Atomic, Func, Span};
use crate::table::Gather;
use core::sync::atomic::Ordering::{AcqRel, Acquire};

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

impl<A: Arch> Space<A> {
    /// Takes the pages of private memory out. The process is dying; its threads may still run, and
    /// what they access from now on fails ([`FaultError::Bus`]) unless it is still there.
    ///
    /// That there is nothing left to do is not noted: see [`Space::skip`].
    pub fn reap(&self, on: Backing<'_, A>, how: ReapLock) -> Reaped {
        let vmas = match how {
            ReapLock::Wait => self.lock.read(),
            ReapLock::Try => match self.lock.try_read() {
                Some(vmas) => vmas,
                None => return Reaped::Busy,
            },
        };
        self.reap_locked(on, &vmas)
    }
    /// The same for process_mrelease, which waits for mmap_lock unless its caller is woken and
    /// `over` is true.
    pub fn reap_unless(&self, on: Backing<'_, A>, over: impl Fn() -> bool) -> Reaped {
        match self.lock.read_unless(over) {
            Some(vmas) => self.reap_locked(on, &vmas),
            None => Reaped::Interrupted,
        }
    }
    fn reap_locked(&self, on: Backing<'_, A>, vmas: &Vmas<A>) -> Reaped {
        if self.is_skipped() {
            return Reaped::Skipped;
        }
        let _span = Span::<A>::enter(Func::OomReapTaskMm);
        self.state.fetch_or(UNSTABLE, AcqRel);
        match self.config.exit {
            ExitPolicy::Stock => self.reap_areas(on, vmas.areas(VmaRange::USER)),
            ExitPolicy::Posted => self.reap_areas(on, vmas.areas(VmaRange::USER).rev()),
        }
    }
    /// Each VMA has a gather of its own.
    fn reap_areas(
        &self,
        on: Backing<'_, A>,
        areas: impl Iterator<Item = (Area, VmaRange)>,
    ) -> Reaped {
        let mut result = Reaped::Done;
        for (area, range) in areas {
            let mut gather = Gather::new(&self.table);
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
        if self.state.glance(Acquire) & UNSTABLE == 0 { Ok(()) } else { Err(FaultError::Bus) }
    }
}
