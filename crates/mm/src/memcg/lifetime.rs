//! Creation and removal of groups while others are in use (`cgroup_mkdir`, `cgroup_rmdir`).
//!
//! Programs name groups by numbers, as they name cgroups by paths: a number is that of one group
//! after another. Those of the beginning have the [`GroupId`]s of their numbers. Creation takes a
//! free identity, removal does not free it: pages that outlive their group stay charged to it and
//! to its ancestors, and on its LRU lists, until the last of them is uncharged. That is a *dying*
//! memory cgroup of Linux. (Qi Zheng's series "Eliminate Dying Memory Cgroup", v4 of 5 February
//! 2026, moves them to the parent instead.)
//!
//! | step | under `cgroup_mutex` |
//! |---|---|
//! | creation | per-CPU memory of the statistics: of the group, and of its lruvec on each node |
//! | a process starts in another group than its parent's (`CLONE_INTO_CGROUP`) | its count |
//! | removal | work for each CPU that has a stock of the group |
//! | the last uncharge | a flush of the statistics; the per-CPU memory is freed |
//!
//! Differences from Linux: the last step is the next creation's, a worker's in Linux. Removal does
//! all of its work in the caller, without the grace period between its halves. The directory with
//! its files (kernfs) and `css_set_lock` are not simulated. A number of processes is one word for
//! each group, and counts nothing in a system without creation and removal.
//!
//! Lock order: `Cgroup` (`cgroup_mutex`), under which per-CPU memory is allocated, stocks are
//! looked at, and statistics are flushed.

use super::{GroupEvent, GroupId, Groups};
use crate::percpu::{Area, Percpu};
use crate::work::{Work, WorkItem};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use mmscale_arch::sync::Mutex;
use mmscale_arch::{Atomic, CpuMask, Func, LockClass, Machine, Span};
use mmscale_frames::vmstat::NodeItem;

/// Bytes of a value of a group in a CPU's statistics: the value, and that of the last flush.
const VALUE_BYTES: usize = 16;

/// Why a group is not created or removed, or a process is not started in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LifetimeError {
    /// EEXIST: the number has a group.
    Exists,
    /// ENOENT: the number has no group, or never had one.
    Missing,
    /// EBUSY: a process is in the group.
    Busy,
    /// ENOMEM: removed groups with pages have all identities.
    Full,
}

/// The numbers of groups, and the identities of those without a number.
struct Names {
    /// By number, from 1: its group.
    groups: Box<[Option<GroupId>]>,
    /// By number, from 1: the limit of its groups, in pages.
    limits: Box<[Option<u64>]>,
    free: Vec<GroupId>,
    dying: Vec<GroupId>,
    /// By identity: per-CPU memory that its creation allocated.
    areas: Box<[Vec<Area>]>,
}

/// The parts of the memory manager that creation and removal use.
pub struct LifetimeRef<'a, A: Machine> {
    /// The groups.
    pub groups: &'a Groups<A>,
    /// Queues the work that returns stocks.
    pub work: &'a Work<A>,
    /// Per-CPU memory.
    pub percpu: &'a Percpu<A>,
}

/// The groups that exist, by the numbers that programs have for them.
pub struct Lifetimes<A: Machine> {
    /// `cgroup_mutex`.
    names: Mutex<A, Names>,
    /// By number, from 1: its processes. Empty if no group is ever created or removed.
    processes: Box<[A::AtomicU32]>,
    nodes: usize,
}

impl<A: Machine> Lifetimes<A> {
    /// Creates `numbers` groups, and identities for `spare` more. With 0 of these no group is
    /// created or removed.
    pub fn new(numbers: usize, spare: usize, nodes: usize) -> Self {
        let ids = |range: core::ops::RangeInclusive<usize>| range.map(GroupId::new);
        let all = numbers + spare;
        let counted = if spare > 0 { numbers } else { 0 };
        let names = Names {
            groups: ids(1..=numbers).map(Some).collect(),
            limits: (0..numbers).map(|_| None).collect(),
            // The lowest first.
            free: ids(numbers + 1..=all).rev().collect(),
            dying: Vec::new(),
            areas: (0..=all).map(|_| Vec::new()).collect(),
        };
        Self {
            names: Mutex::new(LockClass::Cgroup, names),
            processes: (0..counted).map(|_| A::AtomicU32::new(0)).collect(),
            nodes,
        }
    }
    /// Returns the count of a number's processes; `None`: it is not kept.
    fn processes(&self, number: usize) -> Option<&A::AtomicU32> {
        self.processes.get(number.checked_sub(1)?)
    }

    // -- Processes.

    /// Counts a process that starts in the group of a number, and returns the group. The root has
    /// number 0. Sleeps.
    pub fn enter(&self, number: usize) -> Result<GroupId, LifetimeError> {
        let Some(processes) = self.processes(number) else { return Ok(GroupId::new(number)) };
        let names = self.names.lock();
        let group = names.groups[number - 1].ok_or(LifetimeError::Missing)?;
        processes.fetch_add(1, Relaxed);
        Ok(group)
    }
    /// Counts a process that starts in the group of its parent, which is in it.
    pub fn inherit(&self, number: usize) {
        self.processes(number).inspect(|processes| _ = processes.fetch_add(1, Relaxed));
    }
    /// Counts a process less: it has ended, or was not started.
    pub fn leave(&self, number: usize) {
        // Pairs with the `Acquire` in `remove`.
        self.processes(number).inspect(|processes| _ = processes.fetch_sub(1, Release));
    }

    // -- Groups.

    /// Creates a group with a number whose last group was removed. It has that group's limit.
    /// Sleeps.
    pub fn create(&self, on: LifetimeRef<'_, A>, number: usize) -> Result<(), LifetimeError> {
        let _span = Span::<A>::enter(Func::CgroupMkdir);
        let mut names = self.names.lock();
        match number.checked_sub(1).and_then(|at| names.groups.get(at)) {
            None => return Err(LifetimeError::Missing),
            Some(Some(_)) => return Err(LifetimeError::Exists),
            Some(None) => {}
        }
        names.free_uncharged(&on);
        let group = names.free.pop().ok_or(LifetimeError::Full)?;
        let of_group = NodeItem::COUNT + GroupEvent::COUNT;
        let values = core::iter::once(of_group).chain((0..self.nodes).map(|_| NodeItem::COUNT));
        let areas = values.map(|values| on.percpu.alloc((values * VALUE_BYTES) as u32));
        names.areas[group.index()] = areas.collect();
        on.groups.set_limit(group, names.limits[number - 1]);
        names.groups[number - 1] = Some(group);
        Ok(())
    }
    /// Removes the group of a number, in which no process is. Its pages stay charged to it.
    /// Sleeps.
    pub fn remove(&self, on: LifetimeRef<'_, A>, number: usize) -> Result<(), LifetimeError> {
        let _span = Span::<A>::enter(Func::CgroupRmdir);
        let mut names = self.names.lock();
        let group = number.checked_sub(1).and_then(|at| names.groups.get(at).copied().flatten());
        let group = group.ok_or(LifetimeError::Missing)?;
        // Pairs with the `Release` in `leave`. No process can enter: that needs the mutex, or a
        // parent in the group.
        if self.processes(number).is_none_or(|processes| processes.load(Acquire) > 0) {
            return Err(LifetimeError::Busy);
        }
        names.limits[number - 1] = on.groups.limit(group);
        names.groups[number - 1] = None;
        names.dying.push(group);
        let mut online = CpuMask::EMPTY;
        A::online(&mut online);
        for cpu in online.iter().filter(|&cpu| on.groups.has_stock(cpu, group)) {
            on.work.queue_on(cpu, WorkItem::DrainStock(cpu));
        }
        Ok(())
    }
    /// The groups that were removed and are not freed yet, while nothing changes.
    pub fn dying(&self) -> Vec<GroupId> {
        self.names.lock().dying.clone()
    }
}

impl Names {
    /// Frees the removed groups to which nothing is charged any more (`css_release_work_fn`).
    fn free_uncharged<A: Machine>(&mut self, on: &LifetimeRef<'_, A>) {
        let before = self.free.len();
        let Self { free, dying, areas, .. } = self;
        dying.retain(|&group| {
            let stays = on.groups.is_charged(group);
            if !stays {
                areas[group.index()].drain(..).for_each(|area| on.percpu.free(&area));
                free.push(group);
            }
            stays
        });
        if self.free.len() > before {
            on.groups.stats().flush();
        }
    }
}
