//! Counters: shared totals, and a signed byte per counter and CPU that gathers small changes.
//!
//! A change goes into the calling CPU's byte. When the byte exceeds a threshold, it is added
//! atomically to the total of its zone or node and to the global total. So a total is off by at
//! most the number of CPUs times the threshold. The upkeep tick folds the bytes.
//!
//! A byte is changed only on its CPU with interrupts off ([`IrqOff`]), or with preemption off if no
//! interrupt changes it ([`NodeItem::is_of_tasks`]). Other CPUs check whether it
//! is zero; only where memory is almost exhausted do they sum all bytes. A CPU uses its own copy of
//! the threshold. It reads the shared one whenever it adds to a total and at every fold, so it uses
//! a changed threshold at most one upkeep interval late.
//!
//! Orderings are `Relaxed`: counters order no other data.

use crate::place::{CpuTable, Place, Table};
use crate::zone::ZoneId;
use core::sync::atomic::Ordering::Relaxed;
use mmscale_arch::sync::{IrqGuard, NoPreempt, SpinGuard};
use mmscale_arch::{Atomic, CounterEvent, Cpu, CpuId, DataLine, NodeId, Op, OwnedCounter, Trace};

/// Proof that interrupts are off on this CPU.
///
/// # Safety
/// Interrupts and preemption are off for the lifetime of the implementor.
pub unsafe trait IrqOff<A: Cpu>: NoPreempt<A> {}

// SAFETY: an `IrqGuard` keeps interrupts and preemption off.
unsafe impl<A: Cpu> IrqOff<A> for IrqGuard<A> {}
// SAFETY: the lock guard holds an `IrqGuard`.
unsafe impl<A: Cpu, T> IrqOff<A> for SpinGuard<'_, A, T, IrqGuard<A>> {}

/// A counter of a zone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
#[expect(missing_docs, reason = "the names are the kernel's counters, in pages")]
pub enum ZoneItem {
    FreePages = 0,
    InactiveAnon = 1,
    ActiveAnon = 2,
    InactiveFile = 3,
    ActiveFile = 4,
    Mlock = 5,
}

impl ZoneItem {
    /// The number of zone counters.
    pub const COUNT: usize = 6;
}

/// A counter of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
#[expect(missing_docs, reason = "the names are the kernel's counters, in pages")]
pub enum NodeItem {
    InactiveAnon = 0,
    ActiveAnon = 1,
    InactiveFile = 2,
    ActiveFile = 3,
    AnonMapped = 4,
    FileMapped = 5,
    FilePages = 6,
    PageTable = 7,
}

impl NodeItem {
    /// The number of node counters.
    pub const COUNT: usize = 8;
    /// Whether only tasks change it, so that it is changed with interrupts on.
    pub const fn is_of_tasks(self) -> bool {
        matches!(self, Self::AnonMapped | Self::FileMapped)
    }
}

/// The threshold of a zone of `pages` pages of `page_kib` KiB with `cpus` CPUs online:
/// min(125, 2 * fls(cpus) * (1 + fls(zone in 128 MiB))).
pub const fn normal_threshold(cpus: usize, pages: u64, page_kib: u32) -> u8 {
    const fn fls(value: u64) -> u64 {
        (u64::BITS - value.leading_zeros()) as u64
    }
    let units = pages * page_kib as u64 / (128 * 1024);
    let threshold = 2 * fls(cpus as u64) * (1 + fls(units));
    if threshold > 125 { 125 } else { threshold as u8 }
}

/// The threshold while memory is short: the total may then be off by at most the distance between
/// two watermarks, (low - min) pages: clamp((low - min) / cpus, 1, 125).
pub const fn pressure_threshold(cpus: usize, low_minus_min: u32) -> u8 {
    let share = low_minus_min as usize / if cpus == 0 { 1 } else { cpus };
    if share < 1 {
        1
    } else if share > 125 {
        125
    } else {
        share as u8
    }
}

/// One CPU's bytes for one zone or node, on a cache line of their own.
#[repr(align(64))]
struct Deltas<A: Cpu, const N: usize> {
    items: [A::OwnedI8; N],
    /// The owner's copy of the shared threshold; 0 before it first read that.
    threshold: A::OwnedI8,
}

impl<A: Cpu, const N: usize> Deltas<A, N> {
    fn new() -> Self {
        Self { items: core::array::from_fn(|_| A::OwnedI8::zero()), threshold: A::OwnedI8::zero() }
    }
    fn any(&self) -> bool {
        self.items.iter().any(OwnedCounter::is_nonzero)
    }
}

/// The totals of one zone or node.
struct Totals<A: Cpu, const N: usize> {
    items: [A::AtomicI64; N],
    threshold: A::AtomicU8,
}

impl<A: Cpu, const N: usize> Totals<A, N> {
    /// Creates totals: the first counter starts at `first`, the others at 0.
    fn new(threshold: u8, first: i64) -> Self {
        Self {
            items: starting_at(first, DataLine::ZoneStat),
            threshold: A::AtomicU8::new(threshold),
        }
    }
}

/// Creates counters: the first starts at `first`, the others at 0.
fn starting_at<C: Atomic<i64>, const N: usize>(first: i64, name: DataLine) -> [C; N] {
    core::array::from_fn(|item| C::named(if item == 0 { first } else { 0 }, name))
}

struct CpuDeltas<A: Cpu> {
    zones: Table<Deltas<A, { ZoneItem::COUNT }>>,
    nodes: Table<Deltas<A, { NodeItem::COUNT }>>,
}

const _: () = assert!(ZoneItem::FreePages as usize == 0);

/// The domain number of a node in [`CounterEvent::Delta`].
const NODE_DOMAIN: u16 = 0x8000;

/// All counters of a memory manager.
pub struct Stats<A: Cpu> {
    cpus: CpuTable<CpuDeltas<A>>,
    zones: Table<Totals<A, { ZoneItem::COUNT }>>,
    nodes: Table<Totals<A, { NodeItem::COUNT }>>,
    all_zones: [A::AtomicI64; ZoneItem::COUNT],
    all_nodes: [A::AtomicI64; NodeItem::COUNT],
}

/// A CPU's bytes and the totals into which they are folded.
struct Pair<'a, A: Cpu, const N: usize> {
    deltas: &'a Deltas<A, N>,
    totals: &'a Totals<A, N>,
    all: &'a [A::AtomicI64; N],
    cpu: CpuId,
    domain: u16,
}

impl<A: Cpu, const N: usize> Pair<'_, A, N> {
    fn learn_threshold(&self) -> i8 {
        let threshold = self.totals.threshold.load(Relaxed) as i8;
        self.deltas.threshold.set(threshold);
        threshold
    }
    #[inline]
    fn threshold(&self) -> i8 {
        match self.deltas.threshold.get() {
            0 => self.learn_threshold(),
            known => known,
        }
    }
    fn add_total(&self, item: usize, pages: i64) {
        self.totals.items[item].fetch_add(pages, Relaxed);
        self.all[item].fetch_add(pages, Relaxed);
    }
    /// Sets the byte to `left`, and adds `folded` pages to the totals; traces the change.
    #[inline]
    fn store_delta(&self, item: usize, old: i8, left: i8, folded: i64) {
        self.deltas.items[item].set(left);
        if folded != 0 {
            self.add_total(item, folded);
        }
        A::trace(Trace::Counter(CounterEvent::Delta {
            cpu: self.cpu,
            domain: self.domain,
            item: item as u8,
            old,
            new: left,
            folded: folded as i32,
            threshold: self.deltas.threshold.get() as u8,
        }));
        if folded != 0 {
            self.learn_threshold();
        }
    }
    /// Adds `pages`. If the sum exceeds the threshold, all of it is folded into the totals.
    #[inline]
    fn modify(&self, item: usize, pages: i64) {
        let old = self.deltas.items[item].get();
        let sum = i64::from(old) + pages;
        if sum.abs() > i64::from(self.threshold()) {
            self.store_delta(item, old, 0, sum);
        } else {
            self.store_delta(item, old, sum as i8, 0);
        }
    }
    /// Adds `pages` one by one, as a loop over blocks of one page does: the byte is then usually
    /// nonzero afterwards. Traces once per fold.
    fn modify_singly(&self, item: usize, pages: i64) {
        let sign = pages.signum();
        let mut left = pages.abs();
        while left > 0 {
            let old = i64::from(self.deltas.items[item].get());
            // Steps that stay within the threshold, and the one that exceeds it.
            let room = i64::from(self.threshold()) - old * sign;
            let steps = left.min(room.max(0) + 1);
            self.modify(item, steps * sign);
            left -= steps;
        }
    }
    /// Folds all bytes into the totals; returns the number that were not zero.
    fn fold(&self) -> u32 {
        let mut folded = 0;
        for item in 0..N {
            let old = self.deltas.items[item].get();
            if old != 0 {
                A::work(Op::CounterFold, 1);
                self.store_delta(item, old, 0, old.into());
                folded += 1;
            }
        }
        folded
    }
}

impl<A: Cpu> Stats<A> {
    /// Creates counters of `cpus` CPUs for zones, given by node, threshold and free pages, on
    /// `nodes` nodes.
    pub(crate) fn new(
        place: &mut Place,
        zones: impl ExactSizeIterator<Item = (NodeId, u8, u32)> + Clone,
        nodes: usize,
        cpus: usize,
    ) -> Self {
        let node_threshold = |node: usize| {
            let of_node = zones.clone().filter(|zone| zone.0.index() == node);
            of_node.map(|zone| zone.1).max().unwrap_or(1)
        };
        let zone = |at| zones.clone().nth(at).expect("a zone of the map");
        Self {
            cpus: CpuTable::new(place, cpus, |place, _| CpuDeltas {
                zones: place.table(zones.len(), |_| Deltas::new()),
                nodes: place.table(nodes, |_| Deltas::new()),
            }),
            zones: place.table(zones.len(), |at| Totals::new(zone(at).1, zone(at).2.into())),
            nodes: place.table(nodes, |node| Totals::new(node_threshold(node), 0)),
            all_zones: starting_at(
                zones.clone().map(|zone| i64::from(zone.2)).sum(),
                DataLine::ZoneStat,
            ),
            all_nodes: starting_at(0, DataLine::NodeStat),
        }
    }
    /// Sets the thresholds of all zones, in their order, and of the nodes to their zones' largest.
    pub(crate) fn set_thresholds(&self, zones: impl Iterator<Item = (NodeId, u8)>) {
        let mut of_nodes = [1u8; mmscale_arch::MAX_NODES];
        for (totals, (node, threshold)) in self.zones.iter().zip(zones) {
            totals.threshold.store(threshold, Relaxed);
            let of_node = &mut of_nodes[node.index()];
            *of_node = threshold.max(*of_node);
        }
        for (totals, threshold) in self.nodes.iter().zip(of_nodes) {
            totals.threshold.store(threshold, Relaxed);
        }
    }
    #[inline]
    fn zone_pair(&self, cpu: CpuId, zone: ZoneId) -> Pair<'_, A, { ZoneItem::COUNT }> {
        Pair {
            deltas: &self.cpus.of(cpu).zones[zone.index()],
            totals: &self.zones[zone.index()],
            all: &self.all_zones,
            cpu,
            domain: zone.index() as u16,
        }
    }
    #[inline]
    fn node_pair(&self, cpu: CpuId, node: NodeId) -> Pair<'_, A, { NodeItem::COUNT }> {
        Pair {
            deltas: &self.cpus.of(cpu).nodes[node.index()],
            totals: &self.nodes[node.index()],
            all: &self.all_nodes,
            cpu,
            domain: NODE_DOMAIN | node.index() as u16,
        }
    }

    /// Adds `pages` to a zone counter.
    #[inline]
    pub fn mod_zone(&self, off: &impl IrqOff<A>, zone: ZoneId, item: ZoneItem, pages: i64) {
        self.zone_pair(off.cpu(), zone).modify(item as usize, pages);
    }
    /// Adds `pages` to a zone counter as that many changes of one page each.
    #[inline]
    pub fn mod_zone_singly(&self, off: &impl IrqOff<A>, zone: ZoneId, item: ZoneItem, pages: i64) {
        self.zone_pair(off.cpu(), zone).modify_singly(item as usize, pages);
    }
    /// Adds `pages` to a node counter that interrupts do not change.
    #[inline]
    pub fn mod_node_of_tasks(
        &self,
        pinned: &impl NoPreempt<A>,
        node: NodeId,
        item: NodeItem,
        pages: i64,
    ) {
        debug_assert!(item.is_of_tasks(), "{item:?} is changed with interrupts off");
        self.node_pair(pinned.cpu(), node).modify(item as usize, pages);
    }
    /// Adds `pages` to a node counter.
    #[inline]
    pub fn mod_node(&self, off: &impl IrqOff<A>, node: NodeId, item: NodeItem, pages: i64) {
        self.node_pair(off.cpu(), node).modify(item as usize, pages);
    }

    /// The total of a zone counter, without the bytes. Never negative.
    #[inline]
    pub fn zone(&self, zone: ZoneId, item: ZoneItem) -> u64 {
        self.zones[zone.index()].items[item as usize].load_uncharged(Relaxed).max(0) as u64
    }
    /// The total of a node counter, without the bytes. Never negative.
    pub fn node(&self, node: NodeId, item: NodeItem) -> u64 {
        self.nodes[node.index()].items[item as usize].load(Relaxed).max(0) as u64
    }
    /// The total of a zone counter over all zones, without the bytes.
    pub fn all_zones(&self, item: ZoneItem) -> u64 {
        self.all_zones[item as usize].load(Relaxed).max(0) as u64
    }
    /// The total of a node counter over all nodes, without the bytes.
    pub fn all_nodes(&self, item: NodeItem) -> u64 {
        self.all_nodes[item as usize].load(Relaxed).max(0) as u64
    }
    /// The total of a zone counter with all CPUs' bytes: exact only while no CPU changes it.
    pub fn zone_snapshot(&self, zone: ZoneId, item: ZoneItem) -> i64 {
        let byte = |cpu: &CpuDeltas<A>| cpu.zones[zone.index()].items[item as usize].get();
        let bytes: i64 = self.cpus.iter().map(|(_, cpu)| i64::from(byte(cpu))).sum();
        self.zones[zone.index()].items[item as usize].load(Relaxed) + bytes
    }
    /// The total of a zone counter with all CPUs' bytes, while other CPUs may change them.
    pub(crate) fn zone_sum(&self, zone: ZoneId, item: ZoneItem) -> i64 {
        let byte = |(id, cpu): (CpuId, &CpuDeltas<A>)| {
            i64::from(cpu.zones[zone.index()].items[item as usize].peek(id))
        };
        self.zones[zone.index()].items[item as usize].load(Relaxed)
            + self.cpus.iter().map(byte).sum::<i64>()
    }
    /// The total of a node counter with all CPUs' bytes: exact only while no CPU changes it.
    pub fn node_snapshot(&self, node: NodeId, item: NodeItem) -> i64 {
        let byte = |cpu: &CpuDeltas<A>| cpu.nodes[node.index()].items[item as usize].get();
        let bytes: i64 = self.cpus.iter().map(|(_, cpu)| i64::from(byte(cpu))).sum();
        self.nodes[node.index()].items[item as usize].load(Relaxed) + bytes
    }
    /// The present threshold of a zone.
    pub fn threshold(&self, zone: ZoneId) -> u8 {
        self.zones[zone.index()].threshold.load(Relaxed)
    }

    /// Folds this CPU's bytes of one zone, and reads the threshold; returns the number of bytes
    /// that were not zero.
    pub fn fold_zone(&self, off: &impl IrqOff<A>, zone: ZoneId) -> u32 {
        A::work(Op::CounterScan, 1);
        let pair = self.zone_pair(off.cpu(), zone);
        pair.learn_threshold();
        pair.fold()
    }
    /// Folds this CPU's bytes of all nodes; returns the number that were not zero.
    pub fn fold_nodes(&self, off: &impl IrqOff<A>) -> u32 {
        A::work(Op::CounterScan, self.nodes.len() as u32);
        let fold = |node| {
            let pair = self.node_pair(off.cpu(), NodeId::new(node));
            pair.learn_threshold();
            pair.fold()
        };
        (0..self.nodes.len()).map(fold).sum()
    }
    /// Folds all bytes of this CPU, as at idle entry; returns the number that were not zero.
    pub fn fold_all(&self, off: &impl IrqOff<A>) -> u32 {
        let zones = (0..self.zones.len()).map(|zone| self.fold_zone(off, ZoneId::new(zone)));
        zones.sum::<u32>() + self.fold_nodes(off)
    }
    /// Folds the bytes of a dead CPU; returns the number that were not zero.
    ///
    /// `dead` is offline and does not start meanwhile; only one task folds it.
    pub fn fold_dead(&self, dead: CpuId) -> u32 {
        let zones = (0..self.zones.len()).map(|z| self.zone_pair(dead, ZoneId::new(z)).fold());
        let nodes = (0..self.nodes.len()).map(|n| self.node_pair(dead, NodeId::new(n)).fold());
        zones.sum::<u32>() + nodes.sum::<u32>()
    }
    /// Whether any byte of `cpu` is not zero. Any CPU may call it.
    pub fn needs_update(&self, cpu: CpuId) -> bool {
        A::work(Op::CounterScan, 1);
        self.has_deltas(cpu)
    }
    /// As [`Stats::needs_update`], without cost: for checks.
    pub(crate) fn has_deltas(&self, cpu: CpuId) -> bool {
        let deltas = self.cpus.of(cpu);
        deltas.zones.iter().any(Deltas::any) || deltas.nodes.iter().any(Deltas::any)
    }
}
