//! Reports of the programs of a run.

use core::ops::AddAssign;
use mmscale_system::{Errno, plain};
use std::fmt;

/// The counters of programs. Counts of a process that is killed are lost, on every machine.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Report {
    /// Counted operations that ended within the window.
    pub ops: u64,
    /// Counted operations at any time after the common start.
    pub ops_ever: u64,
    /// System calls for the operations in the window.
    pub calls: u64,
    /// Accesses to pages for these operations.
    pub accesses: u64,
    /// Operations of the compiled script for these operations.
    pub steps: u64,
    /// The time of an operation of the compiled script on this machine, in ps. 0 on a simulated
    /// machine, where they take none.
    pub step_ps: u64,
    /// Programs that were in a `loop` without a limit during the whole window.
    pub looping: u64,
    /// The fewest rounds of its outermost such loop that one of them began within the window.
    pub rounds_min: u64,
    /// Page faults of programs before the common start, where the machine counts them.
    pub prepared_faults: u64,
    /// Pages that did not contain what the script had written.
    pub damaged: u64,
    /// Calls that failed in a `try`.
    pub failed_calls: u64,
    /// Programs that ended for lack of memory.
    pub starved: u64,
    /// Programs that were not ready at the common start.
    pub late: u64,
    /// The longest time by which a program was late, in ns.
    pub late_max_ns: u64,
    /// Programs that ended with an error of the script.
    pub faults: u64,
    /// One of these errors.
    pub fault: Option<Fault>,
}

/// An error while a script runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fault {
    /// The line of the script.
    pub line: u32,
    pub(crate) kind: u32,
}

plain! {
    Fault { line, kind }
    Report {
        ops, ops_ever, calls, accesses, steps, step_ps, looping, rounds_min, prepared_faults,
        damaged, failed_calls, starved, late, late_max_ns, faults, fault
    }
}

impl AddAssign for Report {
    fn add_assign(&mut self, other: Self) {
        self.ops += other.ops;
        self.ops_ever += other.ops_ever;
        self.calls += other.calls;
        self.accesses += other.accesses;
        self.steps += other.steps;
        self.step_ps = self.step_ps.max(other.step_ps);
        self.rounds_min = match (self.looping, other.looping) {
            (0, _) => other.rounds_min,
            (_, 0) => self.rounds_min,
            _ => self.rounds_min.min(other.rounds_min),
        };
        self.looping += other.looping;
        self.prepared_faults += other.prepared_faults;
        self.damaged += other.damaged;
        self.failed_calls += other.failed_calls;
        self.starved += other.starved;
        self.late += other.late;
        self.late_max_ns = self.late_max_ns.max(other.late_max_ns);
        self.faults += other.faults;
        // The first line: the result does not depend on the order of the programs' ends.
        self.fault = match (self.fault, other.fault) {
            (Some(a), Some(b)) if (b.line, b.kind) < (a.line, a.kind) => Some(b),
            (a, b) => a.or(b),
        };
    }
}

/// Errors other than those of calls.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Unset,
    Overflow,
    Division,
    Outside,
    Negative,
    Weights,
    Random,
    Stuck,
    Children,
    Cpu,
    Priority,
    Call(Errno),
}

const OWN: [(Kind, &str); 11] = [
    (Kind::Unset, "a variable has no value yet"),
    (Kind::Overflow, "a number does not fit in 64 bits"),
    (Kind::Division, "division by 0"),
    (Kind::Outside, "the part is not within the memory or file"),
    (Kind::Negative, "a size, time or count is negative"),
    (Kind::Weights, "the weights of `choose` must be 0 or more, with a sum above 0"),
    (Kind::Random, "rand(a, b) needs a below b"),
    (Kind::Stuck, "a loop of a million rounds in which no time passes"),
    (Kind::Children, "more than 65536 children or threads that were not waited for; use wait()"),
    (Kind::Cpu, "there is no such CPU"),
    (Kind::Priority, "a priority is 1 to 99"),
];

const ERRNOS: [Errno; 18] = [
    Errno::Acces,
    Errno::Again,
    Errno::Badf,
    Errno::Busy,
    Errno::Child,
    Errno::Exist,
    Errno::Fault,
    Errno::Intr,
    Errno::Inval,
    Errno::Io,
    Errno::Nomem,
    Errno::Nodev,
    Errno::Overflow,
    Errno::Perm,
    Errno::Srch,
    Errno::Segv,
    Errno::Bus,
    Errno::Stopped,
];

impl Fault {
    pub(crate) fn new(line: u32, kind: Kind) -> Self {
        let place = match kind {
            Kind::Call(errno) => {
                OWN.len() + ERRNOS.iter().position(|other| *other == errno).unwrap_or(0)
            }
            _ => OWN.iter().position(|(other, _)| *other == kind).unwrap_or(0),
        };
        Self { line, kind: place as u32 }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = self.kind as usize;
        match (OWN.get(at), ERRNOS.get(at.wrapping_sub(OWN.len()))) {
            (Some((_, what)), _) => write!(f, "line {}: {what}", self.line),
            (None, Some(errno)) => {
                write!(f, "line {}: {errno}; put `try` before a call that may fail", self.line)
            }
            (None, None) => write!(f, "line {}: an unknown error", self.line),
        }
    }
}
