//! The frame allocator compared with other allocators, in one run.
//!
//! Every allocator manages the same number of frames and runs the same five programs, one after
//! another in every round, so that disturbance by other programs affects all of them alike. `cargo
//! bench -p mmscale-peers` prints medians and their ratios; the row `floor` takes frame numbers
//! from a counter on each thread, which is the cost of the programs themselves.
//!
//! Frames are only numbers here, and their memory is not touched, except with `-- --checked`: then
//! the owner of a page writes to all of it, and checks it before it frees the page. `--
//! --fragmentation` measures how well free frames stay together. `-- --help` lists the other
//! options.
//!
//! Two allocators that would be of interest are missing. `osdk-frame-allocator` 0.19 is written for
//! `ostd`, the kernel of its own project, which needs a dozen unstable features of the compiler and
//! boots a machine, so that a stand-in for that kernel would be needed. LLFree is on no registry.
//!
//! [`vma`] does the same for the VMA tree: `cargo bench -p mmscale-peers --bench vma`.

mod disturbance;
pub mod fragmentation;
pub mod hand;
pub mod host;
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
