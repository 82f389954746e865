//! VMAs by number: slots that outlive the VMAs in them.
//!
//! A page fault finds a VMA without mmap_lock and then locks that VMA alone. Between the two the
//! VMA may be gone and its slot may hold another. So slots are type-stable: a `T` is made with its
//! slot, keeps its place, and is used by one VMA after another; a [`VmaId`] says which of them is
//! meant. Whoever holds the slot's lock and then finds the id still live has the VMA that it
//! looked for, as long as VMAs are removed only with that lock held for writing.

use super::NoMemory;
use super::arena::{Arena, nth_of, number_of};
use alloc::sync::Arc;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// One life of one slot. It fits a word: the slot's number, and a count of its lives.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct VmaId {
    slot: u32,
    generation: u32,
}

impl VmaId {
    /// Which slot of its address space it is, counted from 0: for naming cache lines and locks.
    #[inline]
    pub const fn index(self) -> usize {
        nth_of(self.slot) as usize
    }
    /// As one word; [`VmaId::from_word`] turns it back.
    #[inline]
    pub const fn to_word(self) -> u64 {
        (self.generation as u64) << 32 | self.slot as u64
    }
    /// From a word; any word makes an id, which may be of nothing that lives.
    #[inline]
    pub const fn from_word(word: u64) -> Self {
        Self { slot: word as u32, generation: (word >> 32) as u32 }
    }
}

/// Generations are odd while a VMA is in the slot, even while it is free.
#[derive(Default)]
struct Slot<T> {
    generation: AtomicU32,
    /// The next free slot plus 1; 0 at the end of the list.
    next_free: AtomicU32,
    value: T,
}

/// Looks VMAs up by id, on any thread, with or without mmap_lock.
pub struct VmaLookup<T>(Arc<Arena<Slot<T>>>);

impl<T> Clone for VmaLookup<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> VmaLookup<T> {
    /// What is in the slot of `id`, if `id` lives. It may cease to, until the VMA's lock is held:
    /// ask [`VmaLookup::is_live`] then.
    #[inline]
    pub fn get(&self, id: VmaId) -> Option<&T> {
        let slot = self.0.get(id.slot)?;
        (id.generation & 1 == 1 && slot.generation.load(Acquire) == id.generation)
            .then_some(&slot.value)
    }
    /// Whether the VMA still is the one that was meant.
    #[inline]
    pub fn is_live(&self, id: VmaId) -> bool {
        self.get(id).is_some()
    }
}

/// All VMAs of an address space, by number. Changed under mmap_lock, held for writing.
pub struct VmaSlots<T> {
    lookup: VmaLookup<T>,
    /// The first free slot plus 1.
    free: u32,
    /// Slots on the free list.
    free_count: u32,
    /// Slots that were ever used or freed: those below it are live or on the list.
    made: u32,
    live: u32,
}

impl<T: Default> Default for VmaSlots<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Default> VmaSlots<T> {
    /// No VMAs.
    pub fn new() -> Self {
        let lookup = VmaLookup(Arc::new(Arena::new()));
        Self { lookup, free: 0, free_count: 0, made: 0, live: 0 }
    }
    /// A way to look VMAs up that needs no mmap_lock.
    pub fn lookup(&self) -> VmaLookup<T> {
        self.lookup.clone()
    }
    /// VMAs in use.
    pub const fn len(&self) -> usize {
        self.live as usize
    }
    /// Whether there is none.
    pub const fn is_empty(&self) -> bool {
        self.live == 0
    }
    /// Makes sure that the next `count` calls of [`VmaSlots::alloc`] succeed.
    pub fn reserve(&mut self, count: u32) -> Result<(), NoMemory> {
        while self.free_count < count {
            let slot = self.lookup.0.ensure(self.made)?;
            self.made += 1;
            self.push_free(slot);
        }
        Ok(())
    }
    /// A free slot. Its value is as the last VMA left it, and the caller's to set before the id is
    /// put into the tree: until then nobody can find it.
    pub fn alloc(&mut self) -> Result<VmaId, NoMemory> {
        self.reserve(1)?;
        let number = self.free.checked_sub(1).ok_or(NoMemory)?;
        let slot = self.lookup.0.get(number).ok_or(NoMemory)?;
        self.free = slot.next_free.load(Relaxed);
        self.free_count -= 1;
        self.live += 1;
        let generation = slot.generation.load(Relaxed).wrapping_add(1);
        slot.generation.store(generation, Release);
        Ok(VmaId { slot: number, generation })
    }
    /// Ends the life of `id`: from now on it is of nothing. Returns whether it was live. The caller
    /// holds the VMA's lock for writing, so that nobody else does, and lets it go afterwards.
    pub fn free(&mut self, id: VmaId) -> bool {
        if !self.lookup.is_live(id) {
            return false;
        }
        if let Some(slot) = self.lookup.0.get(id.slot) {
            slot.generation.store(id.generation.wrapping_add(1), Release);
        }
        self.live -= 1;
        self.push_free(id.slot);
        true
    }
    /// What is in the slot of `id`, if `id` lives.
    #[inline]
    pub fn get(&self, id: VmaId) -> Option<&T> {
        self.lookup.get(id)
    }
    fn push_free(&mut self, number: u32) {
        if let Some(slot) = self.lookup.0.get(number) {
            slot.next_free.store(self.free, Relaxed);
            self.free = number + 1;
            self.free_count += 1;
        }
    }
    /// Whether the free list and the generations agree with the counts.
    pub fn verify(&self) -> bool {
        let slots = (0..self.made).filter_map(|nth| self.lookup.0.get(number_of(nth)));
        let live = slots.filter(|slot| slot.generation.load(Relaxed) & 1 == 1).count();
        let (mut listed, mut next) = (0, self.free);
        while listed <= self.made
            && let Some(slot) = next.checked_sub(1).and_then(|number| self.lookup.0.get(number))
            && slot.generation.load(Relaxed) & 1 == 0
        {
            listed += 1;
            next = slot.next_free.load(Relaxed);
        }
        let all = live as u32 + listed == self.made;
        all && next == 0 && listed == self.free_count && live as u32 == self.live
    }
}
