//! Which CPU owns which pageblock: what is kept per pageblock outside the zone lock's data.

use alloc::sync::Arc;
use core::ops::Range;
use core::sync::atomic::Ordering::Relaxed;
use mmscale_arch::{Atomic, Cpu, CpuId, MAX_CPUS, Order, Pfn};

/// The block stands on its owner's list of blocks with fragments in the zone.
const REMEMBERED: u32 = 1 << 31;
const CPU_MASK: u32 = 0xffff;
const _: () = assert!(MAX_CPUS < CPU_MASK as usize);

/// For each pageblock of a zone the CPU that owns it.
///
/// Written only under the zone lock. Everybody may read it without: as a hint for where a page
/// goes. Under the page-cache lock of CPU c the answer "c owns it" cannot turn into "another CPU
/// owns it" for as long as a page of the block is held or cached: a block gets a new owner only
/// when all of it is in the zone.
pub(crate) struct Owners<A: Cpu> {
    words: Arc<[A::AtomicU32]>,
    first_block: usize,
}

impl<A: Cpu> Clone for Owners<A> {
    fn clone(&self) -> Self {
        Self { words: Arc::clone(&self.words), first_block: self.first_block }
    }
}

impl<A: Cpu> Owners<A> {
    /// Nobody owns anything, nor ever will.
    pub(crate) fn none() -> Self {
        Self { words: Arc::new([]), first_block: 0 }
    }
    /// Nobody owns any of `blocks` yet.
    pub(crate) fn of(blocks: Range<usize>) -> Self {
        let words = blocks.clone().map(|_| A::AtomicU32::new(0)).collect();
        Self { words, first_block: blocks.start }
    }
    /// Whether blocks of this zone can be owned at all.
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
    /// Whether the block stands on its owner's list. Under the zone lock.
    pub(super) fn is_remembered(&self, pfn: Pfn) -> bool {
        self.word(pfn).load(Relaxed) & REMEMBERED != 0
    }
    /// Sets the owner of the pageblock of `pfn` and takes it off its old owner's list. Under the
    /// zone lock; returns the old owner.
    pub(super) fn set(&self, pfn: Pfn, owner: Option<CpuId>) -> Option<CpuId> {
        let (word, to) = (self.word(pfn), owner.map_or(0, |cpu| cpu.index() as u32 + 1));
        let before = word.load(Relaxed);
        if before != to {
            word.store(to, Relaxed);
        }
        cpu_of(before)
    }
    /// Notes that `cpu` has the block on its list, if it owns the block and has it not. Under the
    /// zone lock and the page-cache lock of `cpu`.
    pub(super) fn remember(&self, pfn: Pfn, cpu: CpuId) -> bool {
        let (word, mine) = (self.word(pfn), cpu.index() as u32 + 1);
        let fits = word.load(Relaxed) == mine;
        if fits {
            word.store(mine | REMEMBERED, Relaxed);
        }
        fits
    }
    /// Takes the block off the list of `cpu`, if it stands there. Under both locks too.
    pub(super) fn forget(&self, pfn: Pfn, cpu: CpuId) -> bool {
        let (word, mine) = (self.word(pfn), cpu.index() as u32 + 1);
        let fits = word.load(Relaxed) == mine | REMEMBERED;
        if fits {
            word.store(mine, Relaxed);
        }
        fits
    }
    /// The pageblocks of a block, or the one that it is part of.
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
