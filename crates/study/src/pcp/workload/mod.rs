//! The programs of the study. What all of them know stands here; each has a file of its own.
//!
//! | workload | what it does |
//! |---|---|
//! | `build` | short processes that share pages with their parent, fault, compute and exit |
//! | `purger` | threads that touch memory, and a few that give it back for them |
//! | `exit` | big processes that end all at once |
//! | `mixed` | short-lived memory that comes and goes among long-lived pages |
//! | `edge` | blocks of several orders where hardly anything is free (`oom-edge`) |

pub(crate) mod build;
pub(crate) mod edge;
pub(crate) mod exit;
pub(crate) mod mixed;
pub(crate) mod purger;

use mmscale_linux::Shared;
use mmscale_system::{Errno, System};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;
use std::sync::{Arc, Mutex};

/// When what happens, in ns of the machine's clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Phases {
    /// Programs begin.
    pub(crate) begin_ns: u64,
    /// What they need is there: they do from now on what they do all the time.
    pub(crate) warm_ns: u64,
    /// What happens from here on counts.
    pub(crate) from_ns: u64,
    /// And what happens until here; then programs stop.
    pub(crate) until_ns: u64,
    /// All have stopped: free memory is counted.
    pub(crate) census_ns: u64,
    /// Free memory has been counted: what was kept until now goes too.
    pub(crate) end_ns: u64,
}

impl Phases {
    pub(crate) fn counts(&self, now_ns: u64) -> bool {
        (self.from_ns..self.until_ns).contains(&now_ns)
    }
}

/// What programs did; sums over all of them.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// Computing that began in the window.
    pub(crate) user_ns: u64,
    /// Pages that did not hold what their program had written.
    pub(crate) damaged: u64,
    /// Calls that had no memory.
    pub(crate) failures: u64,
    /// Pages that were touched first, at any time.
    pub(crate) pages: u64,
    pub(crate) edge: edge::EdgeTally,
}

impl Tally {
    /// Computes.
    fn compute<S: System>(&mut self, system: &S, at: &Phases, ns: u64) -> Result<(), Errno> {
        if ns == 0 {
            return Ok(());
        }
        if at.counts(system.clock_ns()) {
            self.user_ns += ns;
        }
        system.compute_ns(ns)
    }
    /// Goes on after a lack of memory.
    fn forgive<T>(&mut self, result: Result<T, Errno>) -> Result<Option<T>, Errno> {
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

/// Where all programs add up what they did.
#[derive(Clone, Debug, Default)]
pub(crate) struct Books {
    all: Arc<Mutex<Tally>>,
    /// What can be told over the bounds of processes that share no other memory.
    shared: Shared<Counts>,
}

/// Counts of all programs.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) pages: u64,
    pub(crate) damaged: u64,
    pub(crate) failures: u64,
}

mmscale_linux::plain!(Counts { pages, damaged, failures });

impl Books {
    pub(crate) fn add(&self, tally: Tally) {
        self.shared.change(|sum| {
            sum.pages += tally.pages;
            sum.damaged += tally.damaged;
            sum.failures += tally.failures;
        });
        let mut sum = self.all.lock().expect("nobody panics while adding");
        sum.user_ns += tally.user_ns;
        sum.damaged += tally.damaged;
        sum.failures += tally.failures;
        sum.edge.add(tally.edge);
    }
    pub(crate) fn counts(&self) -> Counts {
        self.shared.get()
    }
    pub(crate) fn close(&self) -> Tally {
        std::mem::take(&mut *self.all.lock().expect("all programs have ended"))
    }
}

/// Longer than this is slept: a sleep may be an eighth too long, and a jiffy.
const NAP_NS: u64 = 50_000_000;
/// Steps of shorter waits.
const STEP_NS: u64 = 50_000;

/// Waits until `at_ns`, and no longer.
fn wait<S: System>(system: &S, at_ns: u64) -> Result<(), Errno> {
    loop {
        match at_ns.saturating_sub(system.clock_ns()) {
            0 => return Ok(()),
            left @ NAP_NS.. => system.sleep_ns(left / 2)?,
            left => system.compute_ns(left.min(STEP_NS))?,
        }
    }
}

/// Sleeps until `at_ns`, or a few jiffies longer.
pub(crate) fn sleep_until<S: System>(system: &S, at_ns: u64) -> Result<(), Errno> {
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
pub(crate) struct Worker {
    /// Its number.
    pub(crate) number: usize,
    /// Where it begins, and how many CPUs there are.
    pub(crate) cpu: usize,
    pub(crate) cpus: usize,
    pub(crate) seed: u64,
    pub(crate) at: Phases,
    pub(crate) books: Books,
}

impl Worker {
    fn rng(&self) -> Xoshiro256PlusPlus {
        Xoshiro256PlusPlus::seed_from_u64(self.seed ^ (self.number as u64 + 1) << 32)
    }
    fn begin<S: System>(&self, system: &S) -> Result<(), Errno> {
        wait(system, self.at.begin_ns)
    }
    fn has_time<S: System>(&self, system: &S) -> bool {
        system.clock_ns() < self.at.until_ns
    }
    /// Keeps what it has until free memory has been counted.
    fn rest<S: System>(&self, system: &S) -> Result<(), Errno> {
        sleep_until(system, self.at.end_ns)
    }
}
