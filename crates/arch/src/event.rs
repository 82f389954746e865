//! Events of tracepoints, by subsystem. A new event changes its own enum only.

use super::{Asid, CpuId, Order, Pfn};

/// The kind of walk that takes pages out of a page table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ZapBy {
    /// An unclaimed table: other walks may reach it too.
    Walk,
    /// A claimed table: no other walk reaches it.
    Claim,
}

/// Frames allocated, cleared and freed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PageEvent {
    /// A block was allocated.
    Alloc {
        /// The first frame.
        pfn: Pfn,
        /// The size.
        order: Order,
    },
    /// A block was freed.
    Free {
        /// The first frame.
        pfn: Pfn,
        /// The size.
        order: Order,
    },
    /// A block has been cleared.
    Clear {
        /// Duration, waits for the node's memory included.
        ns: u32,
    },
}

/// Page counts of page caches, and transfers between them and their zones.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PcpEvent {
    /// The page cache of `cpu` in zone `zone` held `old` pages, now holds `count`, and may hold
    /// `high`. With both counts, the mean of the total over time is a plain sum over events.
    Count {
        /// The CPU whose cache it is; not always the emitting CPU.
        cpu: CpuId,
        /// The zone index over the whole machine.
        zone: u16,
        /// Pages before.
        old: u32,
        /// Pages after.
        count: u32,
        /// The limit after the change.
        high: u32,
        /// The limit's floor.
        high_min: u32,
    },
    /// A refill moved `pages` pages from a zone into the emitting CPU's cache in one hold.
    Refill {
        /// The zone index.
        zone: u16,
        /// Pages moved.
        pages: u32,
    },
    /// A drain moved `pages` pages from a cache to its zone in one hold.
    Drain {
        /// The zone index.
        zone: u16,
        /// Pages moved.
        pages: u32,
    },
    /// One phase of a refill of a cache that owns pageblocks moved `pages` pages.
    Phase {
        /// The zone index.
        zone: u16,
        /// The phase, as `pcp::RefillPhase` numbers them.
        phase: u8,
        /// Pages moved.
        pages: u32,
    },
    /// The number of pageblocks of a zone that `cpu` owns changed.
    Owned {
        /// The owner; not always the emitting CPU.
        cpu: CpuId,
        /// The zone index.
        zone: u16,
        /// The change.
        change: i8,
    },
    /// A block was freed into the cache of another CPU, which owns its pageblock.
    FreeRemote {
        /// The owner.
        owner: CpuId,
        /// Pages freed.
        pages: u32,
    },
    /// A block was freed into its zone because the cache that should take it was locked.
    Busy {
        /// The CPU whose cache was locked: the emitting CPU, or the owner of the pageblock.
        cpu: CpuId,
        /// Pages freed.
        pages: u32,
    },
}

/// Per-CPU counters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CounterEvent {
    /// The delta of a counter of `cpu` changed. Zone counters and node counters have different
    /// `domain`s; `item` numbers the counters of a domain.
    Delta {
        /// The CPU whose delta it is: the emitting CPU, or a dead CPU whose deltas it takes over.
        cpu: CpuId,
        /// The zone index, or 0x8000 | node index.
        domain: u16,
        /// The counter number.
        item: u8,
        /// The delta before.
        old: i8,
        /// The delta after.
        new: i8,
        /// The amount that the same step added atomically to the shared counter.
        folded: i32,
        /// The threshold that applied to this change: `new` is within it.
        threshold: u8,
    },
}

/// The upkeep tick.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TickEvent {
    /// The upkeep tick (`vmstat_update`) of the emitting CPU begins.
    Begin,
    /// The upkeep tick ends.
    End {
        /// Pages that it returned to zones.
        pages_returned: u32,
        /// Pages that it did not return because the zone lock was contended.
        pages_deferred: u32,
        /// Failed attempts at a zone lock.
        trylock_failures: u32,
        /// Whether the work rearmed itself.
        rearmed: bool,
    },
    /// The upkeep tick of `cpu` was armed by another task (the shepherd) to fire immediately.
    Kicked {
        /// The CPU of the tick.
        cpu: CpuId,
    },
    /// The emitting CPU entered idle while its tick was armed for `expires_ns`.
    PendingInIdle {
        /// The time at which the tick was due.
        expires_ns: u64,
    },
}

/// A CPU becomes idle or busy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IdleEvent {
    /// The emitting CPU has nothing to run.
    Enter,
    /// The emitting CPU has a task or an interrupt to run again.
    Exit,
}

/// Translations.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TlbEvent {
    /// Translations were invalidated, on this CPU and on all others that may have had them.
    Flush {
        /// Pages invalidated one by one; 0: the whole address space.
        pages: u32,
        /// CPUs that were interrupted for the flush.
        interrupted: u32,
    },
}

/// Calls to other CPUs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CallEvent {
    /// A caller has waited for other CPUs to run its call.
    Wait {
        /// The last CPU that it waited for.
        target: CpuId,
        /// Duration of the wait for all of them.
        ns: u64,
    },
    /// A CPU has not answered a call in time: the run is about to fail and name it.
    Timeout {
        /// The CPU that did not answer.
        target: CpuId,
        /// Duration of the wait.
        ns: u64,
    },
}

/// The end of an address space, and emptying of page tables.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ExitEvent {
    /// A walk unmaps the pages of a page table: those of a VMA that it has locked, or all of a
    /// table that it has claimed.
    TableZap {
        /// The address space of the table.
        asid: Asid,
        /// The table: the first page that it covers, divided by 512.
        unit: u32,
        /// The kind of walk.
        by: ZapBy,
    },
    /// Every page table of an address space may be claimed again: the address space has ended and
    /// its number may be reused, or pages have moved since the first table was claimed.
    ClaimsOpen {
        /// The address space.
        asid: Asid,
    },
    /// The exit of an address space has waited for mmap_lock.
    LockWait {
        /// Duration of the wait.
        ns: u32,
    },
}

/// The out-of-memory killer and its reaper.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OomEvent {
    /// The process of an address space was selected as the OOM victim (`mark_victim`).
    MarkVictim {
        /// The address space.
        asid: Asid,
        /// Its pages in memory, in swap and as page tables, by its counters.
        pages: u64,
    },
    /// The reaper starts with a victim whose time to exit by itself is over (`wake_reaper`).
    WakeReaper {
        /// The address space.
        asid: Asid,
    },
    /// The reaper tries to unmap the victim's pages (`start_task_reaping`).
    StartTaskReaping {
        /// The address space.
        asid: Asid,
    },
    /// The reaper has unmapped the victim's pages (`finish_task_reaping`).
    FinishTaskReaping {
        /// The address space.
        asid: Asid,
    },
    /// The reaper failed because mmap_lock was held (`skip_task_reaping`).
    SkipTaskReaping {
        /// The address space.
        asid: Asid,
    },
}

/// LRU batches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LruEvent {
    /// A batch of LRU moves was processed.
    Move {
        /// The kind of batch, as `lru::BatchKind` numbers them; 0 adds folios to their lists.
        kind: u8,
        /// Folios in it.
        folios: u8,
        /// Number of folios in the batch to which only the batch had a reference.
        dead: u8,
        /// Number of dead folios that were freed without having been on a list.
        freed: u8,
    },
    /// The number of folios to which LRU batches of all CPUs hold references changed.
    Pinned {
        /// The change.
        folios: i32,
    },
    /// The number of dead charged pages changed: unmapped pages to which only an LRU batch for new
    /// folios has a reference, and which are still charged to their group. Pages whose last
    /// reference is in a batch of another kind, as after `MADV_FREE`, are not reported.
    Dead {
        /// The change.
        pages: i32,
    },
}
