//! Counts of the window of a run, by the names of the recording, and their form in documents.
//! Counting takes no virtual time. It only adds to sums and maxima, so the order on the host does
//! not matter.

use crate::code::{Code, LockName};
use mmscale_arch::Machine;
use mmscale_document::{CallRow, LineRecord, LockRow};
use mmscale_sim::Sim;

/// Returns the running CPU's time, in ps.
pub(crate) fn now_ps() -> u64 {
    Sim::wait_clock()
}

/// The part of a run that counts, in ps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Counted {
    pub(crate) from_ps: u64,
    pub(crate) until_ps: u64,
}

impl Counted {
    pub(crate) fn contains(&self, at_ps: u64) -> bool {
        (self.from_ps..self.until_ps).contains(&at_ps)
    }
    /// Returns the part of a time that counts.
    pub(crate) fn within(&self, from_ps: u64, to_ps: u64) -> u64 {
        to_ps.min(self.until_ps).saturating_sub(from_ps.max(self.from_ps))
    }
}

/// Acquisitions of a lock on a path.
#[derive(Clone, Copy, Default)]
struct LockSums {
    acquisitions: u64,
    contentions: u64,
    wait_ps: u64,
    wait_after_ps: u64,
    wait_max_ps: u64,
    hold_ps: u64,
}

/// Transfers of a line.
#[derive(Clone, Copy, Default)]
struct LineSums {
    moves: u64,
    stall_ps: u64,
}

/// Time on a path.
#[derive(Clone, Copy, Default)]
struct PathSums {
    self_ps: u64,
    lines_ps: u64,
    /// The part of `self_ps` in which the task waited for a sleeping lock with its CPU.
    spun_ps: u64,
}

/// Calls of other CPUs.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct CallSums {
    /// Calls that reached another CPU.
    pub calls: u64,
    /// CPUs that were called, of all calls together.
    pub receivers: u64,
    /// Time in which callers waited for answers, in ps.
    pub wait_ps: u64,
    /// Time in which CPUs answered, in ps, without the entry of the interrupt.
    pub answer_ps: u64,
}

/// Interrupts of timers.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct TickSums {
    /// Ticks that ended.
    pub ticks: u64,
    /// Batches of RCU callbacks.
    pub batches: u64,
    /// Time of CPUs in them, in ps, without the entry of the interrupt.
    pub ps: u64,
}

/// Parts of an operation, as whole numbers: their sum does not depend on their order.
const PARTS: u128 = 1 << 20;

/// All sums of a run.
pub(crate) struct Tally {
    pub(crate) counted: Counted,
    /// Operations that the script counted, in parts of [`PARTS`].
    ops: u128,
    /// Rounds that ended in the window.
    pub(crate) rounds: u64,
    /// Calls of other CPUs.
    pub(crate) calls: CallSums,
    /// Interrupts of timers.
    pub(crate) ticks: TickSums,
    locks: Vec<LockSums>,
    lines: Vec<LineSums>,
    paths: Vec<PathSums>,
}

impl Tally {
    pub(crate) fn new(code: &Code, counted: Counted) -> Self {
        Self {
            counted,
            ops: 0,
            rounds: 0,
            calls: CallSums::default(),
            ticks: TickSums::default(),
            locks: vec![LockSums::default(); code.lock_rows.len()],
            lines: vec![LineSums::default(); code.line_names.len()],
            paths: vec![PathSums::default(); code.paths.len()],
        }
    }
    /// Counts a round with `count` operations that began at `begin_ps` and ends now. Of one that is
    /// not all in the window, as much counts as is: rounds may be long.
    pub(crate) fn done(&mut self, count: u64, begin_ps: u64) {
        let now = now_ps();
        let within = u128::from(self.counted.within(begin_ps, now));
        self.ops += u128::from(count) * PARTS * within / u128::from((now - begin_ps).max(1));
        self.rounds += u64::from(self.counted.contains(now));
    }
    /// Counts a call of so many CPUs, made now.
    pub(crate) fn called(&mut self, receivers: u64) {
        if receivers > 0 && self.counted.contains(now_ps()) {
            self.calls.calls += 1;
            self.calls.receivers += receivers;
        }
    }
    /// Counts a wait for answers of `ps` in the window.
    pub(crate) fn waited_for_answers(&mut self, ps: u64) {
        self.calls.wait_ps += ps;
    }
    /// Counts answers that took `ps` of the window.
    pub(crate) fn answered(&mut self, ps: u64) {
        self.calls.answer_ps += ps;
    }
    /// Counts a tick with so many batches of callbacks that ends now and took `ps` of the window.
    pub(crate) fn ticked(&mut self, batches: u64, ps: u64) {
        self.ticks.ps += ps;
        if self.counted.contains(now_ps()) {
            self.ticks.ticks += 1;
            self.ticks.batches += batches;
        }
    }
    /// Returns the operations that the script counted.
    pub(crate) fn ops(&self) -> f64 {
        self.ops as f64 / PARTS as f64
    }
    /// Counts that a lock that was requested at `asked_ps` is held now. Returns whether it counts.
    pub(crate) fn acquired(&mut self, row: u32, asked_ps: u64, waited: bool) -> bool {
        if !self.counted.contains(asked_ps) {
            return false;
        }
        let (sums, now) = (&mut self.locks[row as usize], now_ps());
        sums.acquisitions += 1;
        if waited {
            sums.contentions += 1;
            sums.wait_ps += now - asked_ps;
            sums.wait_after_ps += now.saturating_sub(self.counted.until_ps);
            sums.wait_max_ps = sums.wait_max_ps.max(now - asked_ps);
        }
        true
    }
    /// Counts the end of a hold.
    pub(crate) fn released(&mut self, row: u32, since_ps: u64) {
        self.locks[row as usize].hold_ps += now_ps() - since_ps;
    }
    /// Counts lines of one name that came from other CPUs, for which the CPU stalled for `ps`,
    /// until now, on `path`.
    pub(crate) fn stalled(&mut self, path: u32, name: u32, moves: u64, ps: u64) {
        let now = now_ps();
        let within = self.counted.within(now - ps, now);
        let line = &mut self.lines[name as usize];
        line.moves += if self.counted.contains(now) { moves } else { 0 };
        line.stall_ps += within;
        self.paths[path as usize].lines_ps += within;
    }
    /// Counts the time on a path, in ps, all of it within the window.
    pub(crate) fn spent(&mut self, path: u32, ps: u64) {
        self.paths[path as usize].self_ps += ps;
    }

    /// Counts CPU time in a wait for a sleeping lock on a path, in ps, all of it within the window.
    pub(crate) fn spun(&mut self, path: u32, ps: u64) {
        self.paths[path as usize].spun_ps += ps;
    }

    /// Returns the locks, sorted by class and path.
    pub(crate) fn lock_rows(&self, code: &Code) -> Vec<LockRow> {
        let taken =
            code.lock_rows.iter().zip(&self.locks).filter(|(_, sums)| sums.acquisitions > 0);
        let mut rows: Vec<LockRow> = taken.map(|(name, sums)| lock_row(name, sums)).collect();
        rows.sort_by(|a, b| (&a.class, &a.path).cmp(&(&b.class, &b.path)));
        rows
    }
    /// Returns the lines that moved.
    pub(crate) fn line_rows(&self, code: &Code) -> Vec<LineRecord> {
        let moved = code.line_names.iter().zip(&self.lines);
        let moved = moved.filter(|(_, sums)| sums.moves > 0 || sums.stall_ps > 0);
        let row = |(name, sums): (&String, &LineSums)| LineRecord {
            line: name.clone(),
            moves: sums.moves,
            wait_ns: sums.stall_ps / 1000,
        };
        LineRecord::aggregate(&moved.map(row).collect::<Vec<_>>())
    }
    /// Returns the CPU time by path, sorted.
    pub(crate) fn call_rows(&self, code: &Code) -> Vec<CallRow> {
        self.rows_of(code, |sums| sums.self_ps)
    }
    /// Returns the CPU time by path without waits for sleeping locks, sorted.
    pub(crate) fn work_rows(&self, code: &Code) -> Vec<CallRow> {
        self.rows_of(code, |sums| sums.self_ps.saturating_sub(sums.spun_ps))
    }
    fn rows_of(&self, code: &Code, ps: impl Fn(&PathSums) -> u64) -> Vec<CallRow> {
        let spent = code.paths.iter().zip(&self.paths).filter(|(_, sums)| ps(sums) > 0);
        let row = |(path, sums): (&Vec<String>, &PathSums)| CallRow {
            path: path.clone(),
            entered: 0,
            self_ns: ps(sums) / 1000,
            lines_ns: sums.lines_ps / 1000,
        };
        let mut rows: Vec<CallRow> = spent.map(row).collect();
        rows.sort_by(|a, b| a.path.cmp(&b.path));
        rows
    }
    /// Returns the time of all CPUs in which they stalled for lines, in ns.
    pub(crate) fn lines_ns(&self) -> u64 {
        self.lines.iter().map(|line| line.stall_ps).sum::<u64>() / 1000
    }
}

fn lock_row(name: &LockName, sums: &LockSums) -> LockRow {
    LockRow {
        class: name.class.clone(),
        sleeps: name.sleeps,
        path: name.path.clone(),
        acquisitions: sums.acquisitions,
        contentions: sums.contentions,
        wait_total_ns: sums.wait_ps / 1000,
        wait_after_ns: sums.wait_after_ps / 1000,
        wait_max_ns: sums.wait_max_ps / 1000,
        hold_total_ns: sums.hold_ps / 1000,
        ..LockRow::default()
    }
}
