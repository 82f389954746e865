//! Invalidations that are put off and done together (`arch_tlbbatch_flush`): reclaim takes many
//! pages out and flushes once, before it writes or frees any of them.
//!
//! Until then a CPU may use a page that no entry maps any more. Whoever promises its caller that a
//! page is gone, and finds no entry of it, has to see to that: [`Tlb::settle`]
//! (`flush_tlb_batched_pending`).

use super::cpu::Loaded;
use super::{Extent, Forgetting, Tlb, trace};
use crate::smp::{Call, CallFunc, Count, Here, Wait};
use core::sync::atomic::Ordering::{Acquire, SeqCst};
use mmscale_arch::{Asid, Atomic, CpuMask, Func, Machine, Span, planted};

/// Address spaces that a batch can hold; one more is flushed at once.
const SPACES: usize = 8;

/// What was put off: address spaces, and for each the last generation.
#[must_use]
#[derive(Clone, Default, Debug)]
pub struct Batch {
    spaces: [Option<(Asid, u64)>; SPACES],
    /// A page was dirty by its entry.
    dirty: bool,
    /// Entries that were put off.
    taken: u32,
    /// A page of which an entry was taken out is not on its way to be freed.
    kept: bool,
}

impl Batch {
    /// Nothing.
    pub fn new() -> Self {
        Self::default()
    }
    /// An entry that was taken out said that its page was dirty.
    pub fn note_dirty(&mut self) {
        self.dirty = true;
    }
    /// Whether CPUs may still write to a page whose entry was taken out: flush before any of them
    /// is read.
    pub fn is_dirty(&self) -> bool {
        self.dirty && !self.is_empty()
    }
    /// How many entries were put off.
    pub fn taken(&self) -> u32 {
        self.taken
    }
    /// A page of which an entry was put off goes back to whoever had it: nobody remembers after
    /// the batch that CPUs may still use it by that entry. So the batch is waited for.
    pub fn note_kept(&mut self) {
        self.kept = !planted!(TlbKeptForgotten);
    }
    /// Whether all pages whose entries were put off are clean, and the caller has them all: the
    /// batch need not be waited for, but the pages may wait in limbo.
    pub fn may_wait(&self) -> bool {
        !self.dirty && !self.kept && !self.is_empty()
    }
    /// Whether nothing was put off.
    pub fn is_empty(&self) -> bool {
        self.spaces[0].is_none()
    }
    pub(super) fn iter(&self) -> impl Iterator<Item = (Asid, u64)> + '_ {
        self.spaces.iter().map_while(|slot| *slot)
    }
    /// The latest generation of `asid` that is put off in it.
    pub fn generation(&self, asid: Asid) -> Option<u64> {
        self.iter().find(|(known, _)| *known == asid).map(|(_, generation)| generation)
    }
    /// The place of `asid`, or one that is free.
    fn place(&mut self, asid: Asid) -> Option<&mut Option<(Asid, u64)>> {
        self.spaces.iter_mut().find(|slot| slot.is_none_or(|(known, _)| known == asid))
    }
}

impl<A: Machine> Tlb<A> {
    /// Entries of `asid` within `extent` were taken out, and are flushed with the batch, or at once
    /// if it has no room, or by a broadcast. Under the lock of the entries' table: who takes it
    /// next sees that something was put off.
    pub fn defer(&self, batch: &mut Batch, asid: Asid, extent: Extent) {
        let place = batch.place(asid).filter(|_| !A::has_tlb_broadcast());
        let Some(place) = place else {
            let _ = self.flush(asid, extent);
            return;
        };
        let space = self.space(asid);
        let generation = space.begin();
        match self.forgetting() {
            // Any will do: settling calls all CPUs, whatever they have forgotten.
            Forgetting::Called => space.deferred.store(generation, SeqCst),
            Forgetting::Nudged => {
                space.note(generation, extent.at_most(super::SINGLE_FLUSH_CEILING));
                space.put_off(generation);
            }
        }
        *place = Some((asid, generation));
        batch.taken += 1;
    }
    /// Flushes what was put off; the batch is empty then.
    pub fn flush_batch(&self, batch: &mut Batch, wait: Wait) {
        if batch.is_empty() {
            return;
        }
        let _span = Span::<A>::enter(Func::ArchTlbbatchFlush);
        assert!(wait != Wait::No, "a flush proves something only to who waits for it");
        self.smp.tally().add::<A>(Count::Flushes, 1);
        let interrupted = match self.forgetting() {
            Forgetting::Called => self.call_for_batch(batch, wait),
            Forgetting::Nudged => {
                // First to all, then wait for all.
                let nudged = self.nudge_for_batch(batch);
                for ((asid, generation), behind) in batch.iter().zip(nudged.iter().flatten()) {
                    self.wait_for_all(asid, generation, behind, wait);
                }
                nudged.iter().flatten().map(|behind| behind.count() as u32).sum()
            }
        };
        self.settle_batch(batch);
        *batch = Batch::new();
        trace::<A>(Extent::All, interrupted);
    }
    /// Nudges all CPUs that are behind; which, by the batch's address spaces.
    pub(super) fn nudge_for_batch(&self, batch: &Batch) -> [Option<CpuMask>; SPACES] {
        core::array::from_fn(|at| {
            let (asid, generation) = batch.spaces[at]?;
            Some(self.nudge_others(asid, self.space(asid), generation))
        })
    }
    /// No CPU uses what was put off any more.
    pub(super) fn settle_batch(&self, batch: &Batch) {
        batch.iter().for_each(|(asid, generation)| self.space(asid).settled(generation));
    }
    /// One call to all CPUs that use an address space of the batch.
    fn call_for_batch(&self, batch: &Batch, wait: Wait) -> u32 {
        let mut cpus = CpuMask::EMPTY;
        for (asid, _) in batch.iter() {
            self.space(asid).cpus().for_each(|cpu| cpus.insert(cpu));
        }
        let awake = |cpu| {
            let loaded = Loaded::of(self.loaded_on(cpu).load(SeqCst));
            loaded.asid().is_some() && !loaded.is_lazy()
        };
        let call = Call::bare(CallFunc::FlushTlbBatch);
        let run = |call| self.run(call);
        self.smp.call_function_many(cpus.iter(), awake, call, Here::Run, wait, &run).others
    }
    /// Whether an invalidation of `asid` was put off that nobody has waited for yet.
    #[inline]
    pub fn is_deferred(&self, asid: Asid) -> bool {
        self.space(asid).deferred.load_uncharged(Acquire) != 0
    }
    /// Makes sure that what was put off of `asid` is done, if anything was. After the lock of the
    /// tables was held under which the caller found entries gone. The caller may hold spin locks.
    #[inline]
    pub fn settle(&self, asid: Asid) {
        if self.is_deferred(asid) && !planted!(TlbNeverSettled) {
            let _ = self.flush(asid, Extent::All);
        }
    }
}
