//! Reclaim: memory back from programs that have not used it lately.
//!
//! Each group has on each node an active and an inactive list of anonymous memory, and lazily freed
//! memory on its inactive list of files. Reclaim looks at the old end of the inactive lists, in
//! batches of 32: what was used since it last looked gets another round, or becomes active if it
//! was used twice; the rest loses its page-table entries, is written to its swap slot if that does
//! not have its content, and goes. The active list is looked at when the inactive one has become
//! too short, and loses its oldest, whether they were used or not (Linux, classic lists, 5.9 on).
//!
//! | who | for whom | until |
//! |---|---|---|
//! | [`Reclaim::kswapd`] | a node, woken by allocations | its zones are above high |
//! | [`Reclaim::direct`] | an allocation that failed, a full group | enough pages are free |
//! | [`Reclaim::reclaim_pages`] | `MADV_PAGEOUT` | the given folios were tried |
//!
//! How much of a list a round looks at grows from 1/4096 to all of it while rounds free too little
//! (priority 12 to 0). A round that frees nothing while folios are being written waits for one of
//! them, where Linux sleeps until some writeback has ended (`reclaim_throttle`).
//!
//! Left out: folios of more than one page are skipped, not split; files have no pages here, so
//! there is no balance between files and anonymous memory, no slab, no refaults, no swap readahead;
//! no multi-generation lists; no compaction; no limit on how many tasks reclaim at once; a group
//! has no children.
//!
//! Lock order: [`LockClass`](crate::arch::LockClass). Reclaim runs in tasks that hold nothing.

mod direct;
mod kswapd;
mod rmap;
mod scan;
mod shrink;

pub use rmap::{References, Rmap, UnmapTo};

use crate::lru::Memory;
use crate::swap::Swap;
use alloc::boxed::Box;
use mmscale_arch::counters::Counters;
use mmscale_arch::sync::Completion;
use mmscale_arch::{Atomic, Machine};

/// What reclaim works on.
pub struct Scope<'a, A: Machine, R> {
    /// The folios and their lists.
    pub memory: Memory<'a, A>,
    /// Where their content goes.
    pub swap: &'a Swap<A>,
    /// Who maps them.
    pub rmap: &'a R,
}

impl<A: Machine, R> Clone for Scope<'_, A, R> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<A: Machine, R> Copy for Scope<'_, A, R> {}

mmscale_arch::counters! {
    /// How often things happened, over all CPUs, in folios where nothing else is said; exact while
    /// nothing runs.
    pub struct ReclaimCounters from CpuReclaim {
        /// Looked at on inactive lists or given to [`Reclaim::reclaim_pages`] (`pgscan`).
        scanned: Sum,
        /// Freed (`pgsteal`).
        freed: Sum,
        /// Of these, lazily freed memory that was dropped (`pglazyfreed`).
        lazyfreed: Sum,
        /// Given to swap to be written.
        written: Sum,
        /// Became active (`pgactivate`).
        activated: Sum,
        /// Became inactive (`pgdeactivate`).
        deactivated: Sum,
        /// Calls of [`Reclaim::direct`] (`allocstall`).
        direct_calls: Sum,
        /// Times that a background reclaimer went to work (`pageoutrun`).
        background_runs: Sum,
    }
}

/// A node's background reclaimer.
struct Node<A: Machine> {
    /// It has begun, and [`Node::ended`] will say that it has returned.
    begun: A::AtomicU32,
    ended: Completion<A>,
    /// Runs in a row that freed nothing.
    failures: A::AtomicU32,
}

/// Reclaim.
pub struct Reclaim<A: Machine> {
    nodes: Box<[Node<A>]>,
    /// Not 0: background reclaimers return.
    stopping: A::AtomicU32,
    counters: Counters<A, CpuReclaim>,
}

impl<A: Machine> Reclaim<A> {
    /// For a machine of `nodes` memory nodes, without background reclaimers so far.
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
    /// How often things have happened.
    pub fn counters(&self) -> ReclaimCounters {
        self.counters.all()
    }
    /// The counters of the calling CPU.
    fn tally(&self) -> &CpuReclaim {
        self.counters.here()
    }
}
