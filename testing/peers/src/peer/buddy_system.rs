//! `buddy_system_allocator` 0.13: one buddy allocator, a `BTreeSet` per order, under one lock.

use super::{Peer, on_threads};
use buddy_system_allocator::{FrameAllocator, LockedFrameAllocator};
use std::sync::Mutex;

/// Under its own spin lock (the crate's `LockedFrameAllocator`). `ORDERS` is 11 for blocks of up to
/// 2^10 frames as in Linux, 33 for the crate's default.
pub struct BuddySystem<const ORDERS: usize>(LockedFrameAllocator<ORDERS>);

impl<const ORDERS: usize> Peer for BuddySystem<ORDERS> {
    const NAME: &'static str = match ORDERS {
        11 => "buddy_system, spin",
        33 => "buddy_system 33, spin",
        _ => "buddy_system",
    };
    fn run(frames: usize, threads: usize, body: impl Fn(&Self, usize) + Send + Sync + 'static) {
        let allocator = LockedFrameAllocator::new();
        allocator.lock().add_frame(0, frames);
        on_threads(&Self(allocator), threads, body);
    }
    #[inline]
    fn alloc(&self, order: u8) -> Option<u32> {
        self.0.lock().alloc(1 << order).map(|frame| frame as u32)
    }
    #[inline]
    fn free(&self, frame: u32, order: u8) {
        self.0.lock().dealloc(frame as usize, 1 << order);
    }
}

/// Under the standard library's mutex, which sleeps in long waits.
pub struct BuddySystemMutex(Mutex<FrameAllocator<11>>);

impl Peer for BuddySystemMutex {
    const NAME: &'static str = "buddy_system, mutex";
    fn run(frames: usize, threads: usize, body: impl Fn(&Self, usize) + Send + Sync + 'static) {
        let mut allocator = FrameAllocator::new();
        allocator.add_frame(0, frames);
        on_threads(&Self(Mutex::new(allocator)), threads, body);
    }
    #[inline]
    fn alloc(&self, order: u8) -> Option<u32> {
        let mut allocator = self.0.lock().expect("no thread panicked");
        allocator.alloc(1 << order).map(|frame| frame as u32)
    }
    #[inline]
    fn free(&self, frame: u32, order: u8) {
        let mut allocator = self.0.lock().expect("no thread panicked");
        allocator.dealloc(frame as usize, 1 << order);
    }
}
