//! Traces of contended locks (`lock:contention_begin` and `lock:contention_end`), read as a stream
//! in bounded memory.
//!
//! A [`Stream`] gets the lines of `perf script`, `trace-cmd report` or tracefs one by one. It pairs
//! beginnings and ends of waits by task and lock, so that the waits that are open at a time are all
//! that it keeps of single events. The result has waits by call path, as other tables have, and
//! what a table cannot say: the distribution of waits, which tasks wait for a lock together, the
//! functions that release locks for which others wait, and the number that waits, by time.
//!
//! `contended_release` of newer kernels names holders. `kmem:mm_zone_locked`, which was posted in
//! 2026, has every acquisition of zone->lock with its wait.

mod herd;
mod line;
mod names;
mod result;
mod spread;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};

use mmscale_document::{is_locking, is_sleeping, is_tracing, wait_frames};

use herd::Herds;
use line::{Event, Kind, What};
use names::Names;
use spread::Lengths;

use crate::table::LONGEST_NS;

pub use result::{Contention, Herd, LockSum, Spread};

/// The most open waits. There are no more tasks than that which wait at a time.
const MAX_OPEN: usize = 1 << 16;
/// The most waits of one task: of the task, and of interrupts in it.
const MAX_NESTED: usize = 8;
/// The most call paths, kinds of tasks, and locks that have rows of their own.
const MAX_PATHS: usize = 1 << 12;
const MAX_GROUPS: usize = 1 << 10;
const MAX_LOCKS: usize = 1 << 14;
/// The most functions of a path.
const MAX_FRAMES: usize = 128;

/// A task, or the idle task of a CPU.
type Who = (u32, u32);

/// A wait that has not ended.
struct Open {
    lock: u64,
    kind: Kind,
    since_ns: u64,
    group: u32,
    path: u32,
}

/// The tasks that wait for a lock.
#[derive(Default)]
struct Queue {
    tasks: usize,
    groups: BTreeMap<u32, u32>,
    since_ns: u64,
    /// The longest that it was while a task waited.
    most: usize,
}

/// A reader of a trace.
#[derive(Default)]
pub struct Stream {
    open: BTreeMap<Who, Vec<Open>>,
    open_waits: usize,
    queues: HashMap<u64, Queue>,
    herds: Herds,
    paths: Names<Vec<String>>,
    groups: Names<String>,
    sums: BTreeMap<(u32, Kind), Lengths>,
    locks: HashMap<(u64, Kind), LockSum>,
    other_locks: LockSum,
    together: BTreeMap<(u32, u32), u64>,
    released: BTreeMap<u32, u64>,
    zones: BTreeMap<u32, Lengths>,
    zone_free: u64,
    /// The wait whose stack follows, and the functions so far, innermost first.
    following: Option<Who>,
    frames: Vec<String>,
    end_ns: u64,
    cpus: u32,
    lines: usize,
    events: u64,
    begun_before: u64,
    restarted: u64,
    lost: u64,
    backwards: u64,
    broken: u64,
}

impl Stream {
    /// Returns whether a line is an event of contention.
    pub fn is_event(line: &str) -> bool {
        line::event(line).is_some_and(|event| event.what != What::Stack)
    }

    /// Reads a line.
    pub fn line(&mut self, line: &str) {
        self.lines += 1;
        // A mail may quote them.
        let line = line.strip_prefix('>').map_or(line, |rest| rest.trim_start_matches(['>', ' ']));
        // Of perf's lines only frames begin with a tab.
        let is_frame = line.starts_with('\t');
        if is_frame && self.following.is_none() {
            return;
        }
        if let Some(event) = Some(line).filter(|_| !is_frame).and_then(line::event) {
            self.end_stack();
            self.event(&event);
        } else if let Some(function) = line::frame(line) {
            if self.following.is_some() && self.frames.len() < MAX_FRAMES {
                self.frames.push(function.to_owned());
            }
        } else {
            self.end_stack();
            self.following = None;
            self.lost += line::lost(line).unwrap_or(0);
        }
    }

    fn event(&mut self, event: &Event<'_>) {
        let Event { comm, tid, cpu, ns, what } = *event;
        // All idle tasks have the number 0.
        let who = (tid, if tid == 0 { cpu.unwrap_or(0).saturating_add(1) } else { 0 });
        if what == What::Stack {
            self.following = Some(who);
            return;
        }
        self.events += 1;
        self.backwards += u64::from(ns < self.end_ns);
        self.end_ns = self.end_ns.max(ns);
        self.cpus = self.cpus.max(cpu.map_or(0, |cpu| cpu.saturating_add(1)));
        self.following = None;
        match what {
            What::Begin { lock, kind } => {
                let group = self.groups.number(group_of(comm, tid), MAX_GROUPS);
                self.begin(who, Open { lock, kind, since_ns: ns, group, path: 0 });
                self.following = Some(who);
            }
            What::End { lock } => self.end(who, lock, ns),
            What::Release { lock } => {
                if self.queues.contains_key(&lock) {
                    let group = self.groups.number(group_of(comm, tid), MAX_GROUPS);
                    *self.released.entry(group).or_default() += 1;
                }
            }
            What::ZoneTaken { zone: _, wait_ns: 0, .. } => self.zone_free += 1,
            What::ZoneTaken { wait_ns, .. } if wait_ns > LONGEST_NS => self.broken += 1,
            What::ZoneTaken { wait_ns, caller, .. } => {
                let path = if caller.is_empty() { vec![] } else { vec![caller.to_owned()] };
                let path = self.paths.number(path, MAX_PATHS);
                self.zones.entry(path).or_default().add(wait_ns);
            }
            What::Stack => {}
        }
    }

    fn begin(&mut self, who: Who, wait: Open) {
        let own = self.open.entry(who).or_default();
        // A wait for the same lock that begins again has not ended in the trace.
        if let Some(at) = own.iter().position(|open| open.lock == wait.lock) {
            if own[at].kind.begins_twice() && wait.kind.begins_twice() {
                return;
            }
            let stale = own.remove(at);
            self.open_waits -= 1;
            self.restarted += 1;
            self.leave(&stale, wait.since_ns);
        }
        let own = self.open.entry(who).or_default();
        if self.open_waits >= MAX_OPEN || own.len() >= MAX_NESTED {
            self.lost += 1;
            return;
        }
        self.open_waits += 1;
        let queue = self.queues.entry(wait.lock).or_default();
        self.herds.waited(queue.tasks, queue.since_ns, wait.since_ns);
        for group in queue.groups.keys() {
            let pair = (wait.group.min(*group), wait.group.max(*group));
            *self.together.entry(pair).or_default() += 1;
        }
        *queue.groups.entry(wait.group).or_default() += 1;
        queue.tasks += 1;
        queue.since_ns = queue.since_ns.max(wait.since_ns);
        queue.most = queue.most.max(queue.tasks);
        self.herds.grown(queue.tasks, wait.lock, wait.since_ns);
        own.push(wait);
    }

    /// Takes a wait out of the queue of its lock. Returns the longest that the queue has been.
    fn leave(&mut self, wait: &Open, ns: u64) -> usize {
        let Some(queue) = self.queues.get_mut(&wait.lock) else { return 0 };
        self.herds.waited(queue.tasks, queue.since_ns, ns);
        queue.since_ns = queue.since_ns.max(ns);
        queue.tasks -= 1;
        if let Some(count) = queue.groups.get_mut(&wait.group) {
            *count -= 1;
            if *count == 0 {
                queue.groups.remove(&wait.group);
            }
        }
        let most = queue.most;
        if queue.tasks == 0 {
            self.queues.remove(&wait.lock);
        }
        most
    }

    fn end(&mut self, who: Who, lock: u64, ns: u64) {
        let found = self.open.get_mut(&who).and_then(|own| {
            let at = own.iter().rposition(|open| open.lock == lock)?;
            Some(own.remove(at))
        });
        let Some(wait) = found else {
            self.begun_before += 1;
            return;
        };
        self.open_waits -= 1;
        if self.open.get(&who).is_some_and(Vec::is_empty) {
            self.open.remove(&who);
        }
        let most = self.leave(&wait, ns);
        let wait_ns = ns.saturating_sub(wait.since_ns);
        self.sums.entry((wait.path, wait.kind)).or_default().add(wait_ns);
        let key = (lock, wait.kind);
        let has_room = self.locks.len() < MAX_LOCKS || self.locks.contains_key(&key);
        let sum = if has_room { self.locks.entry(key).or_default() } else { &mut self.other_locks };
        sum.add(wait_ns, most);
    }

    /// Gives the functions that were read to the wait that they belong to.
    fn end_stack(&mut self) {
        if self.frames.is_empty() {
            return;
        }
        let frames = std::mem::take(&mut self.frames);
        let Some(who) = self.following else { return };
        let inner = |name: &&String| is_tracing(name) || is_locking(name) || is_sleeping(name);
        let own = wait_frames(frames.iter().map(String::as_str), false)
            .unwrap_or_else(|| frames.iter().take_while(inner).count());
        let mut path: Vec<String> = frames.into_iter().skip(own).collect();
        path.reverse();
        let path = self.paths.number(path, MAX_PATHS);
        if let Some(wait) = self.open.get_mut(&who).and_then(|own| own.last_mut()) {
            wait.path = path;
        }
    }

    /// Returns what the trace shows; `None` if it has no event of contention.
    pub fn finish(mut self) -> Option<Contention> {
        self.end_stack();
        (self.events > 0).then(|| result::of(&self))
    }
}

/// Returns the kind of a task: its name, with a star for numbers.
fn group_of(comm: &str, tid: u32) -> String {
    if tid == 0 {
        return "swapper".to_owned();
    }
    let mut name = String::with_capacity(comm.len());
    for letter in comm.chars() {
        let letter = if letter.is_ascii_digit() { '*' } else { letter };
        if letter != '*' || !name.ends_with('*') {
            name.push(letter);
        }
    }
    name
}
