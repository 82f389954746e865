//! A profile of this computer, from measurements of single steps: of its threads, as `--on threads`
//! uses them, or of its kernel, as `--on linux` does.
//!
//! Atomics, locks, cache lines, interrupts and switches come from
//! [`mmscale_threads::calibrate`]; the costs of operations come from the frame allocator's pieces
//! on one CPU, while all CPUs do the same, each on memory of its own. Neither the throughput of
//! several CPUs on one memory nor the waiting for a lock in the memory manager is measured: the
//! profile is to predict those.
//!
//! Of the kernel, lines, locks and clearing are the threads'; system calls, VMAs, faults, switches,
//! wake-ups and calls between CPUs come from `mmscale_linux::steps`. What its allocator's and its
//! lists' steps cost cannot be told from outside: those are `x86-2`'s.

pub mod derive;
pub mod fidelity;
mod file;
mod fit;
#[cfg(feature = "live")]
mod kernel;
mod program;
pub mod review;

use fit::{Charges, FITTED};
use mmscale_sim::profile::{self, ProfileError, ProfileFile};
use mmscale_threads::calibrate::Measured;
use program::{Figures, Repeats};
use thiserror::Error;

pub use mmscale_sim::profile::{Basis, Merged, ProfileError as WrongProfile, Profiles};
pub use mmscale_threads::calibrate::Effort;

/// Why there is no profile.
#[derive(Debug, Error)]
pub enum CalibrateError {
    /// The machine of threads did not run.
    #[error("measuring on this computer's threads: {0}")]
    Threads(#[from] mmscale_threads::Failure),
    /// The kernel did not let a step be measured.
    #[cfg(feature = "live")]
    #[error(transparent)]
    Kernel(#[from] mmscale_linux::steps::StepError),
    /// This program was built without the live kernel.
    #[cfg(not(feature = "live"))]
    #[error("this program was built without the live kernel: a profile of it cannot be measured")]
    Absent,
    /// The simulated machine did not run.
    #[error("counting charges on the simulated machine: {0}")]
    Sim(String),
    /// What was measured makes no profile.
    #[error("what was measured makes no profile ({0}); measure again on a computer at rest")]
    Profile(#[from] ProfileError),
}

/// Repetitions of one round: about 20 ms.
const REPEATS: Repeats = Repeats { bursts: 400, bulks: 5 };

/// The costs of operations with their spread, in ns, by place in [`FITTED`].
struct OpCosts {
    median: [f64; FITTED.len()],
    low: [f64; FITTED.len()],
    high: [f64; FITTED.len()],
    rounds: usize,
}

/// The text of a profile file.
pub fn text(file: &ProfileFile) -> String {
    profile::write(file)
}

/// What a profile is of.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Of {
    /// This computer's threads, as a machine.
    #[default]
    Threads,
    /// Its kernel.
    Kernel,
}

/// Measures this computer. `progress` is told steps done and steps to do. The result is checked:
/// [`profile::resolve`] takes it.
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
    let measured = mmscale_threads::calibrate::measure(effort, |done, all| {
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
    // The file with the operations of the prior: it has the locks and lines of this computer.
    let charges = Charges::count(&resolve(&file::write(measured, None)?)?)?;
    let ops = op_costs(&charges, &pieces, &prior);
    file::write(measured, Some(&ops))
}

/// How fast this computer is now, beside what a profile of it says.
///
/// Computers change their speed: others use the same cores, power and heat have limits. A
/// comparison of this computer with a simulation of it asks right before and after each real run.
#[derive(Debug)]
pub struct Speed {
    predicted: Figures,
}

impl Speed {
    /// Simulates one CPU of `profile` at work on the frame allocator's pieces.
    pub fn of(profile: &profile::Profile) -> Result<Self, CalibrateError> {
        Ok(Self { predicted: program::simulated(profile)? })
    }

    /// The time that the pieces take on this computer now, over what the profile says: the mean of
    /// their ratios. Above 1 the computer is slower than it was when the profile was written.
    /// Takes about 50 ms of all CPUs.
    pub fn slowness(&self) -> Result<f64, CalibrateError> {
        let now = program::real(REPEATS, 0.0)?;
        let ratios = now.iter().zip(self.predicted).map(|(now, then)| now / then);
        Ok(ratios.sum::<f64>() / now.len() as f64)
    }
}

fn resolve(file: &ProfileFile) -> Result<profile::Profile, ProfileError> {
    profile::resolve("this computer", file)
}

/// Solves for the costs at the median and the quartiles of the rounds. Pieces of one round were
/// measured within milliseconds: their shares of the round do not feel that the computer changes
/// its speed from round to round, and costs are differences between pieces.
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
    // A cost that rests on a difference may fall where the pieces rise.
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
