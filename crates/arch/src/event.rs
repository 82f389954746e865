//! Events of tracepoints, by subsystem. A new event changes its own enum only.

use super::{Asid, CpuId, Order, Pfn};

/// On what grounds pages are taken out of a page table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ZapBy {
    /// A walk comes by it; others may too.
    Walk,
    /// It was claimed: no other walk comes by it.
    Claim,
}

/// Frames handed out, cleared and freed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PageEvent {
    /// A frame was handed out as the head of a block.
    Alloc {
        /// First frame.
        pfn: Pfn,
        /// Size.
        order: Order,
    },
    /// A block came back.
    Free {
        /// First frame.
        pfn: Pfn,
        /// Size.
        order: Order,
    },
    /// A block was cleared, before this, in `ns`.
    Clear {
        /// Time that it took, waits for the node's memory included.
        ns: u32,
    },
}

/// What page caches hold, and what moves between them and their zones.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PcpEvent {
    /// The page cache of `cpu` in zone `zone` held `old` pages, now holds `count`, and may hold
    /// `high`. With both counts, the mean of the total over time is a plain sum over events.
    Count {
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
    Refill {
        /// Zone index.
        zone: u16,
        /// Pages moved.
        pages: u32,
    },
    /// A drain moved `pages` pages from a cache back to its zone in one hold.
    Drain {
        /// Zone index.
        zone: u16,
        /// Pages moved.
        pages: u32,
    },
    /// One phase of a refill of a cache that owns pageblocks moved `pages` pages.
    Phase {
        /// Zone index.
        zone: u16,
        /// Which, as `pcp::RefillPhase` numbers them.
        phase: u8,
        /// Pages moved.
        pages: u32,
    },
    /// `cpu` owns this many pageblocks of a zone more than before.
    Owned {
        /// Whose; not always the CPU that emits.
        cpu: CpuId,
        /// Zone index.
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
    /// A block was freed into its zone because the cache it belongs into was locked.
    Busy {
        /// Whose cache; the emitting CPU's own, or the owner's of the pageblock.
        cpu: CpuId,
        /// Pages freed.
        pages: u32,
    },
}

/// Counters of CPUs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CounterEvent {
    /// The delta of a counter of `cpu` changed. Zone counters and node counters have different
    /// `domain`s; `item` numbers the counters of a domain.
    Delta {
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
}

/// The upkeep tick.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TickEvent {
    /// The upkeep tick (`vmstat_update`) of the emitting CPU begins.
    Begin,
    /// The upkeep tick ends.
    End {
        /// Pages it returned to zones.
        pages_returned: u32,
        /// Pages it left because it would have had to wait for a zone lock.
        pages_deferred: u32,
        /// Failed attempts at a zone lock.
        trylock_failures: u32,
        /// Whether the work armed itself again.
        rearmed: bool,
    },
    /// The upkeep tick of `cpu` was armed by another task (the shepherd) to fire immediately.
    Kicked {
        /// Whose tick.
        cpu: CpuId,
    },
    /// The emitting CPU entered idle while its tick was armed for `expires_ns`.
    PendingInIdle {
        /// When the tick was due.
        expires_ns: u64,
    },
}

/// A CPU becomes idle or busy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IdleEvent {
    /// The emitting CPU has nothing to run.
    Enter,
    /// The emitting CPU has something to run again, if only an interrupt.
    Exit,
}

/// Translations.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TlbEvent {
    /// Translations were invalidated, on this CPU and wherever else they may have been.
    Flush {
        /// Pages invalidated one by one; 0: all of the address space.
        pages: u32,
        /// CPUs that were interrupted for it.
        interrupted: u32,
    },
}

/// Calls to other CPUs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CallEvent {
    /// A caller had to wait for other CPUs to run its call, before this.
    Wait {
        /// The last of them that it had to wait for.
        target: CpuId,
        /// How long it waited for all of them.
        ns: u64,
    },
    /// A CPU has not answered a call in time: the run is about to end with its name.
    Timeout {
        /// Which.
        target: CpuId,
        /// For how long it was waited.
        ns: u64,
    },
}

/// The end of an address space, and page tables that are emptied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ExitEvent {
    /// A walk takes out the pages that a page table maps, as far as it holds a VMA or has claimed
    /// the table.
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
    LockWait {
        /// How long.
        ns: u32,
    },
}

/// The out-of-memory killer and its reaper.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OomEvent {
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
    /// It could not, as mmap_lock was held (`skip_task_reaping`).
    SkipTaskReaping {
        /// Whose.
        asid: Asid,
    },
}

/// LRU batches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LruEvent {
    /// A batch of LRU moves was carried out.
    Move {
        /// Which kind of batch, as `lru::BatchKind` numbers them; 0 adds folios to their lists.
        kind: u8,
        /// Folios in it.
        folios: u8,
        /// Of these, folios that only the batch used any more.
        dead: u8,
        /// Of the dead, those that were freed without having been put on a list.
        freed: u8,
    },
    /// LRU batches, of whichever CPU, hold references to this many folios more than before.
    Pinned {
        /// The change.
        folios: i32,
    },
    /// This much more memory than before is charged to its group although only an LRU batch of
    /// folios that are new to their lists still holds it: it was unmapped. What batches of other
    /// kinds hold last, as after `MADV_FREE`, is not told.
    Dead {
        /// The change.
        pages: i32,
    },
}
