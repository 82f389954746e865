//! Workloads, arms, repeats, statistics.
//!
//! A [`Study`] is a question about a mechanism: a workload, parameters, and arms, which are the
//! sets of policies that it compares. A [`Request`] says what somebody wants to run; [`plan`]
//! checks all of it before anything starts and gives one [`Plan`] for each document; [`execute`]
//! runs a plan's arms and seeds, several at a time where the machine is simulated, and assembles
//! the record. Which arm a run belongs to is a number to the framework: no name that a study or an
//! arm was given reaches a cost or a fingerprint.

pub mod ab;
pub mod calibrate;
mod chosen;
pub mod churn;
pub mod fidelity;
mod file;
mod host;
pub mod ipi;
mod live;
mod machine;
mod meters;
mod names;
mod needs;
pub mod observe;
mod origin;
pub mod param;
pub mod pcp;
mod plan;
mod policies;
mod profiles;
pub mod reap;
mod registry;
mod runner;
mod schedules;
mod shape;
pub mod shipped;
pub mod stats;
pub mod stress;
mod study;
mod trails;
pub mod vmstat;

pub use chosen::{PolicyArm, PolicyError};
pub use file::{FileError, Source};
pub use host::host;
pub use mmscale_arch::About;
pub use mmscale_linux::{Leftovers, clear as clear_leftovers, provenance};
pub use mmscale_mm::policy::{MECHANISMS, Mechanism};
pub use mmscale_sim::profile::Shape;
pub use names::{UnknownName, nearest};
pub use needs::fits_host;
pub use origin::Origin;
pub use param::{Length, ParamError, ParamSpec, Params, Settings, Unit};
pub use plan::{CallError, MAX_CPUS, Plan, Request, plan};
pub use profiles::{ProfileSummary, profiles};
pub use registry::{NoStudy, Registry};
pub use runner::{RunError, execute};
pub use study::{
    ArmId, ArmSpec, Checks, Defaults, Interrupt, MetricSpec, Progress, ProgressSink, RunContext,
    RunEvent, SeedResult, Study, StudyError, TooShort,
};
pub use trails::Trails;
