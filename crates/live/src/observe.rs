//! The live kernel as it is, without a workload of ours: which contention problems it shows.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use mmscale_document::{Wait, Watch, Watched};
use mmscale_linux::{Plan, Sampling, Symbols, WatchError, Watching};
use serde::Serialize;
use thiserror::Error;

use mmscale_harness::Interrupt;

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

/// From where on something is told of.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Limits {
    /// A share of all CPU time spent waiting that is a problem: what a change is worth at most.
    pub problem_share: f64,
    /// One that can be seen.
    pub visible_share: f64,
    /// One wait that is a problem whatever the sum, in ns.
    pub long_ns: u64,
}

/// What programs ask for themselves. What is promised to one is often a millisecond.
const ASKED_FOR: Limits = Limits { problem_share: 0.01, visible_share: 0.001, long_ns: 1_000_000 };
/// What the kernel does by itself, which no program has asked for and none can leave out.
const BY_ITSELF: Limits =
    Limits { problem_share: 0.001, visible_share: 0.0001, long_ns: 1_000_000 };
/// Whoever sleeps until an address space is gone leaves his CPU to others; what he waits for is the
/// memory, and a hundredth of a second without it is long.
const OF_AN_END: Limits = Limits { problem_share: 0.01, visible_share: 0.001, long_ns: 10_000_000 };

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
    /// What makes it called so.
    pub limits: Limits,
    /// What to try.
    pub advice: &'static str,
}

/// How long something took that happened some times.
#[derive(Clone, Debug, Serialize)]
pub struct Phase {
    /// What.
    pub name: &'static str,
    /// How often.
    pub count: u64,
    /// The sum, in ns.
    pub total_ns: u64,
    /// The longest, in ns.
    pub max_ns: u64,
}

/// Ends of address spaces, and what the out-of-memory killer had to do with them.
#[derive(Clone, Debug, Serialize)]
pub struct Ends {
    /// Phases of exits and of reapers that there were.
    pub phases: Vec<Phase>,
    /// Events of the out-of-memory killer and its reaper, with their counts.
    pub oom: Vec<(&'static str, u64)>,
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
    /// How address spaces ended, where that was looked at.
    pub ends: Option<Ends>,
    /// From the wish for another task until it ran, the longest, in ns, where that was looked at.
    pub resched_max_ns: Option<u64>,
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
    limits: Limits,
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
        limits: BY_ITSELF,
        advice: "a larger vm.stat_interval makes it rarer; compare with: mmscale run vmstat",
    },
    Kind {
        name: "LRU lists",
        study: "churn",
        meant: |wait| wait.class == "lruvec",
        limits: ASKED_FOR,
        advice: "fewer, larger mappings instead of many of one page; a memory group for each \
                 tenant has lists of its own; compare with: mmscale run churn",
    },
    Kind {
        name: "exit and reaper",
        study: "reap",
        meant: of_exit,
        limits: OF_AN_END,
        advice: "call process_mrelease from one thread only, or not for small processes; compare \
                 with: mmscale run reap",
    },
    Kind {
        name: "page caches",
        study: "pcp",
        meant: |wait| wait.class == "zone" && !of_tick(wait),
        limits: ASKED_FOR,
        advice: "larger page caches: vm.percpu_pagelist_high_fraction (ask with --ab); memory that \
                 is freed where it was allocated; compare with: mmscale run pcp",
    },
];

/// The studies whose problems a live kernel can show.
pub const STUDIES: [&str; 5] = ["vmstat", "churn", "reap", "pcp", "ipi"];

/// What must be watched for the problems of some studies.
fn watches(studies: &[&str]) -> Vec<Watch> {
    let mut watches = Vec::new();
    if studies.iter().any(|study| *study != "ipi") {
        watches.push(Watch::Locks);
    }
    if studies.contains(&"reap") {
        watches.extend([Watch::Exits, Watch::Oom]);
    }
    if studies.contains(&"ipi") {
        watches.extend([Watch::Calls, Watch::Resched]);
    }
    watches
}

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
    let mut watches = watches(&STUDIES);
    watches.extend([Watch::Lru, Watch::Holders]);
    let watching = Watching::begin(&Plan { watches, sampling: Sampling::All })?;
    let mut missing = watching.seen()?.missing;
    missing.extend(hidden(watching.symbols()));
    Ok(missing)
}

fn hidden(symbols: &Symbols) -> Vec<String> {
    let hidden = ANCHORS.iter().filter(|function| !symbols.can_find(function));
    hidden.map(|function| (*function).to_owned()).collect()
}

/// Watches for `length` what has to do with `studies`; an interrupt ends it early, and what was
/// seen until then is told.
pub fn observe(
    length: Duration,
    studies: &[&str],
    interrupt: &Interrupt,
) -> Result<Observed, ObserveError> {
    let watches = watches(studies);
    let mut watching = Watching::begin(&Plan { watches, sampling: Sampling::Sparse })?;
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
    let mut classes = classes(&seen, seconds * cpus as f64 * 1e9);
    classes.retain(|class| studies.contains(&class.study));
    Ok(Observed {
        schema: "mmscale/live/1",
        seconds,
        cpus,
        classes,
        ends: studies.contains(&"reap").then(|| ends(&seen)),
        resched_max_ns: studies.contains(&"ipi").then_some(seen.resched.max_ns),
        missing,
        provenance: mmscale_linux::provenance(),
    })
}

fn verdict(limits: &Limits, share: f64, max_ns: u64) -> Verdict {
    match share {
        _ if share >= limits.problem_share || max_ns >= limits.long_ns => Verdict::Problem,
        _ if share >= limits.visible_share => Verdict::Visible,
        _ => Verdict::Quiet,
    }
}

/// How address spaces ended.
fn ends(seen: &Watched) -> Ends {
    let phases = [
        ("exit: unmapping", &seen.exit_zap),
        ("exit: waiting for a reaper", &seen.exit_await_reaper),
        ("exit: freeing page tables", &seen.exit_tables),
        ("process_mrelease: waiting", &seen.mrelease_await),
        ("process_mrelease: unmapping", &seen.mrelease),
        ("oom_reaper: unmapping", &seen.oom_reap),
    ];
    let phase = |(name, times): (&'static str, &mmscale_document::Durations)| Phase {
        name,
        count: times.count,
        total_ns: times.total_ns,
        max_ns: times.max_ns,
    };
    let oom = &seen.oom;
    Ends {
        phases: phases.into_iter().map(phase).collect(),
        oom: vec![
            ("victims", oom.marked),
            ("reaper woken", oom.woken),
            ("reaping begun", oom.started),
            ("reaping finished", oom.finished),
            ("reaping skipped", oom.skipped),
            ("oom_score_adj changed", oom.adjusted),
        ],
    }
}

/// The problems, of what all CPUs saw in `all_ns` of CPU time.
fn classes(seen: &Watched, all_ns: f64) -> Vec<Class> {
    let waits = KINDS.iter().map(|kind| {
        let (count, total_ns, max_ns) = seen.sum(kind.meant);
        let share = total_ns as f64 / all_ns;
        let paths = paths(seen, kind.meant);
        // Who sleeps for mmap_lock leaves his CPU to others.
        let Kind { name, study, limits, advice, .. } = *kind;
        let verdict = verdict(&limits, share, max_ns);
        Class { name, study, verdict, count, total_ns, max_ns, share, paths, limits, advice }
    });
    waits.chain([calls(seen, all_ns)]).collect()
}

/// Functions that are sent to another CPU by nobody who waits: a CPU that sleeps for long is no
/// problem of theirs.
const UNAWAITED: [&str; 3] = ["sched_ttwu_pending", "nohz_csd_func", "__hrtick_start"];

/// Whether somebody waits for what was called.
fn awaited(function: &str) -> bool {
    !UNAWAITED.contains(&function)
}

fn calls(seen: &Watched, all_ns: f64) -> Class {
    let calls = || seen.calls.iter().filter(|call| awaited(&call.function));
    let sum = |of: fn(&mmscale_document::Call) -> u64| calls().map(of).sum::<u64>();
    let (count, total_ns) = (sum(|call| call.total.count), sum(|call| call.total.total_ns));
    let max_ns = calls().map(|call| call.total.max_ns).max().unwrap_or(0);
    let share = total_ns as f64 / all_ns;
    let path = |call: &mmscale_document::Call| {
        (call.function.clone(), call.total.total_ns as f64 / total_ns.max(1) as f64)
    };
    let mut paths: Vec<(String, f64)> = calls().map(path).collect();
    paths.sort_by(|a, b| b.1.total_cmp(&a.1));
    paths.truncate(3);
    Class {
        name: "calls between CPUs",
        study: "ipi",
        verdict: verdict(&ASKED_FOR, share, max_ns),
        count,
        total_ns,
        max_ns,
        share,
        paths,
        limits: ASKED_FOR,
        advice: "fewer changes of mappings that several CPUs use: larger ranges at once; long \
                 stretches with interrupts off make them slow, and so does a busy hypervisor",
    }
}

/// The call paths of some waits with the largest sums, innermost function first, and their shares
/// of all of these.
pub(crate) fn paths(seen: &Watched, meant: impl Fn(&Wait) -> bool) -> Vec<(String, f64)> {
    let mut sums = BTreeMap::<String, u64>::new();
    for wait in seen.waits.iter().filter(|wait| meant(wait)) {
        *sums.entry(short(&wait.path)).or_default() += wait.total_ns;
    }
    let all = sums.values().sum::<u64>().max(1) as f64;
    let mut paths: Vec<(String, f64)> =
        sums.into_iter().map(|(path, ns)| (path, ns as f64 / all)).collect();
    paths.sort_by(|a, b| b.1.total_cmp(&a.1));
    paths.truncate(3);
    paths
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
        let asked = |share, max_ns| verdict(&ASKED_FOR, share, max_ns);
        assert_eq!(asked(0.0, 0), Verdict::Quiet);
        assert_eq!(asked(0.002, 20_000), Verdict::Visible);
        assert_eq!(asked(0.02, 20_000), Verdict::Problem);
        assert_eq!(asked(0.0, 3_000_000), Verdict::Problem);
        // What nobody asked for is a problem earlier, and who sleeps may sleep longer.
        assert_eq!(verdict(&BY_ITSELF, 0.002, 20_000), Verdict::Problem);
        assert_eq!(verdict(&OF_AN_END, 0.0, 3_000_000), Verdict::Quiet);
    }

    #[test]
    fn only_what_a_study_is_about_is_watched() {
        assert_eq!(watches(&["churn"]), [Watch::Locks]);
        assert_eq!(watches(&["ipi"]), [Watch::Calls, Watch::Resched]);
        assert_eq!(watches(&["reap"]), [Watch::Locks, Watch::Exits, Watch::Oom]);
        assert_eq!(watches(&STUDIES).len(), 5);
        for kind in &KINDS {
            assert!(STUDIES.contains(&kind.study), "{}", kind.name);
        }
    }

    #[test]
    fn paths_are_shown_from_the_lock_outwards() {
        let path = ["a", "b", "c", "d", "e", "f"].map(str::to_owned);
        assert_eq!(short(&path), "f < e < d < c < b");
        assert_eq!(short(&[]), "unknown");
    }
}
