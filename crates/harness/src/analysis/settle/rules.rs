//! Rules: in which simple part of the map something is so.

use super::Knob;

/// Parts into which the range of each knob is split for the limits of rules.
const STEPS: usize = 32;
/// The least share of places in the part of a rule for which it is right.
const RIGHT: f64 = 0.95;
/// How much more a rule with two limits must cover than one with one.
const WORTH: f64 = 0.08;
/// The least share of its region that a rule covers.
const LEAST: f64 = 0.1;

/// One limit of a rule.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limit {
    /// The index of the knob.
    pub knob: usize,
    /// Whether the knob is above the limit.
    pub above: bool,
    /// The limit, in values of the knob.
    pub value: f64,
}

/// A part of the map by limits of knobs.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// One or two limits.
    pub limits: Vec<Limit>,
    /// The share of the region that is in this part.
    pub covers: f64,
    /// The share of this part that belongs to the region.
    pub right: f64,
}

/// Places as a set of bits.
type Set = Vec<u64>;

fn set_of(all: impl ExactSizeIterator<Item = bool>) -> Set {
    let mut set = vec![0; all.len().div_ceil(64)];
    all.enumerate().filter(|(_, is)| *is).for_each(|(at, _)| set[at / 64] |= 1 << (at % 64));
    set
}

fn size<'a>(of: impl Iterator<Item = u64> + 'a) -> f64 {
    of.map(|word| f64::from(word.count_ones())).sum()
}

/// Returns the rule that covers most of the region whose places `within` names, among those that
/// are right in nearly all of their part. `None` if none covers a tenth of the region.
pub(super) fn rule(knobs: &[Knob], places: &[Vec<f64>], within: &[bool]) -> Option<Rule> {
    let region = set_of(within.iter().copied());
    let whole = size(region.iter().copied());
    let mut all: Vec<(Limit, Set)> = vec![];
    for (knob, own) in knobs.iter().enumerate() {
        for step in 1..STEPS {
            let share = step as f64 / STEPS as f64;
            for above in [false, true] {
                let set = set_of(places.iter().map(|place| (place[knob] > share) == above));
                let value = own.range[0];
                let value = if share > 0.0 { unrounded(own, share) } else { value };
                all.push((Limit { knob, above, value }, set));
            }
        }
    }
    let judged = |limits: Vec<Limit>, part: &dyn Fn(usize) -> u64| {
        let (mut inside, mut right) = (0.0, 0.0);
        for (at, word) in region.iter().enumerate() {
            inside += f64::from(part(at).count_ones());
            right += f64::from((part(at) & word).count_ones());
        }
        let rule = Rule { limits, covers: right / whole, right: right / f64::max(inside, 1.0) };
        (rule.right >= RIGHT).then_some(rule)
    };
    let best = |a: Option<Rule>, b: Option<Rule>| match (a, b) {
        (Some(a), Some(b)) => Some(if b.covers > a.covers { b } else { a }),
        (a, b) => a.or(b),
    };
    let one = all.iter().map(|(limit, set)| judged(vec![*limit], &|at| set[at])).fold(None, best);
    let mut two = None;
    for (at, (first, set)) in all.iter().enumerate() {
        for (second, other) in &all[at + 1..] {
            if first.knob != second.knob || first.above != second.above {
                two = best(two, judged(vec![*first, *second], &|at| set[at] & other[at]));
            }
        }
    }
    let covers = |rule: &Option<Rule>| rule.as_ref().map_or(0.0, |rule| rule.covers);
    let found = if covers(&two) > covers(&one) + WORTH { two } else { one };
    found.filter(|rule| rule.covers >= LEAST)
}

/// Returns the value at a share of a range; whole numbers are between two of them.
fn unrounded(knob: &Knob, share: f64) -> f64 {
    Knob { whole: false, ..knob.clone() }.value(share)
}

#[cfg(test)]
mod tests {
    use super::super::knob::spread;
    use super::*;

    fn knobs() -> Vec<Knob> {
        let knob = |name: &str, high: f64, log| Knob {
            name: name.to_owned(),
            unit: "1".to_owned(),
            range: [1.0, high],
            log,
            whole: false,
        };
        vec![knob("a", 101.0, false), knob("b", 10_000.0, true)]
    }

    #[test]
    fn planted_parts_are_found_with_as_few_limits_as_they_need() {
        let places: Vec<Vec<f64>> = (0..1000).map(|at| spread(at, 2, 0.5)).collect();
        let found = |is: fn(&[f64]) -> bool| {
            let within: Vec<bool> = places.iter().map(|place| is(place)).collect();
            rule(&knobs(), &places, &within)
        };
        let half = found(|place| place[1] < 0.5).expect("a half");
        assert_eq!((half.limits.len(), half.limits[0].knob, half.limits[0].above), (1, 1, false));
        assert!((half.limits[0].value / 100.0 - 1.0).abs() < 0.2 && half.covers > 0.95);
        let corner = found(|place| place[0] > 0.25 && place[1] > 0.75).expect("a corner");
        assert_eq!(corner.limits.len(), 2);
        assert!(corner.covers > 0.9 && corner.right > 0.95, "{corner:?}");
        assert!(found(|place| ((place[0] * 20.0) as usize).is_multiple_of(2)).is_none(), "stripes");
    }
}
