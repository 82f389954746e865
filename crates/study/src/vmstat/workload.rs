//! The program of the study: on every CPU, bursts of page allocation and freeing like
//! `stress-ng --vm`, with computing in between so that no CPU goes idle.
//!
//! A `stress-ng --vm` worker maps a region, writes all of it, checks it for a while, unmaps it, and
//! begins again; workers start one after another and drift apart. So does this one: it allocates
//! `burst_pages` single pages and writes each, computes while it holds them, checks what it wrote,
//! frees them in order, computes for the rest of the period.

use mmscale_system::{Errno, Pages, System};
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
    /// When the workers return.
    pub(crate) until_ns: u64,
}

/// What one worker did.
#[derive(Clone, Debug, Default, PartialEq)]
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

/// One worker. Its pages are free again when it returns, whatever happened.
pub(crate) fn vm_worker<S: System>(system: &S, plan: &Plan, cpu: usize, seed: u64) -> Tally {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed ^ (cpu as u64) << 32);
    let mut tally = Tally { cpu, ..Tally::default() };
    let mut held = Vec::with_capacity(plan.burst_pages);
    let mut life = || -> Result<(), Errno> {
        compute_until(system, plan, rng.next_u64() % plan.period_ns)?;
        for _ in 0..plan.bursts {
            let begin_ns = system.clock_ns();
            if begin_ns >= plan.until_ns {
                break;
            }
            let stretch_percent = 75 + rng.next_u64() % 51;
            let period_ns = plan.period_ns * stretch_percent / 100;
            let outcome = fill(system, plan, cpu as u64, &mut held, &mut tally);
            let kept = outcome
                .and_then(|()| {
                    compute_until(system, plan, begin_ns + period_ns * plan.duty_percent / 100)
                })
                .and_then(|()| check(system, cpu as u64, &held, &mut tally));
            held.drain(..).for_each(|page| system.free_pages(page));
            tally.last_burst_end_ns = system.clock_ns();
            kept?;
            compute_until(system, plan, begin_ns + period_ns)?;
        }
        compute_until(system, plan, plan.until_ns)
    };
    // The only way out before the time is the end of the run, which is how a run ends.
    let _ = life();
    tally
}

/// Computes until `when_ns`, or the end of the plan if that comes first.
fn compute_until<S: System>(system: &S, plan: &Plan, when_ns: u64) -> Result<(), Errno> {
    let now_ns = system.clock_ns();
    match when_ns.min(plan.until_ns).saturating_sub(now_ns) {
        0 => Ok(()),
        rest_ns => system.compute_ns(rest_ns),
    }
}

fn fill<S: System>(
    system: &S,
    plan: &Plan,
    stamp: u64,
    held: &mut Vec<Pages>,
    tally: &mut Tally,
) -> Result<(), Errno> {
    while held.len() < plan.burst_pages {
        match system.alloc_pages(0) {
            Ok(page) => held.push(page),
            Err(Errno::Nomem) => {
                tally.failures += 1;
                return Ok(());
            }
            Err(other) => return Err(other),
        }
        tally.pages_allocated += 1;
        system.touch_pages(held[held.len() - 1], stamp_of(stamp, held.len()))?;
    }
    Ok(())
}

fn check<S: System>(
    system: &S,
    stamp: u64,
    held: &[Pages],
    tally: &mut Tally,
) -> Result<(), Errno> {
    for (index, &page) in held.iter().enumerate() {
        if system.read_stamp(page)? != stamp_of(stamp, index + 1) {
            tally.damaged += 1;
        }
    }
    Ok(())
}

/// What a worker writes into its page number `index`: never 0, which is what a cleared page holds.
fn stamp_of(worker: u64, index: usize) -> u64 {
    (worker + 1) << 32 | index as u64
}
