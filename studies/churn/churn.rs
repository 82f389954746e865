//! The study `churn`: single pages mapped, populated, touched and unmapped, and the lruvec lock.
//!
//! The programs do what `stress-ng --mremap` does when its regions are one page long. Each process
//! first maps a few pages and reads them, as a substitute for the image of a real process: its page
//! tables exist for the lifetime of the process, and its VMA is adjacent to the new one but cannot
//! be merged with it. These pages map the zero page, so they are not on an LRU list. Then each
//! process repeats: map with MAP_POPULATE, advise, touch, unmap. Left out are three calls of mremap
//! in each iteration of stress-ng, which fail before they take a lock.
//!
//! One seed of one arm consists of two runs: all metrics are of the machine with all its CPUs, and
//! `amplification` compares them with the same run on one CPU.

mod metrics;
mod programs;

use mmscale_document::Target;
use mmscale_harness::{
    Choice, Env, Metric, Named, Needs, Part, Phases, Run, SeedResult, Seen, Source, StudyError,
    Unit, Verdict, Watch, Window, Workload, names, params, ready_ns, start_on, study_file, tally,
    wait_for,
};
use mmscale_mm::mm::MmConfig;
use mmscale_mm::swap::{SwapConfig, Zeromap};
use mmscale_sim::SimConfig;
use mmscale_system::{Advice, Present, System};

/// The workload of the study.
#[derive(Clone, Debug)]
pub struct Churn;

params! {
    /// The parameters of the study.
    pub struct Params {
        processes_per_cpu: count(Unit::One, 16, [1, 8192]), "number of processes per CPU";
        pages: count(Unit::Pages, 1, [1, 1 << 16]), "pages that an op maps and unmaps";
        populate: switch(true),
            "whether ops map with MAP_POPULATE; off: pages are faulted in by touching them";
        madvise: choice(Advise, "mix"), "madvise advice in each op, before the pages are touched";
        swap: choice(Swap),
            "swap area: off; zeromap: zero-filled pages are not written; disk: they are written \
             (sim)", sim;
        beside: choice(Beside),
            "mixed: on every 16th CPU, a process also locks, migrates, ages and reclaims 64 pages";
        swap_mb_per_s: real(Unit::One, 0.0, [0.0, 1e6]),
            "throughput of the swap device in MB/s; 0: that of the profile (sim)", sim;
        duration_ms: real(Unit::Ms, 20.0, [0.1, 600_000.0]),
            "duration of the window in which ops are counted (sim: virtual time)";
        move_processes_per_cpu: count(Unit::One, 16, [1, 8192]),
            "as processes_per_cpu, for arms whose ops migrate their pages (`bind=move`)";
        move_duration_ms: real(Unit::Ms, 20.0, [0.1, 600_000.0]),
            "as duration_ms, for arms whose ops migrate their pages (`bind=move`)";
        user_ns: count(Unit::Ns, 315, [0, 1_000_000]), "CPU time in user mode per op";
    }
}

names! {
    /// The swap area.
    pub enum Swap {
        /// No swap area.
        Off = "off",
        /// Zero-filled pages are recorded in a bitmap and not written.
        Zeromap = "zeromap",
        /// Zero-filled pages are written like others.
        Disk = "disk",
    }
}
names! {
    /// Additional processes that do not run ops.
    pub enum Beside {
        /// No additional processes.
        None = "none",
        /// One process on every 16th CPU that locks, migrates, ages and reclaims memory.
        Mixed = "mixed",
    }
}

/// The advice that an op gives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Advise {
    /// No advice.
    Never,
    /// The advice of an iteration of stress-ng's stressor: a random one, each of [`DRAWN`] being
    /// equally likely, then [`ALWAYS`].
    Mix,
    /// Always this advice.
    Only(Advice),
}

/// The advice that stress-ng draws from (`stress_madvise_randomize` in `core-madvise.c`). Its list
/// does not have `MADV_DONTNEED` and `MADV_FREE`, after which its check of contents would fail, nor
/// `MADV_COLLAPSE`, `MADV_WIPEONFORK` and `MADV_KEEPONFORK`.
const DRAWN: [Advice; 16] = [
    Advice::Normal,
    Advice::Random,
    Advice::Sequential,
    Advice::WillNeed,
    Advice::DontFork,
    Advice::DoFork,
    Advice::Mergeable,
    Advice::Unmergeable,
    Advice::HugePage,
    Advice::NoHugePage,
    Advice::DontDump,
    Advice::DoDump,
    Advice::Cold,
    Advice::PageOut,
    Advice::PopulateRead,
    Advice::PopulateWrite,
];
/// The advice that follows in every iteration (`stress_madvise_mergeable`, and
/// `stress_mincore_touch_pages` in `core-mincore.c`).
const ALWAYS: [Advice; 2] = [Advice::Mergeable, Advice::PopulateRead];

impl Named for Advise {
    const NAMES: &'static [&'static str] = &[
        "none",
        "mix",
        "dontneed",
        "free",
        "cold",
        "pageout",
        "populate_read",
        "populate_write",
        "willneed",
        "collapse",
        "hugepage",
        "nohugepage",
        "dontfork",
        "dofork",
        "wipeonfork",
        "keeponfork",
        "normal",
        "random",
        "sequential",
        "mergeable",
        "unmergeable",
        "dontdump",
        "dodump",
    ];
    fn named(name: &str) -> Self {
        match Self::NAMES.iter().position(|&known| known == name) {
            Some(0) | None => Self::Never,
            Some(1) => Self::Mix,
            Some(at) => Self::Only(Advice::ALL[at - 2]),
        }
    }
}

const _: () = assert!(Advise::NAMES.len() == Advice::ALL.len() + 2);

tally! {
    /// Counters of the processes.
    pub struct Tally {
        /// Ops that ended within the window.
        ended,
        /// Time from the start to the end of these ops, in ns.
        took_ns,
        /// Ops started, within or outside the window.
        begun,
        /// Ops that failed.
        failures,
        /// CPU time in user mode of ops, in ns.
        user_ns,
        /// Pages that did not contain the expected value.
        damaged,
        /// Processes that were not yet created at the common start.
        late,
        /// Processes that could not be created.
        unmade,
        /// CPU time of all ops in user mode, in ns, if the machine reports it.
        cpu_user_ns,
        /// CPU time of all ops in kernel mode, in ns, if the machine reports it.
        cpu_system_ns,
        /// Rounds of the additional processes.
        rounds,
        /// Failed rounds of the additional processes.
        round_failures,
    }
}

/// The schedule of all processes. Times in ns.
#[derive(Clone, Debug)]
pub struct Plan {
    per_cpu: usize,
    beside: Beside,
    pages: u64,
    populate: bool,
    advise: Advise,
    /// Whether an op binds its pages to a node and has them migrated there.
    bind: Present,
    user_ns: u64,
    window: Window,
}

/// Additional time to fill the page caches per further page of an op, when all CPUs of a node fill
/// their caches concurrently.
const WARMING_NS: u64 = 400_000;
/// Duration of ops before the window, until lock contention is at its steady state; a quarter of
/// the window if that is longer. Applies only to machines that can start counting locks at the
/// window.
const WARM_SIM_NS: u64 = 1_000_000;
/// A window must be at least so many ops long. Otherwise only its shortest ops, or those from
/// before the contention, end in it.
const OPS_PER_WINDOW: u64 = 4;
/// Distance in CPUs between the additional processes.
const BESIDE_EVERY: usize = 16;
/// Slots of the swap area: 4 GiB.
const SWAP_PAGES: u32 = 1 << 20;

impl Workload for Churn {
    const FILE: Source = study_file!("churn");
    const METRICS: &'static [Metric<Self>] = metrics::METRICS;
    const CHOICES: &'static [Choice] = &[Choice { key: "bind", values: &["stay", "move"] }];
    const WATCHES: &'static [Watch] = &[Watch::Locks, Watch::Lru, Watch::Calls];
    const ATTEMPTS: u32 = 4;
    type Params = Params;
    type Plan = Plan;
    type Tally = Tally;
    type Inside = ();
    type Meter = metrics::Batches;

    fn plan(env: &Env<Self>) -> Result<Plan, String> {
        let params = &env.params;
        let bind = bind_of(env);
        let (per_cpu, duration_ms) = match bind {
            Present::Stay => (params.processes_per_cpu, params.duration_ms),
            _ => (params.move_processes_per_cpu, params.move_duration_ms),
        };
        let begin_ns = ready_ns(env, per_cpu * env.cpus() as u64);
        let begin_ns = begin_ns + WARMING_NS * (params.pages - 1);
        let warm_ns = match env.on() {
            Target::Sim => WARM_SIM_NS.max((duration_ms * 1e6) as u64 / 4),
            Target::Threads | Target::Live => 0,
        };
        Ok(Plan {
            per_cpu: per_cpu as usize,
            beside: params.beside,
            pages: params.pages,
            populate: params.populate,
            advise: params.madvise,
            bind,
            user_ns: params.user_ns,
            window: Window::new(begin_ns, warm_ns, duration_ms),
        })
    }
    fn phases(plan: &Plan) -> Phases {
        plan.window.phases()
    }
    fn set_up(env: &Env<Self>, _: &Plan, mm: &mut MmConfig) {
        let on = SwapConfig { pages: SWAP_PAGES, ..SwapConfig::default() };
        mm.swap = match env.params.swap {
            Swap::Off => SwapConfig::default(),
            Swap::Zeromap => on,
            Swap::Disk => SwapConfig { zeromap: Zeromap::Off, ..on },
        };
    }
    fn simulate(env: &Env<Self>, _: &Plan, sim: &mut SimConfig) {
        if env.params.swap_mb_per_s > 0.0 {
            sim.profile.swap.bytes_per_us = (env.params.swap_mb_per_s.round() as u64).max(1);
        }
    }
    fn needs(env: &Env<Self>, plan: &Plan) -> Needs {
        let processes = (plan.per_cpu * env.cpus()) as u64;
        Needs { processes, pages: processes * plan.pages }
    }
    /// There is no second run with additional processes: ops then have no CPU time of their own,
    /// and a single CPU would be shared with as many additional processes as sixteen CPUs are.
    fn second(env: &Env<Self>) -> Result<Option<Env<Self>>, StudyError> {
        let alone = env.cpus() > 1 && env.params.beside == Beside::None;
        alone.then(|| env.second_on_one_cpu()).transpose()
    }
    fn damaged_pages(tally: &Tally) -> u64 {
        tally.damaged
    }
    fn verdict(seen: &Seen<'_, Self>) -> Verdict {
        let Tally { late, unmade, begun, ended, took_ns, .. } = seen.tally;
        // The run on one CPU may lack a value to compare with; then there is no ratio.
        let first = seen.env.part == Part::First;
        let (op_ns, window_ns) = (took_ns / ended.max(1), seen.window_ns());
        match seen.on() {
            Target::Live if begun == 0 => Verdict::Useless(format!(
                "no op started in the window: {late} processes were not ready when it began, {:.1} \
                 s after the start, and {unmade} could not be created; repeat when the computer \
                 is idle, use fewer --cpus, or increase --set {}",
                Self::phases(seen.plan).from_ns as f64 / 1e9,
                window_key(seen.env)
            )),
            Target::Live if late > 0 => Verdict::Poor,
            _ if !first => Verdict::Good,
            _ if ended == 0 => Verdict::Hopeless(format!(
                "no op ended in the window of {:.1} ms: increase --set {}",
                window_ns as f64 / 1e6,
                window_key(seen.env)
            )),
            _ if window_ns < OPS_PER_WINDOW * op_ns => {
                let why = format!(
                    "an op took {:.3} ms on average, and a window must be {OPS_PER_WINDOW} times \
                     as long or longer, not {:.3} ms: increase --set {}",
                    op_ns as f64 / 1e6,
                    window_ns as f64 / 1e6,
                    window_key(seen.env)
                );
                // The length of ops varies little with the seed, but near the limit it decides.
                let is_far = 2 * window_ns < OPS_PER_WINDOW * op_ns;
                if is_far { Verdict::Hopeless(why) } else { Verdict::Useless(why) }
            }
            _ => Verdict::Good,
        }
    }
    fn remarks(params: &Params, _: Target) -> Vec<String> {
        let Params { processes_per_cpu, duration_ms, move_duration_ms, .. } = params;
        vec![format!(
            "{processes_per_cpu} processes per CPU run ops for {duration_ms} ms. Where ops migrate \
             their pages (`bind=move`), {} do for {move_duration_ms} ms. cpu_ns_per_op_alone is \
             from a second run on one CPU; amplification is cpu_ns_per_op divided by it.",
            params.move_processes_per_cpu
        )]
    }
    fn tasks(params: &Params, cpus: usize) -> u64 {
        // Each CPU has a process that starts the others, and possibly an additional process.
        (params.processes_per_cpu.max(params.move_processes_per_cpu) + 2) * cpus as u64
    }
    fn details(seen: &Seen<'_, Self>, result: &mut SeedResult) {
        if let Ok(host_ns) = seen.host_ns() {
            let begun = seen.tally.begun.max(1) as f64;
            result.host_metrics.insert("host_ns_per_op".to_owned(), host_ns / begun);
        } else {
            result.host_metrics.insert("late_processes".to_owned(), seen.tally.late as f64);
        }
    }

    fn run<S: System>(run: &Run<Self>, system: &S) {
        let cpus = 0..system.cpus();
        let mut processes = start_on(run, system, cpus.clone(), programs::start);
        if run.plan.beside == Beside::Mixed {
            let cpus = cpus.step_by(BESIDE_EVERY);
            processes.extend(start_on(run, system, cpus, programs::beside));
        }
        wait_for(system, processes);
    }
}

/// Whether ops of the arm migrate their pages.
fn bind_of(env: &Env<Churn>) -> Present {
    match env.arm.chosen("bind") {
        Some("move") => Present::Move,
        _ => Present::Stay,
    }
}

/// The parameter that sets the length of the arm's window.
fn window_key(env: &Env<Churn>) -> &'static str {
    match bind_of(env) {
        Present::Stay => "duration_ms",
        _ => "move_duration_ms",
    }
}
