//! The counts of one side: the kernel, or the simulator.

use mmscale_arch::Order;
use mmscale_frames::frame::MigrateType;
use mmscale_frames::pcp::PcpLimits;

/// Blocks of a page cache that are on one list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Blocks {
    pub(super) order: Order,
    pub(super) list: MigrateType,
    pub(super) count: u32,
}

impl Blocks {
    /// Single pages.
    pub(super) fn single(list: MigrateType, count: u32) -> Self {
        Self { order: Order::ZERO, list, count }
    }
    pub(super) fn pages(self) -> u32 {
        self.count << self.order.get()
    }
}

/// The state of the page cache of CPU 0 in the program's zone.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct PageCache {
    /// The blocks in it.
    pub(super) blocks: Vec<Blocks>,
    /// The most pages that it may hold.
    pub(super) high: u32,
}

impl PageCache {
    /// Returns the number of pages in it.
    pub(super) fn pages(&self) -> u32 {
        self.blocks.iter().map(|blocks| blocks.pages()).sum()
    }
}

/// A tick while the program takes and frees no page.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct TickDrain {
    /// The pages by which the page cache grew since the tick before.
    pub(super) grown: i64,
    /// The pages that others' refills and drains moved since the tick before.
    pub(super) moved: u32,
    /// The pages that the tick returned to the zone.
    pub(super) returned: u32,
}

/// The counts of one side.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Observed {
    /// The page cache of CPU 0 in the program's zone.
    pub(super) limits: PcpLimits,
    /// Pages moved by each refill of single movable pages.
    pub(super) refills: Vec<u32>,
    /// Whether an upkeep tick ran on the CPU meanwhile: it shrinks the page cache.
    pub(super) ticked: bool,
    /// Whether another task or an interrupt used the page cache or the LRU batch meanwhile.
    pub(super) used_by_others: bool,
    /// Pages moved by each drain of the program's frees.
    pub(super) drains: Vec<u32>,
    /// On the kernel, the pages of the last block of each of these.
    pub(super) last_blocks: Vec<u32>,
    /// `high` of the page cache after these frees.
    pub(super) high_after: u32,
    /// The ticks after that, while the program takes and frees no page.
    pub(super) ticks: Vec<TickDrain>,
    /// Folios of each batch that was added to the LRU lists while the program took pages.
    pub(super) lru_batches: Vec<u32>,
    /// Folios in these batches beyond those of the pages that the program touches: the CPU's batch
    /// had them before, or they are of the program's stack and heap.
    pub(super) earlier_folios: u32,
    /// For each CPU, the jiffies from the start of one tick to the start of the next.
    pub(super) tick_gaps: Vec<Vec<u64>>,
    /// For each kind of call that was made, by its index, what its calls did.
    pub(super) calls: Vec<(usize, Effects)>,
    /// For each number of other CPUs with folios in their LRU batches, the works that each mbind
    /// queued.
    pub(super) works: Vec<Vec<Works>>,
}

/// The effects of the calls of one kind: a number for each call.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct Effects {
    /// Flushes of translations.
    pub(super) flushes: Vec<u32>,
    /// Pages that flushes invalidated one by one; 0 for a flush of everything.
    pub(super) flushed_pages: Vec<u32>,
    /// Flushes that needed another CPU.
    pub(super) remote_flushes: Vec<u32>,
    /// CPUs that were interrupted for flushes.
    pub(super) interrupts: Vec<u32>,
    /// Acquisitions of mmap_lock.
    pub(super) mmap_locks: Vec<u32>,
    /// Page faults.
    pub(super) faults: Vec<u32>,
    /// Single pages, huge pages, and blocks of other sizes that were allocated for the program.
    pub(super) taken: [Vec<u32>; 3],
    /// Page tables that were allocated.
    pub(super) tables: Vec<u32>,
    /// Page tables that were freed afterwards, with all that the call used.
    pub(super) freed_tables: Vec<u32>,
    /// Whether an interrupt or another task did something on the CPU meanwhile.
    pub(super) disturbed: Vec<bool>,
    /// Whether CPU 1 ran another task than the program's thread at some time of the call.
    pub(super) elsewhere: Vec<bool>,
}

/// Works that a call queued to drain LRU batches.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Works {
    /// All of them.
    pub(super) all: u32,
    /// Those for CPU 0 itself that found folios there.
    pub(super) own: u32,
}

impl Observed {
    /// Pages that each tick returned, of the ticks that returned any.
    pub(super) fn returned_by_ticks(&self) -> Vec<u32> {
        self.ticks.iter().map(|tick| tick.returned).filter(|&pages| pages > 0).collect()
    }
}

impl Effects {
    /// The counts, in the order of the columns of the comparison.
    pub(super) fn counts(&self) -> [&[u32]; 5] {
        [&self.flushes, &self.flushed_pages, &self.interrupts, &self.mmap_locks, &self.faults]
    }
    /// The counts of memory, in the order of the columns of the comparison.
    pub(super) fn memory(&self) -> [&[u32]; 5] {
        let [single, huge, others] = &self.taken;
        [single, huge, others, &self.tables, &self.freed_tables]
    }
}

/// Returns the number that most calls had; the smallest of several.
pub(super) fn usual(numbers: &[u32]) -> Option<u32> {
    let times = |number: u32| numbers.iter().filter(|&&other| other == number).count();
    numbers.iter().copied().max_by_key(|&number| (times(number), std::cmp::Reverse(number)))
}
