//! The host time that runs need, estimated while they are in progress.
//!
//! Runs of one arm take about as long as each other, those of different arms do not: their times
//! may differ by a factor of 20. So the estimate has a time for each kind of run: the mean of those
//! that have finished, before that what the progress of a running one leads to, and before that a
//! guess by those of the same study. About a study of which no run has begun nothing is known, and
//! it does not count. The time left is that of executing the other runs on as many workers as the
//! call has, in the order in which it takes them.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;
use std::time::Duration;

/// Time after which estimates begin.
const PROBE: Duration = Duration::from_secs(3);
/// The fraction of a run that shows how long it takes, and the time that does with less. The
/// beginning is slower than the rest: set-up, and the start of all programs.
const SHOWS: (f64, Duration) = (0.25, Duration::from_secs(10));
/// Time left that is announced.
const LONG: Duration = Duration::from_secs(300);
/// Time between two looks for an announcement.
const PAUSE: Duration = Duration::from_millis(500);

/// A run of a call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Due {
    /// The kind of the run: an arm of a plan. Kinds are numbered from 0.
    pub(crate) kind: usize,
    /// The study of the run. Studies are numbered from 0.
    pub(crate) study: usize,
    /// The batch of the run. Workers take runs of the first batch that has any left, first those
    /// that take longest.
    pub(crate) batch: usize,
    /// The time of the run relative to others of its study, as far as it can be guessed.
    pub(crate) weight: f64,
    /// Whether a first look decides if the run takes place.
    pub(crate) if_needed: bool,
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum State {
    Waiting,
    /// Began at a time of the call; the completed fraction.
    Running(Duration, f64),
    /// Ended, or does not take place.
    Over,
}

/// The finished runs of a kind, their time together, its study and its weight.
#[derive(Clone, Copy, Default, Debug)]
struct Known {
    finished: u32,
    took: Duration,
    study: usize,
    weight: f64,
}

/// The runs of a call, and how much of each is done. Times are those since the start of the call.
pub(crate) struct Estimate {
    runs: Vec<(Due, State)>,
    kinds: Vec<Known>,
    workers: usize,
    announced: bool,
    looked: Duration,
}

/// The time that runs still need: as little as the first looks allow, and as much.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Left {
    pub(crate) least: Duration,
    pub(crate) most: Duration,
    /// Whether studies of which nothing is known are left out.
    pub(crate) in_part: bool,
}

impl Estimate {
    /// Creates the estimate of runs of which none has begun, on so many workers.
    pub(crate) fn new(runs: impl IntoIterator<Item = Due>, workers: usize) -> Self {
        let runs: Vec<_> = runs.into_iter().map(|run| (run, State::Waiting)).collect();
        let mut kinds = vec![];
        for (run, _) in &runs {
            kinds.resize(kinds.len().max(run.kind + 1), Known::default());
            let Due { study, weight, .. } = *run;
            kinds[run.kind] = Known { study, weight, ..Known::default() };
        }
        Self { runs, kinds, workers: workers.max(1), announced: false, looked: Duration::ZERO }
    }

    /// Records that a run has begun.
    pub(crate) fn begin(&mut self, run: usize, now: Duration) {
        self.runs[run].1 = State::Running(now, 0.0);
    }

    /// Sets the completed fraction of a run that has begun.
    pub(crate) fn set(&mut self, run: usize, fraction: f64) {
        if let State::Running(_, done) = &mut self.runs[run].1 {
            *done = fraction.clamp(0.0, 1.0);
        }
    }

    /// Records the end of a run, and how long it took if it has a result.
    pub(crate) fn end(&mut self, run: usize, took: Option<Duration>) {
        let (due, state) = &mut self.runs[run];
        *state = State::Over;
        if let Some(took) = took {
            let known = &mut self.kinds[due.kind];
            known.finished += 1;
            known.took += took;
        }
    }

    /// Records the decision of a first look about `runs`: only the first `count` take place.
    pub(crate) fn decide(&mut self, runs: Range<usize>, count: usize) {
        for (at, (run, state)) in self.runs[runs].iter_mut().enumerate() {
            run.if_needed = false;
            if at >= count {
                *state = State::Over;
            }
        }
    }

    /// Returns the time left. `None` as long as too little is known.
    pub(crate) fn left(&self, now: Duration) -> Option<Left> {
        let costs = self.costs(now);
        if now < PROBE || costs.iter().all(Option::is_none) {
            return None;
        }
        let most = self.until_end(now, &costs, true);
        let some_open = self.runs.iter().any(|(run, _)| run.if_needed);
        let least = if some_open { self.until_end(now, &costs, false) } else { most };
        let time = |s: f64| Duration::try_from_secs_f64(s).ok();
        let in_part = costs.iter().any(Option::is_none);
        Some(Left { least: time(least)?, most: time(most)?, in_part })
    }

    /// Returns the time of a run of each kind, in seconds. `None` if nothing is known of its study.
    fn costs(&self, now: Duration) -> Vec<Option<f64>> {
        let finished =
            |of: &Known| (of.finished > 0).then(|| of.took.as_secs_f64() / f64::from(of.finished));
        let mut costs: Vec<Option<f64>> = self.kinds.iter().map(finished).collect();
        // Of kinds of which none has finished, the run that is furthest tells most.
        let mut furthest: Vec<f64> =
            costs.iter().map(|cost| if cost.is_some() { 1.0 } else { 0.0 }).collect();
        for (run, state) in &self.runs {
            if let State::Running(began, done) = *state
                && done > furthest[run.kind]
            {
                let (fraction, time) = SHOWS;
                let lasted = now.saturating_sub(began);
                if done >= fraction || lasted >= time {
                    furthest[run.kind] = done;
                    costs[run.kind] = Some(lasted.as_secs_f64() / done);
                }
            }
        }
        // The times and the weights of each study, as far as they are known.
        let mut studies = vec![];
        for (cost, of) in costs.iter().zip(&self.kinds) {
            studies.resize(studies.len().max(of.study + 1), (0.0, 0.0));
            let (sum, weight) = &mut studies[of.study];
            *sum += cost.unwrap_or(0.0);
            *weight += cost.map_or(0.0, |_| of.weight);
        }
        let guess = |of: &Known| {
            let (cost, weight) = studies[of.study];
            (weight > 0.0).then(|| cost * of.weight / weight)
        };
        costs.into_iter().zip(&self.kinds).map(|(cost, of)| cost.or_else(|| guess(of))).collect()
    }

    /// Returns the time until all runs have ended whose times are known, in seconds, with or
    /// without those that a first look may leave out.
    fn until_end(&self, now: Duration, costs: &[Option<f64>], with_open: bool) -> f64 {
        // Times in ns, which have an order.
        let ns = |s: f64| (s * 1e9) as u64;
        let mut free = BinaryHeap::new();
        let mut waiting = vec![];
        for (run, state) in &self.runs {
            let Some(cost) = costs[run.kind] else { continue };
            match *state {
                State::Running(began, _) => {
                    let left = cost - now.saturating_sub(began).as_secs_f64();
                    free.push(Reverse(ns(left.max(0.0))));
                }
                State::Waiting if with_open || !run.if_needed => {
                    waiting.push((run.batch, Reverse(ns(cost))));
                }
                State::Waiting | State::Over => {}
            }
        }
        free.extend((free.len()..self.workers).map(|_| Reverse(0)));
        waiting.sort();
        for (_, Reverse(cost)) in waiting {
            let Reverse(at) = free.pop().expect("there is a worker");
            free.push(Reverse(at + cost));
        }
        free.into_iter().map(|Reverse(at)| at).max().unwrap_or(0) as f64 / 1e9
    }

    /// Returns the announcement of a long call: how long it takes, and how to shorten it. `None`
    /// for a short one, and after the first time.
    pub(crate) fn announce(&mut self, now: Duration, shorter: &str) -> Option<String> {
        if self.announced || now < self.looked + PAUSE {
            return None;
        }
        self.looked = now;
        let left = self.left(now).filter(|left| left.least >= LONG)?;
        self.announced = true;
        let costs = self.costs(now);
        let is_counted = |run: &Due| !run.if_needed && costs[run.kind].is_some();
        let runs = match self.runs.iter().filter(|(run, _)| is_counted(run)).count() {
            1 => "1 run takes".to_owned(),
            some => format!("{some} runs take"),
        };
        let left = shown(left.least);
        Some(format!("{runs} about {left} on this computer; for a shorter call: {shorter}"))
    }
}

impl Left {
    /// Formats the time left as the end of a message; empty below `least`.
    pub(crate) fn words(self, least: Duration) -> String {
        if self.most < least {
            return String::new();
        }
        let of = if self.in_part { " for the studies that have begun" } else { "" };
        match [self.least, self.most].map(shown) {
            [low, high] if low == high => format!(", about {low} left{of}"),
            [low, high] => format!(", about {low} to {high} left{of}"),
        }
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
    fn set_up_does_not_show_how_long_a_run_takes() {
        let mut estimate = Estimate::new(alike(3), 1);
        estimate.begin(0, S(0));
        estimate.set(0, 0.0001);
        assert_eq!((estimate.left(S(3)), estimate.announce(S(3), "")), (None, None));
        estimate.set(0, 0.1);
        assert_eq!(estimate.left(S(5)), None, "all programs have just started");
        estimate.set(0, 0.25);
        assert_eq!(estimate.left(S(5)), about(55, 55));
        let mut long = Estimate::new(alike(1), 1);
        long.begin(0, S(0));
        long.set(0, 0.01);
        assert_eq!(long.left(S(40)), about(3960, 3960));
    }

    /// Returns runs of one kind and one batch.
    fn alike(count: usize) -> impl Iterator<Item = Due> {
        (0..count).map(|_| Due { kind: 0, study: 0, batch: 0, weight: 1.0, if_needed: false })
    }

    fn about(least: u64, most: u64) -> Option<Left> {
        Some(Left { least: S(least), most: S(most), in_part: false })
    }

    #[test]
    fn the_time_left_follows_from_what_is_done() {
        let mut estimate = Estimate::new(alike(3), 1);
        assert_eq!(estimate.left(S(60)), None, "nothing is known");
        estimate.begin(0, S(0));
        estimate.set(0, 0.5);
        assert_eq!(estimate.left(S(1)), None, "too early");
        // Runs of 20 s: a half of the first, and two.
        assert_eq!(estimate.left(S(10)), about(50, 50));
        estimate.end(0, Some(S(30)));
        estimate.begin(1, S(30));
        assert_eq!(estimate.left(S(40)), about(50, 50), "a finished run tells more");
        estimate.end(1, None);
        assert_eq!(estimate.left(S(41)), about(30, 30), "a failed run has no time");
        estimate.end(2, Some(S(30)));
        assert_eq!(estimate.left(S(71)), about(0, 0));
    }

    #[test]
    fn what_a_first_look_may_leave_out_is_told_apart() {
        let runs = alike(4).enumerate().map(|(at, run)| Due { if_needed: at >= 2, ..run });
        let mut estimate = Estimate::new(runs, 1);
        estimate.begin(0, S(0));
        estimate.end(0, Some(S(40)));
        assert_eq!(estimate.left(S(40)), about(40, 120));
        let words = estimate.left(S(40)).unwrap().words(S(10));
        assert_eq!(words, ", about 40 s to 2 min left");
        estimate.decide(0..4, 4);
        assert_eq!(estimate.left(S(40)), about(120, 120));
        estimate.decide(0..4, 2);
        assert_eq!(estimate.left(S(40)), about(40, 40));
        assert_eq!(estimate.left(S(40)).unwrap().words(S(41)), "");
    }

    /// Executes a plan with the workers' rule: of arms that have finished, the slowest first;
    /// before those, arms that have not. Times of runs vary by 2 % from seed to seed. Returns the
    /// errors of the estimates since the first run of each arm: of the first one as a share of the
    /// time left then, and the largest as a share of the whole time.
    fn errors(arms: &[f64], seeds: usize, workers: usize) -> (f64, f64) {
        let cost = |run: usize| {
            let spread = (run as f64 * 0.618_033_988_75).fract() - 0.5;
            Duration::from_secs_f64(arms[run % arms.len()] * (1.0 + 0.04 * spread))
        };
        let due = |run: usize| Due {
            kind: run % arms.len(),
            study: 0,
            batch: 0,
            weight: 1.0,
            if_needed: false,
        };
        let count = arms.len() * seeds;
        let mut estimate = Estimate::new((0..count).map(due), workers);
        let (mut waiting, mut running) = ((0..count).collect::<Vec<_>>(), vec![]);
        let mut took = vec![None; arms.len()];
        let (mut now, mut told) = (Duration::ZERO, vec![]);
        loop {
            while running.len() < workers && !waiting.is_empty() {
                let rank = |&run: &usize| took[run % arms.len()].unwrap_or(Duration::MAX);
                let longest = waiting.iter().map(rank).max().unwrap();
                let at = waiting.iter().position(|run| rank(run) == longest).unwrap();
                let run = waiting.remove(at);
                estimate.begin(run, now);
                running.push((now + cost(run), run));
            }
            running.sort();
            let Some(&(end, run)) = running.first() else { break };
            running.remove(0);
            now = end;
            estimate.end(run, Some(cost(run)));
            took[run % arms.len()] = Some(cost(run));
            if took.iter().all(Option::is_some) && running.len() + waiting.len() > 0 {
                told.push((now, estimate.left(now).expect("all arms are known").most));
            }
        }
        let end = now.as_secs_f64();
        let error =
            |(at, left): (Duration, Duration)| (at.as_secs_f64() + left.as_secs_f64() - end).abs();
        let first = error(told[0]) / (end - told[0].0.as_secs_f64());
        (first, told.into_iter().map(error).fold(0.0, f64::max) / end)
    }

    #[test]
    fn the_first_run_of_each_arm_tells_the_time_of_all() {
        for workers in [1, 2, 3] {
            for arms in [&[1.0, 20.0][..], &[20.0, 1.0], &[3.0, 20.0, 1.0, 7.0]] {
                let (first, largest) = errors(arms, 7, workers);
                assert!(
                    first < 0.03 && largest < 0.03,
                    "{workers} workers, {arms:?}: {first} {largest}"
                );
            }
        }
    }

    /// Arms that have not run are taken for the mean of those that have, by weight; a run that is
    /// in progress is better than that.
    #[test]
    fn an_arm_that_has_not_run_is_guessed() {
        let due =
            |kind: usize, weight| Due { kind, study: 0, batch: kind, weight, if_needed: false };
        let mut estimate = Estimate::new([due(0, 1.0), due(1, 1.0), due(2, 4.0)], 1);
        estimate.begin(0, S(0));
        estimate.end(0, Some(S(10)));
        assert_eq!(estimate.left(S(10)), about(50, 50));
        estimate.begin(1, S(10));
        estimate.set(1, 0.25);
        // 40 s of which 30 are left, and 4 times 25 s.
        assert_eq!(estimate.left(S(20)), about(130, 130));
    }

    #[test]
    fn a_study_of_which_nothing_is_known_does_not_count() {
        let due =
            |kind: usize| Due { kind, study: kind, batch: kind, weight: 1.0, if_needed: false };
        let mut estimate = Estimate::new([0, 0, 1, 1].map(due), 1);
        estimate.begin(0, S(0));
        estimate.end(0, Some(S(20)));
        let left = estimate.left(S(20)).unwrap();
        assert_eq!(left, Left { least: S(20), most: S(20), in_part: true });
        assert_eq!(left.words(S(10)), ", about 20 s left for the studies that have begun");
        estimate.end(1, Some(S(20)));
        estimate.end(2, Some(S(100)));
        assert_eq!(estimate.left(S(140)), about(100, 100));
    }

    /// A window of 5 s on 512 CPUs: 28 runs, of which one has done a thousandth in 10 s.
    #[test]
    fn a_call_of_days_is_announced_once() {
        let mut estimate = Estimate::new(alike(28), 1);
        estimate.begin(0, S(0));
        estimate.set(0, 0.001);
        let said = estimate.announce(S(10), "--quick").expect("it takes days");
        assert_eq!(
            said,
            "28 runs take about 3.2 days on this computer; for a shorter call: --quick"
        );
        assert_eq!(estimate.announce(S(11), "--quick"), None);
        let mut short = Estimate::new(alike(1), 1);
        short.begin(0, S(0));
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
