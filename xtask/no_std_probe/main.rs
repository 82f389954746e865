//! A program without std that links the kernel's crates. It has its own panic handler and its own
//! allocator, so that linking fails if any dependency brings in std.
//!
//! `cargo xtask no-std` builds it for a bare machine, if that target is installed, and for the
//! host, where it is also run. Exit code 0 means that the frame allocator worked.

#![no_std]
#![no_main]

extern crate alloc;
extern crate mmscale_kernel as _;
extern crate mmscale_system as _;

mod bare;

use alloc::vec::Vec;
use bare::Machine;
use core::alloc::{GlobalAlloc, Layout};
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicUsize, Ordering};
use mmscale_arch::{MAX_ORDER, Order, Pfn};
use mmscale_frames::frame::MigrateType;
use mmscale_frames::page_alloc::{AllocConfig, FrameAllocator, Gfp, MemoryMap};

/// Memory for allocations during the set-up of mm; never freed.
const HEAP_BYTES: usize = 16 << 20;

#[repr(align(4096))]
struct Heap {
    bytes: UnsafeCell<[u8; HEAP_BYTES]>,
    used: AtomicUsize,
}

// SAFETY: `alloc` returns disjoint parts, so no bytes are shared through the heap.
unsafe impl Sync for Heap {}

// SAFETY: parts are disjoint, aligned, inside `bytes`, and never returned twice.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let part = |used: usize| {
            let first = used.next_multiple_of(layout.align());
            let end = first.checked_add(layout.size())?;
            (end <= HEAP_BYTES && layout.align() <= 4096).then_some((first, end))
        };
        let taken = self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
            part(used).map(|(_, end)| end)
        });
        match taken.ok().and_then(part) {
            // SAFETY: `first` is at most `HEAP_BYTES`, the size of `bytes`.
            Some((first, _)) => unsafe { self.bytes.get().cast::<u8>().add(first) },
            None => core::ptr::null_mut(),
        }
    }
    unsafe fn dealloc(&self, _: *mut u8, _: Layout) {}
}

#[global_allocator]
static HEAP: Heap = Heap { bytes: UnsafeCell::new([0; HEAP_BYTES]), used: AtomicUsize::new(0) };

/// Frames of the machine: 64 MiB.
const FRAMES: u32 = 1 << 14;

/// Allocates all available frames in blocks of all sizes, frees them, and checks the whole
/// structure. Returns the number of the first step that failed, or 0.
fn probe() -> i32 {
    let map = MemoryMap::single(FRAMES);
    let Ok(frames) = FrameAllocator::<Machine>::new(&map, AllocConfig::default()) else { return 1 };
    let mut held: Vec<(Pfn, Order)> = Vec::new();
    let mut pages = 0;
    let sizes = core::iter::repeat_with(|| Order::all().rev()).flatten();
    let mut refused = 0;
    for order in sizes {
        match frames.alloc_pages(order, MigrateType::Movable, Gfp::KERNEL) {
            Ok(pfn) => {
                refused = 0;
                pages += order.pages();
                held.push((pfn, order));
            }
            Err(_) => refused += 1,
        }
        if refused > usize::from(MAX_ORDER) {
            break;
        }
    }
    if pages < FRAMES as usize * 9 / 10 || pages > FRAMES as usize {
        return 2;
    }
    for (pfn, order) in held {
        frames.free_pages(pfn, order);
    }
    if !bare::is_quiet() {
        return 3;
    }
    if frames.verify().is_err() {
        return 4;
    }
    0
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    bare::abort()
}

/// The exit code is not used on a bare machine.
#[cfg(target_os = "none")]
#[unsafe(no_mangle)]
extern "C" fn _start() -> ! {
    assert!(probe() == 0);
    bare::abort()
}

/// The C library starts the program, without Rust's std.
#[cfg(not(target_os = "none"))]
#[unsafe(no_mangle)]
extern "C" fn main() -> i32 {
    probe()
}
