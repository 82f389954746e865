//! The known problem that a report resembles.
//!
//! Every wait and every stack is an [`Item`] with a weight, and the lock class and the path decide
//! to which problem it belongs ([`Problem::of`], as on the live kernel). A path that was cut may
//! belong to two problems; then the functions that the text names decide. Without waits and stacks
//! the named locks and functions are all there is, which is said.

use std::collections::BTreeMap;

use mmscale_document::{
    CALLING, ENDING, LOCK_CLASSES, LockKind, MeasuredWait, OTHER_CLASS, Problem, TICK,
    class_of_name, is_locking, is_semaphore, is_sleeping, is_tracing, lock_of, passes,
};

use crate::frame::is_fast_path;
use crate::prose::Prose;
use crate::report::Report;
use crate::robot::Robot;
use crate::stacks::{Stack, Unit};
use crate::table::{Table, UNKNOWN_CLASS};

/// The basis of a comparison.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Basis {
    /// The waited time in tables, or the number of waits if tables have no time.
    Waits,
    /// Samples at locks, by call path.
    Samples,
    /// Counts or times of waits, by call path.
    Counts,
    /// Tasks of a kernel's log that wait.
    Tasks,
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
    /// The task and CPU, if a kernel's log names them.
    pub who: Option<String>,
    /// Whether the innermost function takes the lock without a slow path or a loop below it: a
    /// sample there may be of the lock's cache line, and shows no wait.
    pub is_fast: bool,
}

impl Item {
    /// Returns what is known of a lock of no known class: its name and the function that waits.
    pub fn named(&self) -> String {
        let class = self.class.as_str();
        let lock = self.lock.as_deref().filter(|_| [OTHER_CLASS, "rwsem"].contains(&class));
        let function = self.path.last();
        match (lock, function) {
            (Some(lock), Some(function)) => format!("{class} lock {lock} in {function}"),
            (Some(lock), None) => format!("{class} lock {lock}"),
            _ => {
                let place = function.or(self.lock.as_ref()).map(String::as_str);
                let noun = if self.class == "semaphore" { "" } else { " lock" };
                format!("{}{noun} in {}", self.class, place.unwrap_or("an unknown function"))
            }
        }
    }
}

/// A task that may hold a lock for which others wait.
#[derive(Clone, PartialEq, Debug)]
pub struct Holder {
    /// The lock's class, or its name; empty if the log does not say it.
    pub lock: String,
    /// The task and CPU.
    pub who: String,
    /// Functions from the outermost to the innermost.
    pub path: Vec<String>,
    /// Whether the log says that it holds the lock. Otherwise its stack is in a function that
    /// takes it.
    pub is_sure: bool,
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
    /// The part of all samples or counts that are at locks, if stacks have weights.
    pub of_all: Option<f64>,
    /// Number of stacks of waits that are not counted: they have no weight, or one in another unit.
    pub left_out: usize,
    /// Tasks that may hold the locks.
    pub holders: Vec<Holder>,
    /// Further profiles or tables of the file, which are not counted.
    pub others: Vec<Other>,
}

/// The waits of a profile or a table that is not counted.
#[derive(Clone, PartialEq, Debug)]
pub struct Other {
    /// The line at which it begins.
    pub line: usize,
    /// The part of all samples that waits.
    pub of_all: f64,
    /// The locks with their parts of the waits, the largest first.
    pub locks: Vec<(String, f64)>,
}

impl Other {
    fn of(line: usize, of_all: f64, items: &[Item]) -> Self {
        let all: f64 = items.iter().map(|item| item.weight).sum();
        let mut locks = BTreeMap::<String, f64>::new();
        for item in items {
            let unnamed = LOCK_CLASSES.iter().all(|row| row.class != item.class);
            let lock = if unnamed { item.named() } else { item.class.clone() };
            *locks.entry(lock).or_default() += item.weight / all;
        }
        let mut locks: Vec<(String, f64)> = locks.into_iter().collect();
        locks.sort_by(|a, b| b.1.total_cmp(&a.1));
        Self { line, of_all, locks }
    }
}

/// Returns the waits of the profiles that are not counted.
fn others(report: &Report) -> Vec<Other> {
    let of = |(line, stacks): &(usize, Vec<Stack>)| {
        let (found, _) = of_stacks(stacks, &report.prose);
        Other::of(*line, found.of_all.unwrap_or(0.0), &found.items)
    };
    report.profiles.iter().map(of).collect()
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
        if self.is_undecided() {
            return None;
        }
        let enough = match self.basis {
            Basis::Names | Basis::None => {
                best.names.len() >= LEAST_NAMES && self.basis == Basis::Names
            }
            _ => best.share >= RESEMBLES,
        };
        enough.then_some(best)
    }
    /// Returns whether sentences, which are all there is, name two problems equally.
    pub fn is_undecided(&self) -> bool {
        let names = |at: usize| self.likeness.get(at).map_or(0, |found| found.names.len());
        self.basis == Basis::Names && names(0) >= LEAST_NAMES && names(0) == names(1)
    }
    /// Returns the part of the weights that is in functions of locks and shows no wait.
    pub fn fast(&self) -> f64 {
        let fast = self.items.iter().filter(|item| item.is_fast).map(|item| item.weight);
        fast.sum::<f64>() / self.weight().max(f64::MIN_POSITIVE)
    }
    /// Returns the sum of all weights.
    pub fn weight(&self) -> f64 {
        self.items.iter().map(|item| item.weight).sum()
    }
}

/// Compares a report with the problems that have a study. The waits are those of `tables`.
pub fn resemble(report: &Report, tables: &[&Table]) -> Resemblance {
    let prose = &report.prose;
    let mut each = tables.iter().map(|table| (table.lines.0, of_table(table, prose)));
    let mut each = each.by_ref().filter(|(_, items)| !items.is_empty());
    let (_, items) = each.next().unwrap_or_default();
    let mut found = Weighed { items, ..Weighed::default() };
    // Other tables are of other measurements, so that there is no sum.
    let rest: Vec<Other> = each.map(|(line, items)| Other::of(line, 1.0, &items)).collect();
    let mut basis = Basis::Waits;
    if found.items.is_empty()
        && let Some(robot) = &report.robot
    {
        (found.items, basis) = (of_robot(robot, prose), Basis::Samples);
    }
    if found.items.is_empty() {
        (found, basis) = of_stacks(&report.stacks, prose);
    }
    let Weighed { mut items, of_all, left_out } = found;
    items.sort_by(|a, b| b.weight.total_cmp(&a.weight));
    let holders = holders(report, &items);
    // Waits for a lock whose holder is in another situation belong to that.
    for item in &mut items {
        let mut known = holders.iter().filter(|h| h.lock == item.class && !h.path.is_empty());
        let is_other = |holder: &Holder| Problem::of(&holder.lock, &holder.path).is_none();
        if known.clone().next().is_some() && known.all(is_other) {
            item.problem = None;
        }
    }
    let others = if rest.is_empty() { others(report) } else { rest };
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
    Resemblance { basis, items, likeness, of_all, left_out, holders, others }
}

/// Returns the waits of a table. A summary has a column for each kernel: the first one counts.
fn of_table(table: &Table, prose: &Prose) -> Vec<Item> {
    let most = if table.tool == "summary" { 1 } else { usize::MAX };
    let rows = || table.waits.iter().take(most);
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
            Item { class, path, lock, weight, problem, by_names, who: None, is_fast: false }
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
        // Reclaim takes this lock, too, so that its name alone decides nothing.
        Some(Problem::Churn) if path.is_empty() => (None, false),
        Some(Problem::Pcp) if short && named(&TICK) => (Some(Problem::Vmstat), true),
        None if short && ["pte", "pmd", "mmap_lock"].contains(&class) => {
            let ends = named(&ENDING) || named(&["oom_reaper", "process_mrelease"]);
            (ends.then_some(Problem::Reap), ends)
        }
        found => (found, false),
    }
}

/// Items, and how they were weighed.
#[derive(Default)]
struct Weighed {
    items: Vec<Item>,
    of_all: Option<f64>,
    left_out: usize,
}

/// Returns the items of a robot's report: those of the side with more waits.
fn of_robot(robot: &Robot, prose: &Prose) -> Vec<Item> {
    let sum = |of: fn(&crate::robot::PathChange) -> f64| robot.paths.iter().map(of).sum::<f64>();
    let is_after = sum(|path| path.after) >= sum(|path| path.before);
    let stack = |path: &crate::robot::PathChange| Stack {
        path: path.path.clone(),
        weight: Some(if is_after { path.after } else { path.before } / 100.0),
        unit: Unit::Share,
        line: path.line,
        who: None,
    };
    let items = robot.paths.iter().filter_map(|path| {
        let item = of_stack(&stack(path), prose)?;
        Some(Item { is_fast: path.is_fast, ..item })
    });
    items.filter(|item| item.weight > 0.0).collect()
}

/// Returns the lock of a robot's path: its class, or the function that takes it. `None` if the path
/// ends at no lock and waits for no other CPU.
pub fn lock_of_robot(row: &crate::robot::PathChange) -> Option<String> {
    let stack = Stack {
        path: row.path.clone(),
        weight: Some(1.0),
        unit: Unit::Share,
        line: row.line,
        who: None,
    };
    let waits = stack.is_wait();
    let item = of_stack(&stack, &Prose::default())?;
    match item.class.as_str() {
        CALLS => Some("waits for other CPUs".to_owned()),
        _ if !waits => None,
        OTHER_CLASS | "rwsem" | "mutex" | "semaphore" | "percpu_rwsem" => {
            let lock = item.lock.map_or("lock".to_owned(), |lock| format!("lock {lock}"));
            Some(item.path.last().map_or(lock.clone(), |taker| format!("{lock} in {taker}")))
        }
        class => Some(class.to_owned()),
    }
}

/// Returns how well weights of a unit say how long tasks waited.
fn fitness(unit: &Unit) -> u8 {
    let has = |name: &str, parts: &[&str]| parts.iter().any(|part| name.contains(part));
    match unit {
        Unit::Map(name) if has(name, &["hold", "held"]) => 1,
        Unit::Map(name) if has(name, &["wait", "ns", "us", "time", "lat"]) => 5,
        Unit::Share => 4,
        Unit::Map(_) | Unit::Event(_) => 3,
        Unit::Folded | Unit::Part => 2,
        Unit::Task | Unit::None => 0,
    }
}

/// Returns the items of stacks: of those with weights of one unit, or else of all.
fn of_stacks(stacks: &[Stack], prose: &Prose) -> (Weighed, Basis) {
    let mut units: BTreeMap<&Unit, (Vec<Item>, f64)> = BTreeMap::new();
    for stack in stacks {
        if let Some(weight) = stack.weight {
            let entry = units.entry(&stack.unit).or_default();
            entry.0.extend(of_stack(stack, prose));
            entry.1 += weight;
        }
    }
    let waits = stacks.iter().filter(|stack| stack.is_wait()).count();
    let best = units.into_iter().filter(|(_, (items, _))| !items.is_empty());
    let best = best.max_by_key(|(unit, _)| (fitness(unit), std::cmp::Reverse((*unit).clone())));
    if let Some((unit, (items, all))) = best {
        let counted = stacks.iter().filter(|stack| stack.unit == *unit && stack.is_wait()).count();
        let sum: f64 = items.iter().map(|item| item.weight).sum();
        let of_all = match unit {
            Unit::Share => Some(sum),
            Unit::Part => None,
            // Most maps have waits only.
            Unit::Map(_) => (sum < all * (1.0 - 1e-9)).then_some(sum / all),
            _ => Some(sum / all),
        };
        let basis = if matches!(unit, Unit::Map(_)) { Basis::Counts } else { Basis::Samples };
        return (Weighed { items, of_all, left_out: waits.saturating_sub(counted) }, basis);
    }
    let tasks: Vec<Item> = stacks
        .iter()
        .filter(|stack| stack.unit == Unit::Task)
        .filter_map(|stack| of_stack(stack, prose))
        .collect();
    if !tasks.is_empty() {
        return (Weighed { items: tasks, ..Weighed::default() }, Basis::Tasks);
    }
    // A sentence repeats a part of a stack.
    let part = |part: &Stack, whole: &Stack| {
        let mut steps = whole.path.iter();
        part.path.len() < whole.path.len()
            && part.path.iter().all(|step| steps.any(|other| other == step))
    };
    let own = || stacks.iter().filter(|stack| stack.weight.is_none()).take(MAX_STACKS);
    let whole = own().filter(|one| !own().any(|two| part(one, two)));
    let items: Vec<Item> = whole.filter_map(|stack| of_stack(stack, prose)).collect();
    let basis = if items.is_empty() { Basis::Names } else { Basis::Paths };
    (Weighed { items, ..Weighed::default() }, basis)
}

/// Returns the item of a stack; `None` if it is not one of a wait.
fn of_stack(stack: &Stack, prose: &Prose) -> Option<Item> {
    // lockdep records where a lock was taken, and does not wait.
    let is_sample = stack.weight.is_some();
    if !is_sample && stack.path.last().is_some_and(|name| name.contains("lock_acquire")) {
        return None;
    }
    let weight = stack.weight.unwrap_or(1.0);
    let path: Vec<String> = match stack.wait_frames() {
        Some(frames) => {
            let mut path = stack.path[..stack.path.len() - frames].to_vec();
            // Logs of some kernels have inlined functions.
            while path.len() > 1 && path.pop_if(|name| is_inlined(name)).is_some() {}
            // The entry of a system call takes no lock: the functions after it are missing.
            while path.pop_if(|name| is_entry(name)).is_some() {}
            path
        }
        None => {
            let inner = stack.path.iter().rev().filter(|name| !is_tracing(name));
            let outer = inner.skip_while(|name| is_locking(name) || is_sleeping(name));
            let mut path: Vec<String> = outer.cloned().collect();
            path.reverse();
            path
        }
    };
    let is_wait = stack.is_wait();
    let is_fast = is_wait && is_sample && is_fast(stack);
    let item = |class: &str, path, lock, problem, by_names| {
        let (class, who) = (class.to_owned(), stack.who.clone());
        Some(Item { class, path, lock, weight, problem, by_names, who, is_fast })
    };
    // Samples and tasks are where they are; a stack in a mail may end in a called function.
    let is_exact = stack.weight.is_some() || stack.unit == Unit::Task;
    let calls = match is_exact {
        true => path.last().is_some_and(|name| CALLING.contains(&name.as_str())),
        false => CALLING.iter().any(|function| passes(&stack.path, function)),
    };
    if calls && !is_wait {
        return item(CALLS, path, None, Some(Problem::Ipi), false);
    }
    let takes_lock = |name: &str| {
        (name.ends_with("_lock") || name.contains("_lock_") || name.contains("_relock_"))
            && !name.contains("unlock")
            // Readers of RCU wait for nothing.
            && !["rcu_read_lock", "rcu_lock_"].iter().any(|part| name.contains(part))
    };
    // A path of a sentence that has only functions of a lock was cut off.
    if is_wait && path.is_empty() && stack.unit == Unit::None {
        return None;
    }
    let kind = if is_wait { kind_of(stack) } else { LockKind::Spin };
    let outer = stack.path.get(stack.path.len() - stack.wait_frames().unwrap_or(0));
    let (class, lock) = lock_of(&path, kind, outer.map(String::as_str).filter(|_| is_wait));
    // Interrupts take the lock of a page cache, so that no task takes it with them enabled. Its
    // functions do so with the lock of the inode.
    let enabled = is_wait && outer.is_some_and(|name| name == "_raw_spin_lock");
    let class = if enabled && class == "i_pages" { OTHER_CLASS } else { class };
    if !is_wait {
        let inside = path.last().is_some_and(|name| takes_lock(name));
        let is_share = matches!(stack.unit, Unit::Share | Unit::Part);
        let is_list = is_share && stack.path.len() == 1;
        let accepted = match stack.unit {
            Unit::None => inside || Problem::of(class, &path).is_some(),
            Unit::Share | Unit::Part => inside || is_list && Problem::of(class, &path).is_some(),
            _ => false,
        };
        if stack.is_sleep() || !accepted {
            return None;
        }
    }
    let (problem, by_names) = place(class, &path, prose);
    item(class, path, lock, problem, by_names)
}

/// Returns whether a sample of a CPU is in a function that takes a lock for which tasks sleep, and
/// in none below it that spins or sleeps. Stacks of other events are waits where those events are.
fn is_fast(stack: &Stack) -> bool {
    let Some(name) = stack.path.last() else { return false };
    let event = match &stack.unit {
        Unit::Event(event) => event.contains("cycles") || event.contains("clock"),
        Unit::Share | Unit::Part | Unit::Folded => true,
        Unit::Map(_) | Unit::Task | Unit::None => false,
    };
    event && is_fast_path(name)
}

/// Returns whether a function takes a lock for its caller, and is inlined into it.
fn is_inlined(name: &str) -> bool {
    const LOCKS: [&str; 4] = ["spin_lock", "raw_spin_lock", "read_lock", "write_lock"];
    const SUFFIXES: [&str; 5] = ["", "_bh", "_irq", "_irqsave", "_nested"];
    let is = |lock: &&str| name.strip_prefix(*lock).is_some_and(|end| SUFFIXES.contains(&end));
    LOCKS.iter().any(is)
}

/// Returns whether the kernel begins a system call or a thread with a function.
fn is_entry(name: &str) -> bool {
    const ENTRIES: [&str; 6] = [
        "entry_SYSCALL",
        "do_syscall_",
        "x64_sys_call",
        "el0_svc",
        "el0t_64_sync",
        "ret_from_fork",
    ];
    ENTRIES.iter().any(|entry| name.starts_with(entry))
}

/// Returns the kind of lock by the functions that implement it.
fn kind_of(stack: &Stack) -> LockKind {
    let inner = &stack.path[stack.path.len() - stack.wait_frames().unwrap_or(0)..];
    let any =
        |parts: &[&str]| inner.iter().any(|name| parts.iter().any(|part| name.contains(part)));
    match () {
        () if any(&["percpu_down", "percpu_rwsem"]) => LockKind::PercpuRwsem,
        () if any(&["rwsem_", "down_read", "down_write", "up_read", "up_write"]) => LockKind::Rwsem,
        () if inner.iter().any(|name| is_semaphore(name)) => LockKind::Semaphore,
        () if any(&["mutex"]) => LockKind::Mutex,
        () if any(&["_read_lock", "_write_lock"]) => LockKind::Rwlock,
        () if any(&["spin_lock", "spin_wait"]) => LockKind::Spin,
        () => LockKind::Other,
    }
}

/// Returns the tasks that may hold the locks for which others wait.
fn holders(report: &Report, items: &[Item]) -> Vec<Holder> {
    let mut holders: Vec<Holder> = vec![];
    for (name, who) in &report.holders {
        let waits =
            |item: &&Item| item.who.as_deref().is_some_and(|task| task.contains(who.as_str()));
        let lock = class_of_name(name).unwrap_or(name.as_str()).to_owned();
        // The lock for which a task waits is among those that the log calls held.
        if items.iter().filter(waits).any(|item| item.class == lock) {
            continue;
        }
        let wanted = items.iter().any(|item| item.class == lock) || lock.is_empty();
        if wanted && !holders.iter().any(|h| h.who == *who && h.lock == lock) {
            holders.push(Holder { lock, who: who.clone(), path: vec![], is_sure: true });
        }
    }
    let classes: std::collections::BTreeSet<&str> = items
        .iter()
        .map(|item| item.class.as_str())
        .filter(|class| *class != OTHER_CLASS)
        .collect();
    for stack in report.stacks.iter().filter(|stack| stack.unit == Unit::Task && !stack.is_wait()) {
        for class in &classes {
            let row = LOCK_CLASSES.iter().find(|row| row.class == *class);
            let takes = row.is_some_and(|row| {
                stack.path.iter().any(|step| row.functions.contains(&step.as_str()))
            });
            if let (true, false, Some(who)) = (takes, stack.is_sleep(), &stack.who) {
                let (lock, who, path) = ((*class).to_owned(), who.clone(), stack.path.clone());
                holders.push(Holder { lock, who, path, is_sure: false });
            }
        }
    }
    holders
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
        // The tick drains page caches, so that their names belong to it, too.
        Problem::Pcp if found.len() < tick.len() => found.clear(),
        Problem::Pcp => found.extend(of_class("zone")),
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
