//! The engine's own speed under the load of `load`.
//!
//! The figures to compare are host time per iteration, all CPUs together (target: 50 ns at 72 CPUs,
//! 200 ns at 4096), and the memory that a CPU and its tasks keep resident (target: at most 16 KiB
//! each). One line for each machine prints both, before criterion's own figures. The cost of making
//! the machine is spread over many iterations.

mod load;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use load::{Locks, limit, report, simulate};
use std::sync::atomic::{AtomicU64, Ordering};
use std::{hint, thread};

fn engine(criterion: &mut Criterion) {
    for (name, locks) in [("one_lock", Locks::One), ("private_locks", Locks::Private)] {
        let mut group = criterion.benchmark_group(name);
        group.sample_size(10);
        for cpus in [2, 72, 512, 4096] {
            let total = if cpus == 4096 { 4_000_000 } else { 1_000_000 };
            report(cpus, total, locks);
            group.throughput(Throughput::Elements(total));
            group.bench_function(BenchmarkId::from_parameter(cpus), |bencher| {
                bencher.iter(|| simulate(cpus, total, locks));
            });
            group.bench_function(BenchmarkId::new("by_hand", cpus), |bencher| {
                let locks = if locks == Locks::Private { cpus } else { 1 };
                bencher.iter(|| limit::simulate(cpus, total, locks));
            });
        }
        group.finish();
    }
}

/// Passes a word to another host thread and back: twice the least that it costs to let another core
/// take a turn.
fn handoff(criterion: &mut Criterion) {
    const END: u64 = u64::MAX;
    /// Ends the other thread, after a panic too.
    struct Ends<'a>(&'a AtomicU64);
    impl Drop for Ends<'_> {
        fn drop(&mut self) {
            self.0.store(END, Ordering::Release);
        }
    }
    let word = AtomicU64::new(0);
    thread::scope(|scope| {
        scope.spawn(|| {
            loop {
                // Acquire and release: pair with those of the other thread.
                match word.load(Ordering::Acquire) {
                    END => return,
                    0 => hint::spin_loop(),
                    _ => word.store(0, Ordering::Release),
                }
            }
        });
        let _ends = Ends(&word);
        criterion.bench_function("handoff", |bencher| {
            bencher.iter(|| {
                word.store(1, Ordering::Release);
                while word.load(Ordering::Acquire) != 0 {
                    hint::spin_loop();
                }
            });
        });
    });
}

criterion_group!(benches, engine, handoff);
criterion_main!(benches);
