//! The counts of one side: the kernel, or the simulator.

use mmscale_frames::pcp::PcpLimits;

/// The state of the page cache of CPU 0 in the program's zone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct PageCache {
    /// Pages in it.
    pub(super) count: u32,
    /// Those of them that the program could take: single movable ones.
    pub(super) movable: u32,
    /// The most pages that it may hold.
    pub(super) high: u32,
}

/// The counts of one side.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Observed {
    /// The page cache of CPU 0 in the program's zone.
    pub(super) limits: PcpLimits,
    /// Pages moved by each refill of single movable pages.
    pub(super) refills: Vec<u32>,
    /// Whether pages were freed on the CPU between two refills.
    pub(super) freed_between_refills: bool,
    /// Pages moved by each drain of the program's frees.
    pub(super) drains: Vec<u32>,
    /// Pages that other tasks took, freed and drained on the CPU while the program only computed.
    pub(super) used_by_others: u32,
    /// Pages that each tick returned while the program only computed.
    pub(super) returned_by_ticks: Vec<u32>,
    /// Folios of each batch that was added to the LRU lists while the program took pages.
    pub(super) lru_batches: Vec<u32>,
    /// Folios in these batches that the program had not taken: the CPU's batch had them before.
    pub(super) earlier_folios: u32,
    /// For each CPU, the jiffies from the start of one tick to the start of the next.
    pub(super) tick_gaps: Vec<Vec<u64>>,
    /// For each kind of call, what its calls did.
    pub(super) calls: Vec<Effects>,
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
}

impl Effects {
    /// The counts, in the order of the columns of the comparison.
    pub(super) fn counts(&self) -> [&[u32]; 5] {
        [&self.flushes, &self.flushed_pages, &self.interrupts, &self.mmap_locks, &self.faults]
    }
}

/// Returns the number that most calls had; the smallest of several.
pub(super) fn usual(numbers: &[u32]) -> Option<u32> {
    let times = |number: u32| numbers.iter().filter(|&&other| other == number).count();
    numbers.iter().copied().max_by_key(|&number| (times(number), std::cmp::Reverse(number)))
}
