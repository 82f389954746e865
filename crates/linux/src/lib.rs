//! The live kernel: [`System`](mmscale_system::System) by system calls in real processes, and what
//! can be measured in the kernel meanwhile.
//!
//! | file | what it does |
//! |---|---|
//! | `run` | starts a run's processes, watches over them, ends all of them |
//! | `apart` | what a run must not have from the program that started this one |
//! | `command` | a run of somebody else's program |
//! | `end` | how processes end |
//! | `limits`, `room`, `groups` | what a run may use |
//! | `scratch` | folders for temporary files |
//! | `leftovers`, `proof` | what killed runs left: found, undone, removed |
//! | `system`, `memory` | the calls |
//! | `process`, `table` | what a process has for itself, and what all of them share |
//! | `shared` | values that processes share |
//! | `sysctl`, `setting`, `remembered` | settings of the kernel, changed for a while |
//! | `provenance` | what figures from a computer hang on |
//! | `steps` | single steps of the kernel, timed |
//! | `user` | accesses that may fault |
//! | `watch` | what the kernel tells meanwhile |

#![forbid(unsafe_op_in_unsafe_fn)]

mod apart;
mod command;
mod compute;
mod end;
mod errno;
mod groups;
mod leftovers;
mod limits;
mod memory;
mod process;
mod proof;
mod provenance;
mod remembered;
mod room;
mod run;
mod scratch;
mod setting;
mod shared;
pub mod steps;
mod sysctl;
mod system;
mod table;
mod user;
mod watch;

pub use command::{Foreign, find_program, run_command};
pub use leftovers::{Leftovers, clear};
pub use limits::{LimitedBy, PROCESS_BYTES, available_bytes};

pub use provenance::provenance;
pub use room::TooMuch;
pub use run::{Begun, Config, Failure, Outcome, run, run_watched};
pub use scratch::Scratch;
pub use setting::is_sysctl;
pub use shared::Shared;
pub use sysctl::{Sysctl, SysctlError};
pub use system::{Linux, tick_hz};
pub use table::CallTimes;
pub use watch::{Plan, Sampling, Symbols, WatchError, Watching};
