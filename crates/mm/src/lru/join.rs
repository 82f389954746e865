//! Adding folios to the lists, and carrying out batches.

use super::batch::{BATCH, Taken};
use super::lists::{End, Relock};
use super::{BatchKind, Dead, LruList, LruRef, Pending};
use crate::folio::{FolioFlags, FolioInit, FolioWord};
use crate::memcg::{GroupEvent, OverLimit};
use core::sync::atomic::Ordering::Acquire;
use mmscale_arch::sync::{IrqGuard, NoPreempt};
use mmscale_arch::{Atomic, Func, LruEvent, Machine, NodeId, Op, Order, Pfn, Span, Trace};
use mmscale_frames::frame::MigrateType;
use mmscale_frames::page_alloc::{AllocError, Gfp};

/// The reason why a folio could not be allocated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FolioError {
    /// No frames are free.
    Frames(AllocError),
    /// The group is at its limit.
    Group(OverLimit),
}

impl core::fmt::Display for FolioError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Frames(why) => why.fmt(f),
            Self::Group(why) => why.fmt(f),
        }
    }
}

impl core::error::Error for FolioError {}

impl<A: Machine> LruRef<'_, A> {
    /// Allocates a folio of 2^`order` frames from the memory nearest to `node`, charges it to its
    /// group and returns it with one reference. It is on no list and in no batch.
    pub fn alloc_folio(
        &self,
        node: NodeId,
        order: Order,
        gfp: Gfp,
        what: FolioInit,
    ) -> Result<Pfn, FolioError> {
        let pfn = self.alloc_initializing(node, order, gfp, what)?;
        self.folios.init(pfn, what);
        Ok(pfn)
    }
    /// Allocates and charges the frames of a folio that is not initialized yet and has no
    /// reference. [`LruRef::add_mapped`] makes it a folio, [`LruRef::free_initializing`] frees it.
    pub fn alloc_initializing(
        &self,
        node: NodeId,
        order: Order,
        gfp: Gfp,
        what: FolioInit,
    ) -> Result<Pfn, FolioError> {
        let pages = order.pages() as u32;
        let found = self.frames.alloc_pages_node(node, order, MigrateType::Movable, gfp);
        let pfn = found.map_err(FolioError::Frames)?;
        if let Err(why) = self.groups.charge(what.group, pages) {
            self.frames.free_pages(pfn, order);
            return Err(FolioError::Group(why));
        }
        let off = IrqGuard::<A>::new();
        self.groups.stats().count(&off, what.group, GroupEvent::FolioIn, 1);
        drop(off);
        self.folios.prepare(pfn, what);
        Ok(pfn)
    }
    /// Frees and uncharges the frames of [`LruRef::alloc_initializing`].
    pub fn free_initializing(&self, pfn: Pfn) {
        let mut gone = Taken::EMPTY;
        gone.push(pfn);
        self.free_all(gone.as_slice());
    }

    /// Adds an unlisted folio, of which the caller has a reference, to the LRU (`folio_add_lru`).
    /// It is then pending or already on its list.
    #[inline]
    pub fn add(&self, pfn: Pfn) {
        self.add_once(pfn, || {
            self.folios.make_pending(pfn);
        });
    }
    /// Initializes the frames of [`LruRef::alloc_initializing`] as a folio with `flags` and adds it
    /// to the LRU. The caller is about to map it once; the page-table entry owns the only
    /// reference.
    #[inline]
    pub fn add_mapped(&self, pfn: Pfn, flags: FolioFlags) {
        self.add_once(pfn, || self.folios.start_mapped(pfn, flags));
        self.count_mapped(pfn, flags, 1);
    }
    #[inline]
    fn add_once(&self, pfn: Pfn, make_pending: impl FnOnce()) {
        let _span = Span::<A>::enter(Func::FolioAddLru);
        A::work(Op::LruBatch, 1);
        // An RCU reader: `batches_off` waits for adds that have not seen its count.
        let reading = self.rcu.read();
        let own = self.lru.cpus.of(reading.cpu());
        let at_once = self.moves_at_once(pfn);
        if self.lru.pending() == Pending::Slot && !at_once {
            return self.add_to_slot(own, reading.cpu(), pfn, make_pending);
        }
        make_pending();
        A::trace(Trace::Lru(LruEvent::Pinned { folios: 1 }));
        if own.push(BatchKind::Add, pfn) || at_once {
            self.move_adds(&own.take(BatchKind::Add));
        }
    }

    /// Returns whether this folio does not wait for a full batch.
    #[inline]
    pub(super) fn moves_at_once(&self, pfn: Pfn) -> bool {
        // Pairs with the add in `batches_off` (drain.rs), whose grace period waits for CPUs that
        // miss it.
        self.table().word(pfn).order() > Order::ZERO
            || self.lru.disabled.load_uncharged(Acquire) != 0
    }

    /// Puts pending folios on their lists and drops the batch's references. Under `Freeze` and
    /// `Lazy`, folios that only the batch references are freed instead. Preemption is off.
    pub(super) fn move_adds(&self, taken: &Taken) {
        let _span = Span::<A>::enter(Func::FolioBatchMoveLru);
        let (mut joined, mut gone) = (Taken::EMPTY, Taken::EMPTY);
        let (mut dead, mut dead_pages) = (0, 0);
        let mut relock = Relock::new(*self);
        for &pfn in taken.as_slice() {
            if self.lru.policy.dead() == Dead::Freed
                && let Some(word) = self.reap(pfn)
            {
                self.note_death(pfn, word);
                dead_pages += self.pages_of(pfn);
                gone.push(pfn);
                continue;
            }
            if self.join(&mut relock, pfn).refs() == 1 {
                dead += 1;
                dead_pages += self.pages_of(pfn);
            }
            joined.push(pfn);
        }
        drop(relock);
        let (added, frozen) = (joined.as_slice().len(), gone.as_slice().len());
        A::trace(Trace::Lru(LruEvent::Move {
            kind: BatchKind::Add as u8,
            folios: (added + frozen) as u8,
            dead: (dead + frozen) as u8,
            freed: frozen as u8,
        }));
        if dead_pages > 0 {
            A::trace(Trace::Lru(LruEvent::Dead { pages: -(dead_pages as i32) }));
        }
        self.lru.tally().add_batches.add(1);
        self.lru.tally().added.add(added as u64);
        self.lru.tally().dead.add((dead + frozen) as u64);
        self.lru.tally().frozen.add(frozen as u64);
        self.drop_batch(&joined);
        self.free_all(gone.as_slice());
        A::trace(Trace::Lru(LruEvent::Pinned { folios: -((added + frozen) as i32) }));
    }

    /// Drops the batch's reference, which the caller has, if it is the last, and ends the folio.
    /// Returns its final state.
    fn reap(&self, pfn: Pfn) -> Option<FolioWord> {
        // A racing drop of another reference leaves the folio to the list.
        if self.folios.load_uncharged(pfn).refs() != 1 {
            return None;
        }
        let last = |word: FolioWord| {
            let after = word.without_refs().with(FolioFlags::empty(), FolioFlags::PENDING);
            (word.refs() == 1).then_some(after)
        };
        self.folios.update(pfn, last).ok()
    }

    /// Puts a pending folio, whose batch's reference the caller has, on its list. Returns the state
    /// before.
    pub(super) fn join(&self, relock: &mut Relock<'_, A>, pfn: Pfn) -> FolioWord {
        let location = relock.hold_of(pfn);
        let old = self.folios.pending_to_lru(pfn);
        let word = self.agree(pfn, old);
        // Written out for reclaim while it waited ([`LruRef::rotate_waiting`]).
        let written = old.has(FolioFlags::RECLAIM) && !old.has(FolioFlags::WRITEBACK);
        if written {
            self.folios.clear(pfn, FolioFlags::RECLAIM);
        }
        let goes = written && !word.has(FolioFlags::ACTIVE);
        let end = if goes { End::Tail } else { End::Head };
        relock.link_at(location, pfn, LruList::of(word), end);
        old
    }

    /// Makes `UNEVICTABLE` match `MLOCKED` for a folio whose state was `old` and whose lruvec lock
    /// the caller holds. Returns a state that names the right list.
    pub(super) fn agree(&self, pfn: Pfn, old: FolioWord) -> FolioWord {
        let (set, clear) = match (old.has(FolioFlags::MLOCKED), old.has(FolioFlags::UNEVICTABLE)) {
            (true, false) => (FolioFlags::UNEVICTABLE, FolioFlags::ACTIVE),
            (false, true) => (FolioFlags::empty(), FolioFlags::UNEVICTABLE),
            _ => return old,
        };
        self.folios.set_mlocks(pfn, old.has(FolioFlags::MLOCKED).into());
        let _ = self.folios.update(pfn, |word| Some(word.with(set, clear)));
        old.with(set, clear)
    }

    /// Ends the isolation of a folio that stayed on `list`; the lruvec lock is held.
    pub(super) fn restore(&self, relock: &mut Relock<'_, A>, pfn: Pfn, list: LruList) {
        let old = self.folios.set(pfn, FolioFlags::LRU);
        let right = LruList::of(self.agree(pfn, old));
        if right != list {
            relock.unlink(pfn, list);
            relock.link(pfn, right, End::Head);
        }
    }

    /// Gathers a folio for `kind`, which is not `Add`, with a reference of the batch's own.
    pub(super) fn gather(&self, kind: BatchKind, pfn: Pfn) {
        A::work(Op::LruBatch, 1);
        let reading = self.rcu.read();
        let own = self.lru.cpus.of(reading.cpu());
        self.folios.get(pfn);
        A::trace(Trace::Lru(LruEvent::Pinned { folios: 1 }));
        if own.push(kind, pfn) || self.moves_at_once(pfn) {
            self.move_others(kind, &own.take(kind));
        }
    }

    /// Carries out a batch of any kind but `Add` and drops its references. Preemption is off.
    pub(super) fn move_others(&self, kind: BatchKind, taken: &Taken) {
        let _span = Span::<A>::enter(Func::FolioBatchMoveLru);
        let mut relock = Relock::new(*self);
        for &pfn in taken.as_slice() {
            if self.folios.test_and_clear(pfn, FolioFlags::LRU) {
                self.move_one(&mut relock, kind, pfn);
            }
        }
        drop(relock);
        let folios = taken.as_slice().len();
        A::trace(Trace::Lru(LruEvent::Move {
            kind: kind as u8,
            folios: folios as u8,
            dead: 0,
            freed: 0,
        }));
        self.lru.tally().other_batches.add(1);
        self.drop_batch(taken);
        A::trace(Trace::Lru(LruEvent::Pinned { folios: -(folios as i32) }));
    }

    /// Moves a folio that the caller has isolated and that is still on its list.
    fn move_one(&self, relock: &mut Relock<'_, A>, kind: BatchKind, pfn: Pfn) {
        relock.hold_of(pfn);
        let word = self.folios.word(pfn);
        let list = LruList::of(word);
        let Some(next) = kind.change(word) else {
            return self.restore(relock, pfn, list);
        };
        relock.unlink(pfn, list);
        let set = (next.flags() - word.flags()) | FolioFlags::LRU;
        let clear = word.flags() - next.flags();
        let old = self.folios.update(pfn, |word| Some(word.with(set, clear)));
        let now = old.unwrap_or_else(|word| word).with(set, clear);
        let right = self.agree(pfn, now);
        relock.link(pfn, LruList::of(right), kind.end());
    }
}

impl BatchKind {
    /// Returns the state to which this kind changes a listed or pending folio; `None` if it does
    /// not.
    pub(super) fn change(self, word: FolioWord) -> Option<FolioWord> {
        let used = FolioFlags::ACTIVE | FolioFlags::REFERENCED;
        if word.has(FolioFlags::UNEVICTABLE) {
            return None;
        }
        match self {
            Self::Add => None,
            Self::Activate => (!word.has(FolioFlags::ACTIVE))
                .then_some(word.with(FolioFlags::ACTIVE, FolioFlags::REFERENCED)),
            Self::Deactivate => {
                word.has(FolioFlags::ACTIVE).then_some(word.with(FolioFlags::empty(), used))
            }
            Self::Lazyfree => {
                let kept = FolioFlags::ANON | FolioFlags::SWAP_BACKED;
                let free = word.has(kept) && !word.has(FolioFlags::SWAP_CACHE);
                free.then_some(word.with(FolioFlags::empty(), used | FolioFlags::SWAP_BACKED))
            }
            Self::MoveTail => Some(word.with(FolioFlags::empty(), FolioFlags::ACTIVE)),
        }
    }
    /// Returns the end of the list to which a folio of the new state `word` goes.
    fn end(self) -> End {
        match self {
            Self::MoveTail => End::Tail,
            _ => End::Head,
        }
    }
}

const _: () = assert!(BATCH <= u8::MAX as usize);
