//! What becomes of isolated folios (`shrink_folio_list`).

use super::{Reclaim, Rmap, Scope, UnmapTo};
use crate::folio::{FolioFlags, FolioWord};
use crate::swap::WriteOut;
use crate::tlb::{Batch, Leave};
use mmscale_arch::{Func, Machine, Op, Order, Pfn, Span, planted};
use mmscale_frames::vmstat::ZoneItem;

/// Folios of one round (`SWAP_CLUSTER_MAX`).
pub(super) const BATCH: usize = 32;

/// Whether uses since the last look count.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Uses {
    /// They give another round.
    Count,
    /// They do not: somebody has said that the memory is not needed.
    Ignored,
}

/// Whether a batch's frames have to be free when it is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Haste {
    /// They have: somebody needs them, and the CPUs that use them are waited for.
    Now,
    /// They may wait in limbo until the CPUs have forgotten them, unless memory is so short that
    /// allocations would have to.
    Later,
}

/// What is done with one folio. Its lock is let go, but for `Unmapped`.
enum Fate {
    /// No entry maps it, and its content is in its slot: it goes once the batch is flushed.
    Unmapped,
    /// Nobody can find it, and the isolation's reference is the last.
    Freed,
    /// It goes back to its list.
    Keep,
    /// It goes back, and is being written.
    Writing,
}

/// What a folio's uses say.
enum Verdict {
    Reclaim,
    Keep,
    Activate,
}

/// What came of some folios.
#[derive(Default)]
pub(super) struct Shrunk {
    /// Looked at, in folios.
    pub(super) scanned: u32,
    /// Freed, in folios, which are pages.
    pub(super) freed: u32,
    /// One that is being written, with a reference for whoever wants to wait for it.
    pub(super) writing: Option<Pfn>,
}

/// A few folios.
struct Few {
    folios: [Pfn; BATCH],
    len: usize,
}

impl Few {
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
    /// Tries to free isolated folios, at most a batch, and puts those back that stay.
    pub(super) fn shrink_folio_list<R: Rmap<A>>(
        &self,
        on: Scope<'_, A, R>,
        folios: &[Pfn],
        uses: Uses,
        haste: Haste,
    ) -> Shrunk {
        let _span = Span::<A>::enter(Func::ShrinkFolioList);
        let (mut back, mut gone) = (Few::new(), Few::new());
        let mut shrunk = Shrunk::default();
        let mut unmapped = Few::new();
        let mut batch = Batch::new();
        for &pfn in folios {
            A::cond_resched();
            match self.shrink_one(on, pfn, uses, &mut batch) {
                Fate::Unmapped => unmapped.push(pfn),
                Fate::Freed => gone.push(pfn),
                Fate::Keep => back.push(pfn),
                Fate::Writing => {
                    if shrunk.writing.is_none() {
                        on.memory.folios.get(pfn);
                        shrunk.writing = Some(pfn);
                    }
                    back.push(pfn);
                }
            }
        }
        if haste == Haste::Later && self.may_park(on, &batch, unmapped.as_slice()) {
            shrunk.freed += self.park(on, &mut batch, unmapped.as_slice());
        } else {
            // Before anything is freed, or goes where somebody else may free it.
            if !planted!(ReclaimUnflushed) {
                on.rmap.flush(&mut batch);
            }
            for &pfn in unmapped.as_slice() {
                match self.take_away(on, pfn) {
                    Fate::Freed => gone.push(pfn),
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

    /// Whether unmapped folios may wait in limbo: not those of a zone at its min watermark.
    fn may_park<R: Rmap<A>>(&self, on: Scope<'_, A, R>, batch: &Batch, unmapped: &[Pfn]) -> bool {
        let frames = on.memory.frames;
        on.rmap.has_limbo()
            && batch.may_wait()
            && unmapped.first().and_then(|&pfn| frames.zone_of(pfn)).is_some_and(|zone| {
                let free = frames.stats().zone(zone.id(), ZoneItem::FreePages);
                free > u64::from(zone.watermarks().min)
            })
    }

    /// Frees some and puts the others back.
    fn part<R>(&self, on: Scope<'_, A, R>, gone: &Few, back: &Few) {
        let mut last = [(Pfn::new(0), 1); BATCH];
        last.iter_mut().zip(gone.as_slice()).for_each(|(to, &pfn)| *to = (pfn, 1));
        on.memory.release(&last[..gone.len]);
        on.memory.putback_now(back.as_slice());
        self.tally().freed.add(gone.len as u64);
    }

    /// Lets the unmapped folios of a batch wait in limbo, or waits for the CPUs if there is no
    /// room. Returns how many folios are free by now, those of earlier batches included.
    fn park<R: Rmap<A>>(&self, on: Scope<'_, A, R>, batch: &mut Batch, unmapped: &[Pfn]) -> u32 {
        // Whoever faults on one has it back at once.
        unmapped.iter().for_each(|&pfn| on.swap.unlock_folio(on.memory, pfn));
        if on.rmap.park(batch, unmapped) {
            return on.rmap.leave_limbo(Leave::Passed);
        }
        on.rmap.flush(batch);
        self.leave_limbo(on, unmapped)
    }

    /// What becomes of folios that leave limbo, at most a batch: no CPU uses them any more. Those
    /// that nobody has called back meanwhile are freed; the others go back to their lists. Returns
    /// how many are free.
    pub fn leave_limbo<R>(&self, on: Scope<'_, A, R>, folios: &[Pfn]) -> u32 {
        let (mut back, mut gone) = (Few::new(), Few::new());
        for &pfn in folios {
            let locked = on.swap.trylock_folio(on.memory, pfn);
            match locked.then(|| self.take_away(on, pfn)) {
                Some(Fate::Freed) => gone.push(pfn),
                _ => back.push(pfn),
            }
        }
        self.part(on, &gone, &back);
        gone.len as u32
    }

    /// One folio. If it stays although an entry of it was put off, the batch knows.
    fn shrink_one<R: Rmap<A>>(
        &self,
        on: Scope<'_, A, R>,
        pfn: Pfn,
        uses: Uses,
        batch: &mut Batch,
    ) -> Fate {
        let before = batch.taken();
        match self.shrink_folio(on, pfn, uses, batch) {
            Fate::Unmapped if batch.is_empty() => self.take_away(on, pfn),
            Fate::Unmapped => Fate::Unmapped,
            fate => {
                if !batch.is_empty() && batch.taken() != before {
                    batch.note_kept();
                }
                fate
            }
        }
    }

    fn shrink_folio<R: Rmap<A>>(
        &self,
        on: Scope<'_, A, R>,
        pfn: Pfn,
        uses: Uses,
        batch: &mut Batch,
    ) -> Fate {
        A::work(Op::ReclaimScan, 1);
        let (memory, swap) = (on.memory, on.swap);
        if !swap.trylock_folio(memory, pfn) {
            return Fate::Keep;
        }
        let word = memory.folios.word(pfn);
        let stays = FolioFlags::UNEVICTABLE | FolioFlags::MLOCKED;
        let huge = memory.frames.frames().word(pfn).order() > Order::ZERO;
        if huge || word.flags().intersects(stays) || !word.has(FolioFlags::ANON) {
            return self.keep(on, pfn);
        }
        if word.has(FolioFlags::WRITEBACK) {
            // When it is written it goes to the end of the inactive list, wherever it is then.
            memory.folios.set(pfn, FolioFlags::RECLAIM);
            self.activate(on, pfn);
            return Fate::Writing;
        }
        if uses == Uses::Count {
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

    /// Whether the folio was used enough to stay (`folio_check_references`).
    fn check_references<R: Rmap<A>>(
        &self,
        on: Scope<'_, A, R>,
        pfn: Pfn,
        word: FolioWord,
    ) -> Verdict {
        let mapped = word.maps() > 0;
        let found = if mapped { on.rmap.referenced(pfn) } else { super::References::default() };
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

    fn keep<R>(&self, on: Scope<'_, A, R>, pfn: Pfn) -> Fate {
        on.swap.unlock_folio(on.memory, pfn);
        Fate::Keep
    }

    /// The folio goes back to the active list. What it has in swap is given up if that is short.
    fn activate<R>(&self, on: Scope<'_, A, R>, pfn: Pfn) -> Fate {
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

    /// Slot, page-table entries, content, folio.
    fn swap_out<R: Rmap<A>>(&self, on: Scope<'_, A, R>, pfn: Pfn, batch: &mut Batch) -> Fate {
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
            // The isolation and the cache; anybody else may still write to it.
            if word.refs() != 2 {
                return self.keep(on, pfn);
            }
            if batch.is_dirty() && !planted!(ReclaimWritesUnflushed) {
                on.rmap.flush(batch);
            }
            memory.folios.set(pfn, FolioFlags::RECLAIM);
            self.tally().written.add(1);
            match swap.write_out(memory, pfn) {
                // It is in no cache, and everybody who drops it drops it for good.
                WriteOut::Unneeded => return self.last_reference(on, pfn),
                WriteOut::Started if self.is_writing(on, pfn) => return Fate::Writing,
                WriteOut::Started | WriteOut::Zero | WriteOut::Stored => {}
            }
            if !swap.trylock_folio(memory, pfn) {
                return Fate::Keep;
            }
        }
        Fate::Unmapped
    }

    /// The folio leaves the cache, if nobody else has found it there. Its lock is let go.
    fn take_away<R>(&self, on: Scope<'_, A, R>, pfn: Pfn) -> Fate {
        let gone = on.swap.take_away(on.memory, pfn);
        on.swap.unlock_folio(on.memory, pfn);
        if gone { Fate::Freed } else { Fate::Keep }
    }

    fn is_writing<R>(&self, on: Scope<'_, A, R>, pfn: Pfn) -> bool {
        on.memory.folios.word(pfn).has(FolioFlags::WRITEBACK)
    }

    /// The folio is neither mapped nor in the cache: it goes if nobody else has a reference.
    fn last_reference<R>(&self, on: Scope<'_, A, R>, pfn: Pfn) -> Fate {
        let word = on.memory.folios.word(pfn);
        if word.refs() == 1 && word.maps() == 0 { Fate::Freed } else { Fate::Keep }
    }

    /// Lazily freed memory: dropped, unless somebody has written to it since it was given up.
    fn drop_lazyfree<R: Rmap<A>>(&self, on: Scope<'_, A, R>, pfn: Pfn, batch: &mut Batch) -> Fate {
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
        if alone { Fate::Freed } else { Fate::Keep }
    }
}
