//! The frame allocator of this workspace: zones, page caches, counters, as in a kernel.

use super::{Peer, on_threads};
use crate::host::{HostThreads, become_cpu};
use mmscale_arch::bare::{Bare, BareCpu};
use mmscale_arch::{CpuId, Order, Pfn};
use mmscale_frames::frame::MigrateType;
use mmscale_frames::page_alloc::{AllocConfig, FrameAllocator, Gfp, MemoryMap, PcpPolicy, Records};
use std::marker::PhantomData;

/// A policy of how pages move between CPUs and zones, as a tag type.
pub trait Policy: Send + Sync + 'static {
    /// The row's name.
    const NAME: &'static str;
    /// The policy.
    const CACHES: PcpPolicy;
    /// The record about each frame.
    const RECORDS: Records = Records::Kept;
    /// The machine.
    type Machine: Bare;
}

/// As in Linux.
pub struct Stock;

impl Policy for Stock {
    const NAME: &'static str = "mmscale stock";
    const CACHES: PcpPolicy = PcpPolicy::Stock;
    type Machine = HostThreads<true>;
}

/// A freed page returns to the CPU that owns its pageblock.
pub struct Posted;

impl Policy for Posted {
    const NAME: &'static str = "mmscale posted";
    const CACHES: PcpPolicy = PcpPolicy::Posted;
    type Machine = HostThreads<true>;
}

/// Free pages are bits in blocks that CPUs own, without records about frames.
pub struct Blockmap;

impl Policy for Blockmap {
    const NAME: &'static str = "mmscale blockmap";
    const CACHES: PcpPolicy = PcpPolicy::Blockmap;
    const RECORDS: Records = Records::None;
    type Machine = HostThreads<true>;
}

/// Like [`Blockmap`], with a record of each frame, so that a wrong free is caught immediately.
pub struct BlockmapRecords;

impl Policy for BlockmapRecords {
    const NAME: &'static str = "blockmap with records";
    const CACHES: PcpPolicy = PcpPolicy::Blockmap;
    type Machine = HostThreads<true>;
}

/// Like [`Blockmap`], with a byte for each frame, which catches the same wrong frees.
pub struct BlockmapOrders;

impl Policy for BlockmapOrders {
    const NAME: &'static str = "blockmap with orders";
    const CACHES: PcpPolicy = PcpPolicy::Blockmap;
    const RECORDS: Records = Records::Orders;
    type Machine = HostThreads<true>;
}

/// Like [`Blockmap`], where there is no preemption.
pub struct BlockmapUncounted;

impl Policy for BlockmapUncounted {
    const NAME: &'static str = "blockmap, no preempt";
    const CACHES: PcpPolicy = PcpPolicy::Blockmap;
    const RECORDS: Records = Records::None;
    type Machine = HostThreads<false>;
}

/// The allocator on threads with a number, without other features of a machine.
pub struct Ours<T: Policy>(FrameAllocator<BareCpu<T::Machine>>, PhantomData<T>);

impl<T: Policy> Peer for Ours<T> {
    const NAME: &'static str = T::NAME;
    fn run(frames: usize, threads: usize, body: impl Fn(&Self, usize) + Send + Sync + 'static) {
        let map = MemoryMap::single(frames as u32);
        let config =
            AllocConfig { caches: T::CACHES, records: T::RECORDS, ..AllocConfig::default() };
        let allocator = FrameAllocator::new(&map, config).expect("a plain map makes sense");
        let ours = Self(allocator, PhantomData);
        on_threads(&ours, threads, |ours, thread| {
            become_cpu(thread);
            body(ours, thread);
            // Before the thread ends, it drains its CPU's private pages.
            ours.0.drain_pages(CpuId::new(thread));
        });
        ours.0.verify().expect("the allocator is whole after the program");
    }
    #[inline]
    fn alloc(&self, order: u8) -> Option<u32> {
        let order = Order::new(order)?;
        let pfn = self.0.alloc_pages(order, MigrateType::Movable, Gfp::KERNEL).ok()?;
        Some(pfn.index() as u32)
    }
    fn alloc_last(&self, order: u8) -> Option<u32> {
        let (order, gfp) = (Order::new(order)?, Gfp::KERNEL | Gfp::MEMALLOC);
        Some(self.0.alloc_pages(order, MigrateType::Movable, gfp).ok()?.index() as u32)
    }
    #[inline]
    fn free(&self, frame: u32, order: u8) {
        if let Some(order) = Order::new(order) {
            self.0.free_pages(Pfn::new(frame as usize), order);
        }
    }
    fn free_frames(&self) -> usize {
        let audit = self.0.verify().expect("the allocator is whole");
        (audit.free + audit.cached) as usize
    }
}
