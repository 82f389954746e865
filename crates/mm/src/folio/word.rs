//! The state of a folio in one word.
//!
//! | bits | contents |
//! |---|---|
//! | 0..22 | references |
//! | 22..44 | mappings |
//! | 44..64 | [`FolioFlags`] |
//!
//! Values that change together change in one atomic operation. A batch takes its reference and sets
//! `PENDING` in one step; the operation that drops the last reference returns the final flags.

bitflags::bitflags! {
    /// Flags of a folio.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct FolioFlags: u32 {
        /// Its content is locked.
        const LOCKED = 1 << 0;
        /// It is on an LRU list. Clearing this isolates the folio: the CPU that does may take it
        /// off.
        const LRU = 1 << 1;
        /// It belongs on an active list. Changed by the CPU that isolated the folio, or while it is
        /// pending.
        const ACTIVE = 1 << 2;
        /// It was used since the last scan by reclaim.
        const REFERENCED = 1 << 3;
        /// Its content differs from its backing store.
        const DIRTY = 1 << 4;
        /// It is on, or goes to, the unevictable list. Changed by the CPU that isolated the folio,
        /// or under the lruvec lock.
        const UNEVICTABLE = 1 << 5;
        /// A program has locked it in memory.
        const MLOCKED = 1 << 6;
        /// It is backed by swap: anonymous memory whose content is kept. An anonymous folio without
        /// this flag may be dropped (`MADV_FREE`).
        const SWAP_BACKED = 1 << 7;
        /// Its content is being written out.
        const WRITEBACK = 1 << 8;
        /// It is in the swap cache.
        const SWAP_CACHE = 1 << 9;
        /// It is anonymous memory.
        const ANON = 1 << 10;
        /// Its content is valid.
        const UPTODATE = 1 << 11;
        /// Only one address space uses it: a write need not copy it.
        const EXCLUSIVE = 1 << 12;
        /// It moves to the tail of its list once it is written out.
        const RECLAIM = 1 << 13;
        /// It was on an active list when it was last reclaimed.
        const WORKINGSET = 1 << 14;
        /// It waits in a CPU's add batch, which has one of its references.
        const PENDING = 1 << 15;
        /// A task waits for its lock or for the end of its writeback.
        const WAITERS = 1 << 16;
    }
}

const COUNT_BITS: u32 = 22;
const MAP_SHIFT: u32 = COUNT_BITS;
const FLAG_SHIFT: u32 = 2 * COUNT_BITS;
const COUNT_MASK: u64 = (1 << COUNT_BITS) - 1;

const _: () = assert!(FLAG_SHIFT + 20 == u64::BITS && FolioFlags::all().bits() < 1 << 20);

/// One reference, as a number to add to the word.
pub(crate) const ONE_REF: u64 = 1;
/// One mapping, as a number to add to the word.
pub(crate) const ONE_MAP: u64 = 1 << MAP_SHIFT;

/// References, mappings and flags of a folio at one time.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct FolioWord(pub(crate) u64);

impl FolioWord {
    /// The maximum of references and of mappings.
    pub const COUNT_MAX: u32 = COUNT_MASK as u32;

    /// Creates a word of these counts and flags.
    pub(crate) const fn new(refs: u32, maps: u32, flags: FolioFlags) -> Self {
        Self(refs as u64 | (maps as u64) << MAP_SHIFT | flag_bits(flags))
    }
    /// Returns the number of references, those of mappings and batches included.
    #[inline]
    pub const fn refs(self) -> u32 {
        (self.0 & COUNT_MASK) as u32
    }
    /// Returns the number of page-table entries that map it.
    #[inline]
    pub const fn maps(self) -> u32 {
        (self.0 >> MAP_SHIFT & COUNT_MASK) as u32
    }
    /// Returns the flags.
    #[inline]
    pub const fn flags(self) -> FolioFlags {
        FolioFlags::from_bits_truncate((self.0 >> FLAG_SHIFT) as u32)
    }
    /// Returns whether all of `flags` are set.
    #[inline]
    pub const fn has(self, flags: FolioFlags) -> bool {
        self.0 & flag_bits(flags) == flag_bits(flags)
    }
    /// Returns the number of references without that of an add batch: the folio's real users.
    #[inline]
    pub const fn users(self) -> u32 {
        self.refs() - self.has(FolioFlags::PENDING) as u32
    }
    /// Returns whether it is anonymous memory whose content may be dropped (`MADV_FREE`).
    #[inline]
    pub const fn is_lazyfree(self) -> bool {
        self.has(FolioFlags::ANON) && !self.has(FolioFlags::SWAP_BACKED)
    }
    /// Returns the word with flags set and cleared.
    #[inline]
    pub(crate) const fn with(self, set: FolioFlags, clear: FolioFlags) -> Self {
        Self(self.0 & !flag_bits(clear) | flag_bits(set))
    }
    /// Returns the word without references.
    #[inline]
    pub(crate) const fn without_refs(self) -> Self {
        Self(self.0 & !COUNT_MASK)
    }
    /// Returns the word with `refs` references.
    #[inline]
    pub(crate) const fn with_refs(self, refs: u32) -> Self {
        Self(self.0 & !COUNT_MASK | refs as u64)
    }
}

impl core::fmt::Debug for FolioWord {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{} refs, {} maps, {:?}", self.refs(), self.maps(), self.flags())
    }
}

/// Returns flags at their position in the word.
#[inline]
pub(crate) const fn flag_bits(flags: FolioFlags) -> u64 {
    (flags.bits() as u64) << FLAG_SHIFT
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_and_flags_do_not_reach_into_one_another() {
        let max = FolioWord::COUNT_MAX;
        for (refs, maps) in [(1, 0), (max, 0), (0, max), (max, max), (7, 5)] {
            for flags in [FolioFlags::empty(), FolioFlags::PENDING, FolioFlags::all()] {
                let word = FolioWord::new(refs, maps, flags);
                assert_eq!((word.refs(), word.maps(), word.flags()), (refs, maps, flags));
                assert_eq!(word.without_refs().refs(), 0);
                assert_eq!(word.without_refs().maps(), maps);
                assert_eq!(word.with_refs(3).with_refs(refs), word);
            }
        }
        let word = FolioWord::new(2, 1, FolioFlags::PENDING);
        assert_eq!(FolioWord(word.0 + ONE_REF).refs(), 3);
        assert_eq!(FolioWord(word.0 + ONE_MAP).maps(), 2);
        assert_eq!(word.users(), 1);
        assert_eq!(word.with(FolioFlags::LRU, FolioFlags::PENDING).flags(), FolioFlags::LRU);
    }
}
