//! A program without std that links the kernel's crates: it has its own panic handler and its own
//! allocator, so that a std that came in by any door would be there twice and refuse to link.
//!
//! `cargo xtask no-std` builds it, for a bare machine where that target is installed, and for the
//! host, where it is also run: exit code 0 means that mm's data structures worked.

#![no_std]
#![no_main]

extern crate alloc;
extern crate mmscale_kernel as _;
extern crate mmscale_system as _;

use alloc::vec::Vec;
use core::alloc::{GlobalAlloc, Layout};
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicUsize, Ordering};
use mmscale_mm::arch::{CpuId, CpuMask, Order, Pfn};

/// Memory for what mm makes when it is set up; nothing is ever given back.
const HEAP_BYTES: usize = 16 << 20;

#[repr(align(4096))]
struct Heap {
    bytes: UnsafeCell<[u8; HEAP_BYTES]>,
    used: AtomicUsize,
}

// SAFETY: `alloc` gives out disjoint parts, so nobody shares bytes through the heap.
unsafe impl Sync for Heap {}

// SAFETY: parts are disjoint, aligned, inside `bytes`, and never given out twice.
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

/// Uses mm for real; returns the number of the first step that went wrong, or 0.
fn probe() -> i32 {
    let mask = CpuMask::first(72);
    let cpus: Vec<CpuId> = mask.iter().collect();
    if cpus.len() != 72 || mask.count() != 72 {
        return 1;
    }
    let Some(order) = Order::new(3) else { return 2 };
    if Pfn::new(8).buddy(order) != Pfn::new(0) || !Pfn::new(8).is_aligned(order) {
        return 3;
    }
    0
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    #[cfg(not(target_os = "none"))]
    // SAFETY: `abort` has no requirements.
    unsafe {
        abort()
    }
    #[cfg(target_os = "none")]
    loop {
        core::hint::spin_loop();
    }
}

/// On a bare machine nobody waits for an exit code.
#[cfg(target_os = "none")]
#[unsafe(no_mangle)]
extern "C" fn _start() -> ! {
    assert!(probe() == 0);
    loop {
        core::hint::spin_loop();
    }
}

#[cfg(not(target_os = "none"))]
#[link(name = "c")]
unsafe extern "C" {
    fn abort() -> !;
}

/// The C library starts the program; Rust's std has no part in it.
#[cfg(not(target_os = "none"))]
#[unsafe(no_mangle)]
extern "C" fn main() -> i32 {
    probe()
}

/// The precompiled core names it, though nothing unwinds here.
#[cfg(not(target_os = "none"))]
#[unsafe(no_mangle)]
extern "C" fn rust_eh_personality() {}
