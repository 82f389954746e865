//! The frame allocator in a program of its own: `cargo run -p mmscale-frames --example embed`.
//!
//! Threads represent CPUs, two on each of two memory nodes. Each CPU allocates pages and sends them
//! to the next one, which frees them. At the end every frame must be free. The first run is with
//! Linux's policy and a record of each frame, the second with one bit of each frame and no records.
//! A kernel implements `Bare` with its own CPU number and its own interrupt flag.

use mmscale_arch::bare::{Bare, BareCpu};
use mmscale_arch::{CpuId, IrqState, NodeId, Order, Pfn};
use mmscale_frames::frame::MigrateType;
use mmscale_frames::page_alloc::{AllocConfig, FrameAllocator, Gfp, MemoryMap, PcpPolicy, Records};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::error::Error;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

const CPUS: usize = 4;
const NODES: usize = 2;
/// Frames of each node: 1 GiB of 4 KiB pages.
const NODE_PAGES: u32 = 1 << 18;
/// Blocks that each CPU allocates.
const BLOCKS: usize = 200_000;

/// CPUs that are threads: only the host preempts them, and no interrupt handler allocates.
struct ThreadCpus;

thread_local! {
    static CPU: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: each thread that allocates is a CPU of its own, and always the same one.
unsafe impl Bare for ThreadCpus {
    #[inline]
    fn cpu() -> CpuId {
        CpuId::new(CPU.get())
    }
    #[inline]
    fn cpus() -> usize {
        CPUS
    }
    #[inline]
    fn node_of(cpu: CpuId) -> NodeId {
        NodeId::new(cpu.index() * NODES / CPUS)
    }
    // A kernel increments its preemption count here. A thread has the same CPU number wherever the
    // host runs it.
    #[inline]
    fn preempt_disable() {}
    #[inline]
    fn preempt_enable() {}
    // A kernel saves and clears its interrupt flag here.
    #[inline]
    fn irq_save() -> IrqState {
        IrqState(false)
    }
    #[inline]
    fn irq_restore(_: IrqState) {}
    fn relax() {
        thread::yield_now();
    }
}

type Frames = FrameAllocator<BareCpu<ThreadCpus>>;

/// A block sent from the CPU that allocated it to the one that frees it.
type Block = (Pfn, Order);

fn main() -> Result<(), Box<dyn Error>> {
    let map = MemoryMap::nodes(NODES, NODE_PAGES);
    println!("{} pages on {NODES} nodes, {CPUS} CPUs", map.frames());
    run("stock", &map, AllocConfig::default())?;
    let (caches, records) = (PcpPolicy::Blockmap, Records::None);
    run("blockmap", &map, AllocConfig { caches, records, ..AllocConfig::default() })
}

fn run(name: &str, map: &MemoryMap, config: AllocConfig) -> Result<(), Box<dyn Error>> {
    let before = HEAP.bytes.load(Ordering::Relaxed);
    let frames = Frames::new(map, config)?;
    let bytes = HEAP.bytes.load(Ordering::Relaxed) - before;
    let for_cpus = frames.census().cpu_metadata_bytes;
    let bits = 8.0 * (bytes as f64 - for_cpus as f64) / map.frames() as f64;
    let cpu_bytes = for_cpus / CPUS as u64;
    println!("{name}: {bits:.2} bits of metadata a page, and {cpu_bytes} bytes a CPU");

    let (to, from): (Vec<_>, Vec<_>) = (0..CPUS).map(|_| channel()).unzip();
    thread::scope(|scope| {
        for (cpu, from) in from.into_iter().enumerate() {
            let (frames, to) = (&frames, to[(cpu + 1) % CPUS].clone());
            scope.spawn(move || run_cpu(frames, cpu, to, &from));
        }
        drop(to);
    });

    let audit = frames.verify()?;
    println!("{} pages free in zones, {} in CPUs' caches", audit.free, audit.cached);
    frames.drain_all();
    let audit = frames.verify()?;
    println!("after draining: {} and {}", audit.free, audit.cached);
    if audit.free != map.frames() as u64 {
        return Err("pages are missing".into());
    }
    Ok(())
}

/// Allocates blocks of small orders and sends them to the next CPU; frees the blocks that arrive,
/// until the sender is done.
fn run_cpu(frames: &Frames, cpu: usize, to: Sender<Block>, from: &Receiver<Block>) {
    CPU.set(cpu);
    for turn in 0..BLOCKS {
        let order = Order::all().nth(turn % 4).unwrap_or(Order::ZERO);
        let block = frames.alloc_pages(order, MigrateType::Movable, Gfp::KERNEL);
        // There is no reclaim here that would free memory when it is short.
        let Ok(pfn) = block else { continue };
        to.send((pfn, order)).expect("the next CPU receives until this one is done");
        from.try_iter().for_each(|(pfn, order)| frames.free_pages(pfn, order));
    }
    drop(to);
    from.iter().for_each(|(pfn, order)| frames.free_pages(pfn, order));
    // No other CPU can interrupt this one to drain its cache, so it does so before it ends.
    frames.drain_pages(CpuId::new(cpu));
}

/// Counts allocated bytes, to measure the allocator's own metadata.
struct Counting {
    bytes: AtomicUsize,
}

#[global_allocator]
static HEAP: Counting = Counting { bytes: AtomicUsize::new(0) };

// SAFETY: every call is forwarded to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        self.bytes.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller fulfils this function's contract, which is that of `System.alloc`.
        unsafe { System.alloc(layout) }
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        self.bytes.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: as in `alloc`.
        unsafe { System.alloc_zeroed(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        self.bytes.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as in `alloc`.
        unsafe { System.dealloc(pointer, layout) }
    }
}
