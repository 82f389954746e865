//! A timeline that is being recorded: the worst wait of a lock class, or all that CPUs do in a
//! window of time.
//!
//! A first run of a seed finds the worst wait, a second one records the window around it. Both
//! charge no virtual time and change no result. The hooks are those of [`crate::record::blame`], so
//! a run without either pays for neither.

use crate::record::stats::Stats;
use mmscale_arch::{Ipi, LockClass, LockInstance, NamedLock};
use mmscale_document::{HoldSpan, Interval, LockName, SentInterrupt, Stretch, Timeline, WaitSpan};
use std::collections::BTreeMap;

/// The part of a run's timeline to record.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum TimelineOf {
    /// Nothing.
    #[default]
    Nothing,
    /// The longest wait for a lock of a class, among those that are counted.
    Worst(LockClass),
    /// All waits, holds, call paths and interrupts in a window of virtual time.
    Window(Interval),
}

/// A wait with numbers for names.
#[derive(Clone, Copy)]
pub(crate) struct Wait {
    pub(crate) cpu: usize,
    pub(crate) from_cpu: u16,
    pub(crate) lock: NamedLock,
    pub(crate) id: u32,
    pub(crate) path: u32,
    pub(crate) at: Interval,
}

/// A hold with numbers for names.
pub(crate) struct Hold {
    pub(crate) cpu: usize,
    pub(crate) lock: NamedLock,
    pub(crate) id: u32,
    pub(crate) path: u32,
    pub(crate) at: Interval,
    pub(crate) misses: u64,
}

/// A stretch with numbers for names.
pub(crate) struct OnPath {
    pub(crate) cpu: usize,
    pub(crate) task: Option<u32>,
    pub(crate) path: u32,
    pub(crate) at: Interval,
}

/// The record of a run so far.
pub(crate) struct Recorder {
    of: TimelineOf,
    worst: Option<Wait>,
    waits: Vec<Wait>,
    holds: Vec<Hold>,
    stretches: Vec<OnPath>,
    interrupts: Vec<SentInterrupt>,
    /// The locks that each CPU holds: since when, and its misses at that time.
    open: Vec<Vec<(u64, u64)>>,
}

impl Recorder {
    /// Returns a recorder; `None` if there is nothing to record.
    pub(crate) fn new(of: TimelineOf, cpus: usize) -> Option<Box<Self>> {
        (of != TimelineOf::Nothing).then(|| {
            Box::new(Self {
                of,
                worst: None,
                waits: Vec::new(),
                holds: Vec::new(),
                stretches: Vec::new(),
                interrupts: Vec::new(),
                open: vec![Vec::new(); cpus],
            })
        })
    }
    /// Returns whether a span of time is recorded.
    fn sees(&self, at: Interval) -> bool {
        matches!(self.of, TimelineOf::Window(window) if at.within(window).is_some())
    }
    /// A wait for a lock of `class` ended; `counted`: lock statistics have it.
    pub(crate) fn waited(&mut self, wait: Wait, class: &str, counted: bool) {
        if self.sees(wait.at) {
            self.waits.push(wait);
        }
        // Of equal waits the earliest one, so that the order on the host does not matter.
        let key = |wait: &Wait| (wait.at.ps(), u64::MAX - wait.at.from_ps, usize::MAX - wait.cpu);
        let longer = self.worst.is_none_or(|worst| key(&wait) > key(&worst));
        let is_wanted = matches!(self.of, TimelineOf::Worst(of) if of.name() == class);
        if counted && longer && is_wanted {
            self.worst = Some(wait);
        }
    }
    /// A CPU leaves a call path.
    pub(crate) fn left(&mut self, stretch: OnPath) {
        if self.sees(stretch.at) {
            self.stretches.push(stretch);
        }
    }
    /// A CPU, with `misses` so far, has a lock since `since`.
    pub(crate) fn taken(&mut self, cpu: usize, since: u64, misses: u64) {
        self.open[cpu].push((since, misses));
    }
    /// A hold ended; its CPU has `hold.misses` so far.
    pub(crate) fn released(&mut self, hold: Hold) {
        let open = &mut self.open[hold.cpu];
        let place = open.iter().rposition(|&(since, _)| since == hold.at.from_ps);
        let before = place.map_or(hold.misses, |place| open.swap_remove(place).1);
        if self.sees(hold.at) {
            self.holds.push(Hold { misses: hold.misses - before, ..hold });
        }
    }
    /// An interrupt was sent.
    pub(crate) fn sent(
        &mut self,
        (from_cpu, to_cpu): (usize, usize),
        why: Option<Ipi>,
        at: Interval,
    ) {
        if self.sees(at) {
            let reason = why.map_or("reschedule", name).to_owned();
            let (from_cpu, to_cpu) = (from_cpu as u32, to_cpu as u32);
            self.interrupts.push(SentInterrupt { reason, from_cpu, to_cpu, at });
        }
    }
    /// Returns the record with names.
    pub(crate) fn into_timeline(self, stats: &Stats) -> Timeline {
        let waits = self.waits.iter().chain(&self.worst).map(|wait| (wait.lock, wait.id));
        let names = names(stats, waits.chain(self.holds.iter().map(|hold| (hold.lock, hold.id))));
        let lock = |lock: NamedLock, id| names[&(lock.class, id)].clone();
        let path = |path| stats.names(path);
        let wait = |wait: &Wait| WaitSpan {
            cpu: wait.cpu as u32,
            lock: lock(wait.lock, wait.id),
            at: wait.at,
            path: path(wait.path),
            from_cpu: u32::from(wait.from_cpu),
        };
        let hold = |hold: &Hold| HoldSpan {
            cpu: hold.cpu as u32,
            lock: lock(hold.lock, hold.id),
            at: hold.at,
            path: path(hold.path),
            misses: hold.misses,
        };
        let stretch = |on: &OnPath| Stretch {
            cpu: on.cpu as u32,
            task: on.task,
            at: on.at,
            path: path(on.path),
        };
        let mut timeline = Timeline {
            worst: self.worst.as_ref().map(wait),
            waits: self.waits.iter().map(wait).collect(),
            holds: self.holds.iter().map(hold).collect(),
            stretches: self.stretches.iter().map(stretch).collect(),
            interrupts: self.interrupts,
        };
        timeline.waits.sort_by_key(|wait| (wait.cpu, wait.at));
        timeline.holds.sort_by_key(|hold| (hold.cpu, hold.at));
        timeline.stretches.sort_by_key(|stretch| (stretch.cpu, stretch.at));
        timeline.interrupts.sort_by_key(|sent| (sent.at, sent.from_cpu, sent.to_cpu));
        timeline
    }
}

/// Names locks: those without a name by their number among such locks of the class.
fn names(
    stats: &Stats,
    locks: impl Iterator<Item = (NamedLock, u32)>,
) -> BTreeMap<(LockClass, u32), LockName> {
    let locks: BTreeMap<_, _> = locks.map(|(lock, id)| ((lock.class, id), lock)).collect();
    let mut next = BTreeMap::<LockClass, u32>::new();
    let name = |(key, lock): (_, NamedLock)| {
        let mut named = stats.lock_name(lock);
        if lock.instance == LockInstance::Unnamed {
            let next = next.entry(lock.class).or_default();
            named.name = format!("{lock} #{next}");
            *next += 1;
        }
        (key, named)
    };
    locks.into_iter().map(name).collect()
}

const fn name(reason: Ipi) -> &'static str {
    match reason {
        Ipi::CallFunction => "call function",
        Ipi::RcuExpedited => "expedited grace period",
        Ipi::Timer => "timer",
        Ipi::Block => "swap device",
        Ipi::DrainPages => "drain page caches",
    }
}
