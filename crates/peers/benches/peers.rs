//! `cargo bench -p mmscale-peers [-- --rounds N] [-- --quick]`: all allocators, side by side.

use mmscale_peers::peer::{
    Bitmap, BuddySystem, BuddySystemMutex, Floor, Magazines, Ours, OursOnMachine,
};
use mmscale_peers::phase::TRIES;
use mmscale_peers::round::{Entry, run};
use mmscale_peers::{FRAMES, Phase, table};

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let quick = args.iter().any(|arg| arg == "--quick");
    let given = args.iter().position(|arg| arg == "--rounds").and_then(|at| args.get(at + 1));
    let rounds = match given.map(|text| text.parse()) {
        None => {
            if quick {
                3
            } else {
                15
            }
        }
        Some(Ok(rounds)) if rounds > 0 => rounds,
        Some(_) => {
            eprintln!("--rounds takes a number above 0");
            std::process::exit(2);
        }
    };
    let scale = if quick { 1 } else { 4 };
    // It searches for runs of frames from the first bitmap on: minutes, not nanoseconds.
    let mixed = |phase| matches!(phase, Phase::Mix { .. });
    let entries = [
        Entry::of::<Ours>(),
        Entry::of::<OursOnMachine>(),
        Entry::of::<BuddySystem<11>>(),
        Entry::of::<BuddySystem<33>>(),
        Entry::of::<BuddySystemMutex>(),
        Entry::of::<Magazines>(),
        Entry::of::<Bitmap>().without(mixed),
        Entry::of::<Floor>(),
    ];
    let rows = run(&entries, rounds, scale, |round| eprintln!("round {round} of {rounds}"));
    print!("{}", table::render(&rows));
    let disturbed: usize = rows.iter().map(|row| row.disturbed).sum();
    let all = rows.iter().flat_map(|row| &row.medians).flatten().count() * rounds;
    println!("\nNAME/THREADS; {FRAMES} frames; medians of {rounds} interleaved rounds.");
    println!("{disturbed} of {all} samples disturbed by other programs, {TRIES} tries each.");
}
