//! What the live kernel tells while something runs: waits for locks by class and call path, batches
//! of the LRU lists, calls between CPUs, phases of exits, delays of task switches.
//!
//! Everything is added up in the kernel, so that what is measured is disturbed little; how little
//! `--ab` shows with the parameter `watch`.

mod class;
mod error;
mod object;
mod stretch;
mod symbols;

use crate::system::clock_ns;
use mmscale_document::{Histogram, LockRow};
use object::{Calls, Config, Path, Programs, Sums};
use std::collections::BTreeMap;

pub use error::WatchError;
pub use symbols::Symbols;

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

/// How much is looked at of what happens very often.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Sampling {
    /// All of it.
    #[default]
    All,
    /// Of waits for a spin lock below 10 us one in eight, and one in 64 after 512 for that lock on
    /// a CPU, which counts for all of them; of folios that are added to lists those of 10 ms in
    /// 120. Looking at each would take a tenth of the time of small operations.
    Sparse,
}

impl Sampling {
    fn one_in(self) -> u32 {
        match self {
            Self::All => 1,
            Self::Sparse => 8,
        }
    }
}

/// What is looked at.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// All of it.
    pub watches: Vec<Watch>,
    /// How closely. Holders are always looked at closely.
    pub sampling: Sampling,
}

impl Plan {
    /// How closely, holders considered.
    fn sampling(&self) -> Sampling {
        if self.watches.contains(&Watch::Holders) { Sampling::All } else { self.sampling }
    }
}

/// Who waited.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Side {
    /// A process of the run; any process where there is no run.
    Ours,
    /// One that ends.
    Exiting,
    /// A thread of the kernel.
    Kernel,
    /// Anybody else.
    Other,
}

impl Side {
    fn of(bits: u32) -> Self {
        match bits {
            2 => Self::Kernel,
            bits if bits & 5 == 5 => Self::Exiting,
            bits if bits & 1 == 1 => Self::Ours,
            _ => Self::Other,
        }
    }
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
    /// By powers of two of ns.
    log2: [u64; object::BUCKETS],
}

impl Wait {
    /// Whether a function is on its path, under its own name or by one that stands for it.
    pub fn passes_through(&self, function: &str) -> bool {
        symbols::passes(&self.path, function)
    }
    /// How long the waits were.
    pub fn histogram(&self) -> Histogram {
        histogram(&self.log2)
    }
}

/// A distribution by powers of two.
fn histogram(log2: &[u64; object::BUCKETS]) -> Histogram {
    let bucket = |(at, &count): (usize, &u64)| (count > 0).then(|| [1 << at, 2 << at, count]);
    let buckets = log2.iter().enumerate().filter_map(bucket).collect();
    Histogram { unit: "ns".to_owned(), buckets }
}

/// Times of something that happened often.
#[derive(Clone, Debug, Default)]
pub struct Times {
    /// How often.
    pub count: u64,
    /// The sum, in ns.
    pub total_ns: u64,
    /// The longest, in ns.
    pub max_ns: u64,
    log2: [u64; object::BUCKETS],
}

impl Times {
    fn of(sums: &Sums) -> Self {
        let Sums { count, total_ns, max_ns, log2 } = *sums;
        Self { count, total_ns, max_ns, log2 }
    }
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
    pub delivery: Times,
    /// How long it ran.
    pub run: Times,
    /// Both.
    pub total: Times,
}

/// What was seen.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// Waits for locks, the longest sums first.
    pub waits: Vec<Wait>,
    /// Calls between CPUs, the most frequent first.
    pub calls: Vec<Call>,
    /// Batches that were added to LRU lists, and the folios in them.
    pub lru_batches: u64,
    /// See [`Seen::lru_batches`].
    pub lru_folios: u64,
    /// Unmapping at exit; waiting for somebody who helps; freeing page tables.
    pub exit_zap: Times,
    /// See [`Seen::exit_zap`].
    pub exit_await_reaper: Times,
    /// See [`Seen::exit_zap`].
    pub exit_tables: Times,
    /// Waits of process_mrelease for the lock of an address space, and how long it held it: its
    /// work.
    pub mrelease_await: Times,
    /// See [`Seen::mrelease_await`].
    pub mrelease: Times,
    /// How long the reaper of the out-of-memory killer worked on a victim.
    pub oom_reap: Times,
    /// What the out-of-memory killer did, on the whole computer.
    pub oom: OomEvents,
    /// From the wish for another task until it ran.
    pub resched: Times,
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

impl Seen {
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

/// Longer than this between two insertions on one CPU is another batch: within one, they follow one
/// another with interrupts off.
const BATCH_GAP_NS: u32 = 1_500;
/// More CPUs than this have no holders.
const HOLDERS_MAX: u32 = 128;

/// The kernel, watched.
pub struct Watching {
    programs: Programs,
    symbols: Symbols,
    holders: u32,
    one_in: u32,
}

impl std::fmt::Debug for Watching {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Watching")
    }
}

impl Watching {
    /// Begins to watch; nothing counts until [`Watching::count`].
    pub fn begin(plan: &Plan) -> Result<Self, WatchError> {
        let programs = Programs::load(plan)?;
        let holders = if plan.watches.contains(&Watch::Holders) { HOLDERS_MAX } else { 0 };
        let one_in = plan.sampling().one_in();
        Ok(Self { programs, symbols: Symbols::of_kernel(), holders, one_in })
    }
    /// What happens in `window`, in ns of `CLOCK_MONOTONIC`, counts; the processes of `session` are
    /// ours, or all are.
    pub fn count(&mut self, window: (u64, u64), session: Option<i32>) -> Result<(), WatchError> {
        self.programs.configure(Config {
            from_ns: window.0,
            until_ns: window.1,
            session: session.unwrap_or(0) as u32,
            batch_gap_ns: BATCH_GAP_NS,
            holders: self.holders,
            sparse: self.one_in - 1,
        })
    }
    /// Counts everybody from now on, for `ns`.
    pub fn count_all(&mut self, ns: u64) -> Result<(), WatchError> {
        let now_ns = clock_ns(libc::CLOCK_MONOTONIC);
        self.count((now_ns, now_ns.saturating_add(ns)), None)
    }
    /// The kernel's functions.
    pub fn symbols(&self) -> &Symbols {
        &self.symbols
    }
    /// What has been seen until now.
    pub fn seen(&self) -> Result<Seen, WatchError> {
        let phases = self.programs.phases()?;
        let sum = |which: u32, meant: &dyn Fn(&Path) -> bool| {
            let mut sum = Sums::default();
            let found = phases.iter().filter(|(path, _)| path.flags == which && meant(path));
            found.for_each(|(_, sums)| sum.add(sums));
            Times::of(&sum)
        };
        let phase = |which| sum(which, &|_| true);
        // Others look at foreign memory too.
        let released =
            |path: &Path| symbols::passes(&self.path(path.stack), "__do_sys_process_mrelease");
        let batches = self.programs.batches()?;
        Ok(Seen {
            waits: self.waits()?,
            calls: self.calls()?,
            lru_batches: batches.count,
            lru_folios: batches.folios,
            exit_zap: phase(1),
            exit_await_reaper: phase(2),
            exit_tables: phase(3),
            mrelease_await: sum(6, &released),
            mrelease: sum(7, &released),
            oom_reap: phase(8),
            oom: self.oom()?,
            resched: phase(5),
            missing: self.programs.missing.clone(),
        })
    }
    fn oom(&self) -> Result<OomEvents, WatchError> {
        let count = |what| self.programs.happened(what);
        Ok(OomEvents {
            marked: count(0)?,
            woken: count(1)?,
            started: count(2)?,
            finished: count(3)?,
            skipped: count(4)?,
            adjusted: count(5)?,
        })
    }
    fn waits(&self) -> Result<Vec<Wait>, WatchError> {
        type Key = (&'static str, Vec<String>, Side, Vec<String>);
        let mut merged = BTreeMap::<Key, Sums>::new();
        for (path, sums) in self.programs.waits()? {
            let mut steps = self.path(path.stack);
            let class = class::of(&steps, path.flags);
            // Holders of zone locks are known, and of no others.
            let holder = path.holder.checked_sub(1).filter(|_| class == "zone");
            let holder = holder.map_or(Vec::new(), |id| self.path(id as i32));
            // Who calls it says more.
            if steps.last().is_some_and(|step| step.starts_with("folio_lruvec_")) {
                steps.pop();
            }
            merged.entry((class, steps, Side::of(path.side), holder)).or_default().add(&sums);
        }
        let wait = |((class, path, side, holder), sums): (Key, Sums)| {
            let Sums { count, total_ns, max_ns, log2 } = sums;
            Wait { class, path, side, holder, count, total_ns, max_ns, log2 }
        };
        let mut waits: Vec<Wait> = merged.into_iter().map(wait).collect();
        waits.sort_by_key(|wait| std::cmp::Reverse(wait.total_ns));
        Ok(waits)
    }
    fn path(&self, stack: i32) -> Vec<String> {
        match u32::try_from(stack) {
            Ok(id) => self.symbols.path(&self.programs.stack(id)),
            // The kernel had no room for another stack.
            Err(_) => Vec::new(),
        }
    }
    fn calls(&self) -> Result<Vec<Call>, WatchError> {
        let call = |(path, calls): (Path, Calls)| {
            let at = u64::from(path.flags) << 32 | u64::from(path.stack as u32);
            Call {
                function: self.symbols.name(at).unwrap_or("unknown").to_owned(),
                side: Side::of(path.side),
                delivery: Times::of(&calls.delivery),
                run: Times::of(&calls.run),
                total: Times::of(&calls.total),
            }
        };
        let mut calls: Vec<Call> = self.programs.calls()?.into_iter().map(call).collect();
        calls.sort_by_key(|call| std::cmp::Reverse(call.total.count));
        Ok(calls)
    }
}
