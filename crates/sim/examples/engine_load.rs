//! The engine under load: each CPU repeats charge, lock, charge, unlock.
//!
//! `engine_load CPUS ITERATIONS shared|private` prints what the loop costs the host and what a CPU
//! and a task keep resident. Run it under `valgrind --tool=callgrind` for figures that repeat.

#[path = "../benches/load/mod.rs"]
mod load;

use load::{Locks, report};

fn main() {
    let mut args = std::env::args().skip(1);
    let mut number = |default| args.next().map_or(default, |arg| arg.parse().expect("a number"));
    let (cpus, iterations) = (number(72), number(100_000));
    let private = std::env::args().nth(3).is_some_and(|kind| kind == "private");
    report(cpus as usize, iterations, if private { Locks::Private } else { Locks::One });
}
