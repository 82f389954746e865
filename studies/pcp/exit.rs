//! `exit`: large processes that all exit at the same time. Each has threads on several CPUs, which
//! touch its pages; one thread tears the process down. It frees the pages that all threads
//! allocated, and allocates nothing.

use super::Tally;
use super::purger::{Source, SourceFactory};
use super::worker::{Worker, wait};
use mmscale_system::{Errno, System, ThreadSpec};
use std::sync::Arc;

/// Threads of a process, each on its own CPU.
pub(super) const THREADS: usize = 4;

/// Sizes of the workload.
#[derive(Clone, Copy, Debug)]
pub(super) struct Exit {
    pub(super) pages: u64,
}

/// A process on `cpus` CPUs, starting with the worker's CPU. Its first thread returns last. Mapped
/// memory is freed by the exit, other memory just before.
pub(super) fn process<S: System>(
    system: &S,
    exit: &Exit,
    worker: &Worker,
    cpus: usize,
    (make, give_back): (SourceFactory<S>, GiveBack),
) -> Result<(), Errno> {
    let heap: Arc<dyn Source<S>> = make(system, cpus as u64, exit.pages)?.into();
    let mut threads = Vec::new();
    for nth in 1..cpus {
        let (heap, exit) = (Arc::clone(&heap), *exit);
        let own = Worker { cpu: worker.cpu + nth, ..worker.clone() };
        let spec = ThreadSpec::on(own.cpu);
        let body = move |system: &S| _ = touch(system, &exit, &own, &*heap, nth as u64);
        threads.push(system.spawn(spec, Box::new(body))?);
    }
    touch(system, exit, worker, &*heap, 0)?;
    threads.into_iter().try_for_each(|thread| system.join(thread))?;
    let waited = wait(system, worker.at().from_ns);
    if give_back == GiveBack::Itself {
        (0..cpus as u64).try_for_each(|chunk| heap.give_back(system, chunk))?;
    }
    waited
}

/// How the memory of a process is freed at its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum GiveBack {
    /// By the system, at exit.
    Exit,
    /// By the process.
    Itself,
}

fn touch<S: System>(
    system: &S,
    exit: &Exit,
    worker: &Worker,
    heap: &dyn Source<S>,
    nth: u64,
) -> Result<(), Errno> {
    let mut tally = Tally::default();
    worker.begin(system)?;
    (0..exit.pages).try_for_each(|page| heap.touch(system, nth, page, &mut tally))?;
    worker.add(&tally);
    Ok(())
}
