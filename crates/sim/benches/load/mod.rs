//! The load for measurements of the engine's own speed: each CPU repeats charge, lock, charge,
//! unlock.
//!
//! One lock: every CPU contends with every other. Private locks: no CPU waits, but all acquisitions
//! are ordered. Making the machine and its stacks is part of each run.

pub(crate) mod limit;

use mmscale_arch::{
    Callbacks, Cpu as _, CpuId, Ipi, LockClass, Machine as _, Op, Priority, RawSpin, TaskEntry,
    TaskSpec,
};
use mmscale_sim::{Checks, Outcome, Sim, SimConfig, SimSpin, run, sample_profile};
use std::rc::Rc;
use std::time::Instant;

/// The number of locks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Locks {
    One,
    /// One for each CPU.
    Private,
}

impl Locks {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::One => "one lock",
            Self::Private => "private locks",
        }
    }
}

/// The loop, with the callbacks.
struct Load {
    locks: Vec<SimSpin>,
    iterations: u64,
}

impl Callbacks for Load {
    fn ipi(&self, _: Ipi) {}
    fn timer(&self) {}
    fn idle_enter(&self) {}
    fn idle_exit(&self) {}
    fn context_switch(&self) {}
    fn task(&self, entry: TaskEntry) {
        let lock = &self.locks[entry.0 as usize % self.locks.len()];
        for _ in 0..self.iterations {
            Sim::work(Op::Syscall, 1);
            lock.lock();
            Sim::work(Op::BuddyStep, 1);
            // SAFETY: it was just locked.
            unsafe { lock.unlock() };
        }
    }
    fn cpu_dying(&self) -> bool {
        true
    }
    fn cpu_down_prepare(&self, _: CpuId) {}
    fn cpu_dead(&self, _: CpuId) {}
    fn cpu_online(&self, _: CpuId) {}
}

/// Runs `total` iterations, spread over all CPUs.
///
/// # Panics
/// If the run fails.
pub(crate) fn simulate(cpus: usize, total: u64, locks: Locks) -> Outcome {
    let config = SimConfig { checks: Checks::Off, ..SimConfig::new(sample_profile(72), cpus) };
    let boot = || {
        for cpu in 0..cpus {
            Sim::spawn(TaskSpec {
                cpu: CpuId::new(cpu),
                per_cpu: true,
                priority: Priority::Fair,
                entry: TaskEntry(cpu as u64),
            });
        }
        let locks = if locks == Locks::Private { cpus } else { 1 };
        Rc::new(Load {
            locks: (0..locks).map(|_| SimSpin::new(LockClass::Zone)).collect(),
            iterations: total / cpus as u64,
        })
    };
    let outcome = run(config, |_| Box::new(()), boot);
    assert_eq!(outcome.failure, None);
    outcome
}

/// Prints the host time of one run, and the memory that a CPU and its tasks keep resident. On a
/// thread of its own: stacks are pooled by thread, and those of earlier runs would not count.
pub(crate) fn report(cpus: usize, total: u64, locks: Locks) {
    let told = std::thread::scope(|scope| scope.spawn(|| told(cpus, total, locks)).join());
    println!("{}", told.expect("the run does not panic"));
}

fn told(cpus: usize, total: u64, locks: Locks) -> String {
    let before = resident_bytes();
    let start = Instant::now();
    let outcome = simulate(cpus, total, locks);
    let took = start.elapsed();
    let total = outcome.locks.iter().map(|row| row.acquisitions).sum::<u64>();
    format!(
        "{cpus} cpus, {}: {:.1} ns and {:.2} M iterations/s, {} of {total} contended, resident \
         {} bytes per cpu with its task and idle task, fingerprint {:016x}",
        locks.name(),
        took.as_nanos() as f64 / total as f64,
        total as f64 / took.as_secs_f64() / 1e6,
        outcome.locks.iter().map(|row| row.contentions).sum::<u64>(),
        resident_bytes().saturating_sub(before) / cpus as u64,
        outcome.fingerprint,
    )
}

/// Returns the resident memory of this process in bytes; 0 if the host does not report it.
fn resident_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/smaps_rollup").unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with("Rss:")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0) * 1024
}
