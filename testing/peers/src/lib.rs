//! The frame allocator beside other people's, in one run.
//!
//! Every allocator manages the same number of frames and runs the same five programs, one after
//! another in every round, so that whatever else happens on this computer happens to all of them.
//! `cargo bench -p mmscale-peers` prints medians and their ratios; the row `floor` takes
//! frame numbers from a counter on each thread: what the programs themselves cost.
//!
//! Frames are numbers here, and nobody touches the memory behind them, but with `-- --checked`:
//! then every page is written by who has it, and looked at before it goes back. `--
//! --fragmentation` asks how well free frames stay together. `-- --help` says what else there is.
//!
//! Two that belong beside them are not: `osdk-frame-allocator` 0.19 is written against `ostd`, the
//! kernel of its own project, which takes a dozen unstable features of the compiler and boots a
//! machine, so that it would need a stand-in for that kernel; and LLFree is on no registry.
//!
//! [`vma`] does the same for the VMA tree: `cargo bench -p mmscale-peers --bench vma`.

mod disturbance;
pub mod fragmentation;
pub mod hand;
mod host;
mod memory;
pub mod options;
pub mod peer;
pub mod phase;
mod random;
pub mod ring;
pub mod round;
pub mod sheet;
pub mod stamps;
pub mod table;
pub mod vma;

pub use peer::Peer;
pub use phase::Phase;

/// Frames that each allocator manages: 2 GiB of 4 KiB pages.
pub const FRAMES: usize = 1 << 19;
