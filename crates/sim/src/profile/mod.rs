//! Machine profiles: topology and costs of one machine, as the engine uses them.
//!
//! A profile is a file in which every number has a range and a source. A file may name a base and
//! have only the numbers that differ. [`open`] merges it with its bases, and records which file
//! each number comes from. [`Merged::resolve`] checks all numbers and returns [`Profile`], with
//! times in picoseconds, the engine's unit; [`load`] does both. The profiles of `machines/` are
//! built into the program.

mod adjust;
mod base;
mod basis;
mod builtin;
mod costs;
mod error;
mod file;
mod instructions;
mod kernels;
mod noise;
mod open;
mod resolve;
mod shape;

pub use adjust::CostGroup;
pub use base::Merged;
pub use basis::Basis;
pub use builtin::{Profiles, builtin_names};
pub use error::ProfileError;
pub use file::{Number, ProfileFile, Section, instructions_key, op_key, parse, write, write_with};
pub use noise::{Disturbance, Gaps, Lengths, Noise};
pub use open::{builtin_file, load, open};
pub use resolve::resolve;
pub use shape::Shape;

use mmscale_arch::Op;

/// A machine: its CPUs and their groups, its memory, its costs.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// The profile's name: the file name without `.toml`.
    pub name: String,
    /// The machine, in words.
    pub description: String,
    /// A hash over the numbers of its file, which derived profiles keep: equal numbers have equal
    /// hashes.
    pub hash: u64,
    /// The bases of a profile from a file, nearest first. Empty for a built-in profile, whose bases
    /// are part of the program.
    pub bases: Vec<String>,
    /// CPUs and their groups.
    pub topology: Topology,
    /// Memory of each node, in pages of `page_bytes`.
    pub node_pages: u64,
    /// Bytes in a page.
    pub page_bytes: u32,
    /// Zones, watermarks and page caches, as far as a machine's differ from the kernel's choice.
    pub limits: Limits,
    /// Address spaces whose invalidations can be broadcast at a time; 0: all.
    pub tlb_broadcast_spaces: u32,
    /// Timer interrupts a second, unless a run sets another number.
    pub hz: u32,
    /// The costs.
    pub costs: Costs,
    /// The swap device.
    pub swap: SwapDevice,
    /// Disturbance from outside. It applies only if a run asks for it.
    pub noise: Noise,
    /// The clock of its CPUs.
    pub clock: Clock,
}

/// Zones, watermarks and page caches of a machine. At 0 the kernel chooses by the size of memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Pages of the first node that are a DMA32 zone.
    pub dma32_pages: u32,
    /// `vm.min_free_kbytes`.
    pub min_free_kib: u64,
    /// The batch of page caches, in pages.
    pub pcp_batch: u32,
}

/// The clock at which the costs of operations are stated, and those that the CPUs have. Operations
/// that clear or copy pages wait for memory: their time does not depend on it, nor does that of
/// lines, locks and interrupts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Clock {
    /// The clock of the CPU whose costs are in the profile.
    pub reference_mhz: f64,
    /// The clock of a node of which one core works.
    pub one_core_mhz: f64,
    /// The clock of a node of which half of the cores work; in between it is on a straight line.
    pub half_cores_mhz: f64,
    /// The clock of a node of which all cores work.
    pub all_cores_mhz: f64,
    /// The time of an operation while a hardware thread of the same core works, next to that of a
    /// core of its own, in 1/1024.
    pub smt_work_1024: u32,
    /// That time while the other thread spins for a lock.
    pub smt_spin_1024: u32,
    /// CPUs of small cores, which have the lowest numbers, and their speed next to that of a large
    /// core, in 1/1024.
    pub small: (usize, u32),
    /// CPUs of middle cores, which have the next numbers, and their speed.
    pub middle: (usize, u32),
}

impl Default for Clock {
    /// A machine of one speed.
    fn default() -> Self {
        Self {
            reference_mhz: 1.0,
            one_core_mhz: 1.0,
            half_cores_mhz: 1.0,
            all_cores_mhz: 1.0,
            smt_work_1024: 1024,
            smt_spin_1024: 1024,
            small: (0, 1024),
            middle: (0, 1024),
        }
    }
}

impl Clock {
    /// Returns the time of an operation on the slowest kind of core next to that on a large one.
    pub fn slowest_times(&self) -> f64 {
        let kinds = [self.small, self.middle].into_iter().filter(|(cpus, _)| *cpus > 0);
        kinds.map(|(_, speed_1024)| 1024.0 / f64::from(speed_1024)).fold(1.0, f64::max)
    }
    /// Returns the time of an operation on `cpu` next to that on a large core, in 1/1024.
    pub(crate) fn core_times_1024(&self, cpu: usize) -> u32 {
        let speed_1024 = match cpu {
            _ if cpu < self.small.0 => self.small.1,
            _ if cpu < self.small.0 + self.middle.0 => self.middle.1,
            _ => 1024,
        };
        1024 * 1024 / speed_1024
    }
    /// Returns the time of an operation next to that at the reference clock, in 1/1024, while
    /// `active` cores work of a node of `cores`.
    pub(crate) fn times_1024(&self, active: usize, cores: usize) -> u32 {
        let (active, cores) = (active.clamp(1, cores) as f64, cores as f64);
        let half = (cores / 2.0).max(1.0);
        let between = |[from, to]: [f64; 2], at: f64, length: f64| {
            if length > 0.0 { from + (to - from) * at / length } else { from }
        };
        let mhz = if active <= half {
            between([self.one_core_mhz, self.half_cores_mhz], active - 1.0, half - 1.0)
        } else {
            between([self.half_cores_mhz, self.all_cores_mhz], active - half, cores - half)
        };
        (1024.0 * self.reference_mhz / mhz).round() as u32
    }
}

/// The swap device: one queue for the whole machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SwapDevice {
    /// Latency of a read without the transfer, in picoseconds.
    pub read_ps: u64,
    /// Latency of a write without the transfer, in picoseconds.
    pub write_ps: u64,
    /// Bytes transferred in a microsecond, both directions together.
    pub bytes_per_us: u64,
    /// Requests that it accepts before the first of them has finished.
    pub depth: usize,
}

/// Groups of CPUs, by number: CPU c is thread `c % smt` of core `c / smt`; cores fill clusters,
/// clusters fill nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Topology {
    /// CPUs of the whole machine. A run with fewer has the first of them.
    pub cpus: usize,
    /// Hardware threads of a core.
    pub smt: usize,
    /// CPUs that share a last-level cache.
    pub cluster: usize,
    /// Memory nodes (sockets); CPUs are split evenly.
    pub nodes: usize,
}

/// The cost of each step, in picoseconds. Fields are named as in the profile file, where each has
/// its range and source.
#[derive(Clone, Debug, PartialEq)]
pub struct Costs {
    /// Each [`Op`], indexed by its discriminant.
    pub op_ps: [u64; Op::ALL.len()],
    /// Moving a cache line from the CPU that has it.
    pub line: LineCosts,
    /// The part of the transfer of a frame's metadata line ([`mmscale_arch::Line::Frame`])
    /// that a CPU hides behind other work, in 1/1024, if the frame is next to the one before: the
    /// misses of a walk in order overlap and are prefetched. Charge `transfer * (1024 - hidden) /
    /// 1024`, never less than `own_ps`. Others, such as the neighbours on a list, are waited for.
    pub frame_hidden_1024: u32,
    /// An atomic read-modify-write on a line this CPU owns.
    pub atomic_ps: u64,
    /// How long the interconnect is busy with an addition to a line, which then stays there; 0: a
    /// CPU that adds takes the line.
    pub far_add_ps: u64,
    /// Taking a free spin lock whose line this CPU owns.
    pub lock_ps: u64,
    /// Releasing a spin lock.
    pub unlock_ps: u64,
    /// Passing a contended lock to the next waiter: the part that does not depend on where the two
    /// are.
    pub handoff_fixed_ps: u64,
    /// The ways of a line between the old owner and the new one in that, in 1/1024. An owner's
    /// store takes the line from the waiter, which reads it, and takes it to write.
    pub handoff_lines_1024: u32,
    /// The sender's part of an interrupt to another CPU.
    pub ipi_send_ps: u64,
    /// From send to the handler's first instruction on a running target.
    pub ipi_delivery_ps: u64,
    /// From a broadcast that invalidates translations until all CPUs have applied it; 0 if there is
    /// no such broadcast and CPUs are interrupted instead.
    pub tlb_broadcast_ps: u64,
    /// The part of a broadcast in which the machine takes no other one.
    pub tlb_serial_ps: u64,
    /// Entry to and exit from an interrupt.
    pub irq_ps: u64,
    /// Switching between two tasks on a CPU.
    pub switch_ps: u64,
    /// Making a task of this CPU runnable.
    pub wake_ps: u64,
    /// From waking an idle CPU to its first instruction (exit from idle included).
    pub idle_exit_ps: u64,
    /// How widely that time is spread, in 1/1024: at 1024 it is the median of a long tail, whose
    /// 99th percentile is five times as long.
    pub idle_spread_1024: u32,
    /// The exit from a deep idle state; 0: the CPUs have none, or do not use it.
    pub idle_deep_exit_ps: u64,
    /// How long a CPU is idle before its exit is that from the deep state.
    pub idle_deep_after_ps: u64,
    /// Bytes that a node's memory can move in a microsecond.
    pub node_bytes_per_us: u64,
    /// Bytes that memory moves for each byte that a clear or a copy writes, in 1/1024: the line is
    /// read before it is written, and written back. A copy also reads its source.
    pub write_traffic_1024: u32,
    /// The size of a cluster's caches together, in KiB.
    pub cluster_cache_kib: u32,
    /// Seeded jitter on each charged operation, in 1/1024 of it, up and down.
    pub jitter_1024: u32,
    /// An instruction of a recorded operation, or of one whose instructions the profile has,
    /// outside of the holds of spin locks: the mean, misses in the CPU's own caches included.
    pub instruction_ps: u64,
    /// An instruction of such an operation while its CPU holds a spin lock.
    pub hold_instruction_ps: u64,
}

/// The cost of moving a cache line, one way, by its location.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineCosts {
    /// In this CPU's cache.
    pub own_ps: u64,
    /// In the cache of the core, by its other hardware thread.
    pub smt_ps: u64,
    /// In the cache of a CPU of the same cluster.
    pub cluster_ps: u64,
    /// In the cache of a CPU of the same node.
    pub node_ps: u64,
    /// In the cache of a CPU of another node.
    pub remote_ps: u64,
    /// In no cache: from the node's own memory.
    pub memory_ps: u64,
}

impl Costs {
    /// Costs of a profile that does not state them, in ns by key.
    pub(crate) const UNSTATED: [(&'static str, f64); 2] =
        [("instruction_ns", 0.35), ("hold_instruction_ns", 0.2)];
}

impl LineCosts {
    /// Returns the costs of lines in the caches of other CPUs.
    pub fn transfers_mut(&mut self) -> [&mut u64; 4] {
        let Self { smt_ps, cluster_ps, node_ps, remote_ps, .. } = self;
        [smt_ps, cluster_ps, node_ps, remote_ps]
    }
}
