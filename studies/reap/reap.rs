//! The study `reap`: the end of an address space, emptied by its exit and by others who help.
//!
//! One seed of one arm is one victim: a process that is killed, and another whose threads call
//! process_mrelease for it in the same moment.

mod layout;
mod meter;
mod metrics;
mod plan;
mod programs;

use layout::Layout;
use meter::ReapMeter;
use mmscale_arch::Machine;
use mmscale_document::On;
use mmscale_document::OomEvents;
use mmscale_harness::{
    Env, Metric, Needs, Phases, Run, SeedResult, Seen, Source, Unit, Verdict, Watch, Workload,
    names, params, study_file,
};
use mmscale_kernel::Kernel;
use mmscale_mm::lru::LruPolicy;
use mmscale_mm::mm::MmConfig;
use mmscale_mm::oom::OomPolicy;
use mmscale_mm::swap::SwapDevice;
use mmscale_system::{CpuTime, ProcessId, System};
use plan::Plan;

/// The study.
#[derive(Clone, Debug)]
pub struct Reap;

params! {
    /// Its parameters.
    pub struct Params {
        layout: each(Layout), "what the victim's memory looks like";
        pages: count(Unit::Pages, 1024, [1024, 1 << 19]), "pages of the victim";
        walkers: count(Unit::One, 2, [1, 64]),
            "who empties it: its exit, and the others call process_mrelease";
        notice_ms: real(Unit::Ms, 0.0, [0.0, 10_000.0]),
            "how long the victim computes before it notices the signal";
        via: choice(Via),
            "a signal and process_mrelease, or its group's memory runs out", sim;
        delay_ms: count(Unit::Ms, 2000, [0, 60_000]),
            "how long the out-of-memory reaper leaves a victim to itself (via=oom)", sim;
        swapped_1024: count(Unit::One, 0, [0, 1024]),
            "share of the pages that are in swap, in 1/1024 (not with huge pages)", sim;
        swap: choice(Swap, "compressed"),
            "what swap is on: pages stay in the swap cache, or memory like zram", sim;
        file_1024: count(Unit::One, 0, [0, 512]),
            "share of the pages that are a file's, half of them shared, in 1/1024 (app)";
        lru: choice(Lists, "stock"), "policy of the LRU lists in arms that choose none", sim;
    }
}

names! {
    /// Why the victim dies, and how it is helped.
    pub enum Via {
        /// A signal; threads of another process call process_mrelease.
        Mrelease = "mrelease",
        /// Its group's memory is used up; the reaper of the out-of-memory killer.
        Oom = "oom",
    }
}
names! {
    /// What swap is on.
    pub enum Swap { Block = "block", Compressed = "compressed" }
}
names! {
    /// Policies of the LRU lists.
    pub enum Lists { Lazy = "lazy", Stock = "stock" }
}

/// What happened, by the machine's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct Happened {
    /// The process that is to die.
    victim: Option<ProcessId>,
    /// When that is due; its memory is there.
    kill_at_ns: Option<u64>,
    /// There is no memory to be had from then on.
    limited: bool,
    /// Just before the signal.
    killed_ns: Option<u64>,
    /// The process that killed the victim and helped is done.
    done: bool,
    /// The victim was gone, and its helpers were done.
    over_ns: Option<u64>,
    /// Calls of process_mrelease that took part, and those that came too late.
    helped: u32,
    too_late: u32,
    /// CPU time of the victim's killer, where the machine tells it.
    killer_cpu: Option<CpuTime>,
}

mmscale_harness::plain!(Happened {
    victim,
    kill_at_ns,
    limited,
    killed_ns,
    done,
    over_ns,
    helped,
    too_late,
    killer_cpu,
});

/// Longer than anything takes: there is no reaper.
const NEVER_MS: u64 = 3_600_000;

impl Workload for Reap {
    const FILE: Source = study_file!("reap");
    const METRICS: &'static [Metric<Self>] = metrics::METRICS;
    const ATTEMPTS: u32 = 1;
    const WATCHES: &'static [Watch] = &[Watch::Locks, Watch::Exits, Watch::Oom, Watch::Calls];
    type Params = Params;
    type Plan = Plan;
    type Tally = Happened;
    type Inside = ();
    type Meter = ReapMeter;

    fn plan(env: &Env<Self>) -> Result<Plan, String> {
        plan::plan(env)
    }
    fn phases(plan: &Plan) -> Phases {
        let end_ns = plan.kill_ns + plan.rest_ns;
        Phases { from_ns: plan.kill_ns, until_ns: u64::MAX, end_ns }
    }
    /// Sets swap, and what happens to a process that wants more memory than there is.
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
            // Where memory is to run out, swap is full.
            mm.swap.pages = match plan.via {
                Via::Oom => plan.swapped_pages() as u32,
                Via::Mrelease => params.pages as u32,
            };
        }
        if plan.via == Via::Oom {
            mm.groups = 2;
            mm.oom.policy = OomPolicy::Kill;
            let delay_ms = if plan.helpers == 0 { NEVER_MS } else { params.delay_ms };
            mm.oom.delay_ns = delay_ms * 1_000_000;
        }
    }
    fn needs(env: &Env<Self>, _: &Plan) -> Needs {
        Needs { processes: 4, pages: env.params.pages }
    }
    /// The victim's pages go with it; no program looks at them again.
    fn damaged_pages(_: &Happened) -> u64 {
        0
    }
    fn verdict(seen: &Seen<'_, Self>) -> Verdict {
        let in_time = |at_ns| at_ns <= seen.plan.kill_ns;
        if seen.on() == On::Sim && !seen.tally.kill_at_ns.is_some_and(in_time) {
            let what = "the victim's memory was not there when it was to be killed: costs are \
                        higher than the study has planned for";
            return Verdict::Useless(what.to_owned());
        }
        match metrics::life_ns(seen) {
            Ok(_) => Verdict::Good,
            Err(_) => {
                let what = "the victim was not killed, or has not come to its end";
                Verdict::Useless(what.to_owned())
            }
        }
    }
    fn remarks(params: &Params, on: On) -> Vec<String> {
        let helpers = params.walkers - 1;
        let other = match params.via {
            Via::Oom => "the reaper's is oom_reaper, which runs after a delay".to_owned(),
            _ if helpers == 1 => "the reaper's is process_mrelease, of one thread".to_owned(),
            _ => format!("the reaper's is process_mrelease, of {helpers} threads together"),
        };
        if on == On::Linux {
            return vec![format!(
                "From the signal to the end of the victim: exit_zap_ns and exit_tables_ns are the \
                 longest of any process of the run, in real time, and {other}."
            )];
        }
        vec![format!(
            "From the signal to the last frame: the exit's side is all that its last thread does \
             in do_exit, {other}. CPU time includes waits for spin locks, and not sleep. \
             amdahl_bound_ns is the exit's CPU time outside of unmap_vmas, and an equal share of \
             the rest for each walker, waits and spins for locks left out."
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
        if let Some(told) = seen.live().ok().and_then(|live| live.seen.as_ref()) {
            tell_oom(told.oom, result);
        }
    }

    /// Runs what can be run on any system, where no program sets a limit to the group's memory.
    fn run<S: System>(run: &Run<Self>, system: &S) {
        // A victim that is not killed has ended by itself: the verdict says so.
        let _ = programs::all(run, system, || Ok(()));
    }
    fn run_inside<A: Machine>(run: &Run<Self>, kernel: &Kernel<A>) {
        // The end of the run may come first.
        let _ = programs::all(run, kernel, || programs::limit(run, kernel));
    }
}

/// What the out-of-memory killer of the whole computer did meanwhile: a run that kills by itself
/// shows nothing but changes of adjustments.
fn tell_oom(oom: OomEvents, result: &mut SeedResult) {
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
