//! A first look at a few seeds, after which runs may end.
//!
//! Changes are looked at twice: after [`FIRST_LOOK`] pairs and, unless every change is settled
//! then, after [`SECOND_LOOK`]. The second look is the signed-rank test of
//! [`paired`](crate::paired). With seven pairs its distribution is so coarse that it errs in at
//! most 6 of 128 cases, not in 5 %. The rest of the 5 %, a sixteenth of them (0.3125 %), is what
//! the first look may spend: both looks together err in at most 5 % of cases, whatever decides
//! whether there is a second one. A first look that is much stricter than the last one is the rule
//! of Haybittle ("Repeated assessment of results in clinical trials of cancer treatment", 1971)
//! and Peto et al. (1976).
//!
//! No test without assumptions can reject anything at 0.3 % with three pairs. The first look is
//! Student's test of the changes, logarithms of ratios where values are positive. It assumes that
//! changes are normally distributed. Noise that has two values only, such as a convoy that forms or
//! does not, makes it err more often, up to a quarter of cases.

use statrs::distribution::{ContinuousCDF, StudentsT};

use crate::mean::reciprocals;
use crate::paired::{Change, Form, Scale, estimated};
use crate::{LEVEL, harmonic_mean_ci95, mean, mean_ci95, stddev};

/// Number of pairs at the first look.
pub const FIRST_LOOK: usize = 3;
/// Number of pairs at the second look.
pub const SECOND_LOOK: usize = 7;
/// The part of [`LEVEL`] that the first look spends.
const SHARE: f64 = 1.0 / 16.0;
/// The precision that is aimed at. No interval at the first look is narrower, because three values
/// that are close to each other by chance would make it far too narrow.
pub const MARGIN_PERCENT: f64 = 2.0;

/// Returns the change over pairs of values at the first look. Its interval has a coverage of
/// 99.6875 % and is at least [`MARGIN_PERCENT`] wide to each side. The p value is multiplied by
/// 16, so that both can be used like those of [`paired`](crate::paired), and it is 1 if the
/// interval includes no change. `None` with fewer than [`FIRST_LOOK`] pairs. Changes that are all
/// equal and not 0 have no spread to judge them by, and no interval.
pub fn first_look(pairs: &[(f64, f64)]) -> Option<Change> {
    if pairs.len() < FIRST_LOOK {
        return None;
    }
    let form = Form::of(pairs);
    let changes: Vec<f64> = pairs.iter().map(|&pair| form.change(pair)).collect();
    let change = estimated(pairs, form, &changes)?;
    if change.unchanged {
        let same = change.scale.same();
        return Some(Change { ci95: Some([same; 2]), p: 1.0, ..change });
    }
    let (centre, error) = (mean(&changes)?, standard_error(&changes)?);
    if error == 0.0 {
        return Some(Change { ci95: None, p: 1.0, ..change });
    }
    let student = student(pairs.len());
    let half = student.inverse_cdf(1.0 - SHARE * LEVEL / 2.0) * error;
    let half = half.max(form.of_share(MARGIN_PERCENT / 100.0, change.before));
    let excluded = centre.abs() > half;
    let p = if excluded { 2.0 * student.cdf(-(centre / error).abs()) / SHARE } else { 1.0 };
    let ci95 = Some([centre - half, centre + half].map(|end| form.shown(end)));
    Some(Change { ci95, p: p.min(1.0), ..change })
}

/// Returns the interval of the mean of values at the first look. `None` with fewer than
/// [`FIRST_LOOK`] values.
fn mean_first_look(values: &[f64]) -> Option<[f64; 2]> {
    let centre = mean(values).filter(|_| values.len() >= FIRST_LOOK)?;
    let half = half_width(values)?.max(centre.abs() * MARGIN_PERCENT / 100.0);
    Some([centre - half, centre + half])
}

/// Returns the interval of the harmonic mean of rates at the first look. `None` with fewer than
/// [`FIRST_LOOK`] values, if one is not positive, or if the interval has no upper end.
fn harmonic_mean_first_look(rates: &[f64]) -> Option<[f64; 2]> {
    let [low, high] = mean_first_look(&reciprocals(rates)?)?;
    (low > 0.0).then(|| [high.recip(), low.recip()])
}

/// Returns the interval of a mean, harmonic or arithmetic: the one at the first look, or that of
/// the bootstrap.
pub fn mean_interval(values: &[f64], harmonic: bool, first_look: bool) -> Option<[f64; 2]> {
    match (harmonic, first_look) {
        (true, true) => harmonic_mean_first_look(values),
        (true, false) => harmonic_mean_ci95(values),
        (false, true) => mean_first_look(values),
        (false, false) => mean_ci95(values),
    }
}

/// Returns whether a change is known to [`MARGIN_PERCENT`] at the first look.
pub fn is_known(change: &Change) -> bool {
    let Some([low, high]) = change.percent_ci95() else { return change.unchanged };
    // A ratio has a margin in proportion to itself.
    let most = MARGIN_PERCENT * (1.0 + 1e-9) * (1.0 + change.percent().map_or(0.0, |p| p / 100.0));
    change.unchanged || (high - low) / 2.0 <= most.max(MARGIN_PERCENT)
}

/// Returns whether values are known to [`MARGIN_PERCENT`] of their mean at the first look.
pub fn is_precise(values: &[f64]) -> bool {
    let centre = mean(values).filter(|_| values.len() >= FIRST_LOOK);
    let within = |centre: f64| {
        half_width(values).is_some_and(|half| half <= centre.abs() * MARGIN_PERCENT / 100.0)
    };
    centre.is_some_and(within)
}

fn half_width(values: &[f64]) -> Option<f64> {
    Some(student(values.len()).inverse_cdf(1.0 - SHARE * LEVEL / 2.0) * standard_error(values)?)
}

fn student(values: usize) -> StudentsT {
    StudentsT::new(0.0, 1.0, (values - 1) as f64).expect("there are at least two values")
}

fn standard_error(values: &[f64]) -> Option<f64> {
    Some(stddev(values)? / (values.len() as f64).sqrt())
}

impl Change {
    /// Returns the number of pairs with which an interval of this change would be within
    /// [`MARGIN_PERCENT`] of its estimate, if its width is in proportion to the root of the number.
    /// `None` if it is already, or without an interval in percent.
    pub fn pairs_for_margin(&self) -> Option<usize> {
        let [low, high] = self.ci95.filter(|_| self.scale == Scale::Ratio && !self.unchanged)?;
        let half_percent = 100.0 * (high - low) / 2.0 / self.estimate.abs();
        let times = (half_percent / MARGIN_PERCENT).powi(2);
        (times > 1.0 && times.is_finite()).then(|| (self.pairs as f64 * times).ceil() as usize)
    }
}

#[cfg(test)]
mod tests {
    use rand_core::{Rng, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;

    use super::*;
    use crate::{holm, paired};

    fn close(x: f64, y: f64) -> bool {
        (x - y).abs() < 1e-6 * y.abs().max(1e-3)
    }

    // scipy 1.17: r = stats.ttest_1samp(np.log(np.array(after) / np.array(before)), 0)
    //   16 * r.pvalue; np.exp(r.confidence_interval(1 - 0.05 / 16))
    #[test]
    fn first_looks_are_scipys() {
        let before = [872.0, 901.0, 845.0];
        let of = |after: [f64; 3]| {
            first_look(&before.into_iter().zip(after).collect::<Vec<_>>()).unwrap()
        };
        let large = of([117.0, 130.0, 110.0]);
        let ends = large.ci95.unwrap();
        assert!(close(large.p, 0.003_747_605_4), "{large:?}");
        assert!(close(ends[0], 0.078_919_05) && close(ends[1], 0.234_657_31), "{large:?}");
        assert!(large.is_clear() && !is_known(&large));
        // The interval of the test is 0.983356 to 1.018053: narrower than the margin.
        let none = of([871.0, 903.0, 845.5]);
        let ends = none.ci95.unwrap();
        assert!(
            (ends[0] * 1.02 - 1.000_554).abs() < 1e-6 && (ends[1] / 1.02 - 1.000_554).abs() < 1e-6,
            "{none:?}"
        );
        assert!(none.p == 1.0 && is_known(&none) && !none.is_clear(), "{none:?}");
    }

    #[test]
    fn changes_without_a_spread_are_not_judged() {
        let same = first_look(&[(3.0, 3.0), (4.0, 4.0), (5.0, 5.0)]).unwrap();
        assert!(same.p == 1.0 && is_known(&same), "{same:?}");
        let doubled = first_look(&[(3.0, 6.0); 3]).unwrap();
        assert_eq!((doubled.ci95, doubled.p, is_known(&doubled)), (None, 1.0, false));
        assert_eq!(first_look(&[(3.0, 6.0); 2]), None);
        let gone = first_look(&[(18.0, 0.0), (17.0, 0.0), (25.0, 0.0)]).unwrap();
        assert_eq!((gone.ci95, gone.percent()), (None, Some(-100.0)));
    }

    #[test]
    fn values_are_precise_within_the_margin() {
        assert_eq!(mean_first_look(&[50.0; 3]), Some([49.0, 51.0]));
        assert!(is_precise(&[5.0; 3]) && is_precise(&[0.0; 3]));
        assert!(is_precise(&[100.0, 100.1, 99.95]) && !is_precise(&[100.0, 101.0, 99.5]));
        assert!(!is_precise(&[100.0, 100.1]) && !is_precise(&[0.0, 1.0, 0.0]));
    }

    /// Returns changes with the centre 0.
    type Noise = fn(&mut dyn FnMut() -> f64) -> f64;

    const NOISES: [(&str, Noise); 5] = [
        ("normal", |uniform| {
            (-2.0 * uniform().ln()).sqrt() * (std::f64::consts::TAU * uniform()).cos()
        }),
        ("uniform", |uniform| uniform() - 0.5),
        ("heavy tails", |uniform| (uniform() - 0.5).powi(3)),
        // Each arm has noise with a long tail to one side, as waits have.
        ("skewed arms", |uniform| uniform().ln() - uniform().ln()),
        ("skewed arms, moving together", |uniform| {
            let common = uniform().ln();
            (common + 0.2 * uniform().ln()) - (common + 0.2 * uniform().ln())
        }),
    ];

    /// The looks of one sample of three headlines: whether one is found changed that is not,
    /// the last interval of the first one, and the number of pairs.
    fn looked(
        random: &mut dyn FnMut() -> f64,
        noise: Noise,
        (centre, size): (f64, f64),
    ) -> (bool, [f64; 2], usize) {
        let mut pairs: [Vec<(f64, f64)>; 3] = Default::default();
        for _ in 0..SECOND_LOOK {
            for (headline, pairs) in pairs.iter_mut().enumerate() {
                let centre = if headline == 0 { centre } else { 0.0 };
                pairs.push((100.0, 100.0 * (centre + size * noise(random)).exp()));
            }
        }
        let judge = |look: fn(&[(f64, f64)]) -> Option<Change>, count: usize| {
            let all: Vec<Change> =
                pairs.iter().map(|pairs| look(&pairs[..count]).unwrap()).collect();
            let held = holm(&all.iter().map(|change| change.p).collect::<Vec<_>>());
            (all, held)
        };
        let (mut all, mut held) = judge(first_look, FIRST_LOOK);
        let settled = |(change, held): (&Change, &bool)| *held || is_known(change);
        let mut count = FIRST_LOOK;
        if !all.iter().zip(&held).all(settled) {
            count = SECOND_LOOK;
            (all, held) = judge(paired, count);
        }
        let wrong = held[1] || held[2] || held[0] && centre == 0.0;
        (wrong, all[0].ci95.unwrap(), count)
    }

    /// Both looks together find a change where there is none in at most 5 % of cases, and their
    /// interval misses the change in at most 5 %, whatever the size of the noise.
    #[test]
    fn two_looks_err_no_more_often_than_one() {
        const SAMPLES: usize = 4000;
        // Three standard errors of a share of 5 %.
        let most = SAMPLES as f64 * LEVEL + 3.0 * (SAMPLES as f64 * LEVEL * 0.95).sqrt();
        let mut ended_early = 0;
        for (name, noise) in NOISES {
            for size in [0.0005, 0.003, 0.1] {
                for centre in [0.0, 1.2_f64.ln(), 7.0_f64.ln()] {
                    let mut rng = Xoshiro256PlusPlus::seed_from_u64(7);
                    let mut random =
                        || ((rng.next_u64() >> 11) as f64 + 0.5) / (1_u64 << 53) as f64;
                    let (mut wrong, mut missed) = (0, 0);
                    for _ in 0..SAMPLES {
                        let (found, [low, high], count) =
                            looked(&mut random, noise, (centre, size));
                        wrong += usize::from(found);
                        missed += usize::from(!(low..=high).contains(&centre.exp()));
                        ended_early += usize::from(count == FIRST_LOOK);
                    }
                    let of = format!("{name} {size} {centre}: {wrong} wrong, {missed} missed");
                    assert!((wrong as f64) <= most && (missed as f64) <= most, "{of} of {SAMPLES}");
                }
            }
        }
        assert!(ended_early > SAMPLES, "the first look settles nothing");
    }

    /// The known weakness: noise of two values, between which nothing lies.
    #[test]
    fn noise_of_two_values_deceives_a_first_look() {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(7);
        let mut random = || ((rng.next_u64() >> 11) as f64 + 0.5) / (1_u64 << 53) as f64;
        let two: Noise = |uniform| {
            let side = if uniform() < 0.5 { -1.0 } else { 1.0 };
            side + 1e-4 * uniform()
        };
        let mut pair = || (1.0, (0.1 * two(&mut random)).exp());
        let clear = |_: &usize| first_look(&[pair(), pair(), pair()]).unwrap().is_clear();
        let wrong = (0..4000).filter(clear).count();
        assert!((900..=1100).contains(&wrong), "{wrong} of 4000");
    }
}
