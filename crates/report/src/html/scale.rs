//! Axes: from values to places on a picture, and where its ticks are.

/// An axis from 0 to 1.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Scale {
    least: f64,
    most: f64,
    log: bool,
}

impl Scale {
    /// Makes an axis for all of `values`, and leaves out those that are no numbers. With `log`, it
    /// is logarithmic if all values are above 0.
    pub(super) fn over(values: impl IntoIterator<Item = f64>, log: bool) -> Self {
        let mut values = values.into_iter().filter(|value| value.is_finite());
        let Some(first) = values.next() else { return Self { least: 0.0, most: 1.0, log: false } };
        let (least, most) =
            values.fold((first, first), |(least, most), value| (least.min(value), most.max(value)));
        Self { least, most, log: log && least > 0.0 }.padded()
    }

    /// Adds a little room at both ends; some room if all values are equal.
    fn padded(self) -> Self {
        let Self { least, most, log } = self;
        if log {
            let room = if most > least { (most / least).powf(0.04) } else { 1.5 };
            return Self { least: least / room, most: most * room, log };
        }
        let room = match most - least {
            span if span > 0.0 => span * 0.04,
            _ if least != 0.0 => least.abs() * 0.1,
            _ => 1.0,
        };
        Self { least: least - room, most: most + room, log }
    }

    /// Returns the place of a value, 0 at the low end and 1 at the high end.
    pub(super) fn at(&self, value: f64) -> f64 {
        let share = if self.log {
            (value.max(f64::MIN_POSITIVE) / self.least).ln() / (self.most / self.least).ln()
        } else {
            (value - self.least) / (self.most - self.least)
        };
        if share.is_nan() { 0.0 } else { share.clamp(0.0, 1.0) }
    }

    /// Returns the place of a value in percent, as an attribute of SVG.
    pub(super) fn percent(&self, value: f64) -> String {
        percent(self.at(value))
    }

    /// Returns two to six round values within the axis.
    pub(super) fn ticks(&self) -> Vec<f64> {
        let decades = if self.log { (self.most / self.least).log10() } else { 0.0 };
        if decades < 0.7 {
            return self.even_ticks();
        }
        if decades < 2.0 {
            let powers = self.least.log10().floor() as i32..=self.most.log10().ceil() as i32;
            let ticks = powers.flat_map(|n| [1.0, 2.0, 5.0].map(|digit| digit * 10f64.powi(n)));
            return ticks.filter(|&tick| tick >= self.least && tick <= self.most).collect();
        }
        let step = (decades / 5.0).ceil() as i32;
        let first = self.least.log10().ceil() as i32;
        (0..6).map(|n| 10f64.powi(first + n * step)).filter(|&tick| tick <= self.most).collect()
    }

    /// Returns multiples of 1, 2 or 5 times a power of ten.
    fn even_ticks(&self) -> Vec<f64> {
        let rough = (self.most - self.least) / 4.0;
        let power = 10f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].into_iter().find(|n| n * power >= rough);
        let step = step.unwrap_or(10.0) * power;
        let first = (self.least / step).ceil();
        let ticks = (0..6).map(|n| (first + f64::from(n)) * step);
        // The sum of rounding errors near 0 is no tick of its own.
        let ticks = ticks.map(|tick| if tick.abs() < step * 1e-9 { 0.0 } else { tick });
        ticks.filter(|&tick| tick <= self.most).collect()
    }
}

/// Formats a share as an attribute of SVG.
pub(super) fn percent(share: f64) -> String {
    format!("{:.2}%", 100.0 * share)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_within_the_axis_and_ticks_are_round() {
        let linear = Scale::over([0.0, 10.0, f64::NAN], false);
        assert!(linear.at(0.0) > 0.0 && linear.at(10.0) < 1.0);
        assert_eq!(linear.ticks(), [0.0, 5.0, 10.0]);
        let log = Scale::over([1.0, 1e6], true);
        assert!((log.at(1e3) - 0.5).abs() < 1e-9, "{}", log.at(1e3));
        assert_eq!(log.ticks(), [1.0, 100.0, 1e4, 1e6]);
        assert_eq!(log.at(0.0), 0.0);
    }

    #[test]
    fn equal_values_and_none_have_an_axis_too() {
        for values in [vec![], vec![0.0], vec![5.0, 5.0], vec![-1.0], vec![f64::INFINITY]] {
            for log in [false, true] {
                let scale = Scale::over(values.clone(), log);
                let at = scale.at(values.first().copied().unwrap_or(0.5));
                assert!((0.0..=1.0).contains(&at), "{values:?}: {at}");
                assert!(scale.ticks().iter().all(|tick| tick.is_finite()), "{values:?}");
            }
        }
    }
}
