//! The start without a heap: a frame allocator whose tables are in a buffer. The heap is in frames
//! of it.

use crate::cpu::Metal;
use crate::firmware::{FrameRange, StartInfo};
use core::mem::MaybeUninit;
use core::ops::Range;
use mmscale_arch::{NodeId, Pfn};
use mmscale_frames::page_alloc::{
    AllocConfig, FrameAllocator, MapRef, MemoryMap, PcpPolicy, Records, ZoneSpec,
};
use mmscale_frames::zone::ZoneKind;

/// The most stretches of RAM in a firmware's map.
const MOST_STRETCHES: usize = 32;
/// Holes besides the gaps between stretches: page 0; the image, with the tables behind it.
const OWN_HOLES: usize = 2;

const PAGE_BYTES: usize = 4096;

/// The kernel's memory after the start.
pub(crate) struct Boot {
    /// The allocator of all RAM. Nothing more is allocated from it: the loads use what is free with
    /// allocators of their own.
    pub(crate) frames: FrameAllocator<Metal>,
    /// The memory that is free then.
    pub(crate) memory: MemoryMap,
    /// Bytes of the allocator's tables.
    pub(crate) table_bytes: usize,
}

/// Makes an allocator of the firmware's RAM, with its tables behind the image, and allocates
/// `heap_pages` frames for the heap. `init_heap` gets their addresses. No heap is used before.
pub(crate) fn start(
    info: &StartInfo,
    image: FrameRange,
    heap_pages: usize,
    init_heap: impl FnOnce(Range<usize>),
) -> Boot {
    let config = AllocConfig {
        caches: PcpPolicy::Blockmap,
        records: Records::None,
        ..AllocConfig::default()
    };
    let none =
        ZoneSpec { node: NodeId::new(0), kind: ZoneKind::Normal, start: Pfn::new(0), pages: 0 };
    let (mut stretches, mut count) = ([none; MOST_STRETCHES], 0);
    for range in info.ram() {
        assert!(count < MOST_STRETCHES, "more than {MOST_STRETCHES} stretches of RAM");
        stretches[count] =
            ZoneSpec { start: Pfn::new(range.start), pages: range.len() as u32, ..none };
        count += 1;
    }
    let mut holes = [const { 0..0 }; OWN_HOLES + MOST_STRETCHES];
    holes[0] = 0..1;
    holes[1] = image.clone();
    let map = MapRef::of_stretches(&mut stretches[..count], &mut holes, OWN_HOLES);
    let map = map.expect("a hole for each gap");
    let layout = FrameAllocator::<Metal>::metadata_layout(map, config).expect("a valid map");
    let tables = image.end * PAGE_BYTES..image.end * PAGE_BYTES + layout.size();
    let tables_end = tables.end.div_ceil(PAGE_BYTES);
    let has_tables = |range: &FrameRange| range.start <= image.start && tables_end <= range.end;
    assert!(info.ram().any(|range| has_tables(&range)), "no RAM for the image and the tables");
    // SAFETY: RAM that nothing else uses, mapped to itself, and a hole of the map.
    let buffer = unsafe {
        core::slice::from_raw_parts_mut(tables.start as *mut MaybeUninit<u8>, tables.len())
    };
    let (zones, gaps) = (map.zones.len(), map.holes.len());
    holes[1].end = tables_end;
    let map = MapRef { zones: &stretches[..zones], holes: &holes[..gaps] };
    let frames = FrameAllocator::new_in(map, config, buffer).expect("tables of the reported size");

    let heap = tables_end..tables_end + heap_pages;
    let taken = frames.alloc_contig_range(Pfn::new(heap.start), heap_pages);
    taken.expect("RAM for the heap behind the tables");
    init_heap(heap.start * PAGE_BYTES..heap.end * PAGE_BYTES);
    let memory = MemoryMap::from(map).with_hole(Pfn::new(heap.start), heap_pages);
    assert!(frames.count_free().total() == memory.pages(), "the heap, and nothing else, is taken");
    Boot { frames, memory, table_bytes: layout.size() }
}
