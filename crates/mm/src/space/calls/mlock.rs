//! mlock and munlock.

use crate::pgtable::{Direction, Leaf, PteFlags};
use crate::space::zap::folio_of;
use crate::space::{MmRef, Space, SpaceError, VmaFlags, VmaRange};
use mmscale_arch::{Func, Machine, Span};

/// The pages that mlock locks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LockWhat {
    /// All pages of the range, now (`mlock`).
    Everything,
    /// Present pages now, and others when they are touched (`MLOCK_ONFAULT`).
    OnFault,
}

impl<A: Machine> Space<A> {
    /// Locks `range` in memory (`mlock`).
    ///
    /// `Perm`: the process may not lock memory. `NoMemory`: the limit on locked pages would be
    /// exceeded, the range is not fully mapped, or some of its pages allow no access. `Again`:
    /// there was no memory for all pages.
    pub fn mlock(
        &self,
        on: MmRef<'_, A>,
        range: VmaRange,
        what: LockWhat,
    ) -> Result<(), SpaceError> {
        let _span = Span::<A>::enter(Func::DoMlock);
        if self.config.memlock_pages == 0 {
            return Err(SpaceError::Perm);
        }
        let on_fault = VmaFlags::LOCK_ON_FAULT;
        let set = match what {
            LockWhat::Everything => VmaFlags::LOCKED,
            LockWhat::OnFault => VmaFlags::LOCKED.union(on_fault),
        };
        self.set_locked(on, range, set)?;
        if what == LockWhat::OnFault {
            return Ok(());
        }
        self.populate(on, range).map_err(|why| match why {
            SpaceError::NoMemory => SpaceError::Again,
            SpaceError::Fault => SpaceError::NoMemory,
            why => why,
        })
    }
    /// Unlocks `range` (`munlock`).
    ///
    /// `NoMemory`: the range is not fully mapped, or a VMA cannot be split.
    pub fn munlock(&self, on: MmRef<'_, A>, range: VmaRange) -> Result<(), SpaceError> {
        let _span = Span::<A>::enter(Func::DoMlock);
        self.set_locked(on, range, VmaFlags::empty())
    }
    fn set_locked(
        &self,
        on: MmRef<'_, A>,
        range: VmaRange,
        set: VmaFlags,
    ) -> Result<(), SpaceError> {
        let any = VmaFlags::LOCKED.union(VmaFlags::LOCK_ON_FAULT);
        let mut change = self.change();
        if !set.is_empty() {
            let locked = change.in_range(range).filter(|(vma, _)| vma.flags.intersects(any));
            let already: u64 = locked.map(|(_, part)| part.pages()).sum();
            if change.locked_pages + range.pages() - already > self.config.memlock_pages {
                return Err(SpaceError::NoMemory);
            }
        }
        if let Some(run) = change.first_run(range) {
            change.plan_alter(run, |vma| vma.flags = (vma.flags - any) | set)?;
        }
        self.split_ends(on, &mut change, range)?;
        let mut at = range.start();
        while let Some(rest) = VmaRange::new(at, range.end()) {
            let vma = change.at(at).ok_or(SpaceError::NoMemory)?;
            let Some(part) = vma.range.intersection(rest) else { break };
            at = part.end();
            let flags = (vma.flags - any) | set;
            if flags == vma.flags {
                continue;
            }
            change.cut(part.start());
            change.cut(part.end());
            change.alter(part.start(), |vma| vma.flags = flags);
            if vma.flags.contains(VmaFlags::LOCKED) != flags.contains(VmaFlags::LOCKED) {
                self.lock_folios(on, part, flags.contains(VmaFlags::LOCKED));
            }
        }
        change.join_at(range.end());
        Ok(())
    }
    /// Locks or unlocks the present pages (`mlock_vma_pages_range`).
    fn lock_folios(&self, on: MmRef<'_, A>, range: VmaRange, lock: bool) {
        on.memory.blanket_drain();
        let set = |folio| {
            // Folios of files stay in memory anyway.
            if !on.is_anonymous(folio) {
                return;
            }
            if lock {
                on.memory.mlock(folio);
            } else {
                on.memory.munlock(folio);
            }
        };
        for leaf in self.table.leaves(on.paging, range, Direction::Forward) {
            match leaf {
                Leaf::Ptes(ptes, part) => {
                    for page in Direction::Forward.pages(part) {
                        let pte = ptes.get(page);
                        let flags = pte.flags();
                        if let Some(pfn) = pte.pfn().filter(|_| !flags.contains(PteFlags::ZERO)) {
                            set(folio_of(pfn, flags));
                        }
                    }
                }
                Leaf::Huge(pmd, part) => {
                    pmd.get(part.start()).pfn().into_iter().for_each(set);
                }
            }
            A::cond_resched();
        }
    }
}
