//! A machine that only runs closures, on which the steps of tasks and interrupts are measured.

use crate::config::{Failure, ThreadsConfig};
use crate::{Threads, run};
use mmscale_arch::{Callbacks, CpuId, Ipi, Machine as _, Priority, TaskEntry, TaskId, TaskSpec};
use std::sync::{Arc, Mutex, PoisonError};

type Job = Box<dyn FnOnce() + Send>;

/// Runs closures as tasks, and a function at every interrupt.
pub(super) struct Jobs {
    jobs: Mutex<Vec<Option<Job>>>,
    ipi: fn(&Signal),
    /// The words that the handler and the tasks share.
    pub(super) signal: Arc<Signal>,
}

/// Words that CPUs pass to each other, each on its own cache lines.
#[derive(Default)]
pub(super) struct Signal {
    pub(super) ping: Word,
    pub(super) pong: Word,
    /// How long each round took, in ns.
    pub(super) turns_ns: Mutex<Vec<u64>>,
}

impl Signal {
    /// Adds the time of a round.
    pub(super) fn took(&self, ns: u64) {
        self.turns_ns.lock().unwrap_or_else(PoisonError::into_inner).push(ns);
    }

    /// Returns the median round: a round in which the computer ran something else does not count.
    pub(super) fn median_ns(&self) -> f64 {
        let mut turns = self.turns_ns.lock().unwrap_or_else(PoisonError::into_inner);
        turns.sort_unstable();
        turns.get(turns.len() / 2).map_or(0.0, |&ns| ns as f64)
    }
}

/// A word on its own cache lines.
#[derive(Default)]
#[repr(align(128))]
pub(super) struct Word(pub(super) std::sync::atomic::AtomicU64);

impl Jobs {
    /// Starts `job` on CPU `cpu`.
    pub(super) fn start(&self, cpu: usize, job: impl FnOnce() + Send + 'static) -> TaskId {
        let entry = {
            let mut jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
            jobs.push(Some(Box::new(job)));
            TaskEntry(jobs.len() as u64 - 1)
        };
        let cpu = CpuId::new(cpu);
        Threads::spawn(TaskSpec { cpu, per_cpu: false, priority: Priority::Fair, entry })
    }
}

impl Callbacks for Jobs {
    fn ipi(&self, _: Ipi) {
        (self.ipi)(&self.signal);
    }
    fn timer(&self) {}
    fn idle_enter(&self) {}
    fn idle_exit(&self) {}
    fn context_switch(&self) {}
    fn task(&self, entry: TaskEntry) {
        let mut jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        let job = jobs[entry.0 as usize].take();
        drop(jobs);
        job.into_iter().for_each(|job| job());
    }
    fn cpu_dying(&self) -> bool {
        true
    }
    fn cpu_down_prepare(&self, _: CpuId) {}
    fn cpu_dead(&self, _: CpuId) {}
    fn cpu_online(&self, _: CpuId) {}
}

/// Runs the jobs that `start` starts, on `cpus` CPUs; returns the words that they share.
pub(super) fn go(
    cpus: usize,
    ipi: fn(&Signal),
    start: impl FnOnce(&Arc<Jobs>) + Send,
) -> Result<Arc<Signal>, Failure> {
    /// A guard against hangs: every measurement takes milliseconds.
    const LIMIT_NS: u64 = 60_000_000_000;
    let config = ThreadsConfig {
        cpus,
        hz: 1000,
        seed: 0,
        memory_pages: 1,
        limit_ns: LIMIT_NS,
        interrupt: None,
    };
    let signal = Arc::new(Signal::default());
    let shared = Arc::clone(&signal);
    let outcome = run(
        &config,
        |_| Box::new(()),
        move || {
            let jobs = Arc::new(Jobs { jobs: Mutex::new(Vec::new()), ipi, signal: shared });
            start(&jobs);
            jobs
        },
    );
    outcome.failure.map_or(Ok(signal), Err)
}
