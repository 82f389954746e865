//! Memory behind frames: stamps instead of bytes, and a node's bandwidth for clearing.

use crate::engine::Engine;
use crate::profile::Profile;
use mmscale_mm::arch::{Op, Order, Pfn};

/// Frames whose stamps are kept together.
const GROUP: usize = 512;

/// Stamps of frames, and when each node's memory is free for more.
pub(crate) struct Memory {
    /// By groups of frames; absent while no frame of a group has been stamped.
    stamps: Vec<Option<Box<[u64; GROUP]>>>,
    busy_until: Vec<u64>,
    node_pages: usize,
    page_bytes: u64,
    bytes_per_us: u64,
}

impl Memory {
    pub(crate) fn new(profile: &Profile, nodes: usize) -> Self {
        Self {
            stamps: Vec::new(),
            busy_until: vec![0; nodes],
            node_pages: profile.node_pages.max(1) as usize,
            page_bytes: u64::from(profile.page_bytes),
            bytes_per_us: profile.costs.node_bytes_per_us,
        }
    }
    pub(crate) fn write_stamp(&mut self, pfn: Pfn, stamp: u64) {
        let group = pfn.index() / GROUP;
        if group >= self.stamps.len() {
            self.stamps.resize_with(group + 1, || None);
        }
        let stamps = self.stamps[group].get_or_insert_with(|| Box::new([0; GROUP]));
        stamps[pfn.index() % GROUP] = stamp;
    }
    pub(crate) fn read_stamp(&self, pfn: Pfn) -> u64 {
        let group = self.stamps.get(pfn.index() / GROUP).and_then(Option::as_ref);
        group.map_or(0, |stamps| stamps[pfn.index() % GROUP])
    }
    fn clear_stamps(&mut self, pfn: Pfn, pages: usize) {
        let end = pfn.index() + pages;
        let mut at = pfn.index();
        while at < end {
            let stop = end.min((at / GROUP + 1) * GROUP);
            if let Some(Some(group)) = self.stamps.get_mut(at / GROUP) {
                group[at % GROUP..(stop - 1) % GROUP + 1].fill(0);
            }
            at = stop;
        }
    }
    /// Takes the bandwidth for `bytes` of the node of `pfn`; returns when they are through.
    fn reserve(&mut self, pfn: Pfn, bytes: u64, now_ps: u64) -> u64 {
        let node = (pfn.index() / self.node_pages).min(self.busy_until.len() - 1);
        let Some(ps) = (bytes * 1_000_000).checked_div(self.bytes_per_us) else { return now_ps };
        let until = self.busy_until[node].max(now_ps) + ps;
        self.busy_until[node] = until;
        until
    }
}

impl Engine {
    /// Clears a block, at the running CPU's turn; returns what that takes, in ps: the work, or the
    /// wait for the node's memory if that is longer.
    pub(crate) fn clear(&mut self, pfn: Pfn, order: Order) -> u64 {
        let bytes = order.pages() as u64 * self.memory.page_bytes;
        self.memory.clear_stamps(pfn, order.pages());
        let work_ps = self.op_ps(Op::ClearPage, bytes.div_ceil(4096) as u32);
        let now_ps = self.cpu().clock;
        let until = self.memory.reserve(pfn, bytes, now_ps);
        work_ps.max(until - now_ps)
    }
    /// What `count` times `op` take on the running CPU, jitter included, in ps.
    #[inline]
    pub(crate) fn op_ps(&mut self, op: Op, count: u32) -> u64 {
        let jitter = u64::from(self.costs.jitter_1024.min(1024));
        let base = self.costs.op_ps[op as usize] * u64::from(count);
        let ps = if jitter == 0 {
            base
        } else {
            let factor = 1024 - jitter + self.cpu().rng.below(2 * jitter + 1);
            (u128::from(base) * u128::from(factor) >> 10) as u64
        };
        self.scaled(ps)
    }
}
