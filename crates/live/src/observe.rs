//! Observes the live kernel without a workload of mmscale, and classifies contention problems.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use mmscale_document::{Hold, MeasuredWait, Problem, Wait, Watch, Watched};
use mmscale_linux::{Plan, Sampling, Symbols, WatchError, Watching};
use serde::Serialize;
use thiserror::Error;

use mmscale_harness::Interrupt;

use crate::holders::{self, Holder, short};

/// Why an observation has no result.
#[derive(Debug, Error)]
pub enum ObserveError {
    /// The kernel cannot be observed.
    #[error(transparent)]
    Watch(#[from] WatchError),
    /// The user interrupted the observation before it had a result.
    #[error("interrupted before anything was observed")]
    Interrupted,
}

impl ObserveError {
    /// Returns the log of the kernel's verifier, if it has refused a program.
    pub fn verifier_log(&self) -> Option<&str> {
        match self {
            Self::Watch(why) => why.verifier_log(),
            Self::Interrupted => None,
        }
    }
}

/// Thresholds of a verdict.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Limits {
    /// Share of all CPU time spent waiting above which there is a problem. It is the maximum gain
    /// of a fix.
    pub problem_share: f64,
    /// Share of all CPU time above which waiting is visible.
    pub visible_share: f64,
    /// A single wait, in ns, that is a problem regardless of the share.
    pub long_ns: u64,
}

/// Waits within system calls of programs. Latency targets of programs are often a millisecond.
const ASKED_FOR: Limits = Limits { problem_share: 0.01, visible_share: 0.001, long_ns: 1_000_000 };
/// Waits of work that the kernel does by itself and that programs cannot avoid.
const BY_ITSELF: Limits =
    Limits { problem_share: 0.001, visible_share: 0.0001, long_ns: 1_000_000 };
/// Waits for the end of an address space. The waiter sleeps and leaves its CPU to other tasks, but
/// it waits for memory, and 10 ms without it are long.
const OF_AN_END: Limits = Limits { problem_share: 0.01, visible_share: 0.001, long_ns: 10_000_000 };

/// The severity of contention.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Below the noise level.
    Quiet,
    /// Visible, but not a problem.
    Visible,
    /// A significant cost, or a wait that is too long.
    Problem,
}

/// A class of contention problems.
#[derive(Clone, Debug, Serialize)]
pub struct Class {
    /// The name of the class.
    pub name: &'static str,
    /// The related study.
    pub study: &'static str,
    /// The severity.
    pub verdict: Verdict,
    /// Number of waits or calls.
    pub count: u64,
    /// Total wait, in ns.
    pub total_ns: u64,
    /// The longest wait, in ns.
    pub max_ns: u64,
    /// Total wait as a share of all CPUs' time.
    pub share: f64,
    /// The call paths with the largest totals, innermost function first, with their share of the
    /// total.
    pub paths: Vec<(String, f64)>,
    /// The thresholds of the verdict.
    pub limits: Limits,
    /// The holders that these waits ended with, if the kernel reports releases of contended locks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub holders: Option<Vec<Holder>>,
    /// Advice on what to try.
    pub advice: &'static str,
}

/// Statistics of a repeated phase.
#[derive(Clone, Debug, Serialize)]
pub struct Phase {
    /// The name of the phase.
    pub name: &'static str,
    /// Number of times.
    pub count: u64,
    /// Total duration, in ns.
    pub total_ns: u64,
    /// The longest duration, in ns.
    pub max_ns: u64,
}

/// Exits of address spaces, and the activity of the OOM killer.
#[derive(Clone, Debug, Serialize)]
pub struct Ends {
    /// Phases of exits and of reapers that occurred.
    pub phases: Vec<Phase>,
    /// Events of the OOM killer and its reaper, with their counts.
    pub oom: Vec<(&'static str, u64)>,
}

/// The result of an observation.
#[derive(Clone, Debug, Serialize)]
pub struct Observation {
    /// Always `mmscale/live/1`.
    pub schema: &'static str,
    /// Duration of the observation, in s.
    pub seconds: f64,
    /// Number of CPUs.
    pub cpus: usize,
    /// The classes of contention problems.
    pub classes: Vec<Class>,
    /// All waits for locks by class and call path, if waits were observed, the largest total first.
    pub waits: Vec<MeasuredWait>,
    /// Waits by the holder that they ended with, the largest total first, if the kernel reports
    /// releases of contended locks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub holders: Option<Vec<Holder>>,
    /// Exits of address spaces, if they were observed.
    pub ends: Option<Ends>,
    /// The longest time from a reschedule request until the next task ran, in ns, if it was
    /// observed: kernels whose RCU readers are preempted do not bear it.
    pub resched_max_ns: Option<u64>,
    /// Functions and tracepoints that this kernel hides.
    pub missing: Vec<String>,
    /// Other conditions of the result, such as the kernel release.
    pub provenance: BTreeMap<String, String>,
}

/// The definition of a class: which waits belong to it, and advice.
struct Kind {
    name: &'static str,
    problem: Problem,
    limits: Limits,
    advice: &'static str,
}

impl Kind {
    /// Returns whether a wait belongs to the class.
    fn means(&self, wait: &Wait) -> bool {
        Problem::of(wait.class, &wait.path) == Some(self.problem)
    }
}

const KINDS: [Kind; 4] = [
    Kind {
        name: "upkeep tick",
        problem: Problem::Vmstat,
        limits: BY_ITSELF,
        advice: "increase vm.stat_interval to run it less often; compare with: mmscale run vmstat",
    },
    Kind {
        name: "LRU lists",
        problem: Problem::Churn,
        limits: ASKED_FOR,
        advice: "use fewer, larger mappings instead of many of one page; use a memory cgroup per \
                 tenant, which has its own lists; compare with: mmscale run churn",
    },
    Kind {
        name: "exit and reaper",
        problem: Problem::Reap,
        limits: OF_AN_END,
        advice: "call process_mrelease from one thread only, or only for large processes; compare \
                 with: mmscale run reap",
    },
    Kind {
        name: "page caches",
        problem: Problem::Pcp,
        limits: ASKED_FOR,
        advice: "enlarge page caches by vm.percpu_pagelist_high_fraction (compare with `live \
                 ab`); free memory on the CPU that allocated it; compare with: mmscale run pcp",
    },
];

/// The studies whose problems can be observed on a live kernel.
pub const STUDIES: [&str; 5] = ["vmstat", "churn", "reap", "pcp", "ipi"];

/// Returns the events to observe for the problems of some studies.
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

/// Functions that must appear on stacks to distinguish the classes.
const ANCHORS: [&str; 6] = [
    "free_pcppages_bulk",
    "rmqueue_bulk",
    "folio_batch_move_lru",
    "zap_pte_range",
    "exit_mmap",
    "vmstat_update",
];

/// The parts of a kernel that can be observed only in part.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unseen {
    /// Events without a program: the kernel has no such tracepoint, or a program on it would panic
    /// the kernel.
    pub events: Vec<String>,
    /// Functions that its stacks do not show.
    pub functions: Vec<String>,
}

/// Checks whether this kernel can be observed. Returns what of it cannot.
pub fn watchable() -> Result<Unseen, ObserveError> {
    let mut watches = watches(&STUDIES);
    watches.extend([Watch::Lru, Watch::Holders]);
    let watching = Watching::begin(&Plan { watches, sampling: Sampling::All })?;
    let events = watching.seen()?.missing;
    Ok(Unseen { events, functions: hidden(watching.symbols()) })
}

fn hidden(symbols: &Symbols) -> Vec<String> {
    let hidden = ANCHORS.iter().filter(|function| !symbols.can_find(function));
    hidden.map(|function| (*function).to_owned()).collect()
}

/// Observes events of `studies` for `length`. An interrupt ends the observation early with the
/// results up to then.
pub fn observe(
    length: Duration,
    studies: &[&str],
    interrupt: &Interrupt,
) -> Result<Observation, ObserveError> {
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
    Ok(Observation {
        schema: "mmscale/live/1",
        seconds,
        cpus,
        classes,
        waits: waits(&seen),
        holders: seen.holds.as_deref().map(|holds| holders::rows(holds, |_| true)),
        ends: studies.contains(&"reap").then(|| ends(&seen)),
        resched_max_ns: Some(&seen.resched).filter(|times| times.count > 0).map(|t| t.max_ns),
        missing,
        provenance: crate::provenance(),
    })
}

/// Returns the waits of all tasks by class and path.
fn waits(seen: &Watched) -> Vec<MeasuredWait> {
    type Key<'a> = (&'a str, Option<&'a str>, &'a [String]);
    let mut merged = BTreeMap::<Key<'_>, (u64, u64, u64)>::new();
    for wait in &seen.waits {
        let sum = merged.entry((wait.class, wait.lock.as_deref(), &wait.path)).or_default();
        *sum = (sum.0 + wait.count, sum.1 + wait.total_ns, sum.2.max(wait.max_ns));
    }
    let row = |((class, lock, path), (count, total_ns, max_ns)): (Key<'_>, _)| MeasuredWait {
        class: class.to_owned(),
        lock: lock.map(str::to_owned),
        path: path.to_vec(),
        contentions: Some(count),
        wait_total_ns: Some(total_ns),
        wait_max_ns: Some(max_ns),
        ..MeasuredWait::default()
    };
    let mut waits: Vec<MeasuredWait> = merged.into_iter().map(row).collect();
    waits.sort_by_key(|wait| std::cmp::Reverse(wait.wait_total_ns));
    waits
}

fn verdict(limits: &Limits, share: f64, max_ns: u64) -> Verdict {
    match share {
        _ if share >= limits.problem_share || max_ns >= limits.long_ns => Verdict::Problem,
        _ if share >= limits.visible_share => Verdict::Visible,
        _ => Verdict::Quiet,
    }
}

/// Returns the exits of address spaces.
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

/// Returns the classes of problems, for observations of all CPUs during `all_ns` of CPU time.
fn classes(seen: &Watched, all_ns: f64) -> Vec<Class> {
    let waits = KINDS.iter().map(|kind| {
        let (count, total_ns, max_ns) = seen.sum(|wait| kind.means(wait));
        let share = total_ns as f64 / all_ns;
        let paths = paths(seen, |wait| kind.means(wait));
        // A task that sleeps on mmap_lock leaves its CPU to other tasks.
        let Kind { name, problem, limits, advice } = *kind;
        let study = problem.study();
        let verdict = verdict(&limits, share, max_ns);
        let holders = seen.holds.as_deref().map(|holds| {
            let is_of = |hold: &Hold| Problem::of(hold.class, &hold.path) == Some(problem);
            holders::rows(holds, is_of)
        });
        Class {
            name,
            study,
            verdict,
            count,
            total_ns,
            max_ns,
            share,
            paths,
            limits,
            holders,
            advice,
        }
    });
    waits.chain([calls(seen, all_ns)]).collect()
}

/// Functions that are sent to another CPU without waiting for their end: a CPU in a deep sleep does
/// not delay the sender.
const UNAWAITED: [&str; 3] = ["sched_ttwu_pending", "nohz_csd_func", "__hrtick_start"];

/// Returns whether the sender waits for the end of the function.
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
        holders: None,
        advice: "change mappings that several CPUs use less often, in larger ranges; long sections \
                 with interrupts off and a busy hypervisor slow the calls down",
    }
}

/// Returns the call paths of the selected waits with the largest totals, innermost function first,
/// with their shares of the total.
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
        // Unavoidable kernel work has a lower threshold, and waits of sleepers have a higher one.
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
            assert!(STUDIES.contains(&kind.problem.study()), "{}", kind.name);
        }
    }
}
