//! What programs of most studies do alike: begin together, run for a while, one process on each
//! CPU.

use super::{Phases, Run, Workload};
use core::ops::AddAssign;
use mmscale_system::{Errno, ProcessId, System, ThreadSpec};

/// When programs that were made before begin together, and which of the time after that counts, in
/// ns of the machine's clock.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Window {
    /// Programs begin.
    pub begin_ns: u64,
    /// What happens counts from here on.
    pub from_ns: u64,
    /// And until here, where programs stop.
    pub until_ns: u64,
}

impl Window {
    /// A window of `duration_ms` that opens `warm_ns` after programs begin.
    pub fn new(begin_ns: u64, warm_ns: u64, duration_ms: f64) -> Self {
        let from_ns = begin_ns + warm_ns;
        Self { begin_ns, from_ns, until_ns: from_ns + (duration_ms * 1e6) as u64 }
    }
    /// The phases of a run in which nothing but the window counts.
    pub fn phases(self) -> Phases {
        let Self { from_ns, until_ns, .. } = self;
        Phases { from_ns, until_ns, end_ns: until_ns }
    }
    /// Sleeps until programs begin. `Ok(false)`: that was before.
    pub fn begin(self, system: &impl System) -> Result<bool, Errno> {
        let ready_ns = system.clock_ns();
        system.sleep_ns(self.begin_ns.saturating_sub(ready_ns))?;
        Ok(ready_ns <= self.begin_ns)
    }
    /// Whether what happens at `at_ns` counts.
    pub fn counts(self, at_ns: u64) -> bool {
        (self.from_ns..self.until_ns).contains(&at_ns)
    }
}

/// Starts `program` in a process of its own on each of `cpus`. Processes that cannot be made are
/// left out.
pub fn start_on<W: Workload, S: System>(
    run: &Run<W>,
    system: &S,
    cpus: impl Iterator<Item = usize>,
    program: fn(&Run<W>, &S, usize),
) -> Vec<ProcessId> {
    let start = |cpu| {
        let run = run.clone();
        system.process(ThreadSpec::on(cpu), Box::new(move |system: &S| program(&run, system, cpu)))
    };
    cpus.filter_map(|cpu| start(cpu).ok()).collect()
}

/// Runs a program with a tally of its own, and adds that to the run's. An error ends the program:
/// it is the end of the run, or the program has counted what went wrong.
pub fn counted<W: Workload<Tally: AddAssign>>(
    run: &Run<W>,
    program: impl FnOnce(&mut W::Tally) -> Result<(), Errno>,
) {
    let mut tally = W::Tally::default();
    let _ = program(&mut tally);
    run.tally.change(|sum| *sum += tally);
}

/// Waits until processes that the caller has started have ended.
pub fn wait_for(system: &impl System, processes: impl IntoIterator<Item = ProcessId>) {
    for process in processes {
        // A process whose run has ended is not waited for.
        let _ = system.wait(process);
    }
}
