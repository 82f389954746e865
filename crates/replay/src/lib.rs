//! Replays of recordings of a kernel: the operations of its CPUs, at the same time, on the
//! simulated many-core machine.
//!
//! A recording has the operations of each CPU without other CPUs: instructions, accesses to shared
//! lines, locks. Here each CPU of a simulated machine has one task, bound to it, that repeats the
//! operations of a recorded CPU until the end of the run. Time, turns, queues of locks, transfers
//! of lines, topology and clocks are those of `mmscale-sim`, so all waits emerge from the locks and
//! lines that the operations use. No memory manager is booted.
//!
//! | module | what it has |
//! |---|---|
//! | `check` | what a recording must be so that its replay ends |
//! | `code` | operations in the form in which they are played |
//! | `place` | the recorded CPU of each CPU, and its copies of data |
//! | `shared` | the lines and locks of a machine |
//! | `calls` | calls of other CPUs: requests, interrupts, answers |
//! | `ticks` | interrupts of timers, and RCU callbacks |
//! | `growth` | places that grow with the number of CPUs |
//! | `stores` | stores that are waited for later |
//! | `player` | the task of a CPU, and the callbacks of the machine |
//! | `tally` | what is counted, and its form in documents |
//! | `play` | a run |
//!
//! # Costs
//! - Instructions have one of two costs of the profile: `hold_instruction_ns` while the operation
//!   holds a spin lock, `instruction_ns` otherwise. Both follow the clock of the CPU.
//! - A read or an atomic of a shared line is one of `mmscale-sim`: it waits for the transfer. A hit
//!   of a read is part of its instruction.
//! - A plain store is waited for later; see `stores`.
//! - The holder of a lock has the lock's line: its accesses to it are part of their instructions.
//!   Others that use the line without the lock move it, but not the word of the lock, which the
//!   machine keeps apart.
//! - A lock that one CPU alone takes costs its instructions.
//! - Calls of other CPUs are interrupts, which the called CPUs answer and the caller waits for; see
//!   `calls`. Ticks have the work of those that were recorded; see `ticks`. Other interrupts are
//!   not replayed.
//!
//! Architecture invariant: as in `mmscale-sim`, nothing here asks the host for time, randomness,
//! hash order or an address. Counting takes no virtual time.

#![forbid(unsafe_code)]

mod calls;
mod check;
mod code;
mod growth;
mod place;
mod play;
mod player;
mod shared;
mod stores;
mod tally;
mod ticks;

pub use check::{Place, ReplayError, check};
pub use code::LONG;
pub use play::{Played, Replay, Window};
pub use tally::{CallSums, TickSums};
