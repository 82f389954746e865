//! Boots a kernel on the requested machine, runs one program on it, and collects the results. No
//! other module depends on which machines exist.

mod allocator;
#[cfg(feature = "live")]
pub(crate) mod live;
mod live_run;
mod meters;

pub(crate) use allocator::{BATCH, BATCH_SCALE, HIGH_FRACTION, allocator_params, set_allocator};
#[cfg(feature = "live")]
pub(crate) use live_run::LiveRequest;
pub(crate) use live_run::watch_param;
pub use live_run::{LiveRun, Needs, Releases, Waits};
pub(crate) use meters::Idle;
pub use meters::Level;

use crate::param::{ParamSpec, Params, Unit};
use crate::study::{Checks, RunContext, StudyError, Timelines, Trails};
use mmscale_arch::{CpuId, Probe};
use mmscale_boot::{Boot, Probes, on_sim, on_threads};
use mmscale_document::{BlameRows, CallRow, LineRecord, LockRow, Target};
use mmscale_frames::page_alloc::MemoryMap;
use mmscale_kernel::coverage::CallSet;
use mmscale_kernel::{FinalCheck, Os};
use mmscale_mm::mm::MmConfig;
use mmscale_mm::oom::OomPolicy;
use mmscale_mm::space::HugePages;
use mmscale_mm::vmstat_work::TickPolicy;
use mmscale_sim::profile::{Limits, Profile};
use mmscale_sim::{CpuSections, Listener, Policy, SimConfig};
use mmscale_system::Body;
use mmscale_threads::{MEMORY_PAGES, ThreadsConfig};
use std::ops::Range;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

/// A machine and the configuration of its memory manager.
#[derive(Clone, Debug)]
pub struct MachineSpec {
    /// The configuration of the memory manager.
    pub mm: MmConfig,
    final_check: FinalCheck,
    kind: Kind,
    trails: Trails,
    timelines: Timelines,
    /// The time in which the calls of programs are those that the run measures.
    measured_ns: (u64, u64),
}

/// The kind of machine.
#[derive(Clone, Debug)]
enum Kind {
    Sim(Box<SimConfig>),
    Threads(ThreadsConfig),
}

/// The results of a run.
pub struct MachineRun {
    /// End of the run, in ns of the machine's clock.
    pub end_ns: u64,
    /// Lock statistics by class and call path.
    pub locks: Vec<LockRow>,
    /// The work of the holders of locks while others waited, if the run requested it; simulated
    /// machines only.
    pub blame: BlameRows,
    /// CPU time by call path.
    pub calls: Vec<CallRow>,
    /// Transfers of cache lines between CPUs by what the lines hold; simulated machines only.
    pub lines: Vec<LineRecord>,
    /// Idle time that tasks which waited for other CPUs could have used, in ns; simulated machines
    /// only.
    pub stranded_ns: u64,
    /// The probes, in the order of CPUs.
    pub probes: Vec<Box<dyn Probe>>,
    /// The kinds of calls that the programs made.
    pub made: CallSet,
    /// Sections with preemption off, by CPU, if the run requested them; simulated machines only.
    pub sections: Vec<CpuSections>,
    /// The machine's own fingerprint; 0 if time is real.
    pub fingerprint: u64,
    /// Cost of the run on the host.
    pub cost: HostCost,
}

/// Cost of a run on the host.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct HostCost {
    /// Host time, in ns.
    pub host_ns: u64,
    /// Number of events of the machine.
    pub events: u64,
}

impl HostCost {
    /// Adds the cost of another run.
    pub fn add(&mut self, other: &Self) {
        self.host_ns += other.host_ns;
        self.events += other.events;
    }
    /// Returns the host time per event, in ns.
    pub fn ns_per_event(&self) -> f64 {
        self.host_ns as f64 / self.events.max(1) as f64
    }
}

/// Returns a probe that ignores all events.
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

/// The size of a page of which a huge page is a pageblock.
const BASE_PAGE_BYTES: u32 = 4096;

/// Time limit of a run on the machine's clock; a hang becomes an error.
const LIMIT_NS: u64 = 4 * 3_600_000_000_000;

impl MachineSpec {
    /// Creates the machine of a run, with the default memory manager on its memory.
    pub fn new(ctx: &RunContext, seed: u64) -> Self {
        match (ctx.on, &ctx.profile) {
            (Target::Sim, Some(profile)) => Self::sim(ctx, profile, seed),
            _ => Self::threads(ctx, seed),
        }
    }

    fn sim(ctx: &RunContext, profile: &Profile, seed: u64) -> Self {
        let pages = u32::try_from(profile.node_pages).expect("profiles are checked");
        let config = sim_config(ctx, profile, seed);
        let mut mm = mm_of(MemoryMap::nodes(profile.topology.nodes, pages));
        mm.alloc.page_kib = profile.page_bytes >> 10;
        let Limits { dma32_pages, min_free_kib, pcp_batch } = profile.limits;
        if (1..pages).contains(&dma32_pages) {
            mm.map = mm.map.with_dma32(dma32_pages);
        }
        mm.alloc.min_free_kb = Some(min_free_kib).filter(|&kib| kib > 0);
        mm.alloc.batch_pages = Some(pcp_batch).filter(|&pages| pages > 0);
        if profile.page_bytes > BASE_PAGE_BYTES {
            // A table of the model has 512 entries, so a huge page of it is no pageblock there.
            mm.space.huge = HugePages::Never;
        }
        Self {
            mm,
            final_check: final_check_of(ctx),
            kind: Kind::Sim(Box::new(config)),
            trails: ctx.trails.clone(),
            timelines: ctx.timelines.clone(),
            measured_ns: (0, u64::MAX),
        }
    }

    fn threads(ctx: &RunContext, seed: u64) -> Self {
        Self {
            mm: mm_of(MemoryMap::single(MEMORY_PAGES as u32)),
            final_check: final_check_of(ctx),
            kind: Kind::Threads(ThreadsConfig {
                cpus: ctx.cpus,
                hz: ctx.hz,
                seed,
                memory_pages: MEMORY_PAGES,
                limit_ns: LIMIT_NS,
                interrupt: Some(ctx.interrupt.flag()),
            }),
            trails: Trails::default(),
            timelines: Timelines::default(),
            measured_ns: (0, u64::MAX),
        }
    }

    /// Returns the number of pages.
    pub fn pages(&self) -> u64 {
        self.mm.map.frames() as u64
    }

    /// Sets the memory of a simulated machine, spread over its nodes; other machines keep theirs.
    /// Returns the number of pages.
    pub fn set_memory_gib(&mut self, gib: u64) -> u64 {
        let Kind::Sim(config) = &mut self.kind else { return MEMORY_PAGES };
        let nodes = config.profile.topology.nodes;
        let pages = (gib << 30) / u64::from(config.profile.page_bytes) / nodes as u64;
        config.profile.node_pages = pages;
        // A machine's own watermarks are those of its own memory.
        self.mm.alloc.min_free_kb = None;
        let per_node = u32::try_from(pages).expect("parameters are checked");
        self.mm.map = MemoryMap::nodes(nodes, per_node);
        pages * nodes as u64
    }

    /// Makes a simulated machine report its progress as the part `share` of the progress of `ctx`.
    /// The program is expected to end at `end_ns`.
    pub fn expect_end(&mut self, ctx: &RunContext, end_ns: u64, share: Range<f64>) {
        let listener = listener(ctx, end_ns, share);
        self.simulated(|config| config.progress = Some(listener));
    }

    /// Sets the time that the run measures, in ns of the machine's clock.
    pub fn measure(&mut self, from_ns: u64, until_ns: u64) {
        self.measured_ns = (from_ns, until_ns);
        self.simulated(|config| config.locks_ns = (from_ns, until_ns));
    }

    /// Changes the configuration of a simulated machine; does nothing on other machines.
    pub fn simulated(&mut self, change: impl FnOnce(&mut SimConfig)) {
        if let Kind::Sim(config) = &mut self.kind {
            change(config);
        }
    }
}

/// Returns the configuration of the simulated machine of a run.
pub(crate) fn sim_config(ctx: &RunContext, profile: &Profile, seed: u64) -> SimConfig {
    let mut config = SimConfig::new(profile.clone(), ctx.cpus);
    config.hz = ctx.hz;
    config.seed = seed;
    config.limit_ns = LIMIT_NS;
    config.interrupt = Some(ctx.interrupt.flag());
    config.checks = match ctx.checks {
        Checks::On => mmscale_sim::Checks::On,
        Checks::Off => mmscale_sim::Checks::Off,
    };
    config.blame = ctx.blame;
    config
}

/// Returns a listener that reports the progress of a simulated machine as the part `share` of that
/// of `ctx`. The program is expected to end at `end_ns`.
pub(crate) fn listener(ctx: &RunContext, end_ns: u64, share: Range<f64>) -> Listener {
    let progress = ctx.progress.clone();
    Listener::new(move |now_ns| {
        let done = (now_ns as f64 / end_ns.max(1) as f64).min(1.0);
        progress.set(share.start + done * (share.end - share.start));
    })
}

/// Returns why the run of a simulated machine gives no result, if it does not.
pub(crate) fn failed(outcome: &mmscale_sim::Outcome) -> Result<(), StudyError> {
    match &outcome.failure {
        Some(mmscale_sim::Failure::Interrupted { .. }) => return Err(StudyError::Interrupted),
        Some(failure) => return Err(StudyError::Machine(failure.to_string())),
        None => {}
    }
    if !outcome.violations.is_empty() {
        let findings = outcome.violations.iter().map(ToString::to_string);
        return Err(StudyError::Check(findings.collect()));
    }
    Ok(())
}

/// Returns the kernel's default configuration, except that an allocation fails instead of killing a
/// process: a workload that runs out of memory continues with what it has. A study of OOM kills
/// sets the policy itself.
fn mm_of(map: MemoryMap) -> MmConfig {
    let mut config = MmConfig::new(map, TickPolicy::Stock);
    config.oom.policy = OomPolicy::Fail;
    config
}

/// Returns the check at the end of a run: with checkers on, the kernel also looks for lost frames.
fn final_check_of(ctx: &RunContext) -> FinalCheck {
    match ctx.checks {
        Checks::On => FinalCheck::Run,
        Checks::Off => FinalCheck::Skip,
    }
}

/// Runs `program` on its own machine, from boot until the last task returns. It is the body of the
/// system's first thread, and the run ends when it returns.
pub fn run(
    spec: MachineSpec,
    probes: Probes<'_>,
    program: Body<Os>,
) -> Result<MachineRun, StudyError> {
    let begin = Instant::now();
    // Set when the first thread returns, so not set if it could not start.
    let calls = Arc::new(OnceLock::new());
    let (told, (from_ns, until_ns)) = (Arc::clone(&calls), spec.measured_ns);
    let first = move |os: &Os| {
        os.calls().measure(from_ns, until_ns);
        program(os);
        told.set(os.calls().made()).expect("a kernel boots once");
    };
    let (mm, final_check, program) = (spec.mm, spec.final_check, Box::new(first));
    let boot = Boot { mm, final_check, program };
    let mut run = match spec.kind {
        Kind::Sim(config) => simulated(*config, (&spec.trails, &spec.timelines), probes, boot)?,
        Kind::Threads(config) => threaded(&config, probes, boot)?,
    };
    let Some(&made) = calls.get() else {
        let what = "the first process could not start: 100 attempts to allocate its memory failed; \
                    lower --set alloc_fail_1024";
        return Err(StudyError::Machine(what.to_owned()));
    };
    run.made = made;
    run.cost.host_ns = begin.elapsed().as_nanos() as u64;
    Ok(run)
}

fn simulated(
    mut config: SimConfig,
    (trails, timelines): (&Trails, &Timelines),
    probes: Probes<'_>,
    boot: Boot,
) -> Result<MachineRun, StudyError> {
    config.trail = trails.next();
    config.timeline = timelines.next();
    let outcome = on_sim(config, probes, boot);
    let failed = failed(&outcome);
    trails.keep(outcome.trail);
    timelines.keep(outcome.timeline);
    failed?;
    Ok(MachineRun {
        end_ns: outcome.virtual_ns,
        locks: outcome.locks,
        blame: outcome.blame,
        calls: outcome.calls,
        lines: outcome.lines,
        stranded_ns: outcome.stranded_ns,
        made: CallSet::default(),
        probes: outcome.probes,
        sections: outcome.sections,
        fingerprint: outcome.fingerprint,
        cost: HostCost { host_ns: 0, events: outcome.events },
    })
}

fn threaded(
    config: &ThreadsConfig,
    probes: Probes<'_>,
    boot: Boot,
) -> Result<MachineRun, StudyError> {
    let outcome = on_threads(config, probes, boot);
    match outcome.failure {
        Some(mmscale_threads::Failure::Interrupted { .. }) => return Err(StudyError::Interrupted),
        Some(failure) => return Err(StudyError::Machine(failure.to_string())),
        None => {}
    }
    let spun = outcome.locks.iter().filter(|row| !row.sleeps);
    let acquisitions = spun.map(|row| row.acquisitions).sum();
    Ok(MachineRun {
        end_ns: outcome.wall_ns,
        locks: outcome.locks,
        blame: BlameRows::default(),
        calls: outcome.calls,
        lines: vec![],
        stranded_ns: 0,
        made: CallSet::default(),
        probes: outcome.probes,
        sections: Vec::new(),
        fingerprint: 0,
        cost: HostCost { host_ns: 0, events: acquisitions },
    })
}

/// Returns the parameters of every simulated machine.
pub(crate) fn machine_params() -> [ParamSpec; 3] {
    [
        ParamSpec::real(
            "cost_scale",
            Unit::One,
            1.0,
            [0.1, 10.0],
            "factor by which all costs of the profile are multiplied (sim)",
        ),
        ParamSpec::choice(
            "sched",
            "lazy",
            &["lazy", "naive", "both"],
            "schedule of the simulator; lazy and naive give equal results, which both verifies \
             (sim)",
        ),
        ParamSpec::count(
            "alloc_fail_1024",
            Unit::One,
            0,
            [0, 1024],
            "injected allocation failures, in 1/1024 of all allocations (sim)",
        ),
    ]
}

/// Returns those of them that do not depend on a memory manager.
pub(crate) fn bare_machine_params() -> [ParamSpec; 2] {
    let [cost_scale, sched, _] = machine_params();
    [cost_scale, sched]
}

/// Applies the parameters of machines without a memory manager.
pub(crate) fn set_bare_machine(params: &Params, config: &mut SimConfig) {
    config.profile = config.profile.scaled_costs(params.real("cost_scale"));
    config.policy = match params.choice("sched") {
        "naive" => Policy::Naive,
        _ => Policy::Lazy,
    };
}

/// Applies the parameters of every simulated machine.
pub(crate) fn set_machine(params: &Params, config: &mut SimConfig) {
    set_bare_machine(params, config);
    config.faults.alloc_fail_1024 = params.count("alloc_fail_1024") as u32;
}
