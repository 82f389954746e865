//! `build`: the memory behaviour of `make -j`. On each CPU, some parents start one short process
//! after another. A process shares its parent's pages, as compilers share their text. It faults in
//! its own pages, computes, and exits. Some processes are moved to another CPU halfway and exit
//! there, with pages from two CPUs.

use super::Tally;
use super::worker::Worker;
use mmscale_system::{Addr, Errno, MapSpec, PAGE_BYTES, System, ThreadSpec};
use rand_xoshiro::rand_core::Rng;

/// Pages that a parent shares with all its children; every fourth page is read.
const IMAGE_PAGES: u64 = 64;
/// One of this many children moves to another CPU.
const MOVES: u64 = 4;

/// Sizes of the workload.
#[derive(Clone, Copy, Debug)]
pub(super) struct Build {
    /// Mean number of pages of a process, uniformly distributed up to twice the mean.
    pub(super) pages: u64,
    /// CPU time in user mode after each page, in ns.
    pub(super) user_ns: u64,
}

/// The state of a process between its two halves.
#[derive(Clone, Copy)]
struct Job {
    heap: Addr,
    pages: u64,
    stamp: u64,
}

/// A parent.
pub(super) fn make<S: System>(system: &S, build: &Build, worker: &Worker) -> Result<(), Errno> {
    let mut rng = worker.rng();
    let image = system.mmap(MapSpec::populated(IMAGE_PAGES * PAGE_BYTES))?;
    worker.begin(system)?;
    while worker.has_time(system) {
        let pages = 1 + rng.next_u64() % (2 * build.pages);
        let to = rng.next_u64() as usize % worker.cpus;
        let to = rng.next_u64().is_multiple_of(MOVES).then_some(to);
        let (stamp, build, worker) = (rng.next_u64() | 1, *build, worker.clone());
        let child = system.fork(
            ThreadSpec::on(worker.cpu),
            Box::new(move |system: &S| {
                let _ = compile(system, build, worker, (image, pages, stamp), to);
            }),
        );
        match child {
            Ok(child) => _ = system.wait(child)?,
            Err(Errno::Nomem) => {}
            Err(other) => return Err(other),
        }
    }
    worker.rest(system)
}

/// A child.
fn compile<S: System>(
    system: &S,
    build: Build,
    worker: Worker,
    (image, pages, stamp): (Addr, u64, u64),
    to: Option<usize>,
) -> Result<(), Errno> {
    let mut tally = Tally::default();
    for page in (0..IMAGE_PAGES).step_by(4) {
        tally.forgive(system.read(image.page(page)))?;
    }
    let Some(heap) = tally.forgive(system.mmap(MapSpec::new(pages * PAGE_BYTES)))? else {
        worker.add(&tally);
        return Ok(());
    };
    let job = Job { heap, pages, stamp };
    let _ = half(system, build, &worker, job, 0, &mut tally);
    let Some(to) = to else {
        let _ = half(system, build, &worker, job, 1, &mut tally);
        worker.add(&tally);
        return Ok(());
    };
    // The last thread to return tears down the process, on its own CPU.
    let rest = move |system: &S| {
        let _ = half(system, build, &worker, job, 1, &mut tally);
        worker.add(&tally);
    };
    system.spawn(ThreadSpec::on(to), Box::new(rest)).map(|_| ())
}

/// Touches half of a child's pages.
fn half<S: System>(
    system: &S,
    build: Build,
    worker: &Worker,
    job: Job,
    nth: u64,
    tally: &mut Tally,
) -> Result<(), Errno> {
    let (from, to) = (nth * job.pages / 2, (nth + 1) * job.pages / 2);
    for page in (from..to).map(|page| job.heap.page(page)) {
        if !worker.has_time(system) || tally.forgive(system.write(page, job.stamp))?.is_none() {
            return Ok(());
        }
        tally.pages += 1;
        tally.compute(system, worker.at(), build.user_ns)?;
        if let Some(word) = tally.forgive(system.read(page))? {
            tally.damaged += u64::from(word != job.stamp);
        }
    }
    Ok(())
}
