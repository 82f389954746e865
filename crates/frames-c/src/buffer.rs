//! Allocators in a buffer of the program, which need no heap.

use crate::host::Machine;
use crate::memory::{BLANK, Config, Map};
use crate::{Allocator, Status};
use core::alloc::Layout;
use core::ffi::c_void;
use core::mem::MaybeUninit;
use core::ops::Range;
use core::ptr::NonNull;
use mmscale_frames::page_alloc::{AllocConfig, FrameAllocator, MapRef, ZoneSpec};

/// The most stretches and holes, together, that `mms_frames_size` and `mms_frames_init` take: they
/// sort them on the stack.
pub const MAX_RANGES: usize = 128;

/// The room in which a map is sorted. Between the stretches there are fewer gaps than stretches.
struct Ranges {
    zones: [ZoneSpec; MAX_RANGES],
    holes: [Range<usize>; MAX_RANGES],
}

impl Ranges {
    const NONE: Self = Self { zones: [BLANK; MAX_RANGES], holes: [const { 0..0 }; MAX_RANGES] };

    /// The allocator's map of this memory.
    ///
    /// # Errors
    /// [`Status::TooManyRanges`]; those of [`Map::map`].
    ///
    /// # Safety
    /// As for [`Map::map`].
    unsafe fn map(&mut self, memory: &Map) -> Result<MapRef<'_>, Status> {
        let count = memory.stretch_count.checked_add(memory.hole_count);
        count.filter(|&count| count <= MAX_RANGES).ok_or(Status::TooManyRanges)?;
        // SAFETY: of the caller.
        unsafe { memory.map(&mut self.zones[..memory.stretch_count], &mut self.holes) }
    }
}

/// The content of a buffer: the allocator, and behind it its tables.
struct Plan {
    whole: Layout,
    tables: Layout,
    /// The first byte of the tables.
    offset: usize,
}

impl Plan {
    /// The plan for an allocator of this memory.
    ///
    /// # Errors
    /// [`Status::BadConfig`]
    fn of(map: MapRef<'_>, config: AllocConfig) -> Result<Self, Status> {
        let tables = FrameAllocator::<Machine>::metadata_layout(map, config)?;
        let extended = Layout::new::<Allocator>().extend(tables);
        let (whole, offset) = extended.map_err(|_| Status::BadConfig)?;
        Ok(Self { whole, tables, offset })
    }
}

/// Returns the number of bytes that `mms_frames_init` needs for the allocator and its tables, or 0
/// if it would refuse `memory` or `config`.
///
/// # Safety
/// The pointers in `memory` are valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mms_frames_size(memory: &Map, config: Config) -> usize {
    let mut ranges = Ranges::NONE;
    // SAFETY: of the caller.
    let map = unsafe { ranges.map(memory) };
    let plan = map.and_then(|map| Plan::of(map, config.checked()?));
    // A buffer need not be aligned.
    plan.map_or(0, |plan| plan.whole.size() + plan.whole.align() - 1)
}

/// Makes an allocator in which all of `memory` is free, in `buffer`, which has `bytes` bytes and
/// any alignment, and stores it in `frames`. `memory` is not used afterwards. It needs no heap, and
/// in an optimised build a stack of 16 KiB. The frames of the buffer are holes of `memory`, unless
/// they are outside of it.
///
/// # Safety
/// The pointers are valid, also those in `memory`. Nothing else uses the buffer while the allocator
/// is used. The allocator is not passed to `mms_frames_drop`: it has nothing to free.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mms_frames_init(
    memory: &Map,
    config: Config,
    buffer: *mut c_void,
    bytes: usize,
    frames: &mut *mut Allocator,
) -> Status {
    let mut ranges = Ranges::NONE;
    // SAFETY: of the caller.
    let map = unsafe { ranges.map(memory) };
    // SAFETY: of the caller.
    let made = map.and_then(|map| unsafe { make(map, config.checked()?, buffer.cast(), bytes) });
    match made {
        Ok(allocator) => {
            *frames = allocator.as_ptr();
            Status::Ok
        }
        Err(why) => why,
    }
}

/// Makes an allocator in a buffer.
///
/// # Errors
/// [`Status::BadConfig`]; [`Status::BadBuffer`]: the buffer is null or too small.
///
/// # Safety
/// Unless `buffer` is null, it has so many bytes, which nothing else uses.
unsafe fn make(
    map: MapRef<'_>,
    config: AllocConfig,
    buffer: *mut u8,
    bytes: usize,
) -> Result<NonNull<Allocator>, Status> {
    let plan = Plan::of(map, config)?;
    let buffer = NonNull::new(buffer).ok_or(Status::BadBuffer)?;
    let skipped = buffer.align_offset(plan.whole.align());
    let end = skipped.checked_add(plan.whole.size());
    end.filter(|&end| end <= bytes).ok_or(Status::BadBuffer)?;
    // SAFETY: the end of the allocator and its tables is inside the buffer.
    let (place, tables) =
        unsafe { (buffer.add(skipped).cast::<Allocator>(), buffer.add(skipped + plan.offset)) };
    let tables =
        NonNull::slice_from_raw_parts(tables.cast::<MaybeUninit<u8>>(), plan.tables.size());
    // SAFETY: the bytes are in the buffer, behind the allocator. Nothing else uses them.
    let allocator = FrameAllocator::new_in(map, config, unsafe { &mut *tables.as_ptr() })?;
    // SAFETY: it is aligned, and so many bytes of the buffer are in front of the tables.
    unsafe { place.write(Allocator(allocator)) };
    Ok(place)
}
