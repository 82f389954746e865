//! Observations of the live kernel during a run.

use crate::{BlameRow, BlameRows, Doing, Histogram, LockRow};

/// Buckets of a distribution by powers of two of ns.
pub const LOG2_BUCKETS: usize = 32;

/// Function names in the source, each with the names that may appear in a stack instead. A compiler
/// inlines a function into its only caller, or gives a copy of it a suffix. A stack that contains
/// one of the substitutes counts as containing the function.
const ALIASES: [(&str, &[&str]); 10] = [
    ("rmqueue_bulk", &["__rmqueue_pcplist", "rmqueue_pcplist"]),
    ("folio_batch_move_lru", &["lru_add_drain_cpu", "__folio_batch_add_and_move"]),
    ("zap_pte_range", &["unmap_page_range", "__zap_vma_range"]),
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

/// A kind of event to observe.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Watch {
    /// Waits for locks.
    Locks,
    /// Batches of folios that are added to LRU lists.
    Lru,
    /// Calls of functions on other CPUs.
    Calls,
    /// Phases of process exits, and work of tasks that reap the memory of other processes.
    Exits,
    /// Victims and progress of the OOM killer and its reaper.
    Oom,
    /// Delay between a reschedule request and the task switch.
    Resched,
    /// Holders of locks while other tasks wait for them: of all locks if the kernel reports their
    /// releases (`lock:contended_release`), otherwise of a zone's lock. The latter makes allocating
    /// and freeing a page three times as slow.
    Holders,
}

/// The kind of task that waited for a lock or called a function on other CPUs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Side {
    /// A process of the run; any process if there is no run.
    Ours,
    /// An exiting process.
    Exiting,
    /// A kernel thread.
    Kernel,
    /// Any other task.
    Other,
}

/// Waits for the locks of one class on one call path.
#[derive(Clone, Debug)]
pub struct Wait {
    /// The lock's class: `zone`, `lruvec`, `pte`, `mmap_lock`, ...
    pub class: &'static str,
    /// The name of the lock, if no class has it; of each one that it may be, if the path determines
    /// none.
    pub lock: Option<String>,
    /// Functions from the outermost to the one that requested the lock.
    pub path: Vec<String>,
    /// The kind of the waiting task.
    pub side: Side,
    /// Call path of the lock holder, outermost function first. Empty if holders were not observed
    /// or not found.
    pub holder: Vec<String>,
    /// Number of waits.
    pub count: u64,
    /// Total wait, in ns.
    pub total_ns: u64,
    /// The longest wait, in ns.
    pub max_ns: u64,
    /// Number of waits by powers of two of ns.
    pub log2: [u64; LOG2_BUCKETS],
}

impl Wait {
    /// Returns whether a function, or a name that substitutes for it ([`stand_ins`]), is on the
    /// path.
    pub fn passes_through(&self, function: &str) -> bool {
        passes(&self.path, function)
    }
    /// Returns the distribution of wait times.
    pub fn histogram(&self) -> Histogram {
        histogram(&self.log2)
    }
}

/// Waits that ended with a release by one call path. Waits with a known release are a sample, and
/// each counts for the others.
#[derive(Clone, Debug)]
pub struct Hold {
    /// The lock's class.
    pub class: &'static str,
    /// Functions of the waiter, from the outermost to the one that requested the lock.
    pub path: Vec<String>,
    /// The kind of the waiting task.
    pub side: Side,
    /// Functions of the task that released the lock to the waiter, outermost first. Empty if the
    /// kernel had no room for its stack.
    pub holder: Vec<String>,
    /// The waits.
    pub waits: Durations,
    /// Lengths of whole holds: those that began after a wait of the holder, with this waiter
    /// already waiting.
    pub whole: Durations,
}

/// Converts counts by powers of two into a distribution.
fn histogram(log2: &[u64; LOG2_BUCKETS]) -> Histogram {
    let bucket = |(at, &count): (usize, &u64)| (count > 0).then(|| [1 << at, 2 << at, count]);
    let buckets = log2.iter().enumerate().filter_map(bucket).collect();
    Histogram { unit: "ns".to_owned(), buckets }
}

/// Statistics of the durations of a repeated event.
#[derive(Clone, Debug, Default)]
pub struct Durations {
    /// Number of events.
    pub count: u64,
    /// Total duration, in ns.
    pub total_ns: u64,
    /// The longest duration, in ns.
    pub max_ns: u64,
    /// Number of events by powers of two of ns.
    pub log2: [u64; LOG2_BUCKETS],
}

impl Durations {
    /// Returns the mean duration, in ns.
    pub fn mean_ns(&self) -> f64 {
        self.total_ns as f64 / self.count.max(1) as f64
    }
    /// Returns the distribution of durations.
    pub fn histogram(&self) -> Histogram {
        histogram(&self.log2)
    }
}

/// Calls of one function on other CPUs (`smp_call_function`).
#[derive(Clone, Debug)]
pub struct Call {
    /// The name of the function.
    pub function: String,
    /// The kind of the calling task.
    pub side: Side,
    /// Time from the request until the function started.
    pub delivery: Durations,
    /// Run time of the function.
    pub run: Durations,
    /// Time from the request until the function returned.
    pub total: Durations,
}

/// All observations of a run.
#[derive(Clone, Debug, Default)]
pub struct Watched {
    /// Waits for locks, the largest total first.
    pub waits: Vec<Wait>,
    /// Waits with their holders, the largest total first; `None` if the kernel does not report
    /// releases of contended locks.
    pub holds: Option<Vec<Hold>>,
    /// Calls between CPUs, the most frequent function first.
    pub calls: Vec<Call>,
    /// Batches that were added to LRU lists.
    pub lru_batches: u64,
    /// Folios in the batches counted by [`Watched::lru_batches`].
    pub lru_folios: u64,
    /// Durations of unmapping at exit.
    pub exit_zap: Durations,
    /// Durations of waits for a helper at exit.
    pub exit_await_reaper: Durations,
    /// Durations of freeing page tables at exit.
    pub exit_tables: Durations,
    /// Waits of process_mrelease for the mmap_lock of its target.
    pub mrelease_await: Durations,
    /// Hold times of the mmap_lock in process_mrelease, which are its work.
    pub mrelease: Durations,
    /// Durations of the OOM reaper's work on a victim.
    pub oom_reap: Durations,
    /// Events of the OOM killer, on the whole computer.
    pub oom: OomEvents,
    /// Time from a reschedule request until the next task ran.
    pub resched: Durations,
    /// Names of tracepoints that this kernel does not have.
    pub missing: Vec<String>,
}

/// Event counts of the OOM killer and its reaper.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OomEvents {
    /// Victims chosen.
    pub marked: u64,
    /// Victims queued for the reaper, which happens if a victim has not exited after 2 s.
    pub woken: u64,
    /// Victims that the reaper started on.
    pub started: u64,
    /// Victims that the reaper finished.
    pub finished: u64,
    /// Victims skipped by the reaper because nothing was left to reap.
    pub skipped: u64,
    /// Changes of a process's oom_score_adj.
    pub adjusted: u64,
}

/// Classes of sleeping locks among those of the live kernel.
const SLEEPING: [&str; 4] = ["mutex", "percpu_rwsem", "mmap_lock", "rwsem"];

impl Watched {
    /// Returns the waits of the run's processes and of kernel threads as lock rows. If holders were
    /// observed, the site contains the holder. `acquisitions` is 0, because acquisitions without a
    /// wait are not observed.
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
            sleeps: SLEEPING.contains(&wait.class),
            path: path(wait),
            acquisitions: 0,
            contentions: wait.count,
            wait_total_ns: wait.total_ns,
            wait_after_ns: 0,
            wait_max_ns: wait.max_ns,
            queued: wait.count,
            queued_total_ns: wait.total_ns,
            queued_max_ns: wait.max_ns,
            hold_total_ns: 0,
        };
        self.waits.iter().filter(known).map(row).collect()
    }
    /// Returns the waits for spin locks, those of other programs excluded, with the call paths of
    /// the holders that were seen.
    pub fn blame_rows(&self) -> BlameRows {
        let known = |wait: &&Wait| wait.side != Side::Other && !SLEEPING.contains(&wait.class);
        let share = |wait: &Wait| BlameRow {
            class: wait.class.to_owned(),
            waiter: wait.path.clone(),
            holder: wait.holder.clone(),
            doing: if wait.holder.is_empty() { Doing::Unseen } else { Doing::Work },
            through: None,
            wait_ps: wait.total_ns * 1000,
        };
        let shares = self.waits.iter().filter(known).map(share).collect();
        BlameRows { shares, locks: vec![] }
    }
    /// Returns number, total and maximum (in ns) of the waits that `meant` selects.
    pub fn sum(&self, meant: impl Fn(&Wait) -> bool) -> (u64, u64, u64) {
        self.waits.iter().filter(|wait| meant(wait)).fold((0, 0, 0), |(count, total, max), wait| {
            (count + wait.count, total + wait.total_ns, max.max(wait.max_ns))
        })
    }
}

/// Returns the names that substitute for a function in stacks without its own name.
pub fn stand_ins(function: &str) -> impl Iterator<Item = &'static str> {
    let row = ALIASES.iter().find(|(name, _)| *name == function);
    row.map_or(&[][..], |(_, others)| others).iter().copied()
}

/// Returns whether a function, or a name that substitutes for it, is on a path.
pub fn passes(path: &[String], function: &str) -> bool {
    let on = |name: &str| path.iter().any(|step| step == name);
    on(function) || stand_ins(function).any(on)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_of_our_programs_for_spin_locks_have_their_holders_as_far_as_seen() {
        let wait = |class, side, holder: &[&str]| Wait {
            class,
            lock: None,
            path: vec!["do_exit".to_owned(), "free_pcppages_bulk".to_owned()],
            side,
            holder: holder.iter().map(|&name| name.to_owned()).collect(),
            count: 2,
            total_ns: 300,
            max_ns: 200,
            log2: [0; LOG2_BUCKETS],
        };
        let waits = vec![
            wait("zone", Side::Ours, &["kthread", "decay_pcp_high"]),
            wait("lruvec", Side::Kernel, &[]),
            wait("zone", Side::Other, &["kthread"]),
            wait("mmap_lock", Side::Ours, &[]),
        ];
        let rows = Watched { waits, ..Watched::default() }.blame_rows().shares;
        let told: Vec<_> =
            rows.iter().map(|row| (row.class.as_str(), row.doing, row.wait_ps)).collect();
        assert_eq!(told, [("zone", Doing::Work, 300_000), ("lruvec", Doing::Unseen, 300_000)]);
        assert_eq!(rows[0].holder, ["kthread", "decay_pcp_high"]);
    }
}
