//! The swap device: one queue for the machine, latency, bandwidth, and contents as stamps.
//!
//! The pages of requests pass the device's link one after the other. A request finishes its latency
//! after its page has passed, so requests may overtake one another. Everything is decided at the
//! submission, at the submitting CPU's turn, so the result does not depend on which CPU ran ahead.
//! A frame to be written is read at that time. A frame to be filled is filled when the request is
//! taken, before which no CPU may access it.

use crate::profile::SwapDevice;
use mmscale_arch::{IoBusy, IoDirection, IoDone};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

/// A submitted request.
pub(crate) struct Request {
    pub(crate) done: IoDone,
    /// The stamp that a read returns.
    pub(crate) stamp: u64,
}

/// The device.
pub(crate) struct Device {
    costs: SwapDevice,
    page_ps: u64,
    link_busy_until: u64,
    /// The completion times of the requests in the queue.
    queue: BinaryHeap<Reverse<u64>>,
    /// The requests of each CPU that were not taken yet, by completion time and number.
    pub(crate) requests: Vec<BTreeMap<(u64, u64), Request>>,
    pub(crate) numbered: u64,
    pub(crate) blocks: BTreeMap<u32, u64>,
}

impl Device {
    pub(crate) fn new(costs: SwapDevice, page_bytes: u32, cpus: usize) -> Self {
        Self {
            costs,
            page_ps: u64::from(page_bytes) * 1_000_000 / costs.bytes_per_us.max(1),
            link_busy_until: 0,
            queue: BinaryHeap::new(),
            requests: (0..cpus).map(|_| BTreeMap::new()).collect(),
            numbered: 0,
            blocks: BTreeMap::new(),
        }
    }
    /// Returns when the first request of CPU `at` finishes that was not taken yet.
    pub(crate) fn next_of(&self, at: usize) -> Option<u64> {
        self.requests[at].keys().next().map(|&(due, _)| due)
    }
    /// Adds a request to the queue; returns when it will have finished, or `IoBusy` if the queue is
    /// full.
    pub(crate) fn enqueue(&mut self, direction: IoDirection, now_ps: u64) -> Result<u64, IoBusy> {
        while self.queue.peek().is_some_and(|&Reverse(due)| due <= now_ps) {
            self.queue.pop();
        }
        if self.queue.len() >= self.costs.depth {
            return Err(IoBusy);
        }
        let latency_ps = match direction {
            IoDirection::Read => self.costs.read_ps,
            IoDirection::Write => self.costs.write_ps,
        };
        self.link_busy_until = self.link_busy_until.max(now_ps) + self.page_ps;
        let due = self.link_busy_until + latency_ps;
        self.queue.push(Reverse(due));
        Ok(due)
    }
}
