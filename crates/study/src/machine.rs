//! Boots a kernel on the machine that was asked for, runs one program on it, and gathers what it
//! left. The only place that knows which machines there are.

use crate::study::{Checks, RunContext, StudyError};
use crate::trails::Trails;
use mmscale_arch::{CpuId, Probe};
use mmscale_document::{CallRow, LockRow, On};
use mmscale_frames::page_alloc::MemoryMap;
use mmscale_kernel::{Ending, Kernel};
use mmscale_mm::mm::MmConfig;
use mmscale_mm::oom::OomPolicy;
use mmscale_mm::upkeep::TickPolicy;
use mmscale_sim::profile::Profile;
use mmscale_sim::{CpuSections, Listener, Sim, SimConfig};
use mmscale_threads::{MEMORY_PAGES, Threads, ThreadsConfig};
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// What a machine runs: the same source on each.
pub(crate) trait Program: Send + 'static {
    /// The first thread of the system; when it returns, the run is over.
    fn run<A: mmscale_arch::Machine>(self, kernel: &Kernel<A>);
}

/// A machine and the memory manager on it.
#[derive(Clone, Debug)]
pub(crate) struct MachineSpec {
    pub(crate) mm: MmConfig,
    ending: Ending,
    machine: Machine,
    trails: Trails,
}

#[derive(Clone, Debug)]
enum Machine {
    Sim(Box<SimConfig>),
    Threads(ThreadsConfig),
}

/// What a run left.
pub(crate) struct MachineRun {
    /// When it ended, on the machine's clock.
    pub(crate) end_ns: u64,
    pub(crate) locks: Vec<LockRow>,
    /// CPU time by call path.
    pub(crate) calls: Vec<CallRow>,
    pub(crate) probes: Vec<Box<dyn Probe>>,
    /// Sections without preemption, by CPU, if the run asked for them; simulated machines only.
    pub(crate) sections: Vec<CpuSections>,
    pub(crate) fingerprint: u64,
    pub(crate) cost: HostCost,
}

/// When a machine counts locks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Counted {
    /// In the window that the run was given.
    Window,
    /// All the time: they are set against all that was done.
    Always,
}

impl Counted {
    pub(crate) fn on(machine: On) -> Self {
        if machine == On::Sim { Self::Window } else { Self::Always }
    }
}

/// What a run cost the host.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct HostCost {
    pub(crate) host_ns: u64,
    pub(crate) events: u64,
}

impl HostCost {
    pub(crate) fn add(&mut self, other: &Self) {
        self.host_ns += other.host_ns;
        self.events += other.events;
    }
    pub(crate) fn ns_per_event(&self) -> f64 {
        self.host_ns as f64 / self.events.max(1) as f64
    }
}

/// A probe for runs that need none.
pub(crate) fn silent(_: CpuId) -> Box<dyn Probe> {
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
    pub(crate) fn new(ctx: &RunContext, seed: u64) -> Self {
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
            machine: Machine::Sim(Box::new(config)),
            trails: ctx.trails.clone(),
        }
    }

    fn threads(ctx: &RunContext, seed: u64) -> Self {
        Self {
            mm: mm_of(MemoryMap::single(MEMORY_PAGES as u32)),
            ending: ending_of(ctx),
            machine: Machine::Threads(ThreadsConfig {
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
    pub(crate) fn pages(&self) -> u64 {
        self.mm.map.frames() as u64
    }

    /// Gives a simulated machine that much memory, spread over its nodes; other machines keep
    /// theirs. Returns the pages that there are.
    pub(crate) fn set_memory_gib(&mut self, gib: u64) -> u64 {
        let Machine::Sim(config) = &mut self.machine else { return MEMORY_PAGES };
        let nodes = config.profile.topology.nodes;
        let pages = (gib << 30) / u64::from(config.profile.page_bytes) / nodes as u64;
        config.profile.node_pages = pages;
        let per_node = u32::try_from(pages).expect("parameters are checked");
        self.mm.map = MemoryMap::nodes(nodes, per_node);
        pages * nodes as u64
    }

    /// Has the run tell how far it is, as the part `share` of what `ctx` runs; the program ends at
    /// `end_ns`. Only a simulated machine does.
    pub(crate) fn expect_end(&mut self, ctx: &RunContext, end_ns: u64, share: Range<f64>) {
        let progress = ctx.progress.clone();
        self.simulated(|config| {
            config.progress = Some(Listener::new(move |now_ns| {
                let done = (now_ns as f64 / end_ns.max(1) as f64).min(1.0);
                progress.set(share.start + done * (share.end - share.start));
            }));
        });
    }

    /// What only a simulated machine has: nothing happens on others.
    pub(crate) fn simulated(&mut self, change: impl FnOnce(&mut SimConfig)) {
        if let Machine::Sim(config) = &mut self.machine {
            change(config);
        }
    }
}

/// The kernel's defaults, but that allocations fail where somebody would be killed: a workload that
/// meets the end of memory goes on with what it has. A study of kills sets the policy itself.
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
pub(crate) fn run<P: Program>(
    spec: MachineSpec,
    probe: impl FnMut(CpuId) -> Box<dyn Probe>,
    program: P,
) -> Result<MachineRun, StudyError> {
    let begin = Instant::now();
    let begun = Arc::new(AtomicBool::new(false));
    let booting = Booting { mm: spec.mm, ending: spec.ending, program, begun: Arc::clone(&begun) };
    let mut run = match spec.machine {
        Machine::Sim(config) => on_sim(*config, &spec.trails, booting, probe)?,
        Machine::Threads(config) => on_threads(&config, booting, probe)?,
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
    fn kernel<A: mmscale_arch::Machine>(self) -> Kernel<A> {
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
