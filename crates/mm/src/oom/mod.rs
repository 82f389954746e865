//! Out of memory: who is killed when nothing is left to be had, and how his memory comes back.
//!
//! An allocation of a task that may sleep, and that direct reclaim could not help, comes here, and
//! so does a charge to a group at its limit ([`Oom::out_of_memory`]). One at a time decides
//! (`oom_lock`); the others wait a jiffy and try again.
//!
//! 1. If somebody in the scope is dying already, there is no second kill: his memory is waited for.
//! 2. What is free but not to be seen is brought to light ([`Settle`]). If the allocation could
//!    have its page then, it has it.
//! 3. The address space with the highest [`score`](score::badness) is chosen. Its threads are
//!    killed, it is marked as a victim, and the reaper is told ([`Oom::reaper`]).
//!
//! If nobody can be chosen the allocation fails (ENOMEM); Linux panics then, unless it was a
//! group's limit.
//!
//! An address space is marked once. Its marks are its own, so killing asks for no memory; the
//! reaper looks for marked ones among all. A victim may go down to half of the min watermark
//! ([`Gfp::VICTIM`](mmscale_frames::page_alloc::Gfp::VICTIM)), once for each allocation, so that it
//! gets to its end.
//!
//! Differences from Linux 6.18: it checks the watermark `high` before a kill, this what the
//! allocation needs; it takes the memory of a process for gone as soon as its pages are unmapped,
//! this when its exit is over; a process that ends by itself is waited for, for a while; a process
//! that was killed for other reasons is marked whatever its score. No notifiers, no `oom_kill` of
//! whole groups, no cpusets, no sysctls; a page fault in a group kills at once, not when it ends.
//!
//! Lock order: `oom_lock` (class Mutex) is tried, with no lock held that a kill or a drain needs:
//! mmap_lock and VMA locks may be. Nothing that sleeps for long happens under it but the drains.

mod decide;
mod reaper;
mod score;

pub use reaper::Attempt;
pub use score::{ADJ_MAX, ADJ_MIN, badness};

use crate::group::GroupId;
use crate::lru::Memory;
use crate::time::Time;
use alloc::sync::Arc;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;
use mmscale_arch::sync::{Completion, Mutex};
use mmscale_arch::{Asid, Atomic, Machine, NodeId, Order};

/// What happens when there is no memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
// tidy: policies: whether processes are killed is the embedder's setting
pub enum OomPolicy {
    /// A process is killed.
    #[default]
    Kill,
    /// The allocation fails.
    Fail,
}

/// What is done before a kill is decided.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Settle {
    /// Every CPU carries out its LRU batches, gives its charges in stock back, empties its page
    /// caches, and folds its counters; then the watermark is looked at again.
    #[default]
    Everywhere,
    /// Nothing beyond what the allocation has done, as in Linux: it has drained page caches. What a
    /// victim has freed may stay unseen, in batches and in counters, and another one die for it.
    Nothing,
}

/// What an administrator can set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OomConfig {
    /// Whether processes are killed.
    pub policy: OomPolicy,
    /// How well memory is looked for before.
    pub settle: Settle,
    /// How long a victim has to end by itself before it is reaped, in ns (`OOM_REAPER_DELAY`, 2 s).
    pub delay_ns: u64,
    /// How often reaping is tried (`MAX_OOM_REAP_RETRIES`, 10).
    pub tries: u32,
    /// How long the reaper rests between two tries, in ns (100 ms).
    pub pause_ns: u64,
}

impl Default for OomConfig {
    fn default() -> Self {
        Self {
            policy: OomPolicy::Kill,
            settle: Settle::Everywhere,
            delay_ns: 2_000_000_000,
            tries: 10,
            pause_ns: 100_000_000,
        }
    }
}

/// What an address space is to the killer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// It may be chosen.
    Living,
    /// Its process was told to end, by whomever; a victim, or not marked yet.
    Dying {
        /// Whether it is a victim.
        marked: bool,
    },
    /// It is being taken down just now, and will be without further memory.
    Exiting {
        /// Whether it is a victim.
        marked: bool,
    },
    /// There is nothing to be had from it: never to be killed, without threads, or reaped.
    Beyond,
}

/// An address space, as the killer sees it.
pub trait Victim {
    /// Its number.
    fn asid(&self) -> Asid;
    /// Who pays for its pages.
    fn group(&self) -> GroupId;
    /// What may be done with it.
    fn fate(&self) -> Fate;
    /// Pages that its end would give back: mapped, swapped out, and page tables.
    fn pages(&self) -> u64;
    /// By how much its score is adjusted, in thousandths of the memory in scope: [`ADJ_MIN`] to
    /// [`ADJ_MAX`] (`oom_score_adj`).
    fn adjustment(&self) -> i32;
    /// Tells all of its threads to end.
    fn kill(&self);
    /// It is a victim from now on, to be reaped at `due_ns`. `false`: it was one.
    fn mark(&self, due_ns: u64) -> bool;
    /// When it is to be reaped; `None` if it is no victim, or [`Victim::skip`] was said.
    fn due_ns(&self) -> Option<u64>;
    /// There is nothing more to be had from it.
    fn skip(&self);
}

/// All address spaces, and what else the killer works with.
pub trait Scene<A: Machine>: Copy {
    /// An address space.
    type Space: Victim;

    /// Where memory may be that nobody sees.
    fn memory(&self) -> Memory<'_, A>;
    /// For waiting.
    fn time(&self) -> &Time<A>;
    /// Shows every address space.
    fn each(&self, see: impl FnMut(&Arc<Self::Space>));
    /// How many address spaces have begun to exit.
    fn exits(&self) -> u32;
    /// Pages that swap may hold.
    fn swap_pages(&self) -> u64;
    /// Tries to take the pages of a dying address space out.
    fn reap(&self, space: &Self::Space) -> Attempt;
}

/// What there is not enough of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shortage {
    /// From where memory was wanted first.
    pub node: NodeId,
    /// How much.
    pub order: Order,
    /// Whose limit was met; `None`: there is no memory at all.
    pub group: Option<GroupId>,
}

/// What comes of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// It may be worth another try.
    Retry,
    /// Nobody can be killed: there is no memory for this.
    Hopeless,
}

/// What one allocation has been through.
#[derive(Clone, Copy, Default, Debug)]
pub struct Patience {
    /// Rounds of reclaim that freed something, in vain, since the killer was last asked.
    pub reclaimed: u32,
    /// A victim has used the reserve.
    pub reserve_used: bool,
    /// When it was first found that somebody is exiting, in ns.
    exits_since_ns: Option<u64>,
}

/// How often things happened; exact while nothing runs.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct OomCounters {
    /// Processes killed because there was no memory (`oom_kill`).
    pub kills: u64,
    /// Processes killed because their group was at its limit.
    pub group_kills: u64,
    /// Victims that were dying for another reason: nobody was killed.
    pub marked_dying: u64,
    /// Times that memory came to light when it was looked for everywhere.
    pub settled: u64,
    /// Times that there was nobody to kill.
    pub hopeless: u64,
    /// Address spaces that the reaper has reaped.
    pub reaped: u64,
    /// Address spaces that it has given up.
    pub given_up: u64,
}

/// What is counted.
#[derive(Clone, Copy)]
enum Event {
    Kill,
    GroupKill,
    MarkedDying,
    Settled,
    Hopeless,
    Reaped,
    GivenUp,
}

impl Event {
    const COUNT: usize = 7;
}

/// The out-of-memory killer and its reaper.
pub struct Oom<A: Machine> {
    config: OomConfig,
    /// `oom_lock`.
    one: Mutex<A, ()>,
    /// The reaper's task, plus 1; 0 until it has begun.
    reaper: A::AtomicU32,
    /// Not 0: the reaper returns.
    stopping: A::AtomicU32,
    ended: Completion<A>,
    tallies: [AtomicU64; Event::COUNT],
}

impl<A: Machine> Oom<A> {
    /// Nobody was killed yet.
    pub fn new(config: OomConfig) -> Self {
        Self {
            config,
            one: Mutex::new(()),
            reaper: A::AtomicU32::new(0),
            stopping: A::AtomicU32::new(0),
            ended: Completion::new(),
            tallies: Default::default(),
        }
    }
    /// What was set.
    pub fn config(&self) -> &OomConfig {
        &self.config
    }
    /// How often things have happened.
    pub fn counters(&self) -> OomCounters {
        let sum = |event: Event| self.tallies[event as usize].load(Relaxed);
        OomCounters {
            kills: sum(Event::Kill),
            group_kills: sum(Event::GroupKill),
            marked_dying: sum(Event::MarkedDying),
            settled: sum(Event::Settled),
            hopeless: sum(Event::Hopeless),
            reaped: sum(Event::Reaped),
            given_up: sum(Event::GivenUp),
        }
    }
    fn tally(&self, event: Event) {
        self.tallies[event as usize].fetch_add(1, Relaxed);
    }
}
