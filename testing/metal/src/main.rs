//! A small kernel for x86_64 that runs the memory manager on bare processors: with per-CPU data,
//! interrupts, and interrupts between processors through the local APIC. It boots under QEMU:
//! `cargo xtask metal`.
//!
//! * `entry.s`: the first instructions, and the stubs of interrupts. `start`: other processors.
//! * `boot`: the frame allocator before there is a heap, and the heap in its frames.
//! * `firmware`: the memory map, the processors. `serial`: the port for text.
//! * `per_cpu`, `apic`, `interrupts`, `callbacks`: processors and their interrupts.
//! * `cpu`: what the frame allocator asks of a processor.
//! * `stress`: the load, with a check of every page.
//! * `clock`, `tasks`, `shadow`, `machine`: what the whole memory manager asks of a machine.
//! * `access`, `system`: programs, and their loads and stores through the MMU.
//!
//! The last line on the serial port is `metal: fine`, or begins with `metal: failed`.

#![no_std]
#![no_main]

extern crate alloc;

mod access;
mod apic;
mod boot;
mod callbacks;
mod clock;
mod cpu;
mod firmware;
mod interrupts;
mod lock;
mod machine;
mod per_cpu;
mod serial;
mod shadow;
mod start;
mod stress;
mod system;
mod tasks;

use crate::boot::Boot;
use crate::firmware::StartInfo;
use crate::lock::Locked;
use crate::per_cpu::MAX_CPUS;
use alloc::vec::Vec;
use core::alloc::{GlobalAlloc, Layout};
use linked_list_allocator::Heap;
use mmscale_frames::page_alloc::{AllocConfig, PcpPolicy, Records};
use x86_64::instructions::port::Port;

core::arch::global_asm!(include_str!("entry.s"));

unsafe extern "C" {
    /// The first byte after this image.
    static image_end: u8;
}

/// The first frame of the image: `kernel.ld`.
const IMAGE_START: usize = 0x100;
/// Memory for the memory manager's own structures.
const HEAP_PAGES: usize = 32 << 8;

/// The first function of the first processor.
#[unsafe(no_mangle)]
extern "C" fn first_cpu(info: &StartInfo) -> ! {
    info.check();
    interrupts::prepare();
    let first = apic::id();
    per_cpu::enter(0, first);
    let mut cpus = 0;
    info.each_processor(|_| cpus += 1);
    per_cpu::set_cpus(cpus.min(MAX_CPUS));
    let image = IMAGE_START..(&raw const image_end) as usize >> 12;
    let Boot { frames, memory, table_bytes } = boot::start(info, image, HEAP_PAGES, |heap| {
        // SAFETY: nothing else uses this memory; this is the first use of the heap.
        HEAP.0.with(|of| unsafe { of.init(heap.start as *mut u8, heap.len()) });
    });
    interrupts::turn_on();
    clock::prepare();
    let mut others = Vec::new();
    info.each_processor(|apic| others.extend((apic != first).then_some(apic)));
    others.truncate(MAX_CPUS - 1);
    start::start_others(&others);
    let cpus = others.len() + 1;
    assert!(cpus == per_cpu::count(), "the first processor is one of the firmware's");
    let (stretches, holes) = (info.ram().count(), memory.holes.len());
    let pages = memory.pages();
    say!("{cpus} processors, {pages} frames in {stretches} stretches of RAM, {holes} holes");
    say!("the allocator began without a heap: {table_bytes} bytes of tables, then the heap");
    let planted = |fault| info.command_line().split(' ').any(|word| word == fault);
    // Read before the loads, which use all memory.
    let is_stale = planted("plant=stale");
    if planted("plant=double-free") {
        stress::free_twice(&memory, AllocConfig::default());
        panic!("a block was freed twice, and no check found it");
    }
    for (seed, (name, config)) in (1..).zip(allocators()) {
        let done = stress::run(&memory, config, seed);
        say!(
            "{name}: {} blocks, {} passed on, {} refused, {} interrupts to drain, {} of {} free",
            done.allocated,
            done.passed_on,
            done.refused,
            done.drains,
            done.free,
            pages
        );
        assert!(done.free == pages, "{name}: frames are missing");
    }
    let done = system::run(&memory, is_stale);
    say!(
        "system: {} changes of a mapping, {} words read, {} page faults, {} interrupts, {} tasks",
        done.changes,
        done.reads,
        done.faults,
        done.interrupts,
        done.tasks
    );
    let audit = frames.verify().expect("the first allocator is as it was");
    assert!(audit.free + audit.cached == pages, "it has allocated the heap alone");
    say!("metal: fine");
    leave(0)
}

/// The allocators under load.
fn allocators() -> [(&'static str, AllocConfig); 3] {
    let stock = AllocConfig::default();
    let blockmap = AllocConfig { caches: PcpPolicy::Blockmap, ..stock };
    [
        ("stock", stock),
        ("blockmap with records", blockmap),
        ("blockmap", AllocConfig { records: Records::None, ..blockmap }),
    ]
}

/// Ends the virtual machine: QEMU's exit code is `2 * code + 1`.
fn leave(code: u32) -> ! {
    // SAFETY: the port of QEMU's device `isa-debug-exit`, which stops everything.
    unsafe { Port::<u32>::new(0xf4).write(code) };
    loop {
        x86_64::instructions::hlt();
    }
}

#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    serial::write_line_now(format_args!("metal: failed: {info}"));
    leave(1)
}

/// The heap of the memory manager's own structures.
struct KernelHeap(Locked<Heap>);

#[global_allocator]
static HEAP: KernelHeap = KernelHeap(Locked::new(Heap::empty()));

// SAFETY: parts of the heap are disjoint and aligned as asked for.
unsafe impl GlobalAlloc for KernelHeap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        self.0
            .with(|heap| heap.allocate_first_fit(layout))
            .map_or(core::ptr::null_mut(), |part| part.as_ptr())
    }
    unsafe fn dealloc(&self, part: *mut u8, layout: Layout) {
        let Some(part) = core::ptr::NonNull::new(part) else { return };
        // SAFETY: `part` is of this heap, with this layout.
        self.0.with(|heap| unsafe { heap.deallocate(part, layout) });
    }
}
