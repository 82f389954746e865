//! The search for factors: simulate, solve, simulate again.

use mmscale_arch::Op;
use mmscale_harness::Interrupt;
use mmscale_sim::profile::{Merged, Profile};

use super::group::{Decided, Factors, Group};
use super::programs::{Program, rates_on};
use super::solve::{COMMON, ERRORS, Times, solve};
use super::written::{Scaling, rounded};
use super::{FACTORS, FitError, FitRequest, Fitted, FittedRate, PLAUSIBLE, REPRODUCED, Rate};
use crate::derive::Derived;

/// Rounds of the search. Times are sums of costs, so that one or two are usually enough.
const MOST_ROUNDS: usize = 6;
/// The search ends when the simulated times are the expected ones, within this part.
const EXPECTED: f64 = 0.000_5;
/// A group with a smaller part of the time of every program is not decided by their rates.
const DECIDES: f64 = 0.01;
/// The factor of a group in the run that shows its part of a program's time.
const PROBE: f64 = 2.0;

/// A search in progress.
pub(super) struct Search<'a> {
    pub(super) request: &'a FitRequest<'a>,
    pub(super) derived: Derived,
    pub(super) base: Merged,
    /// The machine with the costs of the base.
    pub(super) start: Profile,
    pub(super) programs: Vec<Program>,
    pub(super) interrupt: &'a Interrupt,
}

/// The parts of the times of all programs, with the costs of the base.
pub(super) struct Parts {
    /// The rate of each program.
    before_per_s: Vec<f64>,
    /// The time of an operation of each program.
    times: Vec<Times>,
    /// Whether the rates decide the factor of a group. All others have the common factor.
    decided: Decided,
}

/// Returns whether `value` is in a range.
fn is_in([least, most]: [f64; 2], value: f64) -> bool {
    least <= value && value <= most
}

impl Parts {
    /// Returns whether the rates decide the factor of a group.
    pub(super) fn decide(&self, group: Group) -> bool {
        self.decided[group.place()]
    }
}

impl Search<'_> {
    fn rates_on(&self, machines: &[Profile]) -> Result<Vec<Vec<f64>>, FitError> {
        rates_on(&self.programs, machines, self.interrupt)
    }

    /// Returns whether a single rate is given, which decides the common factor alone.
    pub(super) fn is_single(&self) -> bool {
        self.request.rates.len() == 1
    }

    /// Returns the parts of each program's time: from a run for each group, in which its costs are
    /// [`PROBE`] times as large. All work of a single program is one group.
    pub(super) fn parts(&self) -> Result<Parts, FitError> {
        let single = self.is_single();
        let is_of = |op: Op, group: Group| {
            if single { Group::of(op).is_work() } else { Group::of(op) == group }
        };
        let groups: Vec<Group> =
            Group::ALL.into_iter().filter(|group| !single || *group == Group::Rest).collect();
        let probes = groups.iter().map(|&group| {
            let ops: Vec<Op> = Op::ALL.iter().copied().filter(|&op| is_of(op, group)).collect();
            self.start.scaled_ops(&ops, PROBE)
        });
        let machines: Vec<Profile> = [self.start.clone()].into_iter().chain(probes).collect();
        let rates = self.rates_on(&machines)?;
        let times_of = |program: usize| {
            let ns = 1e9 / rates[0][program];
            let mut group_ns = Factors::default();
            for (group, rates) in groups.iter().zip(&rates[1..]) {
                let more_ns = (1e9 / rates[program] - ns) / (PROBE - 1.0);
                group_ns[group.place()] = more_ns.max(0.0);
            }
            Times { fixed_ns: (ns - group_ns.iter().sum::<f64>()).max(0.0), group_ns }
        };
        let times: Vec<Times> = (0..self.programs.len()).map(times_of).collect();
        let decided = |group: Group| {
            let is_large = |of: &Times| {
                of.group_ns[group.place()] > DECIDES * of.with(&Group::ALL.map(|_| 1.0))
            };
            !single && group != Group::Rest && times.iter().any(is_large)
        };
        let decided = Group::ALL.map(decided);
        Ok(Parts { before_per_s: rates[0].clone(), times, decided })
    }

    /// Returns an error if a rate is out of reach even alone.
    pub(super) fn check_reach(&self, parts: &Parts) -> Result<(), FitError> {
        let all = |factor: f64| Group::ALL.map(|of| if of.is_work() { factor } else { 1.0 });
        let [least, most] = FACTORS.map(all);
        let is_far = |(rate, times): (&Rate, &Times)| {
            let fastest_ns = times.with(&least) * (1.0 - REPRODUCED);
            !is_in([fastest_ns, times.with(&most) * (1.0 + REPRODUCED)], rate.ns())
        };
        let rates = self.request.rates;
        let Some(at) = rates.iter().zip(&parts.times).position(is_far) else { return Ok(()) };
        let per_s = |factors: &Factors| Rate::shown(1e9 / parts.times[at].with(factors));
        let (slowest, fastest) = (per_s(&most), per_s(&least));
        Err(FitError::NoFactor { rate: rates[at].to_string(), slowest, fastest })
    }

    fn scaling<'b>(&'b self, parts: &'b Parts) -> Scaling<'b> {
        let (rates, decided) = (self.request.rates, &parts.decided);
        Scaling { file: &self.derived.file, base: &self.base, rates, decided }
    }

    /// Returns the machine of the file with these factors.
    fn machine(&self, parts: &Parts, factors: &Factors) -> Result<Profile, FitError> {
        let file = self.scaling(parts).by(factors);
        Ok(self.request.known.profiles.resolve("fit", &file)?)
    }

    /// Returns the factors, and the rates of a simulation with them. Times are sums of costs except
    /// for clears that wait for memory and for rounded numbers; each round corrects these.
    pub(super) fn factors(&self, parts: &Parts) -> Result<(Factors, Vec<f64>), FitError> {
        let rates = self.request.rates;
        let mut times = parts.times.clone();
        let mut best: Option<(f64, Factors, Vec<f64>)> = None;
        let mut error = None;
        for _ in 0..MOST_ROUNDS {
            let wanted = times.iter().cloned().zip(rates.iter().map(Rate::ns)).collect::<Vec<_>>();
            let error = *error.get_or_insert_with(|| Self::error(&wanted));
            let solved = Self::solved(parts, &wanted, error);
            let per_s = self.rates_on(&[self.machine(parts, &solved)?])?.remove(0);
            let expected = times.iter().map(|times| times.with(&solved));
            let ratios: Vec<f64> =
                expected.zip(&per_s).map(|(ns, per_s)| 1e9 / per_s / ns).collect();
            let missed = rates.iter().zip(&per_s);
            let missed: f64 = missed.map(|(rate, per_s)| (per_s / rate.per_s).ln().powi(2)).sum();
            if best.as_ref().is_none_or(|(least, ..)| missed < *least) {
                best = Some((missed, solved, per_s));
            }
            if ratios.iter().all(|ratio| ratio.ln().abs() <= EXPECTED) {
                break;
            }
            times = times.iter().zip(&ratios).map(|(of, ratio)| of.times(*ratio)).collect();
        }
        let (_, factors, per_s) = best.expect("there is at least one round");
        Ok((factors, per_s))
    }

    /// Returns the error of the rates with which the factors are solved: the first one that
    /// reproduces them with plausible factors. Otherwise the first one that reproduces them; and if
    /// they contradict each other, so that none does, the first one with plausible factors, which
    /// leaves remainders. Factors are plausible here next to the common one.
    fn error(wanted: &[(Times, f64)]) -> f64 {
        // A simulation of rounded costs may differ from the sum a little.
        let most = 0.9 * REPRODUCED;
        let tried = ERRORS.map(|error| {
            let solved = solve(wanted, error);
            let in_range = solved.into_iter().all(|factor| is_in(FACTORS, factor));
            let is_plausible = |(group, factor): (Group, f64)| {
                is_in(PLAUSIBLE, if group.is_work() { factor / solved[COMMON] } else { factor })
            };
            let is_reproduced =
                |(times, ns): &(Times, f64)| (times.with(&solved) / ns - 1.0).abs() <= most;
            let reproduced = in_range && wanted.iter().all(is_reproduced);
            let plausible = in_range && Group::ALL.into_iter().zip(solved).all(is_plausible);
            (error, reproduced, plausible)
        });
        let first = |is: fn(&(f64, bool, bool)) -> bool| tried.iter().find(|of| is(of));
        let found = first(|of| of.1 && of.2).or_else(|| first(|of| of.1));
        found.or_else(|| first(|of| of.2)).map_or(ERRORS[ERRORS.len() - 1], |of| of.0)
    }

    /// Returns the factors as they are written: those that the rates decide, and the common one.
    fn solved(parts: &Parts, wanted: &[(Times, f64)], error: f64) -> Factors {
        let solved = solve(wanted, error);
        Group::ALL.map(|group| {
            let factor = match group {
                _ if parts.decide(group) => solved[group.place()],
                _ if group.is_work() => solved[COMMON],
                _ => 1.0,
            };
            // A rate at the end of its reach may need a factor that is a little outside.
            rounded(factor.clamp(FACTORS[0], FACTORS[1]))
        })
    }

    /// Returns the fitted profile.
    pub(super) fn fitted(&self, parts: &Parts, factors: &Factors, after_per_s: &[f64]) -> Fitted {
        let file = self.scaling(parts).by(factors);
        let rates = self.request.rates.iter().zip(&parts.before_per_s).zip(after_per_s);
        let rates = rates.map(|((rate, &before_per_s), &after_per_s)| FittedRate {
            rate: rate.clone(),
            before_per_s,
            after_per_s,
        });
        let is_shown = |(group, _): &(Group, f64)| parts.decide(*group) || *group == Group::Rest;
        let linux = self.request.linux.map(|version| format!("--linux {version}"));
        Fitted {
            derived: Derived { file, notes: self.derived.notes.clone() },
            rates: rates.collect(),
            factors: Group::ALL.into_iter().zip(*factors).filter(is_shown).collect(),
            with: self.request.set.iter().cloned().chain(linux).collect(),
        }
    }
}
