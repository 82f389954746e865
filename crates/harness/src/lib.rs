//! The framework of studies: parameters, programs, metrics, arms, plans, seeds.
//!
//! The author of a study implements [`Workload`]; `study.toml` adds arms and defaults. The two form
//! a [`Study`]. A [`Request`] describes what to run. [`plan`] checks all of it before anything
//! starts and returns one [`Plan`] per document. [`execute`] runs the arms and seeds of a plan,
//! several at a time on simulated machines, and assembles the document. Runs know their arm only by
//! a number: no name of a study or arm can influence a cost or a fingerprint.
//!
//! | module | content |
//! |---|---|
//! | `workload` | the trait, its inputs and results, rows of metrics |
//! | `drive` | one seed of one arm: boot, run, retry, measure |
//! | `board`, `spread` | data shared by programs: sums, and times by CPU |
//! | `machine`, `live`, `look` | the machines with this program's memory manager; the live kernel |
//! | `meters` | idle time, maximum of a quantity over all CPUs |
//! | `costs` | costs of a simulated machine that a call sets |
//! | `param` | parameters, their declaration, sweeps |
//! | `arm`, `policy_arm` | arms: lists of policies, from files and from `--policy` |
//! | `file`, `file_study`, `registry` | `study.toml`; a study of file and workload; all studies |
//! | `scripted` | scripts as studies |
//! | `plan`, `needs`, `shape` | from a request to plans; their host requirements; CPU counts |
//! | `runner` | runs over seeds; documents |
//! | `single` | single runs of plans: their keys; points gathered from their documents |
//! | `robust` | conclusions on machines with other costs |
//! | `whatif` | results with one lock or cost scaled |
//! | `versions` | arms as a version of Linux has them; the version of the running kernel |
//! | `schedules`, `trails` | a run under both schedules, and the first event that differs |

mod allocator_params;
mod board;
mod costs;
mod drive;
mod file;
mod file_study;
mod host;
#[cfg(feature = "live")]
mod live;
mod look;
pub mod machine;
mod meters;
mod names;
mod origin;
pub mod param;
mod plan;
mod profiles;
mod registry;
mod robust;
mod runner;
mod schedules;
mod scripted;
mod single;
mod spread;
mod study;
mod timelines;
mod traced;
mod trails;
mod whatif;
mod workload;

pub use crate::look::{LiveRun, Needs, Releases, Waits};
pub use crate::meters::Level;
pub use board::{Board, Samples, Times};
pub use costs::{CostError, Costs, CostsSet, costs_of, with_costs};
pub use file::{FileError, MAX_HEADLINES, Source};
pub use host::host;
pub use mmscale_arch::About;
pub use mmscale_document::Watch;
pub use mmscale_kernel::coverage;
pub use mmscale_mm::policy::{MECHANISMS, Mechanism};
pub use mmscale_script::{SUFFIX as SCRIPT_SUFFIX, Script, ScriptError};
pub use mmscale_sim::profile::{Merged, Profiles, Shape};
pub use mmscale_system as system;
pub use mmscale_system::plain;
pub use names::{UnknownName, nearest};
pub use origin::Origin;
pub use param::{Length, Named, ParamError, ParamSet, ParamSpec, Params, Settings, Unit};
pub use plan::{CallError, MAX_CPUS, Plan, Request, SEEDS, fits_host, plan};
pub use profiles::{ProfileSummary, profiles};
pub use registry::{NoStudy, Registry};
pub use robust::{Cache, RobustError, RobustRequest, Told, figures, on_drawn_machines, robust};
pub use runner::{RunError, execute, execute_each, run_alone};
pub use single::gathered;
pub use spread::{Spread, powers_of_two};
pub use study::versions::{VersionError, linux_version, policies_in, running_kernel};
pub use study::{
    Arm, ArmId, ArmSpec, Checks, Choice, Defaults, ErasedWorkload, Interrupt, MetricSpec,
    PolicyArm, PolicyError, Progress, ProgressSink, Report, RunContext, RunEvent, SeedResult,
    Study, StudyError, StudyInfo, TooShort, versions,
};
pub use timelines::Timelines;
pub use traced::{Traced, lock_class, trace};
pub use trails::Trails;
pub use whatif::{CallOrRun, FACTORS, Scalable, Step, WhatIfRequest, hold_scale, whatif};
pub use workload::{
    Env, Locks, Measured, Meter, Metric, Missing, Part, Phases, Run, SAMPLES, SETTLE_NS, Seen,
    Verdict, Window, Workload, counted, higher, insist, lower, making_ns, metric, ready_ns,
    start_on, value, wait_for,
};
