//! One seed of one arm: a machine with a victim on it, and what its end left.

use super::ReapArm;
use super::figures::{self, Observed};
use super::layout::{Filled, mappings};
use super::probe::ReapProbe;
use super::workload::{self, Books, Plan};
use crate::machine::{self, MachineSpec, Program};
use crate::shipped::set_machine;
use crate::study::{RunContext, SeedResult, StudyError};
use mmscale_kernel::Kernel;
use mmscale_mm::arch::{Arch, Probe};
use mmscale_mm::lru::LruPolicy;
use mmscale_record::On;
use mmscale_system::{Errno, System, ThreadSpec};

/// Until programs run, and for what comes between making memory and the signal.
const SETTLE_NS: u64 = 30_000_000;
/// Making a page, and sending it to swap, if nobody helps; on real computers several times as long.
const PAGE_NS: u64 = 2_500;
const SWAP_NS: u64 = 30_000;
const HOST_TIMES: u64 = 4;
/// More memory than the victim wants: for page tables, and for watermarks.
const SPARE_1024: u64 = 128;

/// The first thread: starts the victim and its killer, and waits for both.
pub(super) struct Ending {
    pub(super) plan: Plan,
    pub(super) books: Books,
}

impl Program for Ending {
    fn run<A: Arch>(self, kernel: &Kernel<A>) {
        // The end of the run may come first.
        let _ = self.both(kernel);
    }
}

impl Ending {
    pub(super) fn both<S: System>(self, system: &S) -> Result<(), Errno> {
        let (plan, books) = (self.plan.clone(), self.books.clone());
        let body = move |system: &S| _ = workload::victim(system, &plan, &books);
        let victim = start(system, 0, body)?;
        let (plan, books) = (self.plan, self.books.clone());
        let body = move |system: &S| _ = workload::killer(system, &plan, victim, &books);
        let killer = start(system, 1 % system.cpus(), body)?;
        system.wait(killer)?;
        system.wait(victim)?;
        let now_ns = system.clock_ns();
        self.books.note(|happened| happened.over_ns = Some(now_ns));
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
    let mappings = mappings(layout, pages, seed);
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
        return Err(format!("{walkers} walkers on {cpus} CPUs: each has one to itself"));
    }
    let swapped_1024 = if layout == "huge" { 0 } else { params.count("swapped_1024") };
    let times = if ctx.on == On::Sim { 1 } else { HOST_TIMES };
    let page_ns = PAGE_NS + SWAP_NS * swapped_1024 / 1024;
    Ok(Plan {
        mappings: mappings.into(),
        swapped_1024,
        notice_ns: (params.real("notice_ms") * 1e6) as u64,
        helpers: walkers - 1,
        kill_ns: SETTLE_NS + pages * page_ns * times,
    })
}

/// Runs one arm with one seed.
pub(super) fn run(ctx: &RunContext, arm: ReapArm, seed: u64) -> Result<SeedResult, StudyError> {
    let mut spec = MachineSpec::new(ctx, seed);
    let plan = plan_of(ctx, seed, spec.pages()).map_err(StudyError::Machine)?;
    spec.mm.space.exit = arm.exit;
    spec.mm.lru = match ctx.params.choice("lru") {
        "lazy" => LruPolicy::Lazy,
        _ => LruPolicy::Stock,
    };
    if plan.swapped_1024 > 0 {
        spec.mm.swap.pages = ctx.params.count("pages") as u32;
    }
    spec.simulated(|config| {
        set_machine(&ctx.params, config);
        config.locks_ns = (plan.kill_ns, u64::MAX);
    });
    let books = Books::default();
    let (kill_ns, helpers) = (plan.kill_ns, plan.helpers);
    let program = Ending { plan, books: books.clone() };
    let probe = |_| Box::new(ReapProbe::new(kill_ns)) as Box<dyn Probe>;
    let mut machine = machine::run(spec, probe, program)?;
    let own = |probe: Box<dyn Probe>| probe.into_any().downcast::<ReapProbe>();
    let probes = machine.probes.drain(..);
    let probes: Vec<ReapProbe> =
        probes.map(|probe| *own(probe).expect("made by this function")).collect();
    let happened = books.read();
    if happened.ready_ns.is_none_or(|ready_ns| ready_ns >= kill_ns) {
        let what = "the victim's memory was not there in time: this computer is busy";
        return Err(StudyError::Machine(what.to_owned()));
    }
    let seen = Observed {
        calls: &machine.calls,
        locks: &machine.locks,
        probes: &probes,
        happened,
        walkers: helpers as u64 + 1,
        helpers: 1..=helpers,
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
    result.calls = figures::trees(&machine.calls);
    result.locks = machine.locks;
    result.fingerprint = machine.fingerprint;
    Ok(result)
}
