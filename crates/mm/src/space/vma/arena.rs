//! Slots that never move, and that are never freed while a reader can see them.
//!
//! Chunks of doubling size are made on demand by the task that changes the structure, and read by
//! other tasks at the same time. A slot is found by its number, so references to slots are numbers
//! too. A wrong or outdated number leads to another slot of the arena or to none.

use crate::space::NoMemory;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::marker::PhantomData;
use core::ptr::{self, slice_from_raw_parts_mut};
use core::sync::atomic::AtomicPtr;
use core::sync::atomic::Ordering::{AcqRel, Acquire};

/// Slots of the first chunk. Chunk n has `FIRST << n`.
const FIRST: u32 = 4;
/// Chunks for 2^24 slots.
const CHUNKS: usize = 22;
/// The low bits of a slot's number are its offset in its chunk; the chunk is above them.
const OFFSET_BITS: u32 = 23;

/// The most slots that an arena can have.
pub(crate) const MAX_SLOTS: u32 = FIRST * ((1 << CHUNKS) - 1);
/// Bits of a slot's number.
pub(crate) const NUMBER_BITS: u32 = OFFSET_BITS + 5;

const _: () = assert!(CHUNKS <= 1 << 5 && FIRST << (CHUNKS - 1) <= 1 << OFFSET_BITS);

/// A growing array of `T` with shared access.
pub(crate) struct Arena<T> {
    chunks: [AtomicPtr<T>; CHUNKS],
    owns: PhantomData<T>,
}

/// The number of the `nth` slot, counted from 0. Numbers are not dense: each lookup splits a
/// number, while slots are rarely counted.
#[inline]
pub(crate) const fn number_of(nth: u32) -> u32 {
    let moved = nth + FIRST;
    let chunk = moved.ilog2() - FIRST.ilog2();
    chunk << OFFSET_BITS | (moved - (FIRST << chunk))
}

/// The inverse of [`number_of`]; returns some index for a number that is not a slot's.
#[inline]
pub(super) const fn nth_of(number: u32) -> u32 {
    let (chunk, offset) = place(number);
    FIRST.wrapping_shl(chunk as u32).wrapping_sub(FIRST).wrapping_add(offset)
}

/// The chunk of slot `number` and the offset in it.
#[inline]
const fn place(number: u32) -> (usize, u32) {
    ((number >> OFFSET_BITS) as usize, number & ((1 << OFFSET_BITS) - 1))
}

impl<T> Arena<T> {
    /// Creates an arena without slots.
    pub(crate) const fn new() -> Self {
        Self { chunks: [const { AtomicPtr::new(ptr::null_mut()) }; CHUNKS], owns: PhantomData }
    }
    /// Returns slot `number`, or `None` if there is no such slot yet.
    #[inline]
    pub(crate) fn get(&self, number: u32) -> Option<&T> {
        let (chunk, offset) = place(number);
        // Pairs with the exchange in `ensure`: the slots are initialised.
        let first = self.chunks.get(chunk)?.load(Acquire);
        if first.is_null() || offset >= FIRST << chunk {
            return None;
        }
        // SAFETY: a pointer that is not null leads to `FIRST << chunk` initialised slots
        // (`ensure`), which live until the arena is dropped, and the offset is below that.
        Some(unsafe { &*first.add(offset as usize) })
    }
}

impl<T: Default> Arena<T> {
    /// Makes sure that the `nth` slot and its whole chunk exist; returns its number.
    pub(crate) fn ensure(&self, nth: u32) -> Result<u32, NoMemory> {
        if nth >= MAX_SLOTS {
            return Err(NoMemory);
        }
        let number = number_of(nth);
        let (chunk, _) = place(number);
        let slot = self.chunks.get(chunk).ok_or(NoMemory)?;
        // One task at a time makes chunks, and `&mut` or mmap_lock orders these: no partner.
        if !slot.load(Acquire).is_null() {
            return Ok(number);
        }
        let count = (FIRST as usize) << chunk;
        let mut made = Vec::new();
        made.try_reserve_exact(count).map_err(|_| NoMemory)?;
        made.resize_with(count, T::default);
        let made = Box::into_raw(made.into_boxed_slice()).cast::<T>();
        // Pairs with the load in `get`.
        if slot.compare_exchange(ptr::null_mut(), made, AcqRel, Acquire).is_err() {
            // SAFETY: made above with this length, and not published, because the exchange failed.
            drop(unsafe { Box::from_raw(slice_from_raw_parts_mut(made, count)) });
        }
        Ok(number)
    }
}

impl<T> Drop for Arena<T> {
    fn drop(&mut self) {
        for (at, chunk) in self.chunks.iter_mut().enumerate() {
            let first = *chunk.get_mut();
            if !first.is_null() {
                let count = (FIRST as usize) << at;
                // SAFETY: `ensure` made it with this length and put it here; `&mut self` excludes
                // readers.
                drop(unsafe { Box::from_raw(slice_from_raw_parts_mut(first, count)) });
            }
        }
    }
}

// SAFETY: the arena owns its slots and hands out shared references only.
unsafe impl<T: Send> Send for Arena<T> {}
// SAFETY: as above; slots are made by one thread, read by others, and dropped by the last.
unsafe impl<T: Send + Sync> Sync for Arena<T> {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_fill_chunk_after_chunk() {
        let mut expect = (0, 0);
        for nth in 0..100_000 {
            assert_eq!(place(number_of(nth)), expect);
            assert_eq!(nth_of(number_of(nth)), nth);
            expect.1 += 1;
            if expect.1 == FIRST << expect.0 {
                expect = (expect.0 + 1, 0);
            }
        }
        let (chunk, offset) = place(number_of(MAX_SLOTS - 1));
        assert_eq!((chunk + 1, offset + 1), (CHUNKS, FIRST << chunk));
    }

    #[test]
    fn slots_stay_where_they_are() {
        let arena = Arena::<u64>::new();
        assert!(arena.get(0).is_none());
        assert_eq!(arena.ensure(0), Ok(0));
        let first: *const u64 = arena.get(0).unwrap();
        (0..1000).for_each(|nth| assert_eq!(arena.ensure(nth), Ok(number_of(nth))));
        assert!(ptr::eq(first, arena.get(0).unwrap()));
        assert!(arena.get(number_of(999)).is_some() && arena.get(u32::MAX).is_none());
        assert!(arena.get(FIRST).is_none(), "there is no slot after the first chunk");
        assert_eq!(arena.ensure(MAX_SLOTS), Err(NoMemory));
    }
}
