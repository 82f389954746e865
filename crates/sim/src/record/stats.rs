//! Call paths and lock statistics.

use crate::record::names::{Class, Names};
use mmscale_arch::{Func, LineName, LockClass, NamedLock};
use mmscale_document::{CallRow, LineRecord, LockName, LockRow};
use std::ops::Range;

/// The number of lock classes.
pub(crate) const CLASSES: usize = LockClass::ALL.len();
/// No node, or no row.
const NONE: u32 = u32::MAX;

/// The path of a task outside any span.
pub(crate) const ROOT_PATH: u32 = 0;
/// The path of an interrupt outside any span.
pub(crate) const INTERRUPT_PATH: u32 = 1;

/// One call path: a node of a tree, found from its parent by function.
struct Node {
    /// CPU time on it, without deeper paths, while locks were counted.
    self_ps: u64,
    /// The part of it in which it waited for cache lines from other CPUs.
    lines_ps: u64,
    /// How often it was entered in that time.
    entered: u64,
    parent: u32,
    func: Func,
    child: [u32; Func::COUNT],
    row: [u32; CLASSES],
}

impl Node {
    const fn new(parent: u32, func: Func) -> Self {
        let (child, row) = ([NONE; Func::COUNT], [NONE; CLASSES]);
        Self { self_ps: 0, lines_ps: 0, entered: 0, parent, func, child, row }
    }
}

/// The locks of one class taken on one path.
#[derive(Clone, Copy, Default)]
pub(crate) struct LockStatsRow {
    class: u8,
    path: u32,
    pub(crate) acquisitions: u64,
    pub(crate) contentions: u64,
    pub(crate) wait_ps: u64,
    /// The part of `wait_ps` after the time in which locks are counted.
    wait_after_ps: u64,
    pub(crate) wait_max_ps: u64,
    queued: u64,
    queued_ps: u64,
    queued_max_ps: u64,
    pub(crate) hold_ps: u64,
}

/// The place of a CPU that begins to wait for a lock.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) enum QueuePlace {
    /// It is the only one that waits.
    #[default]
    First,
    /// Another CPU waits already.
    Behind,
}

/// All call paths and all rows of lock statistics of one run.
pub(crate) struct Stats {
    nodes: Vec<Node>,
    /// The first row is for locks that are not counted.
    rows: Vec<LockStatsRow>,
    /// Transfers of lines by the number of their name: how many, and the time in ps.
    lines: [(u64, u64); LineName::COUNT],
    /// The time in which locks are counted.
    counted_ps: Range<u64>,
    /// Names of a program's own paths and locks.
    names: Names,
    /// The paths of `names`.
    named: Range<u32>,
}

/// The row of locks that are not counted.
const UNCOUNTED: u32 = 0;

impl Stats {
    /// Counts locks that are requested within `counted_ps`.
    pub(crate) fn new(counted_ps: Range<u64>) -> Self {
        let nodes = vec![Node::new(NONE, Func::Root), Node::new(NONE, Func::Interrupt)];
        let lines = [(0, 0); LineName::COUNT];
        let (rows, names) = (vec![LockStatsRow::default()], Names::default());
        Self { nodes, rows, lines, counted_ps, names, named: 0..0 }
    }
    /// Adds paths of a program's own, with their names, and names of its locks. Once.
    pub(crate) fn set_names(&mut self, names: Names) {
        let first = self.nodes.len();
        self.nodes.extend(names.paths().iter().map(|_| Node::new(NONE, Func::Root)));
        self.named = first as u32..self.nodes.len() as u32;
        self.names = names;
    }
    /// Returns the path with a number of [`Names`].
    #[inline]
    pub(crate) fn named_path(&self, number: u32) -> u32 {
        debug_assert!(number < self.named.end - self.named.start, "there is no path {number}");
        self.named.start + number
    }
    /// Returns the class of a lock.
    pub(crate) fn class_of(&self, lock: NamedLock) -> Class {
        self.names.class_of(lock).map_or(Class::Of(lock.class), Class::Named)
    }
    /// Whether waits for locks of a class are reported: of a program with names of its own, only
    /// those that it names. Others are parts of the machine's sleeping locks.
    pub(crate) fn reports(&self, class: Class) -> bool {
        self.named.is_empty() || matches!(class, Class::Named(_))
    }
    /// Returns the name of a class.
    pub(crate) fn class_name(&self, class: Class) -> &str {
        match class {
            Class::Of(class) => class.name(),
            Class::Named(number) => self.names.class(number),
        }
    }
    /// Returns the names of a lock and of its class.
    pub(crate) fn lock_name(&self, lock: NamedLock) -> LockName {
        let own = || LockName { class: lock.class.name().to_owned(), name: lock.to_string() };
        self.names.lock(lock).cloned().unwrap_or_else(own)
    }
    /// Returns the path one function deeper.
    #[inline]
    pub(crate) fn child(&mut self, path: u32, func: Func) -> u32 {
        let known = self.nodes[path as usize].child[func as usize];
        if known == NONE { self.grow(path, func) } else { known }
    }
    #[cold]
    fn grow(&mut self, path: u32, func: Func) -> u32 {
        let new = self.nodes.len() as u32;
        self.nodes.push(Node::new(path, func));
        self.nodes[path as usize].child[func as usize] = new;
        new
    }
    /// Records that a CPU was on `path` from one time to another.
    #[inline]
    pub(crate) fn spent(&mut self, path: u32, from_ps: u64, to_ps: u64) {
        let (from_ps, to_ps) = (from_ps.max(self.counted_ps.start), to_ps.min(self.counted_ps.end));
        self.nodes[path as usize].self_ps += to_ps.saturating_sub(from_ps);
    }
    /// Records that a number of cache lines from another CPU, by the number of their name, cost
    /// `path` the next `ps` each.
    #[inline]
    pub(crate) fn fetched(&mut self, path: u32, name: usize, now_ps: u64, (ps, count): (u64, u32)) {
        if self.counted_ps.contains(&now_ps) {
            let ps = ps * u64::from(count);
            self.nodes[path as usize].lines_ps += ps;
            let (moves, all_ps) = &mut self.lines[name];
            *moves += u64::from(count);
            *all_ps += ps;
        }
    }
    /// Returns the transfers of lines by what they hold, those without any left out.
    pub(crate) fn line_rows(&self) -> Vec<LineRecord> {
        let rows = self.lines.iter().enumerate().map(|(number, &(moves, ps))| LineRecord {
            line: LineName::of_number(number).name().to_owned(),
            moves,
            wait_ns: ps / 1000,
        });
        rows.filter(|row| row.moves > 0).collect()
    }
    /// Records that `path` is entered.
    #[inline]
    pub(crate) fn enter(&mut self, path: u32, now_ps: u64) {
        self.nodes[path as usize].entered += u64::from(self.counted_ps.contains(&now_ps));
    }
    /// Returns the CPU time by call path, sorted by path.
    pub(crate) fn call_rows(&self) -> Vec<CallRow> {
        let known = self.nodes.iter().enumerate().filter(|(_, node)| node.self_ps > 0);
        let row = |(path, node): (usize, &Node)| CallRow {
            path: self.names(path as u32),
            entered: node.entered,
            self_ns: node.self_ps / 1000,
            lines_ns: node.lines_ps / 1000,
        };
        let mut rows: Vec<_> = known.map(row).collect();
        rows.sort_by(|a, b| a.path.cmp(&b.path));
        rows
    }
    /// Returns the row that counts locks of `class` taken on `path`.
    #[inline]
    pub(crate) fn row_of(&mut self, path: u32, class: LockClass, now_ps: u64) -> u32 {
        if !self.counted_ps.contains(&now_ps) {
            return UNCOUNTED;
        }
        let known = self.nodes[path as usize].row[class as usize];
        if known == NONE { self.open_row(path, class) } else { known }
    }
    #[cold]
    fn open_row(&mut self, path: u32, class: LockClass) -> u32 {
        let new = self.rows.len() as u32;
        self.rows.push(LockStatsRow { class: class as u8, path, ..LockStatsRow::default() });
        self.nodes[path as usize].row[class as usize] = new;
        new
    }
    #[inline]
    pub(crate) fn row(&mut self, row: u32) -> &mut LockStatsRow {
        &mut self.rows[row as usize]
    }
    /// Counts an acquisition after a wait from `from_ps` to `to_ps`.
    #[inline]
    pub(crate) fn waited(&mut self, row: u32, from_ps: u64, to_ps: u64, place: QueuePlace) {
        let end_ps = self.counted_ps.end.max(from_ps);
        let counted = &mut self.rows[row as usize];
        counted.contended(to_ps.saturating_sub(from_ps), place);
        counted.wait_after_ps += to_ps.saturating_sub(end_ps);
    }
    /// Returns the class and the path of a row that is counted.
    pub(crate) fn class_and_path(&self, row: u32) -> Option<(LockClass, u32)> {
        let counted = self.rows.get(row as usize).filter(|_| row != UNCOUNTED);
        counted.map(|row| (LockClass::ALL[usize::from(row.class)], row.path))
    }
    /// Returns the functions of a path, outermost first; longer paths are without the task root.
    pub(crate) fn names(&self, path: u32) -> Vec<String> {
        let mut names = Vec::new();
        let mut at = path;
        while at != NONE {
            if self.named.contains(&at) {
                let outer = &self.names.paths()[(at - self.named.start) as usize];
                names.extend(outer.iter().rev().cloned());
                break;
            }
            let node = &self.nodes[at as usize];
            if node.parent != NONE || node.func != Func::Root || names.is_empty() {
                names.push(node.func.name().to_owned());
            }
            at = node.parent;
        }
        names.reverse();
        names
    }
    /// Returns the rows as records, sorted by class and path: numbers of paths depend on the order
    /// of their first use.
    pub(crate) fn lock_rows(&self) -> Vec<LockRow> {
        let mut rows: Vec<_> = self
            .rows
            .iter()
            .skip(UNCOUNTED as usize + 1)
            .map(|row| LockRow {
                class: LockClass::ALL[usize::from(row.class)].name().to_owned(),
                sleeps: LockClass::ALL[usize::from(row.class)].is_sleeping(),
                path: self.names(row.path),
                acquisitions: row.acquisitions,
                contentions: row.contentions,
                wait_total_ns: row.wait_ps / 1000,
                wait_after_ns: row.wait_after_ps / 1000,
                wait_max_ns: row.wait_max_ps / 1000,
                queued: row.queued,
                queued_total_ns: row.queued_ps / 1000,
                queued_max_ns: row.queued_max_ps / 1000,
                hold_total_ns: row.hold_ps / 1000,
            })
            .collect();
        rows.sort_by(|a, b| (&a.class, &a.path).cmp(&(&b.class, &b.path)));
        rows
    }
}

impl LockStatsRow {
    /// Counts an acquisition after a wait of `wait_ps`.
    fn contended(&mut self, wait_ps: u64, place: QueuePlace) {
        self.acquisitions += 1;
        self.contentions += 1;
        self.wait_ps += wait_ps;
        self.wait_max_ps = self.wait_max_ps.max(wait_ps);
        if place == QueuePlace::Behind {
            self.queued += 1;
            self.queued_ps += wait_ps;
            self.queued_max_ps = self.queued_max_ps.max(wait_ps);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_function_under_two_callers_is_two_paths() {
        let mut stats = Stats::new(0..u64::MAX);
        let refill = stats.child(ROOT_PATH, Func::RmqueueBulk);
        let program = stats.child(ROOT_PATH, Func::Program);
        let under = stats.child(program, Func::RmqueueBulk);
        assert_ne!(refill, under);
        assert_eq!(stats.child(program, Func::RmqueueBulk), under);
        assert_eq!(stats.names(under), ["program", "rmqueue_bulk"]);
        assert_eq!(stats.names(ROOT_PATH), ["root"]);
    }

    #[test]
    fn time_is_counted_by_path_and_within_the_window() {
        let mut stats = Stats::new(10_000..50_000);
        let program = stats.child(ROOT_PATH, Func::Program);
        let exit = stats.child(program, Func::ExitMmap);
        stats.enter(program, 5_000);
        stats.enter(exit, 20_000);
        stats.spent(program, 5_000, 20_000);
        stats.spent(exit, 20_000, 60_000);
        stats.spent(program, 60_000, 70_000);
        let rows = stats.call_rows();
        assert_eq!(rows.len(), 2);
        let of = |nth: usize| (rows[nth].path.len(), rows[nth].entered, rows[nth].self_ns);
        assert_eq!((of(0), of(1)), ((1, 0, 10), (2, 1, 30)));
    }

    #[test]
    fn the_part_of_a_wait_after_the_window_is_known() {
        let mut stats = Stats::new(10_000..50_000);
        let row = stats.row_of(ROOT_PATH, LockClass::Zone, 45_000);
        stats.waited(row, 20_000, 30_000, QueuePlace::First);
        stats.waited(row, 45_000, 65_000, QueuePlace::First);
        let row = &stats.lock_rows()[0];
        assert_eq!((row.wait_total_ns, row.wait_after_ns), (30, 15));
    }

    #[test]
    fn rows_are_kept_by_class_and_path_and_sorted() {
        let mut stats = Stats::new(0..u64::MAX);
        let path = stats.child(INTERRUPT_PATH, Func::RunTimers);
        let zone = stats.row_of(path, LockClass::Zone, 5);
        stats.waited(zone, 1_000, 6_000, QueuePlace::First);
        stats.waited(zone, 1_000, 4_000, QueuePlace::Behind);
        let pcp = stats.row_of(path, LockClass::Pcp, 5);
        stats.row(pcp).acquisitions += 1;
        assert_eq!(stats.row_of(path, LockClass::Zone, 5), zone);
        let rows = stats.lock_rows();
        assert_eq!((rows[0].class.as_str(), rows[0].acquisitions), ("pcp", 1));
        assert_eq!((rows[1].contentions, rows[1].wait_max_ns), (2, 5));
        assert_eq!((rows[1].queued, rows[1].queued_total_ns, rows[1].queued_max_ns), (1, 3, 3));
        assert_eq!(rows[1].path, ["interrupt", "run_timers"]);
    }
}
