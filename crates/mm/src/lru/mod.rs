//! The LRU: lists of folios by age, the batches in which they get there, and the way out.
//!
//! A *lruvec* is five lists of one memory group on one node, with one lock. Because that lock is
//! shared, a CPU gathers what it wants done to folios in batches of 31, each with a reference of
//! its own. A folio that waits in an add batch is *pending*: its state says so.
//!
//! | policy | a folio joins its list | one that dies while pending |
//! |---|---|---|
//! | [`LruPolicy::Stock`] | when its batch is full or drained | is listed, then removed |
//! | [`LruPolicy::Freeze`] | the same | is freed at the drain, unlisted |
//! | [`LruPolicy::Lazy`] | when 31 more wait, or on demand | is freed at once, unlocked |
//!
//! `Lazy` keeps pending folios in slots that any CPU can empty: a folio says where it waits,
//! and whoever exchanges the slot's folio for nothing owns the slot's reference. Dropping the last
//! reference but the slot's frees the folio; isolating it, locking it in memory, or asking for it
//! on its list takes that one folio out of its slot, whichever CPU it waits on. So a blanket drain
//! is never needed, and [`Memory::blanket_drain`] does nothing.
//!
//! | file | what it does |
//! |---|---|
//! | `lists` | lruvecs, relock |
//! | `batch` | what a CPU gathers |
//! | `join` | adding folios, carrying batches out |
//! | `drain` | draining one CPU or all, doing without batches for a while |
//! | `isolate` | taking folios off lists and putting them back, demand |
//! | `age` | activation, deactivation, locking in memory |
//! | `retire` | the last reference, giving frames back |
//! | `slots` | folios that wait in slots: the code of `Lazy` |
//! | `verify` | whether it all adds up |
//!
//! Lock order: [`LockClass`](crate::arch::LockClass). The mutex of drains of all CPUs is outermost.

mod age;
mod batch;
mod drain;
mod isolate;
mod join;
mod lists;
mod retire;
mod slots;
mod verify;

pub use batch::{BATCH, BatchKind};
pub use drain::BatchesOff;
pub use isolate::Scan;
pub use join::FolioError;
pub use lists::LruList;
pub use retire::MANY;
pub use verify::{LruAudit, LruViolation};

use crate::folio::Folios;
use crate::group::{GroupId, Groups};
use crate::rcu::Rcu;
use crate::work::Work;
use alloc::boxed::Box;
use batch::CpuBatches;
use lists::{Lruvec, new_lruvec};
use mmscale_arch::counters::Counters;
use mmscale_arch::sync::{EachCpu, Mutex};
use mmscale_arch::{Atomic, Machine, NodeId};
use mmscale_frames::page_alloc::FrameAllocator;

mmscale_arch::policies! {
    /// How folios get onto their lists.
    pub enum LruPolicy: "lru", "LRU batches and lruvec->lru_lock" {
        /// Lists a folio when its batch is full or drained (Linux 6.18).
        Stock = "stock",
        /// Drains as stock, and frees folios that only the batch still holds, unlisted.
        Freeze = "freeze",
        /// Lists a folio only if it survives its batch or is wanted on its list; no drain of all
        /// CPUs as a precaution.
        Lazy = "lazy",
    }
}

/// Where a folio waits before it is on its list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Pending {
    /// In a batch of its CPU, which only that CPU can empty.
    Batch,
    /// In a slot, which any CPU can empty.
    Slot,
}

/// What becomes of a folio of which only the batch still has a reference, when that is carried out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Dead {
    /// It is put on its list, and taken off again.
    Listed,
    /// It is freed.
    Freed,
}

impl LruPolicy {
    const fn pending(self) -> Pending {
        match self {
            Self::Stock | Self::Freeze => Pending::Batch,
            Self::Lazy => Pending::Slot,
        }
    }
    const fn dead(self) -> Dead {
        match self {
            Self::Stock => Dead::Listed,
            Self::Freeze | Self::Lazy => Dead::Freed,
        }
    }
}

mmscale_arch::counters! {
    /// How often things happened, over all CPUs; exact while nothing runs.
    pub struct LruCounters from CpuLru {
        /// Add batches carried out.
        add_batches: Sum,
        /// Folios in them that were put on lists.
        added: Sum,
        /// Folios in them that nobody else used any more.
        dead: Sum,
        /// Of these, folios that were freed without having been on a list.
        frozen: Sum,
        /// Pending folios that were freed at once, because their last user went.
        freed_pending: Sum,
        /// Pending folios that somebody took out of their slots because he wanted them.
        demanded: Sum,
        /// Batches of other kinds carried out.
        other_batches: Sum,
        /// Drains of all CPUs carried out.
        drains_of_all: Sum,
        /// Drains of all CPUs that were content with one that began meanwhile.
        drains_shared: Sum,
    }
}

/// The lists, the batches, and what goes with them.
pub struct Lru<A: Machine> {
    policy: LruPolicy,
    nodes: usize,
    /// By group, then by node.
    lruvecs: Box<[Lruvec<A>]>,
    cpus: EachCpu<CpuBatches<A>>,
    /// Not zero: every folio moves at once.
    disabled: A::AtomicU32,
    /// Drains of all CPUs that have begun.
    generation: A::AtomicU64,
    one_drain: Mutex<A, ()>,
    counters: Counters<A, CpuLru>,
}

impl<A: Machine> Lru<A> {
    /// Empty lists for `groups` memory groups on `nodes` nodes.
    pub fn new(policy: LruPolicy, groups: usize, nodes: usize) -> Self {
        let slots = match policy.pending() {
            Pending::Batch => 0,
            Pending::Slot => BATCH,
        };
        Self {
            policy,
            nodes,
            lruvecs: (0..groups * nodes).map(|_| new_lruvec()).collect(),
            cpus: EachCpu::new::<A>(|_| CpuBatches::new(slots)),
            disabled: A::AtomicU32::new(0),
            generation: A::AtomicU64::new(0),
            one_drain: Mutex::new(()),
            counters: Counters::default(),
        }
    }
    /// How folios get onto their lists.
    pub fn policy(&self) -> LruPolicy {
        self.policy
    }
    /// Where folios wait before they are on their lists.
    pub(crate) fn pending(&self) -> Pending {
        self.policy.pending()
    }
    /// How often things have happened.
    pub fn counters(&self) -> LruCounters {
        self.counters.all()
    }
    /// The counters of the calling CPU.
    #[inline]
    fn tally(&self) -> &CpuLru {
        self.counters.here()
    }
    #[inline]
    fn index_of(&self, group: GroupId, node: NodeId) -> usize {
        group.index() * self.nodes + node.index()
    }
}

/// Everything that a folio's life touches, to call its steps on.
pub struct Memory<'a, A: Machine> {
    /// Where frames come from and go.
    pub frames: &'a FrameAllocator<A>,
    /// The folios.
    pub folios: &'a Folios<A>,
    /// Who pays for them.
    pub groups: &'a Groups<A>,
    /// Their lists.
    pub lru: &'a Lru<A>,
    /// For drains of all CPUs.
    pub work: &'a Work<A>,
    /// For doing without batches.
    pub rcu: &'a Rcu<A>,
}

impl<A: Machine> Clone for Memory<'_, A> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<A: Machine> Copy for Memory<'_, A> {}
