//! The frame allocator on an embedder's implementation of `Bare`: threads as CPUs on two nodes.

use mmscale_arch::bare::{Bare, BareCpu};
use mmscale_arch::{CpuId, IrqState, NodeId, Order, PAGEBLOCK_ORDER, Pfn, TaskId};
use mmscale_frames::frame::MigrateType;
use mmscale_frames::page_alloc::{AllocConfig, FrameAllocator, Gfp, MemoryMap};
use std::cell::Cell;
use std::thread;

/// Two CPUs, one on each node.
struct Two;

thread_local! {
    static CPU: Cell<usize> = const { Cell::new(0) };
    static PREEMPT: Cell<u32> = const { Cell::new(0) };
    static IRQ_ON: Cell<bool> = const { Cell::new(true) };
    static WOKEN: Cell<Option<TaskId>> = const { Cell::new(None) };
}

// SAFETY: one thread, on one CPU after the other.
unsafe impl Bare for Two {
    fn cpu() -> CpuId {
        CpuId::new(CPU.get())
    }
    fn cpus() -> usize {
        2
    }
    fn preempt_disable() {
        PREEMPT.set(PREEMPT.get() + 1);
    }
    fn preempt_enable() {
        PREEMPT.set(PREEMPT.get() - 1);
    }
    fn irq_save() -> IrqState {
        IrqState(IRQ_ON.replace(false))
    }
    fn irq_restore(state: IrqState) {
        IRQ_ON.set(state.0);
    }
    fn node_of(cpu: CpuId) -> NodeId {
        NodeId::new(cpu.index())
    }
    fn relax() {
        thread::yield_now();
    }
    fn unpark(task: TaskId) {
        WOKEN.set(Some(task));
    }
}

const NODE_PAGES: u32 = 16 << PAGEBLOCK_ORDER;

type Frames = FrameAllocator<BareCpu<Two>>;

/// Allocates and frees blocks of all small orders; returns whether all were of the CPU's node.
fn work(frames: &Frames, cpu: usize) -> bool {
    CPU.set(cpu);
    let mut held: Vec<(Pfn, Order)> = Vec::new();
    let mut near = true;
    for turn in 0..20_000 {
        let order = Order::all().nth(turn % 4).expect("there are more");
        let pfn =
            frames.alloc_pages(order, MigrateType::Movable, Gfp::KERNEL).expect("memory is free");
        near &= pfn.index() / NODE_PAGES as usize == cpu;
        held.push((pfn, order));
        if held.len() == 500 {
            held.drain(..).for_each(|(pfn, order)| frames.free_pages(pfn, order));
        }
    }
    held.into_iter().for_each(|(pfn, order)| frames.free_pages(pfn, order));
    assert_eq!((PREEMPT.get(), IRQ_ON.get()), (0, true), "every guard was dropped");
    near
}

#[test]
fn cpus_allocate_pages_of_their_nodes_and_all_are_freed() {
    let map = MemoryMap::nodes(2, NODE_PAGES);
    let frames = Frames::new(&map, AllocConfig::default()).expect("a valid map");
    let near = thread::scope(|scope| {
        let cpus = [0, 1].map(|cpu| {
            scope.spawn({
                let frames = &frames;
                move || work(frames, cpu)
            })
        });
        cpus.map(|cpu| cpu.join().expect("no panic"))
    });
    assert_eq!(near, [true, true]);
    frames.drain_all();
    let audit = frames.verify().expect("the allocator is consistent");
    assert_eq!((audit.free, audit.cached, audit.held), (2 * u64::from(NODE_PAGES), 0, 0));
}

#[test]
fn the_reclaimer_that_the_embedder_named_is_woken_when_memory_is_low() {
    let frames = Frames::new(&MemoryMap::nodes(2, NODE_PAGES), AllocConfig::default());
    let frames = frames.expect("a valid map");
    let reclaimer = TaskId::new(7);
    frames.set_reclaimer(NodeId::new(0), Some(reclaimer));
    let take = || frames.alloc_pages(Order::ZERO, MigrateType::Movable, Gfp::KERNEL);
    let first = take().expect("all memory is free");
    assert_eq!(WOKEN.get(), None);
    let rest: Vec<Pfn> = core::iter::from_fn(|| take().ok()).collect();
    assert_eq!(WOKEN.get(), Some(reclaimer));
    assert!(frames.take_wake(NodeId::new(0)) && !frames.take_wake(NodeId::new(0)));
    rest.into_iter().chain([first]).for_each(|pfn| frames.free_pages(pfn, Order::ZERO));
}
