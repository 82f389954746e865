//! The engine under load: each CPU repeats charge, lock, charge, unlock.
//!
//! `engine_load CPUS ITERATIONS shared|private` prints what the loop costs the host and what a CPU
//! and a task keep resident. Run it under `valgrind --tool=callgrind` for figures that repeat.

use mmscale_mm::arch::{
    Arch, Callbacks, CpuId, Ipi, LockClass, Op, Priority, Probe, RawSpin, TaskEntry, TaskSpec,
    Trace,
};
use mmscale_sim::{Checks, Sim, SimConfig, SimSpin, run, sample_profile};
use std::any::Any;
use std::rc::Rc;
use std::time::Instant;

/// The loop, as the owner of the callbacks.
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
    fn cpu_down_prepare(&self, _: CpuId) {}
    fn cpu_dead(&self, _: CpuId) {}
    fn cpu_online(&self, _: CpuId) {}
}

/// Hears nothing.
struct Deaf;

impl Probe for Deaf {
    fn event(&mut self, _: u64, _: &Trace) {}
    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

/// Resident memory of this process in bytes; 0 where the host does not say.
fn resident_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/smaps_rollup").unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with("Rss:")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0) * 1024
}

fn main() {
    let mut args = std::env::args().skip(1);
    let mut number = |default| args.next().map_or(default, |arg| arg.parse().expect("a number"));
    let (cpus, iterations) = (number(72), number(100_000));
    let private = std::env::args().nth(3).is_some_and(|kind| kind == "private");
    let config = SimConfig { checks: Checks::Off, ..SimConfig::new(sample_profile(72), cpus) };
    let before = resident_bytes();
    let start = Instant::now();
    let outcome = run(
        config,
        |_| Box::new(Deaf),
        || {
            let locks = if private { cpus } else { 1 };
            let locks = (0..locks).map(|_| SimSpin::new(LockClass::Zone)).collect();
            for cpu in 0..cpus {
                Sim::spawn(TaskSpec {
                    cpu: CpuId::new(cpu),
                    per_cpu: true,
                    priority: Priority::Fair,
                    entry: TaskEntry(cpu as u64),
                });
            }
            Rc::new(Load { locks, iterations: iterations as u64 / cpus as u64 })
        },
    );
    let took = start.elapsed();
    let total = outcome.locks.iter().map(|row| row.acquisitions).sum::<u64>();
    println!(
        "{cpus} cpus, {}: {:.1} ns and {:.2} M iterations/s, {} of {total} contended, resident \
         {} bytes per cpu with its task and idle task, fingerprint {:016x}",
        if private { "private locks" } else { "one lock" },
        took.as_nanos() as f64 / total as f64,
        total as f64 / took.as_secs_f64() / 1e6,
        outcome.locks.iter().map(|row| row.contentions).sum::<u64>(),
        resident_bytes().saturating_sub(before) / cpus as u64,
        outcome.fingerprint,
    );
    assert_eq!(outcome.failure, None);
}
