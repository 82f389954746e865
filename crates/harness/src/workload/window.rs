//! Common parts of the programs of most studies: they start together, run for a fixed time, and
//! have one process per CPU.

use super::{Phases, Run, Workload};
use core::ops::AddAssign;
use mmscale_system::{Errno, ProcessId, System, ThreadSpec};

/// The common start of programs that were created before, and the part of the time afterwards that
/// counts, in ns of the machine's clock.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Window {
    /// Start of the programs.
    pub begin_ns: u64,
    /// Start of the window in which events count.
    pub from_ns: u64,
    /// End of the window, when programs stop.
    pub until_ns: u64,
}

impl Window {
    /// Creates a window of `duration_ms` that opens `warm_ns` after the start of the programs.
    pub fn new(begin_ns: u64, warm_ns: u64, duration_ms: f64) -> Self {
        let from_ns = begin_ns + warm_ns;
        Self { begin_ns, from_ns, until_ns: from_ns + (duration_ms * 1e6) as u64 }
    }
    /// Returns the phases of a run in which only the window counts.
    pub fn phases(self) -> Phases {
        let Self { from_ns, until_ns, .. } = self;
        Phases { from_ns, until_ns, end_ns: until_ns }
    }
    /// Sleeps until the start of the programs. Returns `Ok(false)` if that time has already passed.
    pub fn begin(self, system: &impl System) -> Result<bool, Errno> {
        let ready_ns = system.clock_ns();
        system.sleep_ns(self.begin_ns.saturating_sub(ready_ns))?;
        Ok(ready_ns <= self.begin_ns)
    }
    /// Returns whether an event at `at_ns` counts.
    pub fn counts(self, at_ns: u64) -> bool {
        (self.from_ns..self.until_ns).contains(&at_ns)
    }
}

/// Starts `program` in a process of its own on each of `cpus`. Processes that cannot be created are
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

/// Runs a program with a tally of its own, which is then added to that of the run. An error ends
/// the program: either the run is over, or the program has counted the failure.
pub fn counted<W: Workload<Tally: AddAssign>>(
    run: &Run<W>,
    program: impl FnOnce(&mut W::Tally) -> Result<(), Errno>,
) {
    let mut tally = W::Tally::default();
    let _ = program(&mut tally);
    run.tally.change(|sum| *sum += tally);
}

/// Waits until child processes have ended.
pub fn wait_for(system: &impl System, processes: impl IntoIterator<Item = ProcessId>) {
    for process in processes {
        // After the end of the run, processes are not waited for.
        let _ = system.wait(process);
    }
}
