//! Memory behind frames: stamps instead of bytes, and a node's bandwidth for clearing.

use crate::profile::Profile;
use mmscale_arch::{Order, Pfn};

/// Frames whose stamps are kept together.
const GROUP: usize = 512;

/// Stamps of frames, and when each node's memory is free again.
pub(crate) struct Memory {
    /// By groups of frames; absent until a frame of the group is stamped.
    stamps: Vec<Option<Box<[u64; GROUP]>>>,
    busy_until: Vec<u64>,
    node_pages: usize,
    page_bytes: u64,
    bytes_per_us: u64,
    /// Bytes moved for each byte that is written, in 1/1024.
    write_traffic_1024: u64,
}

impl Memory {
    pub(crate) fn new(profile: &Profile, nodes: usize) -> Self {
        Self {
            stamps: Vec::new(),
            busy_until: vec![0; nodes],
            node_pages: profile.node_pages.max(1) as usize,
            page_bytes: u64::from(profile.page_bytes),
            bytes_per_us: profile.costs.node_bytes_per_us,
            write_traffic_1024: u64::from(profile.costs.write_traffic_1024),
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
    /// Returns the size of a block in bytes.
    pub(crate) fn bytes(&self, order: Order) -> u64 {
        order.pages() as u64 * self.page_bytes
    }
    /// Clears a block's stamps and uses the node's bandwidth for that; returns when the memory has
    /// finished.
    pub(crate) fn clear(&mut self, pfn: Pfn, order: Order, now_ps: u64) -> u64 {
        self.clear_stamps(pfn, order.pages());
        self.write(pfn, self.bytes(order), now_ps)
    }
    /// Copies a stamp and uses the bandwidth of both nodes; returns when both have finished.
    pub(crate) fn copy(&mut self, from: Pfn, to: Pfn, now_ps: u64) -> u64 {
        self.write_stamp(to, self.read_stamp(from));
        let bytes = self.bytes(Order::ZERO);
        let read_ps = self.pass(from, bytes, now_ps);
        read_ps.max(self.write(to, bytes, now_ps))
    }
    /// Writes bytes to the memory of the node of `pfn`; returns when that has finished.
    fn write(&mut self, pfn: Pfn, bytes: u64, now_ps: u64) -> u64 {
        self.pass(pfn, (bytes * self.write_traffic_1024) >> 10, now_ps)
    }
    /// Moves bytes to or from the memory of the node of `pfn`; returns when that has finished.
    fn pass(&mut self, pfn: Pfn, bytes: u64, now_ps: u64) -> u64 {
        self.pass_node(pfn.index() / self.node_pages, bytes, now_ps)
    }
    /// Clears bytes of a node, or copies them within it, frame or not; returns when that has
    /// finished.
    pub(crate) fn clear_on(&mut self, node: usize, bytes: u64, now_ps: u64) -> u64 {
        self.pass_node(node, (bytes * self.write_traffic_1024) >> 10, now_ps)
    }
    /// See [`Self::clear_on`].
    pub(crate) fn copy_on(&mut self, node: usize, bytes: u64, now_ps: u64) -> u64 {
        let read_ps = self.pass_node(node, bytes, now_ps);
        read_ps.max(self.clear_on(node, bytes, now_ps))
    }
    fn pass_node(&mut self, node: usize, bytes: u64, now_ps: u64) -> u64 {
        let node = node.min(self.busy_until.len() - 1);
        let Some(ps) = (bytes * 1_000_000).checked_div(self.bytes_per_us) else { return now_ps };
        let until = self.busy_until[node].max(now_ps) + ps;
        self.busy_until[node] = until;
        until
    }
}
