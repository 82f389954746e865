//! Factors of groups of costs, for which programs take the measured times.
//!
//! On one CPU no program waits for another one, so the time of an operation is a sum: a fixed part
//! (lines, atomics, locks), and for each group of costs its time times its factor. Rates of a few
//! programs do not determine all factors. The solution has the measured times and, among those that
//! have, the factors nearest to one common factor; clearing pages stays near 1. With a single rate
//! all work of the CPU has the common factor.

use super::group::{Factors, Group};

/// Relative errors of measured rates. With the first one, rates are reproduced unless they
/// contradict each other; with larger ones, factors are nearer to the common one.
pub(super) const ERRORS: [f64; 6] = [0.005, 0.01, 0.02, 0.05, 0.1, 0.2];
/// Deviation of a factor from the common one, as a natural logarithm, that counts as much as the
/// error of a rate: 1.65 times.
const SPREAD: f64 = 0.5;
/// Deviation of the factor of clearing pages from 1 that counts as much. The time of a clear is
/// published for many processors; that of other operations is mostly derived from sums.
const CLEAR_SPREAD: f64 = 0.25;
/// Holds the common factor at 1 if no time depends on it. Too weak to change it otherwise.
const HOLD: f64 = 1e-4;
/// No factor is larger, or smaller than its inverse: far outside the allowed range.
const MAX_LOG: f64 = 4.0;

/// A factor for each group. That of [`Group::Rest`], the last one, is the common factor.
const UNKNOWNS: usize = Group::ALL.len();
/// The place of the common factor.
pub(super) const COMMON: usize = UNKNOWNS - 1;

/// The time of an operation of a program, in ns.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Times {
    pub(super) fixed_ns: f64,
    /// The time in each group of costs with the factor 1.
    pub(super) group_ns: Factors,
}

impl Times {
    /// Returns the time with these factors.
    pub(super) fn with(&self, factors: &Factors) -> f64 {
        let groups = self.group_ns.iter().zip(factors);
        self.fixed_ns + groups.map(|(ns, factor)| ns * factor).sum::<f64>()
    }

    /// Returns the same program, all of whose times are `ratio` times as long.
    pub(super) fn times(&self, ratio: f64) -> Self {
        Self { fixed_ns: self.fixed_ns * ratio, group_ns: self.group_ns.map(|ns| ns * ratio) }
    }
}

/// Returns the factors for which each program takes the time next to it, in ns, as nearly as the
/// relative `error` of these times allows.
pub(super) fn solve(programs: &[(Times, f64)], error: f64) -> Factors {
    let mut logs = [0.0; UNKNOWNS];
    let mut damping = 1e-3;
    let (mut cost, mut normal) = equations(programs, error, &logs);
    // Some ten steps are needed; each is a few hundred multiplications.
    for _ in 0..200 {
        let step = normal.step(damping);
        let next: [f64; UNKNOWNS] =
            core::array::from_fn(|at| (logs[at] + step[at]).clamp(-MAX_LOG, MAX_LOG));
        let (next_cost, next_normal) = equations(programs, error, &next);
        if next_cost < cost {
            let gain = cost - next_cost;
            (logs, cost, normal) = (next, next_cost, next_normal);
            damping = (damping / 10.0_f64).max(1e-12);
            if gain < 1e-14 {
                break;
            }
        } else {
            damping *= 10.0;
            if damping > 1e12 {
                break;
            }
        }
    }
    logs.map(f64::exp)
}

/// The normal equations of a step of Gauss and Newton.
#[derive(Default)]
struct Normal {
    matrix: [[f64; UNKNOWNS]; UNKNOWNS],
    right: [f64; UNKNOWNS],
}

impl Normal {
    /// Adds a residual with its derivatives.
    fn add(&mut self, residual: f64, slopes: &[f64; UNKNOWNS]) {
        for (row, slope) in slopes.iter().enumerate() {
            self.right[row] -= slope * residual;
            for (column, other) in slopes.iter().enumerate() {
                self.matrix[row][column] += slope * other;
            }
        }
    }

    /// Solves the equations by elimination. The damping (Levenberg and Marquardt) makes the matrix
    /// positive definite, so no row has to be exchanged.
    fn step(&self, damping: f64) -> [f64; UNKNOWNS] {
        let (mut matrix, mut right) = (self.matrix, self.right);
        for (at, row) in matrix.iter_mut().enumerate() {
            row[at] *= 1.0 + damping;
        }
        for pivot in 0..UNKNOWNS {
            let of = matrix[pivot];
            for row in pivot + 1..UNKNOWNS {
                let factor = matrix[row][pivot] / of[pivot];
                matrix[row].iter_mut().zip(of).for_each(|(cell, above)| *cell -= factor * above);
                right[row] -= factor * right[pivot];
            }
        }
        let mut step = [0.0; UNKNOWNS];
        for row in (0..UNKNOWNS).rev() {
            let known: f64 = (row + 1..UNKNOWNS).map(|at| matrix[row][at] * step[at]).sum();
            step[row] = (right[row] - known) / matrix[row][row];
        }
        step
    }
}

/// Returns the sum of the squares, and the equations of the next step.
fn equations(programs: &[(Times, f64)], error: f64, logs: &[f64; UNKNOWNS]) -> (f64, Normal) {
    let factors = logs.map(f64::exp);
    let (mut cost, mut normal) = (0.0, Normal::default());
    let mut add = |residual: f64, slopes: [f64; UNKNOWNS]| {
        cost += residual * residual;
        normal.add(residual, &slopes);
    };
    for (times, wanted_ns) in programs {
        let ns = times.with(&factors);
        let slope = |at: usize| times.group_ns[at] * factors[at] / ns / error;
        add((ns / wanted_ns).ln() / error, core::array::from_fn(slope));
    }
    for (at, group) in Group::ALL.into_iter().enumerate().take(COMMON) {
        let mut slopes = [0.0; UNKNOWNS];
        if group.is_work() {
            (slopes[at], slopes[COMMON]) = (1.0 / SPREAD, -1.0 / SPREAD);
            add((logs[at] - logs[COMMON]) / SPREAD, slopes);
        } else {
            slopes[at] = 1.0 / CLEAR_SPREAD;
            add(logs[at] / CLEAR_SPREAD, slopes);
        }
    }
    let mut slopes = [0.0; UNKNOWNS];
    slopes[COMMON] = HOLD;
    add(HOLD * logs[COMMON], slopes);
    (cost, normal)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program that faults, and one that edits VMAs.
    fn programs() -> [Times; 2] {
        let times = |fixed_ns, group_ns| Times { fixed_ns, group_ns };
        [
            times(100.0, [300.0, 20.0, 600.0, 0.0, 300.0, 40.0]),
            times(60.0, [80.0, 1500.0, 20.0, 0.0, 0.0, 10.0]),
        ]
    }

    fn at(group: Group) -> usize {
        Group::ALL.iter().position(|&of| of == group).unwrap()
    }

    fn near(one: f64, other: f64, error: f64) {
        assert!((one / other - 1.0).abs() < error, "{one} is not {other}");
    }

    #[test]
    fn one_rate_has_one_factor_for_all_work_of_the_cpu() {
        let [faults, _] = programs();
        let factors = [1.3, 1.3, 1.3, 1.3, 1.0, 1.3];
        let solved = solve(&[(faults.clone(), faults.with(&factors))], ERRORS[0]);
        for (solved, factor) in solved.iter().zip(factors) {
            near(*solved, factor, 1e-6);
        }
    }

    #[test]
    fn rates_of_unchanged_costs_have_the_factor_1() {
        let [faults, edits] = programs();
        let ones = [1.0; UNKNOWNS];
        let wanted = [(faults.clone(), faults.with(&ones)), (edits.clone(), edits.with(&ones))];
        for factor in solve(&wanted, ERRORS[0]) {
            near(factor, 1.0, 1e-9);
        }
    }

    #[test]
    fn two_rates_are_reproduced_and_the_group_of_the_slow_one_moves_most() {
        let [faults, edits] = programs();
        let ones = [1.0; UNKNOWNS];
        let wanted = [faults.with(&ones), edits.with(&ones) * 1.5];
        let solved = solve(&[(faults.clone(), wanted[0]), (edits.clone(), wanted[1])], ERRORS[0]);
        near(faults.with(&solved), wanted[0], 1e-3);
        near(edits.with(&solved), wanted[1], 1e-3);
        let vma = solved[at(Group::Vma)];
        assert!(vma > 1.4 && solved.iter().all(|&factor| factor <= vma), "{solved:?}");
        // No rate depends on these: they have the common factor.
        near(solved[at(Group::Tasks)], solved[COMMON], 1e-6);
        // Clearing is less free to move than other work.
        let moved = |group: Group| solved[at(group)].ln().abs();
        assert!(moved(Group::Clear) < moved(Group::Pages), "{solved:?}");
    }

    #[test]
    fn rates_that_contradict_each_other_leave_a_remainder() {
        let [faults, _] = programs();
        let ns = faults.with(&[1.0; UNKNOWNS]);
        let solved = solve(&[(faults.clone(), ns * 1.1), (faults.clone(), ns * 0.9)], ERRORS[0]);
        near(faults.with(&solved), ns * (1.1_f64 * 0.9).sqrt(), 1e-3);
    }

    #[test]
    fn factors_are_nearer_to_the_common_one_if_rates_may_have_a_larger_error() {
        let [faults, edits] = programs();
        let ns = [&faults, &edits].map(|of| of.with(&[1.0; UNKNOWNS]));
        let wanted = [(faults, ns[0] / 1.5), (edits, ns[1] * 1.5)];
        let spread = |error: f64| {
            let solved = solve(&wanted, error);
            let logs = solved.iter().map(|factor| (factor / solved[COMMON]).ln().abs());
            logs.fold(0.0, f64::max)
        };
        let spreads = ERRORS.map(spread);
        assert!(spreads.is_sorted_by(|one, next| one > next), "{spreads:?}");
    }

    #[test]
    fn a_time_below_the_fixed_part_ends_at_the_smallest_factor() {
        let [faults, _] = programs();
        let solved = solve(&[(faults, 50.0)], ERRORS[0]);
        assert!(solved[COMMON] < 0.1 && solved.iter().all(|factor| factor.is_finite()));
    }

    #[test]
    fn a_time_that_no_cost_changes_leaves_all_factors() {
        let idle = Times { fixed_ns: 100.0, group_ns: [0.0; UNKNOWNS] };
        assert_eq!(solve(&[(idle, 200.0)], ERRORS[0]), [1.0; UNKNOWNS]);
    }
}
