//! `exit`: big processes that end all at once. Each has threads on several CPUs, which touch its
//! pages; one of them takes it down: it frees what all of them were given, and allocates nothing.

use super::{Tally, Worker, wait};
use mmscale_system::{Addr, Errno, MapSpec, PAGE_BYTES, System, ThreadSpec};

/// Threads of a process, each on a CPU of its own.
pub(crate) const THREADS: usize = 4;

/// What a thread touches.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Exit {
    pub(crate) pages: u64,
}

/// A process on `cpus` CPUs from the worker's on. Its first thread returns last.
pub(crate) fn process<S: System>(
    system: &S,
    exit: &Exit,
    worker: &Worker,
    cpus: usize,
) -> Result<(), Errno> {
    let bytes = cpus as u64 * exit.pages * PAGE_BYTES;
    let mut tally = Tally::default();
    let Some(heap) = tally.forgive(system.mmap(MapSpec::new(bytes)))? else { return Ok(()) };
    let mut threads = Vec::new();
    for nth in 1..cpus {
        let (part, exit) = (heap.page(nth as u64 * exit.pages), *exit);
        let own = Worker { cpu: worker.cpu + nth, ..worker.clone() };
        let spec = ThreadSpec::on(own.cpu);
        let body = move |system: &S| _ = touch(system, &exit, &own, part);
        threads.push(system.spawn(spec, Box::new(body))?);
    }
    touch(system, exit, worker, heap)?;
    threads.into_iter().try_for_each(|thread| system.join(thread))?;
    wait(system, worker.at.from_ns)
}

fn touch<S: System>(system: &S, exit: &Exit, worker: &Worker, part: Addr) -> Result<(), Errno> {
    let mut tally = Tally::default();
    worker.begin(system)?;
    for page in (0..exit.pages).map(|page| part.page(page)) {
        tally.forgive(system.write(page, page.0))?;
    }
    let unharmed = tally.failures > 0 || system.read(part)? == part.0;
    tally.damaged += u64::from(!unharmed);
    worker.books.add(tally);
    Ok(())
}
