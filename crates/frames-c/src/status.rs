//! The results of calls.

use core::ffi::{CStr, c_char};
use mmscale_frames::page_alloc::{ConfigError, ContigError, FreeError};

/// The result of a call.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Status {
    /// It is done.
    Ok = 0,
    /// The memory or the configuration is invalid.
    BadConfig,
    /// The order is larger than 10, or than the block's.
    BadArgument,
    /// No zone has all of these frames.
    NoFrame,
    /// The frame is free already, or was never allocated.
    NotAllocated,
    /// The frame is allocated, as a block of another order.
    WrongOrder,
    /// No allocated block begins with the frame, or no block of the order can.
    NoBlock,
    /// The frame is in use, or in the cache of a CPU that could not be drained.
    InUse,
    /// The pageblock of the frame is isolated or offline.
    Isolated,
    /// The allocator's structures contradict one another: a fault of the program, or of this
    /// library.
    Inconsistent,
    /// The buffer is null, or smaller than `mms_frames_size` says.
    BadBuffer,
    /// There are more stretches and holes than `MMS_MAX_RANGES`.
    TooManyRanges,
}

impl Status {
    const fn text(self) -> &'static CStr {
        match self {
            Self::Ok => c"fine",
            Self::BadConfig => {
                c"invalid memory or configuration: frames are addresses divided by 4096, each in \
                  one stretch; holes are in stretches; at most 4096 CPUs and 64 nodes"
            }
            Self::BadArgument => c"the order is larger than 10, or than the block's",
            Self::NoFrame => c"no zone has all of these frames",
            Self::NotAllocated => c"the frame is free already, or was never allocated",
            Self::WrongOrder => c"the frame is allocated, as a block of another order",
            Self::NoBlock => c"no block of that order begins with the frame",
            Self::InUse => c"the frame is in use, or in the cache of a CPU",
            Self::Isolated => c"the pageblock of the frame is isolated or offline",
            Self::Inconsistent => c"the allocator's structures contradict one another",
            Self::BadBuffer => c"the buffer is null, or smaller than mms_frames_size says",
            Self::TooManyRanges => c"there are more stretches and holes than MMS_MAX_RANGES",
        }
    }
}

impl From<ConfigError> for Status {
    fn from(_: ConfigError) -> Self {
        Self::BadConfig
    }
}

impl From<FreeError> for Status {
    fn from(why: FreeError) -> Self {
        match why {
            FreeError::NoFrame => Self::NoFrame,
            FreeError::Free => Self::NotAllocated,
            FreeError::Order(_) => Self::WrongOrder,
            FreeError::NoBlock => Self::NoBlock,
        }
    }
}

impl From<ContigError> for Status {
    fn from(why: ContigError) -> Self {
        match why {
            ContigError::Outside(_) => Self::NoFrame,
            ContigError::InUse(_) => Self::InUse,
            ContigError::Isolated(_) => Self::Isolated,
            ContigError::Unaligned(_) => Self::NoBlock,
        }
    }
}

const ALL: [Status; 12] = [
    Status::Ok,
    Status::BadConfig,
    Status::BadArgument,
    Status::NoFrame,
    Status::NotAllocated,
    Status::WrongOrder,
    Status::NoBlock,
    Status::InUse,
    Status::Isolated,
    Status::Inconsistent,
    Status::BadBuffer,
    Status::TooManyRanges,
];

/// A text for a status (one of `mms_status`), in English. It is never freed.
#[unsafe(no_mangle)]
pub extern "C" fn mms_status_text(status: u32) -> *const c_char {
    let known = ALL.iter().find(|known| **known as u32 == status);
    known.map_or(c"no such status", |known| known.text()).as_ptr()
}
