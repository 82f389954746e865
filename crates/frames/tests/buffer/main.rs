//! Allocators whose tables are in a buffer: its size is known first, and there is no heap.
//!
//! A program of its own, since its heap counts.

use mmscale_arch::bare::{Bare, BareCpu};
use mmscale_arch::{CpuId, IrqState, NodeId, Order, PAGEBLOCK_ORDER, Pfn};
use mmscale_frames::frame::MigrateType;
use mmscale_frames::page_alloc::{
    AllocConfig, ConfigError, DecayRequest, FrameAllocator, Gfp, MapRef, MemoryMap, PcpPolicy,
    Records, ZoneLists, ZoneSpec,
};
use mmscale_frames::zone::ZoneKind;
use proptest::prelude::*;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::thread;

thread_local! {
    /// Allocations of this thread.
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
    static CPU: Cell<usize> = const { Cell::new(0) };
}

/// The heap of the host, which counts.
struct Counting;

// SAFETY: of the host's heap.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: of the caller.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, part: *mut u8, layout: Layout) {
        // SAFETY: of the caller.
        unsafe { System.dealloc(part, layout) }
    }
}

#[global_allocator]
static HEAP: Counting = Counting;

/// Calls `run`; returns its result and the number of allocations from the heap.
fn counted<T>(run: impl FnOnce() -> T) -> (T, usize) {
    let before = ALLOCATIONS.get();
    let done = run();
    (done, ALLOCATIONS.get() - before)
}

/// Three CPUs that share their caches.
struct Three;

// SAFETY: one thread, on one CPU after the other.
unsafe impl Bare for Three {
    const SHARED_CACHES: bool = true;
    fn cpu() -> CpuId {
        CpuId::new(CPU.get())
    }
    fn cpus() -> usize {
        3
    }
    fn preempt_disable() {}
    fn preempt_enable() {}
    fn irq_save() -> IrqState {
        IrqState(false)
    }
    fn irq_restore(_: IrqState) {}
    fn node_of(cpu: CpuId) -> NodeId {
        NodeId::new(cpu.index() / 2)
    }
}

type Frames = FrameAllocator<BareCpu<Three>>;

/// A buffer whose first byte has this distance from one that is aligned to `layout`, and that has
/// the size of `layout`. It is full of ones.
fn buffer(layout: Layout, offset: usize) -> &'static mut [MaybeUninit<u8>] {
    let bytes = vec![MaybeUninit::new(0xff_u8); layout.size() + 2 * layout.align()].leak();
    let first = bytes.as_ptr().align_offset(layout.align()) + offset;
    &mut bytes[first..first + layout.size()]
}

/// The configurations of a kernel.
fn configs() -> Vec<AllocConfig> {
    let stock = AllocConfig::default();
    let caches = |caches| AllocConfig { caches, ..stock };
    let blockmap = caches(PcpPolicy::Blockmap);
    vec![
        stock,
        caches(PcpPolicy::Premerge),
        caches(PcpPolicy::Posted),
        blockmap,
        AllocConfig { records: Records::Orders, ..blockmap },
        AllocConfig { records: Records::None, ..blockmap },
        AllocConfig { cached_pages: Some(0), records: Records::None, ..blockmap },
        AllocConfig { lists: ZoneLists::Superpageblocks, ..stock },
        AllocConfig { page_kib: 64, ..stock },
    ]
}

/// Uses all calls of a kernel; returns the pages that it could allocate at a time.
fn work(frames: &Frames) -> u64 {
    let gfp = Gfp::KERNEL | Gfp::MEMALLOC;
    let order = |nth: usize| Order::new([0, 0, 3, 9, 1][nth % 5]).expect("an order");
    let kind = |nth: usize| MigrateType::ALL[nth % MigrateType::COUNT];
    let mut held = [(Pfn::new(0), Order::ZERO); 500];
    let (mut count, mut pages) = (0, 0);
    for nth in 0..held.len() {
        CPU.set(nth % 3);
        if let Ok(pfn) = frames.alloc_pages(order(nth), kind(nth), gfp) {
            held[count] = (pfn, order(nth));
            (count, pages) = (count + 1, pages + order(nth).pages() as u64);
        }
    }
    for (nth, &(pfn, order)) in held[..count].iter().enumerate() {
        CPU.set(nth % 2);
        frames.free_pages(pfn, order);
    }
    frames.drain_all();
    let start = frames.zones()[0].start();
    if frames.alloc_contig_range(start, 3).is_ok() {
        frames.free_contig_range(start, 3);
    }
    let inside = Pfn::new(start.index() + frames.config_pageblock());
    if frames.isolate_pageblock(inside).is_ok() {
        frames.unisolate_pageblock(inside).expect("it is isolated");
    }
    if frames.offline_pageblock(inside).is_ok() {
        frames.online_pageblock(inside).expect("it is offline");
    }
    frames.refresh_cpu_vm_stats(DecayRequest::Skip, || {});
    pages
}

trait Sizes {
    fn config_pageblock(&self) -> usize;
}

impl Sizes for Frames {
    /// Pages of a pageblock.
    fn config_pageblock(&self) -> usize {
        if self.config().page_kib == 4 { 1 << PAGEBLOCK_ORDER } else { 1 << 13 }
    }
}

fn stretch(node: usize, kind: ZoneKind, pages: Range<usize>) -> ZoneSpec {
    let (start, pages) = (Pfn::new(pages.start), pages.len() as u32);
    ZoneSpec { node: NodeId::new(node), kind, start, pages }
}

/// The reported size is that of the tables: an allocator in such a buffer is whole, and none is
/// made in one of a byte less, or in one that is not aligned.
fn the_size_is_exact(map: &MemoryMap, config: AllocConfig) {
    let map = map.as_ref();
    let (layout, allocations) = counted(|| Frames::metadata_layout(map, config));
    assert_eq!(allocations, 0);
    let layout = layout.expect("a valid map");
    let refused = |buffer| match Frames::new_in(map, config, buffer).err() {
        Some(ConfigError::Buffer { needed, bytes, align }) if needed == layout => (bytes, align),
        other => panic!("{other:?}"),
    };
    let short = refused(&mut buffer(layout, 0)[..layout.size() - 1]);
    assert!(short.0 == layout.size() - 1 && short.1 >= layout.align(), "{short:?}");
    assert_eq!(refused(buffer(layout, 1)).1, 1);
    let exact = buffer(layout, 0);
    let (frames, allocations) = counted(|| Frames::new_in(map, config, exact));
    assert_eq!(allocations, 0);
    let frames = frames.expect("it has the reported size");
    assert_eq!(frames.verify().expect("all is free").free, map.pages());
    let (_, allocations) = counted(|| work(&frames));
    assert_eq!(allocations, 0);
    CPU.set(0);
    let audit = frames.verify().expect("all is free");
    assert_eq!(audit.free + audit.cached, map.pages());
}

#[test]
fn an_allocator_needs_no_heap() {
    for config in configs() {
        let map = MemoryMap::nodes(2, 3 << 14).with_dma32(1 << 14).with_hole(Pfn::new(100), 900);
        the_size_is_exact(&map, config);
    }
}

#[test]
fn an_allocator_takes_its_tables_from_the_heap_in_one_piece() {
    let map = MemoryMap::nodes(2, 3 << 14).with_dma32(1 << 14).with_hole(Pfn::new(100), 900);
    for config in configs() {
        let (frames, allocations) = counted(|| Frames::new(&map, config));
        assert_eq!(allocations, 1, "{config:?}");
        drop(frames);
    }
}

#[test]
fn stretches_become_zones_without_a_heap() {
    let firmware = || {
        [
            stretch(0, ZoneKind::Normal, 0x8000..0x9000),
            stretch(0, ZoneKind::Normal, 1..0x9f),
            stretch(1, ZoneKind::Normal, 0x9000..0xa000),
            stretch(0, ZoneKind::Normal, 0x100..0x7fe0),
        ]
    };
    let with_heap = MemoryMap::of_stretches(firmware()).with_hole(Pfn::new(0x200), 0x80);
    let ((), allocations) = counted(|| {
        let (mut stretches, mut holes) = (firmware(), [0x200..0x280, 0..0, 0..0]);
        let map = MapRef::of_stretches(&mut stretches, &mut holes, 1).expect("two gaps");
        assert_eq!((map.zones, map.pages()), (&*with_heap.zones, with_heap.pages()));
        assert_eq!(map.holes, [0x200..0x280, 0x9f..0x100, 0x7fe0..0x8000]);
        map.check().expect("a valid map");
        let (mut stretches, mut holes) = (firmware(), [0x200..0x280, 0..0]);
        assert_eq!(MapRef::of_stretches(&mut stretches, &mut holes, 1), None, "three are needed");
    });
    assert_eq!(allocations, 0);
}

/// The stack of a thread in which an allocator is made, and what the host needs of it before.
const STACK_BYTES: usize = 16 << 10;
const HOST_BYTES: usize = 4 << 10;

#[test]
fn an_allocator_is_made_on_a_small_stack() {
    for config in configs() {
        let map = MemoryMap::nodes(2, 3 << 14).with_dma32(1 << 14).with_hole(Pfn::new(100), 900);
        let layout = Frames::metadata_layout(map.as_ref(), config).expect("a valid map");
        let buffer = buffer(layout, 0);
        let small = thread::Builder::new().stack_size(STACK_BYTES + HOST_BYTES);
        // The thread would end the program if its stack were too small.
        let thread = small.spawn(move || {
            drop(Frames::new(&map, config).expect("a valid map"));
            Box::new(Frames::new_in(map.as_ref(), config, buffer).expect("a valid map"))
        });
        let frames = thread.expect("a thread starts").join().expect("the allocator is made");
        frames.verify().expect("all is free");
    }
}

/// A zone of some pages behind the one before, and the distance between them.
fn zone() -> impl Strategy<Value = (usize, u32, usize, bool)> {
    (0..2000_usize, 1..200_000_u32, 0..3_usize, any::<bool>())
}

fn maps() -> impl Strategy<Value = MemoryMap> {
    let holes = prop::collection::vec((0.0..1.0_f64, 1..3000_usize), 0..12);
    (prop::collection::vec(zone(), 1..5), holes).prop_map(|(zones, holes)| {
        let mut map = MemoryMap::default();
        let mut end = 0;
        for (gap, pages, node, is_low) in zones {
            let kind = if is_low { ZoneKind::Dma32 } else { ZoneKind::Normal };
            let known = |zone: &ZoneSpec| (zone.node.index(), zone.kind) == (node, kind);
            if !map.zones.iter().any(known) {
                map.zones.push(stretch(node, kind, end + gap..end + gap + pages as usize));
                end += gap + pages as usize;
            }
        }
        for (at, pages) in holes {
            map = map.with_hole(Pfn::new((at * end as f64) as usize), pages);
        }
        map
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn any_allocator_has_the_reported_size(
        map in maps(),
        config in prop::sample::select(configs()),
        cpus in 1..4_usize,
    ) {
        prop_assume!(map.check().is_ok());
        // Each CPU of the test uses the allocator.
        let config = AllocConfig { cpus: Some(cpus), ..config };
        let layout = Frames::metadata_layout(map.as_ref(), config).expect("a valid map");
        if cpus == 3 {
            the_size_is_exact(&map, config);
        } else {
            let frames = Frames::new_in(map.as_ref(), config, buffer(layout, 0));
            let audit = frames.expect("it has the reported size").verify();
            prop_assert_eq!(audit.expect("all is free").free, map.pages());
        }
    }
}
