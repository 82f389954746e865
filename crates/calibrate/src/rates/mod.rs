//! Fits the costs of a profile to rates that were measured on one CPU.
//!
//! The profile is derived as for `mmscale profile new`. The programs of the rates run on one CPU of
//! it, and the costs of operations are scaled until they have the measured rates. Costs of cache
//! lines, atomics, locks, interrupts and switches stay: one CPU alone says nothing about them. So
//! every figure on more CPUs is a prediction.
//!
//! | part | content |
//! |---|---|
//! | `rate` | the form of a rate |
//! | `programs` | its program, and the simulated rate |
//! | `group` | the costs that have one factor |
//! | `search` | factors that are simulated and corrected until the rates are reproduced |
//! | `solve` | the factors nearest to a common one that have the measured rates |
//! | `written` | the profile file |

mod group;
mod programs;
mod rate;
mod search;
mod solve;
mod written;

use mmscale_harness::{CallError, Interrupt, Registry, RunError};
use mmscale_mm::versions::Version;
use mmscale_sim::profile::ProfileError;
use thiserror::Error;

use crate::derive::{DeriveError, Derived, Known, derive_or_inherit};
pub use group::Group;
use programs::programs;
pub use rate::{Rate, RateError};
use search::Search;
pub use written::text;

/// A factor outside this range is refused: the rate is not that of the program, or the base is a
/// machine of another kind.
pub const FACTORS: [f64; 2] = [0.1, 10.0];
/// A factor outside this range is implausible.
pub const PLAUSIBLE: [f64; 2] = [0.5, 2.0];
/// A rate is reproduced if the simulated one differs by no more than this part of it.
pub const REPRODUCED: f64 = 0.02;

/// A request to fit a profile to rates.
pub struct FitRequest<'a> {
    /// The known properties of the machine. Without CPUs, those of the base are used.
    pub known: &'a Known,
    /// The measured rates.
    pub rates: &'a [Rate],
    /// The scripts that rates may name, in addition to those of the gallery.
    pub registry: &'a Registry,
    /// The version of Linux on which they were measured; `None`: the default policies.
    pub linux: Option<Version>,
    /// Parameters of the programs, as `key=value`. Each applies to the programs that have it.
    pub set: &'a [String],
}

/// Why no costs were fitted.
#[derive(Debug, Error)]
pub enum FitError {
    /// The profile could not be derived.
    #[error(transparent)]
    Derive(#[from] DeriveError),
    /// There is no rate.
    #[error(
        "no --rate is given, so there is nothing to fit; give a rate that was measured on one CPU, \
         as in --rate page_fault1=720k, or write a profile without rates: mmscale profile new"
    )]
    NoRates,
    /// Two rates are those of one program.
    #[error(
        "--rate {again} and --rate {before} are rates of one program; give one of them, measured \
         on one CPU"
    )]
    Twice {
        /// The first rate.
        before: String,
        /// The second rate.
        again: String,
    },
    /// A study has no rate of one program.
    #[error(
        "--rate {study}: `{study}` is a study, which has no rate of one program on one CPU; name a \
         script (`mmscale list`), or the file of your own (./NAME{suffix})"
    )]
    NoRate {
        /// The study.
        study: String,
        /// The suffix of scripts.
        suffix: &'static str,
    },
    /// A program cannot be used.
    #[error(transparent)]
    Call(#[from] CallError),
    /// A program counts nothing in its window.
    #[error(
        "`{program}` counts no operation in its window on one CPU, so it has no rate; give the \
         script a longer `window`, or count within its loop"
    )]
    Nothing {
        /// The program.
        program: String,
    },
    /// A program that does not loop ended within its window.
    #[error(
        "`{program}` ended before its window on one CPU was over, so its rate is too low; give it \
         more to do, or a shorter window with --set duration_ms"
    )]
    Ended {
        /// The program.
        program: String,
    },
    /// A run failed, or the user interrupted it.
    #[error("cannot run the program of a rate on one CPU: {why}")]
    Run {
        /// The reason.
        #[from]
        why: RunError,
    },
    /// No factor reaches a rate.
    #[error(
        "no factor of {} to {} reaches --rate {rate}: with these, one CPU of the machine has about \
         {slowest} to {fastest} operations a second; check that the rate is that of one program on \
         one CPU, or take a --base of the same kind of machine",
        FACTORS[0], FACTORS[1]
    )]
    NoFactor {
        /// The rate.
        rate: String,
        /// The rate with the largest factor.
        slowest: String,
        /// The rate with the smallest factor.
        fastest: String,
    },
}

impl FitError {
    /// Returns whether the call is wrong; otherwise a run failed or found no solution.
    pub const fn is_call(&self) -> bool {
        !matches!(self, Self::Run { .. } | Self::Nothing { .. } | Self::NoFactor { .. })
            && !matches!(self, Self::Ended { .. })
    }
}

impl From<ProfileError> for FitError {
    fn from(why: ProfileError) -> Self {
        DeriveError::from(why).into()
    }
}

/// A rate before and after the fit.
#[derive(Clone, Debug, PartialEq)]
pub struct FittedRate {
    /// The measured rate.
    pub rate: Rate,
    /// The simulated rate with the costs of the base.
    pub before_per_s: f64,
    /// The simulated rate of the written profile.
    pub after_per_s: f64,
}

impl FittedRate {
    /// Returns what is left between the simulated and the measured rate, as a part of this one.
    pub fn remainder(&self) -> f64 {
        self.after_per_s / self.rate.per_s - 1.0
    }
}

/// A fitted profile.
#[derive(Clone, Debug)]
pub struct Fitted {
    /// The profile file, and notes on its derivation.
    pub derived: Derived,
    /// The rates.
    pub rates: Vec<FittedRate>,
    /// The factors of the groups that the rates decide. The common factor of all others is the
    /// last, as that of [`Group::Rest`]; with one rate it is the only one.
    pub factors: Vec<(Group, f64)>,
    /// Settings of the programs that are not their defaults: parameters, the version of Linux.
    pub with: Vec<String>,
}

/// Fits the costs of operations to the rates, and verifies the result by simulation.
pub fn fit(request: &FitRequest<'_>, interrupt: &Interrupt) -> Result<Fitted, FitError> {
    if request.rates.is_empty() {
        return Err(FitError::NoRates);
    }
    let known = request.known;
    let derived = derive_or_inherit(known)?;
    let base = known.profiles.open(&known.base)?;
    let start = known.profiles.resolve("fit", &derived.file)?;
    let mut programs = programs(request)?;
    for program in &mut programs {
        program.lengthen(&start, interrupt)?;
    }
    let search = Search { request, derived, base, start, programs, interrupt };
    let parts = search.parts()?;
    search.check_reach(&parts)?;
    let (factors, after) = search.factors(&parts)?;
    Ok(search.fitted(&parts, &factors, &after))
}
