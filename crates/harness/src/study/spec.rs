//! Declarations of arms, metrics and defaults.

use mmscale_document::{Better, Target, Value};

use super::{Arm, StudyError};

/// The index of an arm in [`Study::arms`](super::Study::arms).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ArmId(pub usize);

/// An arm: a named set of policies.
#[derive(Clone, Debug)]
pub struct ArmSpec {
    /// The name of the arm.
    pub name: String,
    /// A description of the arm, in one line.
    pub help: String,
    /// The policies and variants of the workload that the arm chooses.
    pub choices: Arm,
}

impl ArmSpec {
    /// Creates an arm that chooses nothing.
    pub fn new(name: &str, help: &str) -> Self {
        Self { name: name.to_owned(), help: help.to_owned(), choices: Arm::default() }
    }
}

/// The declaration of a metric.
#[derive(Clone, Copy, Debug)]
pub struct MetricSpec {
    /// The name, in snake_case, with the unit last if it has one; stable over versions.
    pub name: &'static str,
    /// The unit: `1`, `ns`, `pages`, `1/s`, ...
    pub unit: &'static str,
    /// The definition, in one line that is clear by itself.
    pub help: &'static str,
    /// The direction in which the metric improves; `None` if neither is better by itself.
    pub better: Option<Better>,
    /// Whether the study tests this metric. At most [`MAX_HEADLINES`](crate::MAX_HEADLINES) are.
    pub headline: bool,
}

impl MetricSpec {
    /// Creates the declaration of a metric that is no headline and of which neither direction is
    /// better by itself.
    pub const fn new(name: &'static str, unit: &'static str, help: &'static str) -> Self {
        Self { name, unit, help, better: None, headline: false }
    }
    /// Whether the metric is a part of a whole: by its name, or by its definition.
    pub(crate) fn is_share(&self) -> bool {
        self.name.ends_with("_share") || self.help.starts_with("share of ")
    }
    /// Refuses a value that the metric cannot have: a share is 0 to 1.
    pub(crate) fn check(&self, value: Value) -> Result<(), StudyError> {
        let value = value.as_f64();
        if !self.is_share() || (-ROUNDING..=1.0 + ROUNDING).contains(&value) {
            return Ok(());
        }
        let Self { name, help, .. } = self;
        Err(StudyError::Check(vec![format!("{name} is {value}, and a share is 0 to 1 ({help})")]))
    }
}

/// The most by which a share may be below 0 or above 1: errors of floating-point numbers.
const ROUNDING: f64 = 1e-9;

/// Metrics for which a run is too short.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TooShort {
    /// The names of the metrics.
    pub metrics: Vec<&'static str>,
    /// The setting that makes the run long enough, as it is given on the command line.
    pub needs: String,
}

/// The default machine of a study.
#[derive(Clone, Debug)]
pub struct Defaults {
    /// The supported machines; the first is the default.
    pub machines: &'static [Target],
    /// The default machine profile.
    pub profile: String,
    /// Default number of CPUs of a simulated machine.
    pub cpus: usize,
    /// Default timer interrupts per second.
    pub hz: u32,
}

/// A mail that reports a problem.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Report {
    /// Its subject.
    pub subject: String,
    /// Its address in a public archive.
    pub link: String,
}

#[cfg(test)]
mod tests {
    use super::MetricSpec;

    #[test]
    fn a_share_is_0_to_1_and_other_metrics_are_what_they_are() {
        let share = MetricSpec::new("idle_share", "1", "share of the time of all CPUs");
        let by_help = MetricSpec::new("fragmentation", "1", "share of free pages");
        for spec in [share, by_help] {
            for good in [0.0, 0.5, 1.0] {
                assert!(spec.check(good.into()).is_ok(), "{good}");
            }
            for bad in [-0.001, 1.001, 1.505] {
                let why = spec.check(bad.into()).expect_err("it is no share").to_string();
                assert!(why.contains(spec.name) && why.contains(&bad.to_string()), "{why}");
            }
        }
        assert!(MetricSpec::new("amplification", "1", "a ratio").check(1.505.into()).is_ok());
    }
}
