//! The LRU: lists of folios by age, the batches in front of them, and the release of folios.
//!
//! A *lruvec* is five lists of one memory group on one node, with one lock. Because that lock is
//! shared, each CPU gathers operations on folios in batches of 31 ([`FoliosPolicy`]), each with a
//! reference of its own. A folio in an add batch is *pending*: its state has the flag.
//!
//! | policy | a folio joins its list | one that dies while pending |
//! |---|---|---|
//! | [`LruPolicy::Stock`] | when its batch is full or drained | is listed, then removed |
//! | [`LruPolicy::Freeze`] | when its batch is full or drained | is freed at the drain, unlisted |
//! | [`LruPolicy::Lazy`] | when 31 more wait, or on demand | is freed immediately, unlocked |
//!
//! `Lazy` keeps pending folios in slots that any CPU can empty. A folio's record names its slot.
//! The CPU that exchanges the slot's folio for 0 owns the slot's reference. Dropping the last other
//! reference frees the folio. Isolating it, locking it in memory, or requesting it on its list
//! takes only this folio from its slot, also on another CPU. So a blanket drain is never needed,
//! and [`LruRef::blanket_drain`] does nothing.
//!
//! | file | contents |
//! |---|---|
//! | `lists` | lruvecs, relock |
//! | `batch` | per-CPU batches and slots |
//! | `join` | adding folios, carrying out batches |
//! | `drain` | draining one CPU or all, disabling batches |
//! | `isolate` | isolating folios and putting them back, demand |
//! | `age` | activation, deactivation, mlock |
//! | `mapped` | mappings of folios, statistics |
//! | `retire` | dropping references, freeing frames |
//! | `slots` | folios that wait in slots: the code of `Lazy` |
//! | `verify` | consistency checks |
//!
//! Lock order: [`LockClass`](crate::arch::LockClass). The mutex of drains of all CPUs is outermost.

mod age;
mod batch;
mod drain;
mod isolate;
mod join;
mod lists;
mod mapped;
mod retire;
mod slots;
mod verify;

pub use batch::{BATCH, BatchKind};
pub use drain::BatchesOff;
pub use isolate::Scan;
pub use join::FolioError;
pub use lists::LruList;
pub use retire::MANY;
pub(crate) use verify::StatPages;
pub use verify::{LruAudit, LruViolation};

use crate::folio::Folios;
use crate::memcg::{GroupId, Groups};
use crate::rcu::Rcu;
use crate::work::Work;
use alloc::boxed::Box;
use batch::CpuBatches;
use lists::{Lruvec, new_lruvec};
use mmscale_arch::counters::Counters;
use mmscale_arch::sync::{EachCpu, Mutex};
use mmscale_arch::{Atomic, LockClass, Machine, NodeId};
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

mmscale_arch::policies! {
    /// Folios that a CPU gathers before it takes the lists' lock (`PAGEVEC_SIZE`).
    pub enum FoliosPolicy: "folios", "folios that a CPU gathers for lruvec->lru_lock" {
        /// Gathers 31 folios on each CPU.
        Stock = "stock",
        /// Gathers 15 folios on each CPU.
        Fifteen = "fifteen",
    }
}

impl FoliosPolicy {
    /// Returns the number of folios.
    pub const fn folios(self) -> usize {
        match self {
            Self::Stock => BATCH,
            Self::Fifteen => 15,
        }
    }
}

mmscale_arch::policies! {
    /// Folios that are taken off their lists in one hold of the lists' lock when references of many
    /// are dropped.
    pub enum ReleasePolicy: "release", "folios that one hold of lruvec->lru_lock frees" {
        /// Frees up to 31 folios in a hold.
        Stock = "stock",
        /// Frees up to 8 folios in a hold.
        Eight = "eight",
        /// Frees up to 2 folios in a hold.
        Two = "two",
    }
}

impl ReleasePolicy {
    /// Returns the folios of a hold.
    const fn folios(self) -> usize {
        match self {
            Self::Stock => BATCH,
            Self::Eight => 8,
            Self::Two => 2,
        }
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

/// The treatment of a folio that only its batch references, when the batch is carried out.
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
    /// Event counts over all CPUs; exact while nothing runs.
    pub struct LruCounters from CpuLru {
        /// Add batches carried out.
        add_batches: Sum,
        /// Folios in add batches that were put on lists.
        added: Sum,
        /// Folios in add batches that only the batch referenced.
        dead: Sum,
        /// Folios in add batches that were freed without having been on a list; part of `dead`.
        frozen: Sum,
        /// Pending folios that were freed immediately when their last user dropped them.
        freed_pending: Sum,
        /// Pending folios that were taken from their slots because a caller requested them.
        demanded: Sum,
        /// Batches of other kinds carried out.
        other_batches: Sum,
        /// Drains of all CPUs carried out.
        drains_of_all: Sum,
        /// Drains of all CPUs that were served by another one that began after their call.
        drains_shared: Sum,
        /// CPUs on which drains of all CPUs queued work.
        cpus_drained: Sum,
    }
}

/// The lruvecs of all groups and nodes, and the batches of all CPUs.
pub struct Lru<A: Machine> {
    policy: LruPolicy,
    release: ReleasePolicy,
    nodes: usize,
    /// By group, then by node.
    lruvecs: Box<[Lruvec<A>]>,
    cpus: EachCpu<CpuBatches<A>>,
    /// Not zero: batches are disabled, every folio moves immediately.
    disabled: A::AtomicU32,
    /// Number of drains of all CPUs that have begun.
    generation: A::AtomicU64,
    one_drain: Mutex<A, ()>,
    counters: Counters<A, CpuLru>,
}

impl<A: Machine> Lru<A> {
    /// Creates empty lists for `groups` memory groups on `nodes` nodes.
    pub fn new(policy: LruPolicy, groups: usize, nodes: usize) -> Self {
        Self::gathering(policy, FoliosPolicy::default(), groups, nodes)
    }
    /// Creates empty lists, and batches of another size.
    pub fn gathering(policy: LruPolicy, folios: FoliosPolicy, groups: usize, nodes: usize) -> Self {
        let slots = match policy.pending() {
            Pending::Batch => 0,
            Pending::Slot => BATCH,
        };
        Self {
            policy,
            release: ReleasePolicy::default(),
            nodes,
            lruvecs: (0..groups * nodes)
                .map(|at| new_lruvec(at / nodes, NodeId::new(at % nodes)))
                .collect(),
            cpus: EachCpu::new::<A>(|_| CpuBatches::new(slots, folios.folios())),
            disabled: A::AtomicU32::new(0),
            generation: A::AtomicU64::new(0),
            one_drain: Mutex::new(LockClass::Mutex, ()),
            counters: Counters::default(),
        }
    }
    /// Returns these lists with another number of folios for each hold of their lock.
    #[must_use]
    pub fn releasing(self, release: ReleasePolicy) -> Self {
        Self { release, ..self }
    }
    /// Returns the most folios that a hold of a list's lock frees.
    pub(crate) fn release_folios(&self) -> usize {
        self.release.folios()
    }
    /// Returns the policy.
    pub fn policy(&self) -> LruPolicy {
        self.policy
    }
    /// Returns where folios wait before they are on their lists.
    pub(crate) fn pending(&self) -> Pending {
        self.policy.pending()
    }
    /// Returns the event counts.
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

/// The parts of the memory manager that a folio's life touches.
pub struct LruRef<'a, A: Machine> {
    /// Allocates and frees frames.
    pub frames: &'a FrameAllocator<A>,
    /// The folios' states.
    pub folios: &'a Folios<A>,
    /// The memory groups that are charged.
    pub groups: &'a Groups<A>,
    /// The lists and batches.
    pub lru: &'a Lru<A>,
    /// Queues the work of drains of all CPUs.
    pub work: &'a Work<A>,
    /// Provides the grace period of [`LruRef::batches_off`].
    pub rcu: &'a Rcu<A>,
}

impl<A: Machine> Clone for LruRef<'_, A> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<A: Machine> Copy for LruRef<'_, A> {}
