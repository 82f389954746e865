//! Folios: the state of a block of frames that is in use as memory of programs.
//!
//! A folio is named by the first frame of its block, its head. Its size is the order in the frame
//! table. Its state is one word ([`FolioWord`]). The other fields are plain: they are written while
//! the folio is being initialized, or under the lock named at the field, and read with a reference.
//!
//! Records are allocated in blocks of 512 when a folio first uses a frame of the block, so
//! untouched memory needs none. They represent the memory map that a kernel sets up at boot, and
//! the allocation takes no virtual time.
//!
//! Lock order: no lock.

mod word;

pub use word::{FolioFlags, FolioWord};

use crate::memcg::GroupId;
use alloc::boxed::Box;
use core::marker::PhantomData;
use core::ptr;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicPtr, AtomicU16, AtomicU32, AtomicU64};
use mmscale_arch::{Atomic, DataLine, Machine, Pfn};
use word::{ONE_MAP, ONE_REF, flag_bits};

/// Frames whose records are allocated together.
const CHUNK: usize = 512;

/// Initial values of a folio.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FolioInit {
    /// The memory group that is charged.
    pub group: GroupId,
    /// Initial flags.
    pub flags: FolioFlags,
    /// The owner of the mapping; the reverse map defines its meaning.
    pub mapping: u64,
    /// The page's position in the mapping, in pages.
    pub index: u64,
}

/// The record of one folio.
struct Folio<A: Machine> {
    word: A::AtomicU64,
    mapping: AtomicU64,
    index: AtomicU64,
    /// With `PENDING`: the batch slot in which the folio waits. Written by the adding CPU before it
    /// sets `PENDING`. A CPU that reads it after `PENDING` was cleared may get an old place, and
    /// finds another folio or none there.
    place: AtomicU32,
    /// With `SWAP_CACHE`: the swap slot. Written before that flag is set, under the slot's lock.
    slot: AtomicU32,
    /// On the unevictable list: the number of mlocks. Under the list's lock.
    mlocks: AtomicU32,
    group: AtomicU16,
}

impl<A: Machine> Folio<A> {
    fn new() -> Self {
        Self {
            word: A::AtomicU64::named(0, DataLine::StructPage),
            mapping: AtomicU64::new(0),
            index: AtomicU64::new(0),
            place: AtomicU32::new(0),
            slot: AtomicU32::new(0),
            mlocks: AtomicU32::new(0),
            group: AtomicU16::new(0),
        }
    }
}

type Chunk<A> = [Folio<A>; CHUNK];

/// The records of all folios, by head.
pub struct Folios<A: Machine> {
    chunks: Box<[AtomicPtr<Chunk<A>>]>,
    owns: PhantomData<Chunk<A>>,
}

impl<A: Machine> Folios<A> {
    /// Creates the records of a machine with `frames` frames; none is a folio.
    pub fn new(frames: usize) -> Self {
        let chunks = Box::<[AtomicPtr<Chunk<A>>]>::new_zeroed_slice(frames.div_ceil(CHUNK));
        // SAFETY: an atomic pointer of zero bits is the null pointer.
        Self { chunks: unsafe { chunks.assume_init() }, owns: PhantomData }
    }

    #[inline]
    fn at(&self, pfn: Pfn) -> &Folio<A> {
        let slot = &self.chunks[pfn.index() / CHUNK];
        // Pairs with the exchange in `make`: the records are initialized.
        let mut chunk = slot.load(Acquire);
        if chunk.is_null() {
            chunk = Self::make(slot);
        }
        // SAFETY: the pointer came from `Box::into_raw` in `make`, and chunks live as long as
        // `self`.
        unsafe { &(*chunk)[pfn.index() % CHUNK] }
    }

    #[cold]
    fn make(slot: &AtomicPtr<Chunk<A>>) -> *mut Chunk<A> {
        let folios: Box<[Folio<A>]> = (0..CHUNK).map(|_| Folio::new()).collect();
        let Ok(chunk) = Box::<Chunk<A>>::try_from(folios) else { unreachable!("of that length") };
        let new = Box::into_raw(chunk);
        // Pairs with the loads in `at` and `iter`. On failure `Acquire` makes the records of the
        // CPU that was faster visible.
        match slot.compare_exchange(ptr::null_mut(), new, AcqRel, Acquire) {
            Ok(_) => new,
            Err(other) => {
                // SAFETY: `new` came from `into_raw` and was not published.
                drop(unsafe { Box::from_raw(new) });
                other
            }
        }
    }

    // -- Creation and references.

    /// Makes the block at `pfn`, which the caller owns, a folio with one reference, the caller's.
    #[inline]
    pub fn init(&self, pfn: Pfn, what: FolioInit) {
        self.prepare(pfn, what);
        // Pairs with the `Acquire` operations on the word, as in `word` and `try_get`: a CPU that
        // finds a reference sees the fields that `prepare` wrote.
        self.at(pfn).word.store(FolioWord::new(1, 0, what.flags).0, Release);
    }
    /// Writes the initial fields of a folio at `pfn`, a block that the caller owns. The folio is
    /// not initialized yet: it has no reference, and a lookup gets none.
    #[inline]
    pub fn prepare(&self, pfn: Pfn, what: FolioInit) {
        let folio = self.at(pfn);
        folio.group.store(what.group.index() as u16, Relaxed);
        folio.mapping.store(what.mapping, Relaxed);
        folio.index.store(what.index, Relaxed);
        folio.mlocks.store(0, Relaxed);
    }
    /// Makes a prepared block a folio that is mapped once and waits in an add batch, with a
    /// reference for each. No other CPU knows the folio yet, so one store is enough.
    #[inline]
    pub(crate) fn start_mapped(&self, pfn: Pfn, flags: FolioFlags) {
        let word = FolioWord::new(2, 1, flags.union(FolioFlags::PENDING));
        // Pairs like the store in `init`.
        self.at(pfn).word.store_uncharged(word.0, Release);
    }
    /// Returns the current state. No references: there is no such folio.
    #[inline]
    pub fn word(&self, pfn: Pfn) -> FolioWord {
        // Pairs with `init` and with every change of the word: what the CPU wrote before is seen.
        FolioWord(self.at(pfn).word.load(Acquire))
    }
    /// Returns the current state without charging its cost: see [`Atomic::load_uncharged`].
    #[inline]
    pub(crate) fn load_uncharged(&self, pfn: Pfn) -> FolioWord {
        // Pairs like the load in `word`.
        FolioWord(self.at(pfn).word.load_uncharged(Acquire))
    }
    /// Takes another reference. The caller has one, or another user keeps one meanwhile.
    #[inline]
    pub fn get(&self, pfn: Pfn) {
        let old = self.add(pfn, ONE_REF);
        debug_assert!(old.refs() > 0, "a reference to the folio at {pfn:?}, which is free");
    }
    /// Takes a reference if there is a folio.
    pub fn try_get(&self, pfn: Pfn) -> bool {
        self.update(pfn, |word| (word.refs() > 0).then_some(FolioWord(word.0 + ONE_REF))).is_ok()
    }
    /// Sets the reference count to 0 if it is exactly `expected`, so that no lookup gets a
    /// reference. Returns whether it did.
    pub fn freeze(&self, pfn: Pfn, expected: u32) -> bool {
        let alone = |word: FolioWord| (word.refs() == expected).then_some(word.without_refs());
        self.update(pfn, alone).is_ok()
    }
    /// Ends a [`Folios::freeze`] with `refs` references.
    pub fn unfreeze(&self, pfn: Pfn, refs: u32) {
        self.update(pfn, |word| Some(word.with_refs(refs))).unwrap_or_else(|word| word);
    }

    // -- Mappings.

    /// Adds one page-table mapping; returns the state before. Counts nothing:
    /// [`LruRef::add_map`](crate::lru::LruRef::add_map) does.
    #[inline]
    pub fn add_map(&self, pfn: Pfn) -> FolioWord {
        self.add(pfn, ONE_MAP)
    }
    /// Removes `count` page-table mappings; returns the state after. Counts nothing:
    /// [`LruRef::remove_maps`](crate::lru::LruRef::remove_maps) does.
    #[inline]
    pub fn remove_maps(&self, pfn: Pfn, count: u32) -> FolioWord {
        let maps = u64::from(count) * ONE_MAP;
        // Pairs with itself on other CPUs: the one that removes the last mapping sees what the
        // users of the other mappings wrote.
        let old = FolioWord(self.at(pfn).word.fetch_sub(maps, AcqRel));
        debug_assert!(old.maps() >= count, "the folio at {pfn:?} has fewer mappings: {old:?}");
        FolioWord(old.0.wrapping_sub(maps))
    }

    /// Adds `count` mappings, each with a reference, for the entries into which one entry is about
    /// to be split.
    pub fn add_pieces(&self, pfn: Pfn, count: u32) {
        self.add(pfn, u64::from(count) * (ONE_MAP + ONE_REF));
    }

    // -- Flags.

    /// Sets `flags`; returns the state before.
    #[inline]
    pub fn set(&self, pfn: Pfn, flags: FolioFlags) -> FolioWord {
        // Pairs with `clear` and `set` on other CPUs. `LOCKED` and `LRU` hand over what they
        // protect: `Swap::end` clears the lock for `Swap::trylock_folio`, `LruRef::restore` sets
        // `LRU` for `move_others`.
        FolioWord(self.at(pfn).word.fetch_or(flag_bits(flags), AcqRel))
    }
    /// Clears `flags`; returns the state before.
    #[inline]
    pub fn clear(&self, pfn: Pfn, flags: FolioFlags) -> FolioWord {
        // Pairs with `set` and `word` on other CPUs: see `set`.
        FolioWord(self.at(pfn).word.fetch_and(!flag_bits(flags), AcqRel))
    }
    /// Sets `flag`; returns whether it was set.
    #[inline]
    pub fn test_and_set(&self, pfn: Pfn, flag: FolioFlags) -> bool {
        self.set(pfn, flag).has(flag)
    }
    /// Clears `flag`; returns whether it was set.
    #[inline]
    pub fn test_and_clear(&self, pfn: Pfn, flag: FolioFlags) -> bool {
        self.clear(pfn, flag).has(flag)
    }

    // -- Plain fields, for callers with a reference.

    /// Returns the memory group that is charged.
    #[inline]
    pub fn group(&self, pfn: Pfn) -> GroupId {
        GroupId::new(self.at(pfn).group.load(Relaxed).into())
    }
    /// Returns the owner of the mapping.
    #[inline]
    pub fn mapping(&self, pfn: Pfn) -> u64 {
        self.at(pfn).mapping.load(Relaxed)
    }
    /// Returns the position in the mapping, in pages.
    #[inline]
    pub fn index(&self, pfn: Pfn) -> u64 {
        self.at(pfn).index.load(Relaxed)
    }
    /// Sets the mapping and the position. The caller excludes readers meanwhile.
    pub fn set_mapping(&self, pfn: Pfn, mapping: u64, index: u64) {
        self.at(pfn).mapping.store(mapping, Relaxed);
        self.at(pfn).index.store(index, Relaxed);
    }

    // -- For the LRU.

    /// Adds to the word; returns the state before.
    #[inline]
    pub(crate) fn add(&self, pfn: Pfn, number: u64) -> FolioWord {
        // Pairs with the other changes of the word, for instance `pending_to_lru` with the CPU that
        // clears `LRU`: it sees the folio on its list.
        FolioWord(self.at(pfn).word.fetch_add(number, AcqRel))
    }
    /// Drops `count` references; returns the state before.
    #[inline]
    pub(crate) fn drop_refs(&self, pfn: Pfn, count: u32) -> FolioWord {
        // Pairs with itself on other CPUs and with `freeze`: the CPU that drops or freezes the last
        // reference sees what the other holders wrote.
        let old = FolioWord(self.at(pfn).word.fetch_sub(u64::from(count), AcqRel));
        assert!(old.refs() >= count, "the folio at {pfn:?} is used, and has no reference: {old:?}");
        old
    }
    /// Takes a reference for an add batch and sets `PENDING`; returns the state before.
    #[inline]
    pub(crate) fn make_pending(&self, pfn: Pfn) -> FolioWord {
        let old = self.add(pfn, ONE_REF + flag_bits(FolioFlags::PENDING));
        let busy = FolioFlags::PENDING.union(FolioFlags::LRU);
        debug_assert!(
            old.refs() > 0 && !old.flags().intersects(busy),
            "the folio at {pfn:?} cannot be added to the LRU: {old:?}"
        );
        old
    }
    /// Moves the folio from its add batch to its list, whose lock the caller holds. The batch's
    /// reference becomes the caller's. Returns the state before.
    #[inline]
    pub(crate) fn pending_to_lru(&self, pfn: Pfn) -> FolioWord {
        self.add(pfn, flag_bits(FolioFlags::LRU).wrapping_sub(flag_bits(FolioFlags::PENDING)))
    }
    /// Replaces the state `from` by `to`; returns the actual state if it is not `from`.
    #[inline]
    pub(crate) fn exchange(
        &self,
        pfn: Pfn,
        from: FolioWord,
        to: FolioWord,
    ) -> Result<(), FolioWord> {
        // Pairs with the other changes of the word. On failure `Acquire` does so for the state that
        // the caller decides on next.
        let result = self.at(pfn).word.compare_exchange(from.0, to.0, AcqRel, Acquire);
        result.map(|_| ()).map_err(FolioWord)
    }
    /// Changes the state atomically if `change` returns a new one. Returns the state before in
    /// `Ok`, or the state for which `change` returned `None` in `Err`.
    pub(crate) fn update(
        &self,
        pfn: Pfn,
        change: impl Fn(FolioWord) -> Option<FolioWord>,
    ) -> Result<FolioWord, FolioWord> {
        let change = |word| change(FolioWord(word)).map(|next| next.0);
        // Pairs with the other changes of the word: in `try_get` with `init`, in `freeze` with
        // `drop_refs`.
        let result = self.at(pfn).word.fetch_update(AcqRel, Acquire, change);
        result.map(FolioWord).map_err(FolioWord)
    }
    #[inline]
    pub(crate) fn place(&self, pfn: Pfn) -> u32 {
        self.at(pfn).place.load(Relaxed)
    }
    #[inline]
    pub(crate) fn set_place(&self, pfn: Pfn, place: u32) {
        self.at(pfn).place.store(place, Relaxed);
    }
    pub(crate) fn slot(&self, pfn: Pfn) -> u32 {
        self.at(pfn).slot.load(Relaxed)
    }
    pub(crate) fn set_slot(&self, pfn: Pfn, slot: u32) {
        self.at(pfn).slot.store(slot, Relaxed);
    }
    pub(crate) fn mlocks(&self, pfn: Pfn) -> u32 {
        self.at(pfn).mlocks.load(Relaxed)
    }
    pub(crate) fn set_mlocks(&self, pfn: Pfn, mlocks: u32) {
        self.at(pfn).mlocks.store(mlocks, Relaxed);
    }

    /// Iterates over all folios and their states by frame number, for checks while nothing changes.
    pub fn iter(&self) -> impl Iterator<Item = (Pfn, FolioWord)> + '_ {
        let made = self.chunks.iter().enumerate().filter_map(|(at, slot)| {
            // Pairs with the exchange in `make`.
            let chunk = slot.load(Acquire);
            // SAFETY: a pointer that is not null came from `Box::into_raw`, and chunks live as long
            // as `self`.
            (!chunk.is_null()).then(|| (at, unsafe { &*chunk }))
        });
        made.flat_map(|(at, chunk)| {
            let folios = chunk.iter().enumerate();
            folios.map(move |(inner, folio)| {
                // Nothing changes meanwhile: no partner.
                (Pfn::new(at * CHUNK + inner), FolioWord(folio.word.load(Acquire)))
            })
        })
        .filter(|(_, word)| word.refs() > 0)
    }
}

impl<A: Machine> Drop for Folios<A> {
    fn drop(&mut self) {
        for slot in self.chunks.iter_mut() {
            let chunk = *slot.get_mut();
            if !chunk.is_null() {
                // SAFETY: the pointer came from `Box::into_raw`, and `&mut self` is the last use.
                drop(unsafe { Box::from_raw(chunk) });
            }
        }
    }
}
