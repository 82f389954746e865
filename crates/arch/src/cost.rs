//! What work costs: operations and cache lines, by name. Empty on real hardware.
//!
//! An operation is a piece of real code, with a cost that stands in a machine profile with its
//! source. It is never an arm, a study or a policy: waiting emerges only from locks that are taken.

use super::{NodeId, Pfn};

/// A piece of straight-line work, cache misses on named lines not included.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum Op {
    /// Entry to and exit from the operating system.
    Syscall,
    /// What an allocation does before it looks at a page cache: zone choice, watermark.
    AllocEntry,
    /// Unlinking one block from a page cache's list.
    PcpTake,
    /// Preparing one block for use or checking it on its way back, per block.
    PagePrep,
    /// Linking one block into a page cache's list.
    PcpPut,
    /// Unlinking one block from a buddy free list.
    BuddyTake,
    /// Linking one block into a buddy free list.
    BuddyPut,
    /// One split or one merge of two buddies.
    BuddyStep,
    /// Clearing one 4 KiB page that is not in the cache. Also uses its node's bandwidth.
    ClearPage,
    /// Folding one nonzero counter delta into its zone or node.
    CounterFold,
    /// Looking at one CPU's or one zone's counters without folding.
    CounterScan,
    /// The timer interrupt's own work, without the timers it runs.
    TimerTick,
    /// Running one expired timer.
    TimerExpire,
    /// Queueing or arming one piece of work or one timer.
    WorkQueue,
    /// A worker taking up one piece of work.
    WorkRun,
    /// Putting one folio into a CPU's LRU batch, or taking it out of one by itself.
    LruBatch,
    /// Linking one folio into an LRU list or unlinking it, sizes and counters included.
    LruLink,
    /// Charging or uncharging a memory group once, the shared counter not included.
    GroupCharge,
    /// The walk of the hardware that a missing translation costs.
    PageWalk,
    /// The walk of the software from the root to one entry, locks not included.
    TableWalk,
    /// Filling one entry of a page table.
    PteSet,
    /// Looking at one entry of a page table that turns out to be empty.
    PteScan,
    /// Taking one entry out of a page table, or changing one that is in use.
    PteClear,
    /// Invalidating one translation on the own CPU.
    TlbFlushPage,
    /// Invalidating all translations of an address space on the own CPU.
    TlbFlushAll,
    /// Loading another address space.
    MmSwitch,
    /// Taking, sharing or giving back one swap slot, its cluster's lock not included.
    SwapSlot,
    /// Reading one page through and finding only zeros.
    ZeroScan,
    /// Making up one request to the swap device and handing it over.
    IoSubmit,
    /// Taking one finished request back and ending it.
    IoComplete,
    /// Looking at one folio that may be reclaimed, its page-table entries not included.
    ReclaimScan,
    /// Copying one 4 KiB page that is not in the cache. Also uses its node's bandwidth.
    CopyPage,
    /// The exception of a page fault: entry, exit, and finding out what it is.
    FaultEntry,
    /// What a page fault does whatever the page: checks and books, look-ups not included.
    FaultHandle,
    /// One look-up of a VMA or of a gap in an address space.
    VmaFind,
    /// Adding, removing, splitting or resizing one VMA: its memory, the tree, the books.
    VmaEdit,
    /// Compressing one 4 KiB page and storing what comes out.
    CompressPage,
    /// Finding one compressed page and unpacking it.
    DecompressPage,
    /// Giving the memory of one compressed page back.
    CompressedFree,
    /// Unlinking one more folio from an LRU list, sizes and counters not included.
    LruDetach,
}

impl Op {
    /// All operations, in the order of their discriminants.
    pub const ALL: [Self; 40] = [
        Self::Syscall,
        Self::AllocEntry,
        Self::PcpTake,
        Self::PagePrep,
        Self::PcpPut,
        Self::BuddyTake,
        Self::BuddyPut,
        Self::BuddyStep,
        Self::ClearPage,
        Self::CounterFold,
        Self::CounterScan,
        Self::TimerTick,
        Self::TimerExpire,
        Self::WorkQueue,
        Self::WorkRun,
        Self::LruBatch,
        Self::LruLink,
        Self::GroupCharge,
        Self::PageWalk,
        Self::TableWalk,
        Self::PteSet,
        Self::PteScan,
        Self::PteClear,
        Self::TlbFlushPage,
        Self::TlbFlushAll,
        Self::MmSwitch,
        Self::SwapSlot,
        Self::ZeroScan,
        Self::IoSubmit,
        Self::IoComplete,
        Self::ReclaimScan,
        Self::CopyPage,
        Self::FaultEntry,
        Self::FaultHandle,
        Self::VmaFind,
        Self::VmaEdit,
        Self::CompressPage,
        Self::DecompressPage,
        Self::CompressedFree,
        Self::LruDetach,
    ];
    /// The key under which profiles give the cost.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Syscall => "syscall",
            Self::AllocEntry => "alloc_entry",
            Self::PcpTake => "pcp_take",
            Self::PagePrep => "page_prep",
            Self::PcpPut => "pcp_put",
            Self::BuddyTake => "buddy_take",
            Self::BuddyPut => "buddy_put",
            Self::BuddyStep => "buddy_step",
            Self::ClearPage => "clear_page",
            Self::CounterFold => "counter_fold",
            Self::CounterScan => "counter_scan",
            Self::TimerTick => "timer_tick",
            Self::TimerExpire => "timer_expire",
            Self::WorkQueue => "work_queue",
            Self::WorkRun => "work_run",
            Self::LruBatch => "lru_batch",
            Self::LruLink => "lru_link",
            Self::GroupCharge => "group_charge",
            Self::PageWalk => "page_walk",
            Self::TableWalk => "table_walk",
            Self::PteSet => "pte_set",
            Self::PteScan => "pte_scan",
            Self::PteClear => "pte_clear",
            Self::TlbFlushPage => "tlb_flush_page",
            Self::TlbFlushAll => "tlb_flush_all",
            Self::MmSwitch => "mm_switch",
            Self::SwapSlot => "swap_slot",
            Self::ZeroScan => "zero_scan",
            Self::IoSubmit => "io_submit",
            Self::IoComplete => "io_complete",
            Self::ReclaimScan => "reclaim_scan",
            Self::CopyPage => "copy_page",
            Self::FaultEntry => "fault_entry",
            Self::FaultHandle => "fault_handle",
            Self::VmaFind => "vma_find",
            Self::VmaEdit => "vma_edit",
            Self::CompressPage => "compress_page",
            Self::DecompressPage => "decompress_page",
            Self::CompressedFree => "compressed_free",
            Self::LruDetach => "lru_detach",
        }
    }
}

/// A cache line of the memory manager's own data, named by what it holds, never by address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Line {
    /// The metadata of one frame.
    Frame(Pfn),
    /// The list head of a zone's free lists of one order (`zone index * 16 + order`).
    FreeArea(u32),
    /// Another shared line, by the caller's own numbering; keep the numbers small and dense.
    Shared(u32),
    /// A line of a node's memory that nothing has cached.
    Cold(NodeId),
}

/// How a line is used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Read by whoever owns what the line holds: other CPUs keep their copies.
    Read,
    /// Read of a frame that somebody else may be writing (a neighbour): leaves no copy behind.
    Peek,
    /// Write: this CPU becomes the owner.
    Write,
}
