//! The study `pcp`: per-CPU page caches, the buddy allocator and zone->lock.
//!
//! One seed of one arm is one run of one workload: programs on all CPUs, a window in which events
//! are counted, and a census of free memory after the programs have stopped, before caches are
//! drained.
//!
//! | workload | description |
//! |---|---|
//! | `build` | short processes that share pages with their parent, fault, compute and exit |
//! | `purger` | threads that touch memory, and a few that free it for them |
//! | `exit` | large processes that all exit at the same time |
//! | `mixed` | short-lived memory among long-lived pages |
//! | `oom-edge` | blocks of several orders while nearly all memory is allocated |
//! | `compile` | a kernel build with the figures of recorded compilers |
//!
//! With `offline_mib`, a range of memory is also repeatedly taken offline and online.

mod build;
mod compile;
mod edge;
mod exit;
mod first;
mod frames;
mod meter;
mod metrics;
mod mixed;
mod offline;
mod plan;
mod purger;
mod worker;

use edge::EdgeTally;
use meter::PageMeter;
use mmscale_document::Target;
use mmscale_frames::page_alloc::Census;
use mmscale_harness::{
    Env, Metric, Needs, Phases, Run, SeedResult, Seen, Source, TooShort, Unit, Verdict, Workload,
    names, params, study_file, tally,
};
use mmscale_kernel::Os;
use mmscale_mm::lru::LruPolicy;
use mmscale_mm::memcg::GroupId;
use mmscale_mm::mm::MmConfig;
use mmscale_system::System;
use offline::OfflineTally;
use plan::Plan;

/// The workload of the study.
#[derive(Clone, Debug)]
pub struct Pcp;

params! {
    /// The parameters of the study.
    pub struct Params {
        workload: each(Kind),
            "workload: short processes, cross-CPU free, exits, fragmentation, low memory, or \
             compilers with recorded figures";
        memory_gib: count(Unit::One, 32, [1, 4096]), "memory of the machine in GiB (sim)", sim;
        lru: choice(Lists),
            "LRU policy of arms that choose none; with stock, contention on lru_lock hides that on \
             zone->lock (sim)", sim;
        groups: choice(Groups),
            "memory cgroups, each with its own LRU lists: one per CPU, one for all, or only the \
             root (sim)", sim;
        group_depth: count(Unit::One, 1, [1, 16]),
            "levels of memory cgroups below the root, with groups=cpu or one (sim)", sim;
        offline_mib: count(Unit::One, 0, [0, 4096]),
            "size in MiB of ranges that are repeatedly taken offline and online, unless a page is \
             in use; 0: none (sim)", sim;
        through: choice(AllocPath),
            "allocation path of `purger` and `exit`: system calls, or straight from the frame \
             allocator";
        build_ms: real(Unit::Ms, 5.0, [0.1, 60_000.0]), "length of the window of `build`";
        build_pages: count(Unit::Pages, 1024, [1, 1 << 20]),
            "mean number of pages per process of `build`";
        build_user_ns: count(Unit::Ns, 1000, [0, 1_000_000]),
            "CPU time in user mode after each page in `build`";
        compile_ms: real(Unit::Ms, 200.0, [0.1, 60_000.0]), "length of the window of `compile`";
        compile_pages: count(Unit::Pages, 16_000, [64, 1 << 20]),
            "mean number of pages per process of `compile`";
        compile_user_ns: count(Unit::Ns, 21_000, [0, 1_000_000]),
            "CPU time in user mode after each page in `compile`";
        compile_cache: switch(true),
            "whether files have all memory that no process of `compile` has (sim)", sim;
        compile_read_mb_per_s: count(Unit::One, 100, [0, 100_000]),
            "files that all CPUs read in `compile`, in MB per second (sim)", sim;
        purger_ms: real(Unit::Ms, 5.0, [0.1, 60_000.0]), "length of the window of `purger`";
        purger_chunk_pages: count(Unit::Pages, 1024, [1, 1 << 20]),
            "pages that are freed together in `purger`";
        purger_user_ns: count(Unit::Ns, 1000, [0, 1_000_000]),
            "CPU time in user mode after each page in `purger`";
        exit_pages: count(Unit::Pages, 1024, [1, 1 << 20]),
            "pages per thread of the exiting processes of `exit`";
        mixed_ms: real(Unit::Ms, 5.0, [0.1, 60_000.0]), "length of the window of `mixed`";
        mixed_pages: count(Unit::Pages, 1024, [8, 1 << 20]),
            "MiB per CPU in `mixed`, of which a quarter is for long-lived pages";
        edge_ms: real(Unit::Ms, 5.0, [0.1, 60_000.0]),
            "length of the window of `oom-edge` (sim)", sim;
        edge_free_percent: real(Unit::One, 2.0, [0.01, 2.0]),
            "maximum share of memory that is free in `oom-edge`, in percent (sim)", sim;
        edge_user_ns: count(Unit::Ns, 1000, [0, 1_000_000]),
            "CPU time in user mode after each page in `oom-edge` (sim)", sim;
    }
}

names! {
    /// The workloads, in the order in which they run.
    pub enum Kind {
        Build = "build",
        Purger = "purger",
        Exit = "exit",
        Mixed = "mixed",
        Edge = "oom-edge",
        Compile = "compile",
    }
}
names! {
    /// Policies of the LRU lists.
    pub enum Lists { Lazy = "lazy", Stock = "stock" }
}
names! {
    /// Memory groups.
    pub enum Groups { Cpu = "cpu", One = "one", Root = "root" }
}
names! {
    /// The allocation path of `purger` and `exit`: address spaces, or the frame allocator.
    pub enum AllocPath { System = "system", Frames = "frames" }
}

tally! {
    /// Counters of the programs.
    pub struct Tally {
        /// CPU time in user mode that started in the window, in ns.
        user_ns,
        /// Pages that did not contain the value that their program had written.
        damaged,
        /// Calls that failed for lack of memory.
        failures,
        /// Pages that were touched for the first time, within or outside the window.
        pages,
        /// Pages that processes of `compile` touched for the first time in the window.
        compiled,
    }
}

/// Results that are available only inside this program's memory manager.
#[derive(Debug, Default)]
pub struct AllocatorData {
    /// Free memory before programs start and after they have stopped, if it was counted.
    before: Option<Census>,
    after: Option<Census>,
    /// The sum of the min watermarks of all zones, in pages.
    min_mark: u64,
    edge: EdgeTally,
    offline: OfflineTally,
}

/// Minimum window of `oom-edge` for the shares of failed requests. It runs out of memory about once
/// per ms.
const NEEDED_EDGE_MS: f64 = 2.0;

impl Workload for Pcp {
    const FILE: Source = study_file!("pcp");
    const METRICS: &'static [Metric<Self>] = metrics::METRICS;
    const ATTEMPTS: u32 = 4;
    type Params = Params;
    type Plan = Plan;
    type Tally = Tally;
    type Inside = AllocatorData;
    type Meter = PageMeter;

    fn plan(env: &Env<Self>) -> Result<Plan, String> {
        plan::plan(env)
    }
    fn phases(plan: &Plan) -> Phases {
        Phases { from_ns: plan.at.from_ns, until_ns: plan.at.until_ns, end_ns: plan.at.end_ns }
    }
    fn memory_gib(params: &Params) -> Option<u64> {
        Some(params.memory_gib)
    }
    fn set_up(env: &Env<Self>, _: &Plan, mm: &mut MmConfig) {
        mm.groups = match env.params.groups {
            Groups::Cpu => (env.cpus() + 1).min(GroupId::MAX),
            Groups::One => 2,
            Groups::Root => 1,
        };
        if env.params.groups != Groups::Root {
            mm.group_depth = env.params.group_depth as usize;
        }
        mm.lru = match env.params.lru {
            Lists::Lazy => LruPolicy::Lazy,
            Lists::Stock => LruPolicy::Stock,
        };
    }
    fn needs(env: &Env<Self>, plan: &Plan) -> Needs {
        Needs { processes: 8 * env.cpus() as u64, pages: plan.wants_pages }
    }
    fn watched_ns(plan: &Plan) -> (u64, u64) {
        (plan.at.begin_ns, u64::MAX)
    }
    fn damaged_pages(tally: &Tally) -> u64 {
        tally.damaged
    }
    fn verdict(seen: &Seen<'_, Self>) -> Verdict {
        let useless = |why: &str| Verdict::Useless(why.to_owned());
        match seen.inside().map(|memory| memory.after) {
            Ok(None) => useless("the run ended before free memory was counted"),
            Ok(Some(_)) if metrics::pages(seen) == Ok(0.0) => {
                useless("no page was allocated or freed in the window: increase its length")
            }
            Err(_) if seen.tally.pages == 0 => {
                useless("no page was touched: increase the length of the window")
            }
            _ => Verdict::Good,
        }
    }
    fn window_ns(plan: &Plan) -> Option<u64> {
        let Phases { from_ns, until_ns, .. } = Self::phases(plan);
        (!matches!(plan.load, plan::LoadKind::Exit(_))).then(|| until_ns - from_ns)
    }
    fn remarks(params: &Params, on: Target) -> Vec<String> {
        let window = match params.workload {
            Kind::Build => format!("{} ms", params.build_ms),
            Kind::Purger => format!("{} ms", params.purger_ms),
            Kind::Exit => {
                let (threads, pages) = (exit::THREADS, params.exit_pages);
                format!("the exit of processes with {threads} times {pages} pages")
            }
            Kind::Mixed => format!("{} ms", params.mixed_ms),
            Kind::Edge => format!("{} ms", params.edge_ms),
            Kind::Compile => format!("{} ms", params.compile_ms),
        };
        if on == Target::Live {
            return vec![format!(
                "Pages and waits are counted in a window: {window}. Pages are those that programs \
                 touched. system_ns_per_page includes the system time of all processes of the run, \
                 from fork to exit."
            )];
        }
        vec![format!(
            "Values per page and locks are of a window: {window}. Pages are those allocated or \
             those freed in it, whichever are more. Free memory is counted after programs have \
             stopped, before any cache is drained."
        )]
    }
    fn too_short(params: &Params, on: Target) -> Vec<TooShort> {
        let edge = on != Target::Live && params.workload == Kind::Edge;
        let of_failures = (edge && params.edge_ms < NEEDED_EDGE_MS).then(|| TooShort {
            metrics: vec![
                "alloc_failures",
                "order0_failures",
                "order0_failures_with_free_pages",
                "order3_success_share",
                "order9_success_share",
            ],
            needs: format!(
                "edge_ms={NEEDED_EDGE_MS} or more, as memory runs out about once per ms"
            ),
        });
        of_failures.into_iter().collect()
    }
    fn details(seen: &Seen<'_, Self>, result: &mut SeedResult) {
        if let (Ok(host_ns), Ok(given)) = (seen.host_ns(), seen.sum(|cpu| cpu.all_pages)) {
            result.host_metrics.insert("host_ns_per_page".to_owned(), host_ns / given.max(1.0));
        }
        let times = plan::stretch(seen.env);
        if times > 1 {
            result.host_metrics.insert("window_stretched".to_owned(), times as f64);
        }
    }

    fn run<S: System>(run: &Run<Self>, system: &S) {
        first::run(run, system);
    }
    fn run_inside(run: &Run<Self>, os: &Os) {
        first::run_inside(run, os);
    }
}
