//! Named functions on call paths.
//!
//! The names are the kernel's, so that profiles read as kernel people expect. Lock statistics are
//! kept per class and call path.

use crate::names::named;

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
        ZoneinfoShowPrint = "zoneinfo_show_print",
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
        CssRstatFlush = "css_rstat_flush",
        DrainAllStock = "drain_all_stock",
        PteAlloc = "__pte_alloc",
        AllocThreadStackNode = "alloc_thread_stack_node",
        ThreadStackFreeRcu = "thread_stack_free_rcu",
        DrainVmapAreaWork = "drain_vmap_area_work",
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
        VmaLinkFile = "vma_link_file",
        AnonVmaClone = "anon_vma_clone",
        AnonVmaFork = "anon_vma_fork",
        UnlinkAnonVmas = "unlink_anon_vmas",
        UnlinkFileVmas = "unlink_file_vma_batch",
        ExitMmap = "exit_mmap",
        UnmapVmas = "unmap_vmas",
        OomReapTaskMm = "__oom_reap_task_mm",
        FolioRemoveRmapPtes = "folio_remove_rmap_ptes",
        ProcessMrelease = "process_mrelease",
        DoExit = "do_exit",
        AllocPid = "alloc_pid",
        FreePid = "free_pid",
        CopyProcess = "copy_process",
        CopySighand = "copy_sighand",
        ExitNotify = "exit_notify",
        ReleaseTask = "release_task",
        DoWait = "do_wait",
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
        ZsMalloc = "zs_malloc",
        ZsFree = "zs_free",
        ZsDeferredDrain = "zs_deferred_drain",
        RwsemOptimisticSpin = "rwsem_optimistic_spin",
    }
}

impl Func {
    /// Whether the function is called rarely enough, and takes long enough, to be measured with a
    /// clock whose reading takes time.
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
