//! Options that several commands have: groups of them, each with its part of a request.

use std::path::PathBuf;

use mmscale_harness::{CallError, Costs, Length, Origin, PolicyArm, Request, linux_version};

use super::{ARMS, Format, MACHINE, OUTPUT, SIZE, ShapeArg, whole};
use crate::failure::Failure;
use crate::request::{settings, simulated};

/// A simulated machine.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct MachineArgs {
    /// CPUs of the machine, 1 to 4096; several values make a sweep
    #[arg(help_heading = MACHINE, long, value_name = "N", allow_negative_numbers = true)]
    pub(crate) cpus: Option<String>,
    /// How CPUs are grouped if --cpus is not the profile's
    #[arg(help_heading = MACHINE, long, value_enum, default_value_t = ShapeArg::Keep)]
    pub(crate) shape: ShapeArg,
    /// The simulated machine: a built-in profile, or the path of a profile file
    #[arg(help_heading = MACHINE, long, value_name = "NAME|FILE")]
    pub(crate) profile: Option<PathBuf>,
    /// Another value of a cost of the profile, within its range; several values (KEY=110,575) make
    /// a sweep; may be repeated. `mmscale profile show NAME` has all costs with their ranges
    #[arg(help_heading = MACHINE, long = "cost", value_name = "KEY=VALUE")]
    pub(crate) costs: Vec<String>,
    /// Timer interrupts a second: 100, 250, 300 or 1000
    #[arg(help_heading = MACHINE, long, value_name = "N", allow_negative_numbers = true)]
    pub(crate) hz: Option<String>,
}

/// The arms of a study, and its parameters.
#[derive(Debug, clap::Args)]
pub(crate) struct ArmArgs {
    /// The arms to run, starting with the one to compare with; all if not given
    #[arg(help_heading = ARMS, long = "arm", value_name = "A,B", value_delimiter = ',')]
    pub(crate) arms: Vec<String>,
    #[command(flatten)]
    pub(crate) changes: ChangeArgs,
}

/// Changes of a study: policies, a version of Linux, parameters.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct ChangeArgs {
    /// Add an arm with these policies to the study's first arm, or to those of --arm; may be
    /// repeated. `mmscale list policies` shows all
    #[arg(help_heading = ARMS, long = "policy", value_name = "[NAME:]KEY=POLICY,..")]
    pub(crate) policies: Vec<String>,
    /// Simulate the mechanisms of this version of Linux, 5.0 to 7.3 (mmscale list linux).
    /// Policies of an arm and of --policy replace them; an arm that is another version is left out
    #[arg(help_heading = ARMS, long, value_name = "VERSION")]
    pub(crate) linux: Option<String>,
    /// Set a parameter of the study; several values (key=8,16) make a sweep
    #[arg(help_heading = ARMS, long = "set", value_name = "KEY=VALUE", allow_hyphen_values = true)]
    pub(crate) set: Vec<String>,
}

/// The seeds and the length of the runs of an analysis, and its output.
#[derive(Debug, clap::Args)]
pub(crate) struct AnalysisArgs {
    /// How many seeds each point runs
    #[arg(
        help_heading = SIZE,
        long,
        value_name = "N",
        default_value_t = SEEDS,
        value_parser = whole
    )]
    seeds: u64,
    #[command(flatten)]
    first: FirstSeed,
    /// Runs as short as those of `mmscale run --quick`; this is the default
    #[arg(help_heading = SIZE, long, conflicts_with = "full")]
    quick: bool,
    /// Runs of full length
    #[arg(help_heading = SIZE, long)]
    full: bool,
    /// The form of the output
    #[arg(help_heading = OUTPUT, long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
    #[command(flatten)]
    pub(crate) documents: DocumentsArgs,
}

/// Number of seeds of each point of an analysis.
pub(crate) const SEEDS: u64 = 2;

impl AnalysisArgs {
    /// Returns the seeds and the length of the runs.
    pub(crate) fn size(&self) -> Size {
        Size {
            seeds: Some(self.seeds),
            first: self.first.seed,
            length: if self.full { Length::Full } else { Length::Quick },
        }
    }
}

/// The first seed.
#[derive(Debug, clap::Args)]
pub(crate) struct FirstSeed {
    /// The first seed; the others follow it
    #[arg(
        help_heading = SIZE,
        long,
        value_name = "BASE",
        default_value_t = 1,
        allow_negative_numbers = true,
        value_parser = whole
    )]
    pub(crate) seed: u64,
}

/// Where documents are written.
#[derive(Debug, clap::Args)]
pub(crate) struct DocumentsArgs {
    /// Also write each document to the folder DIR, as text and as JSON; a name that ends in .json
    /// is the file of the only document
    #[arg(help_heading = OUTPUT, short = 'o', long = "output", value_name = "DIR")]
    pub(crate) output: Option<PathBuf>,
    /// Replace documents of the same names in DIR; otherwise they are an error
    #[arg(help_heading = OUTPUT, long, requires = "output")]
    pub(crate) replace: bool,
}

/// A file that a command writes.
#[derive(Debug, clap::Args)]
pub(crate) struct FileArgs {
    /// The file to write, or a folder for it; stdout if not given
    #[arg(short = 'o', long = "output", value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Replace FILE if it exists; otherwise that is an error
    #[arg(long, requires = "output")]
    pub(crate) replace: bool,
}

/// How much runs: the seeds, and the length of each run.
#[derive(Clone, Copy)]
pub(crate) struct Size {
    /// The number of seeds; the study's default if `None`.
    pub(crate) seeds: Option<u64>,
    pub(crate) first: u64,
    pub(crate) length: Length,
}

impl MachineArgs {
    /// Returns the request of simulated runs on this machine, without checkers.
    pub(crate) fn request(
        &self,
        studies: Vec<String>,
        arms: Vec<String>,
        changes: &ChangeArgs,
        size: Size,
        origin: Origin,
    ) -> Result<Request, Failure> {
        let policies = changes.policies.iter().map(|text| PolicyArm::parse(text));
        let linux = changes.linux.as_deref().map(linux_version);
        let settings = settings(&changes.set, self.cpus.as_deref(), self.hz.as_deref())?;

        Ok(Request {
            arms,
            policies: policies.collect::<Result<_, _>>().map_err(CallError::from)?,
            linux: linux.transpose().map_err(CallError::from)?,
            profile: self.profile.clone(),
            settings,
            seeds: size.seeds,
            first_seed: size.first,
            length: size.length,
            costs: Costs::parse(&self.costs).map_err(CallError::from)?,
            shape: self.shape.into(),
            ..simulated(studies, origin)
        })
    }
}
