//! Copying an address space (`dup_mmap`): every page is shared until one of the two address spaces
//! writes to it.

use crate::folio::FolioFlags;
use crate::memcg::GroupId;
use crate::pgtable::{CopyError, CopyPte, Downgraded, PageTable, Pte, PteFlags};
use crate::space::fault::{ALONE, SHARED};
use crate::space::{MmRef, Space, SpaceError, Vma, VmaFlags, VmaRange};
use alloc::sync::Arc;
use mmscale_arch::{Func, Machine, Span};

impl<A: Machine> Space<A> {
    /// Like [`Space::fork_into`], in the group of this one.
    pub fn fork(&self, on: MmRef<'_, A>) -> Result<Arc<Self>, SpaceError> {
        self.fork_into(on, self.group)
    }
    /// Returns a new address space with the same mappings, whose new pages are charged to `group`
    /// (`CLONE_INTO_CGROUP` if that is not the group of this one). On `NoMemory` or `Interrupted`
    /// there is none, and this one is unchanged, except that the next write to some pages copies or
    /// claims them again.
    ///
    /// Memory locks are not inherited (`fork(2)`, `mlock(2)`).
    pub fn fork_into(&self, on: MmRef<'_, A>, group: GroupId) -> Result<Arc<Self>, SpaceError> {
        let _span = Span::<A>::enter(Func::DupMmap);
        let table = PageTable::with_rss(on.paging, self.config.rss)?;
        let mut change = self.change();
        let child = Arc::new(Self::with(on, table, self.family, group));
        child.set_oom_adjustment(self.oom_adjustment());
        on.spaces.enter(&child);
        let held = child.hold_files_of(self);
        let mut downgraded = Downgraded::default();
        let copied = held.and_then(|()| self.copy_vmas(on, &mut change, &child, &mut downgraded));
        downgraded.flush(on.paging, &self.table);
        drop(change);
        match copied {
            Ok(()) => Ok(child),
            Err(why) => {
                child.exit(on);
                Err(why)
            }
        }
    }
    fn copy_vmas(
        &self,
        on: MmRef<'_, A>,
        change: &mut crate::space::change::Change<'_, A>,
        child: &Self,
        downgraded: &mut Downgraded,
    ) -> Result<(), SpaceError> {
        let mut theirs = child.change();
        let mut next = Some(VmaRange::USER);
        while let Some(rest) = next {
            let Some(vma) = change.first_in(rest) else { break };
            next = VmaRange::new(vma.range.end(), rest.end());
            // No fault of another thread adds pages that are being copied.
            change.hold_at(vma.range.start());
            if vma.flags.contains(VmaFlags::DONT_FORK) {
                continue;
            }
            self.alive()?;
            // The parent's number of VMAs is allowed, even above the limit.
            theirs.plan_for(1, 0)?;
            let unlocked = VmaFlags::LOCKED.union(VmaFlags::LOCK_ON_FAULT);
            let file = vma.file.map(|map| self.map_here(map));
            let copy = Vma { flags: vma.flags - unlocked, anon: None, file, ..vma };
            theirs.add_copy(copy);
            if copy.is_moved() {
                child.moved.lock().note(&copy);
            }
            if !vma.flags.contains(VmaFlags::WIPE_ON_FORK) {
                let anonymous = self.copy_pages(on, child, &vma, downgraded)?;
                if anonymous || vma.anon.is_some() {
                    let linked = self.link_copy(on, &vma).ok_or(SpaceError::NoMemory)?;
                    if vma.anon.is_none() {
                        change.set_anon(vma.range.start(), linked.0);
                    }
                    theirs.set_anon(copy.range.start(), linked.1);
                }
            }
        }
        Ok(())
    }
    /// Copies the pages of a VMA. Returns whether one of them is anonymous memory or swapped out.
    fn copy_pages(
        &self,
        on: MmRef<'_, A>,
        child: &Self,
        vma: &Vma,
        downgraded: &mut Downgraded,
    ) -> Result<bool, SpaceError> {
        let mut anonymous = false;
        let decide = |_, _, pte: Pte| {
            anonymous = anonymous || self.maps_anonymous(on, vma, pte);
            Ok::<CopyPte, SpaceError>(self.share(on, vma, pte))
        };
        let copied = self.table.copy_range(on.paging, &child.table, vma.range, downgraded, decide);
        copied.map(|()| anonymous).map_err(|why| match why {
            CopyError::Table(_) if self.is_killed() => SpaceError::Interrupted,
            CopyError::Table(why) => why.into(),
            CopyError::Entry(why) => why,
        })
    }
    /// Whether an entry of `vma` is of anonymous memory.
    fn maps_anonymous(&self, on: MmRef<'_, A>, vma: &Vma, pte: Pte) -> bool {
        if vma.flags.contains(VmaFlags::SHARED) || pte.flags().contains(PteFlags::ZERO) {
            return false;
        }
        let folio = || pte.pfn().map(|pfn| crate::space::zap::folio_of(pfn, pte.flags()));
        let copied = || folio().is_some_and(|folio| on.is_anonymous(folio));
        vma.file.is_none() || pte.as_swap().is_some() || copied()
    }
    /// Returns the copy of an entry, and takes the references it needs. Called under the table's
    /// lock.
    fn share(&self, on: MmRef<'_, A>, vma: &Vma, pte: Pte) -> CopyPte {
        if let Some(entry) = pte.as_swap() {
            self.share_swap(on, entry);
            return match entry {
                (ALONE, word) => CopyPte::Both(Pte::swap(SHARED, word)),
                _ => CopyPte::Copy(pte),
            };
        }
        let flags = pte.flags();
        let Some(pfn) = pte.pfn().filter(|_| !flags.contains(PteFlags::ZERO)) else {
            return CopyPte::Copy(pte);
        };
        let folio = crate::space::zap::folio_of(pfn, flags);
        on.memory.folios.add_pieces(folio, 1);
        if vma.flags.contains(VmaFlags::SHARED) {
            return CopyPte::Copy(pte);
        }
        on.memory.folios.clear(folio, FolioFlags::EXCLUSIVE);
        CopyPte::Share(pte)
    }
}
