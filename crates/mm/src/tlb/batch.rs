//! Deferred invalidations that are flushed together (`arch_tlbbatch_flush`): reclaim clears many
//! entries and flushes once, before it writes or frees any of their pages.
//!
//! Until that flush a CPU may use a page that no entry maps any more. A caller that finds no entry
//! and promises that the page is gone must first complete the deferred invalidations:
//! [`Tlb::flush_batched_pending`] (`flush_tlb_batched_pending`).

use super::broadcast::Reach;
use super::cpu::ActiveMm;
use super::{Extent, FlushBy, Tlb, trace};
use crate::smp::{Call, CallFunc, Wait};
use core::sync::atomic::Ordering::{Acquire, SeqCst};
use mmscale_arch::{Asid, Atomic, CpuMask, Func, Machine, Span};

/// Address spaces that a batch can hold. For one more, [`Tlb::defer`] flushes immediately.
const SPACES: usize = 8;

/// Deferred invalidations: address spaces, each with its last deferred generation.
#[must_use]
#[derive(Clone, Default, Debug)]
pub struct UnmapBatch {
    spaces: [Option<(Asid, u64)>; SPACES],
    /// An entry of a dirty page was deferred.
    dirty: bool,
    /// Number of deferred entries.
    taken: u32,
    /// A page whose entry was deferred is not about to be freed.
    kept: bool,
}

impl UnmapBatch {
    /// Creates an empty batch.
    pub fn new() -> Self {
        Self::default()
    }
    /// Records that a cleared entry was dirty.
    pub fn note_dirty(&mut self) {
        self.dirty = true;
    }
    /// Returns whether CPUs may still write to a page whose entry was cleared. If so, the caller
    /// flushes before it reads any of the pages.
    pub fn is_dirty(&self) -> bool {
        self.dirty && !self.is_empty()
    }
    /// Returns the number of deferred entries.
    pub fn taken(&self) -> u32 {
        self.taken
    }
    /// Records that a page whose entry was deferred stays in use. After the batch no record shows
    /// that CPUs may still use that page by the old entry, so the caller must wait for the flush.
    pub fn note_kept(&mut self) {
        self.kept = true;
    }
    /// Returns whether all pages of the batch are clean and owned by the caller. Such pages may
    /// wait in limbo, and the caller need not wait for the flush.
    pub fn may_wait(&self) -> bool {
        !self.dirty && !self.kept && !self.is_empty()
    }
    /// Returns whether nothing was deferred.
    pub fn is_empty(&self) -> bool {
        self.spaces[0].is_none()
    }
    pub(super) fn iter(&self) -> impl Iterator<Item = (Asid, u64)> + '_ {
        self.spaces.iter().map_while(|slot| *slot)
    }
    /// Returns the last generation of `asid` that this batch deferred.
    pub fn generation(&self, asid: Asid) -> Option<u64> {
        self.iter().find(|(known, _)| *known == asid).map(|(_, generation)| generation)
    }
    /// Returns the entry of `asid`, or a free one.
    fn place(&mut self, asid: Asid) -> Option<&mut Option<(Asid, u64)>> {
        self.spaces.iter_mut().find(|slot| slot.is_none_or(|(known, _)| known == asid))
    }
}

impl<A: Machine> Tlb<A> {
    /// Defers the invalidation of entries of `asid` within `extent` to the batch. Flushes
    /// immediately if the batch has no room or the machine broadcasts all invalidations.
    ///
    /// The caller holds the lock of the entries' table, so that the next holder of that lock sees
    /// the deferred generation.
    pub fn defer(&self, batch: &mut UnmapBatch, asid: Asid, extent: Extent) {
        let place = batch.place(asid).filter(|_| Self::broadcast_for_all().is_none());
        let Some(place) = place else {
            let _ = self.flush(asid, extent);
            return;
        };
        let context = self.context(asid);
        let generation = context.begin();
        match self.flush_by() {
            // `flush_batched_pending` then calls every CPU and flushes all translations, so any
            // generation will do.
            FlushBy::Call => context.deferred.store(generation, SeqCst),
            FlushBy::Generation => {
                context.publish(generation, extent.at_most(super::SINGLE_FLUSH_CEILING));
                context.record_deferred(generation);
            }
        }
        *place = Some((asid, generation));
        batch.taken += 1;
    }
    /// Flushes the deferred invalidations and empties the batch.
    pub fn flush_batch(&self, batch: &mut UnmapBatch, wait: Wait) {
        if batch.is_empty() {
            return;
        }
        let _span = Span::<A>::enter(Func::ArchTlbbatchFlush);
        assert!(wait != Wait::No, "a flush without a wait proves nothing");
        self.smp.tally().flushes.add(1);
        let interrupted = match self.flush_by() {
            FlushBy::Call => self.call_for_batch(batch, wait),
            FlushBy::Generation => {
                // Send to all address spaces first, then wait for all.
                let reached = self.send_flush_ipis_for(batch);
                for ((asid, generation), behind) in batch.iter().zip(reached.iter().flatten()) {
                    self.wait_for_all(asid, generation, behind, wait);
                }
                reached.iter().flatten().map(|behind| behind.count() as u32).sum()
            }
        };
        self.complete_batch(batch);
        *batch = UnmapBatch::new();
        trace::<A>(Extent::All, interrupted);
    }
    /// Sends flush IPIs to all CPUs that are behind; returns these CPUs for each address space of
    /// the batch.
    pub(super) fn send_flush_ipis_for(&self, batch: &UnmapBatch) -> [Option<CpuMask>; SPACES] {
        core::array::from_fn(|at| {
            let (asid, generation) = batch.spaces[at]?;
            Some(self.send_flush_ipis(asid, self.context(asid), generation))
        })
    }
    /// Records that no CPU uses the batch's deferred translations any more.
    pub(super) fn complete_batch(&self, batch: &UnmapBatch) {
        batch
            .iter()
            .for_each(|(asid, generation)| self.context(asid).complete_deferred(generation));
    }
    /// Makes one call to all CPUs that use an address space of the batch; broadcasts for address
    /// spaces whose invalidations are broadcast.
    fn call_for_batch(&self, batch: &UnmapBatch, wait: Wait) -> u32 {
        let mut cpus = CpuMask::EMPTY;
        for (asid, _) in batch.iter() {
            let context = self.context(asid);
            let reach = self.reach(context);
            if let Reach::Both(broadcast) | Reach::Broadcast(broadcast) = reach {
                Self::broadcast(broadcast, asid, Extent::All);
            }
            if !matches!(reach, Reach::Broadcast(_)) {
                context.cpus().for_each(|cpu| cpus.insert(cpu));
            }
        }
        if cpus.count() == 0 {
            return 0;
        }
        let awake = |cpu| {
            // Step 3 of the table in mod.rs: pairs with the store in `switch`.
            let loaded = ActiveMm::of(self.loaded_on(cpu).load(SeqCst));
            loaded.asid().is_some() && !loaded.is_lazy()
        };
        let call = Call::bare(CallFunc::FlushTlbBatch);
        let run = |call| self.run(call);
        let own = |cpu| cpus.contains(cpu) && awake(cpu);
        self.smp.flush_by_call(cpus.iter(), awake, own, (call, wait), &run)
    }
    /// Returns whether an invalidation of `asid` was deferred and has not completed yet.
    #[inline]
    pub fn is_deferred(&self, asid: Asid) -> bool {
        // Pairs with `complete_deferred` (mm_context.rs): if this reads 0, the flush is over. A
        // deferral is seen by way of the table's lock: see `defer`.
        self.context(asid).deferred.load_uncharged(Acquire) != 0
    }
    /// Completes the deferred invalidations of `asid`, if there are any. To be called after the
    /// lock of the table under which the caller found entries cleared was held. The caller may hold
    /// spin locks.
    #[inline]
    pub fn flush_batched_pending(&self, asid: Asid) {
        if self.is_deferred(asid) {
            let _ = self.flush(asid, Extent::All);
        }
    }
}
