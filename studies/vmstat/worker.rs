//! The programs of the study: a worker on each CPU, and a monitor that reads /proc/zoneinfo.

use super::{AtEnd, LAST_BURST_END, Plan, Tally, Vmstat};
use mmscale_harness::Run;
use mmscale_system::{Addr, Errno, MapSpec, PAGE_BYTES, System};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

/// One worker. Its memory is unmapped when it returns or its process ends.
pub(super) fn work<S: System>(run: &Run<Vmstat>, system: &S, cpu: usize) {
    let (plan, tally) = (&run.plan, Tally::default());
    let mut worker = Worker { system, plan, cpu, tally, last_burst_end_ns: None };
    // An error means the end of the run, which is expected.
    let _ = worker.bursts(run.seed);
    run.tally.change(|sum| *sum += worker.tally);
    run.samples[LAST_BURST_END].add(cpu, worker.last_burst_end_ns);
}

/// The monitor: reads /proc/zoneinfo until the end of the run.
pub(super) fn monitor_zones<S: System>(run: &Run<Vmstat>, system: &S, _: usize) {
    while system.clock_ns() + run.plan.zoneinfo_ns < run.plan.until_ns {
        // An error means the end of the run.
        if system.sleep_ns(run.plan.zoneinfo_ns).and_then(|()| system.zoneinfo()).is_err() {
            return;
        }
    }
}

struct Worker<'a, S> {
    system: &'a S,
    plan: &'a Plan,
    /// The CPU on which the worker started.
    cpu: usize,
    tally: Tally,
    last_burst_end_ns: Option<u64>,
}

impl<S: System> Worker<'_, S> {
    fn bursts(&mut self, seed: u64) -> Result<(), Errno> {
        let plan = self.plan;
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed ^ (self.cpu as u64) << 32);
        self.compute_until((rng.next_u64() % plan.period_ns).min(plan.until_ns))?;
        for _ in 0..plan.bursts {
            let begin_ns = self.system.clock_ns();
            if begin_ns >= plan.until_ns {
                break;
            }
            let stretch_percent = 75 + rng.next_u64() % 51;
            let period_ns = plan.period_ns * stretch_percent / 100;
            let release_ns = begin_ns + period_ns * plan.duty_percent / 100;
            let counts = begin_ns >= plan.from_ns;
            let release_ns = match plan.at_end {
                AtEnd::Apart => release_ns,
                AtEnd::Together => release_ns.min(plan.until_ns),
            };
            self.burst(release_ns, counts)?;
            self.compute_until((begin_ns + period_ns).min(plan.until_ns))?;
        }
        self.compute_until(plan.until_ns)
    }
    fn compute_until(&self, when_ns: u64) -> Result<(), Errno> {
        match when_ns.saturating_sub(self.system.clock_ns()) {
            0 => Ok(()),
            rest_ns => self.system.compute_ns(rest_ns),
        }
    }
    /// Maps, writes, holds, checks and unmaps pages. Those of the time before the window are not
    /// counted.
    fn burst(&mut self, release_ns: u64, counts: bool) -> Result<(), Errno> {
        let bytes = self.plan.burst_pages * PAGE_BYTES;
        let region = match self.system.mmap(MapSpec::new(bytes)) {
            Err(Errno::Nomem) => {
                self.tally.failures += 1;
                return Ok(());
            }
            mapped => mapped?,
        };
        let written = self.fill(region, counts)?;
        // With `apart` the last burst is also held for its whole share of the period: if all bursts
        // ended at the end of the run, they would be freed in an avalanche.
        self.compute_until(release_ns)?;
        for page in 0..written {
            let held = self.system.read(region.page(page))?;
            self.tally.damaged += u64::from(held != self.stamp_of(page));
        }
        self.system.munmap(region, bytes)?;
        self.last_burst_end_ns = Some(self.system.clock_ns());
        Ok(())
    }
    /// Writes to the pages in order until there is no memory. Returns the number of written pages.
    fn fill(&mut self, region: Addr, counts: bool) -> Result<u64, Errno> {
        for page in 0..self.plan.burst_pages {
            match self.system.write(region.page(page), self.stamp_of(page)) {
                Err(Errno::Nomem) => {
                    self.tally.failures += 1;
                    return Ok(page);
                }
                written => written?,
            }
            self.tally.pages_allocated += u64::from(counts);
        }
        Ok(self.plan.burst_pages)
    }
    /// Returns the value that this worker writes into a page: never 0, the content of a cleared
    /// page.
    fn stamp_of(&self, page: u64) -> u64 {
        (self.cpu as u64 + 1) << 32 | page
    }
}
