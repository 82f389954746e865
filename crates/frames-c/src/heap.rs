//! Calls that need a heap.

use crate::memory::{BLANK, Config, Map};
use crate::{Allocator, Status};
use mmscale_frames::page_alloc::FrameAllocator;

/// Makes an allocator in which all of `memory` is free, with its tables on the heap, and stores it
/// in `frames`. `memory` is not used afterwards. Needs the feature `std` of the library.
///
/// # Safety
/// The pointers are valid, also those in `memory`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mms_frames_new(
    memory: &Map,
    config: Config,
    frames: &mut *mut Allocator,
) -> Status {
    let mut zones = vec![BLANK; memory.stretch_count];
    let mut holes = vec![0..0; memory.stretch_count + memory.hole_count];
    // SAFETY: of the caller.
    let map = unsafe { memory.map(&mut zones, &mut holes) };
    let made = map.and_then(|map| Ok(FrameAllocator::new(&map.into(), config.checked()?)?));
    match made {
        Ok(allocator) => {
            *frames = Box::into_raw(Box::new(Allocator(allocator)));
            Status::Ok
        }
        Err(why) => why,
    }
}

/// Frees the memory of an allocator; the frames that it had handed out stay as they are. Needs the
/// feature `std` of the library.
///
/// # Safety
/// `frames` is of `mms_frames_new`, no CPU uses it, and it is not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mms_frames_drop(frames: *mut Allocator) {
    if !frames.is_null() {
        // SAFETY: of the caller.
        drop(unsafe { Box::from_raw(frames) });
    }
}

/// Checks every structure, while no CPU allocates or frees. Needs the feature `std` of the library.
#[unsafe(no_mangle)]
pub extern "C" fn mms_verify(frames: &Allocator) -> Status {
    if frames.0.verify().is_ok() { Status::Ok } else { Status::Inconsistent }
}
