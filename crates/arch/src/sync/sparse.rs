//! Tables of which most entries are never used.

use alloc::boxed::Box;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, Ordering};

/// Entries that are made together.
const GROUP: usize = 64;

/// `len` values of `T`, made in groups when one of them is first asked for, and kept where they
/// are until the table goes. Making a group is the only time when memory is asked for.
pub struct Sparse<T> {
    groups: Box<[AtomicPtr<[T; GROUP]>]>,
}

// SAFETY: the pointers own the groups that they point to, as boxes do.
unsafe impl<T: Send> Send for Sparse<T> {}
// SAFETY: shared use gives `&T` only; a group that was made by one thread may be dropped by
// another, hence `Send`.
unsafe impl<T: Send + Sync> Sync for Sparse<T> {}

impl<T> Sparse<T> {
    /// A table for the indices below `len`, of which nothing is there yet.
    pub fn new(len: usize) -> Self {
        let groups = Box::<[AtomicPtr<[T; GROUP]>]>::new_zeroed_slice(len.div_ceil(GROUP));
        // SAFETY: a null pointer is all zeros.
        Self { groups: unsafe { groups.assume_init() } }
    }
    /// The value at `index`, if its group was made. Panics from `len` on.
    #[inline]
    pub fn get(&self, index: usize) -> Option<&T> {
        let group = self.groups[index / GROUP].load(Ordering::Acquire);
        // SAFETY: not null only once a whole group was made, which stays until `self` is dropped.
        unsafe { group.as_ref() }.map(|group| &group[index % GROUP])
    }
    /// The value at `index`; its group is made with `make` if it is not there. Panics from `len`
    /// on.
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
        let made = slot.compare_exchange(null_mut(), new, Ordering::AcqRel, Ordering::Acquire);
        let group = match made {
            Ok(_) => new,
            Err(theirs) => {
                // SAFETY: it was just made from a box, and nobody else has seen it.
                drop(unsafe { Box::from_raw(new) });
                theirs
            }
        };
        // SAFETY: a whole group, which stays until `self` is dropped.
        unsafe { &(*group)[index % GROUP] }
    }
    /// All values of the groups that were made, by index.
    pub fn iter_made(&self) -> impl Iterator<Item = &T> {
        // SAFETY: not null only once a whole group was made, which stays until `self` is dropped.
        let made =
            |group: &AtomicPtr<[T; GROUP]>| unsafe { group.load(Ordering::Acquire).as_ref() };
        self.groups.iter().filter_map(made).flatten()
    }
    /// How many groups were made.
    pub fn groups_made(&self) -> usize {
        self.groups.iter().filter(|group| !group.load(Ordering::Relaxed).is_null()).count()
    }
}

impl<T> Drop for Sparse<T> {
    fn drop(&mut self) {
        for group in &mut self.groups {
            let group = *group.get_mut();
            if !group.is_null() {
                // SAFETY: it was made from a box, and nobody can reach it any more.
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
    fn values_are_made_when_first_asked_for_and_then_stay() {
        let table = Sparse::new(1 << 20);
        assert!(table.get(70_000).is_none() && table.groups_made() == 0);
        table.get_or_make(70_000, Cell::new).set(5);
        assert_eq!(table.get_or_make(70_000, |_| panic!("it is there")).get(), 5);
        let neighbour = table.get(70_000 / GROUP * GROUP).map(Cell::get);
        assert_eq!(neighbour, Some(70_000 / GROUP * GROUP));
        assert_eq!(table.groups_made(), 1);
    }
}
