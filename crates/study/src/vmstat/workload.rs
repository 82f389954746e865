//! The program of the study: on every CPU, bursts of mapping, touching and unmapping like
//! `stress-ng --vm`, with computing in between so that no CPU goes idle.
//!
//! A `stress-ng --vm` worker maps a region, writes all of it, checks it for a while, unmaps it, and
//! begins again; workers start one after another and drift apart. So does this one, in a process of
//! its own: it maps `burst_pages` pages and writes each, computes while it holds them, checks what
//! it wrote, unmaps them, computes for the rest of the period.

use mmscale_system::{Addr, Errno, MapSpec, PAGE_BYTES, System};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

/// What every worker does. Times in ns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Plan {
    /// Pages that a burst allocates and then frees.
    pub(crate) burst_pages: usize,
    /// From the start of a burst to the start of the next, up to 25 % more or less.
    pub(crate) period_ns: u64,
    /// The share of a period in which the pages of the burst are held, in percent.
    pub(crate) duty_percent: u64,
    /// Bursts of each worker; after that it computes.
    pub(crate) bursts: u64,
    /// When the workers begin no other burst, and return when their last is over.
    pub(crate) until_ns: u64,
}

/// What one worker did.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Tally {
    /// The CPU it was started on.
    pub(crate) cpu: usize,
    pub(crate) pages_allocated: u64,
    /// Allocations that failed: the burst ended early there.
    pub(crate) failures: u64,
    /// Pages whose content was not what this worker wrote.
    pub(crate) damaged: u64,
    /// When the last burst had been freed.
    pub(crate) last_burst_end_ns: u64,
}

mmscale_linux::plain!(Tally { cpu, pages_allocated, failures, damaged, last_burst_end_ns });

impl Tally {
    /// Adds what another did.
    pub(crate) fn add(&mut self, other: &Self) {
        self.pages_allocated += other.pages_allocated;
        self.failures += other.failures;
        self.damaged += other.damaged;
    }
}

/// One worker. Its memory is unmapped when it returns or its process ends.
pub(crate) fn vm_worker<S: System>(system: &S, plan: &Plan, cpu: usize, seed: u64) -> Tally {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed ^ (cpu as u64) << 32);
    let mut tally = Tally { cpu, ..Tally::default() };
    let mut life = || -> Result<(), Errno> {
        compute_until(system, (rng.next_u64() % plan.period_ns).min(plan.until_ns))?;
        for _ in 0..plan.bursts {
            let begin_ns = system.clock_ns();
            if begin_ns >= plan.until_ns {
                break;
            }
            let stretch_percent = 75 + rng.next_u64() % 51;
            let period_ns = plan.period_ns * stretch_percent / 100;
            let release_ns = begin_ns + period_ns * plan.duty_percent / 100;
            burst(system, plan, release_ns, &mut tally)?;
            compute_until(system, (begin_ns + period_ns).min(plan.until_ns))?;
        }
        compute_until(system, plan.until_ns)
    };
    // The only way out before the time is the end of the run, which is how a run ends.
    let _ = life();
    tally
}

/// Computes until `when_ns`.
fn compute_until<S: System>(system: &S, when_ns: u64) -> Result<(), Errno> {
    match when_ns.saturating_sub(system.clock_ns()) {
        0 => Ok(()),
        rest_ns => system.compute_ns(rest_ns),
    }
}

/// Maps, writes, holds, checks, unmaps.
fn burst<S: System>(
    system: &S,
    plan: &Plan,
    release_ns: u64,
    tally: &mut Tally,
) -> Result<(), Errno> {
    let bytes = plan.burst_pages as u64 * PAGE_BYTES;
    let region = match system.mmap(MapSpec::new(bytes)) {
        Ok(region) => region,
        Err(Errno::Nomem) => {
            tally.failures += 1;
            return Ok(());
        }
        Err(other) => return Err(other),
    };
    let written = fill(system, plan, region, tally)?;
    // The last one too is held as long as it would be: if all ended when time is up, that would be
    // an avalanche that no machine has.
    compute_until(system, release_ns)?;
    check(system, region, written, tally)?;
    system.munmap(region, bytes)?;
    tally.last_burst_end_ns = system.clock_ns();
    Ok(())
}

/// Writes to one page after the other until there is no memory; how many it were.
fn fill<S: System>(system: &S, plan: &Plan, region: Addr, tally: &mut Tally) -> Result<u64, Errno> {
    for page in 0..plan.burst_pages as u64 {
        match system.write(region.page(page), stamp_of(tally.cpu, page)) {
            Ok(()) => tally.pages_allocated += 1,
            Err(Errno::Nomem) => {
                tally.failures += 1;
                return Ok(page);
            }
            Err(other) => return Err(other),
        }
    }
    Ok(plan.burst_pages as u64)
}

fn check<S: System>(
    system: &S,
    region: Addr,
    written: u64,
    tally: &mut Tally,
) -> Result<(), Errno> {
    for page in 0..written {
        if system.read(region.page(page))? != stamp_of(tally.cpu, page) {
            tally.damaged += 1;
        }
    }
    Ok(())
}

/// What a worker writes into a page: never 0, which is what a cleared page holds.
fn stamp_of(worker: usize, page: u64) -> u64 {
    (worker as u64 + 1) << 32 | page
}
