//! One program of the benchmark, once, to count its instructions:
//!
//! ```text
//! cd testing/peers; cargo build --release --example instructions
//! for n in 131072 262144; do valgrind --tool=callgrind --callgrind-out-file=/dev/null \
//!     target/release/examples/instructions "mmscale blockmap" bulk/1 0 random $n; done
//! ```
//!
//! The difference of the two counts, divided by that of the operations, is the instructions of an
//! allocation with its free. All arguments are needed; the last but one is the order of frees.

use mmscale_peers::FRAMES;
use mmscale_peers::phase::{FreeOrder, Phase, Program};
use mmscale_peers::round::{Effort, Entry, Shown};
use std::process::ExitCode;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match measure(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!(
                "{why}\nusage: instructions ALLOCATOR PROGRAM/THREADS ORDER FREES OPERATIONS"
            );
            ExitCode::from(2)
        }
    }
}

fn measure(args: &[String]) -> Result<(), String> {
    let [name, program, order, free, operations] = args else {
        return Err(format!("{} arguments: 5 are needed", args.len()));
    };
    let number = |text: &str| text.parse().map_err(|_| format!("{text} is no number"));
    let entries = Entry::all();
    let entry = entries.iter().find(|entry| entry.name == name).ok_or_else(|| {
        let names: Vec<&str> = entries.iter().map(|entry| entry.name).collect();
        format!("no allocator {name}; there are {}", names.join(", "))
    })?;
    let (of, threads) = program.split_once('/').ok_or("a program is like pair/1")?;
    let of = Program::ALL.into_iter().find(|known| known.name() == of);
    let of = of.ok_or("a program is pair, bulk, pipe, cross or mix")?;
    let free = FreeOrder::ALL.into_iter().find(|known| known.name() == free);
    let free = free.ok_or("an order of frees is same, reverse or random")?;
    let order = u8::try_from(number(order)?).map_err(|_| "an order is at most 10")?;
    let phase = Phase { order, free, ..Phase::new(of, number(threads)?) };
    let operations = number(operations)?;
    let effort = Effort { frames: FRAMES, rounds: 1, operations, shown: Shown::Median };
    let measured = entry.run_once(phase, effort);
    measured.then_some(()).ok_or_else(|| format!("{name} takes no part in {program}"))
}
