//! The way back: the CPU's words, and from them the map.

use super::bits::{self, Run, WORD_ORDER};
use super::cpu::{CpuCache, Fate, FreedTwice};
use super::head::Head;
use super::places::LARGE;
use super::{Appetite, BlockMap, block_of, freed_twice};
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
        let kept = match cache.fate(block_of(frame)) {
            Some(Fate::Again(kind)) => {
                self.check_once(cache, (frame, order), kind);
                cache.stacks.push(frame, order, kind)
            }
            Some(Fate::Home) if order.get() < WORD_ORDER => {
                let (word, bit) = bits::split(frame);
                let run = Run { word, frames: bits::run(order, bit) };
                cache.join_home(run, order.pages() as u32)
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
        match self.learn_fate(&cache, block_of(frame), cpu) {
            Some(Fate::Again(kind)) if self.stack((&cache, cpu), (frame, order), kind) => {}
            Some(_) => {
                // The place may be another word's, whose frames go then.
                if let Some((run, pages)) = self.go_home(&cache, frame, order) {
                    A::work(Op::BuddyPut, 1);
                    return cache.account(self.put_back(run, pages));
                }
            }
            None => return cache.account(self.put_block(frame, order)),
        }
        cache.uncounted()
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
        // Before the look, as in `learn_fate`; and it owes the counter if it keeps nothing.
        self.say_filled(cpu);
        let head = self.head(block_of(frame));
        // Asked first: where they come back at random places nobody could foretell what becomes of
        // them, but that there is no room.
        if cache.stacks.has_room(order, head.kind()) {
            if let Some(Fate::Again(kind)) = self.remember_fate(&cache, block_of(frame), head, cpu)
            {
                self.check_once(&cache, (frame, order), kind);
                cache.stacks.push(frame, order, kind);
                return cache.uncounted();
            }
        } else if cache.stacks.begins_with_pageblock(order, head.kind())
            && let Some(Fate::Again(kind)) = self.remember_fate(&cache, block_of(frame), head, cpu)
            && self.stack((&cache, cpu), (frame, order), kind)
        {
            return cache.uncounted();
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
    fn learn_fate(&self, cache: &CpuCache, block: usize, cpu: CpuId) -> Option<Fate> {
        // Before the look: who isolates the block drains those who said so, as this CPU has if it
        // remembers anything.
        if cache.remembers_nothing() && !planted!(BlockmapFilledLate) {
            self.say_filled(cpu);
        }
        let head = self.head(block);
        if planted!(BlockmapFilledLate) {
            self.say_filled(cpu);
        }
        self.remember_fate(cache, block, head, cpu)
    }

    /// The same where this CPU has said that it keeps something before it looked at the head.
    #[inline(always)]
    fn remember_fate(
        &self,
        cache: &CpuCache,
        block: usize,
        head: Head,
        cpu: CpuId,
    ) -> Option<Fate> {
        let fate = Self::fate(head, cpu)?;
        if self.complete.contains(&block) {
            cache.set_fate(block, fate);
        }
        Some(fate)
    }

    /// What becomes of blocks that come back to a pageblock with this head; `None`: they stay
    /// there, for it is isolated.
    ///
    /// Blocks of a pageblock that is in full use otherwise, or that this CPU is using up, are the
    /// next to be handed out. Those of others go home, so that the pageblock may become whole.
    #[inline]
    fn fate(head: Head, cpu: CpuId) -> Option<Fate> {
        if head.is_isolated() {
            None
        } else if head.is_full() || head.owned_by(cpu) {
            Some(Fate::Again(head.kind()))
        } else {
            Some(Fate::Home)
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
            self.shed(cache, cpu, order, kind);
        }
        true
    }

    /// Has a block, smaller than a word, wait for others of its word; what is to go home now, and
    /// how many pages those are.
    #[inline(always)]
    pub(super) fn go_home(&self, cache: &CpuCache, frame: u32, order: Order) -> Option<(Run, u32)> {
        let (word, bit) = bits::split(frame);
        let run = Run { word, frames: bits::run(order, bit) };
        match cache.go_home(run, order.pages() as u32) {
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
        appetite: Appetite,
        change: &mut i64,
    ) {
        let (cpu, frame) = (pinned.cpu(), self.index(pfn));
        let cache = self.caches.of(cpu).enter();
        // Where memory is short others may want it at once.
        let keeper = cache.as_ref().filter(|_| appetite == Appetite::Ample);
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
        self.say_filled(cpu);
        let head = Head(self.heads.get(block)?.load(Acquire));
        head.is_used_up_by(Order::PAGEBLOCK).then_some(head.kind())
    }
}
