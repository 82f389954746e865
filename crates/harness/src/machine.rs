//! Boots a kernel on the machine that was asked for, runs one program on it, and gathers what it
//! left. The only place that knows which machines there are.

use crate::param::{ParamSpec, Params, Unit};
use crate::study::{Checks, RunContext, StudyError};
use crate::trails::Trails;
use mmscale_arch::{CpuId, Machine, Probe};
use mmscale_document::{CallRow, LockRow, On};
use mmscale_frames::page_alloc::MemoryMap;
use mmscale_kernel::{Ending, Kernel};
use mmscale_mm::mm::MmConfig;
use mmscale_mm::oom::OomPolicy;
use mmscale_mm::upkeep::TickPolicy;
use mmscale_sim::profile::Profile;
use mmscale_sim::{CpuSections, Listener, Policy, Sim, SimConfig};
use mmscale_threads::{MEMORY_PAGES, Threads, ThreadsConfig};
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// What a machine runs: the same source on each.
pub trait Program: Send + 'static {
    /// The first thread of the system; when it returns, the run is over.
    fn run<A: Machine>(self, kernel: &Kernel<A>);
}

/// A machine and the memory manager on it.
#[derive(Clone, Debug)]
pub struct MachineSpec {
    /// The memory manager.
    pub mm: MmConfig,
    ending: Ending,
    kind: Kind,
    trails: Trails,
}

/// Where it runs.
#[derive(Clone, Debug)]
enum Kind {
    Sim(Box<SimConfig>),
    Threads(ThreadsConfig),
}

/// What a run left.
pub struct MachineRun {
    /// When it ended, on the machine's clock.
    pub end_ns: u64,
    /// Locks by class and call path.
    pub locks: Vec<LockRow>,
    /// CPU time by call path.
    pub calls: Vec<CallRow>,
    /// The probes, in the order of CPUs.
    pub probes: Vec<Box<dyn Probe>>,
    /// Sections without preemption, by CPU, if the run asked for them; simulated machines only.
    pub sections: Vec<CpuSections>,
    /// The machine's own fingerprint; 0 where time is real.
    pub fingerprint: u64,
    /// What it cost the host.
    pub cost: HostCost,
}

/// What a run cost the host.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct HostCost {
    /// Time in ns.
    pub host_ns: u64,
    /// Events of the machine.
    pub events: u64,
}

impl HostCost {
    /// Adds what another run cost.
    pub fn add(&mut self, other: &Self) {
        self.host_ns += other.host_ns;
        self.events += other.events;
    }
    /// Host time for an event, in ns.
    pub fn ns_per_event(&self) -> f64 {
        self.host_ns as f64 / self.events.max(1) as f64
    }
}

/// A probe for runs that need none.
pub fn silent(_: CpuId) -> Box<dyn Probe> {
    struct Silent;
    impl Probe for Silent {
        fn event(&mut self, _: u64, _: &mmscale_arch::Trace) {}
        fn into_any(self: Box<Self>) -> Box<dyn std::any::Any> {
            self
        }
    }
    Box::new(Silent)
}

/// The longest a run may take, on the machine's clock: a hang becomes an error.
const LIMIT_NS: u64 = 4 * 3_600_000_000_000;

impl MachineSpec {
    /// The machine of a run, with the default memory manager on its memory.
    pub fn new(ctx: &RunContext, seed: u64) -> Self {
        match (ctx.on, &ctx.profile) {
            (On::Sim, Some(profile)) => Self::sim(ctx, profile, seed),
            _ => Self::threads(ctx, seed),
        }
    }

    fn sim(ctx: &RunContext, profile: &Profile, seed: u64) -> Self {
        let pages = u32::try_from(profile.node_pages).expect("profiles are checked");
        let mut config = SimConfig::new(profile.clone(), ctx.cpus);
        config.hz = ctx.hz;
        config.seed = seed;
        config.limit_ns = LIMIT_NS;
        config.interrupt = Some(ctx.interrupt.flag());
        config.checks = match ctx.checks {
            Checks::On => mmscale_sim::Checks::On,
            Checks::Off => mmscale_sim::Checks::Off,
        };
        Self {
            mm: mm_of(MemoryMap::nodes(profile.topology.nodes, pages)),
            ending: ending_of(ctx),
            kind: Kind::Sim(Box::new(config)),
            trails: ctx.trails.clone(),
        }
    }

    fn threads(ctx: &RunContext, seed: u64) -> Self {
        Self {
            mm: mm_of(MemoryMap::single(MEMORY_PAGES as u32)),
            ending: ending_of(ctx),
            kind: Kind::Threads(ThreadsConfig {
                cpus: ctx.cpus,
                hz: ctx.hz,
                seed,
                memory_pages: MEMORY_PAGES,
                limit_ns: LIMIT_NS,
                interrupt: Some(ctx.interrupt.flag()),
            }),
            trails: Trails::default(),
        }
    }

    /// The pages that there are.
    pub fn pages(&self) -> u64 {
        self.mm.map.frames() as u64
    }

    /// Gives a simulated machine that much memory, spread over its nodes; other machines keep
    /// theirs. Returns the pages that there are.
    pub fn set_memory_gib(&mut self, gib: u64) -> u64 {
        let Kind::Sim(config) = &mut self.kind else { return MEMORY_PAGES };
        let nodes = config.profile.topology.nodes;
        let pages = (gib << 30) / u64::from(config.profile.page_bytes) / nodes as u64;
        config.profile.node_pages = pages;
        let per_node = u32::try_from(pages).expect("parameters are checked");
        self.mm.map = MemoryMap::nodes(nodes, per_node);
        pages * nodes as u64
    }

    /// Has the run tell how far it is, as the part `share` of what `ctx` runs; the program ends at
    /// `end_ns`. Only a simulated machine does.
    pub fn expect_end(&mut self, ctx: &RunContext, end_ns: u64, share: Range<f64>) {
        let progress = ctx.progress.clone();
        self.simulated(|config| {
            config.progress = Some(Listener::new(move |now_ns| {
                let done = (now_ns as f64 / end_ns.max(1) as f64).min(1.0);
                progress.set(share.start + done * (share.end - share.start));
            }));
        });
    }

    /// What only a simulated machine has: nothing happens on others.
    pub fn simulated(&mut self, change: impl FnOnce(&mut SimConfig)) {
        if let Kind::Sim(config) = &mut self.kind {
            change(config);
        }
    }
}

/// The kernel's defaults, but that allocations fail where a process would be killed: a workload
/// that meets the end of memory goes on with what it has. A study of kills sets the policy itself.
fn mm_of(map: MemoryMap) -> MmConfig {
    let mut config = MmConfig::new(map, TickPolicy::Stock);
    config.oom.policy = OomPolicy::Fail;
    config
}

/// With checkers on, the kernel also looks for lost frames at the end.
fn ending_of(ctx: &RunContext) -> Ending {
    match ctx.checks {
        Checks::On => Ending::Verified,
        Checks::Off => Ending::Quick,
    }
}

/// Runs `program` on a machine of its own, from boot to the last task's return.
pub fn run<P: Program>(
    spec: MachineSpec,
    probe: impl FnMut(CpuId) -> Box<dyn Probe>,
    program: P,
) -> Result<MachineRun, StudyError> {
    let begin = Instant::now();
    let begun = Arc::new(AtomicBool::new(false));
    let booting = Booting { mm: spec.mm, ending: spec.ending, program, begun: Arc::clone(&begun) };
    let mut run = match spec.kind {
        Kind::Sim(config) => on_sim(*config, &spec.trails, booting, probe)?,
        Kind::Threads(config) => on_threads(&config, booting, probe)?,
    };
    if !begun.load(Ordering::Relaxed) {
        let what = "the first process never ran: it was refused memory a hundred times in turn; \
                    let fewer allocations fail (--set alloc_fail_1024)";
        return Err(StudyError::Machine(what.to_owned()));
    }
    run.cost.host_ns = begin.elapsed().as_nanos() as u64;
    Ok(run)
}

/// What a kernel is made from, once its machine is there.
struct Booting<P> {
    mm: MmConfig,
    ending: Ending,
    program: P,
    begun: Arc<AtomicBool>,
}

impl<P: Program> Booting<P> {
    /// Panics, which ends the run with its message, if the memory manager refuses its
    /// configuration: parameters have been checked before.
    fn kernel<A: Machine>(self) -> Kernel<A> {
        let (program, begun) = (self.program, self.begun);
        let first = move |kernel: &Kernel<A>| {
            // Relaxed: it is read when the machine has ended, whose threads were joined.
            begun.store(true, Ordering::Relaxed);
            program.run(kernel);
        };
        Kernel::boot(&self.mm, self.ending, Box::new(first))
            .unwrap_or_else(|why| panic!("the memory manager cannot start: {why}"))
    }
}

fn on_sim<P: Program>(
    mut config: SimConfig,
    trails: &Trails,
    booting: Booting<P>,
    probe: impl FnMut(CpuId) -> Box<dyn Probe>,
) -> Result<MachineRun, StudyError> {
    config.trail = trails.next();
    let outcome = mmscale_sim::run(config, probe, || Rc::new(booting.kernel::<Sim>()));
    trails.keep(outcome.trail);
    match outcome.failure {
        Some(mmscale_sim::Failure::Interrupted { .. }) => return Err(StudyError::Interrupted),
        Some(failure) => return Err(StudyError::Machine(failure.to_string())),
        None => {}
    }
    if !outcome.violations.is_empty() {
        let findings = outcome.violations.iter().map(ToString::to_string);
        return Err(StudyError::Check(findings.collect()));
    }
    Ok(MachineRun {
        end_ns: outcome.virtual_ns,
        locks: outcome.locks,
        calls: outcome.calls,
        probes: outcome.probes,
        sections: outcome.sections,
        fingerprint: outcome.fingerprint,
        cost: HostCost { host_ns: 0, events: outcome.events },
    })
}

fn on_threads<P: Program>(
    config: &ThreadsConfig,
    booting: Booting<P>,
    probe: impl FnMut(CpuId) -> Box<dyn Probe>,
) -> Result<MachineRun, StudyError> {
    let outcome = mmscale_threads::run(config, probe, || Arc::new(booting.kernel::<Threads>()));
    match outcome.failure {
        Some(mmscale_threads::Failure::Interrupted { .. }) => return Err(StudyError::Interrupted),
        Some(failure) => return Err(StudyError::Machine(failure.to_string())),
        None => {}
    }
    let acquisitions = outcome.locks.iter().map(|row| row.acquisitions).sum();
    Ok(MachineRun {
        end_ns: outcome.wall_ns,
        locks: outcome.locks,
        calls: outcome.calls,
        probes: outcome.probes,
        sections: Vec::new(),
        fingerprint: 0,
        cost: HostCost { host_ns: 0, events: acquisitions },
    })
}

/// The parameters of every simulated machine.
pub(crate) fn machine_params() -> [ParamSpec; 3] {
    [
        ParamSpec::real(
            "cost_scale",
            Unit::One,
            1.0,
            [0.1, 10.0],
            "every cost of the profile times this (sim)",
        ),
        ParamSpec::choice(
            "sched",
            "lazy",
            &["lazy", "naive", "both"],
            "how the simulator orders CPUs; the results are the same, which `both` checks",
        ),
        ParamSpec::count(
            "alloc_fail_1024",
            Unit::One,
            0,
            [0, 1024],
            "injected allocation failures, in 1/1024 (sim)",
        ),
    ]
}

/// Sets up a simulated machine as the parameters say that every one has.
pub(crate) fn set_machine(params: &Params, config: &mut SimConfig) {
    config.profile = config.profile.scaled_costs(params.real("cost_scale"));
    config.policy = match params.choice("sched") {
        "naive" => Policy::Naive,
        _ => Policy::Lazy,
    };
    config.faults.alloc_fail_1024 = params.count("alloc_fail_1024") as u32;
}
