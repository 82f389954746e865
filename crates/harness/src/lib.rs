//! The framework of studies: parameters, programs, metrics, arms, plans, seeds.
//!
//! The author of a study implements [`Workload`]; `study.toml` adds arms and defaults. The two form
//! a [`Study`]. A [`Request`] describes what to run. [`plan`] checks all of it before anything
//! starts and returns one [`Plan`] per document. [`execute`] runs the arms and seeds of a plan,
//! several at a time on simulated machines, and assembles the document. Runs know their arm only by
//! a number: no name of a study or arm can influence a cost or a fingerprint.
//!
//! Each room uses only those above it:
//!
//! | room | content |
//! |---|---|
//! | `names`, `host` | unknown names with suggestions; the computer that executes the runs |
//! | [`param`] | parameters: their declaration, their values, sweeps |
//! | `study` | [`Study`], its arms, the inputs and results of a run; versions of Linux |
//! | [`machine`] | the machines with this program's memory manager; the live kernel |
//! | `workload` | the interface of authors, and one seed of one arm: boot, run, retry, measure |
//! | `registry` | all studies: of a `study.toml` and a workload, or of a script |
//! | `plan` | from a request to plans; costs that a call sets; requirements; keys of single runs |
//! | `runner` | plans over seeds; documents |
//! | `analysis` | machines with other costs; one lock scaled; the best arms; worst waits |

mod analysis;
mod host;
pub mod machine;
mod names;
pub mod param;
mod plan;
mod registry;
mod runner;
mod study;
mod workload;

pub use analysis::{
    Best, Cache, CallOrRun, FACTORS, Knob, Limit, MapError, Question, Region, RobustError,
    RobustRequest, Rule, Scalable, Settled, Step, Told, Traced, Tried, WhatIfRequest, ablation,
    figures, hold_scale, lock_class, on_drawn_machines, robust, subsets, trace, whatif,
};
pub use host::host;
pub use machine::{Level, LiveRun, Needs, Releases, Waits};
pub use mmscale_arch::About;
pub use mmscale_document::Watch;
pub use mmscale_kernel::coverage;
pub use mmscale_mm::policy::{MECHANISMS, Mechanism};
pub use mmscale_script::{
    ProgramSpec, Report as ScriptReport, Reproduction, SUFFIX as SCRIPT_SUFFIX, Script,
    ScriptError, Times as ScriptTimes,
};
pub use mmscale_sim::profile::{Merged, Profiles, Shape};
pub use mmscale_system as system;
pub use mmscale_system::plain;
pub use names::{UnknownName, nearest};
pub use param::{Length, Named, ParamError, ParamSet, ParamSpec, Params, Settings, Unit};
pub use plan::{
    CallError, CostError, Costs, CostsSet, MAX_CPUS, Origin, Plan, Request, SEEDS, costs_of,
    fits_host, plan, with_costs,
};
pub use registry::{
    MAX_HEADLINES, NoStudy, ProfileSummary, RECORDING_SUFFIX, Registry, profiles, script_values,
};
pub use runner::{RunError, execute, execute_each, gathered, run_alone, workers};
pub use study::versions::{VersionError, linux_version, policies_in, running_kernel};
pub use study::{
    Arm, ArmId, ArmSpec, Checks, Choice, Defaults, ErasedWorkload, FileError, Interrupt,
    MetricSpec, PolicyArm, PolicyError, Progress, ProgressSink, Report, RunContext, RunEvent,
    SeedResult, Source, Study, StudyError, StudyInfo, Timelines, TooShort, Trails, versions,
};
pub use workload::{
    Board, Env, Locks, Measured, Meter, Metric, Missing, Part, Phases, Run, SAMPLES, SETTLE_NS,
    Samples, Seen, Spread, Times, Verdict, Window, Workload, counted, higher, insist, lower,
    making_ns, metric, powers_of_two, ready_ns, start_on, value, wait_for,
};
