//! The live kernel: [`System`](mmscale_system::System) by system calls in real processes, and what
//! can be measured in the kernel meanwhile.
//!
//! | file | what it does |
//! |---|---|
//! | `run` | starts, watches and ends a run's processes |
//! | `apart` | inherited state that a run must not have |
//! | `command` | a run of a foreign program |
//! | `emulated` | whether an emulator executes this program |
//! | `end` | how processes end |
//! | `limits`, `task_limits`, `groups` | the resources that a run may use |
//! | `scratch` | folders for temporary files |
//! | `leftovers`, `proof` | leftovers of killed runs: found, undone, removed |
//! | `system`, `memory` | the system calls |
//! | `process`, `table` | the state of one process, and of all processes of a run |
//! | `shared` | values that processes share |
//! | `sysctl`, `setting`, `remembered` | settings of the kernel, changed temporarily |
//! | `provenance` | the properties of a computer on which figures depend |
//! | `steps` | single steps of the kernel, timed |
//! | `user` | accesses that may fault |
//! | `watch` | measurements in the kernel during a run |

#![forbid(unsafe_op_in_unsafe_fn)]

mod apart;
mod command;
mod compute;
mod emulated;
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
mod run;
mod scratch;
mod setting;
mod shared;
pub mod steps;
mod sysctl;
mod system;
mod table;
mod task_limits;
mod user;
mod watch;

pub use emulated::is_emulated;

pub use command::{Foreign, find_program, run_command};
pub use leftovers::{Leftovers, clear};
pub use limits::{LimitedBy, PROCESS_BYTES, available_bytes, cpu_positions, last_level_cache_kib};

pub use provenance::provenance;
pub use run::{Begun, Config, Failure, Outcome, run, run_watched};
pub use scratch::Scratch;
pub use setting::is_sysctl;
pub use shared::{Shared, SharedNumbers};
pub use sysctl::{Sysctl, SysctlError};
pub use system::{Linux, kernel_release, sleeps_of_thread, tick_hz};
pub use table::CallTimes;
pub use task_limits::TooMuch;
pub use watch::{Plan, Sampling, Symbols, WatchError, Watching};
