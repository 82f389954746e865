//! `bitmap-allocator` 0.4: a tree of bitmaps, lowest address first, under one lock.

use super::{Peer, on_threads};
use bitmap_allocator::{BitAlloc, BitAlloc1M};
use std::sync::Mutex;

/// Under the standard library's mutex: the crate has no lock of its own.
pub struct Bitmap(Mutex<Box<BitAlloc1M>>);

impl Peer for Bitmap {
    const NAME: &'static str = "bitmap, mutex";
    fn run(frames: usize, threads: usize, body: impl Fn(&Self, usize) + Send + Sync + 'static) {
        let mut allocator = Box::<BitAlloc1M>::default();
        allocator.insert(0..frames);
        on_threads(&Self(Mutex::new(allocator)), threads, body);
    }
    #[inline]
    fn alloc(&self, order: u8) -> Option<u32> {
        let mut allocator = self.0.lock().expect("no thread panicked");
        let frame = match order {
            0 => allocator.alloc(),
            _ => allocator.alloc_contiguous(None, 1 << order, usize::from(order)),
        };
        frame.map(|frame| frame as u32)
    }
    #[inline]
    fn free(&self, frame: u32, order: u8) {
        let mut allocator = self.0.lock().expect("no thread panicked");
        let done = match order {
            0 => allocator.dealloc(frame as usize),
            _ => allocator.dealloc_contiguous(frame as usize, 1 << order),
        };
        debug_assert!(done, "frame {frame} of order {order} was allocated");
    }
}
