//! What a run left, whatever machine it was on: what metrics are computed from.

use super::{Env, Missing, Phases, Run, Workload};
use crate::board::{Samples, Times};
use crate::look::{LiveRun, Waits};
use crate::machine::{HostCost, MachineRun};
use crate::meters::Idle;
use mmscale_document::{CallRow, LockRow, On, Side, Wait};
use mmscale_sim::CpuSections;
use std::sync::{MutexGuard, PoisonError};

/// What a run left.
pub struct Seen<'a, W: Workload> {
    /// What the run was given.
    pub env: &'a Env<W>,
    /// What its programs did and when.
    pub plan: &'a W::Plan,
    /// What they counted.
    pub tally: W::Tally,
    /// The second run of the seed, if there was one.
    pub second: Option<&'a Self>,
    pub(crate) ran: &'a Ran<W>,
}

/// A run that is over.
pub(crate) struct Ran<W: Workload> {
    pub(crate) env: Env<W>,
    pub(crate) run: Run<W>,
    pub(crate) source: Source<W>,
}

/// Where a run was.
pub(crate) enum Source<W: Workload> {
    /// On this program's memory manager.
    Kernel(Box<KernelRan<W>>),
    /// On the live kernel.
    #[cfg_attr(
        not(feature = "live"),
        expect(dead_code, reason = "only runs on the live kernel make one")
    )]
    Live(Box<LiveRun>),
}

/// What a machine with this program's memory manager left.
pub(crate) struct KernelRan<W: Workload> {
    pub(crate) machine: MachineRun,
    pub(crate) idle: Vec<Idle>,
    pub(crate) meters: Vec<W::Meter>,
}

/// Rows of locks that were counted in the window of a run, or in all of it.
#[derive(Clone, Copy, Debug)]
pub struct Locks<'a> {
    rows: &'a [LockRow],
    /// Where it was the live kernel that told: its compilers leave other names on stacks than
    /// sources have.
    waits: Option<&'a [Wait]>,
}

impl<'a> Locks<'a> {
    /// The rows of a class whose call path passes through all `functions`.
    pub fn rows(
        self,
        class: &'a str,
        functions: &'a [&'a str],
    ) -> impl Iterator<Item = &'a LockRow> {
        self.rows.iter().filter(move |row| {
            row.class == class && functions.iter().all(|function| row.passes_through(function))
        })
    }
    /// Waits for locks of a class on call paths through all `functions`: what
    /// `perf lock contention -S FUNCTION` counts.
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
    /// Every row.
    pub fn all(self) -> &'a [LockRow] {
        self.rows
    }
}

impl<'a, W: Workload> Seen<'a, W> {
    pub(crate) fn of(ran: &'a Ran<W>, second: Option<&'a Self>) -> Self {
        let tally = ran.run.tally.get();
        Self { env: &ran.env, plan: &ran.run.plan, tally, second, ran }
    }
    fn kernel(&self) -> Result<&'a KernelRan<W>, Missing> {
        match &self.ran.source {
            Source::Kernel(kernel) => Ok(kernel),
            Source::Live(_) => Err(Missing::Source("this program's memory manager")),
        }
    }
    /// The machine.
    pub fn on(&self) -> On {
        self.env.on()
    }
    /// When the run did what.
    pub fn phases(&self) -> Phases {
        W::phases(self.plan)
    }
    /// How long the window is, in ns; of a run that counts all along, until programs ended.
    pub fn window_ns(&self) -> u64 {
        let Phases { from_ns, until_ns, end_ns } = self.phases();
        if until_ns == u64::MAX { end_ns - from_ns } else { until_ns - from_ns }
    }
    /// All CPUs' time in the window, in ns.
    pub fn cpu_time_ns(&self) -> f64 {
        self.env.cpus() as f64 * self.window_ns() as f64
    }
    /// `count` per second of the window.
    pub fn per_s(&self, count: f64) -> f64 {
        count * 1e9 / self.window_ns().max(1) as f64
    }
    /// When the machine stopped, in ns of its clock.
    pub fn end_ns(&self) -> Result<u64, Missing> {
        Ok(self.kernel()?.machine.end_ns)
    }
    /// CPU time in the window that was not idle, in ns.
    pub fn busy_ns(&self) -> Result<f64, Missing> {
        let idle_ns: u64 = self.kernel()?.idle.iter().map(Idle::total_ns).sum();
        Ok(self.cpu_time_ns() - idle_ns as f64)
    }
    /// What the study made of tracepoints, by CPU.
    pub fn meters(&self) -> Result<&'a [W::Meter], Missing> {
        Ok(&self.kernel()?.meters)
    }
    /// The sum of a figure over all CPUs' meters.
    pub fn sum(&self, of: impl Fn(&W::Meter) -> u64) -> Result<f64, Missing> {
        Ok(self.meters()?.iter().map(of).sum::<u64>() as f64)
    }
    /// The largest figure of all CPUs' meters; 0 of none.
    pub fn max(&self, of: impl Fn(&W::Meter) -> u64) -> Result<u64, Missing> {
        Ok(self.meters()?.iter().map(of).max().unwrap_or(0))
    }
    /// Locks. Simulated machines count them in the window of [`Phases`], threads all along, and the
    /// live kernel in [`Workload::watched_ns`].
    pub fn locks(&self) -> Result<Locks<'a>, Missing> {
        match &self.ran.source {
            Source::Kernel(kernel) => Ok(Locks { rows: &kernel.machine.locks, waits: None }),
            Source::Live(live) => match &live.seen {
                Some(seen) => Ok(Locks { rows: &live.locks, waits: Some(&seen.waits) }),
                None => Err(Missing::Source("waits of the live kernel")),
            },
        }
    }
    /// Locks with how often they were taken and how long they were held, which the live kernel does
    /// not tell.
    pub fn held_locks(&self) -> Result<Locks<'a>, Missing> {
        Ok(Locks { rows: &self.kernel()?.machine.locks, waits: None })
    }
    /// CPU time by call path.
    pub fn calls(&self) -> Result<&'a [CallRow], Missing> {
        Ok(&self.kernel()?.machine.calls)
    }
    /// Sections without preemption by CPU; only simulated machines have them.
    pub fn sections(&self) -> Result<&'a [CpuSections], Missing> {
        match &self.kernel()?.machine.sections[..] {
            [] => Err(Missing::Source("a simulated machine, for sections without preemption")),
            sections => Ok(sections),
        }
    }
    /// What the live kernel told.
    pub fn live(&self) -> Result<&'a LiveRun, Missing> {
        match &self.ran.source {
            Source::Live(live) => Ok(live),
            Source::Kernel(_) => Err(Missing::Source("the live kernel")),
        }
    }
    /// The `which`th kind of times that programs noted, by CPU.
    pub fn samples(&self, which: usize) -> Vec<Times> {
        self.ran.run.samples[which].by_cpu(self.env.cpus())
    }
    /// The `which`th kind of times as they were noted, where each is known.
    pub fn each_sample(&self, which: usize) -> Result<Vec<(usize, u64)>, Missing> {
        let samples: &Samples = &self.ran.run.samples[which];
        samples.each().ok_or(Missing::Source("a machine whose programs share a process"))
    }
    /// What hooks inside the memory manager noted.
    pub fn inside(&self) -> Result<MutexGuard<'a, W::Inside>, Missing> {
        self.kernel()?;
        Ok(self.ran.run.inside.lock().unwrap_or_else(PoisonError::into_inner))
    }
    /// What the run cost the host.
    pub(crate) fn cost(&self) -> Option<HostCost> {
        self.kernel().ok().map(|kernel| kernel.machine.cost)
    }
    /// Host time that the run took in ns, on a machine with this program's memory manager.
    pub fn host_ns(&self) -> Result<f64, Missing> {
        Ok(self.kernel()?.machine.cost.host_ns as f64)
    }
}
