//! The state of the swap device.

use mmscale_arch::{CpuId, IoDone, PageIo};
use std::collections::{BTreeMap, VecDeque};

/// The device.
pub(crate) struct Device {
    pub(crate) depth: usize,
    pub(crate) queue: VecDeque<(CpuId, PageIo)>,
    pub(crate) finished: Vec<(CpuId, IoDone)>,
    pub(crate) blocks: BTreeMap<u32, u64>,
    pub(crate) failures: u32,
}

impl Default for Device {
    fn default() -> Self {
        Self {
            depth: 1024,
            queue: VecDeque::new(),
            finished: Vec::new(),
            blocks: BTreeMap::new(),
            failures: 0,
        }
    }
}
