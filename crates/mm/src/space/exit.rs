//! The end of an address space (`exit_mmap`).

use super::change::Change;
use super::mmap::locked_of;
use super::zap::Retire;
use super::{Backing, EXITING, ExitPolicy, Space, VmaRange};
use crate::table::Gather;
use crate::tlb::Forgetting;
use core::sync::atomic::Ordering::AcqRel;
use mmscale_arch::{Atomic, ExitEvent, Func, Machine, Span, Trace};

impl<A: Machine> Space<A> {
    /// Gives everything back. The caller was the last to use the address space; nobody will again,
    /// but for those who [reap](Space::reap) it: what they have taken out they give back
    /// themselves, perhaps after this has returned.
    ///
    /// Pages go first, lowest first, with mmap_lock held for reading and the VMAs still there; then
    /// VMAs and tables, with it held for writing: that waits for whoever is still reaping, and who
    /// comes later finds nothing.
    pub fn exit(&self, on: Backing<'_, A>) {
        let _span = Span::<A>::enter(Func::ExitMmap);
        // First the count: who has read it before, and sees no mark later, sees another count.
        on.spaces.begin_exit();
        self.state.fetch_or(EXITING, AcqRel);
        on.memory.blanket_drain();
        let mut gather = Gather::new_whole(&self.table);
        match self.config.exit {
            ExitPolicy::Stock | ExitPolicy::Posted => self.zap_all(on, &mut gather),
            ExitPolicy::Claims => {
                gather.widen();
                self.share_out(on, &mut gather);
            }
        }
        self.skip();
        let mut change = self.last_change();
        if self.config.exit == ExitPolicy::Claims {
            // Nobody finds the VMAs but by the tree, and nobody holds mmap_lock: so the tables can
            // go first, and the last frame need not wait for the books.
            self.zap_left(on, &change, &mut gather);
            self.free_tables(on, gather);
            let _ = self.take_areas(&mut change, VmaRange::USER);
            drop(change);
        } else {
            let _ = self.take_areas(&mut change, VmaRange::USER);
            drop(change);
            self.free_tables(on, gather);
        }
        self.drop_files(on);
        A::trace(Trace::Exit(ExitEvent::ClaimsOpen { asid: self.asid() }));
        on.spaces.leave(self);
        self.table.destroy(on.paging);
    }
    /// Frees the page tables but the root, and all that still waits in the gather.
    fn free_tables<'t>(&'t self, on: Backing<'_, A>, mut gather: Gather<'t, A>) {
        let (mut sink, all) = (Retire(on), VmaRange::USER);
        self.table.free_tables(on.paging, &mut gather, &mut sink, all, all);
        gather.finish(on.paging, &mut sink);
    }
    /// Takes all pages out, whoever else does.
    fn zap_all<'t>(&'t self, on: Backing<'_, A>, gather: &mut Gather<'t, A>) {
        if on.paging.tlb.forgetting() == Forgetting::Nudged {
            // No CPU uses it any more, nor reads its tables: what follows needs no flush.
            self.table.retire(on.paging);
        }
        let vmas = self.lock.read();
        let _span = Span::<A>::enter(Func::UnmapVmas);
        for (area, range) in vmas.areas(VmaRange::USER) {
            let done = self.zap(on, gather, range, locked_of(&area));
            debug_assert!(done, "no huge page reaches across the end of a VMA");
        }
    }
    /// Takes the pages out that nobody else has claimed (`claims`).
    fn share_out<'t>(&'t self, on: Backing<'_, A>, gather: &mut Gather<'t, A>) {
        let mut change = self.last_change();
        change.hold_all_for_good();
        self.die(on);
        let vmas = change.downgrade();
        let _span = Span::<A>::enter(Func::UnmapVmas);
        self.zap_unclaimed(on, &vmas, gather);
    }
    /// mmap_lock for writing, and how long that took.
    fn last_change(&self) -> Change<'_, A> {
        let since_ns = A::now_ns();
        let change = match self.config.exit {
            ExitPolicy::Claims => Change::begin_after_readers(self),
            ExitPolicy::Stock | ExitPolicy::Posted => Change::begin(self),
        };
        let ns = (A::now_ns() - since_ns).try_into().unwrap_or(u32::MAX);
        A::trace(Trace::Exit(ExitEvent::LockWait { ns }));
        change
    }
}
