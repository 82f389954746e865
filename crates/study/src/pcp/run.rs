//! One seed of one arm: a machine with its memory, a workload on it, and what they leave.

use super::figures::{self, Observed};
use super::frames::frames;
use super::plan::{Load, Plan, Through};
use super::probe::{Owners, PcpProbe};
use super::workload::exit::GiveBack;
use super::workload::purger::Make;
use super::workload::{Books, Worker, build, edge, exit, mixed, purger, sleep_until};
use crate::machine::{self, Counted, MachineSpec, Program};
use crate::policies::Arm;
use crate::shipped::set_machine;
use crate::study::{RunContext, SeedResult, StudyError};
use mmscale_arch::{Machine, Order, Pfn, Probe};
use mmscale_document::On;
use mmscale_frames::frame::MigrateType;
use mmscale_frames::page_alloc::{Census, FrameAllocator, Gfp};
use mmscale_kernel::Kernel;
use mmscale_mm::group::GroupId;
use mmscale_mm::lru::LruPolicy;
use mmscale_system::{Errno, ProcessId, System, ThreadId, ThreadSpec};
use std::sync::{Arc, Mutex};

/// Parents on each CPU: while one waits for a child that was moved, the other goes on.
const MAKES_PER_CPU: usize = 2;

/// The first thread: takes what the workload is not to have, starts it, counts free memory.
pub(super) struct Caches {
    pub(super) plan: Plan,
    pub(super) seed: u64,
    pub(super) books: Books,
    pub(super) counted: Arc<Mutex<Memory>>,
}

/// Free memory, when and as far as it was counted.
#[derive(Debug, Default)]
pub(super) struct Memory {
    before: Option<Census>,
    after: Option<Census>,
    /// The min watermarks of all zones, in pages.
    min_mark: u64,
}

/// Threads or processes that were started.
#[derive(Default)]
pub(super) struct Started {
    pub(super) processes: Vec<ProcessId>,
    pub(super) threads: Vec<ThreadId>,
}

impl Program for Caches {
    fn run<A: Machine>(self, kernel: &Kernel<A>) {
        let frames = kernel.mm().frames();
        let kept = keep(frames, self.plan.room_pages);
        let marks = frames.zones().iter().map(|zone| u64::from(zone.watermarks().min));
        *self.counted() =
            Memory { before: Some(frames.census()), after: None, min_mark: marks.sum() };
        let mut started = Started::default();
        // The end of the run may come first.
        let _ = self.start(kernel, &mut started);
        let at = self.plan.at;
        if sleep_until(kernel, at.census_ns).is_ok() {
            self.counted().after = Some(frames.census());
        }
        for process in started.processes {
            let _ = kernel.wait(process);
        }
        for thread in started.threads {
            let _ = kernel.join(thread);
        }
        kept.into_iter().for_each(|block| frames.free_pages(block, Order::MAX));
    }
}

/// Takes the largest blocks until about `room_pages` are free.
fn keep<A: Machine>(frames: &FrameAllocator<A>, room_pages: Option<u64>) -> Vec<Pfn> {
    let Some(room_pages) = room_pages else { return Vec::new() };
    let surplus = frames.census().free_pages().saturating_sub(room_pages);
    let blocks = 0..surplus >> Order::MAX.get();
    let take = |_| frames.alloc_pages(Order::MAX, MigrateType::Movable, Gfp::KERNEL).ok();
    blocks.map_while(take).collect()
}

impl Caches {
    fn counted(&self) -> std::sync::MutexGuard<'_, Memory> {
        self.counted.lock().expect("only the first thread counts")
    }
    fn worker(&self, number: usize, cpu: usize, cpus: usize) -> Worker {
        let (at, books) = (self.plan.at, self.books.clone());
        Worker { number, cpu, cpus, seed: self.seed, at, books }
    }
    fn start<A: Machine>(&self, kernel: &Kernel<A>, started: &mut Started) -> Result<(), Errno> {
        if let Load::Edge(plan) = self.plan.load {
            return self.start_edge(kernel, plan, started);
        }
        let (make, give_back): (Make<Kernel<A>>, _) = match self.plan.through {
            Through::System => (purger::mapped, GiveBack::Exit),
            Through::Frames => (frames, GiveBack::Itself),
        };
        self.start_processes(kernel, started, Ways { make, give_back, turn: turn::<A> })
    }
    fn start_edge<A: Machine>(
        &self,
        kernel: &Kernel<A>,
        plan: edge::Edge,
        started: &mut Started,
    ) -> Result<(), Errno> {
        (0..kernel.cpus()).try_for_each(|cpu| {
            let worker = self.worker(cpu, cpu, kernel.cpus());
            let body = move |system: &Kernel<A>| {
                edge::program(system, system.mm().frames(), &plan, &worker);
            };
            started.threads.push(kernel.spawn(ThreadSpec::on(cpu), Box::new(body))?);
            Ok(())
        })
    }
    /// The workloads that are programs of any system.
    pub(super) fn start_processes<S: System>(
        &self,
        kernel: &S,
        started: &mut Started,
        ways: Ways<S>,
    ) -> Result<(), Errno> {
        let cpus = kernel.cpus();
        let Ways { make, give_back, turn } = ways;
        let mut process = |number: usize, body: Start<S>| -> Result<(), Errno> {
            let worker = self.worker(number, number % cpus, cpus);
            let body = move |system: &S| _ = body(system, &worker);
            match kernel.process(ThreadSpec::on(number % cpus), Box::new(body)) {
                Ok(process) => started.processes.push(process),
                // Injected, or out of memory: one program less.
                Err(Errno::Nomem) => {}
                Err(other) => return Err(other),
            }
            Ok(())
        };
        match self.plan.load {
            Load::Build(plan) => (0..MAKES_PER_CPU * cpus).try_for_each(|nth| {
                process(nth, Box::new(move |system, worker| build::make(system, &plan, worker)))
            }),
            Load::Purger(plan) => (0..cpus).step_by(purger::GROUP).try_for_each(|first| {
                let size = purger::GROUP.min(cpus - first);
                let body: Start<S> = Box::new(move |system, worker| {
                    purger::process(system, &plan, worker, size, (make, turn))
                });
                process(first, body)
            }),
            Load::Exit(plan) => (0..cpus).step_by(exit::THREADS).try_for_each(|first| {
                let (size, how) = (exit::THREADS.min(cpus - first), (make, give_back));
                let body: Start<S> =
                    Box::new(move |system, worker| exit::process(system, &plan, worker, size, how));
                process(first, body)
            }),
            Load::Mixed(plan) => (0..cpus).try_for_each(|cpu| {
                process(cpu, Box::new(move |system, worker| mixed::process(system, &plan, worker)))
            }),
            // Blocks straight from the frame allocator: only the memory manager has it.
            Load::Edge(_) => Err(Errno::Inval),
        }
    }
}

/// Where pages come from, how they go, and how programs see each other's doings in order.
pub(super) struct Ways<S> {
    pub(super) make: Make<S>,
    pub(super) give_back: GiveBack,
    pub(super) turn: purger::Turn,
}

type Start<S> = Box<dyn FnOnce(&S, &Worker) -> Result<(), Errno> + Send>;

/// An operation on shared state, which comes in its order.
fn turn<A: Machine>() {
    let _ = A::need_resched();
}

/// Why no run of these parameters can give a result, if so. How much memory a real computer has to
/// spare is known when it runs.
pub(super) fn refuse(ctx: &RunContext) -> Result<(), String> {
    if ctx.on == On::Linux {
        return Ok(());
    }
    let mut spec = MachineSpec::new(ctx, 0);
    let pages = spec.set_memory_gib(ctx.params.count("memory_gib"));
    Plan::of(ctx, pages).map(|_| ())
}

/// How many times longer a window is tried on a computer whose CPUs others have meanwhile.
const STRETCHES: [u64; 3] = [4, 16, 64];

/// Runs one arm with one seed.
pub(super) fn run(ctx: &RunContext, arm: &Arm, seed: u64) -> Result<SeedResult, StudyError> {
    let longer = if ctx.on == On::Threads { &STRETCHES[..] } else { &[] };
    for &times in [1].iter().chain(longer) {
        if let Some(mut result) = run_stretched(ctx, arm, seed, times)? {
            if times > 1 {
                result.host_metrics.insert("window_stretched".to_owned(), times as f64);
            }
            return Ok(result);
        }
    }
    let what = "no page came or went in the time that counts: make it longer";
    Err(StudyError::Machine(what.to_owned()))
}

/// The same with a window `times` as long as the parameters say; nothing if no page came or went in
/// it.
fn run_stretched(
    ctx: &RunContext,
    arm: &Arm,
    seed: u64,
    times: u64,
) -> Result<Option<SeedResult>, StudyError> {
    let mut spec = MachineSpec::new(ctx, seed);
    let pages = spec.set_memory_gib(ctx.params.count("memory_gib"));
    let plan = Plan::stretched(ctx, pages, times).map_err(StudyError::Machine)?;
    spec.expect_end(ctx, plan.at.end_ns, 0.0..1.0);
    if ctx.params.choice("groups") == "cpu" {
        spec.mm.groups = (ctx.cpus + 1).min(GroupId::MAX);
    }
    spec.mm.lru = match ctx.params.choice("lru") {
        "stock" => LruPolicy::Stock,
        _ => LruPolicy::Lazy,
    };
    arm.configure(&mut spec.mm);
    let window = (plan.at.from_ns, plan.at.until_ns);
    spec.simulated(|config| {
        set_machine(&ctx.params, config);
        config.locks_ns = window;
    });
    let (books, counted) = (Books::default(), Arc::new(Mutex::new(Memory::default())));
    let program = Caches { plan, seed, books: books.clone(), counted: Arc::clone(&counted) };
    let owners = Owners::new(pages as usize);
    let probe = |cpu| Box::new(PcpProbe::new(cpu, window, owners.clone())) as Box<dyn Probe>;
    let mut machine = machine::run(spec, probe, program)?;
    let own = |probe: Box<dyn Probe>| probe.into_any().downcast::<PcpProbe>();
    let probes = machine.probes.drain(..);
    let mut probes: Vec<PcpProbe> =
        probes.map(|probe| *own(probe).expect("made by this function")).collect();
    probes.iter_mut().for_each(|probe| probe.finish(machine.end_ns));
    let tally = books.close();
    if tally.damaged > 0 {
        let what = format!("{} pages did not hold what their program had written", tally.damaged);
        return Err(StudyError::Check(vec![what]));
    }
    let counted = counted.lock().expect("the run is over");
    let Some((before, census)) = counted.before.zip(counted.after) else {
        let what = "the run was over before free memory was counted";
        return Err(StudyError::Machine(what.to_owned()));
    };
    let edge = matches!(plan.load, Load::Edge(_));
    let seen = Observed {
        cpus: ctx.cpus,
        window_ns: window.1 - window.0,
        locks_counted: Counted::on(ctx.on),
        locks: &machine.locks,
        probes: &probes,
        tally: &tally,
        census,
        edge: edge.then_some((before.free_pages(), counted.min_mark)),
    };
    let mut result = SeedResult::default();
    if !figures::measure(&seen, &mut result) {
        return Ok(None);
    }
    let given: u64 = probes.iter().map(|probe| probe.all_pages).sum();
    let host_ns = machine.cost.host_ns as f64;
    result.host_metrics.insert("host_ns_per_event".to_owned(), machine.cost.ns_per_event());
    result.host_metrics.insert("host_ns_per_page".to_owned(), host_ns / given.max(1) as f64);
    result.locks = machine.locks;
    result.fingerprint = machine.fingerprint;
    Ok(Some(result))
}
