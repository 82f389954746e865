//! Common parts of the study's programs: their schedule, their waits, and their counters.

use super::{Pcp, Tally};
use mmscale_harness::Run;
use mmscale_system::{Errno, System};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;
use std::ops::Range;

/// The schedule of programs, in ns of the machine's clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Timetable {
    /// Start of the programs.
    pub(super) begin_ns: u64,
    /// End of the fill phase: programs are in their steady state.
    pub(super) warm_ns: u64,
    /// Start of the window.
    pub(super) from_ns: u64,
    /// End of the window, when programs stop.
    pub(super) until_ns: u64,
    /// All programs have stopped: free memory is counted.
    pub(super) census_ns: u64,
    /// Free memory has been counted: programs free the memory that they kept for the census.
    pub(super) end_ns: u64,
}

impl Timetable {
    /// Returns the window.
    pub(super) fn window_ns(&self) -> Range<u64> {
        self.from_ns..self.until_ns
    }
    /// Returns whether `now_ns` is in the window.
    pub(super) fn counts(&self, now_ns: u64) -> bool {
        self.window_ns().contains(&now_ns)
    }
}

impl Tally {
    /// Computes and counts the CPU time.
    pub(super) fn compute<S: System>(
        &mut self,
        system: &S,
        at: &Timetable,
        ns: u64,
    ) -> Result<(), Errno> {
        if ns == 0 {
            return Ok(());
        }
        if at.counts(system.clock_ns()) {
            self.user_ns += ns;
        }
        system.compute_ns(ns)
    }
    /// Counts a failure for lack of memory and continues.
    pub(super) fn forgive<T>(&mut self, result: Result<T, Errno>) -> Result<Option<T>, Errno> {
        match result {
            Ok(value) => Ok(Some(value)),
            Err(Errno::Nomem) => {
                self.failures += 1;
                Ok(None)
            }
            Err(other) => Err(other),
        }
    }
}

/// Minimum length of waits by sleeping: a sleep may be too long by an eighth and a jiffy.
const NAP_NS: u64 = 50_000_000;
/// Steps of shorter waits.
const STEP_NS: u64 = 50_000;

/// Waits exactly until `at_ns`.
pub(super) fn wait<S: System>(system: &S, at_ns: u64) -> Result<(), Errno> {
    loop {
        match at_ns.saturating_sub(system.clock_ns()) {
            0 => return Ok(()),
            left @ NAP_NS.. => system.sleep_ns(left / 2)?,
            left => system.compute_ns(left.min(STEP_NS))?,
        }
    }
}

/// Sleeps until `at_ns`, or a few jiffies longer.
pub(super) fn sleep_until<S: System>(system: &S, at_ns: u64) -> Result<(), Errno> {
    loop {
        match at_ns.saturating_sub(system.clock_ns()) {
            0 => return Ok(()),
            left @ NAP_NS.. => system.sleep_ns(left / 2)?,
            left => system.sleep_ns(left)?,
        }
    }
}

/// One of the programs of a workload.
#[derive(Clone, Debug)]
pub(super) struct Worker {
    /// The number of the program.
    pub(super) number: usize,
    /// The CPU on which it starts, and the number of CPUs.
    pub(super) cpu: usize,
    pub(super) cpus: usize,
    pub(super) run: Run<Pcp>,
}

impl Worker {
    /// Returns the schedule of programs.
    pub(super) fn at(&self) -> &Timetable {
        &self.run.plan.at
    }
    /// Adds the counters of this program, or of a part of it.
    pub(super) fn add(&self, tally: &Tally) {
        self.run.tally.change(|sum| *sum += *tally);
    }
    pub(super) fn rng(&self) -> Xoshiro256PlusPlus {
        Xoshiro256PlusPlus::seed_from_u64(self.run.seed ^ (self.number as u64 + 1) << 32)
    }
    /// Waits until the start of the programs.
    pub(super) fn begin<S: System>(&self, system: &S) -> Result<(), Errno> {
        wait(system, self.at().begin_ns)
    }
    pub(super) fn has_time<S: System>(&self, system: &S) -> bool {
        system.clock_ns() < self.at().until_ns
    }
    /// Keeps the program's memory until free memory has been counted.
    pub(super) fn rest<S: System>(&self, system: &S) -> Result<(), Errno> {
        sleep_until(system, self.at().end_ns)
    }
}
