//! Small machines, and programs that fill them.

use mmscale_arch::{CpuId, Probe};
use mmscale_boot::{Boot, on_sim, on_threads};
use mmscale_frames::page_alloc::{MemoryMap, PcpPolicy};
use mmscale_kernel::Os;
use mmscale_mm::lru::LruPolicy;
use mmscale_mm::mm::MmConfig;
use mmscale_mm::oom::OomCounters;
use mmscale_mm::swap::{SwapConfig, Zeromap};
use mmscale_mm::vmstat_work::TickPolicy;
use mmscale_sim::{Policy, SimConfig, sample_profile};
use mmscale_system::{Addr, Body, Errno, Exit, MapSpec, PAGE_BYTES, ProcessId, System, ThreadSpec};
use mmscale_threads::ThreadsConfig;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;

/// Frames of a machine, 16 MiB; 128 of them are its min watermark.
pub(crate) const FRAMES: u32 = 1 << 12;
/// Longer than any run.
pub(crate) const FOR_EVER_NS: u64 = 1 << 50;
/// A short time.
pub(crate) const PAUSE_NS: u64 = 1_000_000;
pub(crate) const CACHES: [PcpPolicy; PcpPolicy::ALL.len()] = PcpPolicy::ALL;
pub(crate) const LRU: [LruPolicy; LruPolicy::ALL.len()] = LruPolicy::ALL;

pub(crate) fn deaf(_: CpuId) -> Box<dyn Probe> {
    Box::new(())
}

/// One node of [`FRAMES`] frames, without swap.
pub(crate) fn config() -> MmConfig {
    MmConfig::new(MemoryMap::single(FRAMES), TickPolicy::Stock)
}

pub(crate) fn with_swap(mut config: MmConfig, pages: u32) -> MmConfig {
    config.swap = SwapConfig { pages, zeromap: Zeromap::Off, ..SwapConfig::default() };
    config
}

/// Runs `program` as the first thread of a simulated machine of four CPUs; returns the fingerprint.
#[track_caller]
pub(crate) fn sim(seed: u64, config: &MmConfig, program: fn(&Os)) -> u64 {
    sim_with(seed, 4, Policy::Lazy, config, program)
}

#[track_caller]
pub(crate) fn sim_with(
    seed: u64,
    cpus: usize,
    policy: Policy,
    config: &MmConfig,
    program: fn(&Os),
) -> u64 {
    let machine = SimConfig { seed, policy, ..SimConfig::new(sample_profile(cpus), cpus) };
    sim_on(machine, config, program)
}

#[track_caller]
pub(crate) fn sim_on(machine: SimConfig, config: &MmConfig, program: fn(&Os)) -> u64 {
    let seed = machine.seed;
    let machine = SimConfig { limit_ns: 60_000_000_000, ..machine };
    let outcome = on_sim(machine, &mut deaf, Boot::checked(config, program));
    if let Some(failure) = outcome.failure {
        panic!("seed {seed}: {failure}");
    }
    if let Some(violation) = outcome.violations.first() {
        panic!("seed {seed}: {violation}");
    }
    outcome.fingerprint
}

/// Runs `program` on two CPUs of this computer.
#[track_caller]
pub(crate) fn threads(config: &MmConfig, program: fn(&Os)) {
    let machine = ThreadsConfig {
        cpus: 2,
        hz: 250,
        seed: 0,
        memory_pages: u64::from(FRAMES),
        limit_ns: 60_000_000_000,
        interrupt: None,
    };
    let boot = Boot::checked(config, program);
    if let Some(failure) = on_threads(&machine, &mut deaf, boot).failure {
        panic!("{failure}");
    }
}

// -- Programs.

/// Starts a process on the CPU `cpu`, or on the last CPU if there are fewer.
pub(crate) fn start<S: System>(
    system: &S,
    cpu: usize,
    body: impl FnOnce(&S) + Send + 'static,
) -> ProcessId {
    let spec = ThreadSpec::on(cpu.min(system.cpus() - 1));
    let body: Body<S> = Box::new(body);
    system.process(spec, body).expect("there is memory for a process")
}

/// Maps `pages` pages and writes to each; returns the address or the error.
pub(crate) fn grow<S: System>(system: &S, pages: u64) -> Result<Addr, Errno> {
    let at = system.mmap(MapSpec::new(pages * PAGE_BYTES))?;
    for page in 0..pages {
        system.write(at.page(page), 1 + page)?;
    }
    Ok(at)
}

/// Checks the words that [`grow`] has written.
pub(crate) fn check<S: System>(system: &S, at: Addr, pages: u64) {
    for page in 0..pages {
        assert_eq!(system.read(at.page(page)), Ok(1 + page), "page {page}");
    }
}

/// Starts a process that has `pages` pages when this returns, and sleeps until it is killed.
pub(crate) fn holder<S: System>(system: &S, cpu: usize, pages: u64) -> ProcessId {
    let done = Arc::new(AtomicU64::new(0));
    let told = Arc::clone(&done);
    let process = start(system, cpu, move |system: &S| {
        grow(system, pages).expect("there is memory for it");
        told.store(1, SeqCst);
        assert_eq!(system.sleep_ns(FOR_EVER_NS), Err(Errno::Stopped));
    });
    while done.load(SeqCst) == 0 {
        assert_eq!(system.sleep_ns(PAUSE_NS), Ok(()));
    }
    process
}

/// Starts a process that allocates `pages` pages, checks them, and ends.
pub(crate) fn grower<S: System>(system: &S, cpu: usize, pages: u64) -> ProcessId {
    start(system, cpu, move |system: &S| {
        if let Ok(at) = grow(system, pages) {
            check(system, at, pages);
        }
    })
}

/// Returns the pages that allocations can still have, by the counters.
pub(crate) fn available(system: &Os) -> u64 {
    let inside = system.inside();
    let free = inside.free_count();
    let cached: u64 = (0..system.cpus()).map(|cpu| inside.cached_count(CpuId::new(cpu))).sum();
    (free + cached).saturating_sub(inside.min_pages())
}

pub(crate) fn counters(system: &Os) -> OomCounters {
    system.inside().oom_counters()
}

#[track_caller]
pub(crate) fn ends<S: System>(system: &S, process: ProcessId, how: Exit) {
    assert_eq!(system.wait(process), Ok(how));
}

/// Kills a process, and waits for it.
#[track_caller]
pub(crate) fn end<S: System>(system: &S, process: ProcessId) {
    assert_eq!(system.kill(process), Ok(()));
    ends(system, process, Exit::Killed);
}
