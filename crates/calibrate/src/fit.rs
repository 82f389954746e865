//! Costs of operations, fitted to measured pieces.
//!
//! Four pieces do not determine nine operations. The fitted costs reproduce each measured piece
//! exactly. The remaining freedom is resolved by proportions of the profile `x86-26`: between the
//! cache's list and the work next to it, and among the steps of a refill. (A refill splits about
//! one block per page and a drain merges one, with a take, a put and a step each.)

use super::CalibrateError;
use super::program::{Figures, Piece, simulated};
use mmscale_arch::Op;
use mmscale_sim::profile::Profile;

/// The operations of the frame allocator.
pub(super) const FITTED: [Op; 9] = [
    Op::AllocEntry,
    Op::PcpTake,
    Op::PagePrep,
    Op::PcpPut,
    Op::RefillPage,
    Op::DrainPage,
    Op::BuddyTake,
    Op::BuddyPut,
    Op::BuddyStep,
];

/// The operations whose costs are determined by a piece, in fixed proportions.
const DECIDES: [(Piece, &[Op]); 4] = [
    (Piece::CachedFree, &[Op::PagePrep, Op::PcpPut]),
    (Piece::CachedAlloc, &[Op::AllocEntry, Op::PcpTake]),
    (Piece::BulkAlloc, &[Op::RefillPage, Op::BuddyTake, Op::BuddyPut, Op::BuddyStep]),
    (Piece::BulkFree, &[Op::DrainPage]),
];

/// Returns the piece that determines the cost of `op`.
pub(super) fn decided_by(op: Op) -> Piece {
    let decides = DECIDES.iter().find(|(_, ops)| ops.contains(&op));
    decides.map_or(Piece::BulkFree, |(piece, _)| *piece)
}

/// Cost model of a simulated CPU for each piece: a fixed part (locks, lines, atomics), and the
/// number of each operation per page.
pub(super) struct Charges {
    fixed: Figures,
    /// Operations per page, indexed as in [`FITTED`].
    per_page: [Figures; FITTED.len()],
}

impl Charges {
    /// Counts the charges by running the pieces on a machine with the locks, lines and atomics of
    /// `profile`. All operations cost nothing, except for one at a time.
    pub(super) fn count(profile: &Profile) -> Result<Self, CalibrateError> {
        const PROBE_NS: u64 = 1_000;
        let mut bare = profile.clone();
        bare.costs.jitter_1024 = 0;
        bare.costs.op_ps = [0; Op::ALL.len()];
        let fixed = simulated(&bare)?;
        let mut per_page = [Figures::default(); FITTED.len()];
        for (op, counts) in FITTED.into_iter().zip(&mut per_page) {
            let mut one = bare.clone();
            one.costs.op_ps[op as usize] = PROBE_NS * 1000;
            let with = simulated(&one)?;
            for ((count, with), without) in counts.iter_mut().zip(with).zip(fixed) {
                *count = (with - without) / PROBE_NS as f64;
            }
        }
        Ok(Self { fixed, per_page })
    }

    /// Returns the duration of the pieces if the operations cost `ns`.
    fn predict(&self, ns: &[f64; FITTED.len()]) -> Figures {
        let mut figures = self.fixed;
        for (counts, ns) in self.per_page.iter().zip(ns) {
            figures.iter_mut().zip(counts).for_each(|(figure, count)| *figure += count * ns);
        }
        figures
    }

    /// Returns the costs that reproduce `measured`, in ns, indexed as in [`FITTED`]. `prior`
    /// provides the proportions. A negative cost is replaced by 0: the fixed part alone then
    /// exceeds the measurement.
    pub(super) fn solve(&self, measured: &Figures, prior: &Profile) -> [f64; FITTED.len()] {
        let mut ns = [0.0; FITTED.len()];
        // No piece contains an operation that a later one decides.
        for (piece, ops) in DECIDES {
            let own = |at: usize| ops.contains(&FITTED[at]);
            let prior_of = |at: usize| prior.costs.op_ps[FITTED[at] as usize] as f64 / 1000.0;
            let with = |own_ns: &dyn Fn(usize) -> f64| -> [f64; FITTED.len()] {
                core::array::from_fn(|at| if own(at) { own_ns(at) } else { ns[at] })
            };
            let known = self.predict(&with(&|_| 0.0))[piece as usize];
            let by_prior = self.predict(&with(&prior_of))[piece as usize] - known;
            let left = (measured[piece as usize] - known).max(0.0);
            let scale = if by_prior > 0.0 { left / by_prior } else { 0.0 };
            ns = with(&|at| prior_of(at) * scale);
        }
        ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn charges() -> Charges {
        // Entry, take, prep, put, refill, drain, buddy take, buddy put, step; by piece.
        let per_page = [
            [1.0, 0.0, 1.0, 0.0],
            [1.0, 0.0, 1.0, 0.0],
            [1.0, 1.0, 1.0, 1.0],
            [0.0, 1.0, 0.0, 1.0],
            [0.0, 0.0, 1.0, 0.0],
            [0.0, 0.0, 0.0, 1.0],
            [0.0, 0.0, 1.0, 0.9],
            [0.0, 0.0, 0.9, 1.0],
            [0.0, 0.0, 0.9, 0.9],
        ];
        Charges { fixed: [10.0, 10.0, 12.0, 12.0], per_page }
    }

    #[test]
    fn fitted_costs_give_the_measured_pieces_again() {
        let prior = mmscale_sim::profile::load("x86-26").unwrap();
        let measured = [46.0, 35.0, 61.0, 58.0];
        let ns = charges().solve(&measured, &prior);
        for (piece, predicted) in charges().predict(&ns).into_iter().enumerate() {
            assert!((predicted - measured[piece]).abs() < 1e-9, "{ns:?}");
        }
        let [prep, put] = [Op::PagePrep, Op::PcpPut].map(|op| prior.costs.op_ps[op as usize]);
        assert!((ns[2] / ns[3] - prep as f64 / put as f64).abs() < 1e-9, "{ns:?}");
    }

    #[test]
    fn no_cost_is_negative() {
        let prior = mmscale_sim::profile::load("x86-26").unwrap();
        let ns = charges().solve(&[5.0, 35.0, 20.0, 8.0], &prior);
        assert!(ns.iter().all(|&ns| ns >= 0.0) && ns[0] == 0.0 && ns[1] == 0.0, "{ns:?}");
    }
}
