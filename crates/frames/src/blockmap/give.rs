//! The way back: the CPU's words, and from them the map.

use super::bits::{self, Run, WORD_ORDER};
use super::cpu::{CpuCache, FreeTo, FreedTwice};
use super::head::Head;
use super::stack_layout::LARGE;
use super::{BlockMap, Refill, block_of, freed_twice};
use crate::frame::MigrateType;
use core::sync::atomic::Ordering::Acquire;
use mmscale_arch::sync::{Local, LocalGuard, NoPreempt};
use mmscale_arch::{Atomic, Cpu, CpuId, Op, Order, Pfn, planted};

/// A CPU's cache, which nobody else on that CPU uses now.
pub(crate) struct Entered<'a>(LocalGuard<'a, CpuCache>);

impl<A: Cpu> BlockMap<A> {
    /// This CPU's cache; `None`: this is an interrupt in the middle of an allocation or a free.
    #[inline(always)]
    pub(crate) fn enter_cache(&self, pinned: &impl NoPreempt<A>) -> Option<Entered<'_>> {
        self.caches.get(pinned.cpu()).and_then(Local::enter).map(Entered)
    }

    /// Gives a part of a pageblock back that [`BlockMap::take_cached`] or [`BlockMap::claim`] gave
    /// out with the same `order`, if it is of the pageblock to which something came back last and
    /// nothing has to make room for it: no other CPU sees it happen. `false`: nothing was done.
    /// `pfn` may be another zone's.
    #[inline(always)]
    pub(crate) fn keep_part(&self, cache: &Entered<'_>, pfn: Pfn, order: Order) -> bool {
        debug_assert!(order < Order::PAGEBLOCK, "those go another way");
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

    /// The same for a part of any pageblock of the zone, where there is memory enough to keep some;
    /// what the cache has not counted then.
    ///
    /// Panics if a frame of it turns out to be free already. That is found out when the frame meets
    /// itself on its way home, and in checked builds on this CPU's stacks; otherwise a frame freed
    /// twice may be handed out twice in between, and a pageblock that two CPUs send home at the
    /// same moment counts as free twice. Records of frames, where they are kept, find it at once.
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

    /// The same for less than a word.
    #[inline(always)]
    pub(crate) fn give_small(
        &self,
        Entered(cache): Entered<'_>,
        cpu: CpuId,
        (pfn, order): (Pfn, Order),
    ) -> i64 {
        A::work(Op::PcpPut, 1);
        let frame = self.index(pfn);
        match self.choose_free_to(&cache, block_of(frame), cpu) {
            Some(FreeTo::Stack(kind)) if self.stack((&cache, cpu), (frame, order), kind) => {}
            Some(_) => {
                // The place may be another word's, whose frames go then.
                if let Some((run, pages)) = self.defer_free(&cache, frame, order) {
                    A::work(Op::BuddyPut, 1);
                    return cache.account(self.put_back(run, pages));
                }
            }
            None => return cache.account(self.put_block(frame, order)),
        }
        cache.delta()
    }

    /// The same for a word or more.
    #[inline(always)]
    pub(crate) fn give_large(
        &self,
        Entered(cache): Entered<'_>,
        cpu: CpuId,
        (pfn, order): (Pfn, Order),
    ) -> i64 {
        A::work(Op::PcpPut, 1);
        let frame = self.index(pfn);
        // Before the look, as in `choose_free_to`; and it owes the counter if it keeps nothing.
        self.mark_nonempty(cpu);
        let head = self.head(block_of(frame));
        // Asked first: where they come back at random places nobody could foretell what becomes of
        // them, but that there is no room.
        if cache.stacks.has_room(order, head.kind()) {
            if let Some(FreeTo::Stack(kind)) =
                self.remember_free_to(&cache, block_of(frame), head, cpu)
            {
                self.check_once(&cache, (frame, order), kind);
                cache.stacks.push(frame, order, kind);
                return cache.delta();
            }
        } else if cache.stacks.begins_with_pageblock(order, head.kind())
            && let Some(FreeTo::Stack(kind)) =
                self.remember_free_to(&cache, block_of(frame), head, cpu)
            && self.stack((&cache, cpu), (frame, order), kind)
        {
            return cache.delta();
        }
        cache.account(self.put_words(frame, order))
    }

    /// The same for a whole pageblock. It need not be remembered what becomes of it: the next one
    /// is another.
    #[inline(always)]
    pub(crate) fn give_whole_cached(&self, pinned: &impl NoPreempt<A>, pfn: Pfn) -> bool {
        let (order, frame) = (Order::PAGEBLOCK, self.index(pfn));
        let Some(cache) = self.caches.get(pinned.cpu()).and_then(Local::enter) else {
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

    /// What becomes of what comes back to `block`, and from now on to this pageblock if all of it
    /// is the zone's: nobody asks then whose a frame of it is.
    #[inline]
    fn choose_free_to(&self, cache: &CpuCache, block: usize, cpu: CpuId) -> Option<FreeTo> {
        // Before the look: who isolates the block drains those who said so, as this CPU has if it
        // remembers anything.
        if cache.has_no_recent() && !planted!(BlockmapFilledLate) {
            self.mark_nonempty(cpu);
        }
        let head = self.head(block);
        if planted!(BlockmapFilledLate) {
            self.mark_nonempty(cpu);
        }
        self.remember_free_to(cache, block, head, cpu)
    }

    /// The same where this CPU has said that it keeps something before it looked at the head.
    #[inline(always)]
    fn remember_free_to(
        &self,
        cache: &CpuCache,
        block: usize,
        head: Head,
        cpu: CpuId,
    ) -> Option<FreeTo> {
        let to = Self::free_to(head, cpu)?;
        if self.complete.contains(&block) {
            cache.set_recent(block, to);
        }
        Some(to)
    }

    /// What becomes of blocks that come back to a pageblock with this head; `None`: they stay
    /// there, for it is isolated.
    ///
    /// Blocks of a pageblock that is in full use otherwise, or that this CPU is using up, are the
    /// next to be handed out. Those of others go home, so that the pageblock may become whole.
    #[inline]
    fn free_to(head: Head, cpu: CpuId) -> Option<FreeTo> {
        if head.is_isolated() {
            None
        } else if head.is_full() || head.owned_by(cpu) {
            Some(FreeTo::Stack(head.kind()))
        } else {
            Some(FreeTo::Bitmap)
        }
    }

    /// In checked builds: panics if a block that comes back is on its stack already.
    #[inline]
    fn check_once(&self, cache: &CpuCache, (frame, order): (u32, Order), kind: MigrateType) {
        if cfg!(debug_assertions) && cache.stacks.has(frame, order, kind) {
            freed_twice(self.pfn(frame));
        }
    }

    /// Puts a block on top of its stack, if there is room, be it that others go home for it. Of
    /// large ones they do so where the oldest of their stack look like those of one pageblock; one
    /// by one it is the new one that may as well.
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

    /// Has a block, smaller than a word, wait for others of its word; what is to go home now, and
    /// how many pages those are.
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

    /// Gives any block back: a pageblock or more, a part where memory is short, or whatever comes
    /// back in an interrupt in the middle of an allocation or a free. `change` is as for `claim`.
    #[inline(never)]
    pub(crate) fn give(
        &self,
        pinned: &impl NoPreempt<A>,
        (pfn, order): (Pfn, Order),
        refill: Refill,
        change: &mut i64,
    ) {
        let (cpu, frame) = (pinned.cpu(), self.index(pfn));
        let cache = self.caches.of(cpu).enter();
        // Where memory is short others may want it at once.
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

    /// The type of a pageblock that is held as one block and that a CPU may keep.
    #[inline(always)]
    fn held_kind(&self, block: usize, cpu: CpuId) -> Option<MigrateType> {
        // Before the look: who isolates the block drains those who said so.
        self.mark_nonempty(cpu);
        let head = Head(self.heads.get(block)?.load(Acquire));
        head.is_fully_used_by(Order::PAGEBLOCK).then_some(head.kind())
    }
}
