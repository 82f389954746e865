//! Blame: for every wait for a spin lock, what its holders did meanwhile.
//!
//! # The simple version
//! A wait lasts from a request to the grant. In that time other CPUs held the lock one after
//! another, and between two of them the lock was handed over. So a wait is a sum of stretches of
//! the holders' work and of handovers. Each stretch has the call path on which its holder was.
//!
//! # The real one
//! A holder may wait itself, for a lock that it takes inside. Such a stretch is followed through:
//! it is blamed on the holders of that other lock, and names it ([`BlameRow::through`]). A holder's
//! log starts when it takes its outermost lock; each change of the call path ends a stretch. When
//! the lock is released, the stretches since it was taken become a *hold* in the lock's history.
//! When a waiter gets the lock, the holds since its request are its wait. All of them have ended
//! then, because locks are handed over in the order of requests.
//!
//! ```text
//! CPU 0  |-- zone ------------------|           free_pcppages_bulk
//! CPU 1        |- waits ............|h|--|      10 of zone: CPU 0; 2: handover
//! CPU 2     |- lru_lock, waits ......................|h|--|   held by CPU 3, which waits
//! CPU 3  |-- lru_lock --|- waits for zone ..|h|--|-- |        for zone: through zone
//! ```
//!
//! Misses are stretches of their own, by the distance of the line. An interrupt in the middle of
//! one counts as coming after it.
//!
//! Interrupts that a CPU handles while it waits count as part of its wait. Nothing of this charges
//! virtual time or changes a result; a run records it only if it asks for it
//! ([`crate::SimConfig::blame`]).

use crate::record::names::Class;
use crate::record::sections::Waited;
use crate::record::stats::{ROOT_PATH, Stats};
use mmscale_arch::NamedLock;
use mmscale_document::{BlameRow, BlameRows, Doing, LockName, NamedLockRow};
use std::collections::{BTreeMap, VecDeque};

/// A holder that is blamed, with the number of its call path.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Culprit {
    path: u32,
    doing: Doing,
    through: Option<Class>,
}

impl Culprit {
    const fn works_on(path: u32) -> Self {
        Self { path, doing: Doing::Work, through: None }
    }
    const HANDOVER: Self = Self { path: ROOT_PATH, doing: Doing::Handover, through: None };

    /// Returns it for a CPU that waits behind it for a lock of `class`.
    fn through(self, class: Class) -> Self {
        Self { through: Some(class), ..self }
    }
}

/// A part of a hold, in ps.
#[derive(Clone, Copy)]
struct Stretch {
    from: u64,
    to: u64,
    culprit: Culprit,
}

/// A sum by culprit. There are few, so that a search is short.
#[derive(Clone, Default)]
struct Sums(Vec<(Culprit, u64)>);

impl Sums {
    fn add(&mut self, culprit: Culprit, ps: u64) {
        if ps == 0 {
            return;
        }
        match self.0.iter_mut().find(|(known, _)| *known == culprit) {
            Some((_, sum)) => *sum += ps,
            None => self.0.push((culprit, ps)),
        }
    }
}

/// The stretches of a CPU since it took its outermost lock.
#[derive(Clone, Default)]
struct Log {
    stretches: Vec<Stretch>,
    /// Until when it is complete, in ps.
    until: u64,
    /// Locks that the CPU holds.
    held: u32,
    /// Queues in which it waits: that of a task, and that of an interrupt on top of it.
    waiting: u32,
}

impl Log {
    /// Ends a stretch at `to`.
    fn end(&mut self, to: u64, culprit: Culprit) {
        if self.held > 0 && to > self.until {
            self.stretches.push(Stretch { from: self.until, to, culprit });
        }
        self.until = self.until.max(to);
    }
    /// The CPU takes a lock at `since`.
    fn take(&mut self, since: u64) {
        if self.held == 0 {
            self.stretches.clear();
            self.until = since;
        }
        self.held += 1;
    }
}

/// One hold of a lock, complete: its stretches are without gaps.
struct Hold {
    from: u64,
    to: u64,
    stretches: Vec<Stretch>,
    sums: Sums,
}

/// The holds of a lock since the request of the first CPU in its queue, and the one before that.
type History = VecDeque<Hold>;

/// Calls `add` with each stretch of the holds between `arrived` and `grant`, handovers included.
fn each_stretch(
    history: &History,
    (arrived, grant): (u64, u64),
    mut add: impl FnMut(u64, u64, Culprit),
) {
    let mut at = arrived;
    for hold in history.iter().filter(|hold| hold.to > arrived) {
        if hold.from > at {
            add(at, hold.from, Culprit::HANDOVER);
        }
        for stretch in hold.stretches.iter().filter(|stretch| stretch.to > arrived) {
            add(stretch.from.max(arrived), stretch.to, stretch.culprit);
        }
        at = hold.to;
    }
    if grant > at {
        add(at, grant, Culprit::HANDOVER);
    }
}

/// Adds the holds between `arrived` and `grant` to `sums`, whole ones by their sums.
fn sum_holds(history: &History, (arrived, grant): (u64, u64), sums: &mut Sums) {
    let first_whole = history.partition_point(|hold| hold.from < arrived);
    let mut at = arrived;
    if let Some(part) = history.range(..first_whole).next_back().filter(|part| part.to > arrived) {
        for stretch in part.stretches.iter().filter(|stretch| stretch.to > arrived) {
            sums.add(stretch.culprit, stretch.to - stretch.from.max(arrived));
        }
        at = part.to;
    }
    let mut handover_ps = 0;
    for hold in history.range(first_whole..) {
        handover_ps += hold.from - at;
        hold.sums.0.iter().for_each(|&(culprit, ps)| sums.add(culprit, ps));
        at = hold.to;
    }
    sums.add(Culprit::HANDOVER, handover_ps + grant - at);
}

/// The waits for one lock that one row of statistics counts.
#[derive(Clone, Copy, Default)]
struct Waits {
    count: u64,
    ps: u64,
}

/// A lock that was waited for.
#[derive(Clone, Copy)]
pub(crate) struct Asked {
    /// Its number.
    pub(crate) id: u32,
    pub(crate) lock: NamedLock,
    pub(crate) class: Class,
    /// The row of lock statistics that counts the wait.
    pub(crate) row: u32,
}

/// Returns the sums of a class.
fn sums_of(of_row: &mut Vec<(Class, Sums)>, class: Class) -> &mut Sums {
    let known = of_row.iter().position(|(known, _)| *known == class);
    let at = known.unwrap_or_else(|| {
        of_row.push((class, Sums::default()));
        of_row.len() - 1
    });
    &mut of_row[at].1
}

/// The record of a run so far.
#[derive(Default)]
pub(crate) struct Blame {
    /// By CPU.
    logs: Vec<Log>,
    /// By the lock's number.
    histories: Vec<History>,
    /// By the row of lock statistics that counts the waits: of each class of locks.
    by_row: Vec<Vec<(Class, Sums)>>,
    /// The waits, by row and by lock.
    by_lock: BTreeMap<(u32, NamedLock), Waits>,
}

impl Blame {
    pub(crate) fn new(cpus: usize) -> Self {
        Self { logs: vec![Log::default(); cpus], ..Self::default() }
    }
    fn history(&mut self, id: u32) -> &mut History {
        let at = id as usize;
        if at >= self.histories.len() {
            self.histories.resize_with(at + 1, History::new);
        }
        &mut self.histories[at]
    }
    /// Ends a stretch of CPU `at` on `path`.
    pub(crate) fn end_stretch(&mut self, at: usize, now: u64, path: u32) {
        let log = &mut self.logs[at];
        if log.waiting == 0 {
            log.end(now, Culprit::works_on(path));
        }
    }
    /// Ends a stretch of CPU `at` on `path`, and a loss of `ps` after it.
    pub(crate) fn lost(&mut self, at: usize, (now, path): (u64, u32), what: Waited, ps: u64) {
        self.end_stretch(at, now - ps, path);
        let doing = if what == Waited::Stolen { Doing::Stolen } else { Doing::Handler };
        let log = &mut self.logs[at];
        if log.waiting == 0 {
            log.end(now, Culprit { path, doing, through: None });
        }
    }
    /// CPU `at`, on `path` until `now`, waits for a cache line in the `ps` that follow.
    pub(crate) fn missed(&mut self, at: usize, (now, path): (u64, u32), doing: Doing, ps: u64) {
        self.end_stretch(at, now, path);
        let log = &mut self.logs[at];
        if log.waiting == 0 {
            log.end(now + ps, Culprit { path, doing, through: None });
        }
    }
    /// CPU `at` has a lock since `since`.
    pub(crate) fn taken(&mut self, at: usize, since: u64) {
        self.logs[at].take(since);
    }
    /// CPU `at` joins a queue.
    pub(crate) fn queued(&mut self, at: usize) {
        self.logs[at].waiting += 1;
    }
    /// CPU `at` leaves a queue, with the lock or without it.
    pub(crate) fn left_queue(&mut self, at: usize) {
        self.logs[at].waiting -= 1;
    }
    /// CPU `at` releases lock `id`, whose first waiter asked for it at `oldest`. Returns whether it
    /// still holds others.
    pub(crate) fn released(
        &mut self,
        (at, id): (usize, u32),
        (from, to): (u64, u64),
        oldest: u64,
    ) -> bool {
        let log = &mut self.logs[at];
        let mine = log.stretches.iter().filter(|stretch| stretch.to > from);
        let stretches =
            mine.map(|part| Stretch { from: part.from.max(from), to: part.to.min(to), ..*part });
        let stretches: Vec<_> = stretches.filter(|part| part.to > part.from).collect();
        let mut sums = Sums::default();
        stretches.iter().for_each(|part| sums.add(part.culprit, part.to - part.from));
        log.held = log.held.saturating_sub(1);
        let holds_others = log.held > 0;
        let history = self.history(id);
        while history.front().is_some_and(|hold| hold.to <= oldest) {
            history.pop_front();
        }
        history.push_back(Hold { from, to, stretches, sums });
        holds_others
    }
    /// A wait of CPU `to` for a lock ends with its grant.
    pub(crate) fn granted(&mut self, asked: Asked, to: usize, wait: (u64, u64)) {
        let Asked { id, lock, class, row } = asked;
        if row as usize >= self.by_row.len() {
            self.by_row.resize_with(row as usize + 1, Vec::new);
        }
        self.history(id);
        let history = &self.histories[id as usize];
        sum_holds(history, wait, sums_of(&mut self.by_row[row as usize], class));
        let waits = self.by_lock.entry((row, lock)).or_default();
        waits.count += 1;
        waits.ps += wait.1 - wait.0;
        let log = &mut self.logs[to];
        if log.held > 0 && log.waiting == 0 {
            let from = log.until;
            each_stretch(history, (from.max(wait.0), wait.1), |_, to, culprit| {
                log.end(to, culprit.through(class));
            });
        }
        log.take(wait.1);
    }
    /// Returns the waits that are counted.
    pub(crate) fn into_rows(self, stats: &Stats) -> BlameRows {
        BlameRows { locks: self.lock_rows(stats), shares: self.shares(stats) }
    }
    /// Returns the waits by lock, in the order of classes and instances.
    fn lock_rows(&self, stats: &Stats) -> Vec<NamedLockRow> {
        let mut sums = BTreeMap::<_, Waits>::new();
        for (&(row, lock), waits) in &self.by_lock {
            if stats.class_and_path(row).is_some() && stats.reports(stats.class_of(lock)) {
                let sum = sums.entry(lock).or_default();
                sum.count += waits.count;
                sum.ps += waits.ps;
            }
        }
        let row = |(lock, waits): (NamedLock, Waits)| {
            let LockName { class, name } = stats.lock_name(lock);
            NamedLockRow { class, lock: name, waits: waits.count, wait_ps: waits.ps }
        };
        sums.into_iter().map(row).collect()
    }
    /// Returns the shares, sorted by lock class, waiter and holder: numbers of paths depend on the
    /// order of their first use.
    fn shares(self, stats: &Stats) -> Vec<BlameRow> {
        let mut rows = Vec::new();
        for (row, sums) in self.by_row.iter().enumerate() {
            let Some((_, waiter)) = stats.class_and_path(row as u32) else { continue };
            let reported = sums.iter().filter(|(class, _)| stats.reports(*class));
            let of_class =
                reported.flat_map(|(class, sums)| sums.0.iter().map(|sum| (*class, *sum)));
            for (class, (culprit, wait_ps)) in of_class {
                let handover = culprit.doing == Doing::Handover;
                rows.push(BlameRow {
                    class: stats.class_name(class).to_owned(),
                    waiter: stats.names(waiter),
                    holder: if handover { Vec::new() } else { stats.names(culprit.path) },
                    doing: culprit.doing,
                    through: culprit.through.map(|class| stats.class_name(class).to_owned()),
                    wait_ps,
                });
            }
        }
        rows.sort_by(|a, b| key(a).cmp(&key(b)));
        rows
    }
}

/// The order of rows.
fn key(row: &BlameRow) -> impl Ord + '_ {
    (&row.class, row.doing, &row.through, &row.waiter, &row.holder)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hold(from: u64, to: u64, path: u32) -> Hold {
        let culprit = Culprit::works_on(path);
        let stretches = vec![Stretch { from, to, culprit }];
        Hold { from, to, stretches, sums: Sums(vec![(culprit, to - from)]) }
    }

    #[test]
    fn a_wait_is_the_sum_of_holds_and_handovers() {
        let history = History::from([hold(10, 50, 2), hold(60, 100, 3), hold(110, 120, 2)]);
        let of = |wait| {
            let (mut sums, mut slow) = (Sums::default(), Sums::default());
            sum_holds(&history, wait, &mut sums);
            each_stretch(&history, wait, |from, to, culprit| slow.add(culprit, to - from));
            let mut found: Vec<_> =
                sums.0.iter().map(|(who, ps)| (who.path, who.doing, *ps)).collect();
            let mut other: Vec<_> =
                slow.0.iter().map(|(who, ps)| (who.path, who.doing, *ps)).collect();
            found.sort_unstable();
            other.sort_unstable();
            assert_eq!(found, other);
            assert_eq!(found.iter().map(|(.., ps)| ps).sum::<u64>(), wait.1 - wait.0);
            found
        };
        let handover = |ps| (ROOT_PATH, Doing::Handover, ps);
        let work = |path, ps| (path, Doing::Work, ps);
        // From the middle of the first hold; from a handover; after all of them.
        assert_eq!(of((30, 125)), [handover(25), work(2, 30), work(3, 40)]);
        assert_eq!(of((55, 130)), [handover(25), work(2, 10), work(3, 40)]);
        assert_eq!(of((121, 125)), [handover(4)]);
    }
}
