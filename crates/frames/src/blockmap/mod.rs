//! Page caches that own pageblocks, without a zone lock: the policy `blockmap`.
//!
//! The free pages of a zone are bits. A pageblock of 512 frames has a bitmap of one cache line (a
//! set bit is a frame in use) and a [`head`] of one word: how many frames are used, of which type
//! it is, who allocates from it. All zero is all free, and two free buddies are one free block
//! without anybody's doing: merging is what bits do.
//!
//! **Who may change a bit.** Frames are *taken* (bits set) only by the CPU that has *entered* the
//! block: it owns it, and has set `busy` in its head, by one compare-and-exchange. So bits that it
//! finds clear stay clear until it sets them, and several words can be taken together. Frames are
//! *given back* (bits cleared) by any CPU at any time, by one atomic operation on the word and one
//! on the head. Nobody ever waits: who finds a block busy goes to another.
//!
//! **Ownership** only keeps others out of the way. Each CPU owns, for each type, the block that it
//! takes from. An owner that is not inside at this moment can be replaced by anybody, and finds out
//! when it next wants to enter. So blocks of CPUs that sleep, or have gone, strand nothing.
//!
//! **What is private.** Entering a block is worth it once for many frames: the CPU takes what some
//! words have of the wanted order, puts it on a stack, and hands it out from there without any
//! atomic operation ([`stack`]). Blocks that come back to a pageblock that is nearly full, or that
//! the CPU is using up, go on top of the stack; those of others wait only for others of their word,
//! and go home with them ([`cpu`]). Of larger orders it takes and gives back pageblocks,
//! several at a time where every CPU could do so and leave the zone above its watermark, with one
//! change of the head of each ([`whole`], [`parcel`]); one that is kept whole says so in its head,
//! and its bits nothing. These frames are the only ones that others
//! cannot reach; they ask for them with an interrupt ([`drain`]).
//!
//! **Finding a block.** Blocks that nobody owns stand in an [`index`]: the whole ones in one, the
//! others by type and by how full they are, with [`rooms`] for who needs a larger block. Refills
//! take from the fullest block that will do, so that emptier ones become whole again, first from
//! those of the CPU's own stretch of the zone: what two CPUs have taken from one block, both write
//! to its line for as long as they have it. Where memory is short CPUs take blocks over from one
//! another before they break up a whole one, and the last whole ones are a [`ReserveAccess`].
//! An index is a hint; the head decides. Whoever changes a head such that its
//! block belongs elsewhere sets the bit there afterwards, and who takes a bit out looks at the head
//! afterwards, so that a block with free frames is missing from the indices only while somebody is
//! about to put it in. The last resort, before an allocation of less than a pageblock fails, looks
//! at all heads.
//!
//! The index of whole blocks is more than a hint: such a block, while nobody owns it, is for who
//! takes its bit out, and for nobody else, be it to isolate it. Several are taken so by one atomic
//! operation, and their heads changed with plain stores. So is the head of a block of which
//! somebody gives everything back ([`batch`]): who isolates a block waits for those.
//!
//! **Counting.** A frame counts as free while its bit is clear. Each CPU gathers the change and
//! folds it into the zone's counter when it exceeds a bound.

mod batch;
mod bits;
#[cfg(test)]
mod corruption_tests;
mod cpu;
mod drain;
mod find;
mod give;
mod head;
mod index;
mod isolate;
mod order_hints;
mod parcel;
mod put;
mod stack;
mod stack_layout;
mod take;
mod verify;
mod whole;

pub(crate) use bits::WORD_ORDER;
pub(crate) use give::Entered;
pub(crate) use verify::MapError;

use crate::frame::MigrateType;
use alloc::boxed::Box;
use bits::WORD_PAGES;
use core::ops::Range;
use core::sync::atomic::Ordering::{AcqRel, Acquire, SeqCst};
use cpu::{CpuCache, Limits, List};
use head::{BLOCK_PAGES, Fill, Head};
use index::Index;
use mmscale_arch::sync::{EachCpu, Local};
use mmscale_arch::{Atomic, Cpu, CpuId, Order, OwnedCounter, PAGEBLOCK_ORDER, Pfn};
use order_hints::OrderHints;

/// Words of a block.
const WORDS: usize = (1 << PAGEBLOCK_ORDER) / WORD_PAGES;
const _: () = assert!(WORDS == 8, "the words of a block are one cache line");

/// How much to take at a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Refill {
    /// What words have, for later too.
    Batch,
    /// What is asked for: memory is short, and others want it too.
    Exact,
}

/// Pages whose worth of whole pageblocks stays for who wants them whole, where memory is short.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReservePages {
    /// Single pages leave as many: they fit into any hole, and so there is somewhere else for them
    /// for longest.
    pub from_singles: u32,
    /// Blocks of orders 1 to 8 leave as many.
    pub from_larger: u32,
}

impl ReservePages {
    /// How many whole blocks somebody leaves who wants less than one.
    const fn blocks(self, req: AllocRequest) -> usize {
        let pages = match req.reserve {
            ReserveAccess::None if req.order.get() == 0 => self.from_singles,
            ReserveAccess::None | ReserveAccess::Partial => self.from_larger,
            ReserveAccess::Full => 0,
        };
        pages as usize >> PAGEBLOCK_ORDER
    }
}

/// What becomes of the last whole pageblocks where memory is short, those of [`ReservePages`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ReserveAccess {
    /// They stay whole.
    None,
    /// Single pages leave no more than larger blocks do: the other choice is another zone.
    Partial,
    /// They are blocks like others: for who may go below the watermark, and for single pages when
    /// nothing else is left.
    Full,
}

/// What an allocation wants.
#[derive(Clone, Copy)]
pub(crate) struct AllocRequest {
    /// Who asks.
    pub(crate) cpu: CpuId,
    pub(crate) order: Order,
    pub(crate) kind: MigrateType,
    pub(crate) refill: Refill,
    pub(crate) reserve: ReserveAccess,
    /// What each CPU could keep without bringing the zone below its watermark: as much may be taken
    /// at a time, or what is in one word.
    pub(crate) spare_pages: u32,
}

/// Where a search looks.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Where {
    /// In the CPU's own stretch of the zone.
    Own,
    /// Everywhere.
    All,
}

impl AllocRequest {
    /// What it is taken from.
    const fn list(self) -> List {
        List::of(self.order, self.kind)
    }
}

/// The bitmap of a block: set bits are frames in use.
#[repr(align(64))]
struct Words<A: Cpu>([A::AtomicU64; WORDS]);

/// What others may see of a CPU's cache.
struct CpuShared<A: Cpu> {
    /// Nonzero if it may hold pages, or owe the zone's counter.
    nonempty: A::OwnedI8,
    /// How often it was emptied because somebody asked.
    emptied: A::AtomicU32,
    /// How often somebody asked when it was in use.
    refused: A::AtomicU32,
    /// How many have emptied it on its CPU, and not counted that yet.
    folding: A::AtomicU32,
    /// Nonzero while its CPU changes heads with plain stores ([`batch`]).
    inside: A::AtomicU32,
}

/// The free frames of one zone.
pub struct BlockMap<A: Cpu> {
    start: Pfn,
    pages: u32,
    /// The first frame of the first block. The block's number is even, so that pairs of blocks
    /// begin at even places.
    first: Pfn,
    /// The blocks that the zone has all of.
    complete: Range<usize>,
    heads: Box<[A::AtomicU64]>,
    words: Box<[Words<A>]>,
    /// Whole blocks that nobody owns.
    whole: Index<A>,
    /// Other blocks with free frames that nobody owns, by type and fill.
    partial: [[Index<A>; Fill::COUNT]; MigrateType::COUNT],
    order_hints: OrderHints<A>,
    /// How many isolate a block at this moment.
    isolating: A::AtomicU32,
    caches: EachCpu<Local<CpuCache>>,
    shared: EachCpu<CpuShared<A>>,
    /// How much each CPU may keep.
    limits: Limits,
    /// How many whole blocks are the reserve, by who would break them up.
    reserve: ReservePages,
}

impl<A: Cpu> BlockMap<A> {
    /// All of `start .. start + pages` free and movable, for all possible CPUs. Takes time and
    /// memory by the number of blocks; see [`BlockMap::metadata_bytes`].
    pub fn new(start: Pfn, pages: u32, reserve: ReservePages) -> Self {
        let (from, to) = (start.index(), start.index() + pages as usize);
        let first_block = start.pageblock() & !1;
        let blocks = to.div_ceil(BLOCK_PAGES as usize) - first_block;
        let exists = |block: usize, bit: usize| {
            let frame = (first_block + block) * BLOCK_PAGES as usize + bit;
            (from..to).contains(&frame)
        };
        let missing = |block: usize, bits: Range<usize>| {
            bits.filter(|&bit| !exists(block, bit)).count() as u64
        };
        let missing_in = |block: usize| {
            // Only blocks at the ends may lack frames: look no closer at the others.
            let inside = exists(block, 0) && exists(block, BLOCK_PAGES as usize - 1);
            if inside { 0 } else { missing(block, 0..BLOCK_PAGES as usize) }
        };
        let word = |block: usize, word: usize| {
            let first = word * WORD_PAGES;
            if exists(block, first) && exists(block, first + WORD_PAGES - 1) {
                return 0;
            }
            let lacks = |bit: usize| !exists(block, first + bit);
            (0..WORD_PAGES).fold(0, |bits, bit| bits | u64::from(lacks(bit)) << bit)
        };
        let fill = |block: usize| Head::missing(missing_in(block)).fill();
        // All CPUs together keep at most a 32nd of the zone, but for the least they need.
        let limits = Limits::of(pages as usize / 32 / A::cpus_possible());
        let index = |kind: MigrateType, wanted: Fill| {
            Index::new(blocks, |block| kind == MigrateType::Movable && fill(block) == Some(wanted))
        };
        Self {
            start,
            pages,
            first: Pfn::new(first_block << PAGEBLOCK_ORDER),
            complete: from.div_ceil(BLOCK_PAGES as usize) - first_block
                ..to / BLOCK_PAGES as usize - first_block,
            heads: (0..blocks).map(|at| A::AtomicU64::new(missing_in(at))).collect(),
            words: (0..blocks)
                .map(|at| Words(core::array::from_fn(|w| A::AtomicU64::new(word(at, w)))))
                .collect(),
            whole: Index::new(blocks, |block| missing_in(block) == 0),
            partial: MigrateType::ALL.map(|kind| {
                let mut fills = Fill::all();
                core::array::from_fn(|_| index(kind, fills.next().expect("as many as there are")))
            }),
            order_hints: OrderHints::all(blocks),
            isolating: A::AtomicU32::new(0),
            caches: EachCpu::new::<A>(|_| Local::new(CpuCache::new(limits))),
            shared: EachCpu::new::<A>(|_| CpuShared {
                nonempty: A::OwnedI8::zero(),
                emptied: A::AtomicU32::new(0),
                refused: A::AtomicU32::new(0),
                folding: A::AtomicU32::new(0),
                inside: A::AtomicU32::new(0),
            }),
            limits,
            reserve,
        }
    }
    /// Bytes of metadata for all blocks together, and for each CPU, where an atomic is as large as
    /// what it holds: 64 a block for its bitmap (a bit a frame), 8 for its head, 21 bits and their
    /// summaries for the indices.
    pub fn metadata_bytes(&self) -> (usize, usize) {
        let indices = self.partial.iter().flatten().chain([&self.whole]);
        let blocks = self.heads.len() * (size_of::<u64>() * (WORDS + 1));
        (
            blocks + indices.map(Index::bytes).sum::<usize>() + self.order_hints.bytes(),
            size_of::<Local<CpuCache>>() + size_of::<CpuShared<A>>(),
        )
    }
    /// Pages that one CPU may keep to itself at most.
    pub fn most_cached_pages(&self) -> usize {
        self.limits.pages()
    }
    /// The type of the pageblock that holds `pfn`, which is in the zone.
    pub fn block_type(&self, pfn: Pfn) -> MigrateType {
        self.head(self.block_of(pfn)).kind()
    }

    #[inline]
    fn block_of(&self, pfn: Pfn) -> usize {
        pfn.pageblock() - self.first.pageblock()
    }
    /// What the head says. Who has just taken a bit out of an index sees what was so when the
    /// bit was set, or found set.
    #[inline]
    fn head(&self, block: usize) -> Head {
        Head(self.heads[block].load(SeqCst))
    }
    /// Changes a head if it still is `from`.
    #[inline]
    fn change(&self, block: usize, from: Head, to: Head) -> bool {
        self.heads[block].compare_exchange(from.0, to.0, SeqCst, Acquire).is_ok()
    }
    /// Word `word` of the zone.
    #[inline]
    fn word(&self, word: u32) -> &A::AtomicU64 {
        &self.words[word as usize / WORDS].0[word as usize % WORDS]
    }
    /// The frame behind a bit of a word of the zone.
    #[inline]
    fn frame(&self, word: u32, bit: u32) -> Pfn {
        self.pfn(bits::join(word, bit))
    }
    /// Frame `frame` of the zone, counted from its first block on.
    #[inline]
    fn pfn(&self, frame: u32) -> Pfn {
        self.first.ahead(frame)
    }
    /// The number of a frame from the zone's first block on; of one that the zone has not it is
    /// none of the zone's.
    #[inline]
    fn index(&self, pfn: Pfn) -> u32 {
        (pfn.index() as u32).wrapping_sub(self.first.index() as u32)
    }
    /// Whether the zone has the whole block.
    #[inline]
    pub fn spans(&self, pfn: Pfn, order: Order) -> bool {
        let first = (pfn.index() as u32).wrapping_sub(self.start.index() as u32);
        first < self.pages && self.pages - first >= order.pages() as u32
    }
    /// Whether the zone has all of the pageblock that holds `pfn`.
    #[inline]
    pub(crate) fn spans_pageblock_of(&self, pfn: Pfn) -> bool {
        self.complete.contains(&block_of(self.index(pfn)))
    }
    /// Where `cpu` begins to look for blocks: each has a stretch of its own, so that they meet
    /// rarely.
    #[inline]
    fn search_start(&self, cpu: CpuId) -> usize {
        cpu.index() % A::cpus_possible() * self.heads.len() / A::cpus_possible()
    }
    /// Whether three quarters of the zone are free, so that whole blocks need not be saved. Where
    /// half of it is in use they do: at a half a random mix of small blocks left 95 % of the whole
    /// ones that there could be, not 99 (`cargo bench -p mmscale-peers -- --fragmentation`).
    fn is_plenty(&self, req: AllocRequest) -> bool {
        let free = u64::from(req.spare_pages) * A::cpus_possible() as u64;
        req.refill == Refill::Batch && free > u64::from(self.pages) / 4 * 3
    }
    /// The blocks among which `cpu` looks.
    fn stretch(&self, cpu: CpuId, range: Where) -> Range<usize> {
        let (start, blocks) = (self.search_start(cpu), self.heads.len());
        match range {
            Where::Own => start..start + blocks / A::cpus_possible(),
            Where::All => 0..blocks,
        }
    }
    /// Puts a block that nobody owns where it can be found; the caller made its head `head`.
    #[inline]
    fn file(&self, block: usize, head: Head) {
        if head.is_isolated() || head.held().is_some() {
            return;
        }
        if head.used() == 0 {
            self.whole.set(block);
        } else if let Some(fill) = head.fill() {
            self.partial[head.kind().index()][fill.index()].set(block);
        }
    }
    /// Leaves a block that the caller has entered, `taken` more frames of which are used now; it
    /// stays the caller's.
    #[inline]
    fn leave(&self, block: usize, taken: u64) {
        self.heads[block].fetch_add(taken.wrapping_sub(head::BUSY), AcqRel);
    }
    /// Gives up a block, if it still is `cpu`'s and `cpu` is not inside.
    fn disown(&self, block: usize, cpu: CpuId) {
        loop {
            let head = self.head(block);
            if !head.owned_by(cpu) || head.is_busy() {
                return;
            }
            if self.change(block, head, head.disowned()) {
                return self.file(block, head.disowned());
            }
        }
    }
}

/// The pageblock of frame `frame` of a zone.
#[inline]
const fn block_of(frame: u32) -> usize {
    (frame >> PAGEBLOCK_ORDER) as usize
}

#[cold]
fn freed_twice(pfn: Pfn) -> ! {
    panic!("frame {} is freed, but it is free already, or was never handed out so", pfn.index())
}
