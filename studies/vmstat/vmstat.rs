//! The study `vmstat`: the per-CPU upkeep tick, pcp decay and zone->lock.
//!
//! On every CPU, a process runs bursts of mapping, touching and unmapping like `stress-ng --vm`,
//! and computes in between so that no CPU becomes idle. A worker of `stress-ng --vm` maps a region,
//! writes all of it, checks it for a while, unmaps it, and repeats; workers start one after another
//! and drift apart. Here each process maps `burst_pages` pages and writes each, computes while it
//! holds them, checks what it wrote, unmaps them, and computes for the rest of the period.
//!
//! One seed of one arm consists of two runs of the same machine. The first runs the workload for
//! `duration_s` and provides all metrics except `high_decay_ns`. The second runs one burst on each
//! of eight CPUs, which then only compute, for at most `decay_s`; the other CPUs are idle. It
//! provides `high_decay_ns`.

mod metrics;
mod ticks;
mod worker;

pub use ticks::Ticks;

use crate::kept::Kept;
use mmscale_arch::{LockClass, Op};
use mmscale_document::{PerCpu, Target};
use mmscale_harness::{
    Env, Metric, Needs, Part, Phases, Run, SeedResult, Seen, Source, StudyError, TooShort, Unit,
    Workload, names, params, start_on, study_file, tally, wait_for,
};
use mmscale_kernel::Os;
use mmscale_mm::mm::MmConfig;
use mmscale_mm::vmstat_work;
use mmscale_sim::{HoldScale, SimConfig};
use mmscale_system::{Errno, System};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use worker::{monitor_zones, work};

/// The workload of the study.
#[derive(Clone, Debug)]
pub struct Vmstat;

params! {
    /// The parameters of the study.
    pub struct Params {
        interval_ms: count(Unit::Ms, 1000, [10, 60_000]), "interval of the upkeep tick (sim)", sim;
        burst_pages: count(Unit::Pages, 4096, [1, 1 << 20]),
            "pages that a burst allocates and frees";
        period_ms: count(Unit::Ms, 2000, [1, 600_000]),
            "mean time between the starts of two bursts of a CPU";
        duty_percent: count(Unit::One, 50, [0, 100]),
            "share of a period during which a burst's pages are held, in percent";
        warm_s: real(Unit::Seconds, 0.0, [0.0, 3600.0]),
            "time before the window, in which programs start and the shepherd begins the ticks of \
             all CPUs; no metric counts it (sim)", sim;
        duration_s: real(Unit::Seconds, 20.0, [0.01, 3600.0]),
            "duration of the window (sim: virtual time)";
        at_end: choice(AtEnd),
            "apart: bursts end at their scheduled times; together: all bursts end with the run, \
             as those of stress-ng end at its time-out";
        spare_percent: count(Unit::One, 0, [0, 1000]),
            "memory above the high watermark that is free when programs start, in percent of what \
             all bursts hold; 0: all memory (sim)", sim;
        zoneinfo_ms: count(Unit::Ms, 0, [0, 600_000]),
            "time between two reads of /proc/zoneinfo by a monitor; 0: no monitor";
        hold_scale: real(Unit::One, 1.0, [0.01, 100.0]),
            "factor on the duration of work done while zone->lock is held (sim)", sim;
        work_scale: real(Unit::One, 1.0, [0.01, 100.0]),
            "factor on the kernel's own work, as a debugging kernel has, without clearing and \
             copying pages (sim)", sim;
        decay_s: real(Unit::Seconds, 40.0, [0.0, 3600.0]),
            "maximum duration of the second run, which measures high_decay_ns; 0: no second run \
             (sim)", sim;
        hotplug: switch(false), "whether CPUs go offline and online during the run (sim)", sim;
        requeue: choice(Requeue),
            "needed: a tick with nothing to do stops until it is needed; always: it continues \
             (sim)", sim;
    }
}

impl Params {
    fn interval_ns(&self) -> u64 {
        self.interval_ms * 1_000_000
    }
    fn warm_ns(&self) -> u64 {
        (self.warm_s * 1e9) as u64
    }
    fn decay_ns(&self) -> u64 {
        (self.decay_s * 1e9) as u64
    }
}

names! {
    /// When a tick with nothing to do is queued again.
    pub enum Requeue {
        /// When it is needed.
        Needed = "needed",
        /// After an interval.
        Always = "always",
    }
}

names! {
    /// How the bursts end that are active when time is up.
    pub enum AtEnd {
        /// When they would have ended.
        Apart = "apart",
        /// With the run.
        Together = "together",
    }
}

tally! {
    /// Counters of the workers.
    pub struct Tally {
        /// Pages that were written.
        pages_allocated,
        /// Failed allocations, each of which ended its burst early.
        failures,
        /// Pages that did not contain the value that their worker had written.
        damaged,
    }
}

/// Index into [`Run::samples`]: times at which the pages of workers' last bursts had been freed.
const LAST_BURST_END: usize = 0;

/// The schedule of all workers. Times in ns.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Pages that a burst allocates and then frees.
    burst_pages: u64,
    /// Time between the starts of two bursts, varied by up to 25 %.
    period_ns: u64,
    /// Share of a period during which the pages of a burst are held, in percent.
    duty_percent: u64,
    /// Number of bursts of each worker; afterwards it computes.
    bursts: u64,
    /// Start of the window in which events count.
    from_ns: u64,
    /// Time after which workers start no burst; they return when their last burst is over.
    until_ns: u64,
    /// Workers run on CPUs whose number is a multiple of this; the other CPUs are idle.
    stride: usize,
    /// Whether CPUs go offline and online while the workers run.
    hotplug: bool,
    at_end: AtEnd,
    /// Memory above the high watermark that is free when programs start, in pages.
    spare_pages: Option<u64>,
    /// Time between two reads of /proc/zoneinfo; 0: there is no monitor.
    zoneinfo_ns: u64,
}

/// Workers of the second run: the decay of a CPU's `high` does not depend on that of other CPUs.
const DECAY_WORKERS: usize = 8;
/// Time for which a CPU is offline with `hotplug`.
const AWAY_NS: u64 = 1_500_000_000;
/// Time until the metrics of page caches are stable, as observed in runs of 10, 20, 40 and 60 s.
const SETTLED_S: f64 = 20.0;

impl Workload for Vmstat {
    const FILE: Source = study_file!("vmstat");
    const METRICS: &'static [Metric<Self>] = metrics::METRICS;
    type Params = Params;
    type Plan = Plan;
    type Tally = Tally;
    type Inside = ();
    type Meter = Ticks;

    fn plan(env: &Env<Self>) -> Result<Plan, String> {
        let params = &env.params;
        // The ticks of a live kernel have begun long before.
        let from_ns = if env.on() == Target::Live { 0 } else { params.warm_ns() };
        let plan = Plan {
            burst_pages: params.burst_pages,
            period_ns: params.period_ms * 1_000_000,
            duty_percent: params.duty_percent,
            bursts: u64::MAX,
            from_ns,
            until_ns: from_ns + (params.duration_s * 1e9) as u64,
            stride: 1,
            hotplug: params.hotplug,
            at_end: params.at_end,
            spare_pages: spare_pages(env),
            zoneinfo_ns: params.zoneinfo_ms * 1_000_000,
        };
        Ok(match env.part {
            Part::First => plan,
            Part::Second => Plan {
                bursts: 1,
                from_ns: 0,
                until_ns: plan.period_ns * 2 + params.decay_ns(),
                stride: env.cpus().div_ceil(DECAY_WORKERS),
                hotplug: false,
                spare_pages: None,
                zoneinfo_ns: 0,
                ..plan
            },
        })
    }
    fn phases(plan: &Plan) -> Phases {
        Phases { from_ns: plan.from_ns, ..Phases::whole(plan.until_ns) }
    }
    fn set_up(env: &Env<Self>, _: &Plan, mm: &mut MmConfig) {
        mm.interval_ns = env.params.interval_ns();
        mm.requeue = match env.params.requeue {
            Requeue::Needed => vmstat_work::Requeue::Needed,
            Requeue::Always => vmstat_work::Requeue::Always,
        };
    }
    fn simulate(env: &Env<Self>, _: &Plan, sim: &mut SimConfig) {
        let factor_1024 = (env.params.hold_scale * 1024.0).round() as u32;
        sim.hold_scale = Some(HoldScale { class: LockClass::Zone, factor_1024 });
        let work = Op::ALL.into_iter().filter(|op| !matches!(op, Op::ClearPage | Op::CopyPage));
        sim.profile = sim.profile.scaled_ops(&work.collect::<Vec<_>>(), env.params.work_scale);
    }
    fn needs(env: &Env<Self>, plan: &Plan) -> Needs {
        let processes = env.cpus() as u64;
        Needs { processes, pages: plan.burst_pages * processes }
    }
    fn watched_ns(plan: &Plan) -> (u64, u64) {
        (0, plan.until_ns)
    }
    /// The decay of page caches cannot be observed on the live kernel.
    fn second(env: &Env<Self>) -> Result<Option<Env<Self>>, StudyError> {
        Ok((env.on() != Target::Live && env.params.decay_ns() > 0).then(|| env.second()))
    }
    fn damaged_pages(tally: &Tally) -> u64 {
        tally.damaged
    }
    fn window_ns(plan: &Plan) -> Option<u64> {
        Some(plan.until_ns - plan.from_ns)
    }
    fn remarks(params: &Params, on: Target) -> Vec<String> {
        let Params { warm_s, duration_s, decay_s, .. } = params;
        let mut remark = format!("The window of each run is {duration_s} s");
        if on != Target::Live {
            remark += &format!(", after a start of {warm_s} s that no metric counts");
        }
        if *decay_s > 0.0 {
            remark += &format!("; high_decay_ns is from a second run of at most {decay_s} s");
        }
        remark.push('.');
        if on != Target::Live && warm_s + duration_s < SETTLED_S {
            remark += &format!(
                " Page caches are initially empty and need about {SETTLED_S} s to reach a steady \
                 state: pages returned, pages held and waits are closer to their long-run values \
                 with --set duration_s={SETTLED_S} or more."
            );
        }
        vec![remark]
    }
    fn too_short(params: &Params, on: Target) -> Vec<TooShort> {
        metrics::too_short(params, on)
    }
    fn details(seen: &Seen<'_, Self>, result: &mut SeedResult) {
        let Ok(meters) = seen.meters() else { return };
        let interval_ns = seen.env.params.interval_ns();
        let mut add = |name: &str, unit: &str, of: &dyn Fn(&Ticks) -> f64| {
            let values = meters.iter().map(of).collect();
            result.per_cpu.insert(name.to_owned(), PerCpu { unit: unit.to_owned(), values });
        };
        add("tick_firings_per_interval", "1", &|cpu| cpu.firing_rate(interval_ns).unwrap_or(0.0));
        add("tick_pages_returned", "pages", &|cpu| cpu.pages_returned as f64);
        let mean = |pages: u64, times: u64| pages as f64 / times.max(1) as f64;
        add("pcp_refill_pages_mean", "pages", &|cpu| mean(cpu.refill_pages, cpu.refills));
        add("pcp_drain_pages_mean", "pages", &|cpu| mean(cpu.drain_pages, cpu.drains));
    }

    /// Like [`Workload::run`], where a part of the memory is in use.
    fn run_inside(run: &Run<Self>, os: &Os) {
        let inside = os.inside();
        let room = run.plan.spare_pages.map(|spare| spare + inside.high_pages());
        let kept = room.map(|room| Kept::all_but(room, inside));
        Self::run(run, os);
        if let Some(kept) = kept {
            kept.release(inside);
        }
    }
    fn run<S: System>(run: &Run<Self>, system: &S) {
        let workers = start_on(run, system, (0..system.cpus()).step_by(run.plan.stride), work);
        let monitor = if run.plan.zoneinfo_ns == 0 { 0..0 } else { 0..1 };
        let monitors = start_on(run, system, monitor, monitor_zones);
        if run.plan.hotplug {
            // The run ends while CPUs are cycled, which is expected.
            let _ = cycle_cpus(system, run.plan.until_ns, run.seed);
        }
        wait_for(system, workers.into_iter().chain(monitors));
    }
}

/// Returns the memory above the high watermark that is free when programs start.
fn spare_pages(env: &Env<Vmstat>) -> Option<u64> {
    let Params { burst_pages, spare_percent, .. } = env.params;
    (spare_percent > 0).then(|| burst_pages * env.cpus() as u64 * spare_percent / 100)
}

/// Repeatedly takes a random CPU other than the first offline for a while (of the program's time).
fn cycle_cpus<S: System>(system: &S, until_ns: u64, seed: u64) -> Result<(), Errno> {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(!seed);
    let others = system.cpus() as u64 - 1;
    while others > 0 && system.clock_ns() + 2 * AWAY_NS < until_ns {
        let cpu = 1 + (rng.next_u64() % others) as usize;
        system.cpu_offline(cpu)?;
        system.sleep_ns(AWAY_NS)?;
        system.cpu_online(cpu)?;
        system.sleep_ns(AWAY_NS / 2)?;
    }
    Ok(())
}
