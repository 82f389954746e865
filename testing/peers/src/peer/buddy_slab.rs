//! `buddy-slab-allocator` 0.6: a buddy allocator with lists through an array of page records, under
//! one lock. Its slabs and caches are for objects, and are not used here.

use super::{Peer, on_threads};
use crate::memory::{Memory, PAGE_BYTES};
use buddy_slab_allocator::BuddyAllocator;
use std::sync::Mutex;

type Buddy = BuddyAllocator<PAGE_BYTES>;

/// Under the standard library's mutex: the lock of the whole crate is not the page allocator's.
pub struct BuddySlab {
    /// The address of frame 0.
    start: usize,
    allocator: Mutex<Buddy>,
    _memory: Memory,
}

impl Peer for BuddySlab {
    const NAME: &'static str = "buddy-slab, mutex";
    fn run(frames: usize, threads: usize, body: impl Fn(&Self, usize) + Send + Sync + 'static) {
        // Its records come first, then the frames; one page more for its section.
        let bytes = frames * PAGE_BYTES;
        let records = Buddy::required_meta_size(bytes).next_multiple_of(PAGE_BYTES) + PAGE_BYTES;
        let memory = Memory::new(records + bytes, PAGE_BYTES);
        let mut allocator = Buddy::new();
        // SAFETY: the memory is zeroed, has no other user, and lives as long as the allocator.
        unsafe {
            let region = std::slice::from_raw_parts_mut(memory.first(), records + bytes);
            allocator.init(region).expect("a region with room for records and frames");
        }
        let section = allocator.section(0).expect("it has one section");
        let peer = Self { start: section.start, allocator: Mutex::new(allocator), _memory: memory };
        on_threads(&peer, threads, body);
    }
    #[inline]
    fn alloc(&self, order: u8) -> Option<u32> {
        let mut allocator = self.allocator.lock().expect("no thread panicked");
        let address = allocator.alloc_pages(1 << order, PAGE_BYTES).ok()?;
        Some(((address - self.start) / PAGE_BYTES) as u32)
    }
    #[inline]
    fn free(&self, frame: u32, order: u8) {
        let mut allocator = self.allocator.lock().expect("no thread panicked");
        allocator.dealloc_pages(self.start + frame as usize * PAGE_BYTES, 1 << order);
    }
}
