//! Places in the code that grow with the number of CPUs: their accesses are repeated or left out,
//! and their instructions scaled.
//!
//! An access is repeated on the copies of its line that other groups of CPUs have: a scan of all
//! CPUs of a larger machine uses their data once each. A factor that is no whole number is reached
//! on average over a CPU's accesses at the place.

use mmscale_lift::Growth;

/// Parts of a factor.
const PARTS: u64 = 1 << 16;
/// The largest factor: a machine of 4096 CPUs, recorded on one.
const MOST: f64 = 4096.0;

/// The factors of all places on a machine, in [`PARTS`]: of instructions, of accesses.
pub(crate) struct Factors(Vec<[u64; 2]>);

impl Factors {
    pub(crate) fn new(growth: Option<&Growth>, cpus: usize) -> Self {
        let Some(growth) = growth else { return Self(Vec::new()) };
        let parts = |factor: f64| (factor.min(MOST) * PARTS as f64).round() as u64;
        Self((0..growth.places.len()).map(|at| growth.factors(at, cpus).map(parts)).collect())
    }
}

/// The remainders of factors on a CPU, in [`PARTS`].
pub(crate) struct Rests(Vec<[u64; 2]>);

impl Rests {
    pub(crate) fn new(factors: &Factors) -> Self {
        Self(vec![[0; 2]; factors.0.len()])
    }
    /// Returns the instructions of a step of a place that has so many, and how often its access is
    /// made.
    pub(crate) fn step(&mut self, factors: &Factors, at: usize, instructions: u32) -> (u32, u64) {
        let counts = [u64::from(instructions), 1];
        let mut grown = [0; 2];
        for (which, count) in counts.into_iter().enumerate() {
            let rest = &mut self.0[at][which];
            *rest += count * factors.0[at][which];
            grown[which] = *rest / PARTS;
            *rest %= PARTS;
        }
        (grown[0].min(u32::MAX.into()) as u32, grown[1])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mmscale_lift::{Growing, SiteId};

    #[test]
    fn factors_are_reached_on_average() {
        let place = Growing { site: SiteId(0), instructions: 1.0 / 16.0, accesses: 0.02 };
        let growth = Growth { sizes: vec![8, 16], places: vec![place], ..Growth::default() };
        for (cpus, instructions, accesses) in [(16, 4000, 400), (40, 10_000, 592), (4, 1000, 304)] {
            let factors = Factors::new(Some(&growth), cpus);
            let mut rests = Rests::new(&factors);
            let steps: Vec<(u32, u64)> = (0..400).map(|_| rests.step(&factors, 0, 10)).collect();
            let sums = (
                steps.iter().map(|of| of.0).sum::<u32>(),
                steps.iter().map(|of| of.1).sum::<u64>(),
            );
            assert!(
                sums.0.abs_diff(instructions) <= 1 && sums.1.abs_diff(accesses) <= 1,
                "{cpus}: {sums:?}"
            );
        }
    }
}
