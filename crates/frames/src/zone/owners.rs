//! The owner of each pageblock, in words that are read without the zone lock.

use crate::place::{Place, SharedTable};
use core::ops::Range;
use core::sync::atomic::Ordering::Relaxed;
use mmscale_arch::{Atomic, Cpu, CpuId, MAX_CPUS, Order, Pfn};

/// The pageblock is on its owner's list of pageblocks with fragments in the zone.
const REMEMBERED: u32 = 1 << 31;
const CPU_MASK: u32 = 0xffff;
const _: () = assert!(MAX_CPUS < CPU_MASK as usize);

/// The CPU that owns each pageblock of a zone.
///
/// Written only under the zone lock. Reads without the lock are hints: they choose the page cache
/// into which a page is freed. Under the page-cache lock of CPU c, an owner c cannot change to
/// another CPU while a page of the pageblock is allocated or cached: a pageblock gets a new owner
/// only when all of it is in the zone.
///
/// | bits | content |
/// |---|---|
/// | 0-15 | the owner plus 1; 0: none |
/// | 31 | the pageblock is on its owner's list of pageblocks with fragments in the zone |
///
/// `Relaxed`: the zone lock and the page-cache locks order all accesses that are not hints.
pub(crate) struct Owners<A: Cpu> {
    words: SharedTable<A::AtomicU32>,
    first_block: usize,
}

impl<A: Cpu> Clone for Owners<A> {
    fn clone(&self) -> Self {
        Self { words: self.words, first_block: self.first_block }
    }
}

impl<A: Cpu> Owners<A> {
    /// Creates the words of `blocks`, without owners. If there are no words, pageblocks of the zone
    /// cannot be owned.
    pub(crate) fn new(place: &mut Place, blocks: Range<usize>) -> Self {
        let words = place.table(blocks.len(), |_| A::AtomicU32::new(0));
        Self { words: words.shared(), first_block: blocks.start }
    }
    /// Whether pageblocks of this zone can be owned.
    #[inline]
    pub(crate) fn exist(&self) -> bool {
        !self.words.is_empty()
    }
    #[inline]
    fn word(&self, pfn: Pfn) -> &A::AtomicU32 {
        &self.words[pfn.pageblock() - self.first_block]
    }
    /// The CPU that owns the pageblock of `pfn`. A hint, except under the zone lock.
    #[inline]
    pub(crate) fn get(&self, pfn: Pfn) -> Option<CpuId> {
        cpu_of(self.word(pfn).load(Relaxed))
    }
    /// Whether the pageblock is on its owner's list. Under the zone lock.
    pub(super) fn is_remembered(&self, pfn: Pfn) -> bool {
        self.word(pfn).load(Relaxed) & REMEMBERED != 0
    }
    /// Sets the owner of the pageblock of `pfn`, and clears the mark of its old owner's list;
    /// returns the old owner. Under the zone lock.
    pub(super) fn set(&self, pfn: Pfn, owner: Option<CpuId>) -> Option<CpuId> {
        let (word, to) = (self.word(pfn), owner.map_or(0, |cpu| cpu.index() as u32 + 1));
        let before = word.load(Relaxed);
        if before != to {
            word.store(to, Relaxed);
        }
        cpu_of(before)
    }
    /// Marks the pageblock as on the list of `cpu`, if that CPU owns it and the mark is clear;
    /// returns whether it marked it. Under the zone lock and the page-cache lock of `cpu`.
    pub(super) fn remember(&self, pfn: Pfn, cpu: CpuId) -> bool {
        let (word, mine) = (self.word(pfn), cpu.index() as u32 + 1);
        let fits = word.load(Relaxed) == mine;
        if fits {
            word.store(mine | REMEMBERED, Relaxed);
        }
        fits
    }
    /// Clears the mark, if the pageblock is on the list of `cpu`; returns whether it cleared it.
    /// Under the zone lock and the page-cache lock of `cpu`.
    pub(super) fn forget(&self, pfn: Pfn, cpu: CpuId) -> bool {
        let (word, mine) = (self.word(pfn), cpu.index() as u32 + 1);
        let fits = word.load(Relaxed) == mine | REMEMBERED;
        if fits {
            word.store(mine, Relaxed);
        }
        fits
    }
    /// The pageblocks of a block, or the pageblock that it is part of.
    pub(super) fn blocks_of(pfn: Pfn, order: Order) -> impl Iterator<Item = Pfn> {
        let first = pfn.align_down(Order::PAGEBLOCK);
        let count = order.pages().div_ceil(Order::PAGEBLOCK.pages());
        (0..count).map(move |at| first.offset(at << Order::PAGEBLOCK.get()))
    }
}

#[inline]
fn cpu_of(word: u32) -> Option<CpuId> {
    (word & CPU_MASK).checked_sub(1).map(|cpu| CpuId::new(cpu as usize))
}
