//! The frame allocator as a kernel without a heap uses it. These tests need no feature:
//! `cargo test -p mmscale-frames --no-default-features --test heapless`.

use mmscale_arch::bare::{Bare, BareCpu};
use mmscale_arch::{CpuId, IrqState, NodeId, Order, Pfn};
use mmscale_frames::frame::MigrateType;
use mmscale_frames::page_alloc::{
    AllocConfig, ConfigError, FrameAllocator, Gfp, MapRef, PcpPolicy, Records, ZoneSpec,
};
use mmscale_frames::zone::{FreeError, ZoneKind};
use std::mem::MaybeUninit;
use std::ops::Range;

/// One CPU, on which one thread runs.
struct Board;

// SAFETY: a test has an allocator of its own, which only its thread uses.
unsafe impl Bare for Board {
    fn cpu() -> CpuId {
        CpuId::new(0)
    }
    fn cpus() -> usize {
        1
    }
    fn preempt_disable() {}
    fn preempt_enable() {}
    fn irq_save() -> IrqState {
        IrqState(false)
    }
    fn irq_restore(_: IrqState) {}
}

type Frames = FrameAllocator<BareCpu<Board>>;

/// Stretches of memory as firmware reports them, and a hole in the first: the kernel's image.
const STRETCHES: [Range<usize>; 2] = [0x100..0x4000, 0x8000..0x9234];
const IMAGE: Range<usize> = 0x200..0x345;

/// Makes an allocator of the memory above in a buffer. Returns it with the number of its pages.
fn start(config: AllocConfig) -> (Frames, u64) {
    let mut stretches = STRETCHES.map(|frames| ZoneSpec {
        node: NodeId::new(0),
        kind: ZoneKind::Normal,
        start: Pfn::new(frames.start),
        pages: frames.len() as u32,
    });
    let mut holes = [IMAGE, 0..0];
    let map = MapRef::of_stretches(&mut stretches, &mut holes, 1).expect("one gap");
    let layout = Frames::metadata_layout(map, config).expect("a valid map");
    let bytes = vec![MaybeUninit::new(0xff_u8); layout.size() + layout.align()].leak();
    let first = bytes.as_ptr().align_offset(layout.align());
    let (buffer, _) = bytes[first..].split_at_mut(layout.size());
    (Frames::new_in(map, config, buffer).expect("tables of the reported size"), map.pages())
}

fn configs() -> [AllocConfig; 4] {
    let caches = |caches| AllocConfig { caches, ..AllocConfig::default() };
    let blockmap = caches(PcpPolicy::Blockmap);
    let bits_only = AllocConfig { records: Records::None, ..blockmap };
    [AllocConfig::default(), caches(PcpPolicy::Posted), blockmap, bits_only]
}

#[test]
fn every_frame_is_allocated_once_and_freed_once() {
    for config in configs() {
        let (frames, pages) = start(config);
        assert_eq!(frames.count_free().total(), pages);
        let mut held = vec![false; STRETCHES[1].end];
        let gfp = Gfp::KERNEL | Gfp::MEMALLOC;
        while let Ok(pfn) = frames.alloc_pages(Order::ZERO, MigrateType::Movable, gfp) {
            let at = pfn.index();
            assert!(STRETCHES.iter().any(|stretch| stretch.contains(&at)) && !IMAGE.contains(&at));
            assert!(!std::mem::replace(&mut held[at], true), "frame {at} is allocated twice");
        }
        assert_eq!(held.iter().filter(|&&is_held| is_held).count() as u64, pages, "{config:?}");
        assert_eq!(frames.count_free().total(), 0);
        let frames_held = (0..held.len()).filter(|&at| held[at]).map(Pfn::new);
        frames_held.for_each(|pfn| frames.free_pages(pfn, Order::ZERO));
        assert_eq!(frames.count_free().total(), pages);
    }
}

#[test]
fn named_frames_and_wrong_frees() {
    for config in configs() {
        let (frames, pages) = start(config);
        let (start, count) = (Pfn::new(0x1003), 700);
        frames.alloc_contig_range(start, count).expect("all of it is free");
        assert!(frames.alloc_contig_range(start, 1).is_err());
        assert_eq!(frames.count_free().total(), pages - count as u64);
        frames.free_contig_range(start, count);
        frames.drain_all();
        assert_eq!(frames.try_free_pages(start, Order::ZERO), Err(FreeError::Free), "{config:?}");
        let image = Pfn::new(IMAGE.start);
        assert_eq!(frames.try_free_pages(image, Order::ZERO), Err(FreeError::NoFrame));
        assert_eq!(frames.count_free().total(), pages);
    }
}

#[test]
fn a_buffer_that_is_too_small_is_refused() {
    let zones = [ZoneSpec {
        node: NodeId::new(0),
        kind: ZoneKind::Normal,
        start: Pfn::new(0),
        pages: 1 << 14,
    }];
    let map = MapRef { zones: &zones, holes: &[] };
    let layout = Frames::metadata_layout(map, AllocConfig::default()).expect("a valid map");
    let refused = Frames::new_in(map, AllocConfig::default(), &mut []).err();
    let fits = |needed, bytes| needed == layout && bytes == 0;
    assert!(
        matches!(refused, Some(ConfigError::Buffer { needed, bytes, .. }) if fits(needed, bytes)),
        "{refused:?}"
    );
}
