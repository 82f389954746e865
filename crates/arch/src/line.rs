//! Names of the data in cache lines, for statistics of transfers between CPUs.

use crate::LockClass;
use crate::names::named;

named! {
    /// Data of the memory manager that is shared by CPUs, named as in Linux.
    pub enum DataLine {
        /// The record of a frame or a folio.
        StructPage = "struct page",
        /// The list head of a zone's free blocks of one order.
        FreeArea = "zone->free_area",
        /// The list heads of a lruvec, next to its lock.
        LruLists = "lruvec->lists",
        /// The sizes of a lruvec's lists.
        LruSizes = "lru_zone_size",
        /// The lock of a VMA.
        VmaLock = "vm_lock",
        /// The generation of an address space's translations.
        TlbGen = "tlb_gen",
        /// The CPUs that may have an address space loaded.
        MmCpumask = "mm_cpumask",
        /// The address space that a CPU has loaded.
        LoadedMm = "cpu_tlbstate",
        /// The number of unmaps whose flush is pending.
        FlushPending = "tlb_flush_pending",
        /// The pages that an address space maps.
        Rss = "rss_stat",
        /// The page tables of an address space.
        TableCount = "pgtables_bytes",
        /// The state of an address space: killed, victim, reaped.
        MmFlags = "mm->flags",
        /// The sequence of changes of an address space.
        MmLockSeq = "mm_lock_seq",
        /// The pages that a memory group is charged for.
        PageCounter = "page_counter",
        /// The changes of a memory group's statistics since they were folded.
        StatsUpdates = "stats_updates",
        /// A zone's counters.
        ZoneStat = "zone->vm_stat",
        /// A node's counters.
        NodeStat = "pgdat->vm_stat",
        /// A zone's flags.
        ZoneFlags = "zone->flags",
        /// The users of a file.
        FileUsers = "f_count",
        /// A tree of the VMAs that map a file.
        RmapTree = "i_mmap tree",
        /// Data of which each CPU has a copy.
        Percpu = "per-CPU data",
        /// Which places of per-CPU memory are free.
        PcpuChunk = "pcpu_chunk",
        /// The page cache of a file.
        PageCache = "i_pages",
        /// Requests of one CPU to another.
        CallQueue = "call_single_queue",
        /// The state of one request.
        CallState = "call_single_data",
        /// Grace periods.
        Rcu = "rcu_state",
        /// The words of pageblocks, of policy `blockmap`.
        Blockmap = "blockmap words",
        /// The readers of zsmalloc's `pool->lock`.
        PoolLock = "pool->lock",
        /// The counts of a zram device.
        ZramStats = "zram->stats",
        /// Any other data.
        Other = "other data",
    }
}

/// The data in a cache line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LineName {
    /// The word of a lock of this class.
    Lock(LockClass),
    /// Data without a lock of its own, or next to its lock.
    Data(DataLine),
}

impl LineName {
    /// The number of names; [`LineName::number`] is below it.
    pub const COUNT: usize = LockClass::COUNT + DataLine::COUNT;

    /// A number for tables: locks first.
    pub const fn number(self) -> usize {
        match self {
            Self::Lock(class) => class as usize,
            Self::Data(data) => LockClass::COUNT + data as usize,
        }
    }
    /// The name with this number.
    ///
    /// # Panics
    /// If no name has it.
    pub const fn of_number(number: usize) -> Self {
        if number < LockClass::COUNT {
            Self::Lock(LockClass::ALL[number])
        } else {
            Self::Data(DataLine::ALL[number - LockClass::COUNT])
        }
    }
    /// The name in files and reports: that of the data, or of the lock's class.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Lock(class) => class.name(),
            Self::Data(data) => data.name(),
        }
    }
}

impl From<LockClass> for LineName {
    fn from(class: LockClass) -> Self {
        Self::Lock(class)
    }
}

impl From<DataLine> for LineName {
    fn from(data: DataLine) -> Self {
        Self::Data(data)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_one_number() {
        for number in 0..LineName::COUNT {
            assert_eq!(LineName::of_number(number).number(), number);
        }
        assert_eq!(LineName::from(LockClass::Zone).name(), "zone");
        assert_eq!(LineName::from(DataLine::TlbGen).name(), "tlb_gen");
    }
}
