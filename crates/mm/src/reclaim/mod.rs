//! Reclaim: freeing memory that programs have not used recently.
//!
//! Each group has on each node an active and an inactive list of anonymous memory, and lazily freed
//! memory on its inactive file list. Reclaim scans the tail of the inactive lists in batches of 32.
//! A folio that was used since the last scan stays for another round, or becomes active if it was
//! used twice. Any other folio is unmapped, written to its swap slot if the slot does not have its
//! content, and freed. The active list is scanned when the inactive one has become too short; its
//! oldest folios become inactive, whether they were used or not (Linux, classic lists, since 5.9).
//!
//! | function | reclaims for | until |
//! |---|---|---|
//! | [`Reclaim::kswapd`] | a node, woken by allocations | a zone is above high |
//! | [`Reclaim::direct`] | an allocation that failed, a full group | enough pages are free |
//! | [`Reclaim::reclaim_pages`] | `MADV_PAGEOUT` | the given folios were tried |
//!
//! The scanned part of a list grows from 1/4096 to all of it while rounds free too little (priority
//! 12 to 0). A round that frees nothing while folios are under writeback waits for one of them;
//! Linux sleeps until some writeback has ended (`reclaim_throttle`).
//!
//! Not modelled: folios of more than one page are skipped, not split. File pages are not on these
//! lists, so there is no balance between files and anonymous memory, no slab, no refaults, no swap
//! readahead. There are no multi-generation lists, no compaction, no limit on the number of tasks
//! that reclaim, and a group has no children.
//!
//! Lock order: [`LockClass`](crate::arch::LockClass). Reclaim runs in tasks that hold no lock.

mod direct;
mod kswapd;
mod rmap;
mod scan;
mod shrink;

pub use rmap::{References, Rmap, UnmapTo};

use crate::lru::LruRef;
use crate::swap::Swap;
use alloc::boxed::Box;
use mmscale_arch::counters::Counters;
use mmscale_arch::sync::Completion;
use mmscale_arch::{Atomic, Machine};

/// The parts of the memory manager that reclaim uses.
pub struct ReclaimRef<'a, A: Machine, R> {
    /// The folios and their lists.
    pub memory: LruRef<'a, A>,
    /// The swap area.
    pub swap: &'a Swap<A>,
    /// The reverse map.
    pub rmap: &'a R,
}

impl<A: Machine, R> Clone for ReclaimRef<'_, A, R> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<A: Machine, R> Copy for ReclaimRef<'_, A, R> {}

mmscale_arch::counters! {
    /// Event counts over all CPUs, in folios unless stated otherwise; exact while nothing runs.
    pub struct ReclaimCounters from CpuReclaim {
        /// Scanned on inactive lists or passed to [`Reclaim::reclaim_pages`] (`pgscan`).
        scanned: Sum,
        /// Freed (`pgsteal`).
        freed: Sum,
        /// Freed folios that were lazily freed memory (`pglazyfreed`); part of `freed`.
        lazyfreed: Sum,
        /// Passed to swap to be written.
        written: Sum,
        /// Became active (`pgactivate`).
        activated: Sum,
        /// Became inactive (`pgdeactivate`).
        deactivated: Sum,
        /// Calls of [`Reclaim::direct`] (`allocstall`).
        direct_calls: Sum,
        /// Runs of background reclaimers (`pageoutrun`).
        background_runs: Sum,
    }
}

/// A node's background reclaimer.
struct Node<A: Machine> {
    /// Not 0: the task has started, and will complete [`Node::ended`] when it returns.
    begun: A::AtomicU32,
    ended: Completion<A>,
    /// Consecutive runs that freed nothing.
    failures: A::AtomicU32,
}

/// Reclaim of all nodes.
pub struct Reclaim<A: Machine> {
    nodes: Box<[Node<A>]>,
    /// Not 0: background reclaimers return.
    stopping: A::AtomicU32,
    counters: Counters<A, CpuReclaim>,
}

impl<A: Machine> Reclaim<A> {
    /// Creates the state for `nodes` memory nodes, without background reclaimers.
    pub fn new(nodes: usize) -> Self {
        let node = |_| Node {
            begun: A::AtomicU32::new(0),
            ended: Completion::new(),
            failures: A::AtomicU32::new(0),
        };
        Self {
            nodes: (0..nodes).map(node).collect(),
            stopping: A::AtomicU32::new(0),
            counters: Counters::default(),
        }
    }
    /// Returns the event counts.
    pub fn counters(&self) -> ReclaimCounters {
        self.counters.all()
    }
    /// The counters of the calling CPU.
    fn tally(&self) -> &CpuReclaim {
        self.counters.here()
    }
}
