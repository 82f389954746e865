//! The study `vmstat`: the per-CPU upkeep tick, pcp decay and zone->lock.
//!
//! On every CPU a process runs bursts of mapping, touching and unmapping like `stress-ng --vm`,
//! with computing in between so that no CPU goes idle. A `stress-ng --vm` worker maps a region,
//! writes all of it, checks it for a while, unmaps it, and begins again; workers start one after
//! another and drift apart. Each process here maps `burst_pages` pages and writes each, computes
//! while it holds them, checks what it wrote, unmaps them, computes for the rest of the period.
//!
//! One seed of one arm is two runs of the same machine. The first runs the workload for
//! `duration_s` and gives all metrics but one. The second runs one burst on each of eight
//! CPUs, which then only compute, for at most `decay_s`; the others are idle. It gives
//! `high_decay_ns`.

mod ticks;

pub use ticks::Ticks;

use mmscale_arch::{CpuId, LockClass};
use mmscale_document::{On, PerCpu};
use mmscale_harness::{
    Env, Look, Measured, Metric, Missing, Part, Phases, Run, SeedResult, Seen, Source, StudyError,
    TooShort, Unit, Waits, Watch, Workload, metric, names, params, tally, value,
};
use mmscale_mm::mm::MmConfig;
use mmscale_mm::upkeep;
use mmscale_sim::{HoldScale, SimConfig};
use mmscale_system::{Addr, Errno, MapSpec, PAGE_BYTES, System, ThreadSpec};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

/// The study.
#[derive(Clone, Debug)]
pub struct Vmstat;

params! {
    /// Its parameters.
    pub struct Params {
        interval_ms: count(Unit::Ms, 1000, [10, 60_000]), "the tick's interval", sim;
        burst_pages: count(Unit::Pages, 4096, [1, 1 << 20]), "pages of a burst";
        period_ms: count(Unit::Ms, 2000, [1, 600_000]), "from burst to burst";
        duty_percent: count(Unit::One, 50, [0, 100]),
            "share of a period in which a burst's pages are held";
        duration_s: real(Unit::Seconds, 20.0, [0.01, 3600.0]),
            "virtual time (on threads: real time) of the workload";
        hold_scale: real(Unit::One, 1.0, [0.01, 100.0]),
            "work done while zone->lock is held takes this many times longer (sim)", sim;
        decay_s: real(Unit::Seconds, 40.0, [0.0, 3600.0]),
            "longest wait for high_decay_ns, which is left out at 0", sim;
        hotplug: switch(false), "CPUs go offline and come back during the run", sim;
        requeue: choice(Requeue), "whether a tick with nothing to do stops until it is needed", sim;
    }
}

impl Params {
    fn interval_ns(&self) -> u64 {
        self.interval_ms * 1_000_000
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

tally! {
    /// What workers did.
    pub struct Tally {
        /// Pages that were written to.
        pages_allocated,
        /// Allocations that failed: each ended its burst early.
        failures,
        /// Pages whose content was not what their worker had written.
        damaged,
    }
}

/// Of [`Run::samples`]: when a worker's last burst had been freed.
const LAST_BURST_END: usize = 0;

/// What every worker does. Times in ns.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Pages that a burst allocates and then frees.
    burst_pages: u64,
    /// From the start of a burst to the start of the next, up to 25 % more or less.
    period_ns: u64,
    /// The share of a period in which the pages of the burst are held, in percent.
    duty_percent: u64,
    /// Bursts of each worker; after that it computes.
    bursts: u64,
    /// When the workers begin no other burst, and return when their last is over.
    until_ns: u64,
    /// Workers run on every CPU whose number is a multiple of this; the others stay idle.
    stride: usize,
    /// Whether CPUs go offline and come back while the workers run.
    hotplug: bool,
}

/// Workers of the second run: `high` of a CPU does not depend on how many others decay.
const DECAY_WORKERS: usize = 8;
/// How long a CPU is offline with `hotplug`.
const AWAY_NS: u64 = 1_500_000_000;
/// When the metrics of page caches have settled, as seen in runs of 10, 20, 40 and 60 s.
const SETTLED_S: f64 = 20.0;
/// The start of a run, which `tick_pages_returned_per_s` leaves out: the first tick of a CPU comes
/// up to two intervals after its first page, later under some policies than under others.
const EARLY_INTERVALS: u64 = 2;

/// Intervals that a run needs for each metric of its ticks. The arms differ by ticks that come up
/// to two intervals apart, the first of them up to two intervals after a CPU's first page; the
/// fewest firings of a CPU have come within 15 % of their rate in runs of 10 s after eight (seen in
/// runs of 4, 5, 6, 8 and 10 intervals).
const NEEDED_INTERVALS: [(u64, &[&str]); 2] = [
    (
        4,
        &[
            "zone_lock_contentions",
            "zone_lock_wait_total_ns",
            "zone_lock_wait_max_ns",
            "zone_lock_wait_mean_ns",
            "tick_zone_lock_contentions",
            "tick_zone_lock_wait_total_ns",
            "tick_zone_lock_wait_max_ns",
            "tick_zone_lock_wait_mean_ns",
            "tick_firings_per_cpu_per_interval_mean",
            "tick_cofiring_mean",
            "tick_idle_skips",
            "tick_trylock_failures",
            "tick_pages_deferred",
            "tick_pages_returned_per_s",
            "counter_staleness_max_ns",
            "pcp_pages_mean",
        ],
    ),
    (8, &["tick_firings_per_cpu_per_interval_min", "tick_firings_per_cpu_per_interval_max"]),
];

impl Workload for Vmstat {
    const FILE: Source = Source { study: "vmstat", text: include_str!("study.toml") };
    const CPUS: usize = 72;
    const METRICS: &'static [Metric<Self>] = METRICS;
    type Params = Params;
    type Plan = Plan;
    type Tally = Tally;
    type Inside = ();
    type Meter = Ticks;

    fn plan(env: &Env<Self>) -> Result<Plan, String> {
        let params = &env.params;
        let plan = Plan {
            burst_pages: params.burst_pages,
            period_ns: params.period_ms * 1_000_000,
            duty_percent: params.duty_percent,
            bursts: u64::MAX,
            until_ns: (params.duration_s * 1e9) as u64,
            stride: 1,
            hotplug: params.hotplug,
        };
        Ok(match env.part {
            Part::First => plan,
            Part::Second => Plan {
                bursts: 1,
                until_ns: plan.period_ns * 2 + params.decay_ns(),
                stride: env.cpus().div_ceil(DECAY_WORKERS),
                hotplug: false,
                ..plan
            },
        })
    }
    fn phases(plan: &Plan) -> Phases {
        Phases::whole(plan.until_ns)
    }
    fn set_up(env: &Env<Self>, _: &Plan, mm: &mut MmConfig) {
        mm.interval_ns = env.params.interval_ns();
        mm.requeue = match env.params.requeue {
            Requeue::Needed => upkeep::Requeue::Needed,
            Requeue::Always => upkeep::Requeue::Always,
        };
    }
    fn simulate(env: &Env<Self>, _: &Plan, sim: &mut SimConfig) {
        let factor_1024 = (env.params.hold_scale * 1024.0).round() as u32;
        sim.hold_scale = Some(HoldScale { class: LockClass::Zone, factor_1024 });
    }
    fn meters(env: &Env<Self>, plan: &Plan) -> Box<dyn FnMut(CpuId) -> Ticks> {
        let early_until_ns = EARLY_INTERVALS * env.params.interval_ns();
        let until_ns = plan.until_ns;
        Box::new(move |cpu| Ticks::new(cpu, early_until_ns, until_ns))
    }
    fn look(env: &Env<Self>, plan: &Plan) -> Look {
        let processes = env.cpus() as u64;
        Look {
            watches: vec![Watch::Locks],
            window: (0, plan.until_ns),
            processes,
            pages: plan.burst_pages * processes,
        }
    }
    /// How page caches come to rest cannot be seen from outside of the live kernel.
    fn second(env: &Env<Self>) -> Result<Option<Env<Self>>, StudyError> {
        Ok((env.on() != On::Linux && env.params.decay_ns() > 0).then(|| env.second()))
    }
    fn damaged_pages(tally: &Tally) -> u64 {
        tally.damaged
    }
    fn window_ns(params: &Params) -> Option<u64> {
        Some((params.duration_s * 1e9) as u64)
    }
    fn remarks(params: &Params, on: On) -> Vec<String> {
        let Params { duration_s, decay_s, .. } = params;
        let mut remark = format!("Each run is {duration_s} s long");
        if *decay_s > 0.0 {
            remark += &format!("; high_decay_ns is from a second one of at most {decay_s} s");
        }
        remark.push('.');
        if on != On::Linux && *duration_s < SETTLED_S {
            remark += &format!(
                " Page caches begin empty and need some {SETTLED_S} s to settle: pages returned, \
                 pages held and the waits of all callers are nearer to their long-run values with \
                 --set duration_s={SETTLED_S} or more."
            );
        }
        vec![remark]
    }
    /// The live kernel has only what can be counted there.
    fn too_short(params: &Params, on: On) -> Vec<TooShort> {
        if on == On::Linux {
            return Vec::new();
        }
        let short = NEEDED_INTERVALS.iter().filter_map(|&(intervals, metrics)| {
            let needed_ms = (intervals * params.interval_ms) as f64;
            let needs = format!(
                "duration_s={} or more, {intervals} intervals of the tick",
                needed_ms / 1e3
            );
            let short = params.duration_s * 1e3 < needed_ms;
            short.then(|| TooShort { metrics: metrics.to_vec(), needs })
        });
        let decay = (params.decay_s == 0.0).then(|| TooShort {
            metrics: vec!["high_decay_ns"],
            needs: "a second run of decay_s=40 or so".to_owned(),
        });
        short.chain(decay).collect()
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

    fn run<S: System>(run: &Run<Self>, system: &S) {
        let start = |cpu| {
            let run = run.clone();
            let body = Box::new(move |system: &S| work(&run, system, cpu));
            system.process(ThreadSpec::on(cpu), body)
        };
        let workers: Vec<_> = (0..system.cpus()).step_by(run.plan.stride).map(start).collect();
        if run.plan.hotplug {
            // The run ends under it, which is how it is meant to end.
            let _ = cycle_cpus(system, run.plan.until_ns, run.seed);
        }
        for worker in workers.into_iter().flatten() {
            let _ = system.wait(worker);
        }
    }
}

/// Waits for zone->lock where pages are freed, and those of the tick.
fn freeing(seen: &Seen<'_, Vmstat>) -> Result<Waits, Missing> {
    Ok(seen.locks()?.waits("zone", &["free_pcppages_bulk"]))
}
fn ticking(seen: &Seen<'_, Vmstat>) -> Result<Waits, Missing> {
    Ok(seen.locks()?.waits("zone", &["vmstat_update", "free_pcppages_bulk"]))
}
/// Firings of each CPU per interval, where there were two.
fn firing_rates(seen: &Seen<'_, Vmstat>) -> Result<Vec<f64>, Missing> {
    let interval_ns = seen.env.params.interval_ns();
    Ok(seen.meters()?.iter().filter_map(|cpu| cpu.firing_rate(interval_ns)).collect())
}
fn count(seen: &Seen<'_, Vmstat>, of: fn(&Ticks) -> u64) -> Measured {
    value(seen.meters()?.iter().map(of).sum::<u64>())
}
/// Pages that ticks returned after the start of the run.
fn returned_per_s(seen: &Seen<'_, Vmstat>) -> Measured {
    let early_ns = EARLY_INTERVALS * seen.env.params.interval_ns();
    let returned = seen.sum(|cpu| cpu.pages_returned - cpu.pages_returned_early)?;
    match seen.end_ns()?.saturating_sub(early_ns) {
        0 => Err(Missing::Nothing),
        rest_ns => value(returned * 1e9 / rest_ns as f64),
    }
}
/// Mean time from the end of a CPU's last burst until its `high` was at its floor for good. CPUs
/// whose `high` is still raised count with the time they had: a lower bound.
fn high_decay_ns(seen: &Seen<'_, Vmstat>) -> Measured {
    let decay = seen.second.ok_or(Missing::Nothing)?;
    let (meters, bursts) = (decay.meters()?, decay.each_sample(LAST_BURST_END)?);
    let times_ns = bursts.iter().map(|&(cpu, end_ns)| {
        let settled_ns = meters[cpu].high_settled_ns().unwrap_or(decay.plan.until_ns);
        settled_ns.saturating_sub(end_ns)
    });
    value(times_ns.sum::<u64>() as f64 / bursts.len() as f64)
}

const METRICS: &[Metric<Vmstat>] = &[
    metric("zone_lock_contentions", "1", "waits for zone->lock under free_pcppages_bulk", |seen| {
        value(freeing(seen)?.count)
    }),
    metric("zone_lock_wait_total_ns", "ns", "their sum", |seen| value(freeing(seen)?.total_ns)),
    metric("zone_lock_wait_max_ns", "ns", "the longest", |seen| value(freeing(seen)?.max_ns)),
    metric("zone_lock_wait_mean_ns", "ns", "their mean", |seen| value(freeing(seen)?.mean_ns())),
    metric("tick_zone_lock_contentions", "1", "those on the upkeep path (vmstat_update)", |seen| {
        value(ticking(seen)?.count)
    }),
    metric("tick_zone_lock_wait_total_ns", "ns", "their sum", |seen| {
        value(ticking(seen)?.total_ns)
    }),
    metric("tick_zone_lock_wait_max_ns", "ns", "the longest", |seen| value(ticking(seen)?.max_ns)),
    metric("tick_zone_lock_wait_mean_ns", "ns", "their mean", |seen| {
        value(ticking(seen)?.mean_ns())
    }),
    metric(
        "tick_firings_per_cpu_per_interval_mean",
        "1",
        "ticks of a CPU an interval, over CPUs",
        |seen| {
            let rates = firing_rates(seen)?;
            value(rates.iter().sum::<f64>() / rates.len() as f64)
        },
    ),
    metric("tick_firings_per_cpu_per_interval_min", "1", "the CPU with the fewest", |seen| {
        value(firing_rates(seen)?.into_iter().reduce(f64::min).ok_or(Missing::Nothing)?)
    }),
    metric("tick_firings_per_cpu_per_interval_max", "1", "the CPU with the most", |seen| {
        value(firing_rates(seen)?.into_iter().reduce(f64::max).ok_or(Missing::Nothing)?)
    }),
    metric(
        "tick_cofiring_mean",
        "1",
        "CPUs that fire in the jiffy of a firing, itself included",
        |seen| value(ticks::cofiring_mean(seen.meters()?, seen.env.hz())),
    ),
    metric("tick_idle_skips", "1", "ticks that came due while their CPU was idle", |seen| {
        count(seen, |cpu| cpu.idle_skips)
    }),
    metric(
        "counter_staleness_max_ns",
        "ns",
        "the longest that a counter delta stayed unfolded",
        |seen| value(seen.max(|cpu| cpu.staleness_max_ns)?),
    ),
    metric(
        "counter_drift_max",
        "pages",
        "largest error of a zone's free-page counter, each 1 ms",
        |seen| value(ticks::drift_max(seen.meters()?)),
    ),
    metric("pcp_pages_mean", "pages", "pages in all page caches, over time", |seen| {
        value(ticks::pcp_pages_mean(seen.meters()?, seen.end_ns()?))
    }),
    metric("pages_allocated_per_s", "1/s", "pages the programs got", |seen| {
        value(seen.per_s(seen.tally.pages_allocated as f64))
    }),
    metric("allocation_failures", "1", "allocations that failed", |seen| {
        value(seen.tally.failures)
    }),
    metric(
        "tick_trylock_failures",
        "1",
        "attempts of the tick that found zone->lock taken",
        |seen| count(seen, |cpu| cpu.trylock_failures),
    ),
    metric("tick_pages_deferred", "pages", "pages that the tick left for a later run", |seen| {
        count(seen, |cpu| cpu.pages_deferred)
    }),
    metric(
        "tick_pages_returned_per_s",
        "1/s",
        "pages that the tick gave back, from the third interval on",
        returned_per_s,
    ),
    metric(
        "high_decay_ns",
        "ns",
        "from a burst's end until pcp->high is at its floor",
        high_decay_ns,
    ),
];

/// Takes a random CPU but the first away for a while (of the program's time), again and again.
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

/// One worker. Its memory is unmapped when it returns or its process ends.
fn work<S: System>(run: &Run<Vmstat>, system: &S, cpu: usize) {
    let (plan, tally) = (&run.plan, Tally::default());
    let mut worker = Worker { system, plan, cpu, tally, last_burst_end_ns: None };
    // The only way out before the time is the end of the run, which is how a run ends.
    let _ = worker.bursts(run.seed);
    run.tally.change(|sum| sum.add(&worker.tally));
    run.samples[LAST_BURST_END].add(cpu, worker.last_burst_end_ns);
}

struct Worker<'a, S> {
    system: &'a S,
    plan: &'a Plan,
    /// The CPU it was started on.
    cpu: usize,
    tally: Tally,
    last_burst_end_ns: Option<u64>,
}

impl<S: System> Worker<'_, S> {
    fn bursts(&mut self, seed: u64) -> Result<(), Errno> {
        let plan = self.plan;
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed ^ (self.cpu as u64) << 32);
        self.compute_until((rng.next_u64() % plan.period_ns).min(plan.until_ns))?;
        for _ in 0..plan.bursts {
            let begin_ns = self.system.clock_ns();
            if begin_ns >= plan.until_ns {
                break;
            }
            let stretch_percent = 75 + rng.next_u64() % 51;
            let period_ns = plan.period_ns * stretch_percent / 100;
            self.burst(begin_ns + period_ns * plan.duty_percent / 100)?;
            self.compute_until((begin_ns + period_ns).min(plan.until_ns))?;
        }
        self.compute_until(plan.until_ns)
    }
    fn compute_until(&self, when_ns: u64) -> Result<(), Errno> {
        match when_ns.saturating_sub(self.system.clock_ns()) {
            0 => Ok(()),
            rest_ns => self.system.compute_ns(rest_ns),
        }
    }
    /// Maps, writes, holds, checks, unmaps.
    fn burst(&mut self, release_ns: u64) -> Result<(), Errno> {
        let bytes = self.plan.burst_pages * PAGE_BYTES;
        let region = match self.system.mmap(MapSpec::new(bytes)) {
            Err(Errno::Nomem) => {
                self.tally.failures += 1;
                return Ok(());
            }
            mapped => mapped?,
        };
        let written = self.fill(region)?;
        // The last burst too is held for its whole share of the period: if all ended when time is
        // up, that would be an avalanche that no machine has.
        self.compute_until(release_ns)?;
        for page in 0..written {
            let held = self.system.read(region.page(page))?;
            self.tally.damaged += u64::from(held != self.stamp_of(page));
        }
        self.system.munmap(region, bytes)?;
        self.last_burst_end_ns = Some(self.system.clock_ns());
        Ok(())
    }
    /// Writes to one page after the other until there is no memory. Returns how many it wrote.
    fn fill(&mut self, region: Addr) -> Result<u64, Errno> {
        for page in 0..self.plan.burst_pages {
            match self.system.write(region.page(page), self.stamp_of(page)) {
                Err(Errno::Nomem) => {
                    self.tally.failures += 1;
                    return Ok(page);
                }
                written => written?,
            }
            self.tally.pages_allocated += 1;
        }
        Ok(self.plan.burst_pages)
    }
    /// What this worker writes into a page: never 0, which is what a cleared page holds.
    fn stamp_of(&self, page: u64) -> u64 {
        (self.cpu as u64 + 1) << 32 | page
    }
}
