//! A deterministic many-core machine in virtual time.
//!
//! Ordinary code over [`mmscale_arch::Machine`] runs unchanged on 1 to 4096 virtual CPUs. Each task
//! is a coroutine on one host thread, and each CPU has a clock of its own. Everything that CPUs can
//! see of one another happens in the order of virtual time. The same configuration in the same
//! binary gives the same results, to the last bit. The module page of `engine` explains how, with
//! an example.
//!
//! | module | what it does |
//! |---|---|
//! | `engine`, `heap`, `cpu`, `cpus` | clocks, turns, costs, checks, the queue of events |
//! | `record` | what a run leaves: statistics, waits and holders, sections, trails, timelines |
//! | `machine` | all of it as the memory manager sees it |
//! | `prefetch` | host memory that is fetched before a turn |
//! | `irq` | charges, checkpoints, interrupts, timers |
//! | `sched`, `task`, `park`, `idle` | run queues, park and unpark, idle |
//! | `lock`, `spin`, `sleeping`, `atomics`, `memory` | shared state and what it costs |
//! | `lines`, `copies` | cache lines of data, and of per-CPU data |
//! | `device`, `io` | the swap device |
//! | `noise`, `hotplug`, `sharing` | disturbance, CPUs that go offline, CPUs that stay idle |
//! | `tables`, `tlbs`, `paging` | words of page tables, and the CPUs' TLBs |
//! | `stack`, `slab` | stacks of coroutines |
//! | `replay` | what a player of recorded operations calls in addition |
//! | `run` | a run from boot to its end |
//!
//! Architecture invariant: nothing here knows a study, an arm or a policy of the memory manager.
//! Waits emerge from the locks that code takes.

mod atomics;
mod caches;
mod config;
mod copies;
mod cpu;
mod cpus;
mod device;
mod engine;
mod heap;
mod hotplug;
mod idle;
mod io;
mod irq;
mod lines;
mod lock;
mod machine;
mod memory;
mod noise;
mod outcome;
mod paging;
mod park;
mod prefetch;
pub mod profile;
mod record;
mod replay;
mod rng;
mod run;
mod sample;
mod sched;
mod sharing;
mod slab;
mod sleeping;
mod speed;
mod spin;
mod stack;
mod tables;
mod task;
mod tlbs;
mod topology;
mod visits;

pub use atomics::{SimAtomic, SimOwnedI8, SimOwnedI64, Word};
pub use config::{Checks, Faults, HoldScale, LineOrder, Listener, Policy, SimConfig};
pub use machine::{Sim, table_host_bytes};
pub use noise::random_u64;
pub use outcome::{Failure, Lateness, Location, Outcome, Rule, Violation};
pub use profile::{Disturbance, Gaps, Lengths, Noise};
pub use record::names::Names;
pub use record::sections::{
    CpuSections, LoopRow, SECTION_BUCKETS, SECTION_LIMITS_NS, Section, Waited, Windows,
};
pub use record::timeline::TimelineOf;
pub use record::trail::{TRAIL_BLOCK, Trail, TrailEvent, TrailOf};
pub use run::run;
pub use sample::sample_profile;
pub use speed::Pace;
pub use spin::{SimOsq, SimSpin};
pub use stack::{StackNeeds, stack_needs};
pub use topology::scaled as scaled_topology;
