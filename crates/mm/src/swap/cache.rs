//! The swap cache: from a slot to the folio that has its content, and back.
//!
//! Looking is free of locks: read the slot's word, take a reference if there is a folio, read the
//! word again. A folio joins and leaves under its cluster's lock; it leaves only when its own lock
//! is held. The cache has one reference of each of its folios.

use super::slots::SLOTS;
use super::{Swap, SwapEntry};
use crate::folio::FolioFlags;
use crate::lru::Memory;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use mmscale_arch::{Atomic, Func, Machine, Pfn, Span, planted};

/// Clusters that are looked through when slots run out.
const PRUNED_AT_ONCE: usize = 4;

/// What becomes of folios that are being written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Writing {
    /// They are waited for.
    Wait,
    /// They stay.
    Skip,
}

impl<A: Machine> Swap<A> {
    /// The folio that has the slot's content, with a reference for the caller
    /// (`swap_cache_get_folio`). It may leave the cache until the caller has its lock: see
    /// [`Swap::holds`].
    pub fn lookup(&self, memory: Memory<'_, A>, entry: SwapEntry) -> Option<Pfn> {
        let _span = Span::<A>::enter(Func::SwapCacheGet);
        let slot = self.slots.get(entry.index())?;
        loop {
            let cached = slot.cached.load(Acquire);
            let pfn = Pfn::new(cached.checked_sub(1)? as usize);
            if !memory.folios.try_get(pfn) {
                // It is on its way out of the cache.
                A::relax();
                continue;
            }
            if slot.cached.load(Acquire) == cached {
                self.tally().cache_hits.add(1);
                return Some(pfn);
            }
            memory.put(pfn);
        }
    }

    /// Whether the folio, whose lock the caller has, has the content of the slot.
    pub fn holds(&self, memory: Memory<'_, A>, pfn: Pfn, entry: SwapEntry) -> bool {
        self.entry_of(memory, pfn) == Some(entry)
    }

    /// The slot that knows the folio. Stable while the caller has the folio's lock.
    pub fn entry_of(&self, memory: Memory<'_, A>, pfn: Pfn) -> Option<SwapEntry> {
        let cached = memory.folios.word(pfn).has(FolioFlags::SWAP_CACHE);
        cached.then(|| SwapEntry::new(memory.folios.slot(pfn)))
    }

    /// Takes the folio, whose lock the caller has beside a reference, out of the cache if no
    /// page-table entry names its slot and it is not being written: then nobody needs the slot, and
    /// the folio's content stands nowhere else. Whether it did (`folio_free_swap`).
    pub fn free_swap(&self, memory: Memory<'_, A>, pfn: Pfn) -> bool {
        let _span = Span::<A>::enter(Func::FolioFreeSwap);
        if memory.folios.word(pfn).has(FolioFlags::WRITEBACK) && !planted!(SwapWritingFreed) {
            return false;
        }
        let Some(entry) = self.entry_of(memory, pfn) else { return false };
        let slot = self.slot(entry);
        let mut cluster = self.clusters[entry.index() / SLOTS].lock();
        if slot.count() > 0 && !planted!(SwapNamedFreed) {
            return false;
        }
        slot.cached.store(0, Release);
        let freed = self.settle(&mut cluster, entry);
        drop(cluster);
        self.after(entry, freed);
        memory.folios.set(pfn, FolioFlags::DIRTY);
        self.left(memory, pfn);
        true
    }

    /// Takes the folio out of the cache, whatever its slot's count; the caller has its lock and a
    /// reference, and the folio is in the cache.
    pub(super) fn delete(&self, memory: Memory<'_, A>, pfn: Pfn) {
        let Some(entry) = self.entry_of(memory, pfn) else { return };
        let mut cluster = self.clusters[entry.index() / SLOTS].lock();
        self.slot(entry).cached.store(0, Release);
        let freed = self.settle(&mut cluster, entry);
        drop(cluster);
        self.after(entry, freed);
        self.left(memory, pfn);
    }

    /// The folio has left the cache; another reference keeps it.
    fn left(&self, memory: Memory<'_, A>, pfn: Pfn) {
        memory.folios.clear(pfn, FolioFlags::SWAP_CACHE);
        memory.put(pfn);
    }

    /// Takes a clean folio out of the cache for good, if nobody has a reference but the cache and
    /// the caller, who has its lock too (`__remove_mapping`). The caller's reference is the last
    /// one then, and nobody can find the folio.
    pub fn take_away(&self, memory: Memory<'_, A>, pfn: Pfn) -> bool {
        let Some(entry) = self.entry_of(memory, pfn) else { return false };
        let mut cluster = self.clusters[entry.index() / SLOTS].lock();
        if !memory.folios.freeze(pfn, 2) {
            return false;
        }
        let busy = FolioFlags::DIRTY | FolioFlags::WRITEBACK;
        let is_busy = || memory.folios.word(pfn).flags().intersects(busy);
        if !planted!(SwapDirtyTaken) && is_busy() {
            memory.folios.unfreeze(pfn, 2);
            return false;
        }
        self.slot(entry).cached.store(0, Release);
        let freed = self.settle(&mut cluster, entry);
        drop(cluster);
        self.after(entry, freed);
        memory.folios.clear(pfn, FolioFlags::SWAP_CACHE);
        memory.folios.unfreeze(pfn, 1);
        true
    }

    /// Takes the folio out of the cache if nobody maps it, nobody needs its slot, and nobody has
    /// its lock (`free_swap_cache`). For whoever is about to drop a reference, which he still has:
    /// a folio that was unmapped would stay for its slot alone. Also under page-table locks.
    pub fn free_swap_cache(&self, memory: Memory<'_, A>, pfn: Pfn) {
        let word = memory.folios.load_uncharged(pfn);
        if !word.has(FolioFlags::SWAP_CACHE) || word.maps() > 0 {
            return;
        }
        if self.trylock_folio(memory, pfn) {
            self.free_swap(memory, pfn);
            self.unlock_folio(memory, pfn);
        }
    }

    /// The slot's last page-table entry is gone; `pfn` was in the cache for it.
    pub(super) fn drop_unneeded(&self, memory: Memory<'_, A>, entry: SwapEntry, pfn: Pfn) {
        let folio = self.lookup(memory, entry);
        if let Some(found) = folio {
            if found == pfn && (memory.folios.word(pfn).maps() == 0 || self.is_half_full()) {
                self.try_free_swap(memory, pfn);
            }
            memory.put(found);
        }
    }

    /// The same; if nobody maps the folio it stays where it is, with a reference for the caller.
    pub(super) fn take_unneeded(
        &self,
        memory: Memory<'_, A>,
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

    /// The caller has a reference.
    fn try_free_swap(&self, memory: Memory<'_, A>, pfn: Pfn) -> bool {
        let locked = self.trylock_folio(memory, pfn);
        let freed = locked && self.free_swap(memory, pfn);
        if locked {
            self.unlock_folio(memory, pfn);
        }
        freed
    }

    /// Goes through all slots and gives those back that only the cache knows, with the folios that
    /// nobody else uses; returns how many. For the end of a run: folios whose lock was taken or
    /// that were being written when their slot's last page-table entry went are left in the cache
    /// until somebody looks. Waits for those that are still being written, so it may sleep.
    pub fn prune(&self, memory: Memory<'_, A>) -> u32 {
        (0..self.clusters.len()).map(|at| self.prune_cluster(memory, at, Writing::Wait)).sum()
    }

    /// Whether there are free slots, or slots that could be given back just now.
    pub(crate) fn has_room(&self, memory: Memory<'_, A>) -> bool {
        self.is_on() && (self.free_slots() > 0 || self.prune_some(memory) > 0)
    }

    /// The same for a few clusters, others than the last time: for when slots run out.
    pub(super) fn prune_some(&self, memory: Memory<'_, A>) -> u32 {
        let from = self.pruned.fetch_add(PRUNED_AT_ONCE as u32, Relaxed) as usize;
        let count = PRUNED_AT_ONCE.min(self.clusters.len());
        let clusters = (from..from + count).map(|at| at % self.clusters.len());
        clusters.map(|at| self.prune_cluster(memory, at, Writing::Skip)).sum()
    }

    fn prune_cluster(&self, memory: Memory<'_, A>, at: usize, writing: Writing) -> u32 {
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
