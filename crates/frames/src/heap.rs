//! An allocator's tables on the heap.

use crate::place::Place;
#[cfg(test)]
use crate::place::{Zero, layout_of};
use core::alloc::Layout;
#[cfg(test)]
use core::ops::Deref;
use core::ptr::NonNull;

/// Memory of the heap for tables.
pub(crate) struct HeapMemory {
    first: NonNull<u8>,
    layout: Layout,
}

// SAFETY: it owns the memory, and does nothing with it but free it.
unsafe impl Send for HeapMemory {}
// SAFETY: likewise.
unsafe impl Sync for HeapMemory {}

impl HeapMemory {
    /// Places the tables of `build`, which have this layout, in one allocation of the heap.
    ///
    /// # Safety
    /// Neither the tables nor copies of a [`SharedTable`](crate::place::SharedTable) are used after
    /// the memory is dropped.
    pub(crate) unsafe fn build<T>(
        needed: Layout,
        build: impl FnOnce(&mut Place) -> T,
    ) -> (T, Self) {
        // Not aligned more than that: otherwise heaps of operating systems clear it, while memory
        // that is fresh is zero. Most tables of a large zone are then touched when they are used.
        let layout = Layout::from_size_align(needed.size() + needed.align(), 1);
        let layout = layout.expect("a little more than the tables");
        // SAFETY: the size is not 0.
        let heap = unsafe { alloc::alloc::alloc_zeroed(layout) };
        let Some(first) = NonNull::new(heap) else { alloc::alloc::handle_alloc_error(layout) };
        let memory = Self { first, layout };
        let offset = first.as_ptr().align_offset(needed.align());
        // SAFETY: behind it there are `needed.size()` bytes, which are zero and aligned. They
        // stay until `memory` is dropped.
        let mut place = unsafe { Place::of(first.add(offset), needed.size(), true) };
        let built = build(&mut place);
        assert!(place.layout() == needed, "the tables have another size than was reported");
        (built, memory)
    }
}

impl Drop for HeapMemory {
    fn drop(&mut self) {
        // SAFETY: allocated so in `build`.
        unsafe { alloc::alloc::dealloc(self.first.as_ptr(), self.layout) };
    }
}

/// A zeroed value, for tests.
#[cfg(test)]
pub(crate) fn boxed<T: Zero>() -> alloc::boxed::Box<T> {
    // SAFETY: `T` is `Zero`.
    unsafe { alloc::boxed::Box::new_zeroed().assume_init() }
}

/// A value with the memory of its tables, for tests.
#[cfg(test)]
pub(crate) struct Placed<T> {
    value: T,
    _memory: HeapMemory,
}

#[cfg(test)]
impl<T> Deref for Placed<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.value
    }
}

#[cfg(test)]
pub(crate) fn placed<T>(build: impl Fn(&mut Place) -> T) -> Placed<T> {
    // SAFETY: the value is dropped before the memory.
    let (value, memory) = unsafe { HeapMemory::build(layout_of(&build), &build) };
    Placed { value, _memory: memory }
}
