//! Kernel images in virtual machines.
//!
//! A kernel under test is an image, and needs no computer of its own: [`Image`] reads it, and
//! [`Machine`] boots it in QEMU with this program as its first process, which runs one command and
//! powers the machine off. Under emulation times mean nothing; counts do.
//!
//! ```text
//! Image ──┐
//! Job ────┴─> Machine::run ──> QEMU ──> guest::main: the command
//!                  ^                          |
//!                  +── frames, second serial port ──+
//! ```
//!
//! | module | what it has |
//! |---|---|
//! | `image` | an image: from a file, a package, or Debian's archive; unpacked |
//! | `machine` | a virtual machine: its options, QEMU, its limits, why it failed |
//! | `guest` | the first process of a machine, and the file system that it starts in |
//! | `in_c` | programs in C for a machine, compiled here |
//! | `frames` | the messages from a guest |
//! | `instructions` | counts of instructions by function and by hold of a lock |
//! | `recording` | operations: accesses to lines, locks, and the instructions between them |
//! | `plugins` | the plugins of QEMU that both need (`plugin`) |
//! | `symbols` | the functions and variables of a kernel |
//! | `marks` | the marks between which instructions are counted, or operations recorded |

#![forbid(unsafe_op_in_unsafe_fn)]

mod frames;
pub mod guest;
mod image;
mod in_c;
pub mod instructions;
mod machine;
pub mod marks;
mod plugins;
pub mod recording;
mod symbols;

pub use frames::Up;
pub use guest::{Job, JobFile};
pub use image::{Image, ImageError};
pub use in_c::static_program;
pub use machine::{
    Accelerator, BootError, EMULATOR, Ended, Machine, Output, Topology, accelerator,
    emulator_version,
};
