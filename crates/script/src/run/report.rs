//! Reports of the programs of a run.

use crate::compile::call_names;
use core::ops::AddAssign;
use mmscale_system::{Errno, PAGE_BYTES, plain};
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
    /// Arrivals of tasks at barriers.
    pub arrivals: u64,
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
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Fault {
    /// The line of the script.
    pub line: u32,
    kind: u32,
    /// The call that failed, as a place in the list of all calls.
    call: u32,
    values: [i64; 3],
}

plain! {
    Fault { line, kind, call, values }
    Report {
        ops, ops_ever, calls, accesses, steps, step_ps, looping, rounds_min, prepared_faults,
        damaged, failed_calls, starved, arrivals, late, late_max_ns, faults, fault
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
        self.arrivals += other.arrivals;
        self.late += other.late;
        self.late_max_ns = self.late_max_ns.max(other.late_max_ns);
        self.faults += other.faults;
        // The first line: the result does not depend on the order of the programs' ends.
        self.fault = match (self.fault, other.fault) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
    }
}

/// Errors, with the values that led to them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Unset,
    Overflow,
    Division,
    /// Beginning, end, and the size of the whole, in bytes.
    Outside(i64, i64, i64),
    /// The page, and the size of the whole in bytes.
    Page(i64, i64),
    Negative(i64),
    Weights,
    /// Both ends.
    Random(i64, i64),
    Stuck,
    Children,
    /// The CPU, and how many there are.
    Cpu(i64, i64),
    Priority(i64),
    Files,
    /// The page, and how many were checked.
    Inherited(i64, i64),
    Call(Errno),
}

const ERRNOS: [Errno; 19] = [
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
    Errno::Noent,
    Errno::Nodev,
    Errno::Overflow,
    Errno::Perm,
    Errno::Srch,
    Errno::Segv,
    Errno::Bus,
    Errno::Stopped,
];

/// The most files of a program that were not closed, as on Linux (RLIMIT_NOFILE).
pub(super) const MAX_FILES: u32 = 1024;
/// In place of a value: there is none.
const NO_VALUE: i64 = i64::MIN;

/// The number of kinds other than [`Kind::Call`].
const OWN: u32 = 14;

impl Kind {
    /// Returns a number for the kind, and its values.
    fn parts(self) -> (u32, [i64; 3]) {
        let none = [NO_VALUE; 3];
        match self {
            Self::Unset => (0, none),
            Self::Overflow => (1, none),
            Self::Division => (2, none),
            Self::Outside(from, to, whole) => (3, [from, to, whole]),
            Self::Page(page, whole) => (4, [page, whole, NO_VALUE]),
            Self::Negative(number) => (5, [number, NO_VALUE, NO_VALUE]),
            Self::Weights => (6, none),
            Self::Random(from, until) => (7, [from, until, NO_VALUE]),
            Self::Stuck => (8, none),
            Self::Children => (9, none),
            Self::Cpu(cpu, cpus) => (10, [cpu, cpus, NO_VALUE]),
            Self::Priority(level) => (11, [level, NO_VALUE, NO_VALUE]),
            Self::Files => (12, none),
            Self::Inherited(page, pages) => (13, [page, pages, NO_VALUE]),
            Self::Call(errno) => {
                let at = ERRNOS.iter().position(|other| *other == errno);
                (OWN + at.unwrap_or(0) as u32, none)
            }
        }
    }
}

impl Fault {
    pub(crate) fn new(line: u32, kind: Kind) -> Self {
        let (kind, values) = kind.parts();
        Self { line, kind, call: u32::MAX, values }
    }
    /// Creates the error of a call with this name: the size of its memory or file, where that
    /// begins within a page, and a number.
    pub(crate) fn of_call(line: u32, errno: Errno, name: &str, values: [Option<i64>; 3]) -> Self {
        let call = call_names().position(|known| known == name).map_or(u32::MAX, |at| at as u32);
        let values = values.map(|value| value.unwrap_or(NO_VALUE));
        Self { call, values, ..Self::new(line, Kind::Call(errno)) }
    }

    /// Describes the call that failed, with its arguments.
    fn called(&self) -> String {
        let name = call_names().nth(self.call as usize).unwrap_or("a call");
        let [bytes, begin, number] = self.values;
        let mut args = Vec::new();
        if bytes != NO_VALUE {
            let begin =
                if begin > 0 { format!(", from byte {begin} of a page on") } else { String::new() };
            args.push(format!("{}{begin}", size(bytes)));
        }
        if number != NO_VALUE {
            args.push(number.to_string());
        }
        format!("{name}({})", args.join("; "))
    }
}

/// Formats a size: in pages, and in bytes if it is no multiple of a page.
fn size(bytes: i64) -> String {
    let page = PAGE_BYTES as i64;
    let plural = if bytes == page { "" } else { "s" };
    match bytes % page {
        0 => format!("{} page{plural}", bytes / page),
        _ => format!("{bytes} bytes ({:.2} pages)", bytes as f64 / page as f64),
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c] = self.values;
        write!(f, "line {}: ", self.line)?;
        match self.kind {
            0 => write!(f, "a variable has no value yet; memory has none after exec()"),
            1 => write!(f, "a number does not fit in 64 bits"),
            2 => write!(f, "division by 0"),
            3 => {
                let (from, to, whole) = (size(a), size(b), size(c));
                write!(f, "the part from {from} to {to} is not within {whole}")
            }
            4 => write!(f, "page {a} is not within {}; pages count from 0", size(b)),
            5 => write!(f, "{a} is negative; a size, time, count or number must not be"),
            6 => write!(f, "the weights of `choose` must be 0 or more, with a sum above 0"),
            7 => write!(f, "there is no number from {a} below {b}; rand(a, b) needs a below b"),
            8 => write!(
                f,
                "4 million operations of the script and no time passes; a loop needs a call, an \
                 access, `compute` or `sleep`"
            ),
            9 => write!(
                f,
                "more than 65536 children or threads that were not waited for; use wait()"
            ),
            10 => write!(f, "there is no CPU {a}; the {b} CPUs are numbered from 0"),
            11 => write!(f, "priority {a} does not exist; priorities are 1 to 99"),
            12 => write!(f, "more than {MAX_FILES} files that were not closed; use close(f)"),
            13 => write!(
                f,
                "check found in page {a} of {b} what the parent wrote; `check` is for pages that \
                 this process wrote, and `read` for those that it inherited"
            ),
            kind => match ERRNOS.get((kind - OWN) as usize) {
                Some(errno) => {
                    let called = self.called();
                    write!(f, "{called}: {errno}; put `try` before a call that may fail")
                }
                None => write!(f, "an unknown error"),
            },
        }
    }
}
