//! Names for costs: operations and cache lines. Without effect on real hardware.
//!
//! An operation is a piece of real code. Its cost is in a machine profile, with its source. It is
//! never an arm, a study or a policy. Waiting is never charged: it results from real locks only.

use super::{NodeId, Pfn};
use crate::names::named;

named! {
    /// A piece of straight-line work, cache misses on named lines not included. Its name is the key
    /// under which profiles give its cost.
    pub enum Op {
        /// Entry to and exit from the operating system.
        Syscall = "syscall",
        /// Part of an allocation before it accesses a page cache: zone choice, watermark.
        AllocEntry = "alloc_entry",
        /// Taking one block from a page cache's list for an allocation, under the cache's lock.
        PcpTake = "pcp_take",
        /// Preparing one block for use, or checking it when it is freed, per block.
        PagePrep = "page_prep",
        /// Checking the record of one page before it is handed out; the records of a block are in a
        /// row.
        PageCheck = "page_check",
        /// Preparing one page of a block when it is freed, its first page not included.
        PageTail = "page_tail",
        /// Freeing one block to a page cache's list, under the cache's lock.
        PcpPut = "pcp_put",
        /// Moving one block from a zone to a page cache: its type, its record and the cache's list,
        /// the work on free lists not included.
        RefillPage = "refill_page",
        /// Moving one block from a page cache to a zone: the cache's list, the type of its
        /// pageblock, the search for its buddy, the work on free lists not included.
        DrainPage = "drain_page",
        /// Unlinking one block from a buddy free list.
        BuddyTake = "buddy_take",
        /// Linking one block into a buddy free list.
        BuddyPut = "buddy_put",
        /// One split or one merge of two buddies.
        BuddyStep = "buddy_step",
        /// Clearing one 4 KiB page that is not in the cache. Also uses its node's bandwidth.
        ClearPage = "clear_page",
        /// Folding one nonzero counter delta into its zone or node.
        CounterFold = "counter_fold",
        /// Reading one CPU's or one zone's counters without folding.
        CounterScan = "counter_scan",
        /// Work of the timer interrupt itself, without the timers it runs.
        TimerTick = "timer_tick",
        /// Running one expired timer.
        TimerExpire = "timer_expire",
        /// Queueing or arming one piece of work or one timer.
        WorkQueue = "work_queue",
        /// A worker taking up one piece of work.
        WorkRun = "work_run",
        /// Putting one folio into a CPU's LRU batch, or taking it out of one by itself.
        LruBatch = "lru_batch",
        /// Linking one folio into an LRU list or unlinking it, sizes and counters included.
        LruLink = "lru_link",
        /// Charging or uncharging a memory group once, the shared counter not included.
        GroupCharge = "group_charge",
        /// One access of a program to a page whose translation is in the TLB. The transfer of the
        /// data is not included.
        Access = "access",
        /// A page-table walk by the hardware after a TLB miss.
        PageWalk = "page_walk",
        /// A page-table walk by software from the root to one entry, locks not included.
        TableWalk = "table_walk",
        /// Filling one entry of a page table.
        PteSet = "pte_set",
        /// Reading one entry of a page table that is empty.
        PteScan = "pte_scan",
        /// Taking one entry out of a page table, or changing one that is in use.
        PteClear = "pte_clear",
        /// Mapping one folio at a fault, under the page-table lock: its reverse map and references,
        /// the entry, the batch and statistics not included.
        MapPage = "map_page",
        /// Unmapping one folio of a range, under the page-table lock: its reverse map, and the list
        /// of what is freed after the flush, the entry and statistics not included.
        UnmapPage = "unmap_page",
        /// Invalidating one translation on the own CPU.
        TlbFlushPage = "tlb_flush_page",
        /// Invalidating all translations of an address space on the own CPU.
        TlbFlushAll = "tlb_flush_all",
        /// Loading another address space.
        MmSwitch = "mm_switch",
        /// Taking, sharing or freeing one swap slot, its cluster's lock not included.
        SwapSlot = "swap_slot",
        /// Reading one page through and finding only zeros.
        ZeroScan = "zero_scan",
        /// Building one request to the swap device and submitting it.
        IoSubmit = "io_submit",
        /// Completing one finished request.
        IoComplete = "io_complete",
        /// Examining one folio that may be reclaimed, its page-table entries not included.
        ReclaimScan = "reclaim_scan",
        /// Copying one 4 KiB page that is not in the cache. Also uses its node's bandwidth.
        CopyPage = "copy_page",
        /// The exception of a page fault: entry, exit, and decoding.
        FaultEntry = "fault_entry",
        /// Work common to all page faults: checks and counters, look-ups not included.
        FaultHandle = "fault_handle",
        /// One look-up of a VMA or of a gap in an address space.
        VmaFind = "vma_find",
        /// Adding, removing, splitting or resizing one VMA: its memory, the tree, the counters.
        VmaEdit = "vma_edit",
        /// Compressing one 4 KiB page and storing the result.
        CompressPage = "compress_page",
        /// Finding one compressed page and unpacking it.
        DecompressPage = "decompress_page",
        /// Freeing one compressed page: finding it, its place in its zspage, its slot; locks and
        /// the free of the zspage's pages not included.
        CompressedFree = "compressed_free",
        /// Unlinking one more folio from an LRU list, sizes and counters not included.
        LruDetach = "lru_detach",
        /// Finding the group and the lruvec of one change of their statistics, and testing whether
        /// a flush will find it; the additions not included.
        StatUpdate = "stat_update",
        /// Adding to one of this CPU's own values, whose line is in its cache.
        PercpuAdd = "percpu_add",
        /// Finding a free place in per-CPU memory, or freeing one, under `pcpu_lock`.
        PercpuPlace = "percpu_place",
        /// Zeroing one CPU's copy of a place, or one line of a new object; its line not included.
        PercpuZero = "percpu_zero",
        /// One step of a loop over the CPUs' copies of a value, which adds it to a sum or sets it;
        /// its line not included.
        PercpuStep = "percpu_step",
        /// Folding one CPU's statistics of one memory group.
        StatFlush = "stat_flush",
        /// Formatting one number of a file in /proc, with its name and its line.
        SeqNumber = "seq_number",
        /// Linking one VMA into a tree of the reverse map, or unlinking it.
        RmapLink = "rmap_link",
        /// One change of the table of task numbers: taking, publishing or freeing one.
        PidEdit = "pid_edit",
        /// Adding one task to the lists of processes, or taking it out of some of them.
        TaskLink = "task_link",
        /// Copying or freeing the signal handlers of one process, or noting a signal.
        SignalEdit = "signal_edit",
        /// Copying one VMA of many into a new address space, or freeing one at its end: its memory
        /// and its place in the tree.
        VmaCopy = "vma_copy",
    }
}

/// A cache line of the memory manager's own data, named by its content, never by address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Line {
    /// The metadata of one frame.
    Frame(Pfn),
    /// The list head of a zone's free lists of one order (`zone index * 16 + order`).
    FreeArea(u32),
    /// The list heads of a lruvec, by its number. A hit is part of `Op::LruLink`.
    LruLists(u32),
    /// The sizes of a lruvec's lists, by its number. A hit is part of `Op::LruLink`.
    LruSizes(u32),
    /// The lower nodes of a tree of VMAs that map a file, by the tree's number and the node's. A
    /// hit is part of `Op::RmapLink`.
    RmapTree(u32),
    /// A line of this CPU's copy of data that each CPU has, by its number. Used at the CPU's turn.
    Percpu(u32),
    /// The line of this number of each possible CPU's copy, in a loop that does not depend on what
    /// it reads. Used at the CPU's turn.
    EachPercpu(u32),
    /// A line of a node's memory that is in no cache.
    Cold(NodeId),
}

/// Kind of access to a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Read by the owner of the data on the line: copies in other CPUs' caches stay valid.
    Read,
    /// Read of a frame that another CPU may be writing (a neighbour): leaves no copy in the cache.
    Peek,
    /// Write: this CPU becomes the owner.
    Write,
    /// A write of which nothing that follows depends, such as a link in a neighbour on a list: this
    /// CPU becomes the owner, and goes on while the line comes.
    Store,
}

impl Access {
    /// Whether this CPU becomes the owner of the line.
    #[inline]
    pub const fn writes(self) -> bool {
        matches!(self, Self::Write | Self::Store)
    }
}
