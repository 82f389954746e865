//! The frame allocator in a program of its own: `cargo run -p mmscale-mm --example embed`.
//!
//! Threads stand for CPUs, two on each of two memory nodes. Each takes pages and hands them to the
//! next CPU, which gives them back. At the end every frame must be home. First as Linux does it,
//! with a record of each frame, then with nothing kept but bits. A kernel writes the same with its
//! own CPU number and its own interrupt flag.

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
/// Blocks that each CPU takes.
const BLOCKS: usize = 200_000;

/// CPUs that are threads: nothing preempts them but the host, and no interrupt handler allocates.
struct ThreadCpus;

thread_local! {
    static CPU: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: each thread that allocates is a CPU of its own and stays it.
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
    // A kernel counts here, so that its scheduler leaves the CPU alone. A thread keeps its number
    // wherever the host runs it.
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

/// A block on its way from the CPU that took it to the one that gives it back.
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
    println!("{} pages free for all, {} kept by CPUs", audit.free, audit.cached);
    frames.drain_all();
    let audit = frames.verify()?;
    println!("after draining: {} and {}", audit.free, audit.cached);
    if audit.free != map.frames() as u64 {
        return Err("pages are missing".into());
    }
    Ok(())
}

/// Takes blocks of small orders and sends them on; gives back what arrives, until nobody sends.
fn run_cpu(frames: &Frames, cpu: usize, to: Sender<Block>, from: &Receiver<Block>) {
    CPU.set(cpu);
    for turn in 0..BLOCKS {
        let order = Order::all().nth(turn % 4).unwrap_or(Order::ZERO);
        let block = frames.alloc_pages(order, MigrateType::Movable, Gfp::KERNEL);
        // Nobody frees memory here when it runs short, as a kernel's reclaim does.
        let Ok(pfn) = block else { continue };
        to.send((pfn, order)).expect("the next CPU listens until this one is done");
        from.try_iter().for_each(|(pfn, order)| frames.free_pages(pfn, order));
    }
    drop(to);
    from.iter().for_each(|(pfn, order)| frames.free_pages(pfn, order));
    // Nobody can interrupt this CPU to ask for what it keeps, so it gives that up before it goes.
    frames.drain_pages(CpuId::new(cpu));
}

/// Counts the bytes that are out, to know what the allocator's own records need.
struct Counting {
    bytes: AtomicUsize,
}

#[global_allocator]
static HEAP: Counting = Counting { bytes: AtomicUsize::new(0) };

// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        self.bytes.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps this function's contract, which is the same.
        unsafe { System.alloc(layout) }
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        self.bytes.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        self.bytes.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}
