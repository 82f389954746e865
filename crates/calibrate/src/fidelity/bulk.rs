//! The program behind the fidelity checks: every CPU allocates a batch of single pages at the same
//! time, and later frees it at the same time. It follows the kernel-module benchmark `bulk` of the
//! LLFree paper: it calls the page allocator directly, without system calls and without touching
//! the pages.

use mmscale_arch::{Order, Pfn};
use mmscale_frames::frame::MigrateType;
use mmscale_kernel::Os;
use mmscale_system::{System, ThreadSpec};
use std::sync::{Arc, Mutex};

/// One measurement. Each CPU begins a phase at a multiple of `slot_ns`, so that all CPUs are in the
/// same phase. A slot must be longer than the slowest phase.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Bulk {
    pub(crate) cpus: usize,
    pub(crate) pages_per_cpu: usize,
    /// Measured rounds; one additional round first warms the caches.
    pub(crate) rounds: u64,
    pub(crate) slot_ns: u64,
}

/// Pages between two clock reads. This is many batches, and about 0.1 ms, so that most stretches
/// are not disturbed by other activity of the computer.
const STRETCH: usize = 1024;

/// The result: ns per page, over CPUs and rounds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct NsPerPage {
    pub(crate) alloc: f64,
    pub(crate) free: f64,
    /// Allocation time of the median stretch of [`STRETCH`] pages.
    pub(crate) median_alloc: f64,
    pub(crate) median_free: f64,
    /// Phases that were longer than their slot. If there are any, the result must not be used.
    pub(crate) overruns: u64,
}

/// Measurements of the workers.
#[derive(Debug, Default)]
struct BulkTimes {
    /// The duration of each stretch.
    alloc_ns: Vec<u64>,
    free_ns: Vec<u64>,
    overruns: u64,
}

impl BulkTimes {
    fn add(&mut self, mut other: Self) {
        self.alloc_ns.append(&mut other.alloc_ns);
        self.free_ns.append(&mut other.free_ns);
        self.overruns += other.overruns;
    }

    fn ns_per_page(mut self) -> NsPerPage {
        NsPerPage {
            alloc: mean(&self.alloc_ns),
            free: mean(&self.free_ns),
            median_alloc: median(&mut self.alloc_ns),
            median_free: median(&mut self.free_ns),
            overruns: self.overruns,
        }
    }
}

/// Returns the mean in ns per page.
fn mean(stretches_ns: &[u64]) -> f64 {
    stretches_ns.iter().sum::<u64>() as f64 / (stretches_ns.len() * STRETCH) as f64
}

/// Returns the median in ns per page.
fn median(stretches_ns: &mut [u64]) -> f64 {
    stretches_ns.sort_unstable();
    stretches_ns[stretches_ns.len() / 2] as f64 / STRETCH as f64
}

/// Runs the measurement on a booted kernel, in its first thread.
pub(crate) fn run(os: &Os, bulk: Bulk) -> NsPerPage {
    let found = Arc::new(Mutex::new(BulkTimes::default()));
    let start_ns = (os.clock_ns() / bulk.slot_ns + 1) * bulk.slot_ns;
    let threads: Vec<_> = (0..bulk.cpus)
        .map(|cpu| {
            let found = Arc::clone(&found);
            let spec = ThreadSpec::on(cpu);
            let body = Box::new(move |os: &Os| {
                let mine = worker(os, bulk, start_ns);
                found.lock().expect("no worker panics while it adds").add(mine);
            });
            os.spawn(spec, body).expect("the CPU exists and the run goes on")
        })
        .collect();
    threads.into_iter().for_each(|thread| os.join(thread).expect("one waiter a thread"));
    let found = std::mem::take(&mut *found.lock().expect("all workers have returned"));
    found.ns_per_page()
}

fn worker(os: &Os, bulk: Bulk, start_ns: u64) -> BulkTimes {
    assert!(bulk.pages_per_cpu.is_multiple_of(STRETCH));
    let inside = os.inside();
    let mut held: Vec<Pfn> = Vec::with_capacity(bulk.pages_per_cpu);
    let mut found = BulkTimes::default();
    for round in 0..=bulk.rounds {
        let alloc_at_ns = start_ns + 2 * round * bulk.slot_ns;
        found.overruns += u64::from(!wait_until(os, alloc_at_ns));
        if round == 1 {
            found.alloc_ns.clear();
            found.free_ns.clear();
        }
        for _ in 0..bulk.pages_per_cpu / STRETCH {
            let begin_ns = os.clock_ns();
            for _ in 0..STRETCH {
                let pfn = inside.alloc_pages(Order::ZERO, MigrateType::Movable);
                held.push(pfn.expect("the machine has memory for all workers"));
            }
            found.alloc_ns.push(os.clock_ns() - begin_ns);
        }
        found.overruns += u64::from(!wait_until(os, alloc_at_ns + bulk.slot_ns));
        for stretch in held.chunks(STRETCH) {
            let begin_ns = os.clock_ns();
            stretch.iter().for_each(|&pfn| inside.free_pages(pfn, Order::ZERO));
            found.free_ns.push(os.clock_ns() - begin_ns);
        }
        held.clear();
    }
    found
}

/// Computes until `when_ns`. Returns false if that time has already passed.
pub(super) fn wait_until(os: &Os, when_ns: u64) -> bool {
    match when_ns.checked_sub(os.clock_ns()) {
        Some(rest_ns) => os.compute_ns(rest_ns).is_ok(),
        None => false,
    }
}
