//! Slots: allocating, sharing and freeing, by clusters of 512.
//!
//! Each CPU allocates from a cluster of its own, so that the cluster's lock is mostly uncontended
//! (Linux: `percpu_swap_cluster`). When the cluster is full, the CPU takes an unused cluster,
//! otherwise one that was full and had slots freed, otherwise any with room. A shared counter
//! (`nr_swap_pages`) is decremented first, to reserve a slot, so the search always ends.
//!
//! A slot is used while page-table entries name it (its count) or a folio is in the cache for it.

use super::{Swap, SwapEntry, SwapFull};
use crate::folio::FolioFlags;
use crate::lru::LruRef;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicU32, AtomicU64};
use mmscale_arch::sync::{NoPreempt, PreemptGuard};
use mmscale_arch::{Atomic, CpuId, Func, Machine, Op, Pfn, Span};

/// Slots in a cluster (`SWAPFILE_CLUSTER` with 2 MiB huge pages).
pub(super) const SLOTS: usize = 512;
/// The CPU has no cluster.
pub(super) const NO_CLUSTER: u32 = u32::MAX;

/// The slot's page is all zeros and is not on the device.
const ZERO: u32 = 1 << 31;

/// A slot.
pub(super) struct SwapSlot<A: Machine> {
    /// The folio that has its content, frame number plus 1; 0: none. Written under the cluster's
    /// lock.
    pub(super) cached: A::AtomicU32,
    /// Number of page-table entries that name the slot, and `ZERO`. Under the cluster's lock.
    state: AtomicU32,
    /// The [`Handle::word`](crate::zsmalloc::Handle::word) of its compressed page; 0: none. Written
    /// by the holder of the folio's lock, or under the cluster's lock if no folio is in the cache.
    pub(super) compressed: AtomicU64,
}

impl<A: Machine> SwapSlot<A> {
    fn new(_: usize) -> Self {
        Self {
            cached: A::AtomicU32::new(0),
            state: AtomicU32::new(0),
            compressed: AtomicU64::new(0),
        }
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

/// The used slots of a cluster.
pub(super) struct Cluster {
    pub(super) used: [u64; SLOTS / 64],
    pub(super) count: usize,
    size: usize,
    /// The slot at which the search for a free one continues.
    next: usize,
    /// On the list of clusters with room, or just taken from it by a CPU that is about to use it.
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
    /// Frees a slot; returns whether the cluster must be added to the list of those with room.
    fn give_back(&mut self, at: usize) -> bool {
        debug_assert!(self.is_used(at), "a slot is freed twice");
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

/// Clusters from which no CPU allocates.
pub(super) struct Lists {
    /// Clusters without used slots.
    free: Vec<u32>,
    /// Clusters that were full and have free slots again.
    partial: VecDeque<u32>,
}

impl Lists {
    pub(super) fn all_free(clusters: usize) -> Self {
        let free = (0..clusters as u32).rev().collect();
        Self { free, partial: VecDeque::with_capacity(clusters) }
    }
}

/// Work that remains after a slot was released, to be done without the cluster's lock.
#[must_use]
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Freed {
    /// None: the slot is still used.
    No,
    /// The slot is free.
    Slot,
    /// The slot is free, and its cluster goes on the list.
    SlotAndRoom,
}

impl<A: Machine> Swap<A> {
    pub(super) fn slot(&self, entry: SwapEntry) -> &SwapSlot<A> {
        self.slots.get_or_make(entry.index(), SwapSlot::new)
    }

    /// Allocates a slot for the folio and adds the folio, now dirty, to the cache
    /// (`folio_alloc_swap`). No page-table entry names the slot yet. The caller has a reference and
    /// the folio's lock; the folio is one page and not in the cache.
    ///
    /// If no slot is free, prunes slots that only the cache uses (`swap_reclaim_full_clusters`).
    pub fn alloc(&self, memory: LruRef<'_, A>, pfn: Pfn) -> Result<SwapEntry, SwapFull> {
        let _span = Span::<A>::enter(Func::FolioAllocSwap);
        if !self.is_on() || !self.reserve() && (self.prune_some(memory) == 0 || !self.reserve()) {
            return Err(SwapFull);
        }
        A::work(Op::SwapSlot, 1);
        let pinned = PreemptGuard::<A>::new();
        Ok(self.take_slot(memory, pfn, pinned.cpu()))
    }

    /// Reserves a slot.
    fn reserve(&self) -> bool {
        // Pairs with the add in `finish_free`: the slot that it counts is free in its cluster.
        if self.free.fetch_sub(1, Acquire) > 0 {
            return true;
        }
        // The counter is one too low for a moment; a reader then sees swap as full, which it is.
        self.free.fetch_add(1, Relaxed);
        false
    }

    /// Allocates the slot that was reserved. Preemption is off.
    fn take_slot(&self, memory: LruRef<'_, A>, pfn: Pfn, cpu: CpuId) -> SwapEntry {
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

    /// Allocates a slot of this cluster for the folio, if one is free.
    fn take_in(&self, memory: LruRef<'_, A>, pfn: Pfn, at: usize) -> Option<SwapEntry> {
        let mut cluster = self.clusters[at].lock();
        cluster.listed = false;
        let entry = SwapEntry::new((at * SLOTS + cluster.take()?) as u32);
        self.slot(entry).state.store(0, Relaxed);
        self.publish(memory, pfn, entry);
        memory.folios.set(pfn, FolioFlags::UPTODATE | FolioFlags::DIRTY);
        Some(entry)
    }

    /// Adds the folio to the cache for the slot; the cache takes a reference. The cluster's lock is
    /// held.
    pub(super) fn publish(&self, memory: LruRef<'_, A>, pfn: Pfn, entry: SwapEntry) {
        memory.folios.get(pfn);
        memory.folios.set_slot(pfn, entry.slot());
        memory.folios.set(pfn, FolioFlags::SWAP_CACHE);
        memory.count_swap_cache(pfn, 1);
        // Pairs with the load in `lookup` (cache.rs): the flag and the slot's number are seen.
        self.slot(entry).cached.store(pfn.index() as u32 + 1, Release);
    }

    /// Adds one page-table entry to the slot's count (`swap_duplicate`). The slot is in use
    /// meanwhile.
    pub fn dup(&self, entry: SwapEntry) {
        A::work(Op::SwapSlot, 1);
        let slot = self.slot(entry);
        let cluster = self.clusters[entry.index() / SLOTS].lock();
        debug_assert!(cluster.is_used(entry.index() % SLOTS), "{entry:?} is free");
        slot.set_count(slot.count() + 1);
    }

    /// Removes `entries` page-table entries from the slot's count (`free_swap_and_cache`). With the
    /// last, also removes an unmapped folio from the cache, unless the folio is locked. Also called
    /// under page-table locks.
    pub fn free(&self, memory: LruRef<'_, A>, entry: SwapEntry, entries: u32) {
        let _span = Span::<A>::enter(Func::SwapFree);
        if let Some(pfn) = self.forget(memory, entry, entries) {
            self.drop_unneeded(memory, entry, pfn);
        }
    }

    /// Removes one page-table entry from the slot's count. If it was the last and an unmapped folio
    /// has the content, returns the folio with a reference; the caller calls
    /// [`Swap::free_swap_cache`] before it drops the reference. Also called under page-table locks.
    pub fn free_but_folio(&self, memory: LruRef<'_, A>, entry: SwapEntry) -> Option<Pfn> {
        let _span = Span::<A>::enter(Func::SwapFree);
        let pfn = self.forget(memory, entry, 1)?;
        self.take_unneeded(memory, entry, pfn)
    }

    /// Removes `entries` page-table entries from the slot's count. If these were the last, returns
    /// the folio that is in the cache for the slot.
    fn forget(&self, memory: LruRef<'_, A>, entry: SwapEntry, entries: u32) -> Option<Pfn> {
        A::work(Op::SwapSlot, 1);
        let slot = self.slot(entry);
        let mut cluster = self.clusters[entry.index() / SLOTS].lock();
        let old = slot.count();
        assert!(old >= entries, "{entry:?}: freed {entries} times, named {old} times");
        slot.set_count(old - entries);
        let cached = slot.cached.load(Relaxed);
        let freed = self.free_if_unused(memory, &mut cluster, entry);
        drop(cluster);
        self.finish_free(entry, freed);
        (old == entries && cached != 0).then(|| Pfn::new(cached as usize - 1))
    }

    /// Frees the slot if it is not used any more. Its cluster's lock is held.
    pub(super) fn free_if_unused(
        &self,
        memory: LruRef<'_, A>,
        cluster: &mut Cluster,
        entry: SwapEntry,
    ) -> Freed {
        let slot = self.slot(entry);
        if slot.count() > 0 || slot.cached.load(Relaxed) != 0 {
            return Freed::No;
        }
        self.forget_compressed(memory, slot);
        match cluster.give_back(entry.index() % SLOTS) {
            true => Freed::SlotAndRoom,
            false => Freed::Slot,
        }
    }

    /// Does the work that [`Swap::free_if_unused`] returned.
    pub(super) fn finish_free(&self, entry: SwapEntry, freed: Freed) {
        if freed == Freed::SlotAndRoom {
            self.lists.lock().partial.push_back((entry.index() / SLOTS) as u32);
        }
        if freed != Freed::No {
            // Pairs with the subtraction in `reserve`.
            self.free.fetch_add(1, Release);
        }
    }

    /// Returns the number of page-table entries that name the slot now.
    pub fn count(&self, entry: SwapEntry) -> u32 {
        let _cluster = self.clusters[entry.index() / SLOTS].lock();
        self.slot(entry).count()
    }

    /// Releases the cluster of `cpu`, which is dead, to other CPUs, and frees the compressed pages
    /// that it has deferred.
    pub fn cpu_dead(&self, memory: LruRef<'_, A>, cpu: CpuId) {
        if let Some(zram) = &self.zram {
            zram.pool.drain_stopped(memory.frames, cpu);
        }
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
