//! The figures of a trace.

use std::collections::BTreeMap;

use mmscale_document::{LockKind, MeasuredWait, lock_of};

use super::Stream;
use super::line::Kind;
use super::spread::Lengths;
use crate::table::{Table, UNKNOWN_CLASS};

/// Waits for locks of one class, with their distribution.
#[derive(Clone, PartialEq, Debug)]
pub struct Spread {
    /// The class, or [`UNKNOWN_CLASS`] without call paths.
    pub class: String,
    /// The kind of the locks: `spinlock`, `rwsem:W`.
    pub kind: String,
    /// Number of waits.
    pub waits: u64,
    /// The sum of all waits, in ns.
    pub total_ns: u64,
    /// The lengths that 50 %, 90 % and 99 % of the waits do not exceed, in ns, to 1/64.
    pub quantiles_ns: [u64; 3],
    /// The longest wait, in ns.
    pub max_ns: u64,
}

impl Spread {
    fn of(class: &str, kind: &str, lengths: &Lengths) -> Self {
        Self {
            class: class.to_owned(),
            kind: kind.to_owned(),
            waits: lengths.waits,
            total_ns: lengths.total_ns,
            quantiles_ns: [0.5, 0.9, 0.99].map(|part| lengths.quantile_ns(part)),
            max_ns: lengths.max_ns,
        }
    }
}

/// Waits for one lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LockSum {
    /// Number of waits.
    pub waits: u64,
    /// The sum of all waits, in ns.
    pub total_ns: u64,
    /// The longest wait, in ns.
    pub max_ns: u64,
    /// The most tasks that waited together.
    pub most: usize,
}

impl LockSum {
    pub(super) fn add(&mut self, wait_ns: u64, most: usize) {
        self.waits += 1;
        self.total_ns = self.total_ns.saturating_add(wait_ns);
        self.max_ns = self.max_ns.max(wait_ns);
        self.most = self.most.max(most);
    }
}

/// Numbers of tasks that wait for one lock together.
#[derive(Clone, PartialEq, Debug)]
pub struct Herd {
    /// The most tasks that waited together for one lock.
    pub most: usize,
    /// The address of that lock.
    pub lock: u64,
    /// When that was, in ns since the first event.
    pub at_ns: u64,
    /// Shares of the waited time by the number of tasks that wait together: the smallest number
    /// of each class (1, 2, 4, ..), and its share.
    pub shares: Vec<(usize, f64)>,
    /// The length of the stretches of [`Herd::in_time`], in ns.
    pub stretch_ns: u64,
    /// How many tasks waited on average, stretch by stretch.
    pub in_time: Vec<f64>,
}

/// The figures of a trace.
#[derive(Clone, PartialEq, Debug)]
pub struct Contention {
    /// Waits by call path, or by the address of the lock if the trace has no stacks.
    pub table: Table,
    /// Distributions by lock class, the class with the longest total first.
    pub spreads: Vec<Spread>,
    /// Locks by address with their kind, that with the longest total first.
    pub locks: Vec<(u64, String, LockSum)>,
    /// Kinds of tasks, and how often one began to wait for a lock for which the other waited.
    pub together: Vec<(String, String, u64)>,
    /// Kinds of tasks, and how often one released a lock for which others waited.
    pub released: Vec<(String, u64)>,
    /// The herds; `None` if no task waited.
    pub herd: Option<Herd>,
    /// Acquisitions of zone->lock: those without a wait, and the distribution of the others.
    pub zone: Option<(u64, Spread)>,
    /// Number of events.
    pub events: u64,
}

/// Stretches of time that are shown.
const STRETCHES: usize = 16;
/// Rows of a table without call paths.
const ROWS: usize = 256;

/// Summarises a stream that has ended.
pub(super) fn of(stream: &Stream) -> Contention {
    let has_paths = stream.sums.keys().any(|(path, _)| *path != 0);
    let mut classes: BTreeMap<(String, String), Lengths> = BTreeMap::new();
    let mut waits = Vec::new();
    for ((path, kind), lengths) in &stream.sums {
        let path = stream.paths.value(*path);
        let (class, lock) = lock(path, *kind);
        classes.entry((class.to_owned(), kind.word())).or_default().merge(lengths);
        if has_paths {
            let path = path.clone();
            waits.push(MeasuredWait { path, lock, ..wait(class, *kind, lengths.into()) });
        }
    }
    let mut locks: Vec<(u64, Kind, LockSum)> =
        stream.locks.iter().map(|((lock, kind), sum)| (*lock, *kind, *sum)).collect();
    locks.sort_by_key(|(lock, kind, sum)| (std::cmp::Reverse(sum.total_ns), *lock, *kind));
    if !has_paths {
        waits.extend(by_address(stream, &locks));
    }
    let zone = zone(stream);
    if waits.is_empty() {
        waits.extend(stream.zones.iter().map(|(path, lengths)| MeasuredWait {
            path: stream.paths.value(*path).clone(),
            kind: Some("spinlock".to_owned()),
            ..wait("zone", Kind::default(), lengths.into())
        }));
    }
    let mut spreads: Vec<Spread> =
        classes.iter().map(|((class, kind), of)| Spread::of(class, kind, of)).collect();
    spreads.sort_by_key(|of| (std::cmp::Reverse(of.total_ns), of.class.clone(), of.kind.clone()));
    let group = |number: u32| match number {
        0 => "others".to_owned(),
        number => stream.groups.value(number).clone(),
    };
    let pair = |((a, b), count): (&(u32, u32), &u64)| {
        let (a, b) = (group(*a), group(*b));
        if a <= b { (a, b, *count) } else { (b, a, *count) }
    };
    let mut together: Vec<(String, String, u64)> = stream.together.iter().map(pair).collect();
    together.sort_by(|a, b| b.2.cmp(&a.2).then_with(|| (&a.0, &a.1).cmp(&(&b.0, &b.1))));
    let mut released: Vec<(String, u64)> =
        stream.released.iter().map(|(of, count)| (group(*of), *count)).collect();
    released.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    let herd = stream.herds.most.map(|(most, lock, ns)| {
        let (stretch_ns, in_time) = stream.herds.in_time(stream.end_ns, STRETCHES);
        let at_ns = ns.saturating_sub(stream.herds.start_ns());
        Herd { most, lock, at_ns, shares: stream.herds.shares(), stretch_ns, in_time }
    });
    let window_ns = stream.end_ns.saturating_sub(stream.herds.start_ns());
    let table = Table {
        tool: "events of contention".to_owned(),
        lines: (1, stream.lines),
        waits,
        window_ns: (window_ns > 0 && stream.herds.most.is_some()).then_some(window_ns),
        notes: notes(stream, has_paths),
        end: stream.lines,
        ..Table::default()
    };
    let locks = locks.into_iter().map(|(lock, kind, sum)| (lock, kind.word(), sum)).collect();
    let events = stream.events;
    Contention { table, spreads, locks, together, released, herd, zone, events }
}

/// Returns the rows of a trace without call paths: a lock each, and one for all that have no room.
fn by_address(stream: &Stream, locks: &[(u64, Kind, LockSum)]) -> Vec<MeasuredWait> {
    let row = |(lock, kind, sum): &(u64, Kind, LockSum)| MeasuredWait {
        lock: Some(format!("0x{lock:x}")),
        ..wait(UNKNOWN_CLASS, *kind, *sum)
    };
    let rest = locks.iter().skip(ROWS).map(|(.., sum)| *sum).chain([stream.other_locks]);
    let rest = rest.fold(LockSum::default(), |all, sum| LockSum {
        waits: all.waits + sum.waits,
        total_ns: all.total_ns.saturating_add(sum.total_ns),
        max_ns: all.max_ns.max(sum.max_ns),
        most: all.most.max(sum.most),
    });
    let rest = Some(rest).filter(|rest| rest.waits > 0);
    let rest =
        rest.map(|rest| MeasuredWait { kind: None, ..wait(UNKNOWN_CLASS, Kind::default(), rest) });
    locks.iter().take(ROWS).map(row).chain(rest).collect()
}

/// Returns the class of the lock that a path takes, and a name if no class has it.
fn lock(path: &[String], kind: Kind) -> (&'static str, Option<String>) {
    let class = match (path.is_empty(), kind.lock_kind()) {
        (true, LockKind::Mutex) => "mutex",
        (true, LockKind::PercpuRwsem) => "percpu_rwsem",
        (true, LockKind::Rwsem) => "rwsem",
        (true, _) => UNKNOWN_CLASS,
        (false, kind) => return lock_of(path, kind, None),
    };
    (class, None)
}

fn wait(class: &str, kind: Kind, sum: LockSum) -> MeasuredWait {
    MeasuredWait {
        class: class.to_owned(),
        kind: Some(kind.word()),
        contentions: Some(sum.waits),
        wait_total_ns: Some(sum.total_ns),
        wait_max_ns: Some(sum.max_ns),
        ..MeasuredWait::default()
    }
}

impl From<&Lengths> for LockSum {
    fn from(of: &Lengths) -> Self {
        let Lengths { waits, total_ns, max_ns, .. } = *of;
        Self { waits, total_ns, max_ns, most: 0 }
    }
}

fn zone(stream: &Stream) -> Option<(u64, Spread)> {
    let mut all = Lengths::default();
    stream.zones.values().for_each(|lengths| all.merge(lengths));
    let seen = stream.zone_free + all.waits;
    (seen > 0).then(|| (stream.zone_free, Spread::of("zone", "spinlock", &all)))
}

fn notes(stream: &Stream, has_paths: bool) -> Vec<String> {
    let mut notes = Vec::new();
    let mut say = |count: u64, what: &str| {
        if count > 0 {
            notes.push(format!("{count} {what}"));
        }
    };
    say(stream.lost, "events were lost: there were more waits than these");
    say(stream.begun_before, "waits began before the trace, and are not counted");
    say(stream.open_waits as u64, "waits have no end in the trace, and are not counted");
    say(stream.restarted, "waits begin again without an end, and are not counted");
    say(stream.backwards, "events are earlier than the one before them: sort the trace by time");
    say(stream.broken, "waits are times below zero without their sign, and are not counted");
    say(stream.paths.left_out, "waits are on call paths beyond the limit, and count as unknown");
    say(stream.other_locks.waits, "waits are for locks beyond the limit, which have one row");
    if !has_paths && !stream.sums.is_empty() {
        notes.push(
            "the trace has no call paths, so that the locks have addresses only: perf record -g -e \
             lock:contention_begin -e lock:contention_end, or trace-cmd record -T"
                .to_owned(),
        );
    }
    notes
}
