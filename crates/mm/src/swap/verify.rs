//! Consistency checks of slots, counts and the cache, for tests and the end of a run.

use super::slots::SLOTS;
use super::{Swap, SwapEntry};
use crate::folio::FolioFlags;
use crate::lru::LruRef;
use crate::zsmalloc::{Handle, ZsAudit, ZsViolation};
use alloc::collections::BTreeMap;
use core::sync::atomic::Ordering::Relaxed;
use mmscale_arch::{Atomic, Machine, Pfn};

/// Counts of slots by use.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct SwapAudit {
    /// Used slots.
    pub used: u64,
    /// Used slots whose content a folio has.
    pub cached: u64,
    /// Used slots with a folio that no page-table entry names.
    pub unneeded: u64,
    /// Used slots whose page is all zeros.
    pub zero: u64,
    /// Compressed pages and their memory.
    pub compressed: ZsAudit,
}

/// An inconsistency.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SwapViolation {
    /// A slot's count differs from the number of page-table entries that name it.
    Count {
        /// The slot.
        entry: SwapEntry,
        /// The slot's count.
        counted: u32,
        /// Entries found.
        found: u32,
    },
    /// A slot is marked as used and has no user, or the reverse, or it is free and has a compressed
    /// page.
    Use(SwapEntry),
    /// A slot's folio is free, or does not name the slot.
    Folio(SwapEntry, Pfn),
    /// A folio is flagged as being in the cache, and its slot does not name it.
    Cache(Pfn),
    /// A page-table entry names a slot that does not exist.
    NoSlot(SwapEntry),
    /// Compressed pages are inconsistent.
    Compressed(ZsViolation),
    /// The count of free slots is wrong.
    Free {
        /// The count.
        counted: u64,
        /// Free slots found.
        found: u64,
    },
}

impl core::fmt::Display for SwapViolation {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Count { entry, counted, found } => {
                write!(f, "slot {}: counted {counted} times, named {found} times", entry.slot())
            }
            Self::Use(entry) => {
                write!(f, "slot {}: used without a user, or free with one", entry.slot())
            }
            Self::Folio(entry, pfn) => {
                write!(f, "slot {}: folio {} does not name it", entry.slot(), pfn.index())
            }
            Self::Cache(pfn) => write!(f, "folio {}: its slot does not name it", pfn.index()),
            Self::NoSlot(entry) => write!(f, "slot {}: named, but does not exist", entry.slot()),
            Self::Compressed(why) => why.fmt(f),
            Self::Free { counted, found } => {
                write!(f, "{counted} slots counted as free, {found} are")
            }
        }
    }
}

impl core::error::Error for SwapViolation {}

impl<A: Machine> Swap<A> {
    /// Compares every slot with the page-table entries that name slots, each passed once, and the
    /// cache with the folios. Runs while nothing changes; its time grows with the number of slots.
    pub fn verify(
        &self,
        memory: LruRef<'_, A>,
        entries: impl Iterator<Item = SwapEntry>,
    ) -> Result<SwapAudit, SwapViolation> {
        let mut named = BTreeMap::<SwapEntry, u32>::new();
        for entry in entries {
            if entry.slot() >= self.config.pages {
                return Err(SwapViolation::NoSlot(entry));
            }
            *named.entry(entry).or_default() += 1;
        }
        let mut audit = SwapAudit::default();
        for (at, cluster) in self.clusters.iter().enumerate() {
            let used = cluster.lock().used;
            for slot in 0..SLOTS.min(self.config.pages as usize - at * SLOTS) {
                let entry = SwapEntry::new((at * SLOTS + slot) as u32);
                let found = named.get(&entry).copied().unwrap_or(0);
                let used = used[slot / 64] >> (slot % 64) & 1 == 1;
                self.verify_slot(memory, entry, (used, found), &mut audit)?;
            }
        }
        for (pfn, word) in memory.folios.iter() {
            if word.has(FolioFlags::SWAP_CACHE) {
                let entry = SwapEntry::new(memory.folios.slot(pfn));
                let slot = self.slots.get(entry.index());
                let cached = slot.map_or(0, |slot| slot.cached.load(Relaxed));
                if cached != pfn.index() as u32 + 1 {
                    return Err(SwapViolation::Cache(pfn));
                }
            }
        }
        if let Some(zram) = &self.zram {
            let slots = (0..self.config.pages as usize).filter_map(|at| self.slots.get(at));
            let named = slots.filter_map(|slot| Handle::of_word(slot.compressed.load(Relaxed)));
            audit.compressed = zram.pool.verify(named).map_err(SwapViolation::Compressed)?;
        }
        let (counted, found) = (self.free_slots(), u64::from(self.config.pages) - audit.used);
        if counted != found {
            return Err(SwapViolation::Free { counted, found });
        }
        Ok(audit)
    }

    fn verify_slot(
        &self,
        memory: LruRef<'_, A>,
        entry: SwapEntry,
        (used, found): (bool, u32),
        audit: &mut SwapAudit,
    ) -> Result<(), SwapViolation> {
        let slot = self.slots.get(entry.index());
        let (counted, cached) =
            slot.map_or((0, 0), |slot| (slot.count(), slot.cached.load(Relaxed)));
        if counted != found {
            return Err(SwapViolation::Count { entry, counted, found });
        }
        let compressed = slot.is_some_and(|slot| slot.compressed.load(Relaxed) != 0);
        if used != (counted > 0 || cached != 0) || compressed && !used {
            return Err(SwapViolation::Use(entry));
        }
        if let Some(pfn) = cached.checked_sub(1).map(|pfn| Pfn::new(pfn as usize)) {
            let word = memory.folios.word(pfn);
            if word.refs() == 0 || self.entry_of(memory, pfn) != Some(entry) {
                return Err(SwapViolation::Folio(entry, pfn));
            }
        }
        audit.used += u64::from(used);
        audit.cached += u64::from(cached != 0);
        audit.unneeded += u64::from(cached != 0 && counted == 0);
        audit.zero += u64::from(used && slot.is_some_and(|slot| slot.is_zero()));
        Ok(())
    }
}
