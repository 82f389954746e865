//! The frame allocator for programs in C, such as hypervisors: `include/mmscale_frames.h` and a
//! static library. `examples/threads.c` uses it.
//!
//! The program in C defines seven functions ([`host`]) by which the allocator learns on which CPU
//! it runs. All others are called by the program. Frames are numbers: an address divided by the
//! size of a page.
//!
//! # Features
//! `std`, on by default: `mms_frames_new`, `mms_frames_drop` and `mms_verify`, on the heap of the C
//! library. Without it the library needs neither a heap nor an operating system: the allocator
//! begins with `mms_frames_init`, and a panic calls `mms_panic` of the program. Such a library is
//! built for a target without an operating system, such as `x86_64-unknown-none`.
//! `examples/kernel.c` is a program for both.

#![cfg_attr(not(feature = "std"), no_std)]
#![forbid(unsafe_op_in_unsafe_fn)]

mod allocator;
mod buffer;
#[cfg(feature = "std")]
mod heap;
pub mod host;
mod memory;
#[cfg(not(feature = "std"))]
mod panic;
mod status;

pub use allocator::{
    Allocator, NO_FRAME, mms_alloc, mms_alloc_at, mms_alloc_atomic, mms_alloc_last,
    mms_alloc_range, mms_count_free, mms_drain, mms_drain_interrupt, mms_free, mms_free_range,
    mms_split,
};
pub use buffer::{MAX_RANGES, mms_frames_init, mms_frames_size};
#[cfg(feature = "std")]
pub use heap::{mms_frames_drop, mms_frames_new, mms_verify};
pub use memory::{Caches, Config, Hole, Kind, Map, Stretch};
pub use status::{Status, mms_status_text};
