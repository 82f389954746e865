//! Slots that never move and are never given back while anybody can see them.
//!
//! Chunks of doubling size, made on demand by the one who changes the structure, read by anybody
//! at the same time. A slot is found by its number, so what is kept about it is a number too. A
//! number that is wrong or out of date leads to another slot, or to none; never elsewhere.

use super::NoMemory;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::marker::PhantomData;
use core::ptr::{self, slice_from_raw_parts_mut};
use core::sync::atomic::AtomicPtr;
use core::sync::atomic::Ordering::{AcqRel, Acquire};

/// Slots of the first chunk. Chunk n has `FIRST << n`.
const FIRST: usize = 4;
/// Enough for 2^27 slots.
const CHUNKS: usize = 25;

/// The most slots an arena can have.
pub(super) const MAX_SLOTS: usize = FIRST * ((1 << CHUNKS) - 1);

/// A growing array of `T` with shared access.
pub(super) struct Arena<T> {
    chunks: [AtomicPtr<T>; CHUNKS],
    owns: PhantomData<T>,
}

/// The chunk of slot `index` and the place in it.
#[inline]
const fn place(index: u32) -> (usize, usize) {
    let moved = index as usize + FIRST;
    let chunk = (moved.ilog2() - FIRST.ilog2()) as usize;
    (chunk, moved - (FIRST << chunk))
}

impl<T> Arena<T> {
    /// No slots.
    pub(super) const fn new() -> Self {
        Self { chunks: [const { AtomicPtr::new(ptr::null_mut()) }; CHUNKS], owns: PhantomData }
    }
    /// Slot `index`; `None` when it was not made yet.
    #[inline]
    pub(super) fn get(&self, index: u32) -> Option<&T> {
        let (chunk, offset) = place(index);
        let first = self.chunks.get(chunk)?.load(Acquire);
        if first.is_null() {
            return None;
        }
        // SAFETY: a pointer that is not null leads to `FIRST << chunk` initialised slots (`grow`),
        // which live until the arena is dropped; `place` says an offset below that.
        Some(unsafe { &*first.add(offset) })
    }
}

impl<T: Default> Arena<T> {
    /// Makes sure that slot `index` exists, and with it its whole chunk.
    pub(super) fn ensure(&self, index: u32) -> Result<(), NoMemory> {
        let (chunk, _) = place(index);
        let slot = self.chunks.get(chunk).ok_or(NoMemory)?;
        if !slot.load(Acquire).is_null() {
            return Ok(());
        }
        let count = FIRST << chunk;
        let mut made = Vec::new();
        made.try_reserve_exact(count).map_err(|_| NoMemory)?;
        made.resize_with(count, T::default);
        let made = Box::into_raw(made.into_boxed_slice()).cast::<T>();
        if slot.compare_exchange(ptr::null_mut(), made, AcqRel, Acquire).is_err() {
            // SAFETY: made above with this length, and nobody else has seen it.
            drop(unsafe { Box::from_raw(slice_from_raw_parts_mut(made, count)) });
        }
        Ok(())
    }
}

impl<T> Drop for Arena<T> {
    fn drop(&mut self) {
        for (at, chunk) in self.chunks.iter_mut().enumerate() {
            let first = *chunk.get_mut();
            if !first.is_null() {
                // SAFETY: `ensure` made it with this length and put it here; it is ours alone.
                drop(unsafe { Box::from_raw(slice_from_raw_parts_mut(first, FIRST << at)) });
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
        for index in 0..100_000 {
            assert_eq!(place(index), expect);
            expect.1 += 1;
            if expect.1 == FIRST << expect.0 {
                expect = (expect.0 + 1, 0);
            }
        }
        assert_eq!(place(MAX_SLOTS as u32 - 1).0, CHUNKS - 1);
        assert_eq!(place(MAX_SLOTS as u32).0, CHUNKS);
    }

    #[test]
    fn slots_stay_where_they_are() {
        let arena = Arena::<u64>::new();
        assert!(arena.get(0).is_none());
        assert_eq!(arena.ensure(0), Ok(()));
        let first: *const u64 = arena.get(0).unwrap();
        (0..1000).for_each(|index| assert_eq!(arena.ensure(index), Ok(())));
        assert!(ptr::eq(first, arena.get(0).unwrap()));
        assert!(arena.get(999).is_some() && arena.get(u32::MAX).is_none());
    }
}
