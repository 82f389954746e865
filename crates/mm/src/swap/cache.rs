//! The swap cache: from a slot to the folio that has its content, and back.
//!
//! Lookups take no lock: they load the slot's word, take a reference to the folio, and load the
//! word again. A folio is added and removed under its cluster's lock; it is removed only while its
//! own lock is held. The cache has one reference to each of its folios.

use super::slots::SLOTS;
use super::{Swap, SwapEntry};
use crate::folio::FolioFlags;
use crate::lru::LruRef;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use mmscale_arch::{Atomic, Func, Machine, Pfn, Span};

/// Clusters that are pruned when slots run out.
const PRUNED_AT_ONCE: usize = 4;

/// The treatment of folios under writeback.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Writing {
    /// Wait for the end of writeback.
    Wait,
    /// Leave them.
    Skip,
}

impl<A: Machine> Swap<A> {
    /// Returns the folio that has the slot's content, with a reference for the caller
    /// (`swap_cache_get_folio`). It may leave the cache until the caller has its lock; then check
    /// [`Swap::holds`].
    pub fn lookup(&self, memory: LruRef<'_, A>, entry: SwapEntry) -> Option<Pfn> {
        let _span = Span::<A>::enter(Func::SwapCacheGet);
        let slot = self.slots.get(entry.index())?;
        loop {
            // Pairs with the store in `publish` (slots.rs): the folio is ready.
            let cached = slot.cached.load(Acquire);
            let pfn = Pfn::new(cached.checked_sub(1)? as usize);
            if !memory.folios.try_get(pfn) {
                // It is being removed from the cache.
                A::relax();
                continue;
            }
            // Pairs with the stores of 0 in the removals: if the reference is to a later folio of
            // the same frame, this finds another value.
            if slot.cached.load(Acquire) == cached {
                self.tally().cache_hits.add(1);
                return Some(pfn);
            }
            memory.put(pfn);
        }
    }

    /// Returns whether the folio, whose lock the caller has, has the content of the slot.
    pub fn holds(&self, memory: LruRef<'_, A>, pfn: Pfn, entry: SwapEntry) -> bool {
        self.entry_of(memory, pfn) == Some(entry)
    }

    /// Returns the folio's slot. Stable while the caller has the folio's lock.
    pub fn entry_of(&self, memory: LruRef<'_, A>, pfn: Pfn) -> Option<SwapEntry> {
        let cached = memory.folios.word(pfn).has(FolioFlags::SWAP_CACHE);
        cached.then(|| SwapEntry::new(memory.folios.slot(pfn)))
    }

    /// Removes the folio from the cache if no page-table entry names its slot and it is not under
    /// writeback (`folio_free_swap`). Marks it dirty, because its content is then only in memory.
    /// Returns whether it was removed. The caller has the folio's lock and a reference.
    pub fn free_swap(&self, memory: LruRef<'_, A>, pfn: Pfn) -> bool {
        let _span = Span::<A>::enter(Func::FolioFreeSwap);
        if memory.folios.word(pfn).has(FolioFlags::WRITEBACK) {
            return false;
        }
        let Some(entry) = self.entry_of(memory, pfn) else { return false };
        let slot = self.slot(entry);
        let mut cluster = self.clusters[entry.index() / SLOTS].lock();
        if slot.count() > 0 {
            return false;
        }
        // Pairs with the second load in `lookup`: see there.
        slot.cached.store(0, Release);
        let freed = self.free_if_unused(memory, &mut cluster, entry);
        drop(cluster);
        self.finish_free(entry, freed);
        memory.folios.set(pfn, FolioFlags::DIRTY);
        self.left(memory, pfn);
        true
    }

    /// Removes the folio from the cache whatever its slot's count. The caller has its lock and a
    /// reference, and the folio is in the cache.
    pub(super) fn delete(&self, memory: LruRef<'_, A>, pfn: Pfn) {
        let Some(entry) = self.entry_of(memory, pfn) else { return };
        let mut cluster = self.clusters[entry.index() / SLOTS].lock();
        // Pairs with the second load in `lookup`: see there.
        self.slot(entry).cached.store(0, Release);
        let freed = self.free_if_unused(memory, &mut cluster, entry);
        drop(cluster);
        self.finish_free(entry, freed);
        self.left(memory, pfn);
    }

    /// Completes the removal from the cache; another reference keeps the folio.
    fn left(&self, memory: LruRef<'_, A>, pfn: Pfn) {
        memory.folios.clear(pfn, FolioFlags::SWAP_CACHE);
        memory.count_swap_cache(pfn, -1);
        memory.put(pfn);
    }

    /// Removes a clean folio from the cache for good, if only the cache and the caller have
    /// references (`__remove_mapping`). The caller has its lock. After `true`, the caller's
    /// reference is the last one, and the folio cannot be found any more.
    pub fn take_away(&self, memory: LruRef<'_, A>, pfn: Pfn) -> bool {
        let Some(entry) = self.entry_of(memory, pfn) else { return false };
        let mut cluster = self.clusters[entry.index() / SLOTS].lock();
        if !memory.folios.freeze(pfn, 2) {
            return false;
        }
        let busy = FolioFlags::DIRTY | FolioFlags::WRITEBACK;
        if memory.folios.word(pfn).flags().intersects(busy) {
            memory.folios.unfreeze(pfn, 2);
            return false;
        }
        // Pairs with the second load in `lookup`: see there.
        self.slot(entry).cached.store(0, Release);
        let freed = self.free_if_unused(memory, &mut cluster, entry);
        drop(cluster);
        self.finish_free(entry, freed);
        memory.folios.clear(pfn, FolioFlags::SWAP_CACHE);
        memory.count_swap_cache(pfn, -1);
        memory.folios.unfreeze(pfn, 1);
        true
    }

    /// Removes the folio from the cache if it is not mapped, its slot is not needed, and its lock
    /// is free (`free_swap_cache`). Called before a reference is dropped: an unmapped folio would
    /// otherwise stay in memory only for its slot. Also called under page-table locks.
    pub fn free_swap_cache(&self, memory: LruRef<'_, A>, pfn: Pfn) {
        let word = memory.folios.load_uncharged(pfn);
        if !word.has(FolioFlags::SWAP_CACHE) || word.maps() > 0 {
            return;
        }
        if self.trylock_folio(memory, pfn) {
            self.free_swap(memory, pfn);
            self.unlock_folio(memory, pfn);
        }
    }

    /// Removes `pfn` from the cache, if possible, after the slot's last page-table entry was
    /// dropped.
    pub(super) fn drop_unneeded(&self, memory: LruRef<'_, A>, entry: SwapEntry, pfn: Pfn) {
        let folio = self.lookup(memory, entry);
        if let Some(found) = folio {
            if found == pfn && (memory.folios.word(pfn).maps() == 0 || self.is_half_full()) {
                self.try_free_swap(memory, pfn);
            }
            memory.put(found);
        }
    }

    /// Like `drop_unneeded`, but an unmapped folio stays in the cache and is returned with a
    /// reference.
    pub(super) fn take_unneeded(
        &self,
        memory: LruRef<'_, A>,
        entry: SwapEntry,
        pfn: Pfn,
    ) -> Option<Pfn> {
        let found = self.lookup(memory, entry)?;
        let mapped = memory.folios.word(pfn).maps() > 0;
        if found == pfn && !mapped {
            return Some(found);
        }
        if found == pfn && self.is_half_full() {
            self.try_free_swap(memory, pfn);
        }
        memory.put(found);
        None
    }

    /// Tries to lock the folio and to remove it. The caller has a reference.
    fn try_free_swap(&self, memory: LruRef<'_, A>, pfn: Pfn) -> bool {
        let locked = self.trylock_folio(memory, pfn);
        let freed = locked && self.free_swap(memory, pfn);
        if locked {
            self.unlock_folio(memory, pfn);
        }
        freed
    }

    /// Frees all slots that only the cache uses, with their folios if these have no other users;
    /// returns the number of slots. Called at the end of a run: a folio that was locked or under
    /// writeback when its slot's last page-table entry was dropped stays in the cache until it is
    /// looked up. Waits for writeback, so it may sleep.
    pub fn prune(&self, memory: LruRef<'_, A>) -> u32 {
        (0..self.clusters.len()).map(|at| self.prune_cluster(memory, at, Writing::Wait)).sum()
    }

    /// Returns whether slots are free or could be freed by pruning.
    pub(crate) fn has_room(&self, memory: LruRef<'_, A>) -> bool {
        self.is_on() && (self.free_slots() > 0 || self.prune_some(memory) > 0)
    }

    /// Prunes a few clusters, others than the last time, when slots run out.
    pub(super) fn prune_some(&self, memory: LruRef<'_, A>) -> u32 {
        let from = self.pruned.fetch_add(PRUNED_AT_ONCE as u32, Relaxed) as usize;
        let count = PRUNED_AT_ONCE.min(self.clusters.len());
        let clusters = (from..from + count).map(|at| at % self.clusters.len());
        clusters.map(|at| self.prune_cluster(memory, at, Writing::Skip)).sum()
    }

    fn prune_cluster(&self, memory: LruRef<'_, A>, at: usize, writing: Writing) -> u32 {
        let _span = Span::<A>::enter(Func::SwapReclaimFull);
        let entry = |slot: usize| SwapEntry::new((at * SLOTS + slot) as u32);
        let mut unneeded = [0_u64; SLOTS / 64];
        {
            let cluster = self.clusters[at].lock();
            if cluster.count == 0 {
                return 0;
            }
            for slot in (0..SLOTS).filter(|&slot| cluster.is_used(slot)) {
                if self.slot(entry(slot)).count() == 0 {
                    unneeded[slot / 64] |= 1 << (slot % 64);
                }
            }
        }
        let mut freed = 0;
        for slot in (0..SLOTS).filter(|slot| unneeded[slot / 64] >> (slot % 64) & 1 == 1) {
            if let Some(pfn) = self.lookup(memory, entry(slot)) {
                if writing == Writing::Wait {
                    self.wait_writeback(memory, pfn);
                }
                freed += u32::from(self.try_free_swap(memory, pfn));
                memory.put(pfn);
            }
        }
        freed
    }
}
