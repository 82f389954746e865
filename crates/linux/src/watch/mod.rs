//! Measurements in the live kernel during a run: waits for locks by class and call path, batches of
//! the LRU lists, calls between CPUs, phases of exits, delays of task switches.
//!
//! Everything is added up in the kernel, so that the measurement disturbs little. `live ab` with
//! the parameter `watch` measures how much.

mod class;
mod error;
mod object;
mod stretch;
mod symbols;

use crate::system::clock_ns;
use mmscale_document::{Call, Durations, Hold, OomEvents, Side, Wait, Watch, Watched, passes};
use object::{Calls, Config, Holds, Path, Programs, Sums};
use std::collections::BTreeMap;
use std::sync::OnceLock;

pub use error::WatchError;
pub use symbols::Symbols;

/// The share of very frequent events that is recorded.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Sampling {
    /// All events.
    #[default]
    All,
    /// Of waits for a spin lock below 10 us one in eight, and one in 64 after 512 waits for that
    /// lock on a CPU; each recorded wait counts for all of them. Of folios that are added to lists,
    /// those of 10 ms in 120. Recording each event would take a tenth of the time of small
    /// operations.
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

/// The events to record.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// The groups of events.
    pub watches: Vec<Watch>,
    /// The share to record. With holders, every event is recorded.
    pub sampling: Sampling,
}

impl Plan {
    /// Returns the share to record, with holders taken into account.
    fn sampling(&self) -> Sampling {
        if self.watches.contains(&Watch::Holders) { Sampling::All } else { self.sampling }
    }
}

fn side_of(bits: u32) -> Side {
    match bits {
        2 => Side::Kernel,
        bits if bits & 5 == 5 => Side::Exiting,
        bits if bits & 1 == 1 => Side::Ours,
        _ => Side::Other,
    }
}

fn durations(sums: &Sums) -> Durations {
    let Sums { count, total_ns, max_ns, log2 } = *sums;
    Durations { count, total_ns, max_ns, log2 }
}

/// A longer gap than this between two insertions on one CPU separates two batches: within a batch,
/// insertions follow each other with interrupts off.
const BATCH_GAP_NS: u32 = 1_500;
/// With more CPUs than this, holders are not recorded.
const HOLDERS_MAX: u32 = 128;

/// The kernel while it is watched.
pub struct Watching {
    programs: Programs,
    /// Read when they are needed, after a run: its processes are copies of this one, and a fork of
    /// theirs takes longer with each page of it.
    symbols: OnceLock<Symbols>,
    holders: u32,
    one_in: u32,
}

impl std::fmt::Debug for Watching {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Watching")
    }
}

impl Watching {
    /// Starts to watch; events count only after [`Watching::count`].
    pub fn begin(plan: &Plan) -> Result<Self, WatchError> {
        let programs = Programs::load(plan)?;
        let infers = plan.watches.contains(&Watch::Holders) && !programs.releases;
        let holders = if infers { HOLDERS_MAX } else { 0 };
        let one_in = plan.sampling().one_in();
        Ok(Self { programs, symbols: OnceLock::new(), holders, one_in })
    }
    /// Counts the events in `window`, in ns of `CLOCK_MONOTONIC`. Processes of `session` are ours;
    /// without a session, all are.
    pub fn count(&mut self, window: (u64, u64), session: Option<i32>) -> Result<(), WatchError> {
        self.programs.configure(Config {
            from_ns: window.0,
            until_ns: window.1,
            session: session.unwrap_or(0) as u32,
            batch_gap_ns: BATCH_GAP_NS,
            holders: self.holders,
            sparse: self.one_in - 1,
            releases: self.programs.releases.into(),
            padding: 0,
        })
    }
    /// Counts the events of all processes for `ns`, starting now.
    pub fn count_all(&mut self, ns: u64) -> Result<(), WatchError> {
        let now_ns = clock_ns(libc::CLOCK_MONOTONIC);
        self.count((now_ns, now_ns.saturating_add(ns)), None)
    }
    /// Whether this kernel reports the releases of contended locks (`lock:contended_release`), so
    /// that the holders of all locks are seen.
    pub fn sees_releases(&self) -> bool {
        self.programs.releases
    }
    /// Returns the kernel's functions.
    pub fn symbols(&self) -> &Symbols {
        self.symbols.get_or_init(Symbols::of_kernel)
    }
    /// Returns everything that was recorded so far.
    pub fn seen(&self) -> Result<Watched, WatchError> {
        let phases = self.programs.phases()?;
        let sum = |which: u32, meant: &dyn Fn(&Path) -> bool| {
            let mut sum = Sums::default();
            let found = phases.iter().filter(|(path, _)| path.flags == which && meant(path));
            found.for_each(|(_, sums)| sum.add(sums));
            durations(&sum)
        };
        let phase = |which| sum(which, &|_| true);
        // Other callers access foreign memory too.
        let released = |path: &Path| passes(&self.path(path.stack), "__do_sys_process_mrelease");
        let batches = self.programs.batches()?;
        Ok(Watched {
            waits: self.waits()?,
            holds: self.holds()?,
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
        type Key = (&'static str, Option<String>, Vec<String>, Side, Vec<String>);
        let mut merged = BTreeMap::<Key, Sums>::new();
        for (path, sums) in self.programs.waits()? {
            let (class, lock, steps) = self.waiter(&path);
            // Holders that are inferred are those of zone locks.
            let is_known = self.programs.releases || class == "zone";
            let holder = if is_known { self.holder(&path) } else { Vec::new() };
            merged.entry((class, lock, steps, side_of(path.side), holder)).or_default().add(&sums);
        }
        let wait = |((class, lock, path, side, holder), sums): (Key, Sums)| {
            let Sums { count, total_ns, max_ns, log2 } = sums;
            Wait { class, lock, path, side, holder, count, total_ns, max_ns, log2 }
        };
        let mut waits: Vec<Wait> = merged.into_iter().map(wait).collect();
        waits.sort_by_key(|wait| std::cmp::Reverse(wait.total_ns));
        Ok(waits)
    }
    /// Returns waits and holds by class, waiter and holder, those with the longest waits first.
    /// Empty if this kernel does not report releases.
    fn holds(&self) -> Result<Option<Vec<Hold>>, WatchError> {
        type Key = (&'static str, Vec<String>, Side, Vec<String>);
        if !self.programs.releases {
            return Ok(None);
        }
        let mut merged = BTreeMap::<Key, Holds>::new();
        for (path, holds) in self.programs.holds()? {
            let (class, _, steps) = self.waiter(&path);
            let key = (class, steps, side_of(path.side), self.holder(&path));
            let sums = merged.entry(key).or_default();
            sums.waits.add(&holds.waits);
            sums.whole.add(&holds.whole);
        }
        let hold = |((class, path, side, holder), holds): (Key, Holds)| {
            let (waits, whole) = (durations(&holds.waits), durations(&holds.whole));
            Hold { class, path, side, holder, waits, whole }
        };
        let mut holds: Vec<Hold> = merged.into_iter().map(hold).collect();
        holds.sort_by_key(|hold| std::cmp::Reverse(hold.waits.total_ns));
        Ok(Some(holds))
    }
    /// Returns the class of a lock, its name if no class has it, and the call path of a task that
    /// waited for it.
    fn waiter(&self, path: &Path) -> (&'static str, Option<String>, Vec<String>) {
        let frames = self.frames(path.stack);
        let mut steps = self.symbols().path(&frames);
        let (class, lock) = class::of(&steps, path.flags, self.symbols().taken_through(&frames));
        // Its caller is more informative.
        if steps.last().is_some_and(|step| step.starts_with("folio_lruvec_")) {
            steps.pop();
        }
        (class, lock, steps)
    }
    fn holder(&self, path: &Path) -> Vec<String> {
        path.holder.checked_sub(1).map_or(Vec::new(), |id| self.path(id as i32))
    }
    fn path(&self, stack: i32) -> Vec<String> {
        self.symbols().path(&self.frames(stack))
    }
    /// Returns the addresses of a stack, innermost first. Empty if the kernel had no room for
    /// another stack.
    fn frames(&self, stack: i32) -> Vec<u64> {
        u32::try_from(stack).map_or(Vec::new(), |id| self.programs.stack(id))
    }
    fn calls(&self) -> Result<Vec<Call>, WatchError> {
        let call = |(path, calls): (Path, Calls)| {
            let at = u64::from(path.flags) << 32 | u64::from(path.stack as u32);
            Call {
                function: self.symbols().name(at).unwrap_or("unknown").to_owned(),
                side: side_of(path.side),
                delivery: durations(&calls.delivery),
                run: durations(&calls.run),
                total: durations(&calls.total),
            }
        };
        let mut calls: Vec<Call> = self.programs.calls()?.into_iter().map(call).collect();
        calls.sort_by_key(|call| std::cmp::Reverse(call.total.count));
        Ok(calls)
    }
}
