//! Reports with random damage: every one is read to its end, without a panic.
//!
//! Strategy: a whole report is changed in one to eight places: a part is removed, repeated, moved
//! or replaced by random bytes, by a number, by a mark of a quote, or by a part of another report.
//! Invariants: `read` returns; places of errors are within the text; the comparison has shares from
//! 0 to 1; the work is bounded, because every parser moves forward by a line at least.

use mmscale_measured::{Table, read, resemble};
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::mails::{STACKS, TICK, TREE};
use crate::samples::ALL;

const RUNS: u64 = 3000;

fn below(rng: &mut Xoshiro256PlusPlus, n: usize) -> usize {
    (rng.next_u64() % n.max(1) as u64) as usize
}

fn part(rng: &mut Xoshiro256PlusPlus, bytes: &[u8]) -> std::ops::Range<usize> {
    let from = below(rng, bytes.len());
    let most = if below(rng, 4) == 0 { 400 } else { 12 };
    let length = below(rng, most);
    from..(from + length).min(bytes.len())
}

fn change(rng: &mut Xoshiro256PlusPlus, bytes: &mut Vec<u8>, others: &[&str]) {
    const INSERTS: [&[u8]; 16] = [
        b"\n",
        b"\r",
        b"> ",
        b"\0",
        b"\xff",
        b"%--",
        b"--",
        b"|",
        b":",
        b"[<",
        b"18446744073709551615",
        b"99999999999999999999999",
        b"1e400",
        b"-> ",
        b"\x1b[1m",
        b"=\n",
    ];
    let range = part(rng, bytes);
    match below(rng, 6) {
        0 => drop(bytes.drain(range)),
        1 => {
            let copy = bytes[range].to_vec();
            let at = below(rng, bytes.len() + 1);
            bytes.splice(at..at, copy);
        }
        2 => {
            let insert = INSERTS[below(rng, INSERTS.len())];
            bytes.splice(range, insert.iter().copied());
        }
        3 => {
            let noise: Vec<u8> = (0..below(rng, 9)).map(|_| rng.next_u64() as u8).collect();
            bytes.splice(range, noise);
        }
        4 => {
            let other = others[below(rng, others.len())].as_bytes();
            let copy = other[part(rng, other)].to_vec();
            bytes.splice(range.start..range.start, copy);
        }
        _ => bytes.truncate(range.end),
    }
}

#[test]
fn damaged_reports_are_read_to_their_end() {
    let samples: Vec<&str> = ALL.into_iter().chain([TICK, STACKS, TREE]).collect();
    let (mut faults, mut tables) = (0, 0);
    for seed in 0..RUNS {
        let rng = &mut Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut bytes = samples[seed as usize % samples.len()].as_bytes().to_vec();
        for _ in 0..=below(rng, 8) {
            change(rng, &mut bytes, &samples);
        }
        let Ok(report) = read(&bytes) else { continue };
        tables += report.tables.len();
        for fault in report.tables.iter().filter_map(|table| table.fault.as_ref()) {
            faults += 1;
            assert!((1..=report.lines).contains(&fault.line), "seed {seed}: {fault}");
            assert!((1..=bytes.len() + 1).contains(&fault.column), "seed {seed}: {fault}");
        }
        let chosen: Vec<&Table> = report.tables.iter().collect();
        let found = resemble(&report, &chosen);
        for likeness in &found.likeness {
            assert!((0.0..=1.0 + 1e-9).contains(&likeness.share), "seed {seed}: {likeness:?}");
        }
    }
    assert!(tables > 1000 && faults > 100, "{tables} tables, {faults} faults: too little is read");
}

#[test]
fn long_files_without_an_end_are_read_in_linear_time() {
    let rows = 20_000;
    for line in [
        "contended\n",
        " contended total wait type caller\n",
        "class name con-bounces contentions\n",
        "|--50.00%-- a_b\n",
        "abc\n",
        "a_b_c\n",
        "| contended | x |\n",
        "a_b -> c_d\n",
        "> > x\n",
        "                               Caller  Avg Wait    Count   Max Wait   Total Wait\n",
        "# output: contended, type, caller\n",
        "=\n",
        "x=\n",
        "-\n",
        "%\n",
        "- 5.00% a_b\n",
    ] {
        let report = read(line.repeat(rows).as_bytes()).unwrap();
        assert_eq!(report.lines, rows, "{line}");
        assert!(report.tables.len() <= 1, "{line}: equal tables are one");
    }
    // The tree grows to the right, so that each function calls the next.
    let deep: String =
        (0..3000).map(|at| format!("|{}--9.00%-- a_b\n", " ".repeat(at % 200))).collect();
    assert!(!read(deep.as_bytes()).unwrap().stacks.is_empty());
}
