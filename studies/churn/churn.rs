//! The study `churn`: single pages mapped, populated, touched and unmapped, and the lruvec lock.
//!
//! The programs do what `stress-ng --mremap` does when its regions are one page long. Each process
//! first maps a few pages and reads them, in place of the image that every real process has: its
//! page tables are there for as long as it lives, and its VMA is a neighbour that the new one
//! cannot join. They stay pages of zeros, which are on no list. Then, again and again: map with
//! MAP_POPULATE, advise, touch, unmap.
//!
//! One seed of one arm is two runs: all metrics are of the machine with all its CPUs, and
//! `amplification` compares them with the same run on one CPU.

use mmscale_arch::{CpuId, LruEvent, Trace, TraceGroup};
use mmscale_document::On;
use mmscale_harness::{
    Choice, Env, Level, Look, Measured, Meter, Metric, Missing, Named, Part, Phases, Run,
    SETTLE_NS, SeedResult, Seen, Source, StudyError, Unit, Verdict, Waits, Watch, Workload,
    making_ns, metric, names, params, tally, value,
};
use mmscale_mm::lru::BatchKind;
use mmscale_mm::mm::MmConfig;
use mmscale_mm::swap::{SwapConfig, Zeromap};
use mmscale_sim::SimConfig;
use mmscale_system::{
    Addr, Advice, Errno, LockWhat, MapSpec, PAGE_BYTES, Present, Prot, System, ThreadSpec,
};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use std::ops::Range;

/// The study.
#[derive(Clone, Debug)]
pub struct Churn;

params! {
    /// Its parameters.
    pub struct Params {
        processes_per_cpu: count(Unit::One, 16, [1, 8192]), "processes on each CPU";
        pages: count(Unit::Pages, 1, [1, 1 << 16]), "pages of an op";
        populate: switch(true), "ops map with MAP_POPULATE; off: pages are touched";
        madvise: choice(Advise, "mix"), "advice in each op, before the touch";
        swap: choice(Swap),
            "none; pages of zeros are remembered; they are written as others are", sim;
        beside: choice(Beside),
            "processes on every 16th CPU that lock, move, age and reclaim 64 pages";
        swap_mb_per_s: real(Unit::One, 0.0, [0.0, 1e6]),
            "MB a second that the swap device moves; 0: as in the profile (sim)", sim;
        duration_ms: real(Unit::Ms, 20.0, [0.1, 600_000.0]),
            "virtual time (on threads: real time) of the ops";
        user_ns: count(Unit::Ns, 315, [0, 1_000_000]), "computing in each op";
    }
}

names! {
    /// The swap area.
    pub enum Swap {
        /// There is none.
        Off = "off",
        /// Pages of zeros are remembered, and not written.
        Zeromap = "zeromap",
        /// Pages of zeros are written, as others are.
        Disk = "disk",
    }
}
names! {
    /// Processes beside those that run ops.
    pub enum Beside {
        /// There are none.
        None = "none",
        /// On every 16th CPU one locks, moves, ages and reclaims memory.
        Mixed = "mixed",
    }
}

/// Which advice an op gives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Advise {
    /// None.
    Never,
    /// Any kind, each as often as the others.
    Mix,
    /// One kind.
    Only(Advice),
}

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
    /// What processes did.
    pub struct Tally {
        /// Ops that count, twice: one begun in time, one ended in time.
        halves,
        /// Ops begun at any time.
        begun,
        /// Ops that failed.
        failures,
        /// Computing of ops.
        user_ns,
        /// Pages that did not hold what they should.
        damaged,
        /// Processes that were not made yet when all began.
        late,
        /// Processes that could not be made.
        unmade,
        /// CPU time of all ops in user mode, where the machine tells it.
        cpu_user_ns,
        /// The same in the kernel.
        cpu_system_ns,
        /// Rounds of the processes beside.
        rounds,
        /// Rounds that failed.
        round_failures,
    }
}

/// What every process does. Times in ns.
#[derive(Clone, Debug)]
pub struct Plan {
    per_cpu: usize,
    beside: Beside,
    pages: u64,
    populate: bool,
    advise: Advise,
    /// Whether an op binds its pages to a node and has them moved there.
    bind: Present,
    user_ns: u64,
    begin_ns: u64,
    window_ns: Range<u64>,
}

/// What each further page of an op adds to the time that page caches take to fill, when all CPUs of
/// a node fill theirs at once.
const WARMING_NS: u64 = 400_000;
/// Ops run this long before anything is counted, until as many wait for the locks as ever will.
/// Only where locks can be counted from then on too.
const WARM_SIM_NS: u64 = 1_000_000;
/// CPUs from one process of `beside` to the next, and its pages.
const BESIDE_EVERY: usize = 16;
const BESIDE_PAGES: u64 = 64;
/// Ops of each CPU before all begin, which fill its page caches.
const WARMING_OPS: u64 = 8;
/// Pages of a process that are there all the time.
const IMAGE_PAGES: u64 = 4;
/// Slots of the swap area: 4 GiB.
const SWAP_PAGES: u32 = 1 << 20;

impl Workload for Churn {
    const FILE: Source = Source { study: "churn", text: include_str!("study.toml") };
    const CPUS: usize = 512;
    const METRICS: &'static [Metric<Self>] = METRICS;
    const CHOICES: &'static [Choice] = &[Choice { key: "bind", values: &["stay", "move"] }];
    type Params = Params;
    type Plan = Plan;
    type Tally = Tally;
    type Inside = ();
    type Meter = Batches;

    fn plan(env: &Env<Self>) -> Result<Plan, String> {
        let params = &env.params;
        let processes = params.processes_per_cpu * env.cpus() as u64;
        let begin_ns = SETTLE_NS + making_ns(env, processes) + WARMING_NS * (params.pages - 1);
        let from_ns = begin_ns + if env.on() == On::Sim { WARM_SIM_NS } else { 0 };
        Ok(Plan {
            per_cpu: params.processes_per_cpu as usize,
            beside: params.beside,
            pages: params.pages,
            populate: params.populate,
            advise: params.madvise,
            bind: match env.arm.chosen("bind") {
                Some("move") => Present::Move,
                _ => Present::Stay,
            },
            user_ns: params.user_ns,
            begin_ns,
            window_ns: from_ns..from_ns + (params.duration_ms * 1e6) as u64,
        })
    }
    fn phases(plan: &Plan) -> Phases {
        let Range { start, end } = plan.window_ns;
        Phases { from_ns: start, until_ns: end, end_ns: end }
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
    fn meters(_: &Env<Self>, plan: &Plan) -> Box<dyn FnMut(CpuId) -> Batches> {
        let window_ns = plan.window_ns.clone();
        Box::new(move |_| Batches { window_ns: window_ns.clone(), ..Batches::default() })
    }
    fn look(env: &Env<Self>, plan: &Plan) -> Look {
        let processes = env.params.processes_per_cpu * env.cpus() as u64;
        Look {
            watches: vec![Watch::Locks, Watch::Lru, Watch::Calls],
            window: (plan.window_ns.start, plan.window_ns.end),
            processes,
            pages: processes * plan.pages,
        }
    }
    /// Beside others an op has no CPU time of its own, and one CPU would be shared with as many of
    /// them as sixteen are.
    fn second(env: &Env<Self>) -> Result<Option<Env<Self>>, StudyError> {
        let alone = env.cpus() > 1 && env.params.beside == Beside::None;
        alone.then(|| env.second_on_one_cpu()).transpose()
    }
    fn damaged_pages(tally: &Tally) -> u64 {
        tally.damaged
    }
    fn verdict(seen: &Seen<'_, Self>) -> Verdict {
        let Tally { late, unmade, begun, halves, .. } = seen.tally;
        // The run on one CPU may lack what it is to be compared with: then there is no ratio.
        let first = seen.env.part == Part::First;
        match seen.on() {
            On::Linux if begun == 0 => Verdict::Useless(format!(
                "no op began in the time that counts ({late} processes came too late, {unmade} \
                 could not be made): others have this computer; give it more (--set duration_ms), \
                 or try again when they rest"
            )),
            On::Linux if late > 0 => Verdict::Poor,
            On::Sim | On::Threads if halves == 0 && first => Verdict::Useless(
                "no op began or ended in the time that counts: give it more (--set duration_ms)"
                    .to_owned(),
            ),
            _ => Verdict::Good,
        }
    }
    fn window_ns(params: &Params) -> Option<u64> {
        Some((params.duration_ms * 1e6) as u64)
    }
    fn remarks(params: &Params, _: On) -> Vec<String> {
        vec![format!(
            "All processes run ops for {} ms; cpu_ns_per_op_alone is from a second run on one CPU, \
             amplification is the ratio.",
            params.duration_ms
        )]
    }
    fn tasks(params: &Params, cpus: usize) -> u64 {
        // On each CPU a process that starts the others, and perhaps one beside them.
        (params.processes_per_cpu + 2) * cpus as u64
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
        let starters = (0..system.cpus()).map(|cpu| {
            let run = run.clone();
            let body = move |system: &S| start(&run, system, cpu);
            system.process(ThreadSpec::on(cpu), Box::new(body))
        });
        let beside = (0..system.cpus()).step_by(BESIDE_EVERY).map(|cpu| {
            let run = run.clone();
            let body = move |system: &S| beside(&run, system, run.seed ^ (cpu as u64) << 32);
            system.process(ThreadSpec::on(cpu), Box::new(body))
        });
        let beside = (run.plan.beside == Beside::Mixed).then_some(beside);
        let all: Vec<_> = starters.chain(beside.into_iter().flatten()).collect();
        for process in all.into_iter().flatten() {
            let _ = system.wait(process);
        }
    }
}

/// Ops in the window; CPU time for one of them, of all kinds.
fn ops(seen: &Seen<'_, Churn>) -> f64 {
    seen.tally.halves as f64 / 2.0
}
fn cpu_ns_per_op(seen: &Seen<'_, Churn>) -> Result<f64, Missing> {
    let Tally { cpu_user_ns, cpu_system_ns, begun, .. } = seen.tally;
    match seen.on() {
        On::Linux => Ok((cpu_user_ns + cpu_system_ns) as f64 / begun as f64),
        On::Sim | On::Threads => Ok(seen.busy_ns()? / ops(seen)),
    }
}
fn usr_ns_per_op(seen: &Seen<'_, Churn>) -> f64 {
    let Tally { cpu_user_ns, user_ns, begun, .. } = seen.tally;
    (if seen.on() == On::Linux { cpu_user_ns } else { user_ns }) as f64 / begun as f64
}
/// Ops while locks were counted.
fn lock_ops(seen: &Seen<'_, Churn>) -> f64 {
    if seen.on() == On::Sim { ops(seen) } else { seen.tally.begun as f64 }
}
fn lruvec(seen: &Seen<'_, Churn>) -> Result<Waits, Missing> {
    Ok(seen.locks()?.waits("lruvec", &[]))
}
/// CPU time of an op on one CPU. A computer that is busy elsewhere may give a run no time at all.
fn alone_ns(seen: &Seen<'_, Churn>) -> Result<f64, Missing> {
    let alone_ns = cpu_ns_per_op(seen.second.ok_or(Missing::Nothing)?)?;
    if alone_ns.is_finite() && alone_ns > 0.0 { Ok(alone_ns) } else { Err(Missing::Nothing) }
}
/// Batches that were added to lists, and the folios in them.
fn batches(seen: &Seen<'_, Churn>) -> Result<[f64; 2], Missing> {
    match seen.live() {
        Ok(live) => {
            let seen = live.seen.as_ref().ok_or(Missing::Source("batches of the live kernel"))?;
            Ok([seen.lru_batches as f64, seen.lru_folios as f64])
        }
        Err(_) => Ok([seen.sum(|cpu| cpu.batches)?, seen.sum(|cpu| cpu.folios)?]),
    }
}
fn level(seen: &Seen<'_, Churn>, of: fn(&Batches) -> &Level) -> Measured {
    value(Level::max(seen.meters()?.iter().map(of)).max(0) as u64)
}

const METRICS: &[Metric<Churn>] = &[
    metric("ops_per_s", "1/s", "ops of all processes: map, advise, touch, unmap", |seen| {
        value(seen.per_s(ops(seen)))
    }),
    metric(
        "cpu_ns_per_op",
        "ns",
        "CPU time that was not idle, per op; that of others beside them too",
        |seen| value(cpu_ns_per_op(seen)?),
    ),
    metric("usr_ns_per_op", "ns", "of this, in user mode", |seen| value(usr_ns_per_op(seen))),
    metric("sys_ns_per_op", "ns", "and in the kernel", |seen| {
        value(cpu_ns_per_op(seen)? - usr_ns_per_op(seen))
    }),
    metric(
        "cpu_ns_per_op_alone",
        "ns",
        "CPU time per op on a machine with one CPU; not beside others",
        |seen| value(alone_ns(seen)?),
    ),
    metric("amplification", "1", "CPU time per op over that on one CPU", |seen| {
        value(cpu_ns_per_op(seen)? / alone_ns(seen)?)
    }),
    metric("lruvec_acquisitions_per_op", "1", "how often the lruvec lock was taken", |seen| {
        let taken: u64 = seen.held_locks()?.rows("lruvec", &[]).map(|row| row.acquisitions).sum();
        value(taken as f64 / lock_ops(seen))
    }),
    metric("lruvec_waits_per_op", "1", "how often somebody waited for it (linux)", |seen| {
        seen.live()?;
        value(lruvec(seen)?.count as f64 / seen.tally.begun as f64)
    }),
    metric("lruvec_wait_share", "1", "share of all CPU time spent waiting for it", |seen| {
        let counted = if seen.on() == On::Threads { ops(seen) / lock_ops(seen) } else { 1.0 };
        value(lruvec(seen)?.total_ns as f64 * counted / seen.cpu_time_ns())
    }),
    metric("lruvec_wait_max_ns", "ns", "the longest wait", |seen| value(lruvec(seen)?.max_ns)),
    metric("lru_batch_size_mean", "1", "folios in a batch that is added to the lists", |seen| {
        let [batches, folios] = batches(seen)?;
        value(folios / batches)
    }),
    metric(
        "lru_batches_per_op",
        "1",
        "batches that are added: each takes the lock (linux)",
        |seen| {
            seen.live()?;
            value(batches(seen)?[0] / seen.tally.begun as f64)
        },
    ),
    metric("lru_batch_dead_mean", "1", "of these, folios that nobody else held any more", |seen| {
        value(seen.sum(|cpu| cpu.dead_folios)? / seen.sum(|cpu| cpu.batches)?)
    }),
    metric(
        "folios_pinned_in_batches_max",
        "1",
        "folios that batches hold, looked at each 0.1 ms",
        |seen| level(seen, |cpu| &cpu.pinned),
    ),
    metric(
        "memory_charged_after_unmap_max_pages",
        "pages",
        "unmapped pages that only a batch of new folios holds, looked at each 0.1 ms",
        |seen| level(seen, |cpu| &cpu.dead),
    ),
    metric(
        "op_failures",
        "1",
        "ops that failed, for want of memory mostly; they count as no ops",
        |seen| value(seen.tally.failures),
    ),
    metric(
        "meddler_rounds",
        "1",
        "rounds of those beside: lock, move, age, reclaim, use again",
        |seen| match seen.plan.beside {
            Beside::None => Err(Missing::Nothing),
            Beside::Mixed => value(seen.tally.rounds),
        },
    ),
];

/// What one CPU's tracepoints say of batches of folios on their way to the LRU lists.
#[derive(Debug, Default)]
pub struct Batches {
    window_ns: Range<u64>,
    batches: u64,
    folios: u64,
    dead_folios: u64,
    pinned: Level,
    dead: Level,
}

impl Meter for Batches {
    fn hears(&self, group: TraceGroup) -> bool {
        group == TraceGroup::Lru
    }
    fn event(&mut self, now_ns: u64, event: &Trace) {
        let Trace::Lru(event) = *event else { return };
        match event {
            LruEvent::Move { kind, folios, dead, .. }
                if kind == BatchKind::Add as u8 && self.window_ns.contains(&now_ns) =>
            {
                self.batches += 1;
                self.folios += u64::from(folios);
                self.dead_folios += u64::from(dead);
            }
            LruEvent::Pinned { folios } => self.pinned.change(now_ns, folios.into()),
            LruEvent::Dead { pages } => self.dead.change(now_ns, pages.into()),
            _ => {}
        }
    }
    /// Both levels stay as they are until the end.
    fn close(meters: &mut [Self], end_ns: u64) {
        for meter in meters {
            meter.pinned.pass(end_ns);
            meter.dead.pass(end_ns);
        }
    }
}

/// The process that makes those of its CPU.
fn start<S: System>(run: &Run<Churn>, system: &S, cpu: usize) {
    let bytes = run.plan.pages * PAGE_BYTES;
    // Page caches begin empty: otherwise all CPUs fill theirs at once when they begin.
    for _ in 0..WARMING_OPS {
        if let Ok(at) = system.mmap(MapSpec::populated(bytes)) {
            let _ = system.munmap(at, bytes);
        }
    }
    let cpus = system.cpus();
    let make = |nth: usize| {
        let (number, run) = (nth * cpus + cpu, run.clone());
        let body = move |system: &S| {
            let tally = process(&run.plan, system, run.seed ^ (number as u64) << 32);
            run.tally.change(|sum| sum.add(&tally));
        };
        system.process(ThreadSpec::on(cpu), Box::new(body))
    };
    let made: Vec<_> = (0..run.plan.per_cpu).map(make).collect();
    let unmade = made.iter().filter(|process| process.is_err()).count() as u64;
    run.tally.change(|sum| sum.unmade += unmade);
    for process in made.into_iter().flatten() {
        let _ = system.wait(process);
    }
}

/// One process.
fn process<S: System>(plan: &Plan, system: &S, seed: u64) -> Tally {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut tally = Tally::default();
    let mut life = || -> Result<(), Errno> {
        let image = system.mmap(MapSpec::new(IMAGE_PAGES * PAGE_BYTES).prot(Prot::Read))?;
        (0..IMAGE_PAGES).try_for_each(|page| system.read(image.page(page)).map(|_| ()))?;
        let ready_ns = system.clock_ns();
        tally.late += u64::from(ready_ns > plan.begin_ns);
        system.sleep_ns(plan.begin_ns.saturating_sub(ready_ns))?;
        let before = system.cpu_time();
        loop {
            let began_ns = system.clock_ns();
            if began_ns >= plan.window_ns.end {
                if let (Some(before), Some(after)) = (before, system.cpu_time()) {
                    tally.cpu_user_ns = after.user_ns.saturating_sub(before.user_ns);
                    tally.cpu_system_ns = after.system_ns.saturating_sub(before.system_ns);
                }
                return Ok(());
            }
            tally.begun += 1;
            match op(plan, system, &mut rng, &mut tally) {
                Ok(()) => {
                    let counts = |at_ns: u64| u64::from(plan.window_ns.contains(&at_ns));
                    tally.halves += counts(began_ns) + counts(system.clock_ns());
                }
                Err(Errno::Stopped) => return Err(Errno::Stopped),
                Err(_) => tally.failures += 1,
            }
        }
    };
    // The only way out before the time is the end of the run.
    let _ = life();
    tally
}

fn op<S: System>(
    plan: &Plan,
    system: &S,
    rng: &mut Xoshiro256PlusPlus,
    tally: &mut Tally,
) -> Result<(), Errno> {
    let bytes = plan.pages * PAGE_BYTES;
    let spec = if plan.populate { MapSpec::populated(bytes) } else { MapSpec::new(bytes) };
    let at = system.mmap(spec)?;
    // The mapping goes whatever came of its pages.
    let used = use_pages(plan, system, at, rng, tally);
    system.munmap(at, bytes)?;
    used
}

/// Binds, advises, touches, computes.
fn use_pages<S: System>(
    plan: &Plan,
    system: &S,
    at: Addr,
    rng: &mut Xoshiro256PlusPlus,
    tally: &mut Tally,
) -> Result<(), Errno> {
    let bytes = plan.pages * PAGE_BYTES;
    if plan.bind == Present::Move {
        let node = rng.next_u64() as usize % system.nodes();
        system.mbind(at, bytes, node, Present::Move)?;
    }
    let advice = match plan.advise {
        Advise::Never => None,
        Advise::Only(advice) => Some(advice),
        Advise::Mix => Some(Advice::ALL[rng.next_u64() as usize % Advice::ALL.len()]),
    };
    if let Some(advice) = advice {
        // Some advice is refused for a single page, as collapsing is; stress-ng goes on, too.
        let _ = system.madvise(at, bytes, advice);
    }
    let touched = touch(plan, system, at, rng.next_u64() | 1, tally);
    if plan.user_ns > 0 {
        system.compute_ns(plan.user_ns)?;
        tally.user_ns += plan.user_ns;
    }
    touched
}

/// Finds zeros, writes, reads back.
fn touch<S: System>(
    plan: &Plan,
    system: &S,
    at: Addr,
    stamp: u64,
    tally: &mut Tally,
) -> Result<(), Errno> {
    for here in (0..plan.pages).map(|page| at.page(page)) {
        let fresh = if plan.populate { system.read(here)? == 0 } else { true };
        system.write(here, stamp)?;
        if !fresh || system.read(here)? != stamp {
            tally.damaged += 1;
        }
    }
    Ok(())
}

/// A process that needs folios on their lists, again and again until the end: it locks memory and
/// unlocks it, has it moved to another node, ages it, has it reclaimed, and uses it again.
fn beside<S: System>(run: &Run<Churn>, system: &S, seed: u64) {
    let mut tally = Tally::default();
    let mut life = || -> Result<(), Errno> {
        system.sleep_ns(run.plan.begin_ns.saturating_sub(system.clock_ns()))?;
        while system.clock_ns() < run.plan.window_ns.end {
            tally.rounds += 1;
            match round(system, seed ^ tally.rounds, &mut tally) {
                Ok(()) => {}
                Err(Errno::Nomem | Errno::Again) => tally.round_failures += 1,
                Err(other) => return Err(other),
            }
        }
        Ok(())
    };
    // The only way out before the time is the end of the run.
    let _ = life();
    run.tally.change(|sum| sum.add(&tally));
}

fn round<S: System>(system: &S, seed: u64, tally: &mut Tally) -> Result<(), Errno> {
    let bytes = BESIDE_PAGES * PAGE_BYTES;
    let at = system.mmap(MapSpec::populated(bytes))?;
    let worked = (|| {
        let stamp = |page: u64| seed << 8 | page;
        (0..BESIDE_PAGES).try_for_each(|page| system.write(at.page(page), stamp(page)))?;
        system.mlock(at, bytes / 2, LockWhat::Everything)?;
        system.munlock(at, bytes / 2)?;
        let node = seed as usize % system.nodes();
        system.mbind(at, bytes, node, Present::Move)?;
        system.madvise(at, bytes, Advice::Cold)?;
        system.madvise(at, bytes, Advice::PageOut)?;
        for page in 0..BESIDE_PAGES {
            tally.damaged += u64::from(system.read(at.page(page))? != stamp(page));
        }
        Ok(())
    })();
    system.munmap(at, bytes)?;
    worked
}
