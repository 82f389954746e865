//! The types of a recording.

use serde::{Deserialize, Serialize};

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[derive(Default, Serialize, Deserialize)]
        pub struct $name(pub u32);

        impl $name {
            /// The index in the recording's list.
            pub const fn index(self) -> usize {
                self.0 as usize
            }
        }
    )*};
}

ids! {
    /// A function of the kernel.
    FunctionId;
    /// A place in the code.
    SiteId;
    /// A cache line that CPUs share.
    LineId;
    /// A lock.
    LockId;
    /// The work of a called CPU.
    AnswerId;
}

/// The operations of a kernel image on each CPU.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Recording {
    /// Where it is from.
    pub origin: Origin,
    /// Names of functions.
    pub functions: Vec<Function>,
    /// Places in the code.
    pub sites: Vec<Site>,
    /// The lines that several CPUs use and at least one writes.
    pub lines: Vec<Line>,
    /// All locks, also those that one CPU alone takes.
    pub locks: Vec<Lock>,
    /// Calls of other CPUs. Equal ones are one.
    pub calls: Vec<Call>,
    /// The work of called CPUs.
    pub answers: Vec<Answer>,
    /// Interrupts of timers, and RCU callbacks; files of before have none.
    pub ticks: Option<Ticks>,
    /// How operations depend on the number of CPUs, if that was fitted.
    pub growth: Option<Growth>,
    /// The operations of each recorded CPU, in the order in which it did them. All CPUs have some.
    pub cpus: Vec<Vec<Operation>>,
}

/// Where a recording is from.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Origin {
    /// The image, as the user named it.
    pub image: String,
    /// The package of the image, with its version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub package: Option<String>,
    /// The release of the kernel, as `uname -r` has it.
    pub release: String,
    /// Its version, as `uname -v` has it.
    pub version: String,
    /// Settings of its build that change many functions.
    pub settings: Vec<String>,
    /// The parameters of the kernel that the user gave.
    pub parameters: String,
    /// The script that ran: its name and its summary.
    pub script: String,
    /// Its summary.
    pub summary: String,
    /// Values of its parameters that the user gave, such as `bytes=2MiB`.
    pub set: Vec<String>,
    /// The text of the script.
    pub text: String,
    /// Whether it ran as a small program in C, and not as one of mmscale.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub in_c: bool,
    /// The node of each recorded CPU.
    pub node_of_cpu: Vec<u8>,
    /// Bytes of memory of the machine.
    pub memory_bytes: u64,
    /// Operations that are not part of the recording.
    pub dropped: Dropped,
    /// Instructions of interrupts, of all operations together. They are not part of operations.
    pub interrupt_instructions: u64,
}

/// Operations that were recorded and left out, by reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Dropped {
    /// The CPU went to other tasks less than half, or more than twice as often as in the median.
    pub switched: u64,
    /// A lock was held at their end, or released without having been taken.
    pub unbalanced: u64,
    /// They did not fit into the recording.
    pub too_long: u64,
}

/// A function of the kernel.
pub type Function = String;

/// A place in the code: a function, and the function that calls it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Site {
    /// The function.
    pub function: FunctionId,
    /// Its caller.
    pub caller: FunctionId,
}

/// Which CPUs use data, and so which data a CPU of a larger machine has in its place.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Share {
    /// One CPU: each CPU of a larger machine has its own.
    Private,
    /// Few CPUs of the recording: each group of as many CPUs as were recorded has its own.
    Few,
    /// Many CPUs of one node: each node has its own.
    Node,
    /// Many CPUs of several nodes: there is one.
    All,
}

/// CPUs of a recording, in parts, from which on many share data.
const MANY: usize = 4;

/// Whether so many of the `cpus` CPUs of a recording are many: what they share, all CPUs of a node
/// or of a machine share.
pub fn is_many(users: usize, cpus: usize) -> bool {
    users >= (cpus / MANY).max(3).min(cpus)
}

/// A cache line of 64 bytes that several CPUs use.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Line {
    /// The address of its first byte.
    pub address: u64,
    /// The data in it, as far as that is known: a variable, a kind of object, a function that uses
    /// it.
    pub object: String,
    /// Which CPUs use it.
    pub share: Share,
    /// Numbers of recorded CPUs that use it, and that write it.
    pub users: u32,
    /// See `users`.
    pub writers: u32,
}

/// The kind of a lock.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LockKind {
    /// CPUs spin for it; readers of a spinning lock exclude one another in a replay.
    Spin,
    /// A semaphore with readers and writers, which sleep.
    Rwsem,
    /// A mutex, whose waiters sleep.
    Mutex,
}

/// A lock.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Lock {
    /// The address of its word.
    pub address: u64,
    /// Its kind.
    pub kind: LockKind,
    /// Its class, or the function that takes it.
    pub class: String,
    /// Which CPUs take it.
    pub share: Share,
    /// Its line, if that is among the lines of the recording.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<LineId>,
}

/// The kind of an event.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum What {
    /// A read of a line.
    Read = 0,
    /// A write to a line.
    Write = 1,
    /// A locked instruction on a line.
    Atomic = 2,
    /// A lock is taken, alone.
    Acquire = 3,
    /// A lock is taken for reading.
    AcquireShared = 4,
    /// A lock is released.
    Release = 5,
    /// A semaphore that is held alone is held for reading after it.
    Downgrade = 6,
    /// Memory is cleared or filled; the target is its length in bytes.
    Clear = 7,
    /// Memory is copied; the target is its length in bytes.
    Copy = 8,
    /// The CPU waits for other CPUs, such as for the end of a call of theirs; the target is 0. How
    /// long is not known: the emulator's CPUs take turns.
    Wait = 9,
    /// Other CPUs are called by interrupts; the target is a call.
    Call = 10,
}

impl What {
    /// All of them, by their numbers.
    pub const ALL: [Self; 11] = [
        Self::Read,
        Self::Write,
        Self::Atomic,
        Self::Acquire,
        Self::AcquireShared,
        Self::Release,
        Self::Downgrade,
        Self::Clear,
        Self::Copy,
        Self::Wait,
        Self::Call,
    ];
    /// Whether the target is a line.
    pub const fn is_access(self) -> bool {
        (self as u8) < (Self::Acquire as u8)
    }
    /// Whether the target is a lock.
    pub const fn is_of_lock(self) -> bool {
        !self.is_access() && (self as u8) < (Self::Clear as u8)
    }
}

/// An event of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Event {
    /// Instructions of the operation since the event before, or since its begin.
    pub after: u32,
    /// Its kind.
    pub what: What,
    /// The byte of the line, 0 to 63. Of a lock that is taken: 1 if the code only tries it, and
    /// goes another way if it is held. 0 for others.
    pub offset: u8,
    /// The number of a line, of a lock or of a call, or a length, as `what` says.
    pub target: u32,
    /// Where in the code.
    pub site: SiteId,
}

impl Event {
    /// Whether a lock is taken by an attempt, after which the code goes another way if it fails.
    pub const fn is_tried(&self) -> bool {
        matches!(self.what, What::Acquire | What::AcquireShared) && self.offset == 1
    }
}

/// A call of other CPUs: all of them execute a function in an interrupt.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
pub struct Call {
    /// Whether it is a flush of translations, which a CPU without a task does later.
    pub is_flush: bool,
    /// The called CPUs, sorted, each with what it does.
    pub receivers: Vec<(u32, AnswerId)>,
}

/// The work of a CPU in the interrupt of a call, without locks.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Answer {
    /// The CPU that calls, and the one that is called.
    pub sender: u32,
    /// See `sender`.
    pub receiver: u32,
    /// Instructions: the median of those with the same events.
    pub instructions: u64,
    /// Accesses to lines, in order.
    pub events: Vec<Event>,
}

/// Interrupts of timers, and RCU callbacks: samples of each CPU, without locks. Words of locks that
/// they take are accesses.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ticks {
    /// The timer interrupts of each CPU, without callbacks.
    pub ticks: Vec<Vec<AnswerId>>,
    /// Batches of RCU callbacks on each CPU.
    pub callbacks: Vec<Vec<AnswerId>>,
    /// Batches that belong to a round: they ran while rounds were recorded.
    pub batches: f64,
}

/// The most batches of a round.
const MAX_BATCHES: f64 = 1e4;

impl Ticks {
    /// Whether all that they name is in a recording.
    pub fn is_of(&self, recording: &Recording) -> bool {
        let is_known = |answer: &AnswerId| answer.index() < recording.answers.len();
        let is_of_cpus = |all: &Vec<Vec<AnswerId>>| {
            all.len() == recording.cpus.len() && all.iter().flatten().all(is_known)
        };
        is_of_cpus(&self.ticks)
            && is_of_cpus(&self.callbacks)
            && (0.0..=MAX_BATCHES).contains(&self.batches)
    }
    /// Returns the mean instructions and the mean accesses of some.
    pub fn means(recording: &Recording, of: &[Vec<AnswerId>]) -> [f64; 2] {
        let answers = of.iter().flatten().map(|answer| &recording.answers[answer.index()]);
        let sums = answers.fold([0_u64; 3], |[number, instructions, accesses], answer| {
            [number + 1, instructions + answer.instructions, accesses + answer.events.len() as u64]
        });
        [sums[1], sums[2]].map(|sum| sum as f64 / sums[0].max(1) as f64)
    }
}

/// How places of a recording grow with the number of CPUs.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Growth {
    /// CPUs of the recordings, ascending. The last number is that of this one.
    pub sizes: Vec<u32>,
    /// The error in instructions an operation when the largest recording is predicted from the
    /// others, as a share; none of two sizes.
    pub error: Option<f64>,
    /// Places that grow.
    pub places: Vec<Growing>,
    /// Lines of which each CPU has one, which these places use one after the other.
    pub each: Vec<LineId>,
}

/// A place that grows: with each CPU more, by such shares of its values in this recording.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Growing {
    /// The place.
    pub site: SiteId,
    /// Of its instructions.
    pub instructions: f64,
    /// Of its accesses.
    pub accesses: f64,
}

impl Growth {
    /// Returns by how much place `at` is longer on `cpus` CPUs: of instructions, of accesses.
    pub fn factors(&self, at: usize, cpus: usize) -> [f64; 2] {
        let Growing { instructions, accesses, .. } = self.places[at];
        let recorded = f64::from(self.sizes.last().copied().unwrap_or(1));
        [instructions, accesses].map(|each| (1.0 + each * (cpus as f64 - recorded)).max(0.0))
    }
    /// Whether it is one of a recording with these places, lines and CPUs.
    pub(crate) fn is_of(&self, recording: &Recording) -> bool {
        let is_share = |value: f64| (0.0..=1.0).contains(&value);
        let is_place = |of: &Growing| {
            of.site.index() < recording.sites.len()
                && is_share(of.instructions)
                && is_share(of.accesses)
        };
        self.sizes.last() == Some(&(recording.cpus.len() as u32))
            && self.places.iter().all(is_place)
            && self.each.iter().all(|line| line.index() < recording.lines.len())
    }
}

/// The work of a CPU in the kernel in one round of the script's loop.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Operation {
    /// Operations that the script counted in the round.
    pub count: u64,
    /// Instructions of the kernel, without those of interrupts.
    pub instructions: u64,
    /// Locked instructions, those of locks included.
    pub locked: u64,
    /// Lines that only this CPU uses, and lines that CPUs share and no CPU writes.
    pub private_lines: u64,
    /// See `private_lines`.
    pub read_only_lines: u64,
    /// Times at which the CPU went to another task.
    pub switches: u64,
    /// The events, in order.
    pub events: Vec<Event>,
}

impl Recording {
    /// Returns all operations.
    pub fn operations(&self) -> impl Iterator<Item = &Operation> {
        self.cpus.iter().flatten()
    }
    /// Returns the recording with every second operation of each CPU, beginning with operation 0 or
    /// 1. A CPU with one operation keeps it.
    #[must_use]
    pub fn half(&self, first: usize) -> Self {
        let of_cpu = |all: &Vec<Operation>| match &all[..] {
            [only] => vec![only.clone()],
            all => all.iter().skip(first).step_by(2).cloned().collect(),
        };
        Self { cpus: self.cpus.iter().map(of_cpu).collect(), ..self.clone() }
    }
    /// Returns the number of nodes of the recorded CPUs.
    pub fn nodes(&self) -> usize {
        self.origin.node_of_cpu.iter().max().map_or(1, |node| usize::from(*node) + 1)
    }
    /// Returns the name of a function.
    pub fn function(&self, id: FunctionId) -> &str {
        &self.functions[id.index()]
    }
    /// Returns the name of the function of a place.
    pub fn function_at(&self, site: SiteId) -> &str {
        self.function(self.sites[site.index()].function)
    }
    /// Returns the name of the caller of a place's function.
    pub fn caller_at(&self, site: SiteId) -> &str {
        self.function(self.sites[site.index()].caller)
    }
}
