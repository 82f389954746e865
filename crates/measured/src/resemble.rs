//! The known problem that a report resembles.
//!
//! Every wait and every stack is an [`Item`] with a weight, and the lock class and the path decide
//! to which problem it belongs ([`Problem::of`], as on the live kernel). A path that was cut may
//! belong to two problems; then the functions that the text names decide. Without waits and stacks
//! the named locks and functions are all there is, which is said.

use mmscale_document::{
    CALLING, ENDING, LockKind, MeasuredWait, Problem, TICK, class_of, is_locking, passes, path_of,
};

use crate::prose::Prose;
use crate::report::Report;
use crate::stacks::Stack;
use crate::table::{Table, UNKNOWN_CLASS};

/// The basis of a comparison.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Basis {
    /// The waited time in tables, or the number of waits if tables have no time.
    Waits,
    /// Samples at locks, by call path.
    Samples,
    /// Call paths without shares.
    Paths,
    /// Names in sentences only.
    Names,
    /// Nothing.
    None,
}

/// A wait or a stack, with its problem.
#[derive(Clone, PartialEq, Debug)]
pub struct Item {
    /// The lock's class; [`CALLS`] for a wait for other CPUs.
    pub class: String,
    /// Functions from the outermost to the one that requested the lock.
    pub path: Vec<String>,
    /// The name of the lock, if it is known.
    pub lock: Option<String>,
    /// The waited time, or another weight that all items share.
    pub weight: f64,
    /// The problem to which it belongs.
    pub problem: Option<Problem>,
    /// Whether the path is too short to decide and the sentences decided.
    pub by_names: bool,
}

/// How much of a report belongs to a problem.
#[derive(Clone, PartialEq, Debug)]
pub struct Likeness {
    /// The problem.
    pub problem: Problem,
    /// Its share of all weights; 0 if only names are known.
    pub share: f64,
    /// Names in the sentences that belong to the problem.
    pub names: Vec<String>,
}

/// The result of a comparison.
#[derive(Clone, PartialEq, Debug)]
pub struct Resemblance {
    /// The basis.
    pub basis: Basis,
    /// The waits or stacks, the heaviest first.
    pub items: Vec<Item>,
    /// All problems with a share or with names, the most similar first.
    pub likeness: Vec<Likeness>,
}

/// The class of waits for other CPUs, which are no waits for a lock.
pub const CALLS: &str = "calls";

/// Share of a report above which it resembles a problem.
const RESEMBLES: f64 = 0.25;

/// Stacks without shares that are looked at.
const MAX_STACKS: usize = 500;

/// Number of names below which sentences are no evidence.
const LEAST_NAMES: usize = 2;

impl Resemblance {
    /// Returns the problem that the report resembles. `None` if it resembles none.
    pub fn best(&self) -> Option<&Likeness> {
        let best = self.likeness.first()?;
        let enough = match self.basis {
            Basis::Waits | Basis::Samples | Basis::Paths => best.share >= RESEMBLES,
            Basis::Names => best.names.len() >= LEAST_NAMES,
            Basis::None => false,
        };
        enough.then_some(best)
    }
    /// Returns the sum of all weights.
    pub fn weight(&self) -> f64 {
        self.items.iter().map(|item| item.weight).sum()
    }
}

/// Compares a report with the problems that have a study. The waits are those of `tables`.
pub fn resemble(report: &Report, tables: &[&Table]) -> Resemblance {
    let prose = &report.prose;
    let mut items = of_tables(tables, prose);
    let mut basis = Basis::Waits;
    if items.is_empty() {
        (items, basis) = of_stacks(&report.stacks, prose);
    }
    items.sort_by(|a, b| b.weight.total_cmp(&a.weight));
    let all: f64 = items.iter().map(|item| item.weight).sum();
    let mut likeness: Vec<Likeness> = Problem::ALL
        .into_iter()
        .map(|problem| {
            let own = items.iter().filter(|item| item.problem == Some(problem));
            let share = own.map(|item| item.weight).sum::<f64>() / all.max(f64::MIN_POSITIVE);
            Likeness { problem, share, names: names(problem, report) }
        })
        .filter(|found| found.share > 0.0 || !found.names.is_empty())
        .collect();
    likeness.sort_by(|a, b| {
        b.share.total_cmp(&a.share).then_with(|| b.names.len().cmp(&a.names.len()))
    });
    if basis == Basis::Names && likeness.is_empty() {
        basis = Basis::None;
    }
    Resemblance { basis, items, likeness }
}

fn of_tables(tables: &[&Table], prose: &Prose) -> Vec<Item> {
    let rows = || tables.iter().flat_map(|table| &table.waits);
    let timed = rows().any(|wait| wait.wait_total_ns.is_some_and(|ns| ns > 0));
    let weight = |wait: &MeasuredWait| {
        let n = if timed { wait.wait_total_ns } else { wait.contentions };
        n.unwrap_or(0) as f64
    };
    let mut items = Vec::new();
    for wait in rows().filter(|wait| wait.class != UNKNOWN_CLASS && weight(wait) > 0.0) {
        let item = |path: Vec<String>, weight: f64| {
            let (problem, by_names) = place(&wait.class, &path, prose);
            let (class, lock) = (wait.class.clone(), wait.lock.clone());
            Item { class, path, lock, weight, problem, by_names }
        };
        // A sum of any counts, whatever a report has, is a finite number.
        let counts: f64 = wait.waiters.iter().map(|site| site.contentions as f64).sum();
        if wait.path.is_empty() && counts > 0.0 {
            // Time by lock, counts by function: the time is divided as the counts are.
            for site in &wait.waiters {
                let part = weight(wait) * site.contentions as f64 / counts;
                items.push(item(vec![site.function.clone()], part));
            }
        } else {
            items.push(item(wait.path.clone(), weight(wait)));
        }
    }
    items
}

/// Returns the problem of a wait, and whether the names in sentences decided.
fn place(class: &str, path: &[String], prose: &Prose) -> (Option<Problem>, bool) {
    let named = |functions: &[&str]| functions.iter().any(|name| prose.names_function(name));
    let short = path.len() <= 1;
    match Problem::of(class, path) {
        Some(Problem::Pcp) if short && named(&TICK) => (Some(Problem::Vmstat), true),
        None if short && ["pte", "pmd", "mmap_lock"].contains(&class) => {
            let ends = named(&ENDING) || named(&["oom_reaper", "process_mrelease"]);
            (ends.then_some(Problem::Reap), ends)
        }
        found => (found, false),
    }
}

/// Returns the items of stacks: of those with shares, or else of all.
fn of_stacks(stacks: &[Stack], prose: &Prose) -> (Vec<Item>, Basis) {
    let of = |stacks: &[&Stack]| -> Vec<Item> {
        stacks.iter().filter_map(|stack| of_stack(stack, prose)).collect()
    };
    let sampled: Vec<&Stack> = stacks.iter().filter(|stack| stack.share.is_some()).collect();
    let items = of(&sampled);
    if !items.is_empty() {
        return (items, Basis::Samples);
    }
    // A sentence repeats a part of a stack.
    let part = |part: &Stack, whole: &Stack| {
        let mut steps = whole.path.iter();
        part.path.len() < whole.path.len()
            && part.path.iter().all(|step| steps.any(|other| other == step))
    };
    let whole = stacks.iter().take(MAX_STACKS);
    let whole = whole.filter(|one| !stacks.iter().take(MAX_STACKS).any(|two| part(one, two)));
    let items = of(&whole.collect::<Vec<_>>());
    let basis = if items.is_empty() { Basis::Names } else { Basis::Paths };
    (items, basis)
}

/// Returns the item of a stack; `None` if it is not one of a wait.
fn of_stack(stack: &Stack, prose: &Prose) -> Option<Item> {
    let weight = stack.share.unwrap_or(1.0);
    let inner = stack.path.iter().rev();
    let path = path_of(inner.clone().map(String::as_str));
    let calls = CALLING.iter().any(|function| passes(&stack.path, function));
    let takes_lock = |name: &String| {
        is_locking(name)
            || (name.ends_with("_lock") || name.contains("_lock_") || name.contains("_relock_"))
                && !name.contains("unlock")
    };
    if calls {
        let (class, problem) = (CALLS.to_owned(), Some(Problem::Ipi));
        return Some(Item { class, path, lock: None, weight, problem, by_names: false });
    }
    let kind = kind_of(&stack.path);
    let class = class_of(&path, kind);
    // A chain in a sentence may end before the function that takes the lock, and so does a list of
    // functions.
    let is_part = stack.share.is_none() || stack.path.len() == 1;
    let known = Problem::of(class, &path).is_some() && is_part;
    if !known && !inner.take(2).any(takes_lock) {
        return None;
    }
    let (problem, by_names) = place(class, &path, prose);
    Some(Item { class: class.to_owned(), path, lock: None, weight, problem, by_names })
}

/// Returns the kind of lock by the functions that implement it.
fn kind_of(path: &[String]) -> LockKind {
    let any = |parts: &[&str]| path.iter().any(|name| parts.iter().any(|part| name.contains(part)));
    match () {
        () if any(&["rwsem_", "down_read", "down_write"]) => LockKind::Rwsem,
        () if any(&["mutex_lock"]) => LockKind::Mutex,
        () => LockKind::Spin,
    }
}

/// Words in lower case that belong to a problem besides its functions.
const WORDS: [(Problem, &[&str]); 5] = [
    (Problem::Vmstat, &["vmstat_work", "vmstat_shepherd", "stat_interval"]),
    (Problem::Churn, &["lruvec", "map_populate", "__mm_populate", "populate_vma_page_range"]),
    (Problem::Pcp, &["pcp", "pcps", "pcplists", "pageblocks", "jemalloc", "tcmalloc", "purger"]),
    (Problem::Reap, &["oom_reaper", "process_mrelease", "oom_reap_task", "exit_mmap"]),
    (Problem::Ipi, &["ipi", "ipis", "smp_call", "csd_lock", "shootdown", "shootdowns"]),
];

/// Returns the names in the sentences that belong to a problem. The page caches are a problem of
/// their own only where the tick is not named, as with [`Problem::of`].
fn names(problem: Problem, report: &Report) -> Vec<String> {
    let prose = &report.prose;
    let named = |functions: &[&'static str]| -> Vec<String> {
        let named = functions.iter().filter(|name| prose.names_function(name));
        named.map(|name| (*name).to_owned()).collect()
    };
    let of_class = |class: &str| -> Vec<String> {
        prose.classes.get(class).map_or(Vec::new(), |words| words.iter().cloned().collect())
    };
    let words = WORDS.iter().find(|(of, _)| *of == problem).map_or(&[][..], |(_, words)| words);
    let mut found: Vec<String> = prose
        .names
        .keys()
        .filter(|name| words.contains(&name.to_lowercase().as_str()))
        .cloned()
        .collect();
    let tick = named(&TICK);
    match problem {
        Problem::Vmstat if !tick.is_empty() => {
            found.extend(tick);
            found.extend(of_class("zone"));
        }
        Problem::Pcp if tick.is_empty() => found.extend(of_class("zone")),
        Problem::Pcp => found.clear(),
        Problem::Churn => found.extend(of_class("lruvec")),
        Problem::Reap if !found.is_empty() => {
            found.extend(of_class("pte"));
            found.extend(named(&ENDING));
        }
        Problem::Ipi => found.extend(named(&CALLING)),
        _ => {}
    }
    found.sort_by_key(|name| name.to_lowercase());
    // A plural is no other name.
    found.dedup_by_key(|name| name.to_lowercase().trim_end_matches('s').to_owned());
    found
}
