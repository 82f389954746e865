//! The memory of the frames, for allocators that keep their own data there.

use std::alloc::{Layout, alloc_zeroed, dealloc};

/// The size of a page in bytes.
pub(crate) const PAGE_BYTES: usize = 4096;

/// One allocation of the host, zeroed; freed when it is dropped.
pub(crate) struct Memory {
    /// The host's allocation.
    whole: *mut u8,
    layout: Layout,
    /// The first byte at a multiple of the requested alignment.
    first: *mut u8,
}

// SAFETY: the pointer is only passed on and used by `drop`; the memory is not accessed here.
unsafe impl Sync for Memory {}
// SAFETY: as above; the host's allocator frees on any thread.
unsafe impl Send for Memory {}

impl Memory {
    /// Allocates `bytes` bytes, not 0, at a multiple of `align`.
    pub(crate) fn new(bytes: usize, align: usize) -> Self {
        assert!(bytes > 0);
        // Aligned by hand: the host's allocator writes the zeros itself if it has to align.
        let layout = Layout::array::<u8>(bytes + align).expect("a sensible size");
        // SAFETY: the size is not 0.
        let whole = unsafe { alloc_zeroed(layout) };
        assert!(!whole.is_null(), "the host has {bytes} bytes of address space");
        // SAFETY: the offset is less than `align` bytes, and the allocation is that much larger
        // than requested.
        let first = unsafe { whole.add(whole.align_offset(align)) };
        Self { whole, layout, first }
    }
    /// The first byte.
    pub(crate) fn first(&self) -> *mut u8 {
        self.first
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout, and dropped once.
        unsafe { dealloc(self.whole, self.layout) };
    }
}
