//! VMAs by id: slots that outlive the VMAs in them.
//!
//! A page fault finds a VMA without mmap_lock and then locks that VMA alone. Between the two steps
//! the VMA may be removed and its slot may be used by another VMA. Slots are therefore type-stable:
//! a `T` is made with its slot, does not move, and is used by one VMA after another. A [`VmaId`]
//! distinguishes them by a generation. A reader that holds the lock in the slot, and then finds
//! the id live, has the VMA that it looked up: a VMA is removed only with that lock held for
//! writing.

use super::arena::{Arena, nth_of, number_of};
use crate::space::NoMemory;
use alloc::sync::Arc;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// One VMA in one slot, as one word: the slot's number and the slot's generation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct VmaId {
    slot: u32,
    generation: u32,
}

impl VmaId {
    /// The slot's index in its address space, counted from 0: for naming cache lines and locks.
    #[inline]
    pub const fn index(self) -> usize {
        nth_of(self.slot) as usize
    }
    /// Returns the id as one word, for [`VmaId::from_word`].
    #[inline]
    pub const fn to_word(self) -> u64 {
        (self.generation as u64) << 32 | self.slot as u64
    }
    /// Makes an id of any word; the id need not be live.
    #[inline]
    pub const fn from_word(word: u64) -> Self {
        Self { slot: word as u32, generation: (word >> 32) as u32 }
    }
}

/// A slot. Its generation is odd while a VMA uses it, and even while it is free.
#[derive(Default)]
struct VmaSlot<T> {
    generation: AtomicU32,
    /// The next free slot plus 1; 0 at the end of the list.
    next_free: AtomicU32,
    value: T,
}

/// Looks up VMAs by id, in any task, with or without mmap_lock.
pub struct VmaLookup<T>(Arc<Arena<VmaSlot<T>>>);

impl<T> Clone for VmaLookup<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> VmaLookup<T> {
    /// Returns the slot of `id` if `id` is live. The id may die until the VMA's lock is held: then
    /// check [`VmaLookup::is_live`].
    #[inline]
    pub fn get(&self, id: VmaId) -> Option<&T> {
        let slot = self.0.get(id.slot)?;
        // Steps 3 and 5 of the table in `vma::lock`: pairs with the stores in `alloc` and `free`.
        (id.generation & 1 == 1 && slot.generation.load(Acquire) == id.generation)
            .then_some(&slot.value)
    }
    /// Whether `id` is live: its VMA was not removed.
    #[inline]
    pub fn is_live(&self, id: VmaId) -> bool {
        self.get(id).is_some()
    }
}

/// All VMAs of an address space, by id. Changed with mmap_lock held for writing.
pub struct VmaSlots<T> {
    lookup: VmaLookup<T>,
    /// The first free slot plus 1.
    free: u32,
    /// Slots on the free list.
    free_count: u32,
    /// Slots that exist; each of them is live or on the free list.
    made: u32,
    live: u32,
}

impl<T: Default> Default for VmaSlots<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Default> VmaSlots<T> {
    /// Creates a table without VMAs.
    pub fn new() -> Self {
        let lookup = VmaLookup(Arc::new(Arena::new()));
        Self { lookup, free: 0, free_count: 0, made: 0, live: 0 }
    }
    /// Returns a reader that needs no mmap_lock.
    pub fn lookup(&self) -> VmaLookup<T> {
        self.lookup.clone()
    }
    /// The number of VMAs.
    pub const fn len(&self) -> usize {
        self.live as usize
    }
    /// Whether there is no VMA.
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
    /// Takes a free slot, calls `init` with its value, and starts a new id. `init` gets the value
    /// that the last VMA has left. A reader that finds the id live sees what `init` has written,
    /// even if it finds the id in the tree before the change is over.
    pub fn alloc(&mut self, init: impl FnOnce(&T)) -> Result<VmaId, NoMemory> {
        self.reserve(1)?;
        let number = self.free.checked_sub(1).ok_or(NoMemory)?;
        let slot = self.lookup.0.get(number).ok_or(NoMemory)?;
        self.free = slot.next_free.load(Relaxed);
        self.free_count -= 1;
        self.live += 1;
        init(&slot.value);
        let generation = slot.generation.load(Relaxed).wrapping_add(1);
        // Pairs with the load in `VmaLookup::get`.
        slot.generation.store(generation, Release);
        Ok(VmaId { slot: number, generation })
    }
    /// Ends `id`: lookups fail afterwards. Returns whether it was live. The caller holds the
    /// VMA's lock for writing and releases it afterwards: a reader that gets the lock then sees
    /// that the id is dead.
    pub fn free(&mut self, id: VmaId) -> bool {
        if !self.lookup.is_live(id) {
            return false;
        }
        if let Some(slot) = self.lookup.0.get(id.slot) {
            // Step e of the table in `vma::lock`: pairs with the load in `VmaLookup::get`.
            slot.generation.store(id.generation.wrapping_add(1), Release);
        }
        self.live -= 1;
        self.push_free(id.slot);
        true
    }
    /// Returns the slot of `id` if `id` is live.
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
