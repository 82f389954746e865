//! Memory behind the frames, for allocators that keep their own data there.

use std::alloc::{Layout, alloc_zeroed, dealloc};

/// The size of a page in bytes.
pub(crate) const PAGE_BYTES: usize = 4096;

/// One allocation of the host, zeros until it is written; freed when it is dropped.
pub(crate) struct Memory {
    first: *mut u8,
    layout: Layout,
}

// SAFETY: the pointer is handed out and used by `drop`; nothing behind it is used here.
unsafe impl Sync for Memory {}
// SAFETY: as above; the host's allocator frees on any thread.
unsafe impl Send for Memory {}

impl Memory {
    /// `bytes` bytes, not 0, at a multiple of `align`.
    pub(crate) fn new(bytes: usize, align: usize) -> Self {
        assert!(bytes > 0);
        let layout = Layout::from_size_align(bytes, align).expect("a sensible size");
        // SAFETY: the size is not 0.
        let first = unsafe { alloc_zeroed(layout) };
        assert!(!first.is_null(), "the host has {bytes} bytes of address space");
        Self { first, layout }
    }
    /// The first byte.
    pub(crate) fn first(&self) -> *mut u8 {
        self.first
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout, and dropped once.
        unsafe { dealloc(self.first, self.layout) };
    }
}
