//! Disturbance from outside the simulated system.

/// One kind of disturbance: how often and how long, for each CPU independently.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Disturbance {
    /// Mean time from one to the next, in ns.
    pub period_ns: u64,
    /// The distribution of gaps around that mean.
    pub gaps: Gaps,
    /// The distribution of lengths.
    pub lengths: Lengths,
}

impl Disturbance {
    fn with_gaps_times(self, factor: f64) -> Self {
        Self { period_ns: times(self.period_ns, factor), ..self }
    }
    fn with_lengths_times(self, factor: f64) -> Self {
        let lengths = match self.lengths {
            Lengths::Of(lengths) => Lengths::Of(lengths.map(|ns| times(ns, factor))),
            Lengths::Tail { least_ns, most_ns, doubles_1024 } => Lengths::Tail {
                least_ns: times(least_ns, factor),
                most_ns: times(most_ns, factor),
                doubles_1024,
            },
        };
        Self { lengths, ..self }
    }
}

fn times(ns: u64, factor: f64) -> u64 {
    ((ns as f64 * factor).round() as u64).max(1)
}

/// Distribution of the times from one disturbance to the next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Gaps {
    /// Uniform between half of the mean and one and a half of it.
    Around,
    /// Exponential: without memory, as the sum of many independent causes.
    Random,
}

/// Distribution of the lengths of disturbances.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lengths {
    /// One of these, in ns, with equal chance. A length that is named twice has twice the chance.
    Of([u64; 8]),
    /// A power law with a cutoff: at least `least_ns`; any length is exceeded twofold with the
    /// chance `doubles_1024` (in 1/1024); drawn again above `most_ns`.
    Tail {
        /// The shortest, in ns.
        least_ns: u64,
        /// The longest, in ns.
        most_ns: u64,
        /// The chance of twice the length, in 1/1024.
        doubles_1024: u32,
    },
}

/// Disturbance from outside: off by default.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Noise {
    /// The CPU does not run at all, in any state: a hypervisor, firmware.
    pub stolen: Option<Disturbance>,
    /// A foreign interrupt handler: it runs only where interrupts are on, and they are off
    /// meanwhile.
    pub irq_off: Option<Disturbance>,
}

impl Noise {
    /// Multiplies the mean gaps of all disturbances by `gaps`, and the lengths of stolen times by
    /// `stolen`.
    #[must_use]
    pub fn scaled(self, gaps: f64, stolen: f64) -> Self {
        let closer = |of: Disturbance| of.with_gaps_times(gaps);
        let longer = |of: Disturbance| of.with_lengths_times(stolen);
        Self { stolen: self.stolen.map(closer).map(longer), irq_off: self.irq_off.map(closer) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_of_all_and_lengths_of_stolen_times_are_scaled() {
        let lengths = Lengths::Tail { least_ns: 1_000, most_ns: 50_000, doubles_1024: 512 };
        let one = Disturbance { period_ns: 3_000_000, gaps: Gaps::Random, lengths };
        let noise = Noise { stolen: Some(one), irq_off: Some(one) };
        let scaled = noise.scaled(0.1 / 30.0, 1.3);
        assert_eq!(scaled.irq_off.unwrap(), Disturbance { period_ns: 10_000, ..one });
        let longer = Lengths::Tail { least_ns: 1_300, most_ns: 65_000, doubles_1024: 512 };
        assert_eq!(scaled.stolen.unwrap().lengths, longer);
        assert_eq!(noise.scaled(1.0, 1.0), noise);
    }
}
