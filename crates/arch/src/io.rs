//! Requests to the swap device.

use super::Pfn;

/// Direction of a transfer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IoDirection {
    /// From the device into the frame.
    Read,
    /// From the frame to the device.
    Write,
}

/// Transfer of one page between a frame and a block of the swap device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PageIo {
    /// The direction.
    pub direction: IoDirection,
    /// The block, by number.
    pub block: u32,
    /// The frame. Its holder must not free it before the request has completed.
    pub pfn: Pfn,
}

/// The device's queue is full: retry when a request has completed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IoBusy;

impl core::fmt::Display for IoBusy {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("handing a page to the swap device: its queue is full; wait for a request")
    }
}

impl core::error::Error for IoBusy {}

/// A completed request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IoDone {
    /// The request.
    pub io: PageIo,
    /// Whether the request failed. The content of the block is then unchanged or undefined; the
    /// content of a frame that was to be filled is undefined.
    pub failed: bool,
}
