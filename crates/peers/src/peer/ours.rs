//! The frame allocator of this workspace: zones, page caches, counters, as a kernel has them.

use super::{Peer, on_threads};
use crate::host::{Host, become_cpu};
use mmscale_mm::arch::{Order, Pfn};
use mmscale_mm::frame::MigrateType;
use mmscale_mm::page_alloc::{AllocConfig, FrameAllocator, Gfp, MemoryMap};

/// On threads with a number, and nothing else of a machine.
pub struct Ours(FrameAllocator<Host>);

impl Peer for Ours {
    const NAME: &'static str = "mmscale";
    fn run(frames: usize, threads: usize, body: impl Fn(&Self, usize) + Send + Sync + 'static) {
        let map = MemoryMap::single(frames as u32);
        let allocator = FrameAllocator::new(&map, AllocConfig::default());
        let ours = Self(allocator.expect("a plain map and the defaults make sense"));
        on_threads(&ours, threads, |ours, thread| {
            become_cpu(thread);
            body(ours, thread);
        });
        ours.0.verify().expect("the allocator is whole after the program");
    }
    #[inline]
    fn alloc(&self, order: u8) -> Option<u32> {
        let order = Order::new(order)?;
        let pfn = self.0.alloc_pages(order, MigrateType::Movable, Gfp::KERNEL).ok()?;
        Some(pfn.index() as u32)
    }
    #[inline]
    fn free(&self, frame: u32, order: u8) {
        if let Some(order) = Order::new(order) {
            self.0.free_pages(Pfn::new(frame as usize), order);
        }
    }
    fn frames_home(&self) -> usize {
        let audit = self.0.verify().expect("the allocator is whole");
        (audit.free + audit.cached) as usize
    }
}
