//! A program without std and without a heap that uses the frame allocator. It has no
//! `#[global_allocator]`, so it is not built if the allocator, or a crate that it depends on,
//! refers to `alloc`.
//!
//! `cargo xtask no-std` builds it for a bare machine, if that target is installed, and for the
//! host, where it is also run. Exit code 0 means that the frame allocator worked.

#![no_std]
#![no_main]

mod bare;

use bare::Machine;
use core::mem::MaybeUninit;
use mmscale_arch::{NodeId, Order, Pfn};
use mmscale_frames::frame::MigrateType;
use mmscale_frames::page_alloc::{
    AllocConfig, FrameAllocator, Gfp, MapRef, PcpPolicy, Records, ZoneSpec,
};
use mmscale_frames::zone::ZoneKind;

type Frames = FrameAllocator<Machine>;

/// Memory for the tables of one allocator.
const TABLE_BYTES: usize = 512 << 10;

#[repr(align(4096))]
struct Tables([MaybeUninit<u8>; TABLE_BYTES]);

static mut LISTS: Tables = Tables([MaybeUninit::uninit(); TABLE_BYTES]);
static mut BITS: Tables = Tables([MaybeUninit::uninit(); TABLE_BYTES]);

/// Frames of the machine: 64 MiB.
const FRAMES: u32 = 1 << 14;
/// Frames in a hole.
const IMAGE: core::ops::Range<usize> = 256..768;

/// Allocates single frames until there are none, and frees them. Returns the first step that
/// failed, or 0.
fn probe(config: AllocConfig, tables: &'static mut Tables) -> i32 {
    let zones = [ZoneSpec {
        node: NodeId::new(0),
        kind: ZoneKind::Normal,
        start: Pfn::new(0),
        pages: FRAMES,
    }];
    let map = MapRef { zones: &zones, holes: &[IMAGE] };
    let Ok(needed) = Frames::metadata_layout(map, config) else { return 1 };
    if needed.size() > TABLE_BYTES {
        return 2;
    }
    let Ok(frames) = Frames::new_in(map, config, &mut tables.0) else { return 3 };
    let mut held = [false; FRAMES as usize];
    let mut pages = 0;
    let gfp = Gfp::KERNEL | Gfp::MEMALLOC;
    while let Ok(pfn) = frames.alloc_pages(Order::ZERO, MigrateType::Movable, gfp) {
        if core::mem::replace(&mut held[pfn.index()], true) || IMAGE.contains(&pfn.index()) {
            return 4;
        }
        pages += 1;
    }
    if pages != map.pages() {
        return 5;
    }
    for at in (0..held.len()).filter(|&at| held[at]) {
        frames.free_pages(Pfn::new(at), Order::ZERO);
    }
    if frames.count_free().total() != map.pages() || !bare::is_quiet() {
        return 6;
    }
    0
}

/// Probes buddy lists, and maps of bits without records. Returns the first step that failed, plus
/// 10 for the second, or 0.
fn run() -> i32 {
    let bits = AllocConfig {
        caches: PcpPolicy::Blockmap,
        records: Records::None,
        ..AllocConfig::default()
    };
    // SAFETY: the program has one thread, which calls this once.
    let (lists, maps) = unsafe { (&mut *(&raw mut LISTS), &mut *(&raw mut BITS)) };
    match (probe(AllocConfig::default(), lists), probe(bits, maps)) {
        (0, 0) => 0,
        (0, step) => 10 + step,
        (step, _) => step,
    }
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    bare::abort()
}

/// The exit code is not used on a bare machine.
#[cfg(target_os = "none")]
#[unsafe(no_mangle)]
extern "C" fn _start() -> ! {
    assert!(run() == 0);
    bare::abort()
}

/// The C library starts the program, without Rust's std.
#[cfg(not(target_os = "none"))]
#[unsafe(no_mangle)]
extern "C" fn main() -> i32 {
    run()
}
