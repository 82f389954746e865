//! Sparse tables: most of their entries are never used.

use alloc::boxed::Box;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// Entries of a group.
const GROUP: usize = 64;

/// Table of `len` values of `T`. A group of values is made when one of them is first requested, and
/// does not move until the table is dropped. Only the making of a group allocates memory.
pub struct Sparse<T> {
    groups: Box<[AtomicPtr<[T; GROUP]>]>,
    /// No group was made at this index or behind it. A table of all tasks has 65,536 groups, of
    /// which those of the first tasks are made.
    end: AtomicUsize,
}

// SAFETY: the pointers own the groups that they point to, as boxes do.
unsafe impl<T: Send> Send for Sparse<T> {}
// SAFETY: shared use gives `&T` only. One thread may drop a group that another has made, so `T` is
// `Send`.
unsafe impl<T: Send + Sync> Sync for Sparse<T> {}

impl<T> Sparse<T> {
    /// Creates a table for the indices below `len`, without values.
    pub fn new(len: usize) -> Self {
        let groups = Box::<[AtomicPtr<[T; GROUP]>]>::new_zeroed_slice(len.div_ceil(GROUP));
        // SAFETY: a null pointer is all zeros.
        Self { groups: unsafe { groups.assume_init() }, end: AtomicUsize::new(0) }
    }
    /// Returns the value at `index`, if its group was made. Panics unless `index` is below `len`.
    #[inline]
    pub fn get(&self, index: usize) -> Option<&T> {
        // Pairs with the `AcqRel` exchange in `make`.
        let group = self.groups[index / GROUP].load(Ordering::Acquire);
        // SAFETY: a pointer that is not null points to a whole group, which stays until `self` is
        // dropped.
        unsafe { group.as_ref() }.map(|group| &group[index % GROUP])
    }
    /// Returns the value at `index`; makes its group with `make` if there is none. Panics unless
    /// `index` is below `len`.
    pub fn get_or_make(&self, index: usize, make: impl FnMut(usize) -> T) -> &T {
        match self.get(index) {
            Some(value) => value,
            None => self.make(index, make),
        }
    }
    #[cold]
    fn make(&self, index: usize, mut make: impl FnMut(usize) -> T) -> &T {
        let first = index / GROUP * GROUP;
        let new = Box::into_raw(Box::new(core::array::from_fn(|at| make(first + at))));
        let slot = &self.groups[index / GROUP];
        // Relaxed: the exchange, after it, publishes it with the group.
        self.end.fetch_max(index / GROUP + 1, Ordering::Relaxed);
        let made = slot.compare_exchange(null_mut(), new, Ordering::AcqRel, Ordering::Acquire);
        let group = match made {
            Ok(_) => new,
            Err(theirs) => {
                // SAFETY: it was just made from a box, and no other thread has seen it.
                drop(unsafe { Box::from_raw(new) });
                theirs
            }
        };
        // SAFETY: it points to a whole group, which stays until `self` is dropped.
        unsafe { &(*group)[index % GROUP] }
    }
    /// Iterates over the values of the groups that were made, by index.
    pub fn iter_made(&self) -> impl Iterator<Item = &T> {
        // SAFETY: as in `get`.
        let made =
            |group: &AtomicPtr<[T; GROUP]>| unsafe { group.load(Ordering::Acquire).as_ref() };
        self.groups[..self.end.load(Ordering::Relaxed)].iter().filter_map(made).flatten()
    }
    /// The number of groups that were made.
    pub fn groups_made(&self) -> usize {
        let groups = &self.groups[..self.end.load(Ordering::Relaxed)];
        groups.iter().filter(|group| !group.load(Ordering::Relaxed).is_null()).count()
    }
}

impl<T> Drop for Sparse<T> {
    fn drop(&mut self) {
        for group in &mut self.groups[..*self.end.get_mut()] {
            let group = *group.get_mut();
            if !group.is_null() {
                // SAFETY: it was made from a box, and no other reference is left.
                drop(unsafe { Box::from_raw(group) });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::cell::Cell;

    #[test]
    fn values_are_made_when_first_requested_and_stay() {
        let table = Sparse::new(1 << 20);
        assert!(table.get(70_000).is_none() && table.groups_made() == 0);
        table.get_or_make(70_000, Cell::new).set(5);
        assert_eq!(table.get_or_make(70_000, |_| panic!("it is there")).get(), 5);
        let neighbour = table.get(70_000 / GROUP * GROUP).map(Cell::get);
        assert_eq!(neighbour, Some(70_000 / GROUP * GROUP));
        assert_eq!((table.groups_made(), table.iter_made().count()), (1, GROUP));
        table.get_or_make(5, Cell::new).set(7);
        assert_eq!((table.groups_made(), table.iter_made().count()), (2, 2 * GROUP));
        assert_eq!(table.iter_made().nth(5).map(Cell::get), Some(7));
    }
}
