//! Creates a profile of this computer from measurements of single steps: of its threads, as `--on
//! threads` uses them, or of its kernel, as `--on live` does.
//!
//! Costs of atomics, locks, cache lines, interrupts and switches come from
//! [`mmscale_threads::calibrate`]. Costs of operations come from the frame allocator's pieces on
//! one CPU, while all CPUs do the same on separate memory. Neither the throughput of several CPUs
//! on shared memory nor lock waits in the memory manager are measured, because the profile is meant
//! to predict those.
//!
//! In a profile of the kernel, costs of lines, locks and clearing are those of the threads. System
//! calls, VMAs, faults, switches, wake-ups and calls between CPUs come from `mmscale_linux::steps`.
//! The steps of the allocator and the lists cannot be measured from user space: their costs are
//! those of `x86-2`.

pub mod derive;
pub mod fidelity;
mod file;
mod fit;
pub mod gallery;
#[cfg(feature = "live")]
mod kernel;
pub mod limits;
mod pairs;
mod program;
pub mod rates;
pub mod review;

use fit::{Charges, FITTED};
use mmscale_sim::profile::{self, ProfileError};
use mmscale_threads::calibrate::Measured;
use program::{Figures, Repeats};
use thiserror::Error;

pub use mmscale_arch::Op;
pub use mmscale_sim::profile::{
    Basis, Merged, Number, ProfileError as WrongProfile, ProfileFile, Profiles, Section,
    instructions_key, write,
};
pub use mmscale_threads::calibrate::Effort;

/// Why there is no profile.
#[derive(Debug, Error)]
pub enum CalibrateError {
    /// The threads machine failed.
    #[error("cannot measure this computer's threads: {0}")]
    Threads(#[from] mmscale_threads::Failure),
    /// A step of the kernel could not be measured.
    #[cfg(feature = "live")]
    #[error(transparent)]
    Kernel(#[from] mmscale_linux::steps::StepError),
    /// This program was built without the live kernel.
    #[cfg(not(feature = "live"))]
    #[error(
        "cannot measure the kernel: this program was built without the feature `live`; build it \
             with the default features"
    )]
    Absent,
    /// The simulated machine failed.
    #[error("cannot count charges on the simulated machine: {0}")]
    Sim(String),
    /// The measurements do not form a valid profile.
    #[error("the measurements do not form a valid profile ({0}); repeat on an idle computer")]
    Profile(#[from] ProfileError),
}

/// Repetitions in one round, which takes about 20 ms.
const REPEATS: Repeats = Repeats { bursts: 400, bulks: 5 };

/// The costs of operations with their spread, in ns, indexed as in [`FITTED`].
struct OpCosts {
    median: [f64; FITTED.len()],
    low: [f64; FITTED.len()],
    high: [f64; FITTED.len()],
    rounds: usize,
}

/// Returns the text of a profile file.
pub fn text(file: &ProfileFile) -> String {
    profile::write(file)
}

/// The subject of a profile.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Of {
    /// The threads of this computer.
    #[default]
    Threads,
    /// The kernel of this computer.
    Kernel,
}

/// Measures this computer. `progress` receives completed and total steps. The result is checked
/// with [`profile::resolve`].
pub fn calibrate(
    of: Of,
    effort: Effort,
    mut progress: impl FnMut(usize, usize),
) -> Result<ProfileFile, CalibrateError> {
    let rounds = match effort {
        Effort::Quick => 3,
        Effort::Full => 21,
    };
    let mut before = 0;
    let cpus = pairs::cpus();
    let measured =
        mmscale_threads::calibrate::measure(effort, &pairs::pairs(&cpus), |done, all| {
            before = all;
            progress(done, all + rounds);
        })?;
    let mut done = |round| progress(before + round, before + rounds);
    let file = match of {
        Of::Threads => of_threads(&measured, rounds, &mut done)?,
        #[cfg(feature = "live")]
        Of::Kernel => kernel::measure(&measured, rounds, &mut done)?,
        #[cfg(not(feature = "live"))]
        Of::Kernel => return Err(CalibrateError::Absent),
    };
    done(rounds);
    resolve(&file)?;
    Ok(file)
}

fn of_threads(
    measured: &Measured,
    rounds: usize,
    done: &mut dyn FnMut(usize),
) -> Result<ProfileFile, CalibrateError> {
    let mut pieces: Vec<Figures> = Vec::new();
    for round in 0..rounds {
        done(round);
        pieces.push(program::real(REPEATS, measured.clock_ns.median)?);
    }
    let prior = profile::load("x86-26")?;
    // Operations have the costs of the prior; locks and lines are those of this computer.
    let charges = Charges::count(&resolve(&file::write(measured, None)?)?)?;
    let ops = op_costs(&charges, &pieces, &prior);
    file::write(measured, Some(&ops))
}

/// The current speed of this computer relative to its profile.
///
/// The speed of a computer changes: other programs use the same cores, and power and heat are
/// limited. A comparison of this computer with a simulation of it measures the speed right before
/// and after each real run.
#[derive(Debug)]
pub struct Speed {
    predicted: Figures,
}

impl Speed {
    /// Simulates one CPU of `profile` on the frame allocator's pieces.
    pub fn of(profile: &profile::Profile) -> Result<Self, CalibrateError> {
        Ok(Self { predicted: program::simulated(profile)? })
    }

    /// Returns the current duration of the pieces divided by that in the profile, as the mean of
    /// ratios. Above 1, the computer is slower than when the profile was created. Uses all CPUs for
    /// about 50 ms.
    pub fn slowness(&self) -> Result<f64, CalibrateError> {
        let now = program::real(REPEATS, 0.0)?;
        let ratios = now.iter().zip(self.predicted).map(|(now, then)| now / then);
        Ok(ratios.sum::<f64>() / now.len() as f64)
    }
}

fn resolve(file: &ProfileFile) -> Result<profile::Profile, ProfileError> {
    profile::resolve("this computer", file)
}

/// Solves for the costs at the median and the quartiles of the rounds. Pieces of one round are
/// measured within milliseconds, so changes of the computer's speed between rounds do not affect
/// their proportions; costs are differences between pieces.
fn op_costs(charges: &Charges, rounds: &[Figures], prior: &profile::Profile) -> OpCosts {
    let total = |figures: &Figures| figures.iter().sum::<f64>();
    let shares: Figures = core::array::from_fn(|piece| {
        quantile(rounds.iter().map(|figures| figures[piece] / total(figures)), 0.5)
    });
    let at = |share: f64| -> Figures {
        let all_ns = quantile(rounds.iter().map(total), share);
        shares.map(|share| share * all_ns)
    };
    let [median, first, third] = [0.5, 0.25, 0.75].map(|share| charges.solve(&at(share), prior));
    // A cost that is a difference may fall where the pieces rise.
    let pick = |of: fn(f64, f64) -> f64| {
        core::array::from_fn(|op| of(of(first[op], third[op]), median[op]))
    };
    OpCosts { median, low: pick(f64::min), high: pick(f64::max), rounds: rounds.len() }
}

fn quantile(values: impl Iterator<Item = f64>, share: f64) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[((values.len() - 1) as f64 * share).round() as usize]
}
