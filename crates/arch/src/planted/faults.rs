//! Every fault, declared once. A new fault is an entry here and one [`planted!`](crate::planted!)
//! in the code.

use super::Declared;
use super::Expected::{Caught, Missed, Quick};

/// Declares the faults by crate: the description, the variant, its name, the tests that run first,
/// and whether they are expected to catch it.
macro_rules! faults {
    ($($krate:literal {$(
        $(#[doc = $what:literal])+
        $Fault:ident = $name:literal, $tests:literal, $expected:expr;
    )+})+) => {
        /// A deliberate error, described by its text.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Fault {$($(
            $(#[doc = $what])+
            $Fault,
        )+)+}

        impl Fault {
            /// All faults, by crate.
            pub const ALL: &'static [Declared] = &[$($(Declared {
                fault: Self::$Fault,
                name: $name,
                krate: $krate,
                what: concat!($($what),+).trim_ascii_start(),
                tests: $tests,
                expected: $expected,
            },)+)+];
        }
    };
}

faults! {
    "arch" {
        /// A completion is done by a relaxed store.
        CompletionRelaxed = "completion-relaxed", "a_completion", Quick;
        /// A completion wakes one of its waiters only.
        CompletionWakesOne = "completion-wakes-one", "a_completion", Quick;
        /// An owner releases a mutex with a relaxed operation.
        MutexUnlockRelaxed = "mutex-unlock-relaxed", "a_mutex", Quick;
        /// A task reads the owner of a mutex before it sets the flag of waiters.
        MutexWaiterSeenLate = "mutex-waiter-seen-late", "a_mutex", Quick;
        /// A CPU reads a number in its cache and removes it under two holds of the lock.
        NumbersTakenInTwoSteps = "numbers-taken-in-two-steps", "number", Caught;
        /// A CPU that leaves the head of a queue of spinners reads its link without taking it.
        OsqHandsToLeaver = "osq-hands-to-leaver", "queue_of_spinners", Quick;
        /// A CPU that leaves a queue of spinners does not link the CPU behind it to the one before.
        OsqLeaverLosesNext = "osq-leaver-loses-next", "queue_of_spinners", Quick;
        /// A CPU leaves the head of a queue of spinners to the next one with a relaxed store.
        OsqUnlockRelaxed = "osq-unlock-relaxed", "queue_of_spinners", Quick;
        /// A writer that becomes a reader does not grant the semaphore to waiting readers.
        RwsemDowngradeWakesNone = "rwsem-downgrade-wakes-none", "left_behind", Caught;
        /// A task tells queued readers with a relaxed store that they have a semaphore.
        RwsemGrantRelaxed = "rwsem-grant-relaxed", "semaphore", Quick;
        /// A reader that joins the queue does not check again whether the semaphore is free.
        RwsemQueuedReaderUnchecked = "rwsem-queued-reader-unchecked", "semaphore", Quick;
        /// A reader releases a semaphore with a relaxed operation.
        RwsemReaderRelaxed = "rwsem-reader-relaxed", "semaphore", Quick;
        /// The last reader that releases a semaphore wakes no waiter.
        RwsemReaderWakesNone = "rwsem-reader-wakes-none", "semaphore", Quick;
        /// A reader steals a semaphore that is promised to the first waiter.
        RwsemStealsPromised = "rwsem-steals-promised", "promised", Quick;
        /// A writer releases a semaphore with a relaxed operation.
        RwsemWriterRelaxed = "rwsem-writer-relaxed", "semaphore", Quick;
        /// A writer that releases a semaphore wakes no waiter.
        RwsemWriterWakesNone = "rwsem-writer-wakes-none", "semaphore", Quick;
        /// A holder releases a spin lock with a relaxed store.
        SpinUnlockRelaxed = "spin-unlock-relaxed", "weak::locks", Quick;
        /// A task that joins a wait queue sleeps without another check of its condition.
        WaitUnchecked = "wait-unchecked", "a_wake", Quick;
    }
    "frames" {
        /// A CPU that begins a batch checks for an isolation with an acquire load.
        BlockmapBatchAcquired = "blockmap-batch-acquired", "weak::blockmap", Quick;
        /// A CPU enters a pageblock that another CPU has entered.
        BlockmapBusyEntered = "blockmap-busy-entered", "last_free_pages", Caught;
        /// A pageblock is isolated while a CPU has entered it.
        BlockmapBusyIsolated = "blockmap-busy-isolated", "nothing_of_an_isolated",
            Missed("not found in 600 schedules; whether it breaks a promise is not known");
        /// The bits of freed pages are cleared by a relaxed operation.
        BlockmapClearRelaxed = "blockmap-clear-relaxed", "weak::blockmap", Quick;
        /// A drain of another CPU does not wait until the drained pages are in the counter.
        BlockmapCountUnawaited = "blockmap-count-unawaited", "a_cpu_is_asked",
            Missed("not found in 600 schedules; whether it breaks a promise is not known");
        /// Freed pages are counted as free before their bits are cleared.
        BlockmapCountedFirst = "blockmap-counted-first", "not_counted_yet", Caught;
        /// A CPU marks its cache as not empty after it has checked whether a pageblock is isolated.
        BlockmapFilledLate = "blockmap-filled-late", "nothing_of_an_isolated",
            Missed("not found in 600 schedules: the window is three steps of a CPU that keeps \
                nothing");
        /// A CPU marks its cache as not empty without a fence before it reads a pageblock's head.
        BlockmapFilledUnfenced = "blockmap-filled-unfenced", "weak::blockmap", Quick;
        /// A search clears a hint and looks again at the pageblock without a fence in between.
        BlockmapForgetUnfenced = "blockmap-forget-unfenced", "weak::blockmap", Quick;
        /// A summary bit is cleared without a check for a bit that was set below meanwhile.
        BlockmapSummaryLost = "blockmap-summary-lost", "several_pageblocks",
            Missed("not found in 600 schedules of the scenarios with more than 64 pageblocks");
        /// The bits of a freed block of whole words are cleared by relaxed stores.
        BlockmapWordsRelaxed = "blockmap-words-relaxed", "weak::blockmap", Quick;
        /// Whole words of bits are cleared without a fence before a CPU reads the hints.
        BlockmapWordsUnfenced = "blockmap-words-unfenced", "weak::blockmap", Quick;
        /// A block that is freed is not merged to the largest order.
        BuddyMergeShort = "buddy-merge-short", "zone_rules", Quick;
        /// An allocation that has drained all CPUs does not clear the flag of the drain.
        DrainNeverEnds = "drain-never-ends", "last_free_pages", Caught;
        /// Page caches are not drained when a pageblock is isolated.
        IsolateCachesKept = "isolate-caches-kept", "isolat", Quick;
        /// An allocation records that background reclaim is needed and does not wake it.
        KswapdUnwoken = "kswapd-unwoken", "wakes", Caught;
        /// A page of an isolated pageblock goes into a page cache.
        PcpIsolationIgnored = "pcp-isolation-ignored", "isolat", Quick;
        /// Limits of page caches are not computed again after another CPU changed their inputs.
        PcpLimitsSetOnce = "pcp-limits-set-once", "pages::", Caught;
        /// A dead CPU loses its pageblocks after its page caches were emptied.
        PostedDisownedLate = "posted-disowned-late", "owned::", Quick;
        /// A page of an isolated pageblock goes into its former owner's page cache.
        PostedIsolationIgnored = "posted-isolation-ignored", "isolat", Quick;
        /// The owner of a pageblock is not read again once its page cache is locked.
        PostedOwnerReadOnce = "posted-owner-read-once", "owned::", Quick;
        /// The node counters of a dead CPU are not folded.
        VmstatDeadNodesLeft = "vmstat-dead-nodes-left", "hotplug", Caught;
        /// A counter that was folded keeps its value.
        VmstatFoldedTwice = "vmstat-folded-twice", "vmstat", Quick;
        /// The check for counters that are not folded omits node counters.
        VmstatNodesUnseen = "vmstat-nodes-unseen", "shepherd", Quick;
        /// Allocates from a zone that has no more free pages than its watermark.
        WatermarkAtMark = "watermark-at-mark", "watermark", Quick;
    }
    "mm" {
        /// A claim on page tables is read and written in two steps.
        ClaimInTwoSteps = "claim-in-two-steps", "claims", Quick;
        /// A copied page takes the place of an entry that has changed meanwhile.
        CowUnchecked = "cow-unchecked", "copies", Quick;
        /// A copied page takes the place of another without a flush.
        CowUnflushed = "cow-unflushed", "threads::", Caught;
        /// A target frees the record of a call with a relaxed store.
        CsdDoneRelaxed = "csd-done-relaxed", "weak::calls", Quick;
        /// The record of a call is free before the call has run.
        CsdFreedBeforeRun = "csd-freed-before-run", "calls::", Quick;
        /// A record is filled while its last call is still queued.
        CsdOverwritten = "csd-overwritten", "calls::", Quick;
        /// A CPU that stops closes a queue that still has calls.
        CsdQueueClosedFull = "csd-queue-closed-full", "calls::", Quick;
        /// The exit by claims lets the reverse map lock its VMAs while it locks no page table.
        ExitClaimsVmasOpen = "exit-claims-vmas-open", "reverse::", Caught;
        /// An exit frees its page tables before it closes its VMAs to the reverse map.
        ExitTablesFirst = "exit-tables-first", "reverse::", Caught;
        /// A page fault fills an entry that another fault has filled meanwhile.
        FaultUnchecked = "fault-unchecked", "faults", Caught;
        /// The end of a folio's lock wakes no waiter.
        FolioUnlockWakesNone = "folio-unlock-wakes-none", "swap::", Quick;
        /// A task that waits for a folio does not mark it.
        FolioWaiterUnmarked = "folio-waiter-unmarked", "swap::", Quick;
        /// A fork leaves the parent's CPUs their right to write to shared pages.
        ForkUnflushed = "fork-unflushed", "fork", Quick;
        /// An unmap that ends does not flush for another one that has not flushed yet.
        GatherOthersIgnored = "gather-others-ignored", "gather", Quick;
        /// Gathered frames are freed without a flush.
        GatherUnflushed = "gather-unflushed", "gather", Quick;
        /// The charges in the stock of a dead CPU are not returned.
        GroupDeadStockKept = "group-dead-stock-kept", "charges", Quick;
        /// A charge that is refused stays in the group's counter.
        GroupRefusalCounted = "group-refusal-counted", "charges", Quick;
        /// A CPU that goes idle does not fold its counters.
        IdleUnfolded = "idle-unfolded", "upkeep", Caught;
        /// Frames leave limbo before all CPUs have forgotten them.
        LimboUnproven = "limbo-unproven", "leave_limbo", Caught;
        /// Batches are switched off without a grace period for adds that are under way.
        LruBatchesOffNoGrace = "lru-batches-off-no-grace", "drains::", Caught;
        /// A slot is read and emptied in two steps.
        LruClaimInTwoSteps = "lru-claim-in-two-steps", "lru::", Quick;
        /// The batches of a dead CPU are not carried out.
        LruDeadBatchesKept = "lru-dead-batches-kept", "drains::", Caught;
        /// A drain of all CPUs counts its generation after it has looked at the CPUs.
        LruDrainGenerationLate = "lru-drain-generation-late", "drains::", Quick;
        /// A drain of all CPUs reads the generation without a fence.
        LruDrainUnfenced = "lru-drain-unfenced", "weak::lru", Quick;
        /// A drain of all CPUs does not wait for the CPUs.
        LruDrainUnawaited = "lru-drain-unawaited", "drains::", Quick;
        /// A scan isolates a folio whose last reference is gone.
        LruDyingRevived = "lru-dying-revived", "about_to_be_freed", Caught;
        /// A folio is isolated by a look at its flag and a change of it.
        LruIsolatedInTwoSteps = "lru-isolated-in-two-steps", "isolated_once", Caught;
        /// The last user frees a pending folio that has a new user meanwhile.
        LruLastPutUnchecked = "lru-last-put-unchecked", "lru::", Caught;
        /// A folio that was locked in memory while it was pending joins the list of others.
        LruMlockUnreconciled = "lru-mlock-unreconciled", "lru::", Quick;
        /// A folio is freed with its slot although the exchange found a new user.
        LruNewUserIgnored = "lru-new-user-ignored", "lru::", Caught;
        /// A batch frees a folio that has a new user meanwhile.
        LruReapUnchecked = "lru-reap-unchecked", "freezing_at", Caught;
        /// Folios that are freed together stay charged to their group.
        LruUnchargeForgotten = "lru-uncharge-forgotten", "reaped", Quick;
        /// The last mapping of a folio is removed, and its pages still count as mapped.
        MappedForgotten = "mapped-forgotten", "address", Quick;
        /// Migration copies a page before CPUs have forgotten the translation to it.
        MigrateCopiesBeforeFlush = "migrate-copies-before-flush", "migrate", Quick;
        /// A second process is killed while the first victim is dying.
        OomKillsTwice = "oom-kills-twice", "shared_mappings", Caught;
        /// A victim that was reaped is still due to be reaped.
        OomReapedAgain = "oom-reaped-again", "shared_mappings", Caught;
        /// The reaper is not woken for a victim.
        OomReaperUnwoken = "oom-reaper-unwoken", "shared_mappings", Caught;
        /// A victim is chosen before memory that CPUs keep was looked for.
        OomUnsettled = "oom-unsettled", "unseen", Caught;
        /// A parcel of pages leaves limbo before all CPUs have forgotten them.
        ParcelUnproven = "parcel-unproven", "leave_limbo", Caught;
        /// mprotect takes rights away without a flush.
        ProtectUnflushed = "protect-unflushed", "threads::", Quick;
        /// A CPU decrements the count of a grace period with a relaxed operation.
        RcuCountRelaxed = "rcu-count-relaxed", "weak::rcu", Quick;
        /// A grace period goes on waiting for a CPU that is dead.
        RcuDeadOwes = "rcu-dead-owes", "rcu", Quick;
        /// A grace period waits for a CPU that died while it began.
        RcuDiedUnseen = "rcu-died-unseen", "rcu::", Caught;
        /// A grace period that is under way is enough for a caller that comes later.
        RcuEnoughEarly = "rcu-enough-early", "rcu::", Quick;
        /// A caller in the funnel relies on the request for the grace period before its own.
        RcuFunnelJoinsEarlier = "rcu-funnel-joins-earlier", "rcu::", Quick;
        /// A caller in the funnel is served by a grace period that began before its call.
        RcuFunnelServedEarly = "rcu-funnel-served-early", "rcu::", Quick;
        /// The callers that sleep in the funnel are not woken.
        RcuFunnelUnwoken = "rcu-funnel-unwoken", "rcu::", Quick;
        /// A CPU that leaves idle still counts as idle.
        RcuIdleForever = "rcu-idle-forever", "leaves_idle", Caught;
        /// A CPU leaves idle without a fence before its next reader.
        RcuIdleUnfenced = "rcu-idle-unfenced", "weak::rcu", Quick;
        /// A grace period does not wait for a CPU that has left the online mask and still runs.
        RcuLeavingSkipped = "rcu-leaving-skipped", "rcu", Quick;
        /// A writer reads the number of grace periods without a fence.
        RcuLookUnfenced = "rcu-look-unfenced", "weak::rcu", Quick;
        /// A CPU reports a quiescent state at the end of a nested reader.
        RcuNestedReports = "rcu-nested-reports", "nested_reader", Caught;
        /// A normal grace period does not check for callers that want it expedited.
        RcuRequestUnseen = "rcu-request-unseen", "rcu::", Quick;
        /// A tick reports a quiescent state inside a reader.
        RcuTickReports = "rcu-tick-reports", "rcu::", Caught;
        /// A grace period can end while CPUs are still being asked.
        RcuUnbiased = "rcu-unbiased", "rcu::", Quick;
        /// A page fault fills a page that a reaper has taken out.
        ReapedRefilled = "reaped-refilled", "threads::", Quick;
        /// Reclaimed pages are freed without the batch's flush.
        ReclaimUnflushed = "reclaim-unflushed", "reclaim", Quick;
        /// A page is written to swap while CPUs may still write to it.
        ReclaimWritesUnflushed = "reclaim-writes-unflushed", "goes_out", Caught;
        /// A CPU that stops closes a word that still has requests.
        RequestsClosedFull = "requests-closed-full", "calls::", Quick;
        /// A nudge is noted and no interrupt sent.
        RequestsNudgeUnsent = "requests-nudge-unsent", "silent", Quick;
        /// A caller sleeps without another check whether its request is done.
        RequestsSleepUnchecked = "requests-sleep-unchecked", "calls::", Caught;
        /// A task checks for a free slot with an acquire load.
        RequestsSlotAcquired = "requests-slot-acquired", "weak::requests", Quick;
        /// A caller frees its slot before all targets have run the request.
        RequestsSlotFreedEarly = "requests-slot-freed-early", "calls::", Quick;
        /// A target asks whether a request is unattended after it has counted itself off.
        RequestsUnattendedLate = "requests-unattended-late", "requests::", Caught;
        /// A task that waits for a slot is not counted as waiting.
        RequestsWaiterUncounted = "requests-waiter-uncounted", "requests::", Caught;
        /// A slot is freed after the look for tasks that wait for one.
        RequestsWaitersLookedAtFirst = "requests-waiters-looked-at-first", "requests::", Caught;
        /// A batch does not know that CPUs may still write to a page.
        RmapDirtyUnnoted = "rmap-dirty-unnoted", "goes_out", Caught;
        /// A lazily freed page is dropped without a flush.
        RmapDropUnflushed = "rmap-drop-unflushed", "dropped", Caught;
        /// The reverse map drops a page that was written to after it was given up.
        RmapDropsDirty = "rmap-drops-dirty", "reverse::", Quick;
        /// The locks of the reverse map are not taken to link and unlink VMAs.
        RmapLinkUnlocked = "rmap-link-unlocked", "reverse", Caught;
        /// A walk of the reverse map does not lock the root.
        RmapRootUnlocked = "rmap-root-unlocked", "reverse", Caught;
        /// A walk of the reverse map unlocks a page table before it changes the entry it has found.
        RmapTableUnlocked = "rmap-table-unlocked", "reverse",
            Missed("not found in 560 schedules for each exit policy: the window is a few steps");
        /// A walk of the reverse map releases a VMA before it reads the page table.
        RmapVmaUnlocked = "rmap-vma-unlocked", "reverse",
            Missed("not found in 1800 schedules of a process that exits during walks");
        /// A CPU that comes back cannot be called.
        SmpStaysClosed = "smp-stays-closed", "calls", Quick;
        /// The stacks of a dead CPU that wait for a grace period are forgotten.
        StackDeadWaitersLost = "stack-dead-waiters-lost", "stack", Quick;
        /// Stacks are freed without a grace period.
        StackGraceSkipped = "stack-grace-skipped", "stacks::", Quick;
        /// The flag that stacks wait is cleared after they were taken.
        StackWaitsClearedLate = "stack-waits-cleared-late", "stacks::", Caught;
        /// A group that was changed is put into its CPU's list by a load and a store.
        StatListedInTwoSteps = "stat-listed-in-two-steps", "stats::", Caught;
        /// A flush reads the next group of a list after the CPU may have overwritten it.
        StatNextReadLate = "stat-next-read-late", "stats::", Caught;
        /// A page is marked as clean after its content went to the device.
        SwapCleanLate = "swap-clean-late", "swap::", Quick;
        /// The entries that name a slot are counted under two holds of its cluster's lock.
        SwapClusterUnlockedEarly = "swap-cluster-unlocked-early", "swap::", Caught;
        /// A page that was written to leaves the swap cache for good.
        SwapDirtyTaken = "swap-dirty-taken", "swap::", Quick;
        /// A page is read from a slot that was freed meanwhile.
        SwapFreedRead = "swap-freed-read", "swap::", Quick;
        /// A page that comes back is mapped although it left the cache before it was locked.
        SwapInUnasked = "swap-in-unasked", "goes_out",
            Missed("the entry is looked at again under its table's lock, which refuses the page in \
                the scenarios");
        /// A page that comes back takes the place of an entry that has changed meanwhile.
        SwapInUnchecked = "swap-in-unchecked", "goes_out", Caught;
        /// A second folio joins the swap cache for one slot.
        SwapJoinUnchecked = "swap-join-unchecked", "swap::", Quick;
        /// A slot that entries still name is freed with the folio.
        SwapNamedFreed = "swap-named-freed", "swap::", Quick;
        /// A task that waits for room in the device's queue is not counted.
        SwapRoomUncounted = "swap-room-uncounted", "swap", Quick;
        /// A folio leaves the cache while it is written out.
        SwapWritingFreed = "swap-writing-freed", "swap::", Quick;
        /// The tick of a CPU that comes back stays disabled.
        TickNeverBack = "tick-never-back", "upkeep", Caught;
        /// The number of an address space goes to another one without a flush.
        TlbAsidUnflushed = "tlb-asid-unflushed", "table::", Caught;
        /// A CPU that starts again remembers translations of its life before.
        TlbDeadRemembers = "tlb-dead-remembers", "table::", Caught;
        /// A deferred invalidation replaces the note of a later one.
        TlbDeferredOverwritten = "tlb-deferred-overwritten", "tlb::", Caught;
        /// A CPU that loads an address space reads its generation with an acquire load.
        TlbGenerationAcquired = "tlb-generation-acquired", "weak::tlb", Quick;
        /// A flush counts its generation after it has reached the CPUs.
        TlbGenerationLate = "tlb-generation-late", "tlb::", Quick;
        /// A flush trusts that an address space is global before a broadcast has emptied all TLBs.
        TlbGlobalEarly = "tlb-global-early", "broadcast", Caught;
        /// A batch does not know that a page stays whose entry it took out.
        TlbKeptForgotten = "tlb-kept-forgotten", "reclaim", Quick;
        /// A flush for freed tables leaves idle CPUs out.
        TlbLazySkipped = "tlb-lazy-skipped", "table::", Caught;
        /// A flush reads the CPUs' loaded address spaces with acquire loads.
        TlbLoadedAcquired = "tlb-loaded-acquired", "weak::tlb", Quick;
        /// A CPU looks at the generation before it says what it loads.
        TlbLoadedLate = "tlb-loaded-late", "tlb::", Quick;
        /// A caller that finds entries gone does not flush what was put off.
        TlbNeverSettled = "tlb-never-settled", "table::", Caught;
        /// A CPU that is several generations behind forgets the last one only.
        TlbOneGenerationAssumed = "tlb-one-generation-assumed", "tlb::", Quick;
        /// A CPU that has caught up wakes no sleeper.
        TlbSleepersUnwoken = "tlb-sleepers-unwoken", "leave_limbo", Caught;
        /// A CPU that comes back to an address space forgets nothing.
        TlbSwitchForgetsNothing = "tlb-switch-forgets-nothing", "tlb::", Quick;
        /// A recent invalidation is used for another generation.
        TlbTagIgnored = "tlb-tag-ignored", "tlb", Quick;
        /// A fault uses a VMA that ended before its lock was taken.
        VmaUnchecked = "vma-unchecked", "vma", Caught;
        /// A VMA's lock is released before its life ends.
        VmaUnlockedAlive = "vma-unlocked-alive", "vma", Caught;
        /// A change of a VMA does not wait for page faults in it.
        VmaWriterImpatient = "vma-writer-impatient", "faults", Caught;
        /// The last page fault in a VMA does not wake its writer.
        VmaWriterUnwoken = "vma-writer-unwoken", "faults", Caught;
        /// Addresses of the kernel's range are free before the flush for them has been done.
        VmapFreedBeforeFlush = "vmap-freed-before-flush", "vmap", Quick;
        /// A cancel does not wait for work that runs.
        WorkCancelUnawaited = "work-cancel-unawaited", "work", Caught;
        /// Work is queued for a worker that has returned.
        WorkClosedAccepts = "work-closed-accepts", "work", Quick;
        /// Delayed work of a dead CPU is not taken over.
        WorkDeadTimerLost = "work-dead-timer-lost", "work", Quick;
        /// A task that waits for work is not counted.
        WorkFlusherUncounted = "work-flusher-uncounted", "work", Quick;
        /// Work can be queued again only after it has run.
        WorkPendingClearedLate = "work-pending-cleared-late", "work::", Quick;
    }
}
