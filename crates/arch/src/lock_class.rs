//! Classes of locks: the lock order, and the rows of statistics.

use crate::names::named;

named! {
    /// Class of a lock: its rank in the lock order, and its row in statistics.
    ///
    /// # Lock order
    /// This is the only statement of it. A CPU may wait for a lock only while every lock that it
    /// holds is of an earlier row, so it never waits for a second lock of one class. Trying a lock
    /// is allowed in any order. `mmscale-sim` (`Rule::LockOrder`) and `mmscale-stepped` check
    /// every spin lock that is waited for.
    ///
    /// An interrupt may wait for a lock while the interrupted task holds any lock that is taken
    /// with interrupts on. So all of these come before those that interrupts wait for
    /// (`Rule::InterruptSafety`).
    ///
    /// | class | lock | interrupts in tasks |
    /// |---|---|---|
    /// | `Hotplug` to `Rwsem` | sleeping locks (1) | on |
    /// | `Osq` | queue of tasks that spin for a sleeping lock | on |
    /// | `PageTable`, `Pmd`, `Pte` | page tables, upper levels first | on: a flush may wait |
    /// | `IPages` | the page cache of a file | on (4) |
    /// | `Swap` | a cluster of slots, or the list of clusters | on |
    /// | `ZsPool`, `ZsClass` | compressed pages, and a size class of them | on |
    /// | `Pidmap` | the numbers of tasks | on |
    /// | `Pcp` | a CPU's page cache | on |
    /// | `Zone` | a zone's free lists | off |
    /// | `Lruvec` | LRU lists of a group on a node (2) | off |
    /// | `Rstat` | the folded statistics of memory groups | off |
    /// | `Committed` | the total of the promised memory | off |
    /// | `Pcpu`, `PcpuCounters` | per-CPU memory, and the list of counters in it | off |
    /// | `Tasklist`, `Siglock` | the list of processes, and the signals of one | off |
    /// | `Work`, `Timer`, `Rcu`, `WaitQueue` | queues | off |
    /// | `Other` | tables and lists, held for moments (3) | on |
    ///
    /// 1. Never waited for under a spin lock (checked by the simulator: `Rule::SleepWhileAtomic`).
    ///    Among them also: a VMA's lock, a folio's lock. No machine checks that order.
    /// 2. Never held together with a lock of class `Pcp`, although the ranks allow it.
    /// 3. The simulator lets them nest.
    /// 4. Off in Linux, where the end of writeback takes it in an interrupt.
    ///
    /// The order of the variants is that of the ranks.
    pub enum LockClass {
        /// The hotplug lock (sleeping).
        Hotplug = "hotplug",
        /// The memory groups that exist (`cgroup_mutex`, sleeping).
        Cgroup = "cgroup_mutex",
        /// Any other sleeping mutex.
        Mutex = "mutex",
        /// The allocation of per-CPU memory (`pcpu_alloc_mutex`, sleeping).
        PcpuMutex = "pcpu_alloc_mutex",
        /// The mmap_lock of an address space (sleeping).
        MmapLock = "mmap_lock",
        /// The mappings of a file (sleeping).
        IMmap = "i_mmap",
        /// The root of a tree of `anon_vma`s (sleeping).
        AnonVma = "anon_vma",
        /// Any other reader-writer semaphore (sleeping).
        Rwsem = "rwsem",
        /// The queue of tasks that spin for a sleeping lock whose owner runs.
        Osq = "osq",
        /// The two upper levels of an address space's page tables.
        PageTable = "page_table",
        /// A page table of the level that may map huge pages.
        Pmd = "pmd",
        /// A page table of the lowest level.
        Pte = "pte",
        /// The page cache of a file (`i_pages`).
        IPages = "i_pages",
        /// A cluster of swap slots, or the list of clusters.
        Swap = "swap",
        /// All compressed pages (`pool->lock` of zsmalloc in Linux 6.2 to 6.10).
        ZsPool = "zs_pool",
        /// A size class of compressed pages (`class->lock` of zsmalloc).
        ZsClass = "zs_class",
        /// The numbers of tasks (`pidmap_lock`). Since Linux 6.15 it is taken with interrupts on.
        Pidmap = "pidmap",
        /// A CPU's page cache.
        Pcp = "pcp",
        /// A zone's buddy allocator.
        Zone = "zone",
        /// The LRU lists of one memory group on one node. One context never holds it together with
        /// a page cache's lock; but an interrupt may take it while the interrupted task holds one.
        Lruvec = "lruvec",
        /// The statistics of memory groups, as far as they are folded.
        Rstat = "rstat",
        /// The total of the memory that is promised (`vm_committed_as`).
        Committed = "committed",
        /// The free areas of per-CPU memory (`pcpu_lock`).
        Pcpu = "pcpu",
        /// The list of all counters that have a part for each CPU (`percpu_counters_lock`).
        PcpuCounters = "percpu_counters",
        /// The list of processes (`tasklist_lock`). Its readers exclude one another here.
        Tasklist = "tasklist",
        /// The signals of one process (`siglock`).
        Siglock = "siglock",
        /// A work queue of one CPU.
        Work = "work",
        /// A timer base of one CPU.
        Timer = "timer",
        /// Grace-period state.
        Rcu = "rcu",
        /// The state of a sleeping lock or a wait queue.
        WaitQueue = "wait_queue",
        /// A lock of a test or of a program on the machine.
        Other = "other",
    }
}

impl LockClass {
    /// Whether tasks sleep while they wait for a lock of this class.
    pub const fn is_sleeping(self) -> bool {
        (self as u8) < (Self::Osq as u8)
    }
    /// Whether CPUs spin for a lock of this class, and it is not the queue of a sleeping one.
    pub const fn is_spin(self) -> bool {
        (self as u8) > (Self::Osq as u8)
    }
}
