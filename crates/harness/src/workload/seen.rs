//! The results of a run in a form that does not depend on the machine. Metrics are computed from
//! them.

use super::{Env, Missing, Phases, Run, Samples, Times, Workload};
use crate::machine::{HostCost, Idle, LiveRun, MachineRun, Waits};
use mmscale_document::{CallRow, LockRow, Side, Target, Wait};
use mmscale_sim::CpuSections;
use std::sync::{MutexGuard, PoisonError};

/// The results of a run.
pub struct Seen<'a, W: Workload> {
    /// The inputs of the run.
    pub env: &'a Env<W>,
    /// The schedule of the programs.
    pub plan: &'a W::Plan,
    /// The counters of the programs.
    pub tally: W::Tally,
    /// The second run of the seed, if there was one.
    pub second: Option<&'a Self>,
    pub(crate) ran: &'a FinishedRun<W>,
}

/// A finished run.
pub(crate) struct FinishedRun<W: Workload> {
    pub(crate) env: Env<W>,
    pub(crate) run: Run<W>,
    pub(crate) source: Source<W>,
}

/// Machine-specific results of a run.
pub(crate) enum Source<W: Workload> {
    /// From a machine with this program's memory manager.
    Kernel(Box<KernelRan<W>>),
    /// From the live kernel.
    #[cfg_attr(
        not(feature = "live"),
        expect(dead_code, reason = "only runs on the live kernel make one")
    )]
    Live(Box<LiveRun>),
}

/// Results of a machine with this program's memory manager.
pub(crate) struct KernelRan<W: Workload> {
    pub(crate) machine: MachineRun,
    pub(crate) idle: Vec<Idle>,
    pub(crate) meters: Vec<W::Meter>,
}

/// Lock rows of a run, counted in its window or during the whole run.
#[derive(Clone, Copy, Debug)]
pub struct Locks<'a> {
    rows: &'a [LockRow],
    /// Waits of the live kernel, if the rows come from there. Compilers change function names on
    /// its stacks, which [`Wait::passes_through`] takes into account.
    waits: Option<&'a [Wait]>,
}

impl<'a> Locks<'a> {
    /// Returns the rows of a class whose call path passes through all `functions`.
    pub fn rows(
        self,
        class: &'a str,
        functions: &'a [&'a str],
    ) -> impl Iterator<Item = &'a LockRow> {
        self.rows.iter().filter(move |row| {
            row.class == class && functions.iter().all(|function| row.passes_through(function))
        })
    }
    /// Returns the waits of CPUs that found another one waiting for the lock, otherwise as
    /// [`Locks::waits`]: what `perf lock contention -S FUNCTION` counts, where spin locks queue
    /// ([`LockRow::queued`]).
    pub fn queued(self, class: &str, functions: &[&str]) -> Waits {
        if self.waits.is_some() {
            return self.waits(class, functions);
        }
        self.rows(class, functions).fold(Waits::default(), |sum, row| Waits {
            count: sum.count + row.queued,
            total_ns: sum.total_ns + row.queued_total_ns,
            max_ns: sum.max_ns.max(row.queued_max_ns),
        })
    }
    /// Returns the waits for locks of a class on call paths through all `functions`.
    pub fn waits(self, class: &str, functions: &[&str]) -> Waits {
        let add = |sum: Waits, [count, total_ns, max_ns]: [u64; 3]| Waits {
            count: sum.count + count,
            total_ns: sum.total_ns + total_ns,
            max_ns: sum.max_ns.max(max_ns),
        };
        let Some(waits) = self.waits else {
            let rows = self.rows(class, functions);
            let rows = rows.map(|row| [row.contentions, row.wait_total_ns, row.wait_max_ns]);
            return rows.fold(Waits::default(), add);
        };
        let meant = |wait: &&Wait| {
            let passes = |function: &&str| wait.passes_through(function);
            wait.side != Side::Other && wait.class == class && functions.iter().all(passes)
        };
        let waits = waits.iter().filter(meant);
        waits.map(|wait| [wait.count, wait.total_ns, wait.max_ns]).fold(Waits::default(), add)
    }
    /// Returns the time within the window in which CPUs wait for spin locks of a class, or of all
    /// classes, in ns.
    pub fn spun_ns(self, class: Option<&str>) -> f64 {
        let of_class = |row: &&LockRow| class.is_none_or(|class| row.class == class);
        let rows = self.rows.iter().filter(|row| !row.sleeps).filter(of_class);
        rows.map(LockRow::wait_within_ns).sum::<u64>() as f64
    }
    /// Returns all rows.
    pub fn all(self) -> &'a [LockRow] {
        self.rows
    }
}

impl<'a, W: Workload> Seen<'a, W> {
    pub(crate) fn of(ran: &'a FinishedRun<W>, second: Option<&'a Self>) -> Self {
        let tally = ran.run.tally.get();
        Self { env: &ran.env, plan: &ran.run.plan, tally, second, ran }
    }
    fn kernel(&self) -> Result<&'a KernelRan<W>, Missing> {
        match &self.ran.source {
            Source::Kernel(kernel) => Ok(kernel),
            Source::Live(_) => Err(Missing::Source(
                "a machine with mmscale's memory manager (--on sim or threads)",
            )),
        }
    }
    /// Returns the machine.
    pub fn on(&self) -> Target {
        self.env.on()
    }
    /// Returns the times of the run.
    pub fn phases(&self) -> Phases {
        W::phases(self.plan)
    }
    /// Returns the length of the window, in ns. If the whole run counts, the window ends with the
    /// programs.
    pub fn window_ns(&self) -> u64 {
        let Phases { from_ns, until_ns, end_ns } = self.phases();
        if until_ns == u64::MAX { end_ns - from_ns } else { until_ns - from_ns }
    }
    /// Returns the time of all CPUs in the window, in ns.
    pub fn cpu_time_ns(&self) -> f64 {
        self.env.cpus() as f64 * self.window_ns() as f64
    }
    /// Returns `count` per second of the window.
    pub fn per_s(&self, count: f64) -> f64 {
        count * 1e9 / self.window_ns().max(1) as f64
    }
    /// Returns the time at which the machine stopped, in ns of its clock.
    pub fn end_ns(&self) -> Result<u64, Missing> {
        Ok(self.kernel()?.machine.end_ns)
    }
    /// Returns the CPU time in the window that was not idle, in ns.
    pub fn busy_ns(&self) -> Result<f64, Missing> {
        let idle_ns: u64 = self.kernel()?.idle.iter().map(Idle::total_ns).sum();
        Ok(self.cpu_time_ns() - idle_ns as f64)
    }
    /// Returns the meters, by CPU.
    pub fn meters(&self) -> Result<&'a [W::Meter], Missing> {
        Ok(&self.kernel()?.meters)
    }
    /// Returns the sum of a value over the meters of all CPUs.
    pub fn sum(&self, of: impl Fn(&W::Meter) -> u64) -> Result<f64, Missing> {
        Ok(self.meters()?.iter().map(of).sum::<u64>() as f64)
    }
    /// Returns the maximum of a value over the meters of all CPUs; 0 without meters.
    pub fn max(&self, of: impl Fn(&W::Meter) -> u64) -> Result<u64, Missing> {
        Ok(self.meters()?.iter().map(of).max().unwrap_or(0))
    }
    /// Returns lock statistics. Simulated machines count in the window of [`Phases`], threads
    /// during the whole run, the live kernel in [`Workload::watched_ns`].
    pub fn locks(&self) -> Result<Locks<'a>, Missing> {
        match &self.ran.source {
            Source::Kernel(kernel) => Ok(Locks { rows: &kernel.machine.locks, waits: None }),
            Source::Live(live) => match &live.seen {
                Some(seen) => Ok(Locks { rows: &live.locks, waits: Some(&seen.waits) }),
                None => Err(Missing::UNWATCHED),
            },
        }
    }
    /// Returns lock statistics with acquisitions and hold times, which the live kernel does not
    /// provide.
    pub fn held_locks(&self) -> Result<Locks<'a>, Missing> {
        Ok(Locks { rows: &self.kernel()?.machine.locks, waits: None })
    }
    /// Returns CPU time by call path.
    pub fn calls(&self) -> Result<&'a [CallRow], Missing> {
        Ok(&self.kernel()?.machine.calls)
    }
    /// Returns the sections with preemption off, by CPU; only simulated machines record them.
    pub fn sections(&self) -> Result<&'a [CpuSections], Missing> {
        match &self.kernel()?.machine.sections[..] {
            [] => Err(Missing::Source(
                "a simulated machine (--on sim), which records sections with preemption off",
            )),
            sections => Ok(sections),
        }
    }
    /// Returns the results of the live kernel.
    pub fn live(&self) -> Result<&'a LiveRun, Missing> {
        match &self.ran.source {
            Source::Live(live) => Ok(live),
            Source::Kernel(_) => Err(Missing::Source("the live kernel (--on live)")),
        }
    }
    /// Returns the recorded times of kind `which`, by CPU.
    pub fn samples(&self, which: usize) -> Vec<Times> {
        self.ran.run.samples[which].by_cpu(self.env.cpus())
    }
    /// Returns the single recorded times of kind `which`, with their CPUs. Missing on the live
    /// kernel.
    pub fn each_sample(&self, which: usize) -> Result<Vec<(usize, u64)>, Missing> {
        let samples: &Samples = &self.ran.run.samples[which];
        samples.each().ok_or(Missing::Source(
            "a machine whose programs share a process (--on sim or threads)",
        ))
    }
    /// Returns the data recorded by hooks inside the memory manager.
    pub fn inside(&self) -> Result<MutexGuard<'a, W::Inside>, Missing> {
        self.kernel()?;
        Ok(self.ran.run.inside.lock().unwrap_or_else(PoisonError::into_inner))
    }
    /// Returns the cost of the run on the host.
    pub(crate) fn cost(&self) -> Option<HostCost> {
        self.kernel().ok().map(|kernel| kernel.machine.cost)
    }
    /// Returns the host time of the run in ns, on a machine with this program's memory manager.
    pub fn host_ns(&self) -> Result<f64, Missing> {
        Ok(self.kernel()?.machine.cost.host_ns as f64)
    }
}
