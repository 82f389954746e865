//! A measured number with its spread.

/// A measured number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quantity {
    /// The median over rounds.
    pub median: f64,
    /// The first quartile over rounds.
    pub low: f64,
    /// The third quartile over rounds.
    pub high: f64,
    /// The number of rounds.
    pub rounds: usize,
}

/// The values of the rounds so far.
#[derive(Default)]
pub(super) struct Samples(Vec<f64>);

impl Samples {
    pub(super) const fn new() -> Self {
        Self(Vec::new())
    }

    pub(super) fn add(&mut self, value: f64) {
        self.0.push(value);
    }

    /// Returns median and spread. Panics without values.
    pub(super) fn quantity(mut self) -> Quantity {
        self.0.sort_by(f64::total_cmp);
        let last = self.0.len() - 1;
        let at = |share: f64| self.0[(last as f64 * share).round() as usize];
        Quantity { median: at(0.5), low: at(0.25), high: at(0.75), rounds: self.0.len() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_stands_between_the_quartiles_and_ignores_outliers() {
        let mut samples = Samples::new();
        (0..=20).rev().for_each(|value| samples.add(f64::from(value)));
        let quantity = samples.quantity();
        assert_eq!((quantity.low, quantity.median, quantity.high), (5.0, 10.0, 15.0));
        let mut samples = Samples::new();
        [5.0, 5.0, 900.0, 5.0, 5.0].into_iter().for_each(|value| samples.add(value));
        assert_eq!(samples.quantity().median, 5.0);
    }
}
