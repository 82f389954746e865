//! The live kernel as it is, without a workload of ours: which contention problems it shows.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use mmscale_linux::{Plan, Seen, Symbols, Wait, Watch, WatchError, Watching};
use serde::Serialize;
use thiserror::Error;

use crate::study::Interrupt;

/// Why nothing could be seen.
#[derive(Debug, Error)]
pub enum ObserveError {
    /// The kernel cannot be watched.
    #[error(transparent)]
    Watch(#[from] WatchError),
    /// Somebody asked to stop before anything was seen.
    #[error("interrupted before anything was seen")]
    Interrupted,
}

/// A share of all CPU time spent waiting that is a problem: it is what a change is worth at most.
const PROBLEM_SHARE: f64 = 0.01;
/// One that is told of.
const VISIBLE_SHARE: f64 = 0.001;
/// A wait for a spin lock, or a call on another CPU, that is too long whatever the sum: what is
/// promised to a program is often a millisecond.
const LONG_NS: u64 = 1_000_000;

/// How bad it is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Below what can be told from nothing.
    Quiet,
    /// It can be seen.
    Visible,
    /// It costs, or somebody waits too long.
    Problem,
}

/// One of the problems.
#[derive(Clone, Debug, Serialize)]
pub struct Class {
    /// Its name here.
    pub name: &'static str,
    /// The study that has to do with it.
    pub study: &'static str,
    /// How bad it is.
    pub verdict: Verdict,
    /// Waits, or calls.
    pub count: u64,
    /// Their sum, in ns.
    pub total_ns: u64,
    /// The longest, in ns.
    pub max_ns: u64,
    /// The sum as a share of all CPUs' time.
    pub share: f64,
    /// The call paths with the largest sums, innermost function first, with their share of it.
    pub paths: Vec<(String, f64)>,
    /// What to try.
    pub advice: &'static str,
}

/// What was seen.
#[derive(Clone, Debug, Serialize)]
pub struct Observed {
    /// `mmscale/live/1`.
    pub schema: &'static str,
    /// For how long, in s.
    pub seconds: f64,
    /// CPUs.
    pub cpus: usize,
    /// The problems.
    pub classes: Vec<Class>,
    /// From the wish for another task until it ran, the longest, in ns.
    pub resched_max_ns: u64,
    /// Functions and tracepoints that this kernel does not show.
    pub missing: Vec<String>,
    /// What figures hang on.
    pub provenance: BTreeMap<String, String>,
}

/// What belongs to a problem, and what to try.
struct Kind {
    name: &'static str,
    study: &'static str,
    meant: fn(&Wait) -> bool,
    advice: &'static str,
}

fn of_tick(wait: &Wait) -> bool {
    wait.class == "zone"
        && ["vmstat_update", "refresh_cpu_vm_stats"].iter().any(|f| wait.passes_through(f))
}

fn of_exit(wait: &Wait) -> bool {
    let ending = ["exit_mmap", "__do_sys_process_mrelease", "oom_reap_task_mm"];
    ["pte", "pmd", "mmap_lock"].contains(&wait.class)
        && ending.iter().any(|function| wait.passes_through(function))
}

const KINDS: [Kind; 4] = [
    Kind {
        name: "upkeep tick",
        study: "vmstat",
        meant: of_tick,
        advice: "a larger vm.stat_interval makes it rarer; compare with: mmscale run vmstat",
    },
    Kind {
        name: "LRU lists",
        study: "churn",
        meant: |wait| wait.class == "lruvec",
        advice: "fewer, larger mappings instead of many of one page; a memory group for each \
                 tenant has lists of its own; compare with: mmscale run churn",
    },
    Kind {
        name: "exit and reaper",
        study: "reap",
        meant: of_exit,
        advice: "call process_mrelease from one thread only, or not for small processes; compare \
                 with: mmscale run reap",
    },
    Kind {
        name: "page caches",
        study: "pcp",
        meant: |wait| wait.class == "zone" && !of_tick(wait),
        advice: "larger page caches: vm.percpu_pagelist_high_fraction (ask with --ab); memory that \
                 is freed where it was allocated; compare with: mmscale run pcp",
    },
];

/// Functions that must be on stacks for the classes to be told apart.
const ANCHORS: [&str; 6] = [
    "free_pcppages_bulk",
    "rmqueue_bulk",
    "folio_batch_move_lru",
    "zap_pte_range",
    "exit_mmap",
    "vmstat_update",
];

/// Whether this kernel can be watched: functions that its stacks do not show.
pub fn watchable() -> Result<Vec<String>, ObserveError> {
    let watches = vec![Watch::Locks, Watch::Lru, Watch::Calls, Watch::Exits, Watch::Resched];
    let watching = Watching::begin(&Plan { watches })?;
    let mut missing = watching.seen()?.missing;
    missing.extend(hidden(watching.symbols()));
    Ok(missing)
}

fn hidden(symbols: &Symbols) -> Vec<String> {
    let hidden = ANCHORS.iter().filter(|function| !symbols.can_find(function));
    hidden.map(|function| (*function).to_owned()).collect()
}

/// Watches for `length`; an interrupt ends it early, and what was seen until then is told.
pub fn observe(length: Duration, interrupt: &Interrupt) -> Result<Observed, ObserveError> {
    let watches = vec![Watch::Locks, Watch::Calls, Watch::Resched];
    let mut watching = Watching::begin(&Plan { watches })?;
    watching.count_all(length.as_nanos() as u64)?;
    let begun = Instant::now();
    while begun.elapsed() < length && !interrupt.is_set() {
        let left = length.saturating_sub(begun.elapsed());
        std::thread::sleep(left.min(Duration::from_millis(50)));
    }
    let seconds = begun.elapsed().min(length).as_secs_f64();
    if seconds < 0.05 {
        return Err(ObserveError::Interrupted);
    }
    let seen = watching.seen()?;
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let mut missing = seen.missing.clone();
    missing.extend(hidden(watching.symbols()));
    Ok(Observed {
        schema: "mmscale/live/1",
        seconds,
        cpus,
        classes: classes(&seen, seconds * cpus as f64 * 1e9),
        resched_max_ns: seen.resched.max_ns,
        missing,
        provenance: mmscale_linux::provenance(),
    })
}

fn verdict(share: f64, max_ns: u64) -> Verdict {
    match share {
        _ if share >= PROBLEM_SHARE || max_ns >= LONG_NS => Verdict::Problem,
        _ if share >= VISIBLE_SHARE => Verdict::Visible,
        _ => Verdict::Quiet,
    }
}

/// The problems, of what all CPUs saw in `all_ns` of CPU time.
fn classes(seen: &Seen, all_ns: f64) -> Vec<Class> {
    let waits = KINDS.iter().map(|kind| {
        let (count, total_ns, max_ns) = seen.sum(kind.meant);
        let share = total_ns as f64 / all_ns;
        let mut paths = BTreeMap::<String, u64>::new();
        for wait in seen.waits.iter().filter(|wait| (kind.meant)(wait)) {
            *paths.entry(short(&wait.path)).or_default() += wait.total_ns;
        }
        let mut paths: Vec<(String, f64)> = paths
            .into_iter()
            .map(|(path, ns)| (path, ns as f64 / total_ns.max(1) as f64))
            .collect();
        paths.sort_by(|a, b| b.1.total_cmp(&a.1));
        paths.truncate(3);
        // Who sleeps for mmap_lock leaves his CPU to others.
        let (name, study, advice) = (kind.name, kind.study, kind.advice);
        let verdict = verdict(share, max_ns);
        Class { name, study, verdict, count, total_ns, max_ns, share, paths, advice }
    });
    waits.chain([calls(seen, all_ns)]).collect()
}

fn calls(seen: &Seen, all_ns: f64) -> Class {
    let sum = |of: fn(&mmscale_linux::Call) -> u64| seen.calls.iter().map(of).sum::<u64>();
    let (count, total_ns) = (sum(|call| call.total.count), sum(|call| call.total.total_ns));
    let max_ns = seen.calls.iter().map(|call| call.total.max_ns).max().unwrap_or(0);
    let share = total_ns as f64 / all_ns;
    let path = |call: &mmscale_linux::Call| {
        (call.function.clone(), call.total.total_ns as f64 / total_ns.max(1) as f64)
    };
    let mut paths: Vec<(String, f64)> = seen.calls.iter().map(path).collect();
    paths.sort_by(|a, b| b.1.total_cmp(&a.1));
    paths.truncate(3);
    Class {
        name: "calls between CPUs",
        study: "ipi",
        verdict: verdict(share, max_ns),
        count,
        total_ns,
        max_ns,
        share,
        paths,
        advice: "fewer changes of mappings that several CPUs use: larger ranges at once; long \
                 stretches with interrupts off make them slow, and so does a busy hypervisor",
    }
}

/// The innermost functions of a path.
fn short(path: &[String]) -> String {
    let inner: Vec<&str> = path.iter().rev().take(5).map(String::as_str).collect();
    if inner.is_empty() { "unknown".to_owned() } else { inner.join(" < ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_or_one_long_wait_makes_a_problem() {
        assert_eq!(verdict(0.0, 0), Verdict::Quiet);
        assert_eq!(verdict(0.002, 20_000), Verdict::Visible);
        assert_eq!(verdict(0.02, 20_000), Verdict::Problem);
        assert_eq!(verdict(0.0, 3_000_000), Verdict::Problem);
    }

    #[test]
    fn paths_are_shown_from_the_lock_outwards() {
        let path = ["a", "b", "c", "d", "e", "f"].map(str::to_owned);
        assert_eq!(short(&path), "f < e < d < c < b");
        assert_eq!(short(&[]), "unknown");
    }
}
