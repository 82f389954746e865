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
//! | `engine`, `heap`, `cpu`, `turn` | clocks, turns, the queue of events |
//! | `prefetch` | host memory that is fetched before a turn |
//! | `irq` | charges, checkpoints, interrupts, timers |
//! | `sched`, `task`, `park`, `idle` | run queues, park and unpark, idle |
//! | `lock`, `spin`, `atomics`, `lines`, `memory`, `cost` | shared state and what it costs |
//! | `device`, `io` | the swap device |
//! | `stats`, `noise`, `hotplug` | statistics, disturbance, CPUs that go offline |
//! | `sections`, `watch` | how long CPUs can run no other task, and why |
//! | `blame`, `blaming` | for every wait for a lock, what its holders did meanwhile |
//! | `check`, `checker`, `ledger` | checkers: locks and contexts; frames and counters |
//! | `tables`, `tlbs`, `paging` | words of page tables, and the CPUs' TLBs |
//! | `trail` | the order of events, to find where two runs differ |
//! | `stack`, `slab` | stacks of coroutines |
//! | `context`, `run` | coroutines, and access to the engine from `Sim`'s functions |
//!
//! Architecture invariant: nothing here knows a study, an arm or a policy of the memory manager.
//! Waits emerge from the locks that code takes.

mod arch;
mod atomics;
mod blame;
mod blaming;
mod check;
mod checker;
mod config;
mod context;
mod cost;
mod cpu;
mod device;
mod engine;
mod heap;
mod hotplug;
mod idle;
mod io;
mod irq;
mod ledger;
mod lines;
mod lock;
mod memory;
mod noise;
mod outcome;
mod paging;
mod park;
mod prefetch;
pub mod profile;
mod recording;
mod rng;
mod run;
mod sample;
mod sched;
mod sections;
mod sharing;
mod slab;
mod sleep_lock;
mod spin;
mod stack;
mod stats;
mod tables;
mod task;
mod timeline;
mod tlbs;
mod topology;
mod trail;
mod turn;
mod watch;

pub use arch::Sim;
pub use arch::table_host_bytes;
pub use atomics::{SimAtomic, SimOwnedI8, SimOwnedI64, Word};
pub use config::{Checks, Faults, HoldScale, Listener, Policy, SimConfig, Windows};
pub use noise::random_u64;
pub use outcome::{Failure, Lateness, Location, Outcome, Rule, Violation};
pub use profile::{Disturbance, Gaps, Lengths, Noise};
pub use run::run;
pub use sample::sample_profile;
pub use sections::{CpuSections, LoopRow, SECTION_BUCKETS, SECTION_LIMITS_NS, Section, Waited};
pub use spin::{SimOsq, SimSpin};
pub use stack::{StackNeeds, stack_needs};
pub use timeline::TimelineOf;
pub use topology::scaled as scaled_topology;
pub use trail::{TRAIL_BLOCK, Trail, TrailEvent, TrailOf};
