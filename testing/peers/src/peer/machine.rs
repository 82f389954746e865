//! Our frame allocator on the real-threads machine, with its polled interrupts, its tracepoints and
//! its lock statistics.

use super::Peer;
use mmscale_arch::{
    Callbacks, CpuId, Ipi, Machine as _, Order, Pfn, Priority, TaskEntry, TaskSpec,
};
use mmscale_frames::frame::MigrateType;
use mmscale_frames::page_alloc::{AllocConfig, FrameAllocator, Gfp, MemoryMap};
use mmscale_threads::{Threads, ThreadsConfig, run};
use std::sync::Arc;

/// The frame allocator; each thread of a program is a task on a CPU of its own.
pub struct OursOnMachine(FrameAllocator<Threads>);

/// An allocator, and the program of the tasks.
struct Program<F> {
    ours: OursOnMachine,
    body: F,
}

impl<F: Fn(&OursOnMachine, usize)> Callbacks for Program<F> {
    fn ipi(&self, _: Ipi) {}
    fn timer(&self) {}
    fn idle_enter(&self) {}
    fn idle_exit(&self) {}
    fn context_switch(&self) {}
    fn task(&self, entry: TaskEntry) {
        (self.body)(&self.ours, entry.0 as usize);
    }
    fn cpu_dying(&self) -> bool {
        true
    }
    fn cpu_down_prepare(&self, _: CpuId) {}
    fn cpu_dead(&self, _: CpuId) {}
    fn cpu_online(&self, _: CpuId) {}
}

impl Peer for OursOnMachine {
    const NAME: &'static str = "mmscale on its machine";
    fn run(frames: usize, threads: usize, body: impl Fn(&Self, usize) + Send + Sync + 'static) {
        let config = ThreadsConfig {
            cpus: threads,
            hz: 250,
            seed: 0,
            memory_pages: frames as u64,
            limit_ns: 600_000_000_000,
            interrupt: None,
        };
        let boot = || {
            let map = MemoryMap::single(frames as u32);
            let allocator = FrameAllocator::new(&map, AllocConfig::default());
            let ours = Self(allocator.expect("a plain map and the defaults make sense"));
            for cpu in 0..threads {
                let entry = TaskEntry(cpu as u64);
                let cpu = CpuId::new(cpu);
                Threads::spawn(TaskSpec { cpu, per_cpu: true, priority: Priority::Fair, entry });
            }
            Arc::new(Program { ours, body })
        };
        let outcome = run(&config, |_| Box::new(()), boot);
        assert_eq!(outcome.failure, None, "the machine ran to its end");
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
