//! Frees: to the CPU's cache, and from there to the map.
//!
//! A block that is freed to a nearly full pageblock, or to one that the CPU owns, goes onto the
//! CPU's stack: it is allocated again soon. Other blocks go to the bitmap, so that their pageblock
//! may become whole; blocks smaller than a word first wait among the pending frees.

use super::bits::{self, Run, WORD_ORDER};
use super::cpu::{CpuCache, FreeTo, FreedTwice};
use super::head::Head;
use super::stack_layout::LARGE;
use super::{BlockMap, Refill, block_of, freed_twice};
use crate::frame::MigrateType;
use core::sync::atomic::Ordering::Acquire;
use mmscale_arch::sync::{Local, LocalGuard, NoPreempt};
use mmscale_arch::{Atomic, Cpu, CpuId, Op, Order, Pfn};

/// A CPU's cache, in use by the caller alone.
pub(crate) struct Entered<'a>(LocalGuard<'a, CpuCache>);

impl<A: Cpu> BlockMap<A> {
    /// Enters this CPU's cache. Returns `None` in an interrupt that came while the CPU uses it.
    #[inline(always)]
    pub(crate) fn enter_cache(&self, pinned: &impl NoPreempt<A>) -> Option<Entered<'_>> {
        self.caches.get(pinned.cpu()).and_then(Local::enter::<A>).map(Entered)
    }

    /// Frees a block below a pageblock's order into the cache, without any operation that other
    /// CPUs can observe. [`BlockMap::take_cached`] or [`BlockMap::claim`] returned it with the same
    /// `order`. Returns `false`, and does nothing, unless its pageblock is that of the last free
    /// and the cache has room. `pfn` may be another zone's.
    #[inline(always)]
    pub(crate) fn keep_part(&self, cache: &Entered<'_>, pfn: Pfn, order: Order) -> bool {
        debug_assert!(order < Order::PAGEBLOCK, "pageblocks are freed by other functions");
        let (frame, cache) = (self.index(pfn), &cache.0);
        let kept = match cache.recent_free_to(block_of(frame)) {
            Some(FreeTo::Stack(kind)) => {
                self.check_once(cache, (frame, order), kind);
                cache.stacks.push(frame, order, kind)
            }
            Some(FreeTo::Bitmap) if order.get() < WORD_ORDER => {
                let (word, bit) = bits::split(frame);
                let run = Run { word, frames: bits::run(order, bit) };
                cache.join_pending(run, order.pages() as u32)
            }
            _ => false,
        };
        if kept {
            A::work(Op::PcpPut, 1);
        }
        kept
    }

    /// Frees a block below a pageblock's order of any pageblock of the zone, where memory is not
    /// short. Returns the cache's delta.
    ///
    /// Panics if it finds that a frame is free already: among the pending frees, in the map, and in
    /// checked builds on this CPU's stacks. A double free may stay undetected until then; the frame
    /// may be allocated twice meanwhile, and a pageblock that two CPUs free at the same time may be
    /// counted as free twice. Records of frames, if there are any, detect every double free.
    #[inline(always)]
    pub(crate) fn give_part(
        &self,
        cache: Entered<'_>,
        cpu: CpuId,
        (pfn, order): (Pfn, Order),
    ) -> i64 {
        if order.get() < WORD_ORDER {
            self.give_small(cache, cpu, (pfn, order))
        } else {
            self.give_large(cache, cpu, (pfn, order))
        }
    }

    /// Frees a block below a word's order, as [`BlockMap::give_part`].
    #[inline(always)]
    pub(crate) fn give_small(
        &self,
        Entered(cache): Entered<'_>,
        cpu: CpuId,
        (pfn, order): (Pfn, Order),
    ) -> i64 {
        A::work(Op::PcpPut, 1);
        let frame = self.index(pfn);
        match self.choose_free_to(&cache, (frame, order), cpu) {
            Some(FreeTo::Stack(kind)) if self.stack((&cache, cpu), (frame, order), kind) => {}
            Some(_) => {
                // The entry may be another word's, whose frames are freed to the map then.
                if let Some((run, pages)) = self.defer_free(&cache, frame, order) {
                    A::work(Op::BuddyPut, 1);
                    return cache.account(self.put_back(run, pages));
                }
            }
            None => return cache.account(self.put_block(frame, order)),
        }
        cache.delta()
    }

    /// Frees a block of a word or more, as [`BlockMap::give_part`].
    #[inline(always)]
    pub(crate) fn give_large(
        &self,
        Entered(cache): Entered<'_>,
        cpu: CpuId,
        (pfn, order): (Pfn, Order),
    ) -> i64 {
        A::work(Op::PcpPut, 1);
        let frame = self.index(pfn);
        // Before the head is read, as in `choose_free_to`. If the block goes to the map, the cache
        // has a delta.
        self.mark_nonempty(cpu);
        let head = self.head(block_of(frame));
        let freed = (frame, order);
        if head.is_isolated_or_incomplete() {
            self.check_present(freed);
        }
        // Checked first: if blocks are freed in random order, their destination is unpredictable,
        // but a full stack is likely.
        if cache.stacks.has_room(order, head.kind()) {
            if let Some(FreeTo::Stack(kind)) = self.remember_free_to(&cache, freed, head, cpu) {
                self.check_once(&cache, freed, kind);
                cache.stacks.push(frame, order, kind);
                return cache.delta();
            }
        } else if cache.stacks.begins_with_pageblock(order, head.kind())
            && let Some(FreeTo::Stack(kind)) = self.remember_free_to(&cache, freed, head, cpu)
            && self.stack((&cache, cpu), freed, kind)
        {
            return cache.delta();
        }
        cache.account(self.put_words(frame, order))
    }

    /// Frees a whole pageblock onto the CPU's stack; returns `false`, and does nothing, if it
    /// cannot. Unlike [`BlockMap::give_part`] it does not record the pageblock: the next free is to
    /// another one.
    #[inline(always)]
    pub(crate) fn give_whole_cached(&self, pinned: &impl NoPreempt<A>, pfn: Pfn) -> bool {
        let (order, frame) = (Order::PAGEBLOCK, self.index(pfn));
        let Some(cache) = self.caches.get(pinned.cpu()).and_then(Local::enter::<A>) else {
            return false;
        };
        let Some(kind) = self.held_kind(block_of(frame), pinned.cpu()) else { return false };
        self.check_once(&cache, (frame, order), kind);
        let kept = cache.stacks.push(frame, order, kind);
        if kept {
            A::work(Op::PcpPut, 1);
        }
        kept
    }

    /// Decides the destination of a free, `None` if its pageblock is isolated. Records it for later
    /// frees to the pageblock, unless that lacks frames: later frees check nothing of the kind.
    ///
    /// Panics if the zone lacks a frame of the block.
    #[inline]
    fn choose_free_to(
        &self,
        cache: &CpuCache,
        (frame, order): (u32, Order),
        cpu: CpuId,
    ) -> Option<FreeTo> {
        // Before the head is read: an isolator drains CPUs whose flag is set. It is set already if
        // a pageblock is recorded.
        if cache.has_no_recent() {
            self.mark_nonempty(cpu);
        }
        let head = self.head(block_of(frame));
        self.remember_free_to(cache, (frame, order), head, cpu)
    }

    /// As [`BlockMap::choose_free_to`], for a caller that has set this CPU's flag before it read
    /// `head`.
    #[inline(always)]
    fn remember_free_to(
        &self,
        cache: &CpuCache,
        (frame, order): (u32, Order),
        head: Head,
        cpu: CpuId,
    ) -> Option<FreeTo> {
        if head.is_isolated_or_incomplete() {
            return self.free_to_unusual((frame, order), head, cpu);
        }
        let to = Self::free_to(head, cpu);
        cache.set_recent(block_of(frame), to);
        Some(to)
    }

    /// As [`BlockMap::choose_free_to`], for a pageblock that is isolated or lacks frames.
    #[cold]
    fn free_to_unusual(
        &self,
        (frame, order): (u32, Order),
        head: Head,
        cpu: CpuId,
    ) -> Option<FreeTo> {
        self.check_present((frame, order));
        (!head.is_isolated()).then(|| Self::free_to(head, cpu))
    }

    /// Panics if a frame of a block is outside of the zone or in a hole of it: its bit is set, as
    /// if it were in use.
    fn check_present(&self, (frame, order): (u32, Order)) {
        let first = self.pfn(frame).index();
        if let Some(missing) = self.extent.first_missing(first..first + order.pages()) {
            panic!("frame {missing} freed, but its zone has no such frame");
        }
    }

    /// The destination of frees to a pageblock with this head.
    ///
    /// Blocks of a pageblock that is nearly full, or that this CPU owns, are the next to be
    /// allocated. Blocks of others go to the bitmap, so that the pageblock may become whole.
    #[inline]
    fn free_to(head: Head, cpu: CpuId) -> FreeTo {
        if head.is_full() || head.owned_by(cpu) {
            FreeTo::Stack(head.kind())
        } else {
            FreeTo::Bitmap
        }
    }

    /// In checked builds: panics if a freed block is on its stack already.
    #[inline]
    fn check_once(&self, cache: &CpuCache, (frame, order): (u32, Order), kind: MigrateType) {
        if cfg!(debug_assertions) && cache.stacks.has(frame, order, kind) {
            freed_twice(self.pfn(frame));
        }
    }

    /// Pushes a block onto its stack, and evicts others if there is no room. Returns `false` if it
    /// cannot. For large orders it evicts only if the oldest blocks of the stack seem to be a whole
    /// pageblock; otherwise the caller frees the new block to the map instead.
    #[inline(never)]
    fn stack(
        &self,
        (cache, cpu): (&CpuCache, CpuId),
        (frame, order): (u32, Order),
        kind: MigrateType,
    ) -> bool {
        self.check_once(cache, (frame, order), kind);
        if cache.stacks.push(frame, order, kind) {
            return true;
        }
        let large = order.get() >= LARGE;
        if !cache.stacks.take_in(order) || large && !cache.stacks.begins_with_pageblock(order, kind)
        {
            return false;
        }
        while !cache.stacks.push(frame, order, kind) {
            self.evict(cache, cpu, order, kind);
        }
        true
    }

    /// Adds a block, smaller than a word, to the pending frees. Returns the frames that the caller
    /// must free to the map now, and their number. Panics on a double free.
    #[inline(always)]
    pub(super) fn defer_free(
        &self,
        cache: &CpuCache,
        frame: u32,
        order: Order,
    ) -> Option<(Run, u32)> {
        let (word, bit) = bits::split(frame);
        let run = Run { word, frames: bits::run(order, bit) };
        match cache.add_pending(run, order.pages() as u32) {
            Ok(gone) => gone,
            Err(FreedTwice) => freed_twice(self.pfn(frame)),
        }
    }

    /// Frees any block: a pageblock or more, a smaller one where memory is short, or any in an
    /// interrupt that came while the CPU uses its cache. `change` is as in [`BlockMap::claim`].
    #[inline(never)]
    pub(crate) fn give(
        &self,
        pinned: &impl NoPreempt<A>,
        (pfn, order): (Pfn, Order),
        refill: Refill,
        change: &mut i64,
    ) {
        let (cpu, frame) = (pinned.cpu(), self.index(pfn));
        let cache = self.caches.of(cpu).enter::<A>();
        // Where memory is short, the block must be available to other CPUs.
        let keeper = cache.as_ref().filter(|_| refill == Refill::Batch);
        if order == Order::PAGEBLOCK
            && let Some(cache) = keeper
            && let Some(kind) = self.held_kind(block_of(frame), cpu)
            && self.stack((cache, cpu), (frame, order), kind)
        {
            A::work(Op::PcpPut, 1);
            return;
        }
        let gained = if order < Order::PAGEBLOCK {
            A::work(Op::PcpPut, 1);
            self.check_present((frame, order));
            self.put_block(frame, order)
        } else {
            let spare = keeper.map(|cache| (&cache.spare, cpu));
            self.put_whole(block_of(frame), order, spare)
        };
        match cache {
            Some(cache) => _ = cache.account(gained),
            None => *change += gained,
        }
    }

    /// The type of a pageblock that is held as one block and that a CPU may cache; `None` if it is
    /// isolated, or not such a block.
    #[inline(always)]
    fn held_kind(&self, block: usize, cpu: CpuId) -> Option<MigrateType> {
        // Before the head is read: an isolator drains CPUs whose flag is set.
        self.mark_nonempty(cpu);
        let head = Head(self.heads.get(block)?.load(Acquire));
        head.is_fully_used_by(Order::PAGEBLOCK).then_some(head.kind())
    }
}
