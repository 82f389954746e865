//! The study `ipi`: cross-CPU calls, and how long a CPU that waits for them cannot switch tasks.
//!
//! One seed of one arm is one run: a service whose threads poll on most CPUs and change its memory
//! on a few, and on each CPU a monitor with the highest priority. The other workloads:
//!
//! - `flush`: a thread on each CPU only discards a page, repeatedly.
//! - `reclaim`: the few have pages reclaimed that are already in swap.
//! - `spawn`: the few create threads that exit, whose stacks are in the kernel's own address range.

mod details;
mod meter;
mod metrics;
mod remarks;
mod threads;

pub use meter::CallWaits;

use crate::kept::Kept;
use mmscale_arch::PAGE_SHIFT;
use mmscale_document::Target;
use mmscale_harness::{
    Env, Metric, Needs, Phases, Run, SETTLE_NS, SeedResult, Seen, Source, TooShort, Unit, Verdict,
    Watch, Workload, making_ns, names, params, study_file, tally,
};
use mmscale_kernel::Os;
use mmscale_mm::mm::MmConfig;
use mmscale_mm::smp::CallStats;
use mmscale_mm::stack::{StackConfig, StackStats};
use mmscale_mm::swap::{SwapConfig, Zeromap};
use mmscale_mm::vmap::VmapStats;
use mmscale_sim::{SimConfig, Windows};
use mmscale_system::{System, ThreadSpec};
use std::ops::Range;
use threads::{monitor_on, start, watch, workers};

/// The workload of the study.
#[derive(Clone, Debug)]
pub struct Ipi;

params! {
    /// The parameters of the study.
    pub struct Params {
        workload: choice(Work, "mixed"),
            "mixed: four CPUs change memory and the others poll; flush: all CPUs discard a page; \
             reclaim: the four reclaim clean pages; spawn: the four create threads that exit";
        window_s: real(Unit::Seconds, 0.1, [0.001, 3600.0]),
            "length of a window; each CPU's longest section per window is recorded";
        windows: count(Unit::One, 100, [1, 100_000]), "number of windows of a run";
        noise: switch(true),
            "whether CPUs are disturbed by the profile's stolen time and interrupt handlers \
             (sim)", sim;
        tail: real(Unit::One, 1.0, [0.01, 100.0]),
            "factor by which the profile's stolen times are multiplied (sim)", sim;
        hog_mib: count(Unit::One, 0, [0, 1024]),
            "memory that each working CPU also writes, again and again, in MiB; a quarter of it \
             does not fit, so that all of them and kswapd reclaim; 0: none (sim)", sim;
        copies: switch(false),
            "whether ops also read discarded pages first, so that writes copy the zero page and \
             flush";
        op_gap_us: count(Unit::One, 1000, [1, 10_000_000]),
            "mean time between the starts of two ops on a working CPU, in us";
        wake_gap_us: count(Unit::One, 5000, [10, 10_000_000]),
            "mean time between two wake-ups of a CPU's highest-priority task, in us";
        burst: count(Unit::One, 32, [1, 1024]), "number of threads that an op of `spawn` creates";
        lazy_mib: count(Unit::One, 0, [0, 65_536]),
            "limit in MiB of lazily freed vmap addresses before a flush (spawn); 0: 32 MiB per \
             doubling of CPUs, as in Linux (sim)", sim;
        flush_ms: real(Unit::Ms, 5.0, [0.01, 600_000.0]),
            "duration of workload=flush (sim: virtual time)";
    }
}

names! {
    /// The workload of the service.
    pub enum Work {
        /// Every CPU discards a page, repeatedly.
        Flush = "flush",
        /// Workers on some CPUs, pollers on the others, watchmen on all.
        Mixed = "mixed",
        /// Workers have pages reclaimed that they have only read; pollers and watchmen as in
        /// `Mixed`.
        Reclaim = "reclaim",
        /// Workers create threads and wait for their exit; pollers and watchmen as in `Mixed`.
        Spawn = "spawn",
    }
}

tally! {
    /// Counters of the threads.
    pub struct Tally {
        /// Ops that ended within the time that counts.
        ops,
        /// Ops that failed for lack of memory.
        failures,
        /// Pages that did not contain the expected value.
        damaged,
        /// On the live kernel: 1 if watchmen have the highest priority.
        urgent,
    }
}

/// Indices into [`Run::samples`]: wake-up latencies of watchmen, and durations of calls that change
/// translations which other CPUs may cache, or that create a thread.
const WAKEUPS: usize = 0;
const CALLS: usize = 1;

/// The schedule of all programs. Times in ns.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The time that counts; at its end all programs end.
    window_ns: Range<u64>,
    /// The windows into which this time is divided.
    windows: Windows,
    op_gap_ns: u64,
    wake_gap_ns: u64,
    work: Work,
    /// Whether workers read discarded pages before they write to them: each page then maps the zero
    /// page, and writing copies it with a flush under its page-table lock.
    copies: bool,
    /// Number of threads that an op creates.
    burst: u64,
    /// Pages that each working CPU also writes, again and again.
    hog_pages: u64,
}

/// Counters of the memory manager up to some time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counted {
    calls: CallStats,
    call_memory_bytes: u64,
    stacks: StackStats,
    kernel_range: VmapStats,
}

/// The window of the real measurements to which the profile's noise corresponds.
const REAL_WINDOW_NS: f64 = 30e9;
/// Slots of the swap area: 256 MiB.
const SWAP_PAGES: u32 = 1 << 16;
/// Maximum number of pages of the programs of a CPU, including processes that exit.
const PAGES_OF_CPU: u64 = 1024;

impl Workload for Ipi {
    const FILE: Source = study_file!("ipi");
    const METRICS: &'static [Metric<Self>] = metrics::METRICS;
    const ATTEMPTS: u32 = 1;
    const WATCHES: &'static [Watch] = &[Watch::Calls, Watch::Resched];
    type Params = Params;
    type Plan = Plan;
    type Tally = Tally;
    /// Counters at the start and at the end of the windows.
    type Inside = [Counted; 2];
    type Meter = CallWaits;

    fn plan(env: &Env<Self>) -> Result<Plan, String> {
        let params = &env.params;
        if env.on() == Target::Live && params.workload == Work::Reclaim && !has_swap() {
            let what = "this computer has no swap, so pages of programs cannot be reclaimed: \
                        enable swap, or select another workload";
            return Err(what.to_owned());
        }
        let (window_ns, count) = windows_of(params);
        let (window_ns, count) = (window_ns as u64, count as usize);
        let from_ns = SETTLE_NS + making_ns(env, 2 * env.cpus() as u64);
        Ok(Plan {
            window_ns: from_ns..from_ns + window_ns * count as u64,
            windows: Windows { from_ns, window_ns, count },
            op_gap_ns: params.op_gap_us * 1000,
            wake_gap_ns: params.wake_gap_us * 1000,
            work: params.workload,
            copies: params.copies,
            burst: params.burst,
            hog_pages: params.hog_mib << (20 - PAGE_SHIFT),
        })
    }
    fn phases(plan: &Plan) -> Phases {
        let Range { start, end } = plan.window_ns;
        Phases { from_ns: start, until_ns: end, end_ns: end }
    }
    fn set_up(env: &Env<Self>, plan: &Plan, mm: &mut MmConfig) {
        if plan.work == Work::Spawn {
            let mib = env.params.lazy_mib;
            let lazy_max_pages = (mib > 0).then_some(mib << (20 - PAGE_SHIFT));
            mm.stacks = StackConfig::Mapped { lazy_max_pages };
        }
        mm.swap = SwapConfig { pages: SWAP_PAGES, zeromap: Zeromap::Off, ..SwapConfig::default() };
    }
    fn simulate(env: &Env<Self>, plan: &Plan, sim: &mut SimConfig) {
        if env.params.noise {
            let share = plan.windows.window_ns as f64 / REAL_WINDOW_NS;
            sim.noise = sim.profile.noise.scaled(share, env.params.tail);
        }
        sim.sections = Some(plan.windows);
    }
    fn needs(env: &Env<Self>, _: &Plan) -> Needs {
        Needs { processes: 8, pages: PAGES_OF_CPU * env.cpus() as u64 }
    }
    fn damaged_pages(tally: &Tally) -> u64 {
        tally.damaged
    }
    fn verdict(seen: &Seen<'_, Self>) -> Verdict {
        let what = "no op started and ended in the window: increase --set window_s or flush_ms";
        if seen.tally.ops > 0 { Verdict::Good } else { Verdict::Useless(what.to_owned()) }
    }
    fn remarks(params: &Params, on: Target) -> Vec<String> {
        remarks::remarks(params, on)
    }
    fn too_short(params: &Params, on: Target) -> Vec<TooShort> {
        remarks::too_short(params, on)
    }
    fn details(seen: &Seen<'_, Self>, result: &mut SeedResult) {
        details::details(seen, result);
    }

    /// Starts the service and the watchmen, and waits for both. Watchmen that may not have the
    /// highest priority run with the usual one.
    fn run<S: System>(run: &Run<Self>, system: &S) {
        let watching = run.clone();
        let watch = move |system: &S| {
            // Tested with a thread that does nothing: without permission for the priority it does
            // not start.
            let first = system.spawn(monitor_on(0), Box::new(|_| {}));
            let may = first.and_then(|thread| system.join(thread)).is_ok();
            watching.tally.change(|sum| sum.urgent = u64::from(may));
            let _ = watch(&watching, system, if may { monitor_on } else { ThreadSpec::on });
        };
        for process in start(run, system, watch) {
            let _ = system.wait(process);
        }
    }
    /// Like `run`, and records the counters of calls at the start and the end of the windows.
    fn run_inside(run: &Run<Self>, os: &Os) {
        let inside = os.inside();
        let kept = hog_room(run, os).map(|room| Kept::all_but(room, inside));
        let watching = run.clone();
        let watch = move |os: &Os| _ = watch(&watching, os, monitor_on);
        let processes = start(run, os, watch);
        let Range { start, end } = run.plan.window_ns;
        for (at, when_ns) in [start, end].into_iter().enumerate() {
            let _ = os.sleep_ns(when_ns.saturating_sub(os.clock_ns()));
            let now = Counted {
                calls: inside.call_stats(),
                call_memory_bytes: inside.call_memory_bytes(),
                stacks: inside.stack_stats(),
                kernel_range: inside.kernel_range_stats(),
            };
            run.inside(|counted| counted[at] = now);
        }
        for process in processes {
            let _ = os.wait(process);
        }
        if let Some(kept) = kept {
            kept.release(inside);
        }
    }
}

/// Returns the pages that are free for the programs if hogs shall lack memory: three quarters of
/// what they write, above the high watermark.
fn hog_room(run: &Run<Ipi>, os: &Os) -> Option<u64> {
    let hogs = workers(os.cpus()).len() as u64;
    (run.plan.hog_pages > 0).then(|| hogs * run.plan.hog_pages * 3 / 4 + os.inside().high_pages())
}

/// Returns whether the live kernel has swap.
fn has_swap() -> bool {
    // tidy: opened: a file of /proc
    let swaps = std::fs::read_to_string("/proc/swaps").unwrap_or_default();
    swaps.lines().count() > 1
}

/// Returns the length of a window in ns, and the number of windows.
fn windows_of(params: &Params) -> (f64, u64) {
    match params.workload {
        Work::Flush => (params.flush_ms * 1e6, 1),
        Work::Mixed | Work::Reclaim | Work::Spawn => (params.window_s * 1e9, params.windows),
    }
}
