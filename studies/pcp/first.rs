//! The first program of a run: allocates the memory that the workload must not have, starts the
//! workload's programs, and counts free memory after they have stopped.

use super::compile::{self, Compile, FileCache, Slabs};
use super::exit::{self, GiveBack};
use super::frames::frames;
use super::plan::{LoadKind, MAKES_PER_CPU};
use super::purger::{self, SourceFactory, Turn};
use super::worker::{Worker, sleep_until};
use super::{AllocPath, AllocatorData, Pcp, build, edge, mixed, offline};
use crate::kept::Kept;
use mmscale_arch::Machine;
use mmscale_harness::Run;
use mmscale_kernel::Kernel;
use mmscale_system::{Errno, ProcessId, System, ThreadId, ThreadSpec};

/// Threads and processes that were started.
#[derive(Default)]
struct Started {
    processes: Vec<ProcessId>,
    threads: Vec<ThreadId>,
}

/// Runs the workload on any system.
pub(super) fn run<S: System>(run: &Run<Pcp>, system: &S) {
    let mut started = Started::default();
    let slabs = compile::no_slabs();
    let sources = Sources { make: purger::mapped, give_back: GiveBack::Exit, turn: no_turn, slabs };
    // Wait only for those that could be started.
    let _ = start_processes(run, system, &mut started, sources);
    for process in started.processes {
        let _ = system.wait(process);
    }
}

/// Runs the workload on a machine with this program's memory manager.
pub(super) fn run_inside<A: Machine>(run: &Run<Pcp>, kernel: &Kernel<A>) {
    let frames = kernel.mm().frames();
    let high: u64 = frames.zones().iter().map(|zone| u64::from(zone.watermarks().high)).sum();
    let above = if matches!(run.plan.load, LoadKind::Compile(_)) { high } else { 0 };
    let kept = run.plan.room_pages.map(|room| Kept::all_but(frames, room + above));
    let min_mark = frames.zones().iter().map(|zone| u64::from(zone.watermarks().min)).sum();
    let before = Some(frames.census());
    run.inside(|memory| *memory = AllocatorData { before, min_mark, ..AllocatorData::default() });
    let mut started = Started::default();
    // The end of the run may come first.
    let _ =
        start(run, kernel, &mut started).and_then(|()| start_offline(run, kernel, &mut started));
    if sleep_until(kernel, run.plan.at.census_ns).is_ok() {
        let after = Some(frames.census());
        run.inside(|memory| memory.after = after);
    }
    for process in started.processes {
        let _ = kernel.wait(process);
    }
    for thread in started.threads {
        let _ = kernel.join(thread);
    }
    if let Some(kept) = kept {
        kept.release(frames);
    }
}

fn start<A: Machine>(
    run: &Run<Pcp>,
    kernel: &Kernel<A>,
    started: &mut Started,
) -> Result<(), Errno> {
    if let LoadKind::Edge(plan) = run.plan.load {
        return start_edge(run, kernel, plan, started);
    }
    if let LoadKind::Compile(Compile { cache: Some(cache), .. }) = run.plan.load {
        start_file_cache(run, kernel, cache, started)?;
    }
    let (make, give_back): (SourceFactory<Kernel<A>>, _) = match run.plan.through {
        AllocPath::System => (purger::mapped, GiveBack::Exit),
        AllocPath::Frames => (frames, GiveBack::Itself),
    };
    let slabs = compile::slabs();
    start_processes(run, kernel, started, Sources { make, give_back, turn: turn::<A>, slabs })
}

fn start_edge<A: Machine>(
    run: &Run<Pcp>,
    kernel: &Kernel<A>,
    plan: edge::Edge,
    started: &mut Started,
) -> Result<(), Errno> {
    (0..kernel.cpus()).try_for_each(|cpu| {
        let worker = Worker { number: cpu, cpu, cpus: kernel.cpus(), run: run.clone() };
        let body = move |system: &Kernel<A>| {
            edge::program(system, system.mm().frames(), &plan, &worker);
        };
        started.threads.push(kernel.spawn(ThreadSpec::on(cpu), Box::new(body))?);
        Ok(())
    })
}

/// Starts a process on each CPU that is its share of the page cache of files of `compile`.
fn start_file_cache<A: Machine>(
    run: &Run<Pcp>,
    kernel: &Kernel<A>,
    plan: FileCache,
    started: &mut Started,
) -> Result<(), Errno> {
    let cpus = kernel.cpus();
    (0..cpus).try_for_each(|cpu| {
        let number = MAKES_PER_CPU * cpus + 1 + cpu;
        let worker = Worker { number, cpu, cpus, run: run.clone() };
        // An error means the end of the run.
        let body = move |system: &Kernel<A>| _ = compile::file_cache(system, plan, &worker);
        match kernel.process(ThreadSpec::on(cpu), Box::new(body)) {
            Ok(process) => started.processes.push(process),
            Err(Errno::Nomem) => {}
            Err(other) => return Err(other),
        }
        Ok(())
    })
}

/// Starts the thread that takes memory offline, if requested, on the last CPU.
fn start_offline<A: Machine>(
    run: &Run<Pcp>,
    kernel: &Kernel<A>,
    started: &mut Started,
) -> Result<(), Errno> {
    let Some(plan) = run.plan.offline else { return Ok(()) };
    let (cpus, cpu) = (kernel.cpus(), kernel.cpus() - 1);
    let number = MAKES_PER_CPU * cpus;
    let worker = Worker { number, cpu, cpus, run: run.clone() };
    let body = move |system: &Kernel<A>| offline::program(system, plan, &worker);
    started.threads.push(kernel.spawn(ThreadSpec::on(cpu), Box::new(body))?);
    Ok(())
}

/// Where pages come from, how they are freed, and how programs observe each other's actions in
/// order.
struct Sources<S> {
    make: SourceFactory<S>,
    give_back: GiveBack,
    turn: Turn,
    /// Memory that the kernel allocates for programs.
    slabs: Slabs<S>,
}

type Start<S> = Box<dyn FnOnce(&S, &Worker) -> Result<(), Errno> + Send>;

/// Starts the workloads that run on any system.
fn start_processes<S: System>(
    run: &Run<Pcp>,
    system: &S,
    started: &mut Started,
    sources: Sources<S>,
) -> Result<(), Errno> {
    let cpus = system.cpus();
    let Sources { make, give_back, turn, slabs } = sources;
    let mut process = |number: usize, body: Start<S>| -> Result<(), Errno> {
        let worker = Worker { number, cpu: number % cpus, cpus, run: run.clone() };
        let body = move |system: &S| _ = body(system, &worker);
        match system.process(ThreadSpec::on(number % cpus), Box::new(body)) {
            Ok(process) => started.processes.push(process),
            // Injected failure, or out of memory: one program less.
            Err(Errno::Nomem) => {}
            Err(other) => return Err(other),
        }
        Ok(())
    };
    match run.plan.load {
        LoadKind::Build(plan) => (0..MAKES_PER_CPU * cpus).try_for_each(|nth| {
            process(nth, Box::new(move |system, worker| build::make(system, &plan, worker)))
        }),
        LoadKind::Compile(plan) => (0..cpus).try_for_each(|cpu| {
            process(
                cpu,
                Box::new(move |system, worker| compile::make(system, &plan, worker, slabs)),
            )
        }),
        LoadKind::Purger(plan) => (0..cpus).step_by(purger::GROUP).try_for_each(|first| {
            let size = purger::GROUP.min(cpus - first);
            let body: Start<S> = Box::new(move |system, worker| {
                purger::process(system, &plan, worker, size, (make, turn))
            });
            process(first, body)
        }),
        LoadKind::Exit(plan) => (0..cpus).step_by(exit::THREADS).try_for_each(|first| {
            let (size, how) = (exit::THREADS.min(cpus - first), (make, give_back));
            let body: Start<S> =
                Box::new(move |system, worker| exit::process(system, &plan, worker, size, how));
            process(first, body)
        }),
        LoadKind::Mixed(plan) => (0..cpus).try_for_each(|cpu| {
            process(cpu, Box::new(move |system, worker| mixed::process(system, &plan, worker)))
        }),
        // Blocks straight from the frame allocator are available only inside the memory manager.
        LoadKind::Edge(_) => Err(Errno::Inval),
    }
}

/// Takes a turn: orders the following accesses after earlier actions of other CPUs.
fn turn<A: Machine>() {
    let _ = A::need_resched();
}

/// CPUs of a real machine observe each other's stores in order without help.
fn no_turn() {}
