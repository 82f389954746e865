//! `frame-alloc` 0.1: a buddy allocator of bitmaps with a magazine for each CPU and a depot that
//! they share.

use super::{Peer, on_threads};
use frame_alloc::{
    CpuId, DepotAllocator, PageSize, PhysicalAllocator, Provenance, RegionInit,
    SummaryBuddyAllocator,
};
use std::alloc::{Layout, alloc, dealloc};
use std::cell::Cell;
use std::num::NonZeroUsize;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};

const PAGE: PageSize = PageSize::from_log2(12);
const ORDERS: usize = 11;

/// The thread's number stands for its CPU.
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

// SAFETY: `Pool` exposes its provenance, which covers the whole pool, and lives as long as the
// allocator does.
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

/// Memory behind the frames: the allocator keeps its bitmaps there.
struct Pool {
    first: *mut u8,
    layout: Layout,
}

impl Pool {
    fn new(frames: usize) -> Self {
        let bytes = frames * PAGE.bytes();
        let layout = Layout::from_size_align(bytes, PAGE.bytes() << (ORDERS - 1));
        let layout = layout.expect("the pool has a sensible size");
        // SAFETY: the size is not 0.
        let first = unsafe { alloc(layout) };
        assert!(!first.is_null(), "the host has {bytes} bytes of address space");
        Self { first, layout }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout, and dropped once.
        unsafe { dealloc(self.first, self.layout) };
    }
}

type Depot = DepotAllocator<SummaryBuddyAllocator<ORDERS, Exposed>, ThreadNumber, 8>;

/// As its documentation puts it together, with its own sizes.
pub struct Magazines {
    base: usize,
    // Before the pool, so that it goes first.
    allocator: Box<Depot>,
    _pool: Pool,
}

// SAFETY: the pool's pointer is used by `drop` only; the allocator is `Sync`.
unsafe impl Sync for Magazines {}

impl Peer for Magazines {
    const NAME: &'static str = "frame-alloc, depot";
    fn run(frames: usize, threads: usize, body: impl Fn(&Self, usize) + Send + Sync + 'static) {
        let pool = Pool::new(frames);
        let base = pool.first.expose_provenance();
        let allocator = Box::new(Depot::new(PAGE, SummaryBuddyAllocator::new(PAGE)));
        // SAFETY: called once, before any other call; the pool is exclusively ours and aligned.
        unsafe { allocator.init_region(base, frames * PAGE.bytes()) };
        on_threads(&Self { base, allocator, _pool: pool }, threads, body);
    }
    #[inline]
    fn alloc(&self, order: u8) -> Option<u32> {
        let address = self.allocator.allocate_physical(PAGE, count_of(order)).ok()?;
        Some(((address - self.base) / PAGE.bytes()) as u32)
    }
    #[inline]
    fn free(&self, frame: u32, order: u8) {
        let address = self.base + frame as usize * PAGE.bytes();
        // SAFETY: the programs give back what they took, once.
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
