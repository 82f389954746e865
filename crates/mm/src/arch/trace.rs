//! Typed tracepoints and spans.
//!
//! A span is a named function on the call path of a task or an interrupt; the names are the
//! kernel's, so that profiles read as kernel people expect. Lock statistics are kept per class and
//! call path. A tracepoint is a fact about one CPU at one time. A machine hands it to a [`Probe`]
//! of that CPU; adding facts up over CPUs is the reader's work, so that no probe shares anything.

use super::{CpuId, Order, Pfn};
use alloc::boxed::Box;
use core::any::Any;

/// A named function on a call path.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
#[expect(missing_docs, reason = "the names are the kernel's function names")]
pub enum Func {
    Root,
    Interrupt,
    Kworker,
    Program,
    AllocPages,
    FreePages,
    RmqueueBulk,
    Rmqueue,
    FreePcppagesBulk,
    FreeOnePage,
    VmstatUpdate,
    VmstatShepherd,
    QuietVmstat,
    RefreshCpuVmStats,
    DecayPcpHigh,
    DrainPages,
    DrainZonePages,
    DrainAllPages,
    RunTimers,
    QueueWorkOn,
    ProcessOneWork,
    FlushWork,
    SynchronizeRcu,
    SynchronizeRcuExpedited,
    CpuhpDown,
    CpuhpUp,
    FolioAddLru,
    FolioBatchMoveLru,
    LruAddDrain,
    LruAddDrainAll,
    LruCacheDisable,
    ReleasePages,
    FolioIsolateLru,
    FolioPutbackLru,
    IsolateLruFolios,
    MoveFoliosToLru,
    FolioActivate,
    FolioRotateReclaimable,
    MlockFolio,
    MunlockFolio,
    TryCharge,
    DrainAllStock,
    PteAlloc,
    FreePgtables,
    CopyPageRange,
    MovePageTables,
    SplitHugePmd,
    FlushTlbMmRange,
    FlushTlbFunc,
    TlbFinishMmu,
    SwitchMm,
    DoMmap,
    DoMunmap,
    UnmapPageRange,
    MmPopulate,
    HandleMmFault,
    DoAnonymousPage,
    DoWpPage,
    DoSwapPage,
    ChangeProtection,
    DoMremap,
    DoMadvise,
    DoMlock,
    DoMincore,
    DupMmap,
    ExitMmap,
    MigratePages,
    RmapWalk,
    CollapseHugePage,
}

impl Func {
    /// The number of functions; discriminants are below it.
    pub const COUNT: usize = 69;
    /// The name, as the kernel writes it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Root => "root",
            Self::Interrupt => "interrupt",
            Self::Kworker => "kworker",
            Self::Program => "program",
            Self::AllocPages => "alloc_pages",
            Self::FreePages => "free_pages",
            Self::RmqueueBulk => "rmqueue_bulk",
            Self::Rmqueue => "rmqueue",
            Self::FreePcppagesBulk => "free_pcppages_bulk",
            Self::FreeOnePage => "free_one_page",
            Self::VmstatUpdate => "vmstat_update",
            Self::VmstatShepherd => "vmstat_shepherd",
            Self::QuietVmstat => "quiet_vmstat",
            Self::RefreshCpuVmStats => "refresh_cpu_vm_stats",
            Self::DecayPcpHigh => "decay_pcp_high",
            Self::DrainPages => "drain_pages",
            Self::DrainZonePages => "drain_zone_pages",
            Self::DrainAllPages => "drain_all_pages",
            Self::RunTimers => "run_timers",
            Self::QueueWorkOn => "queue_work_on",
            Self::ProcessOneWork => "process_one_work",
            Self::FlushWork => "flush_work",
            Self::SynchronizeRcu => "synchronize_rcu",
            Self::SynchronizeRcuExpedited => "synchronize_rcu_expedited",
            Self::CpuhpDown => "cpuhp_down",
            Self::CpuhpUp => "cpuhp_up",
            Self::FolioAddLru => "folio_add_lru",
            Self::FolioBatchMoveLru => "folio_batch_move_lru",
            Self::LruAddDrain => "lru_add_drain",
            Self::LruAddDrainAll => "lru_add_drain_all",
            Self::LruCacheDisable => "lru_cache_disable",
            Self::ReleasePages => "release_pages",
            Self::FolioIsolateLru => "folio_isolate_lru",
            Self::FolioPutbackLru => "folio_putback_lru",
            Self::IsolateLruFolios => "isolate_lru_folios",
            Self::MoveFoliosToLru => "move_folios_to_lru",
            Self::FolioActivate => "folio_activate",
            Self::FolioRotateReclaimable => "folio_rotate_reclaimable",
            Self::MlockFolio => "mlock_folio",
            Self::MunlockFolio => "munlock_folio",
            Self::TryCharge => "try_charge",
            Self::DrainAllStock => "drain_all_stock",
            Self::PteAlloc => "__pte_alloc",
            Self::FreePgtables => "free_pgtables",
            Self::CopyPageRange => "copy_page_range",
            Self::MovePageTables => "move_page_tables",
            Self::SplitHugePmd => "__split_huge_pmd",
            Self::FlushTlbMmRange => "flush_tlb_mm_range",
            Self::FlushTlbFunc => "flush_tlb_func",
            Self::TlbFinishMmu => "tlb_finish_mmu",
            Self::SwitchMm => "switch_mm",
            Self::DoMmap => "do_mmap",
            Self::DoMunmap => "do_munmap",
            Self::UnmapPageRange => "unmap_page_range",
            Self::MmPopulate => "mm_populate",
            Self::HandleMmFault => "handle_mm_fault",
            Self::DoAnonymousPage => "do_anonymous_page",
            Self::DoWpPage => "do_wp_page",
            Self::DoSwapPage => "do_swap_page",
            Self::ChangeProtection => "change_protection",
            Self::DoMremap => "do_mremap",
            Self::DoMadvise => "do_madvise",
            Self::DoMlock => "do_mlock",
            Self::DoMincore => "do_mincore",
            Self::DupMmap => "dup_mmap",
            Self::ExitMmap => "exit_mmap",
            Self::MigratePages => "migrate_pages",
            Self::RmapWalk => "rmap_walk",
            Self::CollapseHugePage => "collapse_huge_page",
        }
    }
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
    /// A block came back.
    PageFree {
        /// First frame.
        pfn: Pfn,
        /// Size.
        order: Order,
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
    /// This much more memory than before is charged to its group although only an LRU batch still
    /// holds it: it was unmapped.
    LruDead {
        /// The change.
        pages: i32,
    },
}

/// Listens to the tracepoints of one CPU. Machines call it on that CPU only, in the order of that
/// CPU's own time.
pub trait Probe: Any + Send {
    /// `event` happened at `now_ns` on this probe's CPU.
    fn event(&mut self, now_ns: u64, event: &Trace);
    /// Gives the probe back as its own type at the end of a run.
    fn into_any(self: Box<Self>) -> Box<dyn Any>;
}
