//! Machine profiles: topology and costs of one machine, as the engine uses them.
//!
//! A profile is a file; every number in it carries its range and its source. A file may name a
//! base and have only the numbers that differ; [`open`] merges it with its bases, and keeps which
//! file each number is from. [`Merged::resolve`] checks all numbers and returns [`Profile`], with
//! times in picoseconds, the engine's unit; [`load`] does both. The profiles of `machines/` are
//! built into the program.

mod adjust;
mod base;
mod basis;
mod builtin;
mod error;
mod file;
mod noise;
mod open;
mod resolve;
mod shape;

pub use adjust::CostGroup;
pub use base::Merged;
pub use basis::Basis;
pub use builtin::{Profiles, builtin_names};
pub use error::ProfileError;
pub use file::{Number, ProfileFile, Section, op_key, parse, write, write_with};
pub use noise::{Disturbance, Gaps, Lengths, Noise};
pub use open::{builtin_file, load, open};
pub use resolve::resolve;
pub use shape::Shape;

use mmscale_arch::Op;

/// A machine: how many CPUs, how they are grouped, how much memory, what things cost.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// The profile's name: the file name without `.toml`.
    pub name: String,
    /// What machine this is, in words.
    pub description: String,
    /// A hash over the numbers of its file, which derived profiles keep: equal numbers, equal hash.
    pub hash: u64,
    /// The bases of a profile from a file, the nearest first; none for a built-in profile, whose
    /// bases are part of the program.
    pub bases: Vec<String>,
    /// CPUs and their groups.
    pub topology: Topology,
    /// Memory of each node, in pages of `page_bytes`.
    pub node_pages: u64,
    /// Bytes in a page.
    pub page_bytes: u32,
    /// Timer interrupts a second, unless a run says otherwise.
    pub hz: u32,
    /// What things cost.
    pub costs: Costs,
    /// The swap device.
    pub swap: SwapDevice,
    /// Disturbance from outside. A run asks for it: nothing disturbs it otherwise.
    pub noise: Noise,
}

/// The swap device: one queue for the whole machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SwapDevice {
    /// What a read takes beside its transfer, in picoseconds.
    pub read_ps: u64,
    /// The same for a write.
    pub write_ps: u64,
    /// Bytes it moves a microsecond, both ways together.
    pub bytes_per_us: u64,
    /// Requests it takes before the first of them has finished.
    pub depth: usize,
}

/// Groups of CPUs, by number: CPU c is thread `c % smt` of core `c / smt`; cores fill clusters,
/// clusters fill nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Topology {
    /// CPUs that there is room for. A run with fewer has the first of them.
    pub cpus: usize,
    /// Hardware threads of a core.
    pub smt: usize,
    /// CPUs that share a last-level cache.
    pub cluster: usize,
    /// Memory nodes (sockets); CPUs are split evenly.
    pub nodes: usize,
}

/// What one step costs, in picoseconds. Fields are named as in the profile file, where each has
/// its range and source.
#[derive(Clone, Debug, PartialEq)]
pub struct Costs {
    /// Each [`Op`], indexed by its discriminant.
    pub op_ps: [u64; Op::ALL.len()],
    /// Moving a cache line from the CPU that has it.
    pub line: LineCosts,
    /// The part of the transfer of a frame's metadata line ([`mmscale_arch::Line::Frame`])
    /// that a CPU hides behind other work, in 1/1024: bulk loops walk frames in order, so their
    /// misses overlap and are prefetched. Charge `transfer * (1024 - hidden) / 1024`, never less
    /// than `own_ps`.
    pub frame_hidden_1024: u32,
    /// An atomic read-modify-write on a line this CPU owns.
    pub atomic_ps: u64,
    /// Taking a free spin lock whose line this CPU owns.
    pub lock_ps: u64,
    /// Letting a spin lock go.
    pub unlock_ps: u64,
    /// Passing a contended lock to the next waiter, on top of the line transfer between the two.
    pub handoff_ps: u64,
    /// The sender's part of an interrupt to another CPU.
    pub ipi_send_ps: u64,
    /// From send to the handler's first instruction on a running target.
    pub ipi_delivery_ps: u64,
    /// From a broadcast that invalidates translations until all CPUs have heard it; 0: there is no
    /// such broadcast, CPUs are interrupted instead.
    pub tlb_broadcast_ps: u64,
    /// Entry to and exit from an interrupt.
    pub irq_ps: u64,
    /// Switching between two tasks on a CPU.
    pub switch_ps: u64,
    /// Making a task of this CPU runnable.
    pub wake_ps: u64,
    /// From waking an idle CPU to its first instruction (exit from idle included).
    pub idle_exit_ps: u64,
    /// Bytes a node's memory can take a microsecond, for clearing.
    pub node_bytes_per_us: u64,
    /// Seeded jitter on each charged operation, in 1/1024 of it, up and down.
    pub jitter_1024: u32,
}

/// Moving a cache line, one way, by where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineCosts {
    /// This CPU has it.
    pub own_ps: u64,
    /// The other hardware thread of the core has it.
    pub smt_ps: u64,
    /// A CPU of the same cluster has it.
    pub cluster_ps: u64,
    /// A CPU of the same node has it.
    pub node_ps: u64,
    /// A CPU of another node has it.
    pub remote_ps: u64,
    /// Nobody has it: from the node's own memory.
    pub memory_ps: u64,
}
