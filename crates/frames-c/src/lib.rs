//! The frame allocator for programs in C, such as hypervisors: `include/mmscale_frames.h` and a
//! static library. `examples/threads.c` uses it.
//!
//! The program in C defines seven functions ([`host`]) by which the allocator learns on which CPU
//! it runs. All others are called by the program. Frames are numbers: an address divided by the
//! size of a page.

#![forbid(unsafe_op_in_unsafe_fn)]

mod allocator;
pub mod host;
mod memory;
mod status;

pub use allocator::{
    Allocator, NO_FRAME, mms_alloc, mms_alloc_at, mms_alloc_atomic, mms_alloc_last,
    mms_alloc_range, mms_count_free, mms_drain, mms_drain_interrupt, mms_frames_drop,
    mms_frames_new, mms_free, mms_free_range, mms_split, mms_verify,
};
pub use memory::{Caches, Config, Hole, Kind, Map, Stretch};
pub use status::{Status, mms_status_text};
