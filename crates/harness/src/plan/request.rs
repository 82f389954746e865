//! The request of a call, and the reasons why it cannot be run.

use std::path::PathBuf;

use mmscale_document::{Build, Target};
use mmscale_mm::versions::Version;
use mmscale_sim::HoldScale;
use mmscale_sim::profile::{ProfileError, Shape};
use thiserror::Error;

use super::costs::{CostError, Costs};
use crate::names::UnknownName;
use crate::param::{Length, ParamError, Settings};
use crate::registry::NoStudy;
use crate::study::versions::VersionError;
use crate::study::{Checks, PolicyArm, PolicyError};

/// A request to run studies. A field that is left out has the study's default.
#[derive(Clone, Debug)]
pub struct Request {
    /// Names of studies; `all` means all studies.
    pub studies: Vec<String>,
    /// The machine.
    pub on: Option<Target>,
    /// Names of arms, starting with the one to compare with; empty means all arms of the study.
    pub arms: Vec<String>,
    /// Arms that are created from policies. They follow the named arms, or the study's first arm if
    /// none is named.
    pub policies: Vec<PolicyArm>,
    /// The version of Linux whose policies the arms have, except for those that they choose
    /// themselves; `None`: the defaults.
    pub linux: Option<Version>,
    /// The name of a built-in profile, or the path of a profile file.
    pub profile: Option<PathBuf>,
    /// Costs of the simulated machine that differ from the profile's.
    pub costs: Costs,
    /// Settings of parameters, including `cpus` and `hz`.
    pub settings: Settings,
    /// Number of seeds; `None` means [`SEEDS`], or 2 in a quick run.
    pub seeds: Option<u64>,
    /// Whether runs look at their headlines after a few seeds, and end if these are settled
    /// ([`Plan::look`](super::Plan::look)); simulated machines only, and without `seeds`.
    pub look: bool,
    /// The first seed; the others are consecutive.
    pub first_seed: u64,
    /// Full or quick.
    pub length: Length,
    /// Whether checkers are on.
    pub checks: Checks,
    /// Whether to record what the holders of locks did while others waited: all of them on
    /// simulated machines, those that can be seen on the live kernel.
    pub blame: bool,
    /// Scales work while a lock of one class is held; simulated machines only.
    pub hold_scale: Option<HoldScale>,
    /// Grouping of CPUs on a simulated machine with another number of CPUs than its profile.
    pub shape: Shape,
    /// The program and command line of the request.
    pub origin: Origin,
}

impl Request {
    /// Creates a request of these studies as they are: all arms, full runs, no checkers.
    pub fn of(studies: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self {
            studies: studies.into_iter().map(Into::into).collect(),
            on: None,
            arms: vec![],
            policies: vec![],
            linux: None,
            profile: None,
            costs: Costs::default(),
            settings: Settings::default(),
            seeds: None,
            look: false,
            first_seed: 1,
            length: Length::Full,
            checks: Checks::Off,
            blame: false,
            hold_scale: None,
            shape: Shape::Keep,
            origin: Origin::default(),
        }
    }
}

/// The origin of runs: the program, its build, and its command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The build of mmscale.
    pub build: Build,
    /// The program that contains mmscale, if it is not the `mmscale` binary.
    pub program: Option<Build>,
    /// The command line, word by word.
    pub command: Vec<String>,
}

impl Default for Origin {
    /// The origin of library callers: this version, unknown commit.
    fn default() -> Self {
        let build = Build::new("mmscale", env!("CARGO_PKG_VERSION"), "unknown");
        Self { build, program: None, command: Vec::new() }
    }
}

/// Why a request cannot be run. Nothing was started or written.
#[derive(Debug, Error)]
pub enum CallError {
    /// An arm does not exist.
    #[error(transparent)]
    Name(#[from] UnknownName),
    /// A cost of the machine cannot be set to the given value.
    #[error(transparent)]
    Cost(#[from] CostError),
    /// A parameter cannot be set to the given value.
    #[error(transparent)]
    Param(#[from] ParamError),
    /// An arm cannot be created from the given policies.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// A version of Linux cannot be simulated.
    #[error(transparent)]
    Linux(#[from] VersionError),
    /// A profile cannot be used.
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// A study does not exist or cannot be used.
    #[error(transparent)]
    Study(#[from] NoStudy),
    /// Another error; the text has the problem and advice.
    #[error("{0}")]
    Other(String),
}
