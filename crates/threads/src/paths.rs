//! Call paths, which all CPUs share, and the lock statistics of each CPU.

use crate::host::lock;
use mmscale_arch::{Func, LockClass};
use mmscale_document::{CallRow, LockRow};
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

/// The largest number of distinct call paths. A path that does not fit counts as its caller's.
const MAX_PATHS: usize = 1024;
const CLASSES: usize = LockClass::ALL.len();

/// The path of a task outside any span.
pub(crate) const ROOT: u32 = 0;
/// The path of an interrupt outside any span.
pub(crate) const INTERRUPT: u32 = 1;

/// All call paths: a tree that only grows. A look-up of a known path takes one load.
pub(crate) struct PathTree {
    /// The child of path p by function f at `p * Func::COUNT + f`; 0 is none, because the root is
    /// no child. The `Release` store in `child` pairs with the `Acquire` load there.
    children: Box<[AtomicU32]>,
    /// The path for which the time on each path is counted: itself, or the nearest caller.
    measured: Box<[AtomicU32]>,
    /// Parent and function of each path.
    nodes: Mutex<Vec<(u32, Func)>>,
}

impl PathTree {
    pub(crate) fn new() -> Self {
        let children = (0..MAX_PATHS * Func::COUNT).map(|_| AtomicU32::new(0)).collect();
        let measured: Box<[AtomicU32]> = (0..MAX_PATHS).map(|_| AtomicU32::new(ROOT)).collect();
        measured[INTERRUPT as usize].store(INTERRUPT, Ordering::Relaxed);
        let nodes = vec![(ROOT, Func::Root), (ROOT, Func::Interrupt)];
        Self { children, measured, nodes: Mutex::new(nodes) }
    }

    /// Returns the path one function deeper.
    #[inline]
    pub(crate) fn child(&self, path: u32, func: Func) -> u32 {
        let slot = &self.children[path as usize * Func::COUNT + func as usize];
        let known = slot.load(Ordering::Acquire);
        if known != 0 { known } else { self.grow(path, func, slot) }
    }

    #[cold]
    fn grow(&self, path: u32, func: Func, slot: &AtomicU32) -> u32 {
        let mut nodes = lock(&self.nodes);
        let known = slot.load(Ordering::Relaxed);
        if known != 0 || nodes.len() == MAX_PATHS {
            return if known != 0 { known } else { path };
        }
        let new = nodes.len() as u32;
        nodes.push((path, func));
        let measured = if func.is_coarse() { new } else { self.measured(path) };
        self.measured[new as usize].store(measured, Ordering::Relaxed);
        slot.store(new, Ordering::Release);
        new
    }

    /// Returns the path for which time on `path` is counted.
    #[inline]
    pub(crate) fn measured(&self, path: u32) -> u32 {
        self.measured[path as usize].load(Ordering::Relaxed)
    }

    /// Returns the functions of a path, outermost first; longer paths are without the root.
    fn names(&self, path: u32) -> Vec<String> {
        let nodes = lock(&self.nodes);
        let mut names = Vec::new();
        let mut at = path;
        loop {
            let (parent, func) = nodes[at as usize];
            if at != ROOT || names.is_empty() {
                names.push(func.name().to_owned());
            }
            if at == ROOT || at == INTERRUPT {
                break;
            }
            at = parent;
        }
        names.reverse();
        names
    }
}

/// Statistics of one CPU for the locks of one class on one path.
#[derive(Clone, Copy, Default)]
struct LockStatsRow {
    acquisitions: u64,
    contentions: u64,
    wait_ns: u64,
    wait_max_ns: u64,
}

/// The lock statistics of one CPU, by path and class.
pub(crate) struct LockStats {
    rows: Vec<LockStatsRow>,
    /// Time by path: how often it was left, and ns.
    calls: Vec<(u64, u64)>,
}

impl LockStats {
    pub(crate) fn new() -> Self {
        Self { rows: Vec::new(), calls: Vec::new() }
    }

    #[inline]
    pub(crate) fn acquired(&mut self, path: u32, class: LockClass) {
        self.row(path, class).acquisitions += 1;
    }

    /// Counts an acquisition after a wait.
    pub(crate) fn waited(&mut self, path: u32, class: LockClass, wait_ns: u64) {
        let row = self.row(path, class);
        row.acquisitions += 1;
        row.contentions += 1;
        row.wait_ns += wait_ns;
        row.wait_max_ns = row.wait_max_ns.max(wait_ns);
    }

    /// Adds `ns` of the CPU on `path`.
    pub(crate) fn spent(&mut self, path: u32, ns: u64) {
        let at = path as usize;
        if at >= self.calls.len() {
            self.calls.resize(at + 1, (0, 0));
        }
        self.calls[at].0 += 1;
        self.calls[at].1 += ns;
    }

    #[inline]
    fn row(&mut self, path: u32, class: LockClass) -> &mut LockStatsRow {
        let at = path as usize * CLASSES + class as usize;
        if at >= self.rows.len() {
            self.rows.resize(at + CLASSES, LockStatsRow::default());
        }
        &mut self.rows[at]
    }
}

/// Adds up the statistics of all CPUs, sorted by class and path. Hold times are not measured here:
/// two reads of the clock for each hold would change them.
pub(crate) fn merge<'a>(
    tree: &PathTree,
    cpus: impl Iterator<Item = &'a LockStats>,
) -> Vec<LockRow> {
    let mut merged: BTreeMap<(String, Vec<String>), LockRow> = BTreeMap::new();
    for stats in cpus {
        for (at, row) in stats.rows.iter().enumerate().filter(|(_, row)| row.acquisitions > 0) {
            let class = LockClass::ALL[at % CLASSES];
            let (class, sleeps) = (class.name().to_owned(), class.is_sleeping());
            let path = tree.names((at / CLASSES) as u32);
            let sum = merged.entry((class.clone(), path.clone())).or_insert_with(|| LockRow {
                class,
                sleeps,
                path,
                ..LockRow::default()
            });
            sum.acquisitions += row.acquisitions;
            sum.contentions += row.contentions;
            sum.wait_total_ns += row.wait_ns;
            sum.wait_max_ns = sum.wait_max_ns.max(row.wait_max_ns);
        }
    }
    merged.into_values().collect()
}

/// Adds up the time of all CPUs on each measured path, sorted by path. A path is entered again
/// whenever a measured path below it ends.
pub(crate) fn merge_calls<'a>(
    tree: &PathTree,
    cpus: impl Iterator<Item = &'a LockStats>,
) -> Vec<CallRow> {
    let mut merged: BTreeMap<Vec<String>, CallRow> = BTreeMap::new();
    for (at, &(entered, self_ns)) in cpus.flat_map(|stats| stats.calls.iter().enumerate()) {
        if entered > 0 {
            let path = tree.names(at as u32);
            let row = merged.entry(path.clone()).or_insert(CallRow { path, ..CallRow::default() });
            row.entered += entered;
            row.self_ns += self_ns;
        }
    }
    merged.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_all_cpus_add_up_by_class_and_path() {
        let tree = PathTree::new();
        let refill = tree.child(tree.child(ROOT, Func::Program), Func::RmqueueBulk);
        let timers = tree.child(INTERRUPT, Func::RunTimers);
        assert_eq!(tree.child(tree.child(ROOT, Func::Program), Func::RmqueueBulk), refill);
        let (mut one, mut two) = (LockStats::new(), LockStats::new());
        one.acquired(refill, LockClass::Zone);
        one.waited(refill, LockClass::Zone, 5);
        two.waited(refill, LockClass::Zone, 9);
        two.acquired(timers, LockClass::Pcp);
        two.acquired(ROOT, LockClass::Pcp);
        let rows = merge(&tree, [one, two].iter());
        let names: Vec<_> = rows.iter().map(|row| (&*row.class, row.path.join("/"))).collect();
        let wanted =
            [("pcp", "interrupt/run_timers"), ("pcp", "root"), ("zone", "program/rmqueue_bulk")];
        assert_eq!(names, wanted.map(|(class, path)| (class, path.to_owned())));
        let zone = &rows[2];
        assert_eq!((zone.acquisitions, zone.contentions), (3, 2));
        assert_eq!((zone.wait_total_ns, zone.wait_max_ns), (14, 9));
    }
    #[test]
    fn time_counts_for_the_nearest_coarse_caller() {
        let tree = PathTree::new();
        let program = tree.child(ROOT, Func::Program);
        let exit = tree.child(program, Func::ExitMmap);
        let free = tree.child(exit, Func::FreePages);
        let timer = tree.child(INTERRUPT, Func::RunTimers);
        let measured = [program, exit, free, timer].map(|path| tree.measured(path));
        assert_eq!(measured, [ROOT, exit, exit, INTERRUPT]);
        let (mut one, mut two) = (LockStats::new(), LockStats::new());
        one.spent(exit, 5);
        one.spent(ROOT, 1);
        two.spent(exit, 6);
        let rows = merge_calls(&tree, [one, two].iter());
        assert_eq!(rows.len(), 2);
        assert_eq!((rows[0].path.join("/").as_str(), rows[0].self_ns), ("program/exit_mmap", 11));
        assert_eq!((rows[0].entered, rows[1].self_ns), (2, 1));
    }
}
