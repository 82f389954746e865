//! The operations of a compiled script.
//!
//! A program is one list of operations. Values are in numbered slots; a task that is started gets a
//! copy of them. Expressions were checked, so that a slot always has the type that its operation
//! needs, or no value at all.

use crate::ast::{Binary, Order, TaskKind, Unary};
use mmscale_system::{Advice, Backing, FileAdvice, LockWhat, Populate, Present, Prot, Share};

/// The number of a value.
pub(crate) type Slot = u16;
/// The slot of an argument or result that is left out.
pub(crate) const NONE: Slot = Slot::MAX;

/// The place of an operation in the list.
pub(crate) type Place = u32;
/// The place that an operation does not go to.
pub(crate) const NOWHERE: Place = Place::MAX;

/// An operation and the line of the script that it was made from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Op {
    pub(crate) code: Code,
    pub(crate) line: u32,
    /// Whether an error of the call is not one of the script (`try`).
    pub(crate) attempt: bool,
}

/// An end of a part of memory or of a file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct End {
    /// [`NONE`]: the end of the whole.
    pub(crate) slot: Slot,
    /// Whether it counts pages; otherwise bytes.
    pub(crate) pages: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Code {
    Set(Slot, i64),
    Copy {
        to: Slot,
        from: Slot,
    },
    Unary {
        to: Slot,
        unary: Unary,
        of: Slot,
    },
    Binary {
        to: Slot,
        binary: Binary,
        a: Slot,
        b: Slot,
    },
    Know {
        to: Slot,
        what: Known,
    },
    /// The smaller or the larger of two numbers.
    Pick {
        to: Slot,
        larger: bool,
        a: Slot,
        b: Slot,
    },
    /// A random number from `from` to `until - 1`.
    Random {
        to: Slot,
        from: Slot,
        until: Slot,
    },
    /// The size of memory or of a file.
    Measure {
        to: Slot,
        of: Slot,
        pages: bool,
    },
    /// A page of memory or of a file.
    Page {
        to: Slot,
        of: Slot,
        page: Slot,
    },
    /// The number of a memory group, 0 for the root: that of an index, modulo their number.
    MemoryGroup {
        to: Slot,
        /// Number of the first one.
        first: Slot,
        count: Slot,
        index: Slot,
    },
    Part {
        to: Slot,
        of: Slot,
        ends: [End; 2],
    },

    Goto(Place),
    /// Goes on elsewhere if a value is 0.
    Unless(Slot, Place),
    /// Adds 1 to `counter`, and goes to `top` if it is then below `end`.
    Next {
        counter: Slot,
        end: Slot,
        top: Place,
    },
    /// Leaves a loop at the end of the run.
    Ends {
        to: Place,
        outermost: bool,
    },
    /// Leaves a loop at a time, and at the end of the run.
    Past(Slot, Place),
    /// Passes the end of a loop that does not end with the run by itself. Leaves the loop around it
    /// at the end of the run, or the program some time later ([`NOWHERE`]).
    Edge(Place),
    /// Goes to one of the places of a table, by their weights.
    Choose(u16),
    /// Waits until all programs are ready.
    Start,
    /// Records the time since the one in a slot.
    Timed(Slot),
    /// Counts operations; [`NONE`]: one.
    Count(Slot),
    /// Starts a task.
    Begin(Begin),
    /// Ends the program.
    Return,
    /// A call; arguments and the slot for its result.
    Call {
        verb: Verb,
        args: [Slot; 3],
        to: Slot,
    },
}

impl Program {
    /// Whether memory groups are created or removed.
    pub(crate) fn changes_groups(&self) -> bool {
        let verbs = self.ops.iter().filter_map(|op| match op.code {
            Code::Call { verb, .. } => Some(verb),
            _ => None,
        });
        verbs.into_iter().any(|verb| matches!(verb, Verb::Mkdir | Verb::Rmdir))
    }
    /// Whether a task is placed by an order of CPUs.
    pub(crate) fn has_orders(&self) -> bool {
        self.ops.iter().any(|op| matches!(op.code, Code::Begin(Begin { order: Some(_), .. })))
    }
}

impl Code {
    /// Returns the place that an operation names.
    pub(crate) fn place_mut(&mut self) -> Option<&mut Place> {
        match self {
            Self::Goto(place) | Self::Unless(_, place) | Self::Past(_, place) => Some(place),
            Self::Ends { to, .. } => Some(to),
            Self::Next { top, .. } => Some(top),
            Self::Edge(place) => Some(place),
            Self::Begin(begin) => Some(&mut begin.body),
            _ => None,
        }
    }
}

/// The start of a task.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Begin {
    pub(crate) kind: Start,
    pub(crate) body: Place,
    /// [`NONE`]: the interpreter chooses it.
    pub(crate) cpu: Slot,
    /// The order in which it chooses.
    pub(crate) order: Option<Order>,
    /// The number of its memory group. [`NONE`]: that of the task that starts it.
    pub(crate) group: Slot,
    /// [`NONE`]: a fair share of the CPU.
    pub(crate) priority: Slot,
    /// [`NONE`]: the task has no name.
    pub(crate) to: Slot,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Start {
    /// A process of a group at the top of the script.
    Group,
    /// A task of a program.
    Task(TaskKind),
    /// A thread of `threads`.
    Team,
}

/// Values that a program knows without a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Known {
    Cpu,
    Cpus,
    Nodes,
    /// The time since the common start, in ns.
    Now,
    /// Whether the last `try` succeeded.
    Ok,
}

/// How memory is mapped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Mapping {
    pub(crate) prot: Prot,
    pub(crate) populate: Populate,
    /// `None`: anonymous memory.
    pub(crate) share: Option<Share>,
    pub(crate) place: Where,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Where {
    Any,
    Fixed,
    Free,
}

/// Where mremap may move memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Move {
    No,
    Anywhere,
    To,
    Leave,
}

/// A call.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Verb {
    /// Size or address, and file.
    Mmap(Mapping),
    Munmap,
    Mprotect(Prot),
    Mremap(Move),
    Madvise(Advice),
    Mlock(LockWhat),
    Munlock,
    Msync,
    Mbind(Present),
    Mincore,
    Write,
    Read,
    Check,
    Sleep,
    Compute,
    CpuOffline,
    CpuOnline,
    File(Backing),
    Fadvise(FileAdvice),
    Close,
    /// Empties the memory of the process.
    Exec,
    Wait,
    WaitAll,
    Join,
    JoinAll,
    /// Joins the threads of `threads`.
    JoinTeam,
    Kill,
    PidfdOpen,
    Mrelease,
    /// A process, its memory, and memory of the caller.
    VmReadv,
    OomScoreAdj,
    /// The number of tasks that wait for each other.
    Barrier,
    /// The number of a memory group.
    Mkdir,
    Rmdir,
}

impl Verb {
    /// Returns the name of the call in scripts.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Mmap(_) => "mmap",
            Self::Munmap => "munmap",
            Self::Mprotect(_) => "mprotect",
            Self::Mremap(_) => "mremap",
            Self::Madvise(_) => "madvise",
            Self::Mlock(_) => "mlock",
            Self::Munlock => "munlock",
            Self::Msync => "msync",
            Self::Mbind(_) => "mbind",
            Self::Mincore => "mincore",
            Self::Write => "write",
            Self::Read => "read",
            Self::Check => "check",
            Self::Sleep => "sleep",
            Self::Compute => "compute",
            Self::CpuOffline => "cpu_offline",
            Self::CpuOnline => "cpu_online",
            Self::File(Backing::Memory) => "memfd_create",
            Self::File(Backing::Disk) => "file on disk",
            Self::Fadvise(_) => "posix_fadvise",
            Self::Close => "close",
            Self::Exec => "exec",
            Self::Wait | Self::WaitAll => "wait",
            Self::Join | Self::JoinAll | Self::JoinTeam => "join",
            Self::Kill => "kill",
            Self::PidfdOpen => "pidfd_open",
            Self::Mrelease => "process_mrelease",
            Self::VmReadv => "process_vm_readv",
            Self::OomScoreAdj => "oom_score_adj",
            Self::Barrier => "barrier",
            Self::Mkdir => "mkdir",
            Self::Rmdir => "rmdir",
        }
    }
}

/// A compiled script.
#[derive(Debug, Default)]
pub(crate) struct Program {
    pub(crate) ops: Vec<Op>,
    /// Weights and places of each `choose`.
    pub(crate) tables: Vec<Vec<(Slot, Place)>>,
    /// Number of slots; the first ones are the parameters.
    pub(crate) slots: usize,
    /// Whether processes inherit files of the script, so that they are forked from the first.
    pub(crate) inherits: bool,
}
