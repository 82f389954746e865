//! Checks that the replay of a recording ends: locks are taken and released in pairs and in one
//! order, and operations take time.

use mmscale_lift::{
    Answer, AnswerId, Call, Event, LockId, LockKind, Operation, Recording, Share, What,
};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use thiserror::Error;

/// An operation of a recording.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// The recorded CPU.
    pub cpu: usize,
    /// The number of the operation in the list of that CPU.
    pub operation: usize,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "operation {} of CPU {}", self.operation, self.cpu)
    }
}

/// Why a recording cannot be replayed.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum ReplayError {
    /// A CPU has no operation.
    #[error("CPU {0} has no operation: record it again")]
    Empty(usize),
    /// An operation has no instructions, or more than a replay can count.
    #[error("{place} has {instructions} instructions, and 1 to {} are possible", u32::MAX)]
    Length {
        /// The operation.
        place: Place,
        /// Its instructions.
        instructions: u64,
    },
    /// An event names what the recording does not have.
    #[error("{0} names a line, a lock or a place in the code that the recording does not have")]
    Unknown(Place),
    /// A call of other CPUs, or an interrupt of a timer, names what the recording does not have.
    #[error(
        "a call of other CPUs or a tick names what the recording does not have: record it again"
    )]
    Calls,
    /// The locks of an operation are not balanced.
    #[error("{place} {what} the lock `{class}` in {function}: leave the operation out")]
    Unbalanced {
        /// The operation.
        place: Place,
        /// The error, as a verb.
        what: &'static str,
        /// The class of the lock.
        class: String,
        /// Where.
        function: String,
    },
    /// Two locks are taken in both orders: kernels only try the second one then.
    #[error(
        "operations take the locks `{0}` and `{1}` in both orders, directly or with others in \
         between, so a replay would stop in a deadlock: leave out the operations with one of the \
         orders"
    )]
    Order(String, String),
}

/// Checks that a recording can be replayed.
///
/// # Errors
/// The first reason why it cannot.
pub fn check(recording: &Recording) -> Result<(), ReplayError> {
    let mut order = Order::default();
    if !has_known_calls(recording) {
        return Err(ReplayError::Calls);
    }
    for (cpu, operations) in recording.cpus.iter().enumerate() {
        if operations.is_empty() {
            return Err(ReplayError::Empty(cpu));
        }
        for (nth, operation) in operations.iter().enumerate() {
            let place = Place { cpu, operation: nth };
            let instructions = length_of(operation);
            if !(1..=u64::from(u32::MAX)).contains(&instructions) {
                return Err(ReplayError::Length { place, instructions });
            }
            Checked { recording, place, held: Vec::new(), spins: 0 }
                .check(operation, &mut order)?;
        }
    }
    match order.circle() {
        None => Ok(()),
        Some((one, other)) => {
            let class = |lock: u32| recording.locks[lock as usize].class.clone();
            Err(ReplayError::Order(class(one), class(other)))
        }
    }
}

/// Whether calls and answers name CPUs, lines and places that exist, and answers only use lines.
fn has_known_calls(recording: &Recording) -> bool {
    let cpus = recording.cpus.len() as u32;
    let is_event = |event: &Event| {
        event.what.is_access()
            && (event.target as usize) < recording.lines.len()
            && event.site.index() < recording.sites.len()
    };
    let is_answer =
        |of: &Answer| of.sender < cpus && of.receiver < cpus && of.events.iter().all(is_event);
    let is_call = |of: &Call| {
        let receives = |&(cpu, answer): &(u32, AnswerId)| {
            cpu < cpus && answer.index() < recording.answers.len()
        };
        of.receivers.iter().all(receives)
    };
    recording.answers.iter().all(is_answer)
        && recording.calls.iter().all(is_call)
        && recording.ticks.as_ref().is_none_or(|ticks| ticks.is_of(recording))
}

/// Returns the instructions of an operation: all of them, or those of its events if that is more.
pub(crate) fn length_of(operation: &Operation) -> u64 {
    let of_events: u64 = operation.events.iter().map(|event| u64::from(event.after)).sum();
    operation.instructions.max(of_events)
}

/// A lock that an operation holds, and whether it holds it alone.
type Hold = (u32, bool);

/// An operation that is checked.
struct Checked<'a> {
    recording: &'a Recording,
    place: Place,
    held: Vec<Hold>,
    /// Spin locks among them.
    spins: usize,
}

impl Checked<'_> {
    fn check(mut self, operation: &Operation, order: &mut Order) -> Result<(), ReplayError> {
        for event in &operation.events {
            self.knows(event)?;
            if let Some(what) = self.step(event, order) {
                return Err(self.wrong(what, event));
            }
        }
        let Some(&(lock, _)) = self.held.first() else { return Ok(()) };
        let taken = |event: &&Event| {
            matches!(event.what, What::Acquire | What::AcquireShared) && event.target == lock
        };
        let event = operation.events.iter().rfind(taken).expect("a lock is held that was taken");
        Err(self.wrong("does not release", event))
    }
    fn knows(&self, event: &Event) -> Result<(), ReplayError> {
        let Recording { lines, locks, sites, functions, .. } = self.recording;
        let targets = match event.what {
            what if what.is_access() => lines.len(),
            what if what.is_of_lock() => locks.len(),
            What::Call => self.recording.calls.len(),
            _ => usize::MAX,
        };
        let site = sites.get(event.site.index());
        let named = |site: &mmscale_lift::Site| {
            [site.function, site.caller].iter().all(|id| id.index() < functions.len())
        };
        let is_known = (event.target as usize) < targets && site.is_some_and(named);
        if is_known { Ok(()) } else { Err(ReplayError::Unknown(self.place)) }
    }
    /// Applies an event. Returns what is wrong with it.
    fn step(&mut self, event: &Event, order: &mut Order) -> Option<&'static str> {
        if !event.what.is_of_lock() {
            return None;
        }
        let kind = self.recording.locks[LockId(event.target).index()].kind;
        let at = self.held.iter().position(|hold| hold.0 == event.target);
        match (event.what, at) {
            (What::Acquire | What::AcquireShared, Some(_)) => return Some("takes twice"),
            (What::Acquire | What::AcquireShared, None) => {
                let alone = event.what == What::Acquire;
                if !alone && kind == LockKind::Mutex {
                    return Some("takes for reading, though it is a mutex,");
                }
                if kind != LockKind::Spin && self.spins > 0 && !event.is_tried() {
                    return Some("waits, under a spin lock, for");
                }
                // Nothing waits for a lock that is only tried, or that other CPUs never take.
                let waits = |lock: u32| self.recording.locks[lock as usize].share != Share::Private;
                if !event.is_tried() && waits(event.target) {
                    let outer = self.held.iter().map(|(lock, _)| *lock).filter(|lock| waits(*lock));
                    outer.for_each(|outer| order.add(outer, event.target));
                }
                self.held.push((event.target, alone));
                self.spins += usize::from(kind == LockKind::Spin);
            }
            (What::Release, None) => return Some("releases, without having taken it,"),
            (What::Release, Some(at)) => {
                self.held.remove(at);
                self.spins -= usize::from(kind == LockKind::Spin);
            }
            (What::Downgrade, Some(at)) if kind == LockKind::Rwsem && self.held[at].1 => {
                self.held[at].1 = false;
            }
            (What::Downgrade, _) => return Some("downgrades, without having it for writing,"),
            _ => {}
        }
        None
    }
    fn wrong(&self, what: &'static str, event: &Event) -> ReplayError {
        ReplayError::Unbalanced {
            place: self.place,
            what,
            class: self.recording.locks[event.target as usize].class.clone(),
            function: self.recording.function_at(event.site).to_owned(),
        }
    }
}

/// Which locks are taken while which are held.
#[derive(Default)]
struct Order {
    inner: BTreeMap<u32, BTreeSet<u32>>,
}

impl Order {
    fn add(&mut self, outer: u32, inner: u32) {
        self.inner.entry(outer).or_default().insert(inner);
    }
    /// Returns two locks, each of which is taken under the other, if there are such.
    fn circle(&self) -> Option<(u32, u32)> {
        let mut done = BTreeSet::new();
        for &start in self.inner.keys() {
            // The locks on the way, each with those under it that are still to be visited.
            let mut way: Vec<(u32, Vec<u32>)> = Vec::new();
            let mut next = Some(start);
            loop {
                if let Some(lock) = next.take().filter(|lock| !done.contains(lock)) {
                    if way.iter().any(|(on_way, _)| *on_way == lock) {
                        return way.last().map(|(outer, _)| (*outer, lock));
                    }
                    let under = self.inner.get(&lock).into_iter().flatten();
                    way.push((lock, under.copied().collect()));
                }
                let Some((lock, under)) = way.last_mut() else { break };
                next = under.pop();
                if next.is_none() {
                    done.insert(*lock);
                    way.pop();
                }
            }
        }
        None
    }
}
