//! The program behind the fidelity checks: every CPU allocates a batch of single pages at the same
//! moment, and later frees it at the same moment, as the kernel-module benchmark `bulk` of the
//! LLFree paper does. It calls the page allocator directly, without system calls and without
//! touching the pages, because that benchmark does.

use mmscale_kernel::Kernel;
use mmscale_mm::arch::{Arch, Order, Pfn};
use mmscale_mm::frame::MigrateType;
use mmscale_mm::page_alloc::Gfp;
use mmscale_system::{Priority, System, ThreadSpec};
use std::sync::{Arc, Mutex};

/// One measurement. Each CPU begins a phase at a multiple of `slot_ns`, so that all CPUs are in
/// the same phase; a slot must be longer than the slowest phase.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Bulk {
    pub(crate) cpus: usize,
    pub(crate) pages_per_cpu: usize,
    /// Rounds that count; one more goes first, to warm the caches.
    pub(crate) rounds: u64,
    pub(crate) slot_ns: u64,
}

/// What it found: ns per page, over CPUs and rounds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct NsPerPage {
    pub(crate) alloc: f64,
    pub(crate) free: f64,
    /// Phases that did not fit their slot: the figures are not to be used if there are any.
    pub(crate) overruns: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    alloc_ns: u64,
    free_ns: u64,
    pages: u64,
    overruns: u64,
}

/// Runs the measurement on a booted kernel, in its first thread.
pub(crate) fn run<A: Arch>(kernel: &Kernel<A>, bulk: Bulk) -> NsPerPage {
    let sums = Arc::new(Mutex::new(Sums::default()));
    let start_ns = (kernel.clock_ns() / bulk.slot_ns + 1) * bulk.slot_ns;
    let threads: Vec<_> = (0..bulk.cpus)
        .map(|cpu| {
            let sums = Arc::clone(&sums);
            let spec = ThreadSpec { cpu, priority: Priority::Fair };
            let body = Box::new(move |kernel: &Kernel<A>| {
                let mine = worker(kernel, bulk, start_ns);
                let mut all = sums.lock().expect("no worker panics while it adds");
                all.alloc_ns += mine.alloc_ns;
                all.free_ns += mine.free_ns;
                all.pages += mine.pages;
                all.overruns += mine.overruns;
            });
            kernel.spawn(spec, body).expect("the CPU exists and the run goes on")
        })
        .collect();
    threads.into_iter().for_each(|thread| kernel.join(thread).expect("one waiter a thread"));
    let all = *sums.lock().expect("all workers have returned");
    NsPerPage {
        alloc: all.alloc_ns as f64 / all.pages as f64,
        free: all.free_ns as f64 / all.pages as f64,
        overruns: all.overruns,
    }
}

fn worker<A: Arch>(kernel: &Kernel<A>, bulk: Bulk, start_ns: u64) -> Sums {
    let frames = kernel.mm().frames();
    let mut held: Vec<Pfn> = Vec::with_capacity(bulk.pages_per_cpu);
    let mut sums = Sums::default();
    for round in 0..=bulk.rounds {
        let alloc_at_ns = start_ns + 2 * round * bulk.slot_ns;
        sums.overruns += u64::from(!wait_until(kernel, alloc_at_ns));
        let begin_ns = kernel.clock_ns();
        while held.len() < bulk.pages_per_cpu {
            match frames.alloc_pages(Order::ZERO, MigrateType::Movable, Gfp::KERNEL) {
                Ok(pfn) => held.push(pfn),
                Err(_) => break,
            }
        }
        let alloc_ns = kernel.clock_ns() - begin_ns;
        sums.overruns += u64::from(!wait_until(kernel, alloc_at_ns + bulk.slot_ns));
        let pages = held.len() as u64;
        let begin_ns = kernel.clock_ns();
        held.drain(..).for_each(|pfn| frames.free_pages(pfn, Order::ZERO));
        let free_ns = kernel.clock_ns() - begin_ns;
        if round > 0 {
            sums.alloc_ns += alloc_ns;
            sums.free_ns += free_ns;
            sums.pages += pages;
        }
    }
    sums
}

/// Computes until `when_ns`; whether there was time left.
fn wait_until<A: Arch>(kernel: &Kernel<A>, when_ns: u64) -> bool {
    match when_ns.checked_sub(kernel.clock_ns()) {
        Some(rest_ns) => kernel.compute_ns(rest_ns).is_ok(),
        None => false,
    }
}
