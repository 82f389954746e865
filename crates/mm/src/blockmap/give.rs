//! The way back: the CPU's words, and from them the map.

use super::bits::{self, WORD_ORDER};
use super::cpu::{BlockCell, CpuCache, Joined, List, Run};
use super::head::{BLOCK_PAGES, Head};
use super::{Appetite, BlockMap, WORDS, freed_twice};
use crate::arch::{Arch, Atomic, CpuId, Op, Order, Pfn};
use crate::sync::NoPreempt;
use core::sync::atomic::Ordering::{AcqRel, SeqCst};

impl<A: Arch> BlockMap<A> {
    /// Gives a block back that [`BlockMap::take_cached`] or [`BlockMap::claim`] gave out with the
    /// same `order`, if this CPU has something of its word: no other CPU sees it happen. `false`:
    /// nothing was done.
    #[inline]
    pub(crate) fn give_cached(&self, pinned: &impl NoPreempt<A>, pfn: Pfn, order: Order) -> bool {
        if order.get() > WORD_ORDER {
            return false;
        }
        let Some(cache) = self.caches.of(pinned.cpu()).enter() else { return false };
        let (word, bit) = self.place(pfn);
        let run = Run { word, frames: bits::run(order, bit) };
        let joined = cache.join(run, order.pages() as u32) == Joined::Yes;
        if joined {
            A::work(Op::PcpPut, 1);
        }
        joined
    }

    /// The same wherever the block belongs. `change` is as for `claim`.
    ///
    /// Panics if a frame of it turns out to be free already. That is found out when the frame
    /// meets itself in this CPU's cache or on its way to the map; a frame freed twice by two CPUs
    /// may be handed out once in between. Records of frames, where they are kept, find it at once.
    pub(crate) fn give(
        &self,
        pinned: &impl NoPreempt<A>,
        (pfn, order): (Pfn, Order),
        appetite: Appetite,
        change: &mut i64,
    ) {
        if order.get() <= WORD_ORDER
            && let Some(cache) = self.caches.of(pinned.cpu()).enter()
        {
            let (word, bit) = self.place(pfn);
            let run = Run { word, frames: bits::run(order, bit) };
            A::work(Op::PcpPut, 1);
            match cache.join(run, order.pages() as u32) {
                // An interrupt has brought some of the word since the caller looked.
                Joined::Yes => {}
                Joined::Twice => freed_twice(pfn),
                Joined::Absent => {
                    self.give_elsewhere(&cache, pinned.cpu(), (run, order), appetite);
                }
            }
        } else {
            self.give_large(pinned, pfn, order, change);
        }
    }

    /// The frames' word is not here.
    ///
    /// Frames of a block that is in full use otherwise, or that this CPU is using up, are the next
    /// to be handed out. Those of other blocks go home, so that the block may become empty; they
    /// wait for others of their word if it looks as if some came.
    fn give_elsewhere(
        &self,
        cache: &CpuCache,
        cpu: CpuId,
        (run, order): (Run, Order),
        appetite: Appetite,
    ) {
        let head = self.head(run.word as usize / WORDS);
        if appetite == Appetite::Scarce || head.is_isolated() {
            cache.account(self.put_back(run));
        } else if head.is_full() || head.owned_by(cpu) {
            self.keep(cache, cpu, run, List::of(order, head.kind()));
        } else if cache.may_gather(run.word) {
            self.keep(cache, cpu, run, List::HOMEWARD);
        } else {
            cache.account(self.put_back(run));
        }
    }

    #[cold]
    fn give_large(&self, pinned: &impl NoPreempt<A>, pfn: Pfn, order: Order, change: &mut i64) {
        let (word, bit) = self.place(pfn);
        let gained = match order.get() {
            0..=WORD_ORDER => self.put_back(Run { word, frames: bits::run(order, bit) }),
            7..9 => self.put_words(word, order),
            _ => {
                let cache = self.caches.of(pinned.cpu()).enter();
                let spare = cache.as_ref().map(|cache| &cache.spare);
                self.put_whole(self.block_of(pfn), order, spare, pinned.cpu())
            }
        };
        match self.caches.of(pinned.cpu()).enter() {
            Some(cache) => _ = cache.account(gained),
            None => *change += gained,
        }
    }

    /// Gives frames of one word to the map; returns by how many pages the zone's free pages grow.
    pub(super) fn put_back(&self, run: Run) -> i64 {
        A::work(Op::BuddyPut, 1);
        let before = self.word(run.word).fetch_and(!run.frames, SeqCst);
        if before & run.frames != run.frames {
            freed_twice(self.frame(run.word, (!before & run.frames).trailing_zeros()));
        }
        let block = run.word as usize / WORDS;
        self.rooms.note(block, bits::largest(!before | run.frames));
        self.uncount(block, run.frames.count_ones().into())
    }

    /// Gives two or four words back.
    fn put_words(&self, word: u32, order: Order) -> i64 {
        A::work(Op::BuddyPut, 1);
        let words = (order.pages() >> WORD_ORDER) as u32;
        for at in word..word + words {
            let before = self.word(at).swap(0, AcqRel);
            if before != !0 {
                freed_twice(self.frame(at, (!before).trailing_zeros()));
            }
        }
        let block = word as usize / WORDS;
        self.rooms.note(block, WORD_ORDER);
        self.uncount(block, order.pages() as u64)
    }

    /// Counts frames of a block, whose bits are clear, as free, and puts the block where it is
    /// found now; returns by how many pages the zone's free pages grow.
    fn uncount(&self, block: usize, pages: u64) -> i64 {
        let before = Head(self.heads[block].fetch_sub(pages, SeqCst));
        if before.is_isolated() {
            return 0;
        }
        let after = Head(before.0 - pages);
        if !before.is_owned() && (after.used() == 0 || after.fill() != before.fill()) {
            self.file(block, after);
        }
        pages as i64
    }

    /// Gives one or two blocks back that were held whole. One stays the CPU's as `spare` if that
    /// is there and empty.
    fn put_whole(&self, block: usize, order: Order, spare: Option<&BlockCell>, cpu: CpuId) -> i64 {
        let mut gained = 0;
        let mut spare = spare.filter(|spare| spare.get().is_none() && order == Order::PAGEBLOCK);
        for block in block..block + (order.pages() >> Order::PAGEBLOCK.get()) {
            loop {
                let head = self.head(block);
                if head.held() != Some(order) {
                    freed_twice(self.frame((block * WORDS) as u32, 0));
                }
                let keep = spare.is_some() && !head.is_isolated();
                let whole = head.as_whole();
                let after = if keep { whole.owned(cpu) } else { whole };
                if !self.change(block, head, after) {
                    continue;
                }
                if keep && let Some(spare) = spare.take() {
                    spare.set(block);
                } else {
                    self.file(block, after);
                }
                gained += if head.is_isolated() { 0 } else { BLOCK_PAGES as i64 };
                break;
            }
        }
        gained
    }
}
