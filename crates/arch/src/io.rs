//! Requests to the swap device.

use super::Pfn;

/// Which way a page goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IoDirection {
    /// From the device into the frame.
    Read,
    /// From the frame to the device.
    Write,
}

/// One page that goes between a frame and a block of the swap device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PageIo {
    /// Which way.
    pub direction: IoDirection,
    /// The block, by number.
    pub block: u32,
    /// The frame. Its holder keeps it until the request has come back.
    pub pfn: Pfn,
}

/// The device's queue is full: again when a request has finished.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IoBusy;

impl core::fmt::Display for IoBusy {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("handing a page to the swap device: its queue is full; wait for a request")
    }
}

impl core::error::Error for IoBusy {}

/// A request that has come back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IoDone {
    /// What was asked for.
    pub io: PageIo,
    /// Whether the device could not do it. The block then holds what it held, or anything; a frame
    /// that was to be filled holds anything.
    pub failed: bool,
}
