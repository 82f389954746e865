//! The engine's own speed under the load of `load`.
//!
//! The figures to compare are host time per iteration, all CPUs together (target: 50 ns at 72 CPUs,
//! 200 ns at 4096), and the memory that a CPU and its tasks keep resident (target: at most 16 KiB
//! each). One line for each machine prints both, before criterion's own figures. The cost of making
//! the machine is spread over many iterations.

mod load;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use load::{Locks, limit, report, simulate};

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

criterion_group!(benches, engine);
criterion_main!(benches);
