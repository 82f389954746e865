//! The engine's own speed: every CPU repeats charge, lock, charge, unlock.
//!
//! The figure to look at is host time per iteration, all CPUs together. One lock: everybody waits
//! for everybody. Private locks: nobody waits, but all acquisitions are ordered. Making the
//! machine and its stacks is part of each run and is spread over many iterations.

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use mmscale_mm::arch::{
    Arch, Callbacks, CpuId, Ipi, LockClass, Op, Priority, Probe, RawSpin, TaskEntry, TaskSpec,
    Trace,
};
use mmscale_sim::{Checks, Sim, SimConfig, SimSpin, run, sample_profile};
use std::any::Any;
use std::rc::Rc;

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

/// `total` iterations, spread over all CPUs.
fn simulate(cpus: usize, total: u64, private: bool) {
    let config = SimConfig { checks: Checks::Off, ..SimConfig::new(sample_profile(72), cpus) };
    let boot = || {
        let locks = if private { cpus } else { 1 };
        for cpu in 0..cpus {
            Sim::spawn(TaskSpec {
                cpu: CpuId::new(cpu),
                per_cpu: true,
                priority: Priority::Fair,
                entry: TaskEntry(cpu as u64),
            });
        }
        Rc::new(Load {
            locks: (0..locks).map(|_| SimSpin::new(LockClass::Zone)).collect(),
            iterations: total / cpus as u64,
        })
    };
    let outcome = run(config, |_| Box::new(Deaf), boot);
    assert_eq!(outcome.failure, None);
}

fn engine(criterion: &mut Criterion) {
    for (name, private) in [("one_lock", false), ("private_locks", true)] {
        let mut group = criterion.benchmark_group(name);
        group.sample_size(10);
        for cpus in [2, 72, 512, 4096] {
            let total = if cpus == 4096 { 4_000_000 } else { 1_000_000 };
            group.throughput(Throughput::Elements(total));
            group.bench_function(BenchmarkId::from_parameter(cpus), |bencher| {
                bencher.iter(|| simulate(cpus, total, private));
            });
        }
        group.finish();
    }
}

criterion_group!(benches, engine);
criterion_main!(benches);
