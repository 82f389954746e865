//! Lines of a trace: events with their task, CPU and time, and frames of stacks.
//!
//! | form | example |
//! |---|---|
//! | `perf script` | `usemem 4211 [017] 12345.678901: lock:contention_begin: 0xff.. (flags=SPIN)` |
//! | `trace-cmd report`, tracefs | `usemem-4211 [017] d..1. 12.678901: contention_begin: 0xff..` |

use mmscale_document::{LockKind, plain_function};

/// An event, borrowed from its line.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Event<'a> {
    /// The name of the task.
    pub(super) comm: &'a str,
    /// The number of the task.
    pub(super) tid: u32,
    /// The CPU, if the line has it.
    pub(super) cpu: Option<u32>,
    /// The time, in ns of the trace's clock.
    pub(super) ns: u64,
    pub(super) what: What<'a>,
}

/// An event.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum What<'a> {
    /// A task begins to wait for the lock at an address.
    Begin { lock: u64, kind: Kind },
    /// It has the lock, or gives up.
    End { lock: u64 },
    /// A task releases a lock for which others wait.
    Release { lock: u64 },
    /// zone->lock was taken after a wait, which may be 0.
    ZoneTaken { zone: &'a str, wait_ns: u64, caller: &'a str },
    /// The trace continues with the stack of the task's last event.
    Stack,
}

/// The kind of a lock, as the tracepoint has it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub(super) struct Kind(u8);

/// The flags of the tracepoint, in the order of their bits.
const FLAGS: [&str; 6] = ["SPIN", "READ", "WRITE", "RT", "PERCPU", "MUTEX"];

impl Kind {
    /// Parses `SPIN|READ`, or a number.
    fn parse(text: &str) -> Self {
        let number = text
            .strip_prefix("0x")
            .map_or_else(|| text.parse().ok(), |hex| u8::from_str_radix(hex, 16).ok());
        let bit = |name: &str| FLAGS.iter().position(|flag| *flag == name).map_or(0, |at| 1 << at);
        let all = number.unwrap_or_else(|| text.split('|').map(bit).fold(0, |all, bit| all | bit));
        // A waiter for a mutex spins first, which is the same wait.
        let of = Self(all);
        if of.has("MUTEX") { Self(all & !1) } else { of }
    }
    /// Returns whether its waiters report a second beginning when they stop to spin.
    pub(super) fn begins_twice(self) -> bool {
        self.has("MUTEX")
    }
    fn has(self, flag: &str) -> bool {
        FLAGS.iter().position(|name| *name == flag).is_some_and(|at| self.0 & (1 << at) != 0)
    }
    /// Returns the kind that the table of locks has.
    pub(super) fn lock_kind(self) -> LockKind {
        let shared = self.has("READ") || self.has("WRITE");
        match () {
            () if self.has("RT") => LockKind::Other,
            () if self.has("PERCPU") => LockKind::PercpuRwsem,
            () if self.has("SPIN") && shared => LockKind::Rwlock,
            () if self.has("SPIN") => LockKind::Spin,
            () if self.has("MUTEX") => LockKind::Mutex,
            () if shared => LockKind::Rwsem,
            // A mutex before Linux 6.0 had no flag.
            () if self.0 == 0 => LockKind::Mutex,
            () => LockKind::Other,
        }
    }
    /// Returns the kind in the words of `perf lock contention`.
    pub(super) fn word(self) -> String {
        let name = match self.lock_kind() {
            LockKind::Spin => "spinlock",
            LockKind::Rwlock => "rwlock",
            LockKind::Rwsem => "rwsem",
            LockKind::Semaphore => "semaphore",
            LockKind::Mutex => "mutex",
            LockKind::PercpuRwsem => "pcpu-sem",
            LockKind::Other => "rt-mutex",
        };
        let side = match () {
            () if self.has("WRITE") => ":W",
            () if self.has("READ") => ":R",
            () => "",
        };
        format!("{name}{side}")
    }
}

/// Names of events, the longest of two with the same beginning first.
const EVENTS: [&str; 6] = [
    "contention_begin",
    "contention_end",
    "contended_release",
    "mm_zone_locked",
    "kernel_stack",
    "<stack trace>",
];

/// Returns the name of the event in a line, with the text before and after it.
fn named(line: &str) -> Option<(&str, &'static str, &str)> {
    // Most lines of a trace are frames, which have none of these parts.
    if !["conten", "mm_zone_", "stack"].iter().any(|part| line.contains(part)) {
        return None;
    }
    EVENTS.iter().find_map(|name| {
        let at = line.find(name)?;
        let (before, rest) = (&line[..at], &line[at + name.len()..]);
        let rest = match rest.strip_prefix(':') {
            Some(rest) => rest,
            None if name.starts_with('<') => rest,
            None => return None,
        };
        let starts = before.ends_with([' ', ':']);
        starts.then_some((before, *name, rest))
    })
}

/// Parses a line with an event.
pub(super) fn event(line: &str) -> Option<Event<'_>> {
    let (before, name, rest) = named(line)?;
    let (comm, tid, cpu, ns) = head(before)?;
    let lock = || {
        let word = rest.split_whitespace().next()?;
        let word = word.strip_prefix("lock_addr=").unwrap_or(word);
        u64::from_str_radix(word.trim_start_matches("0x"), 16).ok()
    };
    let value = |key: &str| {
        let at = rest.find(key)? + key.len();
        rest[at..].split([' ', ',', ')']).next().filter(|value| !value.is_empty())
    };
    let what = match name {
        "contention_begin" => {
            What::Begin { lock: lock()?, kind: value("flags=").map_or(Kind(0), Kind::parse) }
        }
        "contention_end" => What::End { lock: lock()? },
        "contended_release" => What::Release { lock: lock()? },
        "mm_zone_locked" => What::ZoneTaken {
            zone: value("zone=").or(value("name=")).unwrap_or("zone"),
            wait_ns: value("wait_ns=")?.parse().ok()?,
            caller: value("caller=").map_or("", plain_function),
        },
        _ => What::Stack,
    };
    Some(Event { comm, tid, cpu, ns, what })
}

/// Parses task, CPU and time: the text before the name of an event.
fn head(before: &str) -> Option<(&str, u32, Option<u32>, u64)> {
    // `lock:` belongs to the name.
    let mut rest = before.trim_end();
    if let Some((left, group)) = rest.rsplit_once(' ')
        && let Some(group) = group.strip_suffix(':')
        && group.starts_with(|c: char| c.is_ascii_alphabetic())
    {
        rest = left.trim_end();
    }
    let (mut rest, mut word) = last(rest)?;
    // The period of a sample stands between the time and the name.
    if !word.ends_with(':') && word.bytes().all(|byte| byte.is_ascii_digit()) {
        (rest, word) = last(rest)?;
    }
    let ns = time_ns(word.strip_suffix(':')?)?;
    let mut cpu = None;
    let mut is_bracketed = |word: &str| {
        let inner = word.strip_prefix('[').and_then(|word| word.strip_suffix(']'));
        let number = inner.and_then(|inner| inner.parse::<u32>().ok());
        cpu = cpu.or(number);
        number.is_some()
    };
    if let Some((left, word)) = last(rest) {
        if is_bracketed(word) {
            rest = left;
        } else if let Some((before_flags, bracket)) = last(left)
            && word.len() <= 8
            && is_bracketed(bracket)
        {
            rest = before_flags;
        }
    }
    // The number of the process, in parentheses.
    if let Some(open) = rest.rfind('(')
        && rest.ends_with(')')
    {
        rest = rest[..open].trim_end();
    }
    let (comm, tid) = match last(rest) {
        Some((comm, word)) if number(word).is_some() => (comm, number(word)?),
        _ => {
            let (comm, tid) = rest.rsplit_once('-')?;
            (comm, tid.parse().ok()?)
        }
    };
    let comm = comm.trim();
    (!comm.is_empty()).then_some((comm, tid, cpu, ns))
}

/// Returns the number of a task: `4211`, or `4200/4211` with that of its process.
fn number(word: &str) -> Option<u32> {
    let digits = word.rsplit_once('/').map_or(word, |(_, tid)| tid);
    digits.parse().ok()
}

/// Divides a text before its last word.
fn last(text: &str) -> Option<(&str, &str)> {
    let text = text.trim_end();
    match text.rsplit_once(char::is_whitespace) {
        Some((left, word)) => Some((left.trim_end(), word)),
        None if text.is_empty() => None,
        None => Some(("", text)),
    }
}

/// Parses seconds with up to nine decimals, exactly.
fn time_ns(word: &str) -> Option<u64> {
    let (seconds, part) = word.split_once('.')?;
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if !(1..=9).contains(&part.len()) || !digits(part) || !digits(seconds) {
        return None;
    }
    let scale = 10_u64.pow(9 - part.len() as u32);
    // Less than 32 years keeps sums far from overflow.
    let seconds: u64 = seconds.parse().ok().filter(|seconds| *seconds < 1_000_000_000)?;
    seconds.checked_mul(1_000_000_000)?.checked_add(part.parse::<u64>().ok()? * scale)
}

/// Returns the function of a line of a stack: an address and a name, or an arrow and a name. A
/// function of a program, which is in a file that is no module of the kernel, is none.
pub(super) fn frame(line: &str) -> Option<&str> {
    let mut words = line.split_whitespace();
    let first = words.next()?;
    let file = line.trim_end().rsplit_once(" (/").map_or("", |(_, file)| file);
    if !(file.is_empty() || [".ko", "vmlinux"].iter().any(|of| file.contains(of))) {
        return None;
    }
    let is_address = first.len() >= 8 && first.bytes().all(|byte| byte.is_ascii_hexdigit());
    if first != "=>" && !is_address {
        return None;
    }
    let name = plain_function(words.next()?);
    let is_function = |c: char| c.is_ascii_alphanumeric() || "_.$".contains(c);
    (!name.is_empty() && name.chars().all(is_function)).then_some(name)
}

/// Returns the number of events that a line says were lost.
pub(super) fn lost(line: &str) -> Option<u64> {
    let mut words = line.split(|c: char| c.is_whitespace() || "[]".contains(c));
    let upper = line.to_ascii_uppercase();
    if !(upper.contains("LOST") && upper.contains("EVENTS") || upper.contains("EVENTS DROPPED")) {
        return None;
    }
    words.find_map(|word| word.parse().ok())
}
