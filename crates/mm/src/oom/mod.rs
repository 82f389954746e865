//! Out of memory: which process is killed, and how its memory is freed.
//!
//! [`Oom::out_of_memory`] is called for an allocation that may sleep after direct reclaim has freed
//! nothing, and for a charge to a group at its limit. One task at a time decides (`oom_lock`); the
//! others wait for a jiffy and retry.
//!
//! 1. If a process in the scope is dying already, there is no second kill: its memory is waited
//!    for.
//! 2. Per-CPU caches and batches are drained ([`Drains`]). If the allocation can succeed then, it
//!    is retried.
//! 3. The address space with the highest [`score`](score::badness) is chosen. Its threads are
//!    killed, it is marked as a victim, and the reaper is woken ([`Oom::reaper`]).
//!
//! If there is no victim the allocation fails (ENOMEM). Linux panics then, unless it was a group's
//! limit.
//!
//! An address space is marked once. The marks are in the address space, so killing needs no memory;
//! the reaper searches all address spaces for marked ones. A victim may use half of the min
//! watermark ([`Gfp::VICTIM`](mmscale_frames::page_alloc::Gfp::VICTIM)), once per allocation, so
//! that it can exit.
//!
//! Differences from Linux 6.18:
//!
//! * Linux checks the watermark `high` before a kill; here the allocation's own watermark is
//!   checked.
//! * Linux counts memory as freed when the pages are unmapped; here when the exit is over.
//! * A process that exits by itself is waited for, up to a limit.
//! * A process that was killed for other reasons is marked whatever its score.
//! * No notifiers, no `oom_kill` of whole groups, no cpusets, no sysctls. A page fault in a group
//!   kills immediately, not when the fault ends.
//!
//! Lock order: `oom_lock` (class Mutex) is tried, with no lock held that a kill or a drain needs:
//! mmap_lock and VMA locks may be held. Only the drains sleep for long under it.

mod decide;
mod reaper;
mod score;

pub use reaper::Attempt;
pub use score::{ADJ_MAX, ADJ_MIN, badness};

use crate::lru::LruRef;
use crate::memcg::GroupId;
use crate::time::Time;
use alloc::sync::Arc;
use mmscale_arch::counters::Counters;
use mmscale_arch::sync::{Completion, Mutex};
use mmscale_arch::{Asid, Atomic, LockClass, Machine, NodeId, Order};

/// The reaction to an allocation that finds no memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
// tidy: policies: whether processes are killed is the embedder's setting
pub enum OomPolicy {
    /// A process is killed.
    #[default]
    Kill,
    /// A process of a group at its limit is killed. If the machine is out of memory, the allocation
    /// fails.
    KillInGroup,
    /// The allocation fails.
    Fail,
}

impl OomPolicy {
    /// Whether a process may be killed for a shortage in `group`, or else of the machine.
    fn may_kill(self, group: Option<GroupId>) -> bool {
        match self {
            Self::Kill => true,
            Self::KillInGroup => group.is_some(),
            Self::Fail => false,
        }
    }
}

/// The drains before a victim is chosen.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Drains {
    /// Every CPU drains its LRU batches, its stock of charges and its page caches, and folds its
    /// counters; then the watermark is checked again.
    #[default]
    All,
    /// Nothing, as in Linux: the allocation has drained page caches only if reclaim freed
    /// something. Memory that a victim has freed may be overlooked in page caches, batches and
    /// counters, and another process may be killed for it.
    None,
}

mmscale_arch::policies! {
    /// How the choice of a victim reads the pages of each process.
    pub enum OomReadPolicy: "oom-read", "page counts in the choice of an OOM victim" {
        /// Reads the shared count of each process, which lacks what CPUs and tasks have gathered.
        Stock = "stock",
        /// Adds up the counts of all CPUs for each process that may be the victim.
        Sums = "sums",
    }
}

/// The configuration of the OOM killer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OomConfig {
    /// Whether processes are killed.
    pub policy: OomPolicy,
    /// The drains before a victim is chosen.
    pub drains: Drains,
    /// How the choice of a victim reads the pages of processes.
    pub read: OomReadPolicy,
    /// How long a victim may take to exit before it is reaped, in ns (`OOM_REAPER_DELAY`, 2 s).
    pub delay_ns: u64,
    /// The number of attempts to reap (`MAX_OOM_REAP_RETRIES`, 10).
    pub tries: u32,
    /// The reaper's pause between two attempts, in ns (100 ms).
    pub pause_ns: u64,
}

impl Default for OomConfig {
    fn default() -> Self {
        Self {
            policy: OomPolicy::Kill,
            drains: Drains::All,
            read: OomReadPolicy::Stock,
            delay_ns: 2_000_000_000,
            tries: 10,
            pause_ns: 100_000_000,
        }
    }
}

/// The state of an address space for the OOM killer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum VictimState {
    /// It may be chosen.
    Living,
    /// Its process was killed, for whatever reason. It may not be marked yet.
    Dying {
        /// Whether it is a victim.
        marked: bool,
    },
    /// Its exit has started and needs no further memory.
    Exiting {
        /// Whether it is a victim.
        marked: bool,
    },
    /// It cannot help: it must not be killed, has no threads, or was reaped.
    Done,
}

/// An address space as the OOM killer sees it.
pub trait Victim {
    /// Its number.
    fn asid(&self) -> Asid;
    /// The memory group that its pages are charged to.
    fn group(&self) -> GroupId;
    /// Its state.
    fn state(&self) -> VictimState;
    /// Pages that its exit frees: mapped, swapped out, and page tables.
    fn pages(&self) -> u64;
    /// The most by which [`Victim::pages`] is wrong, if that is known.
    fn pages_error_max(&self) -> Option<u64>;
    /// `oom_score_adj`, in thousandths of the memory in scope: [`ADJ_MIN`] to [`ADJ_MAX`].
    fn adjustment(&self) -> i32;
    /// Sends SIGKILL to all of its threads.
    fn kill(&self);
    /// Marks it as a victim, to be reaped at `due_ns`. Returns `false` if it was marked before.
    fn mark(&self, due_ns: u64) -> bool;
    /// When it is to be reaped; `None` if it is no victim, or after [`Victim::skip`].
    fn due_ns(&self) -> Option<u64>;
    /// Marks it as done: it is neither reaped nor chosen again.
    fn skip(&self);
}

/// All address spaces, and the parts of the memory manager that the OOM killer uses.
pub trait OomContext<A: Machine>: Copy {
    /// An address space.
    type Space: Victim;

    /// The frame allocator, memory groups and batches, for checks and drains.
    fn memory(&self) -> LruRef<'_, A>;
    /// Timers, for waiting.
    fn time(&self) -> &Time<A>;
    /// Visits every address space.
    fn each(&self, see: impl FnMut(&Arc<Self::Space>));
    /// The number of address spaces that have started to exit.
    fn exits(&self) -> u32;
    /// The number of pages that swap can hold.
    fn swap_pages(&self) -> u64;
    /// The pages of an address space, after reading the counts of all CPUs.
    fn sum_pages(&self, space: &Self::Space) -> u64;
    /// Tries to unmap the pages of a dying address space.
    fn reap(&self, space: &Self::Space) -> Attempt;
}

/// A shortage of memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shortage {
    /// The preferred node of the allocation.
    pub node: NodeId,
    /// The order of the allocation.
    pub order: Order,
    /// The group at its limit; `None`: the machine is out of memory.
    pub group: Option<GroupId>,
}

/// The result of [`Oom::out_of_memory`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OomResult {
    /// Another attempt may succeed.
    Retry,
    /// There is no victim: the allocation fails.
    NoVictim,
}

/// The history of one allocation.
#[derive(Clone, Copy, Default, Debug)]
pub struct OomRetries {
    /// Rounds of reclaim that freed something but not enough, since the OOM killer was last called.
    pub reclaimed: u32,
    /// The allocation has used the reserve for victims.
    pub reserve_used: bool,
    /// The charge has returned all stocks of charges to their groups.
    pub stocks_drained: bool,
    /// When an exiting process was first found, in ns.
    exits_since_ns: Option<u64>,
}

mmscale_arch::counters! {
    /// Event counts; exact while nothing runs.
    pub struct OomCounters from CpuOom {
        /// Processes killed because the machine was out of memory (`oom_kill`).
        kills: Sum,
        /// Processes killed because their group was at its limit.
        group_kills: Sum,
        /// Victims that were dying for another reason: no process was killed for them.
        marked_dying: Sum,
        /// Shortages that ended when per-CPU caches and batches were drained.
        drained: Sum,
        /// Shortages without a victim.
        no_victim: Sum,
        /// Address spaces that the reaper has reaped.
        reaped: Sum,
        /// Address spaces that the reaper has given up.
        given_up: Sum,
    }
}

/// The OOM killer and its reaper.
pub struct Oom<A: Machine> {
    config: OomConfig,
    /// `oom_lock`.
    one: Mutex<A, ()>,
    /// The reaper's task plus 1; 0 until it runs.
    reaper: A::AtomicU32,
    /// If not 0, the reaper returns.
    stopping: A::AtomicU32,
    ended: Completion<A>,
    counters: Counters<A, CpuOom>,
}

impl<A: Machine> Oom<A> {
    /// Creates an OOM killer with all counters at 0.
    pub fn new(config: OomConfig) -> Self {
        Self {
            config,
            one: Mutex::new(LockClass::Mutex, ()),
            reaper: A::AtomicU32::new(0),
            stopping: A::AtomicU32::new(0),
            ended: Completion::new(),
            counters: Counters::default(),
        }
    }
    /// The configuration.
    pub fn config(&self) -> &OomConfig {
        &self.config
    }
    /// Returns the event counts.
    pub fn counters(&self) -> OomCounters {
        self.counters.all()
    }
    /// The counters of the calling CPU.
    fn tally(&self) -> &CpuOom {
        self.counters.here()
    }
}
