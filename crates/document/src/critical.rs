//! The critical path of operations: the work and the waits on which each call spends its time. A
//! call is one sequence, so at each moment the work on its own path, or the lock that it waits for
//! and that lock's holder, is what it needs next.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{BlameRow, CallRow, Doing, LockRow};

/// Most parts of an operation that are kept; the rest is the difference from the total.
const KEPT: usize = 24;

/// The class of the queues of CPUs that spin for a sleeping lock.
const SPINNERS: &str = "osq";

/// A part of the time of an operation.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PathPart {
    /// The innermost function of the operation at that time.
    pub function: String,
    /// The class of the lock that it waited for; none for work of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lock: Option<String>,
    /// The occupation of that lock's holder; none where holders are not recorded (sleeping locks).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub doing: Option<Doing>,
    /// The call path of the holder, outermost function first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub holder: Vec<String>,
    /// The class of the lock that the holder waited for itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub through: Option<String>,
}

/// The work and the waits of the calls of one function.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CriticalPath {
    /// The function that a program entered.
    pub function: String,
    /// How often.
    pub calls: u64,
    /// CPU time, and sleep for locks, of all calls, in ns. Interrupts, and sleep for anything but
    /// locks, are not included.
    pub total_ns: u64,
    /// The largest parts, with their time in ns.
    pub parts: Vec<(PathPart, u64)>,
}

/// Sums by part of one function.
#[derive(Default)]
struct Sums {
    calls: u64,
    parts: BTreeMap<PathPart, u64>,
}

/// Returns the function that a program entered, and the innermost one of its path.
fn operation(path: &[String]) -> Option<(&String, &String)> {
    Some((path.get(1)?, path.last()?))
}

impl CriticalPath {
    /// Splits the CPU time and the waits of a run. The operation with the longest total comes
    /// first. `shares` are all waits for the spin locks of `locks`.
    pub fn of(calls: &[CallRow], locks: &[LockRow], shares: &[BlameRow]) -> Vec<Self> {
        let mut sums = BTreeMap::<&String, Sums>::new();
        let mut spun_ps = BTreeMap::<&[String], u64>::new();
        for row in shares {
            *spun_ps.entry(&row.waiter).or_default() += row.wait_ps;
            let Some((of, function)) = operation(&row.waiter) else { continue };
            let part = PathPart {
                function: function.clone(),
                lock: Some(row.class.clone()),
                doing: Some(row.doing),
                holder: row.holder.clone(),
                through: row.through.clone(),
            };
            *sums.entry(of).or_default().parts.entry(part).or_default() += row.wait_ps / 1000;
        }
        let spinning = Spinning::of(calls, locks);
        for row in locks.iter().filter(|row| row.sleeps) {
            let Some((of, function)) = operation(&row.path) else { continue };
            let lock = Some(row.class.clone());
            let part = PathPart { lock, ..PathPart::work(function) };
            let ns = spinning.outside_of_queues(row);
            *sums.entry(of).or_default().parts.entry(part).or_default() += ns;
        }
        for row in calls {
            let Some((of, function)) = operation(&row.path) else { continue };
            let spun_ns = spun_ps.get(&row.path[..]).copied().unwrap_or(0) / 1000;
            let sum = sums.entry(of).or_default();
            sum.calls += if row.path.len() == 2 { row.entered } else { 0 };
            let own_ns = row.self_ns.saturating_sub(spun_ns);
            let ns = own_ns.saturating_sub(spinning.at_heads(&row.path));
            *sum.parts.entry(PathPart::work(function)).or_default() += ns;
        }
        sorted(sums)
    }
    /// Sums the operations of several runs. The longest total comes first.
    pub fn aggregate<'a>(paths: impl IntoIterator<Item = &'a Self>) -> Vec<Self> {
        let mut sums = BTreeMap::<&String, Sums>::new();
        let mut rest = BTreeMap::<&String, u64>::new();
        for path in paths {
            let sum = sums.entry(&path.function).or_default();
            sum.calls += path.calls;
            for (part, ns) in &path.parts {
                *sum.parts.entry(part.clone()).or_default() += ns;
            }
            let kept: u64 = path.parts.iter().map(|(_, ns)| ns).sum();
            *rest.entry(&path.function).or_default() += path.total_ns - kept;
        }
        let mut paths = sorted(sums);
        for path in &mut paths {
            path.total_ns += rest[&path.function];
        }
        paths.sort_by_key(|path| Reverse(path.total_ns));
        paths
    }
    /// The share of waits for locks in the kept parts, between 0 and 1.
    pub fn waiting(&self) -> f64 {
        let waits = self.parts.iter().filter(|(part, _)| part.lock.is_some());
        waits.map(|(_, ns)| *ns).sum::<u64>() as f64 / self.total_ns.max(1) as f64
    }
}

/// CPU time in waits for sleeping locks. Such a wait begins with spinning in many cases: in a queue
/// of spinners, whose waits have records of their own, and at its head. Both are in the time of
/// the wait and in the CPU time of calls.
struct Spinning<'a> {
    /// Waits for sleeping locks, by the path that takes them.
    slept_ns: BTreeMap<&'a [String], u64>,
    /// Waits in queues of spinners, by the path that takes the sleeping lock.
    queued_ns: BTreeMap<&'a [String], u64>,
    /// CPU time of functions that only spin, without that in queues, by their path.
    at_heads_ns: BTreeMap<&'a [String], u64>,
}

impl<'a> Spinning<'a> {
    fn of(calls: &'a [CallRow], locks: &'a [LockRow]) -> Self {
        let mut slept_ns = BTreeMap::<&[String], u64>::new();
        for row in locks.iter().filter(|row| row.sleeps) {
            *slept_ns.entry(&row.path).or_default() += row.wait_total_ns;
        }
        let (mut queued_ns, mut at_heads_ns) = (BTreeMap::<&[String], u64>::new(), BTreeMap::new());
        for row in locks.iter().filter(|row| row.class == SPINNERS) {
            // A mutex is spun for in the function that takes it, a semaphore in one of its own.
            let outer = match row.path.split_last() {
                Some((_, outer)) if !slept_ns.contains_key(&row.path[..]) => {
                    let own = calls.iter().find(|call| call.path == row.path);
                    let own_ns = own.map_or(0, |call| call.self_ns);
                    at_heads_ns.insert(&row.path[..], own_ns.saturating_sub(row.wait_total_ns));
                    outer
                }
                _ => &row.path,
            };
            *queued_ns.entry(outer).or_default() += row.wait_total_ns;
        }
        Self { slept_ns, queued_ns, at_heads_ns }
    }
    /// Returns the time of the waits for a sleeping lock without its share of those in queues.
    /// These are divided in proportion if a path takes locks of several classes.
    fn outside_of_queues(&self, row: &LockRow) -> u64 {
        let of = |times: &BTreeMap<&[String], u64>| times.get(&row.path[..]).copied().unwrap_or(0);
        let (slept, queued) = (of(&self.slept_ns), of(&self.queued_ns));
        let outside = u128::from(slept.saturating_sub(queued)) * u128::from(row.wait_total_ns);
        (outside / u128::from(slept.max(1))) as u64
    }
    /// Returns the CPU time at the heads of queues on a path.
    fn at_heads(&self, path: &[String]) -> u64 {
        self.at_heads_ns.get(path).copied().unwrap_or(0)
    }
}

impl PathPart {
    fn work(function: &str) -> Self {
        let function = function.to_owned();
        Self { function, lock: None, doing: None, holder: vec![], through: None }
    }
}

fn sorted(sums: BTreeMap<&String, Sums>) -> Vec<CriticalPath> {
    let path = |(function, Sums { calls, parts }): (&String, Sums)| {
        let total_ns = parts.values().sum();
        let mut parts: Vec<_> = parts.into_iter().filter(|(_, ns)| *ns > 0).collect();
        parts.sort_by_key(|(_, ns)| Reverse(*ns));
        parts.truncate(KEPT);
        CriticalPath { function: function.clone(), calls, total_ns, parts }
    };
    let mut paths: Vec<_> = sums.into_iter().map(path).filter(|path| path.total_ns > 0).collect();
    paths.sort_by_key(|path| Reverse(path.total_ns));
    paths
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(names: &str) -> Vec<String> {
        names.split(' ').map(str::to_owned).collect()
    }

    fn lock(class: &str, of: &str, sleeps: bool, wait_total_ns: u64) -> LockRow {
        let (class, path) = (class.to_owned(), path(of));
        LockRow { class, path, sleeps, wait_total_ns, ..LockRow::default() }
    }

    fn run() -> Vec<CriticalPath> {
        let call =
            |of: &str, entered, self_ns| CallRow { path: path(of), entered, self_ns, lines_ns: 0 };
        let calls = [
            call("program", 1, 900),
            call("program munmap", 4, 100),
            call("program munmap release_pages", 8, 500),
            call("program mmap", 4, 50),
        ];
        let locks = [
            lock("mmap_lock", "program mmap", true, 30),
            lock("lruvec", "program munmap release_pages", false, 300),
        ];
        let shares = [BlameRow {
            class: "lruvec".into(),
            waiter: path("program munmap release_pages"),
            holder: path("program munmap release_pages"),
            doing: Doing::Work,
            through: None,
            wait_ps: 300_000,
        }];
        CriticalPath::of(&calls, &locks, &shares)
    }

    #[test]
    fn spinning_is_no_work_and_sleep_for_locks_counts() {
        let paths = run();
        let totals: Vec<_> =
            paths.iter().map(|path| (path.function.as_str(), path.calls, path.total_ns)).collect();
        assert_eq!(totals, [("munmap", 4, 600), ("mmap", 4, 80)]);
        let parts: Vec<_> = paths[0]
            .parts
            .iter()
            .map(|(part, ns)| (part.function.as_str(), part.lock.as_deref(), *ns))
            .collect();
        let expected = [
            ("release_pages", Some("lruvec"), 300),
            ("release_pages", None, 200),
            ("munmap", None, 100),
        ];
        assert_eq!(parts, expected);
        assert!((paths[0].waiting() - 0.5).abs() < 1e-9);
        assert_eq!(paths[1].parts[1].0.lock.as_deref(), Some("mmap_lock"));
    }

    #[test]
    fn time_of_spinning_for_a_sleeping_lock_counts_once() {
        let call = |of: &str, self_ns| CallRow { path: path(of), entered: 1, self_ns, lines_ns: 0 };
        let share = |of: &str, wait_ps| BlameRow {
            class: "osq".into(),
            waiter: path(of),
            holder: vec![],
            doing: Doing::Work,
            through: None,
            wait_ps,
        };
        // A semaphore: 1000 ns of waits, of which 300 in the queue, 100 at its head, 600 asleep. A
        // mutex: 500 ns, of which 200 in the queue and 50 at its head.
        let calls = [call("p map", 40), call("p map spin", 400), call("p alloc", 290)];
        let locks = [
            lock("i_mmap", "p map", true, 1000),
            lock("osq", "p map spin", false, 300),
            lock("mutex", "p alloc", true, 500),
            lock("osq", "p alloc", false, 200),
        ];
        let shares = [share("p map spin", 300_000), share("p alloc", 200_000)];
        let paths = CriticalPath::of(&calls, &locks, &shares);
        let of = |number: usize| {
            let part = |(part, ns): &(PathPart, u64)| (part.lock.clone().unwrap_or_default(), *ns);
            paths[number].parts.iter().map(part).collect::<Vec<_>>()
        };
        let part = |lock: &str, ns| (lock.to_owned(), ns);
        assert_eq!(of(0), [part("i_mmap", 700), part("osq", 300), part("", 40)]);
        // What a CPU does at the head of a mutex's queue is not told from other work.
        assert_eq!(of(1), [part("mutex", 300), part("osq", 200), part("", 90)]);
        assert_eq!([paths[0].total_ns, paths[1].total_ns], [1040, 590]);
    }

    #[test]
    fn seeds_are_summed_with_the_parts_that_were_not_kept() {
        let mut one = run().remove(0);
        one.total_ns += 7;
        let sum = CriticalPath::aggregate([&one, &one]);
        assert_eq!((sum[0].calls, sum[0].total_ns, sum[0].parts[0].1), (8, 1214, 600));
    }
}
