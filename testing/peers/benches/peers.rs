//! `cargo bench -p mmscale-peers --bench peers [-- OPTION...]`: all allocators compared.

use mmscale_peers::options::{Mode, Options, USAGE};
use mmscale_peers::phase::TRIES;
use mmscale_peers::round::{self, Entry, Row};
use mmscale_peers::{FRAMES, table};
use std::process::ExitCode;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if args.iter().any(|arg| arg == "--help") {
        print!("{USAGE}");
        return ExitCode::SUCCESS;
    }
    let options = match Options::parse(args) {
        Ok(options) => options,
        Err(why) => {
            eprint!("{why}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    let mut chosen = Entry::all();
    let names: Vec<&str> = chosen.iter().map(|entry| entry.name).collect();
    if let Some(text) = options.unknown(&names) {
        eprintln!("--only {text}: no such allocator; there are {}", names.join(", "));
        return ExitCode::from(2);
    }
    let first = chosen[0].name;
    chosen.retain(|entry| entry.name == first || options.wants(entry.name));
    match options.mode {
        Mode::Time => time(&options, &chosen),
        Mode::Checked => return check(&options, &chosen),
        Mode::Fragmentation => fragmentation(&chosen),
    }
    ExitCode::SUCCESS
}

fn time(options: &Options, entries: &[Entry]) {
    let effort = options.effort();
    let (mut disturbed, mut samples) = (0, 0);
    for sheet in options.sheets() {
        eprintln!("{}", sheet.title);
        let rounds = effort.rounds;
        let rows: Vec<Row> = round::run(entries, &sheet, effort, |round| {
            eprintln!("round {round} of {rounds}");
        });
        println!("{}", table::render(&sheet, &rows));
        disturbed += rows.iter().map(|row| row.disturbed).sum::<usize>();
        samples += rows.iter().map(|row| row.samples).sum::<usize>();
    }
    let (shown, rounds) = (effort.shown.name(), effort.rounds);
    println!("NAME/THREADS; {FRAMES} frames; the {shown} of {rounds} interleaved rounds.");
    println!("-: takes no part there, or has no such blocks left.");
    println!("{disturbed} of {samples} samples disturbed by other programs, {TRIES} tries each.");
}

fn check(options: &Options, entries: &[Entry]) -> ExitCode {
    for sheet in options.sheets() {
        eprintln!("{}", sheet.title);
        match round::check(entries, &sheet, options.effort()) {
            Ok(rows) => println!("{}", table::render_times(&sheet, &rows)),
            Err(why) => {
                eprintln!("{why}");
                return ExitCode::FAILURE;
            }
        }
    }
    println!("Every page was written by its owner and found as it was: all are honest.");
    println!("The times count that too.");
    ExitCode::SUCCESS
}

fn fragmentation(entries: &[Entry]) {
    let measured = entries.iter().filter(|entry| entry.is_allocator).map(|entry| {
        eprintln!("{}", entry.name);
        (entry.name, entry.fragmentation(FRAMES))
    });
    let rows: Vec<_> = measured.collect();
    println!("{}", table::render_fragmentation(&rows));
    println!("churn: free blocks of 512 frames after churn at half occupancy, orders 0 to 3.");
    println!("rec-N: after all frames were allocated, a random half was freed, and the rest was");
    println!("replaced N times, order 0. reach, whole: what one CPU can allocate after two freed");
    println!("each other's frames, in frames and in blocks of 512, of what a fresh pool has.");
}
