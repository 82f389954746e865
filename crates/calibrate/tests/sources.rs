//! Sources of the built-in profiles: how many numbers are assumptions, and whether derived ones
//! give the sums that they were derived from.

use mmscale_calibrate::fidelity::{Step, measured_on, one_cpu};
use mmscale_calibrate::review::{Review, review};
use mmscale_calibrate::{Basis, Profiles};
use mmscale_harness::Interrupt;
use mmscale_sim::profile::builtin_names;
use std::path::Path;

/// Assumptions among the own numbers of all profiles: a number that a profile has from its base is
/// counted there. It may only fall.
const MOST_ASSUMED: usize = 66;

/// Returns the own numbers of all built-in profiles whose source is of each kind, and of all kinds.
fn counted() -> ([usize; Basis::ALL.len()], usize) {
    let reviews: Vec<_> = builtin_names()
        .into_iter()
        .map(|name| review(&Profiles::default().open(Path::new(name)).unwrap()))
        .collect();
    let of = |basis| -> usize { reviews.iter().map(|review| review.count(basis, false)).sum() };
    (Basis::ALL.map(of), reviews.iter().map(Review::own).sum())
}

#[test]
fn fewer_than_half_of_the_numbers_are_assumptions_and_not_more_than_before() {
    let (by_kind, all) = counted();
    assert_eq!(by_kind.iter().sum::<usize>(), all, "each number has a kind");
    let assumed = by_kind[Basis::ALL.iter().position(|&kind| kind == Basis::Assumed).unwrap()];
    assert!(2 * assumed < all, "{assumed} of {all}");
    assert!(
        assumed <= MOST_ASSUMED,
        "{assumed} assumptions, {MOST_ASSUMED} are allowed: name a source for the new number"
    );
}

/// A lock handoff was measured, or computed from a measurement, for three machines or more.
#[test]
fn handoffs_are_measured_for_three_machines() {
    let known = builtin_names().into_iter().filter(|name| {
        let merged = Profiles::default().open(Path::new(name)).unwrap();
        let review = review(&merged);
        let handoff =
            review.numbers.iter().find(|entry| entry.key == "costs.handoff_fixed_ns").unwrap();
        let of = [Basis::Measured, Basis::Published, Basis::Derived];
        handoff.base.is_none() && handoff.basis.is_some_and(|basis| of.contains(&basis))
    });
    let known: Vec<_> = known.collect();
    assert!(known.len() >= 3, "{known:?}");
}

/// Costs whose source is a published time of a page on one CPU together give that time.
#[test]
fn sums_of_derived_costs_are_the_published_ones() {
    for (name, steps) in
        [("x86-26", &[Step::WriteFault, Step::MunmapEmpty][..]), ("x86-16", &[Step::Fork])]
    {
        let profile = measured_on(&Profiles::default(), name).unwrap();
        let rows = one_cpu(&profile, &Interrupt::default()).unwrap();
        for step in steps {
            let (_, pair) = rows.iter().find(|(of, _)| of == step).expect("it is published");
            let error = pair.error_percent();
            assert!(error.abs() < 10.0, "{name}, {step:?}: {error} %");
        }
    }
}
