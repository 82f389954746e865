//! Compares this computer's kernel with the policy `stock`: the sizes of refills and drains of a
//! page cache, and the times of the vmstat tick.
//!
//! `cargo run --release -p mmscale-mm --example live_counts [SECONDS]`, as root, with tracefs
//! mounted and two CPUs or more, best on a computer that does nothing else.
//!
//! It watches the vmstat tick of every CPU for SECONDS (30) with all CPUs kept busy, by tracepoints
//! in a tracing instance of its own. Then a job is pinned to CPU 0: it touches fresh pages until
//! the CPU's page cache has run empty and been refilled many times, frees them and others that came
//! from another CPU, and computes until the tick has shrunk the cache. The job's zone, CPU count
//! and state at its start are given to our allocator, which does the same. It prints both.

mod job;
mod kernel;
mod ours;
mod trace;

use std::process::ExitCode;

/// Pages past those cached at the start that the job takes: refills up to the largest, three times.
const PAST_EMPTY: usize = 63 * (1 + 2 + 4 + 8 + 16 + 3 * 32) + 1;
/// Pages taken on another CPU and freed on CPU 0: more than the refills raise `high` by.
const FOREIGN: usize = 14_000;
/// For so long the job computes at the end, in seconds: ticks that shrink the cache.
const REST_S: u64 = 12;

fn main() -> ExitCode {
    let seconds = std::env::args().nth(1).map_or(Ok(30), |text| text.parse::<u64>());
    let Ok(seconds) = seconds else {
        eprintln!("usage: live_counts [SECONDS]");
        return ExitCode::from(2);
    };
    match run(seconds) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("live_counts: {why}");
            ExitCode::FAILURE
        }
    }
}

fn run(seconds: u64) -> Result<(), String> {
    let kernel = kernel::Kernel::look()?;
    let trace = trace::Instance::new(&kernel)?;
    trace.watch_tick(&kernel)?;
    job::keep_busy(kernel.cpus, seconds)?;
    trace.watch_pages()?;
    let start = job::take_and_free(PAST_EMPTY, FOREIGN, REST_S)?;
    let pages = start.count as usize + PAST_EMPTY;
    let end = kernel::Cache::look(0)?;
    trace.stop()?;

    println!("Linux {}, {} CPUs, zone of {} pages", kernel.release, kernel.cpus, start.managed);
    println!("page cache of CPU 0: {} pages at the start, high {}", start.count, start.high);
    let mut ours = ours::Ours::new(&kernel, &start)?;
    let (live, mine) = (start.limits, ours.limits());
    println!("                 live     ours");
    for (name, live, mine) in [
        ("batch", live.batch, mine.batch),
        ("high_min", live.high_min, mine.high_min),
        ("high_max", live.high_max, mine.high_max),
    ] {
        println!("  {name:<10} {live:>9} {mine:>8}");
    }
    let events = trace.events(0)?;
    let seen = trace::Sizes::of(&events, start.start_pfn);
    let done = ours.job(pages, FOREIGN);
    show("refills of single movable pages, in pages", &seen.refills, &done.refills);
    show("drains by frees", &seen.frees, &done.frees);
    show("drains by the tick", &seen.ticks, &done.ticks);
    println!("page cache of CPU 0 at the end: {} pages, high {}", end.count, end.high);
    println!("ours:                           {} pages, high {}", done.count, done.high);
    for cpu in 0..kernel.cpus {
        let armings = trace::armings(&trace.events(cpu)?);
        ours::compare_ticks(cpu, kernel.cpus, &armings);
    }
    Ok(())
}

fn show(what: &str, live: &[u32], ours: &[u32]) {
    let text = |sizes: &[u32]| {
        let words: Vec<String> = sizes.iter().map(u32::to_string).collect();
        if words.is_empty() { "none".to_owned() } else { words.join(" ") }
    };
    println!("{what}:\n  live  {}\n  ours  {}", text(live), text(ours));
}
