//! Slots: taking, sharing and giving back, by clusters of 512.
//!
//! A CPU takes slots from a cluster that no other takes from, so that the cluster's lock is mostly
//! its own (Linux: `percpu_swap_cluster`). When that is full it goes on with a cluster of which
//! nothing is used, then with one that was full and of which slots came back, and at the end with
//! any in which there is room. Whether there is a free slot at all is decided first, on one shared
//! counter (`nr_swap_pages`), so the search always ends.
//!
//! A slot is used while it has a count, one for each page-table entry that names it, or while the
//! cache knows it.

use super::{Swap, SwapDevice, SwapEntry, SwapFull};
use crate::folio::FolioFlags;
use crate::lru::Memory;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use mmscale_arch::sync::{NoPreempt, PreemptGuard};
use mmscale_arch::{Atomic, CpuId, Func, Machine, Op, Pfn, Span, planted};

/// Slots in a cluster (`SWAPFILE_CLUSTER` with 2 MiB huge pages).
pub(super) const SLOTS: usize = 512;
/// A CPU has no cluster.
pub(super) const NO_CLUSTER: u32 = u32::MAX;

/// The slot's page is all zeros, and the device does not have it.
const ZERO: u32 = 1 << 31;

/// A slot.
pub(super) struct Slot<A: Machine> {
    /// The folio that has its content, by number plus 1; 0: none. Written under the cluster's lock.
    pub(super) cached: A::AtomicU32,
    /// Page-table entries that name it, and `ZERO`. Under the cluster's lock.
    state: AtomicU32,
}

impl<A: Machine> Slot<A> {
    fn new(_: usize) -> Self {
        Self { cached: A::AtomicU32::new(0), state: AtomicU32::new(0) }
    }
    pub(super) fn count(&self) -> u32 {
        self.state.load(Relaxed) & !ZERO
    }
    fn set_count(&self, count: u32) {
        self.state.store(self.state.load(Relaxed) & ZERO | count, Relaxed);
    }
    pub(super) fn is_zero(&self) -> bool {
        self.state.load(Relaxed) & ZERO != 0
    }
    pub(super) fn set_zero(&self, zero: bool) {
        let flag = if zero { ZERO } else { 0 };
        self.state.store(self.count() | flag, Relaxed);
    }
}

/// Which slots of a cluster are used.
pub(super) struct Cluster {
    pub(super) used: [u64; SLOTS / 64],
    pub(super) count: usize,
    size: usize,
    /// Where the search for a free slot goes on.
    next: usize,
    /// It is on the list of clusters with room, or about to be used by whoever took it off.
    listed: bool,
}

impl Cluster {
    pub(super) fn new(size: usize) -> Self {
        Self { used: [0; SLOTS / 64], count: 0, size, next: 0, listed: false }
    }
    pub(super) fn is_used(&self, at: usize) -> bool {
        self.used[at / 64] >> (at % 64) & 1 == 1
    }
    fn take(&mut self) -> Option<usize> {
        if self.count == self.size {
            return None;
        }
        let round = (self.next..self.size).chain(0..self.next);
        let at = round.into_iter().find(|&at| !self.is_used(at))?;
        self.used[at / 64] |= 1 << (at % 64);
        self.count += 1;
        self.next = (at + 1) % self.size;
        Some(at)
    }
    /// Gives a slot back; whether the cluster goes on the list of those with room.
    fn give_back(&mut self, at: usize) -> bool {
        debug_assert!(self.is_used(at), "a slot given back twice");
        let was_full = self.count == self.size;
        self.used[at / 64] &= !(1 << (at % 64));
        self.count -= 1;
        if !was_full || self.listed {
            return false;
        }
        self.listed = true;
        true
    }
}

/// Clusters that no CPU takes from.
pub(super) struct Lists {
    /// Nothing of them is used.
    free: Vec<u32>,
    /// They were full, and are not any more.
    partial: VecDeque<u32>,
}

impl Lists {
    pub(super) fn all_free(clusters: usize) -> Self {
        let free = (0..clusters as u32).rev().collect();
        Self { free, partial: VecDeque::with_capacity(clusters) }
    }
}

/// What giving a slot up leaves to be done once the cluster's lock is free.
#[must_use]
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Freed {
    /// The slot is still used.
    No,
    /// It is free.
    Slot,
    /// It is free, and its cluster goes on the list.
    SlotAndRoom,
}

impl<A: Machine> Swap<A> {
    pub(super) fn slot(&self, entry: SwapEntry) -> &Slot<A> {
        self.slots.get_or_make(entry.index(), Slot::new)
    }

    /// Gives the folio a slot and puts it into the cache (`folio_alloc_swap`): its content is to go
    /// there. It is dirty then. No page-table entry names the slot yet. The caller has a reference
    /// and the folio's lock; the folio is one page and in no cache.
    ///
    /// Where all slots are used, those are looked for whose content is in memory and that only the
    /// cache knows (`swap_reclaim_full_clusters`).
    pub fn alloc(&self, memory: Memory<'_, A>, pfn: Pfn) -> Result<SwapEntry, SwapFull> {
        let _span = Span::<A>::enter(Func::FolioAllocSwap);
        if !self.is_on() || !self.reserve() && (self.prune_some(memory) == 0 || !self.reserve()) {
            return Err(SwapFull);
        }
        A::work(Op::SwapSlot, 1);
        let pinned = PreemptGuard::<A>::new();
        Ok(self.take_slot(memory, pfn, pinned.cpu()))
    }

    /// Makes sure that there is a slot to be found.
    fn reserve(&self) -> bool {
        if self.free.fetch_sub(1, Acquire) > 0 {
            return true;
        }
        // It says too little for a moment: whoever looks then finds swap full, which it is.
        self.free.fetch_add(1, Relaxed);
        false
    }

    /// A slot has been reserved. Preemption is off.
    fn take_slot(&self, memory: Memory<'_, A>, pfn: Pfn, cpu: CpuId) -> SwapEntry {
        let own = self.own.of(cpu);
        loop {
            let cluster = own.load(Relaxed);
            if cluster != NO_CLUSTER
                && let Some(entry) = self.take_in(memory, pfn, cluster as usize)
            {
                return entry;
            }
            let next = self.next_cluster();
            own.store(next.unwrap_or(NO_CLUSTER), Relaxed);
            if next.is_none() {
                break;
            }
        }
        loop {
            let from = cpu.index() % self.clusters.len();
            for at in (from..self.clusters.len()).chain(0..from) {
                if let Some(entry) = self.take_in(memory, pfn, at) {
                    own.store(at as u32, Relaxed);
                    return entry;
                }
            }
            A::relax();
        }
    }

    fn next_cluster(&self) -> Option<u32> {
        let mut lists = self.lists.lock();
        lists.free.pop().or_else(|| lists.partial.pop_front())
    }

    /// Takes a slot of this cluster for the folio, if there is one.
    fn take_in(&self, memory: Memory<'_, A>, pfn: Pfn, at: usize) -> Option<SwapEntry> {
        let mut cluster = self.clusters[at].lock();
        cluster.listed = false;
        let entry = SwapEntry::new((at * SLOTS + cluster.take()?) as u32);
        self.slot(entry).state.store(0, Relaxed);
        self.publish(memory, pfn, entry);
        memory.folios.set(pfn, FolioFlags::UPTODATE | FolioFlags::DIRTY);
        Some(entry)
    }

    /// The folio has the content of the slot from now on; the cache takes a reference. The
    /// cluster's lock is held.
    pub(super) fn publish(&self, memory: Memory<'_, A>, pfn: Pfn, entry: SwapEntry) {
        memory.folios.get(pfn);
        memory.folios.set_slot(pfn, entry.slot());
        memory.folios.set(pfn, FolioFlags::SWAP_CACHE);
        self.slot(entry).cached.store(pfn.index() as u32 + 1, Release);
    }

    /// One more page-table entry names the slot (`swap_duplicate`). Something keeps it used.
    pub fn dup(&self, entry: SwapEntry) {
        A::work(Op::SwapSlot, 1);
        let slot = self.slot(entry);
        let cluster = self.clusters[entry.index() / SLOTS].lock();
        debug_assert!(cluster.is_used(entry.index() % SLOTS), "{entry:?} is free");
        slot.set_count(slot.count() + 1);
    }

    /// `entries` page-table entries less name the slot. With the last, a folio that has its content
    /// and that nobody maps gives it up too, unless somebody has that folio's lock
    /// (`free_swap_and_cache`). Also under page-table locks.
    pub fn free(&self, memory: Memory<'_, A>, entry: SwapEntry, entries: u32) {
        let _span = Span::<A>::enter(Func::SwapFree);
        if let Some(pfn) = self.forget(entry, entries) {
            self.drop_unneeded(memory, entry, pfn);
        }
    }

    /// One page-table entry less names the slot. If it was the last, and a folio has the slot's
    /// content that nobody maps, the caller gets a reference to it instead, and asks
    /// [`Swap::free_swap_cache`] before he drops that. Also under page-table locks.
    pub fn free_but_folio(&self, memory: Memory<'_, A>, entry: SwapEntry) -> Option<Pfn> {
        let _span = Span::<A>::enter(Func::SwapFree);
        let pfn = self.forget(entry, 1)?;
        self.take_unneeded(memory, entry, pfn)
    }

    /// `entries` page-table entries less name the slot; the folio that is in the cache for it, if
    /// these were the last.
    fn forget(&self, entry: SwapEntry, entries: u32) -> Option<Pfn> {
        A::work(Op::SwapSlot, 1);
        let slot = self.slot(entry);
        let mut cluster = self.clusters[entry.index() / SLOTS].lock();
        let old = slot.count();
        if planted!(SwapClusterUnlockedEarly) {
            drop(cluster);
            A::relax();
            cluster = self.clusters[entry.index() / SLOTS].lock();
        }
        assert!(old >= entries, "{entry:?}: given back {entries} times, named {old} times");
        slot.set_count(old - entries);
        let cached = slot.cached.load(Relaxed);
        let freed = self.settle(&mut cluster, entry);
        drop(cluster);
        self.after(entry, freed);
        (old == entries && cached != 0).then(|| Pfn::new(cached as usize - 1))
    }

    /// The slot is free if nothing uses it any more. Its cluster's lock is held.
    pub(super) fn settle(&self, cluster: &mut Cluster, entry: SwapEntry) -> Freed {
        let slot = self.slot(entry);
        if slot.count() > 0 || slot.cached.load(Relaxed) != 0 {
            return Freed::No;
        }
        if self.config.device == SwapDevice::Compressed && !slot.is_zero() {
            A::work(Op::CompressedFree, 1);
        }
        match cluster.give_back(entry.index() % SLOTS) {
            true => Freed::SlotAndRoom,
            false => Freed::Slot,
        }
    }

    /// What [`Swap::settle`] has left to do.
    pub(super) fn after(&self, entry: SwapEntry, freed: Freed) {
        if freed == Freed::SlotAndRoom {
            self.lists.lock().partial.push_back((entry.index() / SLOTS) as u32);
        }
        if freed != Freed::No {
            self.free.fetch_add(1, Release);
        }
    }

    /// Page-table entries that name the slot, by now.
    pub fn count(&self, entry: SwapEntry) -> u32 {
        let _cluster = self.clusters[entry.index() / SLOTS].lock();
        self.slot(entry).count()
    }

    /// Others may take from the cluster of `cpu`, which has gone for good.
    pub fn cpu_dead(&self, cpu: CpuId) {
        let at = self.own.of(cpu).swap(NO_CLUSTER, Relaxed);
        if at == NO_CLUSTER {
            return;
        }
        let mut cluster = self.clusters[at as usize].lock();
        let room = cluster.count < cluster.size && !cluster.listed;
        cluster.listed |= room;
        drop(cluster);
        if room {
            self.lists.lock().partial.push_back(at);
        }
    }
}
