//! Splitting a held pageblock, of which a part is freed.
//!
//! A pageblock that is used by one block of order 9 or 10 is *held*: the head says so, and all bits
//! are 0. If the block comes back in parts, the first part that reaches the map makes the pageblock
//! *full*: all bits are set, and the part clears its own. Several CPUs may free parts at the same
//! time, and no CPU waits. So the operations on a word and on `used` are additions, which give the
//! same result in every order:
//!
//! ```text
//! a free of a part                        the CPU that splits the block
//! (1) n = splits                          (a) sets `busy` in the head of a held block
//! (2) word -= frames                      (b) each word += !0
//!     a bit was clear: reads the head     (c) hints: any order may be free
//!     - held: is the part of a block      (d) splits += 1
//!       that is being split, or splits    (e) clears `held` and `busy` in the head,
//!       it itself                             and files the block
//!     - not held, `splits` is n:
//!       frees a free frame, and panics
//! (3) used -= pages
//! ```
//!
//! A word may be any number while its pageblock is held. After (b) it is 2^64 - 1 less the frames
//! that were freed, whether (2) came before or after. No CPU takes frames before (e): a held
//! pageblock is in no index, and cannot be entered. In (2), `held` may be gone although the frames
//! were part of the block: then (b), (d) and (e) came between (2) and the read of the head, and
//! `splits` is not n. A free of a free frame that happens meanwhile is not detected.

use super::BlockMap;
use super::head::Head;
use super::order_hints::LARGEST_HINT;
use core::sync::atomic::Ordering::{Acquire, Release, SeqCst};
use mmscale_arch::{Atomic, Cpu};

impl<A: Cpu> BlockMap<A> {
    /// The number of held pageblocks that were split: (1).
    #[inline(always)]
    pub(super) fn splits(&self) -> u32 {
        // Pairs with (d): a CPU that sees the new number sees the bits of (b) in (2).
        self.splits.load(Acquire)
    }

    /// Whether frames whose bits were found clear in (2) are part of a block that was held then;
    /// `splits` is what [`BlockMap::splits`] returned before. Splits a held block.
    #[cold]
    pub(super) fn is_of_held(&self, block: usize, splits: u32) -> bool {
        loop {
            let head = self.head(block);
            if head.held().is_none() {
                // If the head was changed by (e) after (2), this load sees (d).
                return self.splits() != splits;
            }
            if head.is_busy() {
                return true;
            }
            // (a)
            if self.change(block, head, head.splitting()) {
                self.split_held(block);
                return true;
            }
        }
    }

    /// Sets all bits of a held pageblock that the caller has made busy, and clears `held`.
    fn split_held(&self, block: usize) {
        // (b): pairs with `clear` (put.rs) on other CPUs.
        self.words[block].0.iter().for_each(|word| _ = word.fetch_add(!0, SeqCst));
        self.order_hints.note(block, LARGEST_HINT);
        // (d): pairs with (1), and is before (e), which is `SeqCst`.
        self.splits.fetch_add(1, Release);
        // (e): pairs with the loads of heads, which see the bits.
        let head = Head(self.heads[block].fetch_and(Head::UNSPLIT, SeqCst)).split();
        self.file(block, head);
    }
}
