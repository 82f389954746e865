//! One seed of one arm: a machine with a victim on it, and what its end left.

use super::figures::{self, Observed};
use super::layout::{Filled, mappings};
use super::probe::ReapProbe;
use super::workload::{self, Books, Happened, Plan, Via};
use crate::machine::{self, MachineSpec, Program};
use crate::policies::Arm;
use crate::shipped::set_machine;
use crate::study::{RunContext, SeedResult, StudyError};
use mmscale_arch::{Machine, Probe};
use mmscale_document::On;
use mmscale_kernel::Kernel;
use mmscale_mm::group::GroupId;
use mmscale_mm::lru::LruPolicy;
use mmscale_mm::mm::MmConfig;
use mmscale_mm::oom::OomPolicy;
use mmscale_mm::swap::SwapDevice;
use mmscale_system::{Errno, System, ThreadSpec};

/// Until programs run.
const SETTLE_NS: u64 = 5_000_000;
/// From there being all of the victim's memory to the signal: batches drain, writes end.
const REST_NS: u64 = 25_000_000;
/// Making a page, and sending it to swap, if nobody helps.
const PAGE_NS: u64 = 2_500;
const SWAP_NS: u64 = 30_000;
/// How much longer that may take on a real computer.
const HOST_TIMES: u64 = 4;
/// More memory than the victim wants: for page tables, and for watermarks.
const SPARE_1024: u64 = 128;
/// The group of every process but the first.
const GROUP: GroupId = GroupId::new(1);
/// Longer than anything takes: there is no reaper.
const NEVER_MS: u64 = 3_600_000;

/// The first thread: starts the processes, and waits for them.
pub(super) struct Ending {
    pub(super) plan: Plan,
    pub(super) books: Books,
}

impl Program for Ending {
    fn run<A: Machine>(self, kernel: &Kernel<A>) {
        // The end of the run may come first.
        let _ = self.all(kernel, || self.limit(kernel));
    }
}

impl Ending {
    /// Starts all, and waits for them. `limit` sees to it that there is no memory.
    pub(super) fn all<S: System>(
        &self,
        system: &S,
        limit: impl FnOnce() -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let (plan, books, last) = (self.plan.clone(), self.books.clone(), system.cpus() - 1);
        let body = move |system: &S| _ = workload::parent(system, &plan, &books);
        let parent = start(system, last, body)?;
        let (plan, books) = (self.plan.clone(), self.books.clone());
        let killer = match self.plan.via {
            Via::Mrelease => {
                let body = move |system: &S| _ = workload::killer(system, &plan, &books);
                start(system, 1 % system.cpus(), body)?
            }
            Via::Oom => {
                let body = move |system: &S| _ = workload::hog(system, &books);
                let hog = start(system, last, body)?;
                limit()?;
                hog
            }
        };
        system.wait(killer)?;
        system.wait(parent)?;
        Ok(())
    }
    /// Nobody may have more memory than they have just before the kill is due, as when an
    /// administrator lowers a group's limit.
    fn limit<A: Machine>(&self, kernel: &Kernel<A>) -> Result<(), Errno> {
        let ready = |happened: Happened| happened.kill_at_ns;
        self.books.wait_for(kernel, REST_NS / 4, ready)?;
        let groups = kernel.mm().memory().groups;
        groups.set_limit(GROUP, Some(groups.usage(GROUP)));
        self.books.note(|happened| happened.limited = true);
        Ok(())
    }
}

/// Starts a process; asks again where memory for it was refused by an injected failure.
fn start<S: System>(
    system: &S,
    cpu: usize,
    body: impl FnOnce(&S) + Clone + Send + 'static,
) -> Result<mmscale_system::ProcessId, Errno> {
    const ATTEMPTS: usize = 100;
    let mut asked = Err(Errno::Nomem);
    for _ in 0..ATTEMPTS {
        asked = system.process(ThreadSpec::on(cpu), Box::new(body.clone()));
        if asked != Err(Errno::Nomem) {
            break;
        }
    }
    asked
}

/// The plan of a run on a machine of `room` pages. The error says what does not fit.
pub(super) fn plan_of(ctx: &RunContext, seed: u64, room: u64) -> Result<Plan, String> {
    let (params, layout) = (&ctx.params, ctx.params.choice("layout"));
    let pages = params.count("pages");
    let mappings = mappings(layout, pages, params.count("file_1024"), seed);
    let tables = match mappings[0].filled {
        Filled::Every(_) => mappings.iter().map(|mapping| mapping.pages / 512).sum(),
        Filled::Whole | Filled::Huge => pages / 512,
    };
    let wants = pages + tables + room * SPARE_1024 / 1024;
    if wants > room {
        return Err(format!(
            "a victim of {pages} pages with its page tables and some room takes {wants}, and the \
             machine has {room}: make it smaller (--set pages)"
        ));
    }
    let walkers = params.count("walkers") as usize;
    if walkers > ctx.cpus {
        let cpus = ctx.cpus;
        return Err(format!(
            "{walkers} walkers want as many CPUs, and the machine has {cpus}: take fewer (--set \
             walkers), or more CPUs"
        ));
    }
    let via = if params.choice("via") == "oom" { Via::Oom } else { Via::Mrelease };
    if via == Via::Oom && walkers > 2 {
        return Err(format!(
            "{walkers} walkers with via=oom: there is the exit, and one reaper for all address \
             spaces; take 1 or 2"
        ));
    }
    let swapped_1024 = if layout == "huge" { 0 } else { params.count("swapped_1024") };
    let page_ns = PAGE_NS + SWAP_NS * swapped_1024 / 1024;
    // Where everything costs more, making the victim's memory takes longer.
    let scale = if ctx.on == On::Sim { params.real("cost_scale").max(1.0) } else { 1.0 };
    let page_ns = (page_ns as f64 * scale) as u64;
    // On a computer nobody knows how long that takes. The victim says when it is ready; what is
    // watched in a live kernel is watched from what was planned.
    let making_ns = match ctx.on {
        On::Sim => pages * page_ns,
        On::Linux => pages * page_ns * HOST_TIMES,
        On::Threads => 0,
    };
    Ok(Plan {
        via,
        mappings: mappings.into(),
        swapped_1024,
        notice_ns: (params.real("notice_ms") * 1e6) as u64,
        helpers: walkers - 1,
        kill_ns: SETTLE_NS + making_ns + REST_NS,
        rest_ns: REST_NS,
    })
}

/// Swap, and what becomes of whoever wants more memory than there is.
fn set_memory(ctx: &RunContext, plan: &Plan, mm: &mut MmConfig) {
    let params = &ctx.params;
    if plan.swapped_1024 > 0 {
        mm.swap.device = match params.choice("swap") {
            "block" => SwapDevice::Block,
            _ => SwapDevice::Compressed,
        };
        // Where memory is to run out, swap is full.
        mm.swap.pages = match plan.via {
            Via::Oom => plan.swapped_pages() as u32,
            Via::Mrelease => params.count("pages") as u32,
        };
    }
    if plan.via == Via::Oom {
        mm.groups = 2;
        mm.oom.policy = OomPolicy::Kill;
        let delay_ms = if plan.helpers == 0 { NEVER_MS } else { params.count("delay_ms") };
        mm.oom.delay_ns = delay_ms * 1_000_000;
    }
}

/// Why no run of these parameters can give a result, if so. How much memory a real computer has to
/// spare is known when it runs.
pub(super) fn refuse(ctx: &RunContext) -> Result<(), String> {
    let room = if ctx.on == On::Linux { u64::MAX / 2048 } else { MachineSpec::new(ctx, 0).pages() };
    plan_of(ctx, 0, room).map(|_| ())
}

/// Runs one arm with one seed.
pub(super) fn run(ctx: &RunContext, arm: &Arm, seed: u64) -> Result<SeedResult, StudyError> {
    let mut spec = MachineSpec::new(ctx, seed);
    let plan = plan_of(ctx, seed, spec.pages()).map_err(StudyError::Machine)?;
    spec.expect_end(ctx, plan.kill_ns + plan.rest_ns, 0.0..1.0);
    spec.mm.lru = match ctx.params.choice("lru") {
        "lazy" => LruPolicy::Lazy,
        _ => LruPolicy::Stock,
    };
    arm.configure(&mut spec.mm);
    set_memory(ctx, &plan, &mut spec.mm);
    spec.simulated(|config| {
        set_machine(&ctx.params, config);
        config.locks_ns = (plan.kill_ns, u64::MAX);
    });
    let books = Books::default();
    let (kill_ns, helpers, via) = (plan.kill_ns, plan.helpers, plan.via);
    let program = Ending { plan, books: books.clone() };
    let probe = |_| Box::new(ReapProbe::new(kill_ns)) as Box<dyn Probe>;
    let mut machine = machine::run(spec, probe, program)?;
    let own = |probe: Box<dyn Probe>| probe.into_any().downcast::<ReapProbe>();
    let probes = machine.probes.drain(..);
    let probes: Vec<ReapProbe> =
        probes.map(|probe| *own(probe).expect("made by this function")).collect();
    let mut happened = books.read();
    if ctx.on == On::Sim && happened.kill_at_ns.is_none_or(|at_ns| at_ns > kill_ns) {
        let what = "the victim's memory was not there when it was to be killed: costs are higher \
                    than the study has planned for";
        return Err(StudyError::Machine(what.to_owned()));
    }
    if via == Via::Oom {
        happened.killed_ns = probes.iter().find_map(|probe| probe.marked_ns);
    }
    let seen = Observed {
        calls: &machine.calls,
        locks: &machine.locks,
        probes: &probes,
        happened,
        walkers: helpers as u64 + 1,
        reaper: if via == Via::Oom { "oom_reaper" } else { "process_mrelease" },
        // The reaper of the out-of-memory killer is on the first CPU.
        helpers: if via == Via::Oom { 0..1 } else { 1..helpers + 1 },
    };
    let mut result = SeedResult::default();
    if !figures::measure(&seen, &mut result) {
        let what = "the victim was not killed, or has not come to its end";
        return Err(StudyError::Machine(what.to_owned()));
    }
    let late = u64::from(happened.too_late);
    result.metric("walkers_too_late", late);
    result.host_metrics.insert("host_ns_per_event".to_owned(), machine.cost.ns_per_event());
    let pages = ctx.params.count("pages") as f64;
    let host_ns = machine.cost.host_ns as f64;
    result.host_metrics.insert("host_ns_per_page".to_owned(), host_ns / pages);
    result.calls = figures::trees(&machine.calls, seen.reaper);
    result.locks = machine.locks;
    result.fingerprint = machine.fingerprint;
    Ok(result)
}
