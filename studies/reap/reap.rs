//! The study `reap`: the teardown of an address space by its exit and by helpers.
//!
//! One seed of one arm is one victim: a process that is killed, and another process whose threads
//! call process_mrelease on it at the same time.

mod layout;
mod meter;
mod metrics;
mod plan;
mod programs;

use layout::Layout;
use meter::ReapMeter;
use mmscale_document::OomEvents;
use mmscale_document::Target;
use mmscale_harness::{
    Env, Metric, Needs, Phases, Run, SeedResult, Seen, Source, Unit, Verdict, Watch, Workload,
    names, params, study_file,
};
use mmscale_kernel::Os;
use mmscale_mm::lru::LruPolicy;
use mmscale_mm::mm::MmConfig;
use mmscale_mm::oom::OomPolicy;
use mmscale_mm::swap::SwapDevice;
use mmscale_system::{CpuTime, ProcessId, System};
use plan::Plan;

/// The workload of the study.
#[derive(Clone, Debug)]
pub struct Reap;

params! {
    /// The parameters of the study.
    pub struct Params {
        layout: each(Layout),
            "memory layout of the victim: VMAs, and which of their pages are present";
        pages: count(Unit::Pages, 1024, [1024, 1 << 19]), "number of pages of the victim";
        walkers: count(Unit::One, 2, [1, 64]),
            "number of walkers that tear the victim down: its exit, and callers of \
             process_mrelease";
        notice_ms: real(Unit::Ms, 0.0, [0.0, 10_000.0]),
            "time that the victim computes before it notices the signal";
        via: choice(Via),
            "mrelease: a signal and process_mrelease; oom: the victim's cgroup runs out of memory \
             (sim)", sim;
        delay_ms: count(Unit::Ms, 2000, [0, 60_000]),
            "delay of the OOM reaper after a kill, with via=oom (sim)", sim;
        swapped_1024: count(Unit::One, 0, [0, 1024]),
            "share of the victim's pages in swap, in 1/1024, not with layout=huge (sim)", sim;
        swap: choice(Swap, "compressed"),
            "swap device: block (pages stay in the swap cache) or compressed (memory, like zram) \
             (sim)", sim;
        file_1024: count(Unit::One, 0, [0, 512]),
            "share of the pages that map a file, half of them shared, in 1/1024 (layout=app)";
        group_depth: count(Unit::One, 0, [0, 16]),
            "levels of memory cgroups between the root and the victim; 0: it is in the root (sim)",
            sim;
        lru: choice(Lists, "stock"), "LRU policy of arms that choose none (sim)", sim;
    }
}

names! {
    /// The cause of the victim's death, and the help in reaping it.
    pub enum Via {
        /// A signal; threads of another process call process_mrelease.
        Mrelease = "mrelease",
        /// The victim's group runs out of memory; the OOM reaper helps.
        Oom = "oom",
    }
}
names! {
    /// The swap device.
    pub enum Swap { Block = "block", Compressed = "compressed" }
}
names! {
    /// Policies of the LRU lists.
    pub enum Lists { Lazy = "lazy", Stock = "stock" }
}

/// Events of a run, with times of the machine's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct EventTimes {
    /// The victim.
    victim: Option<ProcessId>,
    /// Time of the kill; set when the victim's memory is complete.
    kill_at_ns: Option<u64>,
    /// Whether the group's memory has been limited.
    limited: bool,
    /// Time just before the signal.
    killed_ns: Option<u64>,
    /// Whether the process that killed the victim and helped has finished.
    done: bool,
    /// Time at which the victim was gone and its helpers had finished.
    over_ns: Option<u64>,
    /// Calls of process_mrelease that reaped memory, and those that were too late.
    helped: u32,
    too_late: u32,
    /// Helpers besides the killer that have finished.
    finished: u32,
    /// CPU time of the victim's killer, if the machine reports it.
    killer_cpu: Option<CpuTime>,
}

mmscale_harness::plain!(EventTimes {
    victim,
    kill_at_ns,
    limited,
    killed_ns,
    done,
    over_ns,
    helped,
    too_late,
    finished,
    killer_cpu,
});

/// Longer than any run: the reaper never starts.
const NEVER_MS: u64 = 3_600_000;

impl Workload for Reap {
    const FILE: Source = study_file!("reap");
    const METRICS: &'static [Metric<Self>] = metrics::METRICS;
    const ATTEMPTS: u32 = 1;
    const WATCHES: &'static [Watch] = &[Watch::Locks, Watch::Exits, Watch::Oom, Watch::Calls];
    type Params = Params;
    type Plan = Plan;
    type Tally = EventTimes;
    type Inside = ();
    type Meter = ReapMeter;

    fn plan(env: &Env<Self>) -> Result<Plan, String> {
        plan::plan(env)
    }
    fn phases(plan: &Plan) -> Phases {
        let end_ns = plan.kill_ns + plan.rest_ns;
        Phases { from_ns: plan.kill_ns, until_ns: u64::MAX, end_ns }
    }
    /// Configures swap and the handling of memory exhaustion.
    fn set_up(env: &Env<Self>, plan: &Plan, mm: &mut MmConfig) {
        let params = &env.params;
        mm.lru = match params.lru {
            Lists::Lazy => LruPolicy::Lazy,
            Lists::Stock => LruPolicy::Stock,
        };
        if plan.swapped_1024 > 0 {
            mm.swap.device = match params.swap {
                Swap::Block => SwapDevice::Block,
                Swap::Compressed => SwapDevice::Compressed,
            };
            // For memory to run out, swap must be full.
            mm.swap.pages = match plan.via {
                Via::Oom => plan.swapped_pages() as u32,
                Via::Mrelease => params.pages as u32,
            };
        }
        if params.group_depth > 0 || plan.via == Via::Oom {
            mm.groups = 2;
            mm.group_depth = params.group_depth.max(1) as usize;
        }
        if plan.via == Via::Oom {
            mm.oom.policy = OomPolicy::Kill;
            let delay_ms = if plan.helpers == 0 { NEVER_MS } else { params.delay_ms };
            mm.oom.delay_ns = delay_ms * 1_000_000;
        }
    }
    fn needs(env: &Env<Self>, _: &Plan) -> Needs {
        Needs { processes: 4, pages: env.params.pages }
    }
    /// The victim's pages are freed with it; no program reads them again.
    fn damaged_pages(_: &EventTimes) -> u64 {
        0
    }
    fn verdict(seen: &Seen<'_, Self>) -> Verdict {
        let in_time = |at_ns| at_ns <= seen.plan.kill_ns;
        if seen.on() == Target::Sim && !seen.tally.kill_at_ns.is_some_and(in_time) {
            let what = "the victim's memory was not complete when it was to be killed: costs are \
                        higher than planned for";
            return Verdict::Useless(what.to_owned());
        }
        match metrics::life_ns(seen) {
            Ok(_) => Verdict::Good,
            Err(_) => {
                let what = "the victim was not killed, or has not ended";
                Verdict::Useless(what.to_owned())
            }
        }
    }
    fn remarks(params: &Params, on: Target) -> Vec<String> {
        let helpers = params.walkers - 1;
        let other = match params.via {
            Via::Oom => {
                "reaper_* metrics are those of oom_reaper, which runs after a delay".to_owned()
            }
            _ if helpers == 1 => {
                "reaper_* metrics are those of process_mrelease in one thread".to_owned()
            }
            _ => format!(
                "reaper_* metrics are those of process_mrelease in {helpers} threads together"
            ),
        };
        if on == Target::Live {
            return vec![format!(
                "Measured from the signal to the end of the victim. exit_zap_ns and exit_tables_ns \
                 are the longest of any process of the run, in real time; {other}."
            )];
        }
        vec![format!(
            "Measured from the signal to the last frame. exit_* metrics are those of do_exit in \
             the victim's last thread; {other}. CPU time includes waits for spin locks, but not \
             sleep. amdahl_bound_ns is the exit's CPU time outside of unmap_vmas plus an equal \
             share of the rest per walker, without lock waits."
        )]
    }
    fn details(seen: &Seen<'_, Self>, result: &mut SeedResult) {
        if let Ok(host_ns) = seen.host_ns() {
            let pages = seen.env.params.pages as f64;
            result.host_metrics.insert("host_ns_per_page".to_owned(), host_ns / pages);
        }
        if let Ok(calls) = seen.calls() {
            result.calls = metrics::trees(calls, metrics::reaper(seen));
        }
        if let Some(watched) = seen.live().ok().and_then(|live| live.seen.as_ref()) {
            add_oom_metrics(watched.oom, result);
        }
    }

    /// Runs the programs on a system where no program can limit the group's memory.
    fn run<S: System>(run: &Run<Self>, system: &S) {
        // An error means that the victim ended by itself, which the verdict reports.
        let _ = programs::all(run, system, || Ok(()));
    }
    fn run_inside(run: &Run<Self>, os: &Os) {
        // The end of the run may come first.
        let _ = programs::all(run, os, || programs::limit(run, os));
    }
}

/// Reports the activity of the OOM killer on the whole computer. A run that kills the victim by
/// itself should show only changes of oom_score_adj.
fn add_oom_metrics(oom: OomEvents, result: &mut SeedResult) {
    let events = [
        ("oom_victims", oom.marked),
        ("oom_reaper_woken", oom.woken),
        ("oom_reaping_begun", oom.started),
        ("oom_reaping_finished", oom.finished),
        ("oom_reaping_skipped", oom.skipped),
        ("oom_score_adj_changed", oom.adjusted),
    ];
    for (name, count) in events.into_iter().filter(|(_, count)| *count > 0) {
        result.host_metrics.insert(name.to_owned(), count as f64);
    }
}
