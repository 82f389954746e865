//! What the programs of the study share: when they do what, their waits, and how they count.

use super::{Pcp, Tally};
use mmscale_harness::Run;
use mmscale_system::{Errno, System};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;
use std::ops::Range;

/// When programs do what, in ns of the machine's clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Timetable {
    /// Programs begin.
    pub(super) begin_ns: u64,
    /// Programs have what they need: they do from now on what they do all the time.
    pub(super) warm_ns: u64,
    /// The window begins.
    pub(super) from_ns: u64,
    /// The window ends, and programs stop.
    pub(super) until_ns: u64,
    /// All have stopped: free memory is counted.
    pub(super) census_ns: u64,
    /// Free memory has been counted: programs release what they kept for the count.
    pub(super) end_ns: u64,
}

impl Timetable {
    /// The window.
    pub(super) fn window_ns(&self) -> Range<u64> {
        self.from_ns..self.until_ns
    }
    /// Whether `now_ns` is in the window.
    pub(super) fn counts(&self, now_ns: u64) -> bool {
        self.window_ns().contains(&now_ns)
    }
}

impl Tally {
    /// Computes.
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
    /// Goes on after a lack of memory.
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

/// Longer waits are slept: a sleep may be an eighth too long, and a jiffy.
const NAP_NS: u64 = 50_000_000;
/// Steps of shorter waits.
const STEP_NS: u64 = 50_000;

/// Waits until `at_ns`, and no longer.
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

/// One of many programs that do the same.
#[derive(Clone, Debug)]
pub(super) struct Worker {
    /// Its number.
    pub(super) number: usize,
    /// Where it begins, and how many CPUs there are.
    pub(super) cpu: usize,
    pub(super) cpus: usize,
    pub(super) run: Run<Pcp>,
}

impl Worker {
    /// When programs do what.
    pub(super) fn at(&self) -> &Timetable {
        &self.run.plan.at
    }
    /// Adds what this program, or a part of it, did.
    pub(super) fn add(&self, tally: &Tally) {
        self.run.tally.change(|sum| *sum += *tally);
    }
    pub(super) fn rng(&self) -> Xoshiro256PlusPlus {
        Xoshiro256PlusPlus::seed_from_u64(self.run.seed ^ (self.number as u64 + 1) << 32)
    }
    /// Waits until programs begin.
    pub(super) fn begin<S: System>(&self, system: &S) -> Result<(), Errno> {
        wait(system, self.at().begin_ns)
    }
    pub(super) fn has_time<S: System>(&self, system: &S) -> bool {
        system.clock_ns() < self.at().until_ns
    }
    /// Keeps what it has until free memory has been counted.
    pub(super) fn rest<S: System>(&self, system: &S) -> Result<(), Errno> {
        sleep_until(system, self.at().end_ns)
    }
}
