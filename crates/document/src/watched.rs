//! What the live kernel was seen doing while something ran.

use crate::{Histogram, LockRow};

/// Buckets of a distribution by powers of two of ns.
pub const LOG2_BUCKETS: usize = 32;

/// Compilers leave other names behind than sources have: a function is inlined into its only
/// caller, or a copy of it has a suffix. Each row: the name that sources have, then names that
/// stand for it where it has none of its own. A stack that holds one of those holds the function.
const ALIASES: [(&str, &[&str]); 10] = [
    ("rmqueue_bulk", &["__rmqueue_pcplist", "rmqueue_pcplist"]),
    ("folio_batch_move_lru", &["lru_add_drain_cpu", "__folio_batch_add_and_move"]),
    ("zap_pte_range", &["unmap_page_range"]),
    ("free_pcppages_bulk", &["free_pcp_pages_bulk"]),
    ("csd_lock_wait", &["smp_call_function_many_cond", "smp_call_function_single"]),
    ("__page_cache_release", &["page_cache_release"]),
    ("decay_pcp_high", &["refresh_cpu_vm_stats"]),
    ("exit_mmap", &["__mmput", "mmput"]),
    (
        "__do_sys_process_mrelease",
        &[
            "__se_sys_process_mrelease",
            "__x64_sys_process_mrelease",
            "__arm64_sys_process_mrelease",
        ],
    ),
    ("oom_reap_task_mm", &["oom_reaper"]),
];

/// Something to look at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Watch {
    /// Waits for locks.
    Locks,
    /// Batches of folios that are added to LRU lists.
    Lru,
    /// Calls of functions on other CPUs.
    Calls,
    /// Phases of exits, and of who empties others' memory.
    Exits,
    /// What the out-of-memory killer and its reaper do.
    Oom,
    /// How long a CPU goes on with a task when it is to run another.
    Resched,
    /// Who holds a zone's lock while others wait. A page of memory takes three times as long.
    Holders,
}

/// Where a wait or a call came from.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Side {
    /// A process of the run; any process where there is no run.
    Ours,
    /// One that ends.
    Exiting,
    /// A thread of the kernel.
    Kernel,
    /// Any other task.
    Other,
}

/// Waits for the locks of one class on one call path.
#[derive(Clone, Debug)]
pub struct Wait {
    /// The class: `zone`, `lruvec`, `pte`, `mmap_lock`, ...
    pub class: &'static str,
    /// Functions from the outermost to the one that wanted the lock.
    pub path: Vec<String>,
    /// Who waited.
    pub side: Side,
    /// The functions that held it, outermost first, where holders were looked at and found.
    pub holder: Vec<String>,
    /// How often.
    pub count: u64,
    /// The sum, in ns.
    pub total_ns: u64,
    /// The longest, in ns.
    pub max_ns: u64,
    /// Counts by powers of two of ns.
    pub log2: [u64; LOG2_BUCKETS],
}

impl Wait {
    /// Whether a function is on its path, under its own name or by one that stands for it.
    pub fn passes_through(&self, function: &str) -> bool {
        passes(&self.path, function)
    }
    /// How long the waits were.
    pub fn histogram(&self) -> Histogram {
        histogram(&self.log2)
    }
}

/// A distribution by powers of two.
fn histogram(log2: &[u64; LOG2_BUCKETS]) -> Histogram {
    let bucket = |(at, &count): (usize, &u64)| (count > 0).then(|| [1 << at, 2 << at, count]);
    let buckets = log2.iter().enumerate().filter_map(bucket).collect();
    Histogram { unit: "ns".to_owned(), buckets }
}

/// How long something took that happened often.
#[derive(Clone, Debug, Default)]
pub struct Durations {
    /// How often.
    pub count: u64,
    /// The sum, in ns.
    pub total_ns: u64,
    /// The longest, in ns.
    pub max_ns: u64,
    /// Counts by powers of two of ns.
    pub log2: [u64; LOG2_BUCKETS],
}

impl Durations {
    /// The mean, in ns.
    pub fn mean_ns(&self) -> f64 {
        self.total_ns as f64 / self.count.max(1) as f64
    }
    /// How long they were.
    pub fn histogram(&self) -> Histogram {
        histogram(&self.log2)
    }
}

/// Calls of one function on other CPUs.
#[derive(Clone, Debug)]
pub struct Call {
    /// The function.
    pub function: String,
    /// Who asked for it.
    pub side: Side,
    /// From the wish until the function began.
    pub delivery: Durations,
    /// How long it ran.
    pub run: Durations,
    /// Both.
    pub total: Durations,
}

/// What was seen.
#[derive(Clone, Debug, Default)]
pub struct Watched {
    /// Waits for locks, the longest sums first.
    pub waits: Vec<Wait>,
    /// Calls between CPUs, the most frequent first.
    pub calls: Vec<Call>,
    /// Batches that were added to LRU lists, and the folios in them.
    pub lru_batches: u64,
    /// See [`Watched::lru_batches`].
    pub lru_folios: u64,
    /// Unmapping at exit; waiting for a helper; freeing page tables.
    pub exit_zap: Durations,
    /// See [`Watched::exit_zap`].
    pub exit_await_reaper: Durations,
    /// See [`Watched::exit_zap`].
    pub exit_tables: Durations,
    /// Waits of process_mrelease for the lock of an address space, and how long it held it: its
    /// work.
    pub mrelease_await: Durations,
    /// See [`Watched::mrelease_await`].
    pub mrelease: Durations,
    /// How long the reaper of the out-of-memory killer worked on a victim.
    pub oom_reap: Durations,
    /// What the out-of-memory killer did, on the whole computer.
    pub oom: OomEvents,
    /// From the wish for another task until it ran.
    pub resched: Durations,
    /// Tracepoints that this kernel does not have.
    pub missing: Vec<String>,
}

/// How often the out-of-memory killer and its reaper did what.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OomEvents {
    /// Victims were chosen.
    pub marked: u64,
    /// The reaper was told of a victim that had not ended for 2 s.
    pub woken: u64,
    /// It began with one.
    pub started: u64,
    /// It was done with one.
    pub finished: u64,
    /// There was nothing left to do for it.
    pub skipped: u64,
    /// Somebody's oom_score_adj was changed.
    pub adjusted: u64,
}

impl Watched {
    /// Waits of the run's processes and of the kernel's threads, as rows of a record; the site says
    /// who held the lock, where that was looked at. How often a
    /// lock was taken without waiting is not known: acquisitions are 0.
    pub fn lock_rows(&self) -> Vec<LockRow> {
        let known = |wait: &&Wait| wait.side != Side::Other;
        let path = |wait: &Wait| {
            let held = wait.holder.last().map(|function| format!("(held by {function})"));
            let mut path = wait.path.clone();
            if let (Some(site), Some(held)) = (path.last_mut(), held) {
                *site = format!("{site} {held}");
            }
            path
        };
        let row = |wait: &Wait| LockRow {
            class: wait.class.to_owned(),
            path: path(wait),
            acquisitions: 0,
            contentions: wait.count,
            wait_total_ns: wait.total_ns,
            wait_max_ns: wait.max_ns,
            hold_total_ns: 0,
        };
        self.waits.iter().filter(known).map(row).collect()
    }
    /// Count, sum and longest of some waits.
    pub fn sum(&self, meant: impl Fn(&Wait) -> bool) -> (u64, u64, u64) {
        self.waits.iter().filter(|wait| meant(wait)).fold((0, 0, 0), |(count, total, max), wait| {
            (count + wait.count, total + wait.total_ns, max.max(wait.max_ns))
        })
    }
}

/// The names that stand for a function where its own is on no stack.
pub fn stand_ins(function: &str) -> impl Iterator<Item = &'static str> {
    let row = ALIASES.iter().find(|(name, _)| *name == function);
    row.map_or(&[][..], |(_, others)| others).iter().copied()
}

/// Whether a function is on a path, under its own name or by one that stands for it.
pub fn passes(path: &[String], function: &str) -> bool {
    let on = |name: &str| path.iter().any(|step| step == name);
    on(function) || stand_ins(function).any(on)
}
