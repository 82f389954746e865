//! Knobs: what changes from point to point, and how far.

/// A number that a question moves within a range.
#[derive(Clone, Debug, PartialEq)]
pub struct Knob {
    /// The name of the parameter or cost, or `cpus`.
    pub name: String,
    /// The unit of its values, as in [`mmscale_document::Metric::unit`].
    pub unit: String,
    /// The ends of its range.
    pub range: [f64; 2],
    /// Whether equal distances are equal ratios.
    pub log: bool,
    /// Whether values are whole numbers.
    pub whole: bool,
}

impl Knob {
    /// Returns the value at a share of the range, 0 to 1; a whole number if it must be one.
    pub fn value(&self, share: f64) -> f64 {
        let [low, high] = self.range;
        let value =
            if self.log { low * (high / low).powf(share) } else { low + (high - low) * share };
        if self.whole { value.round() } else { value }.clamp(low, high)
    }

    /// Returns the share of the range at which a value is, 0 to 1.
    pub fn share(&self, value: f64) -> f64 {
        let [low, high] = self.range;
        let share = if self.log {
            (value / low).ln() / (high / low).ln()
        } else {
            (value - low) / (high - low)
        };
        share.clamp(0.0, 1.0)
    }

    /// Returns the share of the value that is used at a share.
    pub(super) fn snapped(&self, share: f64) -> f64 {
        if self.whole { self.share(self.value(share)) } else { share }
    }
}

/// Returns point `index` of a sequence that fills a cube evenly, however long it is: multiples of
/// powers of the generalised golden ratio, less their whole parts (M. Roberts, "The unreasonable
/// effectiveness of quasirandom sequences", 2018). `shift` moves all of them.
pub(super) fn spread(index: usize, knobs: usize, shift: f64) -> Vec<f64> {
    let mut ratio = 2.0_f64;
    for _ in 0..60 {
        ratio = (1.0 + ratio).powf(1.0 / (knobs as f64 + 1.0));
    }
    let step = |knob: usize| ratio.powi(-(knob as i32 + 1));
    (0..knobs).map(|knob| (shift + (index as f64 + 1.0) * step(knob)).fract()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_and_values_belong_together() {
        let of = |log, whole| Knob {
            name: "n".to_owned(),
            unit: "1".to_owned(),
            range: [4.0, 64.0],
            log,
            whole,
        };
        assert!((of(true, false).value(0.5) - 16.0).abs() < 1e-9);
        assert_eq!(of(false, true).value(0.503), 34.0);
        for knob in [of(true, true), of(false, true), of(true, false)] {
            for at in [0.0, 0.3, 0.77, 1.0] {
                let snapped = knob.snapped(at);
                assert!((knob.share(knob.value(at)) - snapped).abs() < 1e-9);
                assert_eq!(knob.value(at), knob.value(snapped));
            }
        }
    }

    /// Each part of the range of each knob gets its share of the points.
    #[test]
    fn the_sequence_is_even() {
        for knobs in 1..=6 {
            for knob in 0..knobs {
                let mut parts = [0; 8];
                (0..80).for_each(|at| parts[(spread(at, knobs, 0.5)[knob] * 8.0) as usize] += 1);
                assert!(parts.iter().all(|n| (4..=16).contains(n)), "{knobs} {knob}: {parts:?}");
            }
        }
    }
}
