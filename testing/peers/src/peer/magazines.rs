//! `frame-alloc` 0.1: a buddy allocator of bitmaps with a magazine for each CPU and a shared depot.

use super::{Peer, on_threads};
use crate::memory::{Memory, PAGE_BYTES};
use frame_alloc::{
    CpuId, DepotAllocator, PageSize, PhysicalAllocator, Provenance, RegionInit,
    SummaryBuddyAllocator,
};
use std::cell::Cell;
use std::num::NonZeroUsize;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};

const PAGE: PageSize = PageSize::from_log2(12);
const ORDERS: usize = 11;

/// The thread's number, in place of its CPU.
pub(super) struct ThreadNumber;

static THREADS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static NUMBER: Cell<Option<usize>> = const { Cell::new(None) };
}

impl CpuId for ThreadNumber {
    #[inline]
    fn current_cpu() -> usize {
        NUMBER.with(|number| match number.get() {
            Some(cpu) => cpu,
            None => {
                let cpu = THREADS.fetch_add(1, Ordering::Relaxed);
                number.set(Some(cpu));
                cpu
            }
        })
    }
}

/// The pool is one live allocation whose address was exposed.
pub(super) struct Exposed;

// SAFETY: `run` exposes the pool's provenance, which covers the whole pool; the pool lives as long
// as the allocator does.
unsafe impl Provenance for Exposed {
    #[inline]
    unsafe fn create(address: usize) -> NonNull<u8> {
        let pointer = std::ptr::with_exposed_provenance_mut(address);
        // SAFETY: frames lie in the pool, which does not begin at 0.
        unsafe { NonNull::new_unchecked(pointer) }
    }
    #[inline]
    unsafe fn destroy<T>(pointer: NonNull<T>) -> usize {
        pointer.addr().get()
    }
}

type Depot = DepotAllocator<SummaryBuddyAllocator<ORDERS, Exposed>, ThreadNumber, 8>;

/// Constructed as in its documentation, with its own sizes.
pub struct Magazines {
    base: usize,
    // Declared before the pool, which has its bitmaps, so that it is dropped first.
    allocator: Box<Depot>,
    _pool: Memory,
}

impl Peer for Magazines {
    const NAME: &'static str = "frame-alloc, depot";
    fn run(frames: usize, threads: usize, body: impl Fn(&Self, usize) + Send + Sync + 'static) {
        let pool = Memory::new(frames * PAGE_BYTES, PAGE_BYTES << (ORDERS - 1));
        let base = pool.first().expose_provenance();
        let allocator = Box::new(Depot::new(PAGE, SummaryBuddyAllocator::new(PAGE)));
        // SAFETY: called once, before any other call; the pool has no other user and is aligned.
        unsafe { allocator.init_region(base, frames * PAGE_BYTES) };
        on_threads(&Self { base, allocator, _pool: pool }, threads, body);
    }
    #[inline]
    fn alloc(&self, order: u8) -> Option<u32> {
        let address = self.allocator.allocate_physical(PAGE, count_of(order)).ok()?;
        Some(((address - self.base) / PAGE_BYTES) as u32)
    }
    #[inline]
    fn free(&self, frame: u32, order: u8) {
        let address = self.base + frame as usize * PAGE_BYTES;
        // SAFETY: the programs free what they allocated, once.
        unsafe { self.allocator.deallocate_physical(PAGE, count_of(order), address) };
    }
}

#[inline]
const fn count_of(order: u8) -> NonZeroUsize {
    match NonZeroUsize::new(1 << order) {
        Some(count) => count,
        None => NonZeroUsize::MIN,
    }
}
