//! Page caches that own pageblocks, without a zone lock: the policy `blockmap`.
//!
//! The free pages of a zone are bits. A pageblock of 512 frames has a bitmap of one cache line (a
//! set bit is a frame in use) and a [`head`] of one word: the number of used frames, the type, the
//! owner. If all of it is zero, all frames are free. Two free buddies are a free block of the next
//! order without further work: bits need no merging.
//!
//! **Setting and clearing bits.** Only the CPU that has *entered* a block takes frames (sets bits):
//! it owns the block and has set `busy` in its head, with one compare-exchange. So bits that it
//! finds clear stay clear until it sets them, and it can take several words together. Any CPU may
//! free frames (clear bits) at any time, with one atomic operation on the word and one on the head.
//! No CPU waits for another: a CPU that finds a block busy tries another block.
//!
//! **Ownership** only avoids contention. Each CPU owns, for each type and class of orders, the
//! block from which it refills. While the owner is not in the block, any CPU may take the block
//! over; the owner notices when it next enters. So blocks of CPUs that sleep or are offline are
//! never stranded.
//!
//! **Per-CPU caches.** Entering a block pays off for many frames. The CPU takes all blocks of the
//! requested order from some words, pushes them onto a stack, and allocates them from there without
//! atomic operations ([`stack`]). A block that is freed to a nearly full pageblock, or to one that
//! the CPU owns, is pushed onto the stack. Other freed blocks wait for more frees to the same word,
//! and are cleared together ([`cpu`]). For larger orders a CPU takes and frees whole pageblocks,
//! with one change of the head of each ([`whole`], [`parcel`]). It takes several at a time if every
//! CPU could do so and leave the zone above its watermark. A pageblock on a stack as one block is
//! *held*: its head says so, and its bits are 0 ([`split`]). Other CPUs cannot take frames in a
//! cache; they ask the CPU with an interrupt to drain it ([`drain`]).
//!
//! **Finding a block.** Blocks without owner are in an [`index`]: one index for whole blocks, and
//! one for each type and fill of the others, with [`order_hints`] for larger orders. A refill takes
//! from the fullest block that has the requested order, so that emptier blocks become whole. It
//! prefers blocks of the CPU's own stretch of the zone: if two CPUs have frames of one block, both
//! write to its line when they free them. Where memory is short CPUs take blocks over from one
//! another before they break up a whole one, and the last whole ones are a reserve
//! ([`ReserveAccess`]). An index is a hint; the head decides. A CPU that changes a head sets the
//! bit in the new index afterwards, and a CPU that clears a bit reads the head afterwards. So a
//! block with free frames is missing from the indices only while a CPU is about to add it. An
//! allocation below a pageblock's order reads all heads before it fails.
//!
//! The index of whole blocks is more than a hint. While a whole block has no owner, only the CPU
//! that clears its bit may change its head; this includes isolation. So one atomic operation takes
//! several whole blocks, and plain stores change their heads. The head of a block of which a CPU
//! frees all frames is changed with a plain store too: isolators wait ([`batch`]).
//!
//! **Counting.** A frame counts as free while its bit is clear. Each CPU gathers the change in a
//! delta and folds it into the zone's counter when it exceeds a bound.
//!
//! `docs/internals/blockmap.md` explains the design step by step, with an example.

mod batch;
mod bits;
mod contig;
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
mod query;
mod split;
mod stack;
mod stack_layout;
mod take;
#[cfg(any(feature = "alloc", test))]
mod verify;
mod whole;
#[cfg(test)]
mod worked_example;

pub(crate) use bits::WORD_ORDER;
pub(crate) use give::Entered;
#[cfg(any(feature = "alloc", test))]
pub(crate) use verify::MapError;

use crate::frame::MigrateType;
use crate::place::{CpuTable, Place, Table};
use crate::zone::Extent;
use bits::WORD_PAGES;
use core::ops::Range;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{AcqRel, Acquire, SeqCst};
use cpu::{CpuCache, Limits, List};
use head::{BLOCK_PAGES, Fill, Head};
use index::Index;
use mmscale_arch::sync::Local;
use mmscale_arch::{Atomic, Cpu, CpuId, DataLine, Order, OwnedCounter, PAGEBLOCK_ORDER, Pfn};
use order_hints::OrderHints;

/// Words of a block.
const WORDS: usize = (1 << PAGEBLOCK_ORDER) / WORD_PAGES;
const _: () = assert!(WORDS == 8, "the words of a block are one cache line");

/// Amount of memory that an allocation takes from the map.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Refill {
    /// The requested block, and further ones for the CPU's stack.
    Batch,
    /// Only the requested block: memory is short.
    Exact,
}

/// Pages to hold back as whole pageblocks, for allocations of whole pageblocks, when memory is
/// short. Rounded down to pageblocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReservePages {
    /// Pages held back from allocations of order 0, which fit into any free frame.
    pub from_singles: u32,
    /// Pages held back from allocations of orders 1 to 8.
    pub from_larger: u32,
}

impl ReservePages {
    /// The number of whole blocks that a request below a pageblock's order must leave.
    const fn blocks(self, req: AllocRequest) -> usize {
        let pages = match req.reserve {
            ReserveAccess::None if req.order.get() == 0 => self.from_singles,
            ReserveAccess::None | ReserveAccess::Partial => self.from_larger,
            ReserveAccess::Full => 0,
        };
        pages as usize >> PAGEBLOCK_ORDER
    }
}

/// Access of an allocation to the reserve of whole pageblocks ([`ReservePages`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ReserveAccess {
    /// The allocation must leave the reserve.
    None,
    /// A single page must leave only as much as larger orders: otherwise it would have to come
    /// from another zone.
    Partial,
    /// The allocation may use the reserve: it may go below the watermark, or it is for a single
    /// page and nothing else is left.
    Full,
}

/// A request for a block.
#[derive(Clone, Copy)]
pub(crate) struct AllocRequest {
    /// The requesting CPU.
    pub(crate) cpu: CpuId,
    pub(crate) order: Order,
    pub(crate) kind: MigrateType,
    pub(crate) refill: Refill,
    pub(crate) reserve: ReserveAccess,
    /// Pages that each CPU could cache while the zone stays above its high watermark. A refill
    /// takes at most as many, or one word.
    pub(crate) spare_pages: u32,
}

/// Range of blocks of a search.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Where {
    /// The CPU's own stretch of the zone.
    Own,
    /// The whole zone.
    All,
}

impl AllocRequest {
    /// The list of owned blocks from which the request is served.
    const fn list(self) -> List {
        List::of(self.order, self.kind)
    }
}

/// The bitmap of a block: set bits are frames in use.
#[repr(align(64))]
struct Words<A: Cpu>([A::AtomicU64; WORDS]);

/// State of a CPU's cache that other CPUs access.
struct CpuShared<A: Cpu> {
    /// Nonzero if the cache may have pages or a delta.
    nonempty: A::OwnedI8,
    /// The number of drain requests that emptied the cache.
    emptied: A::AtomicU32,
    /// The number of drain requests that came while the cache was in use.
    refused: A::AtomicU32,
    /// The number of drains on this CPU whose pages are not in the zone's counter yet.
    folding: A::AtomicU32,
    /// Nonzero while the CPU changes heads with plain stores ([`batch`]).
    inside: A::AtomicU32,
}

/// The free frames of one zone.
pub struct BlockMap<A: Cpu> {
    start: Pfn,
    /// Frames of the zone, those in holes included.
    pages: u32,
    /// The first frame of the first block. The block's number is even, so that pairs of blocks
    /// begin at even places.
    first: Pfn,
    /// The blocks whose frames are all in the zone, or in holes of it.
    complete: Range<usize>,
    heads: Table<A::AtomicU64>,
    words: Table<Words<A>>,
    /// Whole blocks without owner.
    whole: Index<A>,
    /// Other blocks with free frames and without owner, by type and fill.
    partial: [[Index<A>; Fill::COUNT]; MigrateType::COUNT],
    order_hints: OrderHints<A>,
    /// The number of tasks that are isolating a block.
    isolating: A::AtomicU32,
    /// The number of held pageblocks that were split ([`split`]). Every free reads it, so it is no
    /// atomic of the machine, whose loads take time in the simulator.
    splits: AtomicU32,
    caches: CpuTable<Local<CpuCache>>,
    shared: CpuTable<CpuShared<A>>,
    /// Limits of each CPU's cache.
    limits: Limits,
    /// The reserve of whole blocks.
    reserve: ReservePages,
    /// The frames of the zone.
    extent: Extent,
    /// CPUs that may use it: their numbers are below this.
    cpus: usize,
}

impl<A: Cpu> BlockMap<A> {
    /// Creates a map of these frames, all free and movable, for `cpus` CPUs, each of which caches
    /// at most `most_cached` pages, if that is given. Time and memory are proportional to the
    /// number of blocks; see [`BlockMap::metadata_bytes`].
    pub(crate) fn new(
        place: &mut Place,
        extent: &Extent,
        reserve: ReservePages,
        (cpus, most_cached): (usize, Option<u32>),
    ) -> Self {
        let Range { start: from, end: to } = extent.span();
        let start = Pfn::new(from);
        let first_block = start.pageblock() & !1;
        let blocks = to.div_ceil(BLOCK_PAGES as usize) - first_block;
        let exists = |block: usize, bit: usize| {
            let frame = (first_block + block) * BLOCK_PAGES as usize + bit;
            extent.has(frame)
        };
        let missing_in = |block: usize| {
            let first = (first_block + block) * BLOCK_PAGES as usize;
            BLOCK_PAGES - extent.present_in(first..first + BLOCK_PAGES as usize) as u64
        };
        let word = |block: usize, word: usize| {
            let first = word * WORD_PAGES;
            if missing_in(block) == 0 {
                return 0;
            }
            let lacks = |bit: usize| !exists(block, first + bit);
            (0..WORD_PAGES).fold(0, |bits, bit| bits | u64::from(lacks(bit)) << bit)
        };
        let fill = |block: usize| Head::missing(missing_in(block)).fill();
        // The caches of all CPUs together have at most a 32nd of the zone, except that each has a
        // minimum.
        let share = extent.present() as usize / 32 / cpus;
        let limits = Limits::of(most_cached.map_or(share, |most| share.min(most as usize)));
        let mut index = |kind: MigrateType, wanted: Fill| {
            let holds = |block| kind == MigrateType::Movable && fill(block) == Some(wanted);
            Index::new(place, blocks, holds)
        };
        let partial = MigrateType::ALL.map(|kind| {
            let mut fills = Fill::all();
            core::array::from_fn(|_| index(kind, fills.next().expect("one index per fill")))
        });
        Self {
            start,
            pages: extent.span().len() as u32,
            first: Pfn::new(first_block << PAGEBLOCK_ORDER),
            complete: from.div_ceil(BLOCK_PAGES as usize) - first_block
                ..to / BLOCK_PAGES as usize - first_block,
            heads: place.table(blocks, |at| {
                A::AtomicU64::named(Head::missing(missing_in(at)).0, DataLine::Blockmap)
            }),
            words: place.table(blocks, |at| {
                Words(core::array::from_fn(|w| {
                    A::AtomicU64::named(word(at, w), DataLine::Blockmap)
                }))
            }),
            whole: Index::new(place, blocks, |block| missing_in(block) == 0),
            partial,
            order_hints: OrderHints::all(place, blocks),
            isolating: A::AtomicU32::new(0),
            splits: AtomicU32::new(0),
            caches: CpuTable::zeroed(place, cpus, |cache: &mut Local<CpuCache>| {
                cache.get_mut().init(limits);
            }),
            shared: CpuTable::new(place, cpus, |_, _| CpuShared {
                nonempty: A::OwnedI8::zero(),
                emptied: A::AtomicU32::new(0),
                refused: A::AtomicU32::new(0),
                folding: A::AtomicU32::new(0),
                inside: A::AtomicU32::new(0),
            }),
            limits,
            reserve,
            extent: extent.clone(),
            cpus,
        }
    }
    /// A map of the frames `start .. start + pages` for all possible CPUs, for tests.
    #[cfg(test)]
    fn alone(start: Pfn, pages: u32, reserve: ReservePages) -> crate::heap::Placed<Self> {
        crate::heap::placed(|place| {
            let span = start.index()..start.index() + pages as usize;
            let extent = Extent::new(place, span, &[]);
            Self::new(place, &extent, reserve, (A::cpus_possible(), None))
        })
    }
    /// Bytes of metadata for all blocks together, and for each CPU, if an atomic has the size of
    /// its value. A block has 64 bytes for its bitmap (a bit a frame), 8 for its head, and 21 bits
    /// and their summaries in the indices.
    pub fn metadata_bytes(&self) -> (usize, usize) {
        let indices = self.partial.iter().flatten().chain([&self.whole]);
        let blocks = self.heads.len() * (size_of::<u64>() * (WORDS + 1));
        (
            blocks + indices.map(Index::bytes).sum::<usize>() + self.order_hints.bytes(),
            size_of::<Local<CpuCache>>() + size_of::<CpuShared<A>>(),
        )
    }
    /// The most pages in one CPU's cache.
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
    /// Loads a head. After clearing an index bit, the load is ordered after the change of the head
    /// by the CPU that set the bit or found it set: see [`Index::set`].
    #[inline]
    fn head(&self, block: usize) -> Head {
        // Pairs with the changes of heads on other CPUs: `change`, `leave`, frees and plain stores.
        Head(self.heads[block].load(SeqCst))
    }
    /// Changes a head from `from` to `to`; returns `false` if it is not `from`.
    #[inline]
    fn change(&self, block: usize, from: Head, to: Head) -> bool {
        // Pairs with the loads of heads, and with `leave`: the CPU that enters a block sees the
        // bits that the CPU before it has set.
        self.heads[block].compare_exchange(from.0, to.0, SeqCst, Acquire).is_ok()
    }
    /// Word `word` of the zone.
    #[inline]
    fn word(&self, word: u32) -> &A::AtomicU64 {
        &self.words[word as usize / WORDS].0[word as usize % WORDS]
    }
    /// The frame of a bit of a word of the zone.
    #[inline]
    fn frame(&self, word: u32, bit: u32) -> Pfn {
        self.pfn(bits::join(word, bit))
    }
    /// The frame with number `frame`, counted from the start of the zone's first block.
    #[inline]
    fn pfn(&self, frame: u32) -> Pfn {
        self.first.ahead(frame)
    }
    /// The number of a frame, counted from the start of the zone's first block. For a frame of
    /// another zone it is no number of a frame of this zone.
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
    /// The first block of the stretch of `cpu`, where its searches start. Each CPU has its own, so
    /// that CPUs rarely compete for a block.
    #[inline]
    fn search_start(&self, cpu: CpuId) -> usize {
        cpu.index() % self.cpus * self.heads.len() / self.cpus
    }
    /// Whether more than three quarters of the zone are free, so that whole blocks need not be
    /// saved. With a limit of one half a random mix of small blocks left 95 % of the possible whole
    /// blocks, instead of 99 % (the benchmark of `testing/peers`, with `--fragmentation`).
    fn is_plenty(&self, req: AllocRequest) -> bool {
        let free = u64::from(req.spare_pages) * self.cpus as u64;
        req.refill == Refill::Batch && free > u64::from(self.extent.present()) / 4 * 3
    }
    /// The blocks that a search of `cpu` covers.
    fn stretch(&self, cpu: CpuId, range: Where) -> Range<usize> {
        let (start, blocks) = (self.search_start(cpu), self.heads.len());
        match range {
            Where::Own => start..start + blocks / self.cpus,
            Where::All => 0..blocks,
        }
    }
    /// Adds a block without owner to the index of its state. `head` is the value that the caller
    /// has just written; the bit is set after the head.
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
    /// Leaves a block that the caller has entered, and adds `taken` frames to `used`; the caller
    /// stays its owner. One addition does both, since the sum is `taken - BUSY`: no CPU sees `busy`
    /// clear with the old count.
    #[inline]
    fn leave(&self, block: usize, taken: u64) {
        // `Release` pairs with `change` of the next CPU that enters the block: it sees the bits
        // set.
        self.heads[block].fetch_add(taken.wrapping_sub(head::BUSY), AcqRel);
    }
    /// Gives up the ownership of a block, if `cpu` still owns it and has left it.
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
    panic!(
        "frame {} freed, but it is free already, or was not allocated with this order",
        pfn.index()
    )
}
