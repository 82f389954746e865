//! Recordings of what a kernel image does in an operation.
//!
//! A recording has, for each CPU that ran, the same operation many times: the instructions between
//! events, the accesses to cache lines that CPUs share, and the locks that are taken and released.
//! The CPUs took turns, so no lock was found taken: each operation is the uncontended path of the
//! kernel, with the addresses of its own data. Waits are not part of a recording. They result from
//! a replay, in which operations of all CPUs run at the same time.
//!
//! | module | what it has |
//! |---|---|
//! | `recording` | the types |
//! | `file` | a recording as a file, and its errors |
//! | `fit` | what of an operation grows with the number of CPUs |
//! | `split` | words of a line on a line of their own |
//! | `sums` | sums over operations: locks, lines, instructions |
//!
//! Architecture invariant: nothing here knows the emulator or a simulated machine.

#![forbid(unsafe_code)]

mod file;
mod fit;
mod recording;
mod split;
mod sums;

pub use file::{LiftError, SCHEMA, SUFFIX};
pub use fit::{FitError, Fitted, Row, fit};
pub use recording::{
    Answer, AnswerId, Call, Dropped, Event, Function, FunctionId, Growing, Growth, Line, LineId,
    Lock, LockId, LockKind, Operation, Origin, Recording, Share, Site, SiteId, Ticks, What,
    is_many,
};
pub use split::{SplitError, Words};
pub use sums::{LineSum, LockSum, Sums, WordSum, sums};
