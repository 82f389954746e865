//! Typed tracepoints and spans.
//!
//! A span is a named function on the call path of a task or an interrupt; the names are the
//! kernel's, so that profiles read as kernel people expect. Lock statistics are kept per class and
//! call path. A tracepoint is a fact about one CPU at one time. A machine hands it to a [`Probe`]
//! of that CPU; adding facts up over CPUs is the reader's work, so that no probe shares anything.

use super::{Asid, CpuId, Order, Pfn};
use crate::names::named;
use alloc::boxed::Box;
use core::any::Any;

named! {
    /// A named function on a call path; the name is the kernel's.
    #[expect(missing_docs, reason = "the names are the kernel's function names")]
    pub enum Func {
        Root = "root",
        Interrupt = "interrupt",
        Kworker = "kworker",
        Program = "program",
        AllocPages = "alloc_pages",
        FreePages = "free_pages",
        RmqueueBulk = "rmqueue_bulk",
        Rmqueue = "rmqueue",
        FreePcppagesBulk = "free_pcppages_bulk",
        FreeOnePage = "free_one_page",
        VmstatUpdate = "vmstat_update",
        VmstatShepherd = "vmstat_shepherd",
        QuietVmstat = "quiet_vmstat",
        RefreshCpuVmStats = "refresh_cpu_vm_stats",
        DecayPcpHigh = "decay_pcp_high",
        DrainPages = "drain_pages",
        DrainZonePages = "drain_zone_pages",
        DrainAllPages = "drain_all_pages",
        RunTimers = "run_timers",
        QueueWorkOn = "queue_work_on",
        ProcessOneWork = "process_one_work",
        FlushWork = "flush_work",
        SynchronizeRcu = "synchronize_rcu",
        SynchronizeRcuExpedited = "synchronize_rcu_expedited",
        CpuhpDown = "cpuhp_down",
        CpuhpUp = "cpuhp_up",
        FolioAddLru = "folio_add_lru",
        FolioBatchMoveLru = "folio_batch_move_lru",
        LruAddDrain = "lru_add_drain",
        LruAddDrainAll = "lru_add_drain_all",
        LruCacheDisable = "lru_cache_disable",
        ReleasePages = "release_pages",
        FolioIsolateLru = "folio_isolate_lru",
        FolioPutbackLru = "folio_putback_lru",
        IsolateLruFolios = "isolate_lru_folios",
        MoveFoliosToLru = "move_folios_to_lru",
        FolioActivate = "folio_activate",
        FolioRotateReclaimable = "folio_rotate_reclaimable",
        MlockFolio = "mlock_folio",
        MunlockFolio = "munlock_folio",
        TryCharge = "try_charge",
        DrainAllStock = "drain_all_stock",
        PteAlloc = "__pte_alloc",
        FreePgtables = "free_pgtables",
        CopyPageRange = "copy_page_range",
        MovePageTables = "move_page_tables",
        SplitHugePmd = "__split_huge_pmd",
        SmpCallFunctionMany = "smp_call_function_many_cond",
        CsdLock = "csd_lock",
        CsdLockWait = "csd_lock_wait",
        FlushSmpCallFunctionQueue = "__flush_smp_call_function_queue",
        FlushTlbMmRange = "flush_tlb_mm_range",
        FlushTlbKernelRange = "flush_tlb_kernel_range",
        ArchTlbbatchFlush = "arch_tlbbatch_flush",
        FlushTlbFunc = "flush_tlb_func",
        TlbFlushMmu = "tlb_flush_mmu",
        TlbFinishMmu = "tlb_finish_mmu",
        SwitchMm = "switch_mm",
        DoMmap = "do_mmap",
        DoMunmap = "do_munmap",
        UnmapPageRange = "unmap_page_range",
        MmPopulate = "mm_populate",
        HandleMmFault = "handle_mm_fault",
        DoAnonymousPage = "do_anonymous_page",
        DoFault = "do_fault",
        DoWpPage = "do_wp_page",
        DoSwapPage = "do_swap_page",
        ChangeProtection = "change_protection",
        DoMremap = "do_mremap",
        DoMadvise = "do_madvise",
        DoMlock = "do_mlock",
        DoMincore = "do_mincore",
        DupMmap = "dup_mmap",
        ExitMmap = "exit_mmap",
        UnmapVmas = "unmap_vmas",
        OomReapTaskMm = "__oom_reap_task_mm",
        FolioRemoveRmapPtes = "folio_remove_rmap_ptes",
        ProcessMrelease = "process_mrelease",
        DoExit = "do_exit",
        OutOfMemory = "out_of_memory",
        OomReaper = "oom_reaper",
        MigratePages = "migrate_pages",
        RmapWalk = "rmap_walk",
        CollapseHugePage = "collapse_huge_page",
        ShrinkFolioList = "shrink_folio_list",
        ShrinkActiveList = "shrink_active_list",
        ShrinkInactiveList = "shrink_inactive_list",
        BalancePgdat = "balance_pgdat",
        TryToFreePages = "try_to_free_pages",
        ReclaimPages = "reclaim_pages",
        FolioAllocSwap = "folio_alloc_swap",
        SwapWriteout = "swap_writeout",
        SwapReadFolio = "swap_read_folio",
        SwapFree = "swap_free",
        SwapCacheGet = "swap_cache_get_folio",
        FolioFreeSwap = "folio_free_swap",
        FolioEndWriteback = "folio_end_writeback",
        FolioLock = "__folio_lock",
        FolioWaitWriteback = "folio_wait_writeback",
        SwapReclaimFull = "swap_reclaim_full_clusters",
        RwsemOptimisticSpin = "rwsem_optimistic_spin",
    }
}

impl Func {
    /// Whether it is called rarely enough, and takes long enough, to be measured by a clock that
    /// takes time to read.
    pub const fn is_coarse(self) -> bool {
        matches!(
            self,
            Self::DoExit
                | Self::ExitMmap
                | Self::UnmapVmas
                | Self::FreePgtables
                | Self::TlbFlushMmu
                | Self::TlbFinishMmu
                | Self::ProcessMrelease
                | Self::OomReapTaskMm
        )
    }
}

/// On what grounds pages are taken out of a page table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ZapBy {
    /// A walk comes by it; others may too.
    Walk,
    /// It was claimed: nobody else comes by it.
    Claim,
}

/// A fact about one CPU, emitted where it happens.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Trace {
    /// The page cache of `cpu` in zone `zone` held `old` pages, now holds `count`, and may hold
    /// `high`. With both counts, the mean of the total over time is a plain sum over events.
    PcpCount {
        /// Whose cache; not always the CPU that emits.
        cpu: CpuId,
        /// Zone index over the whole machine.
        zone: u16,
        /// Pages held before.
        old: u32,
        /// Pages held now.
        count: u32,
        /// The limit now.
        high: u32,
        /// The limit's floor.
        high_min: u32,
    },
    /// A refill moved `pages` pages from a zone into the emitting CPU's cache in one hold.
    PcpRefill {
        /// Zone index.
        zone: u16,
        /// Pages moved.
        pages: u32,
    },
    /// A drain moved `pages` pages from a cache back to its zone in one hold.
    PcpDrain {
        /// Zone index.
        zone: u16,
        /// Pages moved.
        pages: u32,
    },
    /// One phase of a refill of a cache that owns pageblocks moved `pages` pages.
    PcpPhase {
        /// Zone index.
        zone: u16,
        /// Which, as `pcp::RefillPhase` numbers them.
        phase: u8,
        /// Pages moved.
        pages: u32,
    },
    /// `cpu` owns this many pageblocks of a zone more than before.
    PcpOwned {
        /// Whose; not always the CPU that emits.
        cpu: CpuId,
        /// Zone index.
        zone: u16,
        /// The change.
        change: i8,
    },
    /// A block was freed into the cache of another CPU, which owns its pageblock.
    PcpFreeRemote {
        /// The owner.
        owner: CpuId,
        /// Pages freed.
        pages: u32,
    },
    /// A block was freed into its zone because the cache it belongs into was locked.
    PcpBusy {
        /// Whose cache; the emitting CPU's own, or the owner's of the pageblock.
        cpu: CpuId,
        /// Pages freed.
        pages: u32,
    },
    /// The delta of a counter of `cpu` changed. Zone counters and node counters have different
    /// `domain`s; `item` numbers the counters of a domain.
    CounterDelta {
        /// Whose delta: the emitting CPU's, or a dead CPU's whose deltas it takes over.
        cpu: CpuId,
        /// Zone index, or 0x8000 | node index.
        domain: u16,
        /// Counter number.
        item: u8,
        /// Delta before.
        old: i8,
        /// Delta after.
        new: i8,
        /// What was added atomically to the shared counter in the same step.
        folded: i32,
        /// The threshold that this change went by: `new` is within it.
        threshold: u8,
    },
    /// The upkeep tick (`vmstat_update`) of the emitting CPU begins.
    TickBegin,
    /// The upkeep tick ends.
    TickEnd {
        /// Pages it returned to zones.
        pages_returned: u32,
        /// Pages it left because it would have had to wait for a zone lock.
        pages_deferred: u32,
        /// Failed attempts at a zone lock.
        trylock_failures: u32,
        /// Whether the work armed itself again.
        rearmed: bool,
    },
    /// The upkeep tick of `cpu` was armed by somebody else (the shepherd) to fire at once.
    TickKicked {
        /// Whose tick.
        cpu: CpuId,
    },
    /// The emitting CPU entered idle while its tick was armed for `expires_ns`.
    IdleTickPending {
        /// When the tick was due.
        expires_ns: u64,
    },
    /// The emitting CPU has nothing to run.
    IdleEnter,
    /// The emitting CPU has something to run again, if only an interrupt.
    IdleExit,
    /// A frame was handed out as the head of a block.
    PageAlloc {
        /// First frame.
        pfn: Pfn,
        /// Size.
        order: Order,
    },
    /// Translations were invalidated, on this CPU and wherever else they may have been.
    TlbFlush {
        /// Pages invalidated one by one; 0: all of the address space.
        pages: u32,
        /// CPUs that were interrupted for it.
        interrupted: u32,
    },
    /// A caller had to wait for other CPUs to run its call, before this.
    CsdWait {
        /// The last of them that it had to wait for.
        target: CpuId,
        /// How long it waited for all of them.
        ns: u64,
    },
    /// A CPU has not answered a call in time: the run is about to end with its name.
    CsdTimeout {
        /// Which.
        target: CpuId,
        /// For how long it was waited.
        ns: u64,
    },
    /// Somebody takes the pages out that a page table maps, to the extent that it holds a VMA, or
    /// has claimed the table.
    TableZap {
        /// Whose table.
        asid: Asid,
        /// Which: the first page that it stands for, in units of its 512 pages.
        unit: u32,
        /// On what grounds.
        by: ZapBy,
    },
    /// Every page table of an address space may be claimed anew: it is over and its number may be
    /// given to another, or pages have moved since the first was claimed.
    ClaimsOpen {
        /// Whose.
        asid: Asid,
    },
    /// The end of an address space waited for mmap_lock.
    ExitLockWait {
        /// How long.
        ns: u32,
    },
    /// A block was cleared, before this, in `ns`.
    PageClear {
        /// Time that it took, waits for the node's memory included.
        ns: u32,
    },
    /// A block came back.
    PageFree {
        /// First frame.
        pfn: Pfn,
        /// Size.
        order: Order,
    },
    /// The process of an address space was chosen to give its memory back (`mark_victim`).
    MarkVictim {
        /// Whose.
        asid: Asid,
        /// Pages of it, in memory, in swap and as page tables; by its counters.
        pages: u64,
    },
    /// The reaper takes up a victim whose time to end by itself is over (`wake_reaper`).
    WakeReaper {
        /// Whose.
        asid: Asid,
    },
    /// It tries to take the victim's pages out (`start_task_reaping`).
    StartTaskReaping {
        /// Whose.
        asid: Asid,
    },
    /// It has (`finish_task_reaping`).
    FinishTaskReaping {
        /// Whose.
        asid: Asid,
    },
    /// It could not, as somebody had mmap_lock (`skip_task_reaping`).
    SkipTaskReaping {
        /// Whose.
        asid: Asid,
    },
    /// A batch of LRU moves was carried out.
    LruMove {
        /// Which kind of batch, as `lru::BatchKind` numbers them; 0 adds folios to their lists.
        kind: u8,
        /// Folios in it.
        folios: u8,
        /// Of these, folios that nobody but the batch used any more.
        dead: u8,
        /// Of the dead, those that were freed without having been put on a list.
        freed: u8,
    },
    /// LRU batches, of whichever CPU, hold references to this many folios more than before.
    LruPinned {
        /// The change.
        folios: i32,
    },
    /// This much more memory than before is charged to its group although only an LRU batch of
    /// folios that are new to their lists still holds it: it was unmapped. What batches of other
    /// kinds hold last, as after `MADV_FREE`, is not told.
    LruDead {
        /// The change.
        pages: i32,
    },
}

/// Tracepoints that a probe hears or not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum TraceGroup {
    /// Frames handed out, cleared and given back.
    Frames,
    /// What page caches hold.
    PageCaches,
    /// Counters of CPUs.
    Counters,
    /// LRU batches.
    Lru,
    /// What is seldom.
    Seldom,
}

impl TraceGroup {
    /// All groups.
    pub const ALL: [Self; 5] =
        [Self::Frames, Self::PageCaches, Self::Counters, Self::Lru, Self::Seldom];
}

impl Trace {
    /// The group that it belongs to.
    #[inline]
    pub const fn group(&self) -> TraceGroup {
        match self {
            Self::PageAlloc { .. } | Self::PageFree { .. } | Self::PageClear { .. } => {
                TraceGroup::Frames
            }
            Self::PcpCount { .. } => TraceGroup::PageCaches,
            Self::CounterDelta { .. } => TraceGroup::Counters,
            Self::LruMove { .. } | Self::LruPinned { .. } | Self::LruDead { .. } => TraceGroup::Lru,
            _ => TraceGroup::Seldom,
        }
    }
}

/// Listens to the tracepoints of one CPU. Machines call it on that CPU only, in the order of that
/// CPU's own time.
pub trait Probe: Any + Send {
    /// Whether it wants the events of `group`: a machine asks once, and need not tell of others.
    fn hears(&self, group: TraceGroup) -> bool {
        let _ = group;
        true
    }
    /// `event` happened at `now_ns` on this probe's CPU.
    fn event(&mut self, now_ns: u64, event: &Trace);
    /// Gives the probe back as its own type at the end of a run.
    fn into_any(self: Box<Self>) -> Box<dyn Any>;
}
