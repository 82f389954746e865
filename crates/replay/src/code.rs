//! Operations in the form in which they are played: which lock a step takes and which row counts
//! it, at which pace its instructions run. All CPUs that play a recorded CPU share them.

use crate::check::length_of;
use crate::place::Recorded;
use mmscale_lift::{
    Answer, AnswerId, Call, Event, Growth, LineId, Lock, LockId, LockKind, Operation, Recording,
    Share, SiteId, Ticks, What, is_many,
};
use mmscale_sim::Pace;
use std::collections::{BTreeMap, BTreeSet};

/// The operations of a recording.
pub(crate) struct Code {
    pub(crate) recorded: Recorded,
    /// The operations of each recorded CPU.
    pub(crate) cpus: Vec<Vec<Played>>,
    /// All lines and locks, by their numbers.
    pub(crate) lines: Vec<CodeLine>,
    pub(crate) locks: Vec<CodeLock>,
    /// All calls of other CPUs and what these do then, by their numbers.
    pub(crate) calls: Vec<CodeCall>,
    pub(crate) answers: Vec<CodeAnswer>,
    pub(crate) ticks: Option<CodeTicks>,
    /// How places grow with the number of CPUs.
    pub(crate) growth: Option<Growth>,
    /// Names to count by: of lines, of locks with the path that takes them, paths.
    pub(crate) line_names: Vec<String>,
    pub(crate) lock_rows: Vec<LockName>,
    pub(crate) paths: Vec<Vec<String>>,
}

/// The rounds of each recorded CPU that are replayed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Rounds {
    All,
    /// Every second one, beginning with round 0 or 1.
    Half(usize),
}

impl Rounds {
    /// Returns these rounds of a CPU. A CPU with one round keeps it.
    pub(crate) fn of<T>(self, all: &[T]) -> Vec<&T> {
        match self {
            Self::Half(first) if all.len() > 1 => all.iter().skip(first).step_by(2).collect(),
            Self::Half(_) | Self::All => all.iter().collect(),
        }
    }
}

/// An operation.
pub(crate) struct Played {
    /// Operations that the script counted.
    pub(crate) count: u64,
    pub(crate) steps: Box<[Step]>,
    /// Steps at which the CPU holds no lock and waits for no call, of rounds with many operations.
    pub(crate) starts: Box<[u32]>,
}

/// Operations of a round from which on it is so long that CPUs begin within it.
pub const LONG: u64 = 64;
/// Of steps at which a CPU could begin, one of so many is kept.
const START_EVERY: usize = 32;

impl Played {
    /// Returns the part of the operations that is after a step.
    pub(crate) fn count_from(&self, step: usize) -> u64 {
        let instructions =
            |steps: &[Step]| -> u64 { steps.iter().map(|step| u64::from(step.instructions)).sum() };
        let all = instructions(&self.steps).max(1);
        (u128::from(self.count) * u128::from(instructions(&self.steps[step..])) / u128::from(all))
            as u64
    }
}

/// Instructions, and what follows them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Step {
    pub(crate) instructions: u32,
    pub(crate) pace: Pace,
    pub(crate) act: Act,
    /// The index of the path that the time counts for.
    pub(crate) path: u32,
    /// The number of the place that grows with the number of CPUs, plus 1; 0 for others.
    pub(crate) grows: u32,
}

/// A step behind instructions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Act {
    /// Nothing that other CPUs see.
    Nothing,
    Read(LineId),
    Write(LineId),
    Atomic(LineId),
    /// A lock is taken, which the row counts.
    Acquire {
        lock: LockId,
        row: u32,
        shared: bool,
        /// Whether it is left out if it is held.
        tried: bool,
    },
    Release(LockId),
    Downgrade(LockId),
    /// Memory of this many bytes is cleared.
    Clear(u32),
    /// Memory of this many bytes is copied.
    Copy(u32),
    /// Other CPUs are called: the number of the call.
    Call(u32),
    /// The CPU waits until those that it has called have answered.
    Wait,
}

/// Which CPUs of a larger machine a call is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Scope {
    /// Those of the caller's group.
    Group,
    /// Those of its node.
    Node,
    All,
}

/// A call of other CPUs.
pub(crate) struct CodeCall {
    /// Whether CPUs without a task are left out.
    pub(crate) skips_idle: bool,
    pub(crate) scope: Scope,
    /// The recorded CPU that calls.
    pub(crate) sender: usize,
    /// The called recorded CPUs, sorted, with their answers.
    pub(crate) receivers: Vec<(usize, u32)>,
}

/// The work of a called CPU.
pub(crate) struct CodeAnswer {
    pub(crate) steps: Box<[AnswerStep]>,
    /// Steps after which the caller goes on.
    pub(crate) until_done: usize,
}

/// Parts of a batch of RCU callbacks.
pub(crate) const BATCH_PARTS: u64 = 1 << 20;

/// Interrupts of timers: the answers that are ticks, and batches of RCU callbacks, of each CPU.
pub(crate) struct CodeTicks {
    pub(crate) ticks: Vec<Vec<u32>>,
    pub(crate) callbacks: Vec<Vec<u32>>,
    /// Batches of a round, in [`BATCH_PARTS`].
    pub(crate) batches: u64,
}

impl CodeTicks {
    fn of(of: &Ticks) -> Self {
        let numbers = |all: &[Vec<AnswerId>]| -> Vec<Vec<u32>> {
            all.iter().map(|of_cpu| of_cpu.iter().map(|answer| answer.0).collect()).collect()
        };
        let batches = (of.batches * BATCH_PARTS as f64).round() as u64;
        Self { ticks: numbers(&of.ticks), callbacks: numbers(&of.callbacks), batches }
    }
}

/// A step of an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct AnswerStep {
    pub(crate) step: Step,
    /// Whether its line is one of the CPU that calls.
    pub(crate) is_of_sender: bool,
}

/// A line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CodeLine {
    pub(crate) share: Share,
    /// Whether it is data of a CPU for the CPUs that it calls: it has some for each group of them.
    pub(crate) by_called: bool,
    /// Whether each CPU has one: a larger machine has more of them.
    pub(crate) is_of_each: bool,
    /// The index of its name.
    pub(crate) name: u32,
}

/// A lock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CodeLock {
    pub(crate) share: Share,
    pub(crate) kind: LockKind,
    /// The index of the name of its word among those of lines: its class.
    pub(crate) name: u32,
    /// Which of the class it is, if CPUs of one recorded node use several that are shared so.
    pub(crate) number: Option<u32>,
}

/// A lock, and the path that takes it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct LockName {
    pub(crate) class: String,
    pub(crate) path: Vec<String>,
    pub(crate) sleeps: bool,
}

/// The path of the instructions after the last event of an operation.
const REST: &str = "(after the last event)";
/// The name of a function that is not known.
const UNKNOWN: &str = "?";
/// That of an interrupt of a call.
const REST_OF_ANSWER: &str = "(end of a call's interrupt)";

/// Numbers in the order of first use.
struct Numbers<K>(BTreeMap<K, u32>);

impl<K: Ord + Clone> Numbers<K> {
    fn new() -> Self {
        Self(BTreeMap::new())
    }
    fn of(&mut self, key: K) -> u32 {
        let next = self.0.len() as u32;
        *self.0.entry(key).or_insert(next)
    }
    /// Returns all keys by their numbers.
    fn keys(self) -> Vec<K> {
        let mut all: Vec<(u32, K)> =
            self.0.into_iter().map(|(key, number)| (number, key)).collect();
        all.sort_by_key(|(number, _)| *number);
        all.into_iter().map(|(_, key)| key).collect()
    }
}

/// A recording whose operations are translated.
struct Translation<'a> {
    recording: &'a Recording,
    locks: Numbers<LockName>,
    /// The row of each class, path and kind that was seen; class and kind by a lock of them.
    rows: BTreeMap<(LockId, SiteId), u32>,
    paths: Numbers<Vec<String>>,
    sites: BTreeMap<SiteId, u32>,
    /// Places that grow, by their numbers plus 1.
    grows: BTreeMap<SiteId, u32>,
}

impl Code {
    /// Translates a recording that was checked.
    pub(crate) fn of(recording: &Recording) -> Self {
        let mut names = Numbers::new();
        let each = recording.growth.iter().flat_map(|growth| &growth.each);
        let each: BTreeSet<&LineId> = each.collect();
        let used = Used::of(recording);
        let called = used.of_senders(recording);
        let lines = recording.lines.iter();
        let lines = lines
            .enumerate()
            .map(|(at, line)| {
                let at = LineId(at as u32);
                CodeLine {
                    share: line.share,
                    by_called: line.share == Share::Few && called.contains(&at.0),
                    is_of_each: each.contains(&at),
                    name: names.of(line.object.clone()),
                }
            })
            .collect();
        let locks = recording.locks.iter().zip(numbers_of_locks(recording));
        let locks = locks
            .map(|(lock, number)| {
                let name = names.of(lock.class.clone());
                CodeLock { share: lock.share, kind: lock.kind, name, number }
            })
            .collect();
        let places = recording.growth.iter().flat_map(|growth| &growth.places).enumerate();
        let mut translation = Translation {
            recording,
            locks: Numbers::new(),
            rows: BTreeMap::new(),
            paths: Numbers::new(),
            sites: BTreeMap::new(),
            grows: places.map(|(at, of)| (of.site, at as u32 + 1)).collect(),
        };
        let cpus = recording.cpus.iter();
        let cpus = cpus
            .map(|operations| operations.iter().map(|of| translation.operation(of)).collect())
            .collect();
        let answers = recording.answers.iter();
        let answers = answers.map(|of| translation.answer(of, &used)).collect();
        let calls = recording.calls.iter();
        let calls = calls.map(|of| call(of, recording)).collect();
        Self {
            recorded: Recorded::of(recording),
            cpus,
            lines,
            locks,
            calls,
            answers,
            ticks: recording.ticks.as_ref().map(CodeTicks::of),
            growth: recording.growth.clone(),
            line_names: names.keys(),
            lock_rows: translation.locks.keys(),
            paths: translation.paths.keys(),
        }
    }
}

impl Translation<'_> {
    fn operation(&mut self, of: &mmscale_lift::Operation) -> Played {
        let mut held: Vec<LockId> = Vec::new();
        // The places that took locks last: a release counts for them if its own is not known.
        let mut taken: BTreeMap<LockId, SiteId> = BTreeMap::new();
        let mut steps: Vec<Step> = Vec::with_capacity(of.events.len() + 1);
        let (mut executed, mut is_called) = (0, false);
        let mut starts: Vec<u32> = Vec::new();
        for event in &of.events {
            let (pace, lock) = (self.pace(&held), LockId(event.target));
            let act = self.act(event, &mut held);
            executed += u64::from(event.after);
            let path = self.path(event.site);
            let grows = self.grows.get(&event.site).copied().unwrap_or(0);
            push(&mut steps, Step { instructions: event.after, pace, act, path, grows });
            let holder = match event.what {
                What::Acquire | What::AcquireShared => {
                    taken.insert(lock, event.site);
                    None
                }
                // Which function releases a lock is not recorded.
                What::Release if self.recording.function_at(event.site) == UNKNOWN => {
                    taken.get(&lock).copied()
                }
                _ => None,
            };
            if let Some((step, site)) = steps.last_mut().zip(holder) {
                step.path = self.path(site);
            }
            is_called = (is_called || matches!(act, Act::Call(_))) && act != Act::Wait;
            // What follows instructions alone becomes one step with them.
            if held.is_empty() && !is_called && act != Act::Nothing {
                starts.push(steps.len() as u32);
            }
        }
        let rest = (length_of(of) - executed) as u32;
        let path = self.paths.of(vec![REST.to_owned()]);
        let (pace, act) = (Pace::Usual, Act::Nothing);
        push(&mut steps, Step { instructions: rest, pace, act, path, grows: 0 });
        let starts = starts.into_iter().step_by(START_EVERY).filter(|_| of.count >= LONG);
        Played { count: of.count, steps: steps.into(), starts: starts.collect() }
    }
    fn answer(&mut self, of: &Answer, used: &Used) -> CodeAnswer {
        let mut steps: Vec<AnswerStep> = Vec::with_capacity(of.events.len() + 1);
        let mut executed = 0;
        for event in &of.events {
            let act = self.act(event, &mut Vec::new());
            executed += u64::from(event.after);
            let (pace, path) = (Pace::Usual, self.path(event.site));
            let step = Step { instructions: event.after, pace, act, path, grows: 0 };
            let is_of_sender = used.is_of_sender(of, LineId(event.target));
            steps.push(AnswerStep { step, is_of_sender });
        }
        // The last write to the caller's data says that the function has returned.
        let is_end = |at: &AnswerStep| at.is_of_sender && matches!(at.step.act, Act::Write(_));
        let end = steps.iter().rposition(is_end).map(|at| at + 1);
        let path = self.paths.of(vec![REST_OF_ANSWER.to_owned()]);
        let instructions = of.instructions.saturating_sub(executed).min(u32::MAX.into()) as u32;
        let (pace, act) = (Pace::Usual, Act::Nothing);
        let step = Step { instructions, pace, act, path, grows: 0 };
        steps.push(AnswerStep { step, is_of_sender: false });
        CodeAnswer { until_done: end.unwrap_or(steps.len()), steps: steps.into() }
    }
    fn pace(&self, held: &[LockId]) -> Pace {
        let spins = |lock: &LockId| self.recording.locks[lock.index()].kind == LockKind::Spin;
        if held.iter().any(spins) { Pace::InHold } else { Pace::Usual }
    }
    fn act(&mut self, event: &Event, held: &mut Vec<LockId>) -> Act {
        let (line, lock) = (LineId(event.target), LockId(event.target));
        match event.what {
            _ if event.what.is_access() && self.is_own(line, held) => Act::Nothing,
            What::Read => Act::Read(line),
            What::Write => Act::Write(line),
            What::Atomic => Act::Atomic(line),
            What::Acquire | What::AcquireShared => {
                held.push(lock);
                let shared = event.what == What::AcquireShared;
                let (row, tried) = (self.row(lock, event.site), event.is_tried());
                Act::Acquire { lock, row, shared, tried }
            }
            What::Release => {
                held.retain(|other| *other != lock);
                Act::Release(lock)
            }
            What::Downgrade => Act::Downgrade(lock),
            What::Clear => Act::Clear(event.target),
            What::Copy => Act::Copy(event.target),
            What::Wait => Act::Wait,
            What::Call => Act::Call(event.target),
        }
    }
    /// Whether a line is one of the CPU alone, or that of a lock that it holds and others take.
    fn is_own(&self, line: LineId, held: &[LockId]) -> bool {
        let of_lock = |lock: &LockId| {
            let lock = &self.recording.locks[lock.index()];
            lock.line == Some(line) && lock.share != Share::Private
        };
        self.recording.lines[line.index()].share == Share::Private || held.iter().any(of_lock)
    }
    fn row(&mut self, lock: LockId, site: SiteId) -> u32 {
        if let Some(&row) = self.rows.get(&(lock, site)) {
            return row;
        }
        let of = &self.recording.locks[lock.index()];
        let sleeps = of.kind != LockKind::Spin;
        let name = LockName { class: of.class.clone(), path: self.names(site), sleeps };
        let row = self.locks.of(name);
        self.rows.insert((lock, site), row);
        row
    }
    fn path(&mut self, site: SiteId) -> u32 {
        if let Some(&path) = self.sites.get(&site) {
            return path;
        }
        let path = self.paths.of(self.names(site));
        self.sites.insert(site, path);
        path
    }
    fn names(&self, site: SiteId) -> Vec<String> {
        let of = self.recording;
        vec![of.caller_at(site).to_owned(), of.function_at(site).to_owned()]
    }
}

/// Returns of each lock which of its class it is. A lock is of the node of the first CPU that takes
/// it.
fn numbers_of_locks(recording: &Recording) -> Vec<Option<u32>> {
    let mut node_of: Vec<Option<u8>> = vec![None; recording.locks.len()];
    for (cpu, operations) in recording.cpus.iter().enumerate() {
        let events = operations.iter().flat_map(|operation| &operation.events);
        for event in events.filter(|event| event.what.is_of_lock()) {
            let node = recording.origin.node_of_cpu.get(cpu).copied();
            let of = &mut node_of[LockId(event.target).index()];
            *of = of.or(node);
        }
    }
    let key = |at: usize| {
        let Lock { class, share, .. } = &recording.locks[at];
        let node = node_of[at].filter(|_| *share != Share::All);
        (class, *share, node)
    };
    let mut all: BTreeMap<_, u32> = BTreeMap::new();
    (0..node_of.len()).for_each(|at| *all.entry(key(at)).or_default() += 1);
    let mut seen: BTreeMap<_, u32> = BTreeMap::new();
    let mut number = |at: usize| {
        let next = seen.entry(key(at)).or_default();
        *next += 1;
        (all[&key(at)] > 1).then_some(*next - 1)
    };
    (0..node_of.len()).map(&mut number).collect()
}

/// The lines that the operations of each recorded CPU use.
struct Used(Vec<BTreeSet<u32>>);

impl Used {
    fn of(recording: &Recording) -> Self {
        let lines = |operations: &Vec<Operation>| {
            let events = operations.iter().flat_map(|operation| &operation.events);
            events.filter(|event| event.what.is_access()).map(|event| event.target).collect()
        };
        let is_needed = !recording.answers.is_empty();
        Self(recording.cpus.iter().filter(|_| is_needed).map(lines).collect())
    }
    /// Returns the lines that called CPUs use as data of the CPU that calls.
    fn of_senders(&self, recording: &Recording) -> BTreeSet<u32> {
        let of_answer = |of: &'_ Answer| -> Vec<u32> {
            let lines = of.events.iter().map(|event| event.target);
            lines.filter(|line| self.is_of_sender(of, LineId(*line))).collect()
        };
        recording.answers.iter().flat_map(of_answer).collect()
    }
    /// Whether a line is data of the CPU that calls: it uses it, and the called one does not.
    fn is_of_sender(&self, of: &Answer, line: LineId) -> bool {
        let uses = |cpu: u32| self.0[cpu as usize].contains(&line.0);
        uses(of.sender) && !uses(of.receiver)
    }
}

fn call(of: &Call, recording: &Recording) -> CodeCall {
    let receivers = of.receivers.iter().map(|(cpu, answer)| (*cpu as usize, answer.0));
    let receivers: Vec<(usize, u32)> = receivers.collect();
    let first = receivers.first().map(|(_, answer)| &recording.answers[*answer as usize]);
    let sender = first.map_or(0, |answer| answer.sender as usize);
    let node = |cpu: usize| recording.origin.node_of_cpu.get(cpu).copied().unwrap_or(0);
    let is_of_node = receivers.iter().all(|(cpu, _)| node(*cpu) == node(sender));
    let scope = match receivers.len() + 1 {
        few if !is_many(few, recording.cpus.len()) => Scope::Group,
        _ if is_of_node && recording.nodes() > 1 => Scope::Node,
        _ => Scope::All,
    };
    CodeCall { skips_idle: of.is_flush, scope, sender, receivers }
}

/// Adds a step. Instructions alone are joined with those of the same kind before them.
fn push(steps: &mut Vec<Step>, step: Step) {
    let same = |last: &&mut Step| {
        let alike = |of: &Step| (of.pace, of.path, of.grows);
        last.act == Act::Nothing && alike(last) == alike(&step)
    };
    match steps.last_mut().filter(same) {
        Some(last) => {
            last.instructions += step.instructions;
            last.act = step.act;
        }
        None => steps.push(step),
    }
}
