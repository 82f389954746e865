//! Statistics of memory groups and their lruvecs (`memcg_vmstats`, rstat).
//!
//! Each CPU has its own values of each group: those of the group, and those of the group's lruvec
//! on each node. A change adds to two of them and takes no lock. The totals of a group, its
//! descendants included, are made by a *flush*, which adds what CPUs have counted since the last
//! one, child before parent.
//!
//! A flush must not search all groups. So a CPU puts a group that it changes into its list of
//! *updated* groups, unless the group is there. The list has no lock: its CPU pushes, and a flush
//! takes all of it.
//!
//! A flush is expensive, so readers avoid it. The changes since the last one are counted at each
//! level up to the root, by CPU, and passed on to the group's shared count in batches of 64. A
//! reader flushes if that exceeds 64 a CPU. Changes after that are not counted, at this level and
//! above. A worker flushes every 2 s in any case. That is [`ThresholdPolicy::Group`]; before Linux
//! 6.8 there was one count for all groups (`threshold`).
//!
//! Differences from Linux 6.18: a flush covers all groups, not only the subtree of the reader, and
//! leaves the CPUs' counts of changes as they are. The threshold depends on possible CPUs instead
//! of online ones.
//!
//! # Ordering
//! The push releases `next` with the head of the list; the flush acquires the head. The flush
//! releases `listed` after its read of `next`; the next push acquires it. A change
//! reads `listed` without a fence after it has added, as in Linux. If a flush clears `listed` at
//! that time, it may miss the change, and the group is listed by the next one. So totals lag, but
//! no count is lost. Everything else is relaxed: statistics order no other data.
//!
//! Lock order: the totals (class Rstat, interrupts off) are locked alone, for one CPU at a time.

use super::threshold::{AllChanges, ThresholdPolicy};
use super::{CHARGE_BATCH, GroupId, Tree};
use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicI64, AtomicU32};
use mmscale_arch::sync::{EachCpu, NoPreempt, Once, SpinLock};
use mmscale_arch::{
    Atomic, CpuId, DataLine, Func, LockClass, Machine, NodeId, Op, OwnedValue, Span,
};
use mmscale_frames::vmstat::NodeItem;

/// The time between two flushes of the worker, in ns (`FLUSH_TIME`).
pub(crate) const FLUSH_NS: u64 = 2_000_000_000;

/// An event that is counted for a group, but not for its lruvecs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum GroupEvent {
    /// A folio was charged (`pgpgin`).
    FolioIn = 0,
    /// A folio was uncharged (`pgpgout`).
    FolioOut = 1,
}

impl GroupEvent {
    pub(super) const COUNT: usize = 2;
}

/// Values of a group, before those of its lruvecs.
const OF_GROUP: usize = NodeItem::COUNT + GroupEvent::COUNT;

const fn event_at(event: GroupEvent) -> usize {
    NodeItem::COUNT + event as usize
}
const fn lruvec_at(node: NodeId, item: NodeItem) -> usize {
    OF_GROUP + node.index() * NodeItem::COUNT + item as usize
}

/// One CPU's statistics of one group.
struct CpuStats<A: Machine> {
    values: Box<[A::OwnedI64]>,
    /// The values at the last flush. Changed under the lock of the totals.
    flushed: Box<[AtomicI64]>,
    /// Changes that are not in the group's shared count. Only its CPU uses it.
    changes: AtomicU32,
    /// Not 0: it is in its CPU's list of updated groups, or about to be.
    listed: A::AtomicU8,
    /// The next one in the list, plus 1; 0: none.
    next: A::AtomicU32,
}

impl<A: Machine> CpuStats<A> {
    fn new(len: usize) -> Self {
        Self {
            values: (0..len).map(|_| A::OwnedI64::zero()).collect(),
            flushed: (0..len).map(|_| AtomicI64::new(0)).collect(),
            changes: AtomicU32::new(0),
            listed: A::AtomicU8::named(0, DataLine::StatsUpdates),
            next: A::AtomicU32::named(0, DataLine::StatsUpdates),
        }
    }
    fn add(&self, at: usize, count: i64) {
        A::work(Op::PercpuAdd, 1);
        self.values[at].set(self.values[at].get() + count);
    }
}

/// Whether the changes of a group have reached its threshold.
fn is_full<A: Machine>(changes: &A::AtomicU32) -> bool {
    changes.load_uncharged(Relaxed) > CHARGE_BATCH * A::cpus_possible() as u32
}

/// One CPU's part of the statistics.
struct Cpu<A: Machine> {
    /// By group; made with the first change.
    groups: Box<[Once<CpuStats<A>>]>,
    /// The head of the list of updated groups, plus 1; 0: the list is empty.
    updated: A::AtomicU32,
}

/// The statistics of a group as of the last flush.
#[derive(Clone)]
struct Total {
    /// The group's, its descendants' included.
    values: Box<[i64]>,
    /// Changes of children that a flush has left for the group.
    pending: Box<[i64]>,
}

/// The changes since the last flush, for readers.
enum Threshold<A: Machine> {
    /// By group, in whole batches.
    Groups(Box<[A::AtomicU32]>),
    All(AllChanges<A>),
    None,
}

/// The statistics of all groups.
pub struct GroupStats<A: Machine> {
    tree: Tree,
    /// Values of one group.
    len: usize,
    cpus: EachCpu<Cpu<A>>,
    threshold: Threshold<A>,
    totals: SpinLock<A, Vec<Total>>,
    /// When the worker flushed last, in ns.
    flushed_ns: A::AtomicU64,
}

impl<A: Machine> GroupStats<A> {
    pub(super) fn new(tree: Tree, nodes: usize, policy: ThresholdPolicy) -> Self {
        let len = OF_GROUP + nodes * NodeItem::COUNT;
        let slots = tree.slots();
        let changes = |_| A::AtomicU32::named(0, DataLine::StatsUpdates);
        let threshold = match policy {
            ThresholdPolicy::Group => Threshold::Groups((0..slots).map(changes).collect()),
            ThresholdPolicy::Global => Threshold::All(AllChanges::new(true)),
            ThresholdPolicy::Uncapped => Threshold::All(AllChanges::new(false)),
            ThresholdPolicy::None => Threshold::None,
        };
        let total = Total { values: vec![0; len].into(), pending: vec![0; len].into() };
        Self {
            tree,
            len,
            cpus: EachCpu::new::<A>(|_| Cpu {
                groups: (0..slots).map(|_| Once::nothing()).collect(),
                updated: A::AtomicU32::named(0, DataLine::StatsUpdates),
            }),
            threshold,
            totals: SpinLock::new(LockClass::Rstat, vec![total; slots]),
            flushed_ns: A::AtomicU64::new(0),
        }
    }
    fn of(&self, cpu: CpuId, slot: usize) -> &CpuStats<A> {
        let stats = &self.cpus.of(cpu).groups[slot];
        stats.get().unwrap_or_else(|| stats.put(CpuStats::new(self.len)))
    }

    // -- Changes.

    /// Adds `pages` to an item of the group and of its lruvec on `node` (`mod_memcg_lruvec_state`).
    /// Items that interrupts change too are changed with interrupts off.
    pub fn add(
        &self,
        pinned: &impl NoPreempt<A>,
        group: GroupId,
        node: NodeId,
        item: NodeItem,
        pages: i64,
    ) {
        A::work(Op::StatUpdate, 1);
        let stats = self.of(pinned.cpu(), group.index());
        stats.add(item as usize, pages);
        stats.add(lruvec_at(node, item), pages);
        self.note_change(pinned.cpu(), group.index(), pages.unsigned_abs() as u32);
    }
    /// Counts events of the group (`count_memcg_events`). Interrupts are off.
    pub fn count(&self, pinned: &impl NoPreempt<A>, group: GroupId, event: GroupEvent, count: u32) {
        A::work(Op::StatUpdate, 1);
        let stats = self.of(pinned.cpu(), group.index());
        stats.add(event_at(event), count.into());
        self.note_change(pinned.cpu(), group.index(), count);
    }
    /// Makes sure that a flush will find a change, and counts it for readers
    /// (`memcg_rstat_updated`).
    fn note_change(&self, cpu: CpuId, slot: usize, count: u32) {
        self.list(cpu, slot);
        match &self.threshold {
            Threshold::Groups(shared) => self.note_in_groups(shared, cpu, slot, count),
            Threshold::All(all) => all.note(cpu, count),
            Threshold::None => {}
        }
    }
    /// Counts a change of a group for readers of the group and of those above it.
    fn note_in_groups(&self, shared: &[A::AtomicU32], cpu: CpuId, slot: usize, count: u32) {
        let mut level = Some(slot);
        while let Some(slot) = level.filter(|&slot| !is_full::<A>(&shared[slot])) {
            A::work(Op::PercpuAdd, 1);
            let changes = &self.of(cpu, slot).changes;
            let sum = changes.load(Relaxed).saturating_add(count);
            let full = sum >= CHARGE_BATCH;
            changes.store(if full { 0 } else { sum }, Relaxed);
            if full {
                shared[slot].fetch_add(sum, Relaxed);
            }
            level = self.tree.parent(slot);
        }
    }
    /// Whether a reader of the group flushes. Then a reader of an ancestor does, too.
    fn is_flushable(&self, slot: usize) -> bool {
        match &self.threshold {
            Threshold::Groups(shared) => is_full::<A>(&shared[slot]),
            Threshold::All(all) => all.is_due(),
            Threshold::None => true,
        }
    }
    /// Puts the group into the CPU's list, unless it is there (`css_rstat_updated`). An interrupt
    /// may do so at any step.
    fn list(&self, cpu: CpuId, slot: usize) {
        let stats = self.of(cpu, slot);
        // Pairs with the `Release` in `flush_cpu`, which has read the `next` of the last time.
        if stats.listed.load_uncharged(Relaxed) != 0
            || stats.listed.compare_exchange(0, 1, Acquire, Relaxed).is_err()
        {
            return;
        }
        let head = &self.cpus.of(cpu).updated;
        let mut first = head.load(Relaxed);
        loop {
            stats.next.store(first, Relaxed);
            let new = slot as u32 + 1;
            // `Release` pairs with the `Acquire` in `flush_cpu`.
            match head.compare_exchange(first, new, Release, Relaxed) {
                Ok(_) => return,
                Err(other) => first = other,
            }
        }
    }

    // -- Flushes and readers.

    /// Brings all totals up to date. Called in a task without spin locks.
    pub fn flush(&self) {
        let _span = Span::<A>::enter(Func::CssRstatFlush);
        for (cpu, _) in self.cpus.iter() {
            self.flush_cpu(cpu);
        }
        match &self.threshold {
            Threshold::Groups(shared) => {
                let changed = shared.iter().filter(|changes| changes.load(Relaxed) != 0);
                changed.for_each(|changes| changes.store(0, Relaxed));
            }
            Threshold::All(all) => all.reset(),
            Threshold::None => {}
        }
    }
    /// Flushes and remembers when, for [`GroupStats::flush_late`]: the worker.
    pub(crate) fn flush_in_time(&self) {
        self.flushed_ns.store(A::now_ns(), Relaxed);
        self.flush();
    }
    /// Flushes if there are many changes and the worker is late by a whole period: before reclaim
    /// (`mem_cgroup_flush_stats_ratelimited`).
    pub(crate) fn flush_late(&self, group: GroupId) {
        let due_ns = self.flushed_ns.load_uncharged(Relaxed) + 2 * FLUSH_NS;
        let reclaim_flushes = !matches!(self.threshold, Threshold::None);
        if reclaim_flushes && A::now_ns() > due_ns && self.is_flushable(group.index()) {
            self.flush();
        }
    }
    fn flush_cpu(&self, cpu: CpuId) {
        let head = &self.cpus.of(cpu).updated;
        if head.load(Relaxed) == 0 {
            return;
        }
        let mut totals = self.totals.lock_irqsave();
        // Pairs with the `Release` in `list`: the flush sees the `next` of each listed group.
        let mut next = head.swap(0, Acquire);
        while let Some(slot) = next.checked_sub(1) {
            let slot = slot as usize;
            let stats = self.of(cpu, slot);
            next = stats.next.load(Relaxed);
            // After this the CPU may list the group again, and overwrite `next`. Pairs with the
            // `Acquire` in `list`.
            stats.listed.store(0, Release);
            if self.tree.is_leaf(slot) {
                self.fold(cpu, slot, &mut totals);
            }
        }
        self.tree.inner().for_each(|slot| self.fold(cpu, slot, &mut totals));
    }
    /// Adds one CPU's changes of a group, and those of its children, to its total
    /// (`mem_cgroup_css_rstat_flush`).
    fn fold(&self, cpu: CpuId, slot: usize, totals: &mut [Total]) {
        A::work(Op::StatFlush, 1);
        let own = self.cpus.of(cpu).groups[slot].get();
        for at in 0..self.len {
            let mut change = core::mem::take(&mut totals[slot].pending[at]);
            if let Some(own) = own {
                let value = own.values[at].peek(cpu);
                change += value - own.flushed[at].swap(value, Relaxed);
            }
            totals[slot].values[at] += change;
            if let Some(parent) = self.tree.parent(slot) {
                totals[parent].pending[at] += change;
            }
        }
    }
    /// Returns an item of the group and its descendants, in pages (`memory.stat`). Flushes first if
    /// there are many changes. Called in a task without spin locks.
    pub fn read(&self, group: GroupId, item: NodeItem) -> u64 {
        if self.is_flushable(group.index()) {
            self.flush();
        }
        self.total(group, item as usize).max(0) as u64
    }
    /// Returns an item of the group on one node as of the last flush, in pages; may lag.
    pub fn lruvec(&self, group: GroupId, node: NodeId, item: NodeItem) -> i64 {
        self.total(group, lruvec_at(node, item))
    }
    /// Returns the number of events of the group and its descendants as of the last flush.
    pub fn events(&self, group: GroupId, event: GroupEvent) -> i64 {
        self.total(group, event_at(event))
    }
    fn total(&self, group: GroupId, at: usize) -> i64 {
        self.totals.lock_irqsave()[group.index()].values[at]
    }

    // -- Checks, while nothing runs.

    /// Returns the group's own value, without its descendants' and without a flush.
    fn own(&self, slot: usize, at: usize) -> i64 {
        let of = |cpu: &Cpu<A>| cpu.groups[slot].get().map_or(0, |own| own.values[at].get());
        self.cpus.iter().map(|(_, cpu)| of(cpu)).sum()
    }
    /// Returns the group's own item on one node, without its descendants'.
    pub fn own_lruvec(&self, group: GroupId, node: NodeId, item: NodeItem) -> i64 {
        self.own(group.index(), lruvec_at(node, item))
    }
    /// Returns the number of folios that are charged to the group by its own events.
    pub(crate) fn own_folios(&self, group: GroupId) -> i64 {
        let events = [GroupEvent::FolioIn, GroupEvent::FolioOut].map(event_at);
        let [came, went] = events.map(|at| self.own(group.index(), at));
        came - went
    }
    /// Checks that the groups that are marked as listed are in their CPU's list, and no other.
    fn verify_lists(&self) -> Result<(), GroupId> {
        for (_, cpu) in self.cpus.iter() {
            let mut found = vec![false; self.tree.slots()];
            let mut next = cpu.updated.load(Relaxed);
            while let Some(slot) = next.checked_sub(1) {
                let slot = slot as usize;
                if core::mem::replace(&mut found[slot], true) {
                    return Err(self.tree.named(slot));
                }
                next = cpu.groups[slot].get().map_or(0, |stats| stats.next.load(Relaxed));
            }
            for (slot, found) in found.into_iter().enumerate() {
                let stats = cpu.groups[slot].get();
                if stats.is_some_and(|stats| stats.listed.load(Relaxed) != 0) != found {
                    return Err(self.tree.named(slot));
                }
            }
        }
        Ok(())
    }
    /// Checks the lists; folds everything, and checks that each total is the sum of the CPUs'
    /// values of the group and its descendants, and that a group's items are those of its lruvecs.
    /// Returns the group that differs.
    pub fn verify(&self) -> Result<(), GroupId> {
        self.verify_lists()?;
        let slots = || self.tree.leaves().chain(self.tree.inner());
        for (cpu, _) in self.cpus.iter() {
            let mut totals = self.totals.lock_irqsave();
            slots().for_each(|slot| self.fold(cpu, slot, &mut totals));
        }
        let totals = self.totals.lock_irqsave();
        let mut sums = vec![vec![0; self.len]; self.tree.slots()];
        for slot in slots() {
            (0..self.len).for_each(|at| sums[slot][at] += self.own(slot, at));
            if let Some(parent) = self.tree.parent(slot) {
                (0..self.len).for_each(|at| sums[parent][at] += sums[slot][at]);
            }
            let items = 0..NodeItem::COUNT;
            let is_whole = items.into_iter().all(|item| {
                let of_lruvecs = sums[slot][OF_GROUP..].iter().skip(item);
                sums[slot][item] == of_lruvecs.step_by(NodeItem::COUNT).sum::<i64>()
            });
            if totals[slot].values[..] != sums[slot][..] || !is_whole {
                return Err(self.tree.named(slot));
            }
        }
        Ok(())
    }
}
