//! The engine under load: each CPU repeats charge, lock, charge, unlock.
//!
//! `engine_load CPUS ITERATIONS shared|private` prints what the loop costs the host and what a CPU
//! and a task keep resident; with `limit` at the end, what a state machine of the same load costs
//! that is written by hand. Run it under `valgrind --tool=callgrind` for figures that repeat.

#[path = "../benches/load/mod.rs"]
mod load;

use load::{Locks, limit, report};
use std::time::Instant;

fn main() {
    let mut args = std::env::args().skip(1);
    let mut number = |default| args.next().map_or(default, |arg| arg.parse().expect("a number"));
    let (cpus, iterations) = (number(72), number(100_000));
    let private = std::env::args().nth(3).is_some_and(|kind| kind == "private");
    if std::env::args().nth(4).is_some_and(|word| word == "limit") {
        let begin = Instant::now();
        let locks = if private { cpus as usize } else { 1 };
        let (end_ps, done) = limit::simulate(cpus as usize, iterations, locks);
        let ns = begin.elapsed().as_nanos() as f64 / done as f64;
        println!(
            "{cpus} cpus, {locks} locks by hand: {ns:.1} ns, virtual {} us",
            end_ps / 1_000_000
        );
        return;
    }
    report(cpus as usize, iterations, if private { Locks::Private } else { Locks::One });
}
