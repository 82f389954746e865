//! The end of an address space (`exit_mmap`).
//!
//! The simple version: one mmap_lock, one walker. The exit takes mmap_lock for writing, unmaps all
//! pages, flushes, frees frames and page tables, and removes the VMAs. A helper (the OOM reaper,
//! process_mrelease) would have to wait until all is done.
//!
//! In all three policies the exit and helpers therefore unmap concurrently, with mmap_lock held for
//! reading, and the exit takes mmap_lock for writing only for the end.
//!
//! # `stock` and `posted`
//! `stock`: both walk the VMAs upwards. `posted`: helpers walk the VMAs downwards, each VMA
//! upwards.
//!
//! | exit | helper |
//! |---|---|
//! | no users | |
//! | mmap_lock, read | mmap_lock, read; returns if `SKIP`; set `UNSTABLE` |
//! | each VMA, upwards: | each private VMA: |
//! | - lock a page table, take its entries | - lock a page table, take its entries |
//! | - gather full: flush, free its frames | - end of the VMA: flush, free its frames |
//! | unlock; set `SKIP` | unlock |
//! | mmap_lock, write: waits for helpers | (a later one sees `SKIP`) |
//! | lock all VMAs for good; unlink them from the reverse map | |
//! | unlink page tables; last flush | |
//! | free the last frames and all tables | |
//! | remove all VMAs; unlock | |
//!
//! Page tables: both walkers visit all of them, each under its lock. The walker that takes an entry
//! frees the frame; the other one finds the entry empty and only pays for the visit. If both walk
//! the same VMA, they wait for each other at its table locks.
//!
//! With the call policy `requests` the exit first retires the address space by one flush. The
//! flushes of this table then cost nothing.
//!
//! # `claims`
//! | exit | helper |
//! |---|---|
//! | | mmap_lock, read; returns if `SKIP`; set `UNSTABLE` |
//! | | claim the highest table, lock it, take its entries |
//! | | gather full: flush, free its frames |
//! | no users | between two tables: sees that, unlocks |
//! | mmap_lock, write (spins for readers) | spins for mmap_lock |
//! | lock all VMAs for good | |
//! | flush once for all CPUs: retire; set `DEAD` | |
//! | downgrade to read | mmap_lock, read; `DEAD` |
//! | claim the lowest table, take its entries | claim the highest table, take its entries |
//! | unlink it; free frames, no flush | unlink it; free frames, no flush |
//! | all claimed: unlock; set `SKIP` | all claimed: unlock; free the last frames |
//! | mmap_lock, write (spins for readers) | |
//! | zap what helpers skipped (`LEFT`) | |
//! | unlink the other tables; free frames, tables | |
//! | remove all VMAs; unlock | |
//!
//! Page tables: each is visited once, by the walker that has claimed it (`claims`). After `DEAD` no
//! table is locked and no flush is needed: the address space is retired.

use crate::pgtable::Gather;
use crate::space::change::Change;
use crate::space::zap::{Retire, locked_of};
use crate::space::{ExitPolicy, MmRef, Space, VmaRange};
use crate::tlb::FlushBy;
use mmscale_arch::{ExitEvent, Func, Machine, Op, Span, Trace};

impl<A: Machine> Space<A> {
    /// Frees everything. The caller was the last user of the address space. Only tasks that
    /// [reap](Space::reap) it may still be active: they free the frames that they have unmapped
    /// themselves, possibly after this returns.
    ///
    /// Pages are unmapped first, lowest first, with mmap_lock held for reading and the VMAs in
    /// place. Then, with mmap_lock held for writing, the page tables and the last frames are freed,
    /// and the VMAs removed. That waits for reapers; later reapers find nothing to do.
    pub(super) fn free_all(&self, on: MmRef<'_, A>) {
        self.drain_before_unmap(on);
        let mut gather = Gather::new_whole(&self.table);
        match self.config.exit {
            ExitPolicy::Stock | ExitPolicy::Posted => self.zap_all(on, &mut gather),
            ExitPolicy::Claims => {
                gather.widen();
                self.zap_by_claims(on, &mut gather);
            }
        }
        self.skip();
        let mut change = self.last_change();
        match self.config.exit {
            ExitPolicy::Claims => self.zap_left(on, &change, &mut gather),
            // The reverse map locks VMAs without mmap_lock: it must not reach a table any more.
            ExitPolicy::Stock | ExitPolicy::Posted => change.lock_all_for_good(),
        }
        self.unlink(change.in_range(VmaRange::USER).map(|(vma, _)| vma));
        self.free_tables(on, gather);
        let _ = self.remove_vmas(&mut change, VmaRange::USER, Op::VmaCopy);
        drop(change);
        self.drop_files(on);
        A::trace(Trace::Exit(ExitEvent::ClaimsOpen { asid: self.asid() }));
        on.spaces.leave(self);
        self.table.destroy(on.paging);
    }
    /// Frees the page tables except the root, and all frames in the gather.
    fn free_tables<'t>(&'t self, on: MmRef<'_, A>, mut gather: Gather<'t, A>) {
        let (mut sink, all) = (Retire(on), VmaRange::USER);
        self.table.free_tables(on.paging, &mut gather, &mut sink, all, all);
        gather.finish(on.paging, &mut sink);
    }
    /// Unmaps all pages. Helpers may do the same at the same time.
    fn zap_all<'t>(&'t self, on: MmRef<'_, A>, gather: &mut Gather<'t, A>) {
        if on.paging.tlb.flush_by() == FlushBy::Generation {
            // No CPU uses the address space or its tables: no further flush is needed.
            self.table.retire(on.paging);
        }
        let vmas = self.lock.read();
        let _span = Span::<A>::enter(Func::UnmapVmas);
        for (vma, range) in vmas.in_range(VmaRange::USER) {
            let done = self.zap(on, gather, range, locked_of(&vma));
            debug_assert!(done, "no huge page extends across the end of a VMA");
        }
    }
    /// Unmaps the pages that no other walker has claimed (`claims`).
    fn zap_by_claims<'t>(&'t self, on: MmRef<'_, A>, gather: &mut Gather<'t, A>) {
        let mut change = self.last_change();
        change.lock_all_for_good();
        self.die(on);
        let vmas = change.downgrade();
        let _span = Span::<A>::enter(Func::UnmapVmas);
        self.zap_unclaimed(on, &vmas, gather);
    }
    /// Takes mmap_lock for writing, and traces how long that took.
    fn last_change(&self) -> Change<'_, A> {
        let since_ns = A::now_ns();
        let change = Change::begin(self);
        let ns = (A::now_ns() - since_ns).try_into().unwrap_or(u32::MAX);
        A::trace(Trace::Exit(ExitEvent::LockWait { ns }));
        change
    }
}
