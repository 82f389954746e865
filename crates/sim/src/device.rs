//! The swap device: one queue for the machine, latency, bandwidth, and contents as stamps.
//!
//! A request's page goes over the device's link when the pages before it have gone, and the request
//! has finished its latency later; requests may overtake one another. Everything is decided when it
//! is submitted, at the submitting CPU's turn, so the result does not depend on who ran ahead. A
//! written frame is read then; a frame that is to be filled is filled when the request is taken
//! back, before which nobody may look at it.

use crate::profile::SwapDevice;
use mmscale_arch::{IoBusy, IoDirection, IoDone};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

/// A request on its way.
pub(crate) struct Request {
    pub(crate) done: IoDone,
    /// What a read brings.
    pub(crate) stamp: u64,
}

/// The device.
pub(crate) struct Device {
    costs: SwapDevice,
    page_ps: u64,
    link_busy_until: u64,
    /// When the requests finish that the queue has.
    queue: BinaryHeap<Reverse<u64>>,
    /// Of each CPU, requests that were not taken back, by time and number.
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
    /// When the first request of CPU `at` has finished that was not taken back.
    pub(crate) fn next_of(&self, at: usize) -> Option<u64> {
        self.requests[at].keys().next().map(|&(due, _)| due)
    }
    /// Takes a place in the queue for a request made now; when it will have finished.
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
