//! Freeing isolated folios (`shrink_folio_list`).

use super::{Reclaim, ReclaimRef, Rmap, UnmapTo};
use crate::folio::{FolioFlags, FolioWord};
use crate::swap::WriteOut;
use crate::tlb::{Leave, UnmapBatch};
use mmscale_arch::{Func, Machine, Op, Order, Pfn, Span};
use mmscale_frames::vmstat::ZoneItem;

/// Folios of one batch (`SWAP_CLUSTER_MAX`).
pub(super) const BATCH: usize = 32;

/// Whether the use of a folio since the last scan counts.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ReferenceUse {
    /// It does: the folio stays for another round.
    Count,
    /// It does not: a program has declared that it does not need the memory.
    Ignore,
}

/// Whether a batch's frames must be free on return.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum FreeWhen {
    /// They must: the caller needs them, so CPUs that use them are waited for.
    OnReturn,
    /// They may wait in limbo until the CPUs have flushed, unless memory is so short that
    /// allocations would wait for them.
    AfterFlush,
}

/// The result for one folio. Its lock is released, except for `Unmapped`.
enum ShrinkOutcome {
    /// No entry maps it, and its slot has its content: it can be freed after the batch's flush.
    Unmapped,
    /// It cannot be found any more, and the isolation's reference is the last.
    Freed,
    /// It is put back on its list.
    Keep,
    /// It is put back, and is under writeback.
    Writing,
}

/// The decision from a folio's use.
enum Verdict {
    Reclaim,
    Keep,
    Activate,
}

/// Result of shrinking folios.
#[derive(Default)]
pub(super) struct Shrunk {
    /// Folios scanned.
    pub(super) scanned: u32,
    /// Folios freed; each is one page.
    pub(super) freed: u32,
    /// A folio under writeback, with a reference for the caller, which may wait for it.
    pub(super) writing: Option<Pfn>,
}

/// At most a batch of folios.
struct SmallBatch {
    folios: [Pfn; BATCH],
    len: usize,
}

impl SmallBatch {
    fn new() -> Self {
        Self { folios: [Pfn::new(0); BATCH], len: 0 }
    }
    fn push(&mut self, pfn: Pfn) {
        self.folios[self.len] = pfn;
        self.len += 1;
    }
    fn as_slice(&self) -> &[Pfn] {
        &self.folios[..self.len]
    }
}

impl<A: Machine> Reclaim<A> {
    /// Tries to free isolated folios, at most a batch, and puts the others back.
    pub(super) fn shrink_folio_list<R: Rmap<A>>(
        &self,
        on: ReclaimRef<'_, A, R>,
        folios: &[Pfn],
        references: ReferenceUse,
        free_when: FreeWhen,
    ) -> Shrunk {
        let _span = Span::<A>::enter(Func::ShrinkFolioList);
        let (mut back, mut gone) = (SmallBatch::new(), SmallBatch::new());
        let mut shrunk = Shrunk::default();
        let mut unmapped = SmallBatch::new();
        let mut batch = UnmapBatch::new();
        for &pfn in folios {
            A::cond_resched();
            match self.shrink_one(on, pfn, references, &mut batch) {
                ShrinkOutcome::Unmapped => unmapped.push(pfn),
                ShrinkOutcome::Freed => gone.push(pfn),
                ShrinkOutcome::Keep => back.push(pfn),
                ShrinkOutcome::Writing => {
                    if shrunk.writing.is_none() {
                        on.memory.folios.get(pfn);
                        shrunk.writing = Some(pfn);
                    }
                    back.push(pfn);
                }
            }
        }
        if free_when == FreeWhen::AfterFlush && self.may_park(on, &batch, unmapped.as_slice()) {
            shrunk.freed += self.park(on, &mut batch, unmapped.as_slice());
        } else {
            // Before a folio is freed, or put where another task may free it.
            on.rmap.flush(&mut batch);
            for &pfn in unmapped.as_slice() {
                match self.take_away(on, pfn) {
                    ShrinkOutcome::Freed => gone.push(pfn),
                    _ => back.push(pfn),
                }
            }
        }
        self.part(on, &gone, &back);
        shrunk.freed += gone.len as u32;
        shrunk.scanned = folios.len() as u32;
        self.tally().scanned.add(folios.len() as u64);
        shrunk
    }

    /// Returns whether unmapped folios may wait in limbo: not if their zone is at its min
    /// watermark.
    fn may_park<R: Rmap<A>>(
        &self,
        on: ReclaimRef<'_, A, R>,
        batch: &UnmapBatch,
        unmapped: &[Pfn],
    ) -> bool {
        let frames = on.memory.frames;
        on.rmap.has_limbo()
            && batch.may_wait()
            && unmapped.first().and_then(|&pfn| frames.zone_of(pfn)).is_some_and(|zone| {
                let free = frames.stats().zone(zone.id(), ZoneItem::FreePages);
                free > u64::from(zone.watermarks().min)
            })
    }

    /// Frees the folios of `gone` and puts those of `back` on their lists.
    fn part<R>(&self, on: ReclaimRef<'_, A, R>, gone: &SmallBatch, back: &SmallBatch) {
        let mut last = [(Pfn::new(0), 1); BATCH];
        last.iter_mut().zip(gone.as_slice()).for_each(|(to, &pfn)| *to = (pfn, 1));
        on.memory.release(&last[..gone.len]);
        on.memory.putback_now(back.as_slice());
        self.tally().freed.add(gone.len as u64);
    }

    /// Puts the unmapped folios of a batch into limbo, or waits for the CPUs if there is no room.
    /// Returns how many folios were freed, those of earlier batches included.
    fn park<R: Rmap<A>>(
        &self,
        on: ReclaimRef<'_, A, R>,
        batch: &mut UnmapBatch,
        unmapped: &[Pfn],
    ) -> u32 {
        // Unlocked, so that a fault maps one again without a wait.
        unmapped.iter().for_each(|&pfn| on.swap.unlock_folio(on.memory, pfn));
        if on.rmap.park(batch, unmapped) {
            return on.rmap.leave_limbo(Leave::Passed);
        }
        on.rmap.flush(batch);
        self.leave_limbo(on, unmapped)
    }

    /// Frees folios that leave limbo, at most a batch: no CPU uses them any more. Those that were
    /// mapped again meanwhile are put back on their lists. Returns how many were freed.
    pub fn leave_limbo<R>(&self, on: ReclaimRef<'_, A, R>, folios: &[Pfn]) -> u32 {
        let (mut back, mut gone) = (SmallBatch::new(), SmallBatch::new());
        for &pfn in folios {
            let locked = on.swap.trylock_folio(on.memory, pfn);
            match locked.then(|| self.take_away(on, pfn)) {
                Some(ShrinkOutcome::Freed) => gone.push(pfn),
                _ => back.push(pfn),
            }
        }
        self.part(on, &gone, &back);
        gone.len as u32
    }

    /// Shrinks one folio. If it stays although an entry of it was deferred, records that in the
    /// batch.
    fn shrink_one<R: Rmap<A>>(
        &self,
        on: ReclaimRef<'_, A, R>,
        pfn: Pfn,
        references: ReferenceUse,
        batch: &mut UnmapBatch,
    ) -> ShrinkOutcome {
        let before = batch.taken();
        match self.shrink_folio(on, pfn, references, batch) {
            ShrinkOutcome::Unmapped if batch.is_empty() => self.take_away(on, pfn),
            ShrinkOutcome::Unmapped => ShrinkOutcome::Unmapped,
            outcome => {
                if !batch.is_empty() && batch.taken() != before {
                    batch.note_kept();
                }
                outcome
            }
        }
    }

    fn shrink_folio<R: Rmap<A>>(
        &self,
        on: ReclaimRef<'_, A, R>,
        pfn: Pfn,
        references: ReferenceUse,
        batch: &mut UnmapBatch,
    ) -> ShrinkOutcome {
        A::work(Op::ReclaimScan, 1);
        let (memory, swap) = (on.memory, on.swap);
        if !swap.trylock_folio(memory, pfn) {
            return ShrinkOutcome::Keep;
        }
        let word = memory.folios.word(pfn);
        let stays = FolioFlags::UNEVICTABLE | FolioFlags::MLOCKED;
        let huge = memory.frames.frames().word(pfn).order() > Order::ZERO;
        if huge || word.flags().intersects(stays) || !word.has(FolioFlags::ANON) {
            return self.keep(on, pfn);
        }
        if word.has(FolioFlags::WRITEBACK) {
            // When it is written it moves to the tail of the inactive list.
            memory.folios.set(pfn, FolioFlags::RECLAIM);
            self.activate(on, pfn);
            return ShrinkOutcome::Writing;
        }
        if references == ReferenceUse::Count {
            match self.check_references(on, pfn, word) {
                Verdict::Reclaim => {}
                Verdict::Keep => return self.keep(on, pfn),
                Verdict::Activate => return self.activate(on, pfn),
            }
        }
        if word.has(FolioFlags::SWAP_BACKED) {
            self.swap_out(on, pfn, batch)
        } else {
            self.drop_lazyfree(on, pfn, batch)
        }
    }

    /// Decides by the folio's use (`folio_check_references`).
    fn check_references<R: Rmap<A>>(
        &self,
        on: ReclaimRef<'_, A, R>,
        pfn: Pfn,
        word: FolioWord,
    ) -> Verdict {
        let mapped = word.maps() > 0;
        let found = if mapped { on.rmap.referenced(pfn) } else { super::References::default() };
        if found.contended && !found.locked {
            return Verdict::Keep;
        }
        let before = on.memory.folios.test_and_clear(pfn, FolioFlags::REFERENCED);
        if found.locked {
            return Verdict::Activate;
        }
        if found.accessed == 0 {
            return Verdict::Reclaim;
        }
        on.memory.folios.set(pfn, FolioFlags::REFERENCED);
        if before || found.accessed > 1 { Verdict::Activate } else { Verdict::Keep }
    }

    fn keep<R>(&self, on: ReclaimRef<'_, A, R>, pfn: Pfn) -> ShrinkOutcome {
        on.swap.unlock_folio(on.memory, pfn);
        ShrinkOutcome::Keep
    }

    /// Puts the folio on the active list. Frees its swap slot if swap is short.
    fn activate<R>(&self, on: ReclaimRef<'_, A, R>, pfn: Pfn) -> ShrinkOutcome {
        if on.swap.is_half_full() {
            on.swap.free_swap(on.memory, pfn);
        }
        let word = on.memory.folios.word(pfn);
        if !word.flags().intersects(FolioFlags::MLOCKED | FolioFlags::UNEVICTABLE) {
            on.memory.folios.set(pfn, FolioFlags::ACTIVE);
            self.tally().activated.add(1);
        }
        self.keep(on, pfn)
    }

    /// Allocates a slot, unmaps the folio, and writes it if it is dirty.
    fn swap_out<R: Rmap<A>>(
        &self,
        on: ReclaimRef<'_, A, R>,
        pfn: Pfn,
        batch: &mut UnmapBatch,
    ) -> ShrinkOutcome {
        let (memory, swap) = (on.memory, on.swap);
        let entry = match swap.entry_of(memory, pfn) {
            Some(entry) => entry,
            None => match swap.alloc(memory, pfn) {
                Ok(entry) => entry,
                Err(_) => return self.activate(on, pfn),
            },
        };
        let mapped = memory.folios.word(pfn).maps() > 0;
        if mapped && !on.rmap.unmap(pfn, UnmapTo::Swap(entry), batch) {
            return self.activate(on, pfn);
        }
        let word = memory.folios.word(pfn);
        if word.has(FolioFlags::DIRTY) {
            // The references of the isolation and the cache; any other user may still write to it.
            if word.refs() != 2 {
                return self.keep(on, pfn);
            }
            if batch.is_dirty() {
                on.rmap.flush(batch);
            }
            memory.folios.set(pfn, FolioFlags::RECLAIM);
            self.tally().written.add(1);
            match swap.write_out(memory, pfn) {
                // It is not in the cache, so any user that drops its reference frees it.
                WriteOut::Unneeded => return self.last_reference(on, pfn),
                WriteOut::Started if self.is_writing(on, pfn) => return ShrinkOutcome::Writing,
                WriteOut::Started | WriteOut::Zero | WriteOut::Stored => {}
            }
            if !swap.trylock_folio(memory, pfn) {
                return ShrinkOutcome::Keep;
            }
        }
        ShrinkOutcome::Unmapped
    }

    /// Removes the folio from the cache, if it has no other users, and unlocks it.
    fn take_away<R>(&self, on: ReclaimRef<'_, A, R>, pfn: Pfn) -> ShrinkOutcome {
        let gone = on.swap.take_away(on.memory, pfn);
        on.swap.unlock_folio(on.memory, pfn);
        if gone { ShrinkOutcome::Freed } else { ShrinkOutcome::Keep }
    }

    fn is_writing<R>(&self, on: ReclaimRef<'_, A, R>, pfn: Pfn) -> bool {
        on.memory.folios.word(pfn).has(FolioFlags::WRITEBACK)
    }

    /// Returns the result for a folio that is neither mapped nor in the cache: it is freed if it
    /// has no other references.
    fn last_reference<R>(&self, on: ReclaimRef<'_, A, R>, pfn: Pfn) -> ShrinkOutcome {
        let word = on.memory.folios.word(pfn);
        if word.refs() == 1 && word.maps() == 0 {
            ShrinkOutcome::Freed
        } else {
            ShrinkOutcome::Keep
        }
    }

    /// Drops lazily freed memory, unless it was written to since `MADV_FREE`.
    fn drop_lazyfree<R: Rmap<A>>(
        &self,
        on: ReclaimRef<'_, A, R>,
        pfn: Pfn,
        batch: &mut UnmapBatch,
    ) -> ShrinkOutcome {
        let memory = on.memory;
        let mapped = memory.folios.word(pfn).maps() > 0;
        let unmapped = !mapped || on.rmap.unmap(pfn, UnmapTo::Drop, batch);
        if memory.folios.word(pfn).has(FolioFlags::DIRTY) {
            memory.folios.set(pfn, FolioFlags::SWAP_BACKED);
            return self.activate(on, pfn);
        }
        let alone = unmapped && memory.folios.freeze(pfn, 1);
        if alone {
            memory.folios.unfreeze(pfn, 1);
            self.tally().lazyfreed.add(1);
        }
        on.swap.unlock_folio(memory, pfn);
        if alone { ShrinkOutcome::Freed } else { ShrinkOutcome::Keep }
    }
}
