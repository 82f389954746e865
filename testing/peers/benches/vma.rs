//! `cargo bench -p mmscale-peers --bench vma [-- --quick]`: the VMA tree compared with other maps.

use mmscale_peers::vma::{Load, render, run};

fn main() {
    let quick = std::env::args().any(|arg| arg == "--quick");
    let (rounds, operations) = if quick { (5, 40_000) } else { (25, 100_000) };
    let loads = [100, 10_000, 1_000_000].map(|vmas| Load { vmas, operations });
    let tables = run(&loads, rounds, |load| eprintln!("{} VMAs", load.vmas));
    for (program, rows) in tables {
        println!("{}", render(program.title(), &loads, &rows));
    }
    println!("ns per operation by VMAs in the space, then times the first row;");
    println!("medians of {rounds} interleaved rounds.");
}
