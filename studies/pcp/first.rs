//! The first program of a run: allocates the memory that the workload must not have, starts the
//! workload's programs, and counts free memory after they have stopped.

use super::compile::{self, Compile, FileCache, Slabs};
use super::exit::{self, GiveBack};
use super::frames::frames;
use super::plan::{LoadKind, MAKES_PER_CPU};
use super::purger::{self, SourceFactory};
use super::worker::{Worker, sleep_until};
use super::{AllocPath, AllocatorData, Pcp, build, edge, mixed, offline};
use crate::kept::Kept;
use mmscale_harness::Run;
use mmscale_kernel::Os;
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
    let sources = Sources { make: purger::mapped, give_back: GiveBack::Exit, slabs };
    // Wait only for those that could be started.
    let _ = start_processes(run, system, &mut started, sources);
    for process in started.processes {
        let _ = system.wait(process);
    }
}

/// Runs the workload on a machine with this program's memory manager.
pub(super) fn run_inside(run: &Run<Pcp>, os: &Os) {
    let inside = os.inside();
    let is_compile = matches!(run.plan.load, LoadKind::Compile(_));
    let above = if is_compile { inside.high_pages() } else { 0 };
    let kept = run.plan.room_pages.map(|room| Kept::all_but(room + above, inside));
    let (min_mark, before) = (inside.min_pages(), Some(inside.census()));
    run.inside(|memory| *memory = AllocatorData { before, min_mark, ..AllocatorData::default() });
    let mut started = Started::default();
    // The end of the run may come first.
    let _ = start(run, os, &mut started).and_then(|()| start_offline(run, os, &mut started));
    if sleep_until(os, run.plan.at.census_ns).is_ok() {
        let after = Some(inside.census());
        run.inside(|memory| memory.after = after);
    }
    for process in started.processes {
        let _ = os.wait(process);
    }
    for thread in started.threads {
        let _ = os.join(thread);
    }
    if let Some(kept) = kept {
        kept.release(inside);
    }
}

fn start(run: &Run<Pcp>, os: &Os, started: &mut Started) -> Result<(), Errno> {
    if let LoadKind::Edge(plan) = run.plan.load {
        return start_edge(run, os, plan, started);
    }
    if let LoadKind::Compile(Compile { cache: Some(cache), .. }) = run.plan.load {
        start_file_cache(run, os, cache, started)?;
    }
    let (make, give_back): (SourceFactory<Os>, _) = match run.plan.through {
        AllocPath::System => (purger::mapped, GiveBack::Exit),
        AllocPath::Frames => (frames, GiveBack::Itself),
    };
    let slabs = compile::slabs();
    start_processes(run, os, started, Sources { make, give_back, slabs })
}

fn start_edge(
    run: &Run<Pcp>,
    os: &Os,
    plan: edge::Edge,
    started: &mut Started,
) -> Result<(), Errno> {
    (0..os.cpus()).try_for_each(|cpu| {
        let worker = Worker { number: cpu, cpu, cpus: os.cpus(), run: run.clone() };
        let body = move |os: &Os| edge::program(os, &plan, &worker);
        started.threads.push(os.spawn(ThreadSpec::on(cpu), Box::new(body))?);
        Ok(())
    })
}

/// Starts a process on each CPU that is its share of the page cache of files of `compile`.
fn start_file_cache(
    run: &Run<Pcp>,
    os: &Os,
    plan: FileCache,
    started: &mut Started,
) -> Result<(), Errno> {
    let cpus = os.cpus();
    (0..cpus).try_for_each(|cpu| {
        let number = MAKES_PER_CPU * cpus + 1 + cpu;
        let worker = Worker { number, cpu, cpus, run: run.clone() };
        // An error means the end of the run.
        let body = move |os: &Os| _ = compile::file_cache(os, plan, &worker);
        match os.process(ThreadSpec::on(cpu), Box::new(body)) {
            Ok(process) => started.processes.push(process),
            Err(Errno::Nomem) => {}
            Err(other) => return Err(other),
        }
        Ok(())
    })
}

/// Starts the thread that takes memory offline, if requested, on the last CPU.
fn start_offline(run: &Run<Pcp>, os: &Os, started: &mut Started) -> Result<(), Errno> {
    let Some(plan) = run.plan.offline else { return Ok(()) };
    let (cpus, cpu) = (os.cpus(), os.cpus() - 1);
    let number = MAKES_PER_CPU * cpus;
    let worker = Worker { number, cpu, cpus, run: run.clone() };
    let body = move |os: &Os| offline::program(os, plan, &worker);
    started.threads.push(os.spawn(ThreadSpec::on(cpu), Box::new(body))?);
    Ok(())
}

/// Where pages come from, and how they are freed.
struct Sources<S> {
    make: SourceFactory<S>,
    give_back: GiveBack,
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
    let Sources { make, give_back, slabs } = sources;
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
            let body: Start<S> =
                Box::new(move |system, worker| purger::process(system, &plan, worker, size, make));
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
