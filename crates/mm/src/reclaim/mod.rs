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
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;
use mmscale_arch::sync::{Completion, EachCpu};
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

/// How often things happened, over all CPUs, in folios where nothing else is said; exact while
/// nothing runs.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ReclaimCounters {
    /// Looked at on inactive lists or given to [`Reclaim::reclaim_pages`] (`pgscan`).
    pub scanned: u64,
    /// Freed (`pgsteal`).
    pub freed: u64,
    /// Of these, lazily freed memory that was dropped (`pglazyfreed`).
    pub lazyfreed: u64,
    /// Given to swap to be written.
    pub written: u64,
    /// Became active (`pgactivate`).
    pub activated: u64,
    /// Became inactive (`pgdeactivate`).
    pub deactivated: u64,
    /// Calls of [`Reclaim::direct`] (`allocstall`).
    pub direct_calls: u64,
    /// Times that a background reclaimer went to work (`pageoutrun`).
    pub background_runs: u64,
}

/// What is counted.
#[derive(Clone, Copy)]
enum Event {
    Scanned,
    Freed,
    Lazyfreed,
    Written,
    Activated,
    Deactivated,
    Direct,
    Background,
}

impl Event {
    const COUNT: usize = 8;
}

/// One CPU's part of [`ReclaimCounters`], by [`Event`].
type Tally = [AtomicU64; Event::COUNT];

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
    tallies: EachCpu<Tally>,
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
            tallies: EachCpu::new::<A>(|_| Tally::default()),
        }
    }
    /// How often things have happened.
    pub fn counters(&self) -> ReclaimCounters {
        let sum = |event: Event| {
            self.tallies.iter().map(|(_, tally)| tally[event as usize].load(Relaxed)).sum()
        };
        ReclaimCounters {
            scanned: sum(Event::Scanned),
            freed: sum(Event::Freed),
            lazyfreed: sum(Event::Lazyfreed),
            written: sum(Event::Written),
            activated: sum(Event::Activated),
            deactivated: sum(Event::Deactivated),
            direct_calls: sum(Event::Direct),
            background_runs: sum(Event::Background),
        }
    }
    /// Counts on the calling CPU.
    fn tally(&self, event: Event, times: usize) {
        if times > 0 {
            self.tallies.of(A::cpu())[event as usize].fetch_add(times as u64, Relaxed);
        }
    }
}
