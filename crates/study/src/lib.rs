//! Workloads, arms, repeats, statistics.
//!
//! A [`Study`] is a question about a mechanism: a workload, parameters, and arms, which are the
//! sets of policies that it compares. Which arm a run belongs to is a number to the framework: no name that a study or an
//! arm was given reaches a cost or a fingerprint.

mod names;
pub mod param;
mod study;

pub use names::{UnknownName, nearest};
pub use param::{Length, ParamError, ParamSpec, Params, Unit};
pub use study::{
    ArmId, ArmSpec, Checks, Defaults, Interrupt, MetricSpec, Progress, ProgressSink, RunContext,
    RunEvent, SeedResult, Study, StudyError,
};
