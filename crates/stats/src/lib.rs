//! Statistics over seeds.
//!
//! | module | content |
//! |---|---|
//! | `mean` | arithmetic and harmonic mean, standard deviation, bootstrap interval of a mean |
//! | `median` | median and its interval from order statistics |
//! | `paired` | the change between two runs of the same seeds: estimate, exact interval and test |
//! | `signed_rank` | the distribution behind that test, and averages of pairs of values |
//! | `unpaired` | the interval of a change without pairs, for comparison |
//! | `look` | a first look at a few pairs, after which runs may end |
//! | `holm` | several tests together, and the number of pairs that they need |
//!
//! All functions are deterministic: the bootstrap has a fixed seed.

mod holm;
mod look;
mod mean;
mod median;
mod paired;
mod signed_rank;
mod unpaired;

use statrs::distribution::{ContinuousCDF, Normal};

pub use holm::{LEVEL, holm, pairs_needed};
pub use look::{
    FIRST_LOOK, MARGIN_PERCENT, SECOND_LOOK, first_look, is_known, is_precise, mean_interval,
};
pub use mean::{harmonic_mean, harmonic_mean_ci95, mean, mean_ci95, stddev};
pub use median::{median, median_ci95};
pub use paired::{Change, Scale, paired};
pub use unpaired::unpaired_percent_ci95;

/// Returns the share of the standard normal distribution that is below a value.
pub fn normal_cdf(value: f64) -> f64 {
    Normal::standard().cdf(value)
}

/// Returns the quantile `p` of sorted values, with linear interpolation.
fn quantile(sorted: &[f64], p: f64) -> f64 {
    let at = p.clamp(0.0, 1.0) * (sorted.len() - 1) as f64;
    let below = at.floor() as usize;
    let above = (below + 1).min(sorted.len() - 1);
    sorted[below] + (sorted[above] - sorted[below]) * at.fract()
}
