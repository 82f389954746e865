//! The host time that runs need, estimated while the first of them are in progress.

use std::time::Duration;

/// Time after which the progress of the first runs is taken for a probe of all.
const PROBE: Duration = Duration::from_secs(3);
/// Time left that is announced.
const LONG: Duration = Duration::from_secs(300);

/// The runs of a call, and how much of each is done.
pub(crate) struct Estimate {
    /// The weight of each run, and the completed fraction, 0 to 1.
    runs: Vec<(f64, f64)>,
    announced: bool,
}

impl Estimate {
    /// Creates the estimate of runs of which none has begun. Weights are their times relative to
    /// one another, as far as they can be guessed.
    pub(crate) fn new(weights: impl IntoIterator<Item = f64>) -> Self {
        Self { runs: weights.into_iter().map(|weight| (weight, 0.0)).collect(), announced: false }
    }

    /// Sets the completed fraction of a run.
    pub(crate) fn set(&mut self, run: usize, fraction: f64) {
        self.runs[run].1 = fraction.clamp(0.0, 1.0);
    }

    /// Leaves a run out: it does not take place.
    pub(crate) fn drop_run(&mut self, run: usize) {
        self.runs[run] = (0.0, 0.0);
    }

    /// Returns the time left after `elapsed`. `None` as long as too little is known.
    pub(crate) fn left(&self, elapsed: Duration) -> Option<Duration> {
        let all: f64 = self.runs.iter().map(|(weight, _)| weight).sum();
        let done: f64 = self.runs.iter().map(|(weight, done)| weight * done).sum();
        if elapsed < PROBE || done <= 0.0 {
            return None;
        }
        Duration::try_from_secs_f64(elapsed.as_secs_f64() * (all - done).max(0.0) / done).ok()
    }

    /// Returns the announcement of a long call: how long it takes, and how to shorten it. `None`
    /// for a short one, and after the first time.
    pub(crate) fn announce(&mut self, elapsed: Duration, shorter: &str) -> Option<String> {
        let left = self.left(elapsed).filter(|left| *left >= LONG && !self.announced)?;
        self.announced = true;
        let runs = match self.runs.len() {
            1 => "1 run takes".to_owned(),
            some => format!("{some} runs take"),
        };
        let left = shown(left);
        Some(format!("{runs} about {left} on this computer; for a shorter call: {shorter}"))
    }
}

/// Formats the time that `all` steps of like length still need; empty before the first step ended.
pub(crate) fn time_left(elapsed: Duration, finished: usize, all: usize) -> String {
    if finished == 0 || finished >= all {
        return String::new();
    }
    let left = elapsed.mul_f64((all - finished) as f64 / finished as f64);
    format!(", about {} left", shown(left.max(Duration::from_secs(1))))
}

/// Formats a time for readers, with the precision of an estimate.
pub(crate) fn shown(time: Duration) -> String {
    let s = time.as_secs_f64();
    match s {
        ..90.0 => format!("{s:.0} s"),
        ..5_400.0 => format!("{:.0} min", s / 60.0),
        ..172_800.0 => format!("{:.1} hours", s / 3_600.0),
        _ => format!("{:.1} days", s / 86_400.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: fn(u64) -> Duration = Duration::from_secs;

    #[test]
    fn the_time_left_follows_from_what_is_done() {
        let mut estimate = Estimate::new([1.0, 1.0, 2.0]);
        assert_eq!(estimate.left(S(60)), None, "nothing is done");
        estimate.set(0, 0.5);
        assert_eq!(estimate.left(S(1)), None, "too early");
        // An eighth of all weights is done.
        assert_eq!(estimate.left(S(10)), Some(S(70)));
        // An eighth of two is a quarter of one.
        estimate.drop_run(2);
        assert_eq!(estimate.left(S(10)), Some(S(30)), "a run that does not take place has no time");
        (0..2).for_each(|run| estimate.set(run, 1.0));
        assert_eq!(estimate.left(S(80)), Some(S(0)));
    }

    /// A window of 5 s on 512 CPUs: 28 runs, of which one has done a thousandth in 10 s.
    #[test]
    fn a_call_of_days_is_announced_once() {
        let mut estimate = Estimate::new([1.0; 28]);
        estimate.set(0, 0.001);
        let said = estimate.announce(S(10), "--quick").expect("it takes days");
        assert_eq!(
            said,
            "28 runs take about 3.2 days on this computer; for a shorter call: --quick"
        );
        assert_eq!(estimate.announce(S(11), "--quick"), None);
        let mut short = Estimate::new([1.0]);
        short.set(0, 0.5);
        assert_eq!(short.announce(S(10), "--quick"), None);
    }

    #[test]
    fn the_time_left_is_in_proportion_to_the_steps_left() {
        assert_eq!(time_left(S(10), 100, 400), ", about 30 s left");
        assert_eq!(time_left(S(60), 10, 70), ", about 6 min left");
        assert_eq!([time_left(S(5), 0, 9), time_left(S(5), 9, 9)], ["", ""]);
    }

    #[test]
    fn times_have_the_unit_that_a_reader_expects() {
        let all = [40, 600, 7_200, 400_000].map(|s| shown(S(s)));
        assert_eq!(all, ["40 s", "10 min", "2.0 hours", "4.6 days"]);
    }
}
