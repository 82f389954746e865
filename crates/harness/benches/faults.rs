//! Host cost of a simulated page fault, including the free of the page.
//!
//! The process of each CPU maps 256 pages, writes and reads each, and unmaps them, several times.
//! The result is host time per page, over all CPUs (goal: 1.5 us at 72 CPUs, 3 us at 512). The
//! construction of the machine is not included.

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use mmscale_arch::{CpuId, Probe, Trace, TraceGroup};
use mmscale_boot::{Boot, on_sim};
use mmscale_frames::page_alloc::MemoryMap;
use mmscale_kernel::{FinalCheck, Os};
use mmscale_mm::lru::LruPolicy;
use mmscale_mm::mm::MmConfig;
use mmscale_mm::vmstat_work::TickPolicy;
use mmscale_sim::profile::{Profile, load};
use mmscale_sim::{Checks, SimConfig};
use mmscale_system::{Errno, MapSpec, PAGE_BYTES, System, ThreadSpec};
use std::any::Any;
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Pages per mapping.
const PAGES: u64 = 256;
/// Minimum number of pages per run, so that start and end of the run have little weight.
const RUN_PAGES: u64 = 50_000;

/// A probe that subscribes to no events, as in runs without checkers.
struct Deaf;

impl Probe for Deaf {
    fn event(&mut self, _: u64, _: &Trace) {}
    fn hears(&self, _: TraceGroup) -> bool {
        false
    }
    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

/// The program of one process: maps, accesses and unmaps pages.
fn fault<S: System>(system: &S, rounds: u64) -> Result<(), Errno> {
    for round in 0..rounds {
        let at = system.mmap(MapSpec::new(PAGES * PAGE_BYTES))?;
        for page in 0..PAGES {
            system.write(at.page(page), round)?;
            black_box(system.read(at.page(page))?);
        }
        system.munmap(at, PAGES * PAGE_BYTES)?;
    }
    Ok(())
}

/// Returns the host time per page, on `cpus` CPUs of `profile`.
fn page_time(profile: &Profile, cpus: usize, lru: LruPolicy) -> Duration {
    let rounds = RUN_PAGES.div_ceil(PAGES * cpus as u64);
    let taken_ns = Arc::new(AtomicU64::new(0));
    let told = Arc::clone(&taken_ns);
    let program = move |system: &Os| {
        let begin = Instant::now();
        let start = |cpu| {
            let body = Box::new(move |system: &_| fault(system, rounds).expect("memory is enough"));
            system.process(ThreadSpec::on(cpu), body).expect("memory is enough")
        };
        let processes: Vec<_> = (0..cpus).map(start).collect();
        for process in processes {
            let _ = system.wait(process);
        }
        told.store(begin.elapsed().as_nanos() as u64, Ordering::Relaxed);
    };
    let mut config = SimConfig::new(profile.clone(), cpus);
    config.checks = Checks::Off;
    let pages = u32::try_from(profile.node_pages).expect("profiles are checked");
    let mut mm = MmConfig::new(MemoryMap::nodes(profile.topology.nodes, pages), TickPolicy::Stock);
    mm.lru = lru;
    let boot = Boot { mm, final_check: FinalCheck::Skip, program: Box::new(program) };
    let outcome = on_sim(config, &mut |_: CpuId| Box::new(Deaf), boot);
    assert!(outcome.failure.is_none(), "{:?}", outcome.failure);
    let pages = rounds * PAGES * cpus as u64;
    Duration::from_nanos(taken_ns.load(Ordering::Relaxed)).div_f64(pages as f64)
}

fn faults(criterion: &mut Criterion) {
    let profile = load("x86-512").expect("it is built in");
    let mut group = criterion.benchmark_group("fault_and_free");
    group.sample_size(10).throughput(Throughput::Elements(1));
    for cpus in [1, 72, 512] {
        for (name, lru) in [("stock", LruPolicy::Stock), ("lazy", LruPolicy::Lazy)] {
            group.bench_function(BenchmarkId::new(name, cpus), |bencher| {
                // One run has at least 50,000 pages; it stands for any number of iterations.
                bencher.iter_custom(|times| page_time(&profile, cpus, lru).mul_f64(times as f64));
            });
        }
    }
    group.finish();
}

criterion_group!(benches, faults);
criterion_main!(benches);
