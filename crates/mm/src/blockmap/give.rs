//! The way back: the CPU's words, and from them the map.

use super::bits::{self, Run, WORD_ORDER};
use super::cpu::{BlockCell, CpuCache, Fate, FreedTwice};
use super::head::{BLOCK_PAGES, Head};
use super::rooms::LARGEST_ROOM;
use super::{Appetite, BlockMap, WORDS, block_of, freed_twice};
use crate::arch::{Arch, Atomic, CpuId, Op, Order, Pfn};
use crate::frame::MigrateType;
use crate::sync::{Local, NoPreempt};
use core::sync::atomic::Ordering::{Acquire, Release, SeqCst};

impl<A: Arch> BlockMap<A> {
    /// Gives a block back that [`BlockMap::take_cached`] or [`BlockMap::claim`] gave out with the
    /// same `order`, if it is of the pageblock to which something came back last and nothing has to
    /// make room for it: no other CPU sees it happen. `false`: nothing was done. `pfn` may be
    /// another zone's.
    #[inline(always)]
    pub(crate) fn give_cached(&self, pinned: &impl NoPreempt<A>, pfn: Pfn, order: Order) -> bool {
        if order >= Order::PAGEBLOCK {
            return false;
        }
        let Some(cache) = self.caches.get(pinned.cpu()).and_then(Local::enter) else {
            return false;
        };
        let frame = self.index(pfn);
        let kept = match cache.fate(block_of(frame)) {
            Some(Fate::Again(kind)) => {
                self.check_once(&cache, (frame, order), kind);
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

    /// The same for a whole pageblock. It need not be remembered what becomes of it: the next one
    /// is another.
    #[inline(always)]
    pub(crate) fn give_whole_cached(&self, pinned: &impl NoPreempt<A>, pfn: Pfn) -> bool {
        let (order, frame) = (Order::PAGEBLOCK, self.index(pfn));
        let Some(head) = self.heads.get(block_of(frame)) else { return false };
        let Some(cache) = self.caches.get(pinned.cpu()).and_then(Local::enter) else {
            return false;
        };
        // Before the look: who isolates the block drains those who said so.
        self.say_filled(pinned.cpu());
        let head = Head(head.load(Acquire));
        if !head.is_used_up_by(order) {
            return false;
        }
        self.check_once(&cache, (frame, order), head.kind());
        let kept = cache.stacks.push(frame, order, head.kind());
        if kept {
            A::work(Op::PcpPut, 1);
        }
        kept
    }

    /// What becomes of what comes back to `block`, and from now on to this pageblock if all of it
    /// is the zone's: nobody asks then whose a frame of it is.
    #[inline]
    fn learn_fate(&self, cache: &CpuCache, block: usize, cpu: CpuId) -> Option<Fate> {
        // Before the look: who isolates the block drains those who said so.
        self.say_filled(cpu);
        let fate = self.fate(block, cpu)?;
        if self.complete.contains(&block) {
            cache.set_fate(block, fate);
        }
        Some(fate)
    }

    /// What becomes of blocks that come back to a pageblock; `None`: they stay there, for it is
    /// isolated.
    ///
    /// Blocks of a pageblock that is in full use otherwise, or that this CPU is using up, are the
    /// next to be handed out. Those of others go home, so that the pageblock may become whole.
    #[inline]
    fn fate(&self, block: usize, cpu: CpuId) -> Option<Fate> {
        let head = self.head(block);
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

    /// The same wherever the block belongs: whether it went onto a stack and nothing had to make
    /// room for it. `change` is as for `claim`.
    ///
    /// Panics if a frame of it turns out to be free already. That is found out when the frame meets
    /// itself on its way home, and in checked builds on this CPU's stacks; otherwise a frame freed
    /// twice may be handed out twice in between, and a pageblock that two CPUs send home at the
    /// same moment counts as free twice. Records of frames, where they are kept, find it at once.
    pub(crate) fn give(
        &self,
        pinned: &impl NoPreempt<A>,
        (pfn, order): (Pfn, Order),
        appetite: Appetite,
        change: &mut i64,
    ) -> bool {
        let cpu = pinned.cpu();
        let small = |cache: &CpuCache| order < Order::PAGEBLOCK || cache.stacks.take_in(order);
        let cache = self.caches.of(cpu).enter().filter(|cache| small(cache));
        let Some(cache) = cache else {
            self.give_large(pinned, (pfn, order), appetite, change);
            return false;
        };
        A::work(Op::PcpPut, 1);
        let frame = self.index(pfn);
        if order == Order::PAGEBLOCK && self.head(block_of(frame)).held() != Some(order) {
            freed_twice(pfn);
        }
        let fate = if appetite == Appetite::Scarce {
            None
        } else {
            self.learn_fate(&cache, block_of(frame), cpu)
        };
        let Some(fate) = fate else {
            cache.account(self.put_block(frame, order));
            return false;
        };
        match fate {
            Fate::Again(kind) if cache.stacks.take_in(order) => {
                self.stack((&cache, cpu), (frame, order), kind)
            }
            _ => {
                self.send_home(&cache, frame, order);
                false
            }
        }
    }

    /// Puts a block on top of its stack, where there is room for such blocks once others have gone.
    /// Whether none had to.
    fn stack(
        &self,
        (cache, cpu): (&CpuCache, CpuId),
        (frame, order): (u32, Order),
        kind: MigrateType,
    ) -> bool {
        self.check_once(cache, (frame, order), kind);
        let kept = cache.stacks.push(frame, order, kind);
        if !kept {
            self.stack_after_others((cache, cpu), (frame, order), kind);
        }
        kept
    }

    /// The same once others have gone. Apart, so that whoever finds room need not prepare for it.
    #[inline(never)]
    fn stack_after_others(
        &self,
        (cache, cpu): (&CpuCache, CpuId),
        (frame, order): (u32, Order),
        kind: MigrateType,
    ) {
        while !cache.stacks.push(frame, order, kind) {
            self.shed(cache, cpu, order, kind);
        }
    }

    /// Sends a block to the map, with others of its word if there are any.
    #[inline(never)]
    fn send_home(&self, cache: &CpuCache, frame: u32, order: Order) {
        if order.get() >= WORD_ORDER {
            cache.account(self.put_block(frame, order));
        } else if let Some(run) = self.go_home(cache, frame, order) {
            A::work(Op::BuddyPut, 1);
            cache.account(self.put_back(run));
        }
    }

    /// Has a block, smaller than a word, wait for others of its word; what is to go home now.
    #[inline]
    pub(super) fn go_home(&self, cache: &CpuCache, frame: u32, order: Order) -> Option<Run> {
        let (word, bit) = bits::split(frame);
        let run = Run { word, frames: bits::run(order, bit) };
        match cache.go_home(run, order.pages() as u32) {
            Ok(gone) => gone,
            Err(FreedTwice) => freed_twice(self.pfn(frame)),
        }
    }

    #[cold]
    fn give_large(
        &self,
        pinned: &impl NoPreempt<A>,
        (pfn, order): (Pfn, Order),
        appetite: Appetite,
        change: &mut i64,
    ) {
        let gained = if order < Order::PAGEBLOCK {
            self.put_block(self.index(pfn), order)
        } else {
            let cache = self.caches.of(pinned.cpu()).enter();
            // Where memory is short others may want it at once.
            let keeper = cache.as_ref().filter(|_| appetite == Appetite::Ample);
            let spare = keeper.map(|cache| (&cache.spare, pinned.cpu()));
            self.put_whole(self.block_of(pfn), order, spare)
        };
        match self.caches.of(pinned.cpu()).enter() {
            Some(cache) => _ = cache.account(gained),
            None => *change += gained,
        }
    }

    /// Gives a block up to a pageblock's order to the map; returns by how many pages the zone's
    /// free pages grow.
    pub(super) fn put_block(&self, frame: u32, order: Order) -> i64 {
        A::work(Op::BuddyPut, 1);
        let (word, bit) = bits::split(frame);
        if order.get() <= WORD_ORDER {
            return self.put_back(Run { word, frames: bits::run(order, bit) });
        }
        let (block, at) = (word as usize / WORDS, word as usize % WORDS);
        if order == Order::PAGEBLOCK {
            return self.put_whole(block, order, None);
        }
        (at..at + (order.pages() >> WORD_ORDER)).for_each(|at| self.clear_word(block, at));
        self.uncount(block, order.pages() as u64, order.get())
    }

    /// Gives frames of one word to the map; returns by how many pages the zone's free pages grow.
    fn put_back(&self, run: Run) -> i64 {
        let (block, at) = (run.word as usize / WORDS, run.word as usize % WORDS);
        let free = self.clear(block, at, run.frames);
        self.uncount(block, run.frames.count_ones().into(), bits::largest(free))
    }

    /// Clears the bits of frames that are in use; what is free of their word now.
    #[inline]
    pub(super) fn clear(&self, block: usize, at: usize, frames: u64) -> u64 {
        let before = self.words[block].0[at].fetch_and(!frames, SeqCst);
        self.check_used(block, at, frames & !before);
        !before | frames
    }

    /// The same with all frames of a block.
    #[inline]
    pub(super) fn clear_all(&self, block: usize) {
        let words = &self.words[block].0;
        let used = words.iter().fold(!0, |used, word| used & word.load(Acquire));
        if used != !0 {
            (0..WORDS).for_each(|at| self.clear_word(block, at));
        }
        words.iter().for_each(|word| word.store(0, Release));
    }

    /// The same with all frames of a word: nobody else can be giving any back, and nobody takes
    /// what is not free.
    #[inline]
    pub(super) fn clear_word(&self, block: usize, at: usize) {
        let word = &self.words[block].0[at];
        let before = word.load(Acquire);
        word.store(0, Release);
        self.check_used(block, at, !before);
    }

    #[inline]
    fn check_used(&self, block: usize, at: usize, twice: u64) {
        if twice != 0 {
            freed_twice(self.frame((block * WORDS + at) as u32, twice.trailing_zeros()));
        }
    }

    /// Counts frames of a block, whose bits are clear, as free, and puts the block where it is
    /// found now, also as one with a free block of order `largest`; returns by how many pages the
    /// zone's free pages grow.
    pub(super) fn uncount(&self, block: usize, pages: u64, largest: u8) -> i64 {
        let before = Head(self.heads[block].fetch_sub(pages, SeqCst));
        let after = Head(before.0 - pages);
        let room = match after.free() {
            // Perhaps: words may be free, but no two side by side. Or none is by now: who is inside
            // may have taken these frames before they were counted.
            free if largest >= WORD_ORDER => {
                LARGEST_ROOM.min((free | 1).ilog2() as u8).max(largest)
            }
            _ => largest,
        };
        self.rooms.note(block, room);
        if before.is_isolated() {
            return 0;
        }
        if !before.is_owned() && (after.used() == 0 || after.fill() != before.fill()) {
            self.file(block, after);
        }
        pages as i64
    }

    /// Gives one or two blocks back that were held whole. One stays a CPU's as its spare if that
    /// is given and empty.
    fn put_whole(&self, block: usize, order: Order, spare: Option<(&BlockCell, CpuId)>) -> i64 {
        let mut gained = 0;
        let single = order == Order::PAGEBLOCK;
        let mut spare = spare.filter(|(spare, _)| spare.get().is_none() && single);
        for block in block..block + (order.pages() >> Order::PAGEBLOCK.get()) {
            let head = self.release(block, order, spare.map(|(_, cpu)| cpu));
            match spare.take_if(|_| head.is_owned()) {
                Some((spare, _)) => spare.set(block),
                None => self.file(block, head),
            }
            gained += if head.is_isolated() { 0 } else { BLOCK_PAGES as i64 };
        }
        gained
    }

    /// Makes a pageblock free that is held as part of a block of `order`: a CPU's, if one is given,
    /// unless it is isolated. What its head says then.
    #[inline]
    pub(super) fn release(&self, block: usize, order: Order, keeper: Option<CpuId>) -> Head {
        loop {
            let head = self.head(block);
            if head.held() != Some(order) {
                freed_twice(self.frame((block * WORDS) as u32, 0));
            }
            let keeper = keeper.filter(|_| !head.is_isolated());
            let after = keeper.map_or(head.as_whole(), |cpu| head.as_whole().owned(cpu));
            if self.change(block, head, after) {
                return after;
            }
        }
    }
}
