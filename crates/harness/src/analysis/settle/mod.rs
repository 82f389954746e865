//! Where which arm is best: a map over knobs, from few runs near its boundary.
//!
//! The first points fill the space of the knobs. After that a function is fitted to the difference
//! of each two arms on common seeds ([`process`]), and runs are put where it is not clear which
//! arms are as good as the best: where the difference is near the least one that matters, or
//! little is known of it (the straddle heuristic: Bryan et al., "Active learning for identifying
//! function threshold boundaries", 2005). Points depend on results alone, so that a call repeats
//! and continues an earlier one.
//!
//! Differences are logarithms of ratios, with those far from 0 drawn together: the boundary is
//! where they are small.

mod knob;
mod process;
mod rules;

pub use knob::Knob;
use knob::spread;
use mmscale_stats::normal_cdf;
use process::{Process, Shared};
use rules::rule;
pub use rules::{Limit, Rule};

/// Points that run between two fits. They do not depend on the computer, as results may not.
const BATCH: usize = 8;
/// Places of the map.
const PLACES: usize = 2048;
/// The shift of the first points, and of the places of the map.
const SHIFTS: [f64; 2] = [0.5, 0.137];
/// The normal quantile of a 95 % interval.
const SIDES: f64 = 1.96;
/// The least difference around which others are drawn together, as the logarithm of a ratio.
const LEAST_SCALE: f64 = 0.02;
/// Places this far from the boundary show how sure it is, in ranges of the knobs.
const NEAR: f64 = 0.05;
/// Values of a knob that are put in place of its own, to see whether it changes the best arms.
const OTHERS: usize = 4;

/// The arms that are as good as the best one, a bit for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Best(u32);

impl Best {
    /// Returns whether an arm is one of them.
    pub fn has(self, arm: usize) -> bool {
        self.0 >> arm & 1 == 1
    }

    /// Returns the best arms if the first of two arms exceeds the second by `ahead`.
    fn of(arms: usize, matters: f64, ahead: impl Fn(usize, usize) -> f64) -> Self {
        let behind = |arm: usize| {
            let others = (0..arms).filter(|&other| other != arm);
            others.map(|other| ahead(other, arm)).fold(f64::MIN, f64::max)
        };
        let first = (0..arms).min_by(|a, b| behind(*a).total_cmp(&behind(*b)));
        let first = first.expect("there are arms");
        let as_good = |arm: &usize| *arm == first || ahead(first, *arm) <= matters;
        Self((0..arms).filter(as_good).map(|arm| 1 << arm).sum())
    }
}

/// A point that was run.
#[derive(Clone, Debug, PartialEq)]
pub struct Tried {
    /// The share of the range of each knob.
    pub at: Vec<f64>,
    /// For each arm the logarithm of the metric, on average over common seeds, and negative if
    /// lower values are better; `None` if a run has no result.
    pub gains: Option<Vec<f64>>,
}

/// A question: which arm is best where.
#[derive(Clone, Debug)]
pub struct Question {
    /// The knobs that move; one at least.
    pub knobs: Vec<Knob>,
    /// Number of arms; two at least.
    pub arms: usize,
    /// The logarithm of the least ratio that matters.
    pub matters: f64,
}

impl Question {
    /// Returns the number of points before the first fit.
    pub fn first_points(&self) -> usize {
        4 * (self.knobs.len() + 1)
    }

    /// Returns the best arms of a point.
    pub fn best(&self, gains: &[f64]) -> Best {
        Best::of(self.arms, self.matters, |a, b| gains[a] - gains[b])
    }

    /// Returns the next points to run, as shares of the ranges: some of them, or none if all
    /// points of the map were tried.
    pub fn next(&self, tried: &[Tried]) -> Vec<Vec<f64>> {
        let first = self.first_points();
        if tried.len() >= first
            && let Some(fit) = Fit::of(self, tried)
        {
            return self.near_boundary(tried, &fit);
        }
        // Points without a result are replaced.
        let wanted = if tried.len() < first { first - tried.len() } else { BATCH };
        let all = (0..PLACES).map(|at| self.snapped(&spread(at, self.knobs.len(), SHIFTS[0])));
        let mut next: Vec<Vec<f64>> = vec![];
        for place in all {
            if next.len() < wanted && !next.contains(&place) && !has(tried, &place) {
                next.push(place);
            }
        }
        next
    }

    fn snapped(&self, place: &[f64]) -> Vec<f64> {
        self.knobs.iter().zip(place).map(|(knob, share)| knob.snapped(*share)).collect()
    }

    /// Returns the places of the map: evenly spread, and the corners.
    fn places(&self) -> Vec<Vec<f64>> {
        let knobs = self.knobs.len();
        let inner = (0..PLACES).map(|at| self.snapped(&spread(at, knobs, SHIFTS[1])));
        let corner = |at: usize| (0..knobs).map(|knob| (at >> knob & 1) as f64).collect();
        inner.chain((0..1 << knobs).map(corner)).collect()
    }

    /// Returns a batch of places where it is least clear which arms are the best.
    fn near_boundary(&self, tried: &[Tried], fit: &Fit) -> Vec<Vec<f64>> {
        let places = self.places();
        let mut open: Vec<Open<'_>> = places
            .iter()
            .filter(|place| !has(tried, place))
            .map(|place| Open { place, edges: fit.edges(place) })
            .collect();
        let mut next: Vec<Vec<f64>> = vec![];
        while next.len() < BATCH {
            let doubt = |at: &usize| fit.doubt(&open[*at].edges);
            let chosen = (0..open.len()).max_by(|a, b| doubt(a).total_cmp(&doubt(b)));
            let Some(chosen) = chosen else { break };
            let Open { place, edges } = open.swap_remove(chosen);
            open.retain(|other| other.place != place);
            for other in &mut open {
                fit.told(other, place, &edges);
            }
            next.push(place.clone());
        }
        next
    }

    /// Returns the map after these runs; `None` if they are too few.
    pub fn settled(&self, tried: &[Tried]) -> Option<Settled> {
        let fit = Fit::of(self, tried)?;
        Some(Settled { places: self.places(), question: self.clone(), fit })
    }
}

fn has(tried: &[Tried], place: &[f64]) -> bool {
    tried.iter().any(|point| point.at == place)
}

/// A place that may be run.
struct Open<'a> {
    place: &'a Vec<f64>,
    edges: Vec<Edge>,
}

/// The difference of an arm to the best one of a place.
#[derive(Clone)]
struct Edge {
    pair: usize,
    /// How far the arm is from being as good as the best: below 0 it is.
    slack: f64,
    shared: Shared,
}

/// Functions for the differences of all pairs of arms.
struct Fit {
    arms: usize,
    /// The least difference that matters, drawn together.
    level: f64,
    pairs: Vec<Pair>,
    /// By how much observed errors exceed expected ones, 1 at least.
    honest: f64,
    /// Points for whose best arms the others would predict other ones, and all points.
    missed: [usize; 2],
}

struct Pair {
    arms: [usize; 2],
    process: Process,
}

impl Fit {
    fn of(question: &Question, tried: &[Tried]) -> Option<Self> {
        let known = tried.iter().filter_map(|point| Some((&point.at, point.gains.as_ref()?)));
        let (places, gains): (Vec<Vec<f64>>, Vec<&Vec<f64>>) =
            known.map(|(at, gains)| (at.clone(), gains)).unzip();
        if places.len() < question.knobs.len() + 2 {
            return None;
        }
        let scale = (4.0 * question.matters).max(LEAST_SCALE);
        let drawn = |difference: f64| (difference / scale).asinh();
        let (mut pairs, mut left_out, mut errors) = (vec![], vec![], vec![]);
        for b in 1..question.arms {
            for a in 0..b {
                let values: Vec<f64> =
                    gains.iter().map(|gains| drawn(gains[a] - gains[b])).collect();
                let process = Process::fit(&places, &values);
                let others = process.left_out(&values);
                let apart = values.iter().zip(&others);
                errors.extend(apart.map(|(value, (mean, sd))| ((value - mean) / sd).powi(2)));
                left_out.push(others);
                pairs.push(Pair { arms: [a, b], process });
            }
        }
        let level = drawn(question.matters);
        let missed = (0..places.len()).filter(|&at| {
            let ahead = |a, b| signed(&pairs, a, b, |pair| left_out[pair][at].0);
            Best::of(question.arms, level, ahead) != question.best(gains[at])
        });
        let missed = [missed.count(), places.len()];
        let honest = (errors.iter().sum::<f64>() / errors.len() as f64).sqrt().max(1.0);
        Some(Self { arms: question.arms, level, pairs, honest, missed })
    }

    /// Returns by how much the first arm is ahead of the second, for all pairs in a place.
    fn means(&self, place: &[f64]) -> Vec<f64> {
        self.pairs.iter().map(|pair| pair.process.mean(place)).collect()
    }

    fn best(&self, place: &[f64]) -> Best {
        let means = self.means(place);
        Best::of(self.arms, self.level, |a, b| signed(&self.pairs, a, b, |pair| means[pair]))
    }

    /// Returns the arms other than the best in a place: the pair of each, and its slack.
    fn slacks(&self, place: &[f64]) -> Vec<(usize, f64)> {
        let means = self.means(place);
        let ahead = |a, b| signed(&self.pairs, a, b, |pair| means[pair]);
        let first = Best::of(self.arms, 0.0, ahead).0.trailing_zeros() as usize;
        let own = self.pairs.iter().enumerate();
        own.filter(|(_, pair)| pair.arms.contains(&first))
            .map(|(at, pair)| {
                let other = pair.arms[usize::from(pair.arms[0] == first)];
                (at, ahead(first, other) - self.level)
            })
            .collect()
    }

    fn edges(&self, place: &[f64]) -> Vec<Edge> {
        let edge = |(pair, slack): (usize, f64)| {
            let shared = self.pairs[pair].process.shared(place);
            Edge { pair, slack, shared }
        };
        self.slacks(place).into_iter().map(edge).collect()
    }

    /// Returns how unclear it is which arms are the best.
    fn doubt(&self, edges: &[Edge]) -> f64 {
        let of_edge = |edge: &Edge| {
            let deviation = self.pairs[edge.pair].process.deviation(&edge.shared);
            SIDES * deviation - edge.slack.abs()
        };
        edges.iter().map(of_edge).fold(f64::MIN, f64::max)
    }

    /// Notes in an open place that another one is run.
    fn told(&self, open: &mut Open<'_>, new: &[f64], of_new: &[Edge]) {
        for edge in &mut open.edges {
            let process = &self.pairs[edge.pair].process;
            // Another arm may be the best there; then this point says little.
            if let Some(other) = of_new.iter().find(|other| other.pair == edge.pair) {
                process.told(open.place, &mut edge.shared, new, &other.shared);
            }
        }
    }

    /// Returns how likely other arms are the best in a place.
    fn wrong(&self, place: &[f64]) -> f64 {
        let of_edge = |edge: Edge| {
            let deviation = self.honest * self.pairs[edge.pair].process.deviation(&edge.shared);
            normal_cdf(-edge.slack.abs() / deviation.max(1e-12))
        };
        self.edges(place).into_iter().map(of_edge).fold(0.0, f64::max)
    }

    /// Returns the distance to the boundary, and how sure it is, in ranges of the knobs.
    fn distance(&self, place: &[f64]) -> Option<[f64; 2]> {
        let nearest = self.slacks(place).into_iter().map(|(pair, slack)| {
            let slope: f64 = (0..place.len())
                .map(|knob| {
                    let step = if place[knob] > 0.5 { -0.01 } else { 0.01 };
                    let mut other = place.to_vec();
                    other[knob] += step;
                    let process = &self.pairs[pair].process;
                    ((process.mean(&other) - process.mean(place)) / step).powi(2)
                })
                .sum();
            (pair, slack.abs() / slope.sqrt().max(1e-9), slope.sqrt())
        });
        let (pair, distance, slope) = nearest.min_by(|a, b| a.1.total_cmp(&b.1))?;
        let process = &self.pairs[pair].process;
        let deviation = self.honest * process.deviation(&process.shared(place));
        Some([distance, deviation / slope.max(1e-9)])
    }
}

/// Returns a difference of two arms by that of their pair in its order.
fn signed(pairs: &[Pair], a: usize, b: usize, of_pair: impl Fn(usize) -> f64) -> f64 {
    let is = |arms: [usize; 2]| pairs.iter().position(|pair| pair.arms == arms);
    match (is([a, b]), is([b, a])) {
        (Some(pair), _) => of_pair(pair),
        (None, Some(pair)) => -of_pair(pair),
        (None, None) => 0.0,
    }
}

/// The answer: a map of the best arms.
pub struct Settled {
    question: Question,
    places: Vec<Vec<f64>>,
    fit: Fit,
}

/// A part of the map in which the same arms are the best.
#[derive(Clone, Debug, PartialEq)]
pub struct Region {
    /// The arms.
    pub best: Best,
    /// The share of the map.
    pub share: f64,
    /// Where it is, if a simple rule has a tenth of it and more.
    pub rule: Option<Rule>,
}

/// How far a map may be wrong.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MapError {
    /// The share of the map that is expected to have other best arms than it says.
    pub share: f64,
    /// Points for whose best arms all others would predict other ones.
    pub missed: usize,
    /// Number of points.
    pub points: usize,
    /// The standard deviation of the place of the boundary, in ranges of the knobs, in the middle
    /// of its parts; `None` if there is no boundary.
    pub distance: Option<f64>,
}

impl Settled {
    /// Returns the best arms in a place, by shares of the ranges.
    pub fn best(&self, place: &[f64]) -> Best {
        self.fit.best(place)
    }

    /// Returns the parts of the map, the largest first.
    pub fn regions(&self) -> Vec<Region> {
        let all: Vec<Best> = self.places.iter().map(|place| self.best(place)).collect();
        let mut kinds = all.clone();
        kinds.sort_unstable();
        kinds.dedup();
        let region = |best: Best| {
            let within: Vec<bool> = all.iter().map(|other| *other == best).collect();
            let share = within.iter().filter(|is| **is).count() as f64 / all.len() as f64;
            let rule =
                if share < 1.0 { rule(&self.question.knobs, &self.places, &within) } else { None };
            Region { best, share, rule }
        };
        let mut regions: Vec<Region> = kinds.into_iter().map(region).collect();
        regions.sort_by(|a, b| b.share.total_cmp(&a.share));
        regions
    }

    /// Returns how far the map may be wrong.
    pub fn error(&self) -> MapError {
        let wrong: f64 = self.places.iter().map(|place| self.fit.wrong(place)).sum();
        let near = self.places.iter().filter_map(|place| self.fit.distance(place));
        let mut sure: Vec<f64> =
            near.filter(|[distance, _]| *distance < NEAR).map(|[_, sure]| sure.min(1.0)).collect();
        sure.sort_by(f64::total_cmp);
        let several = self.regions().len() > 1;
        let [missed, points] = self.fit.missed;
        MapError {
            share: wrong / self.places.len() as f64,
            missed,
            points,
            distance: sure.get(sure.len() / 2).copied().filter(|_| several),
        }
    }

    /// Returns for each knob the share of the map in which it decides: another value of it, drawn
    /// from its range, changes the best arms.
    pub fn decides(&self) -> Vec<f64> {
        let knobs = 0..self.question.knobs.len();
        let of_knob = |knob: usize| {
            let (mut changed, mut all) = (0, 0);
            for place in self.places.iter().step_by(2) {
                let own = self.best(place);
                for other in 0..OTHERS {
                    let mut place = place.clone();
                    place[knob] = (other as f64 + 0.5) / OTHERS as f64;
                    changed += usize::from(self.best(&place) != own);
                    all += 1;
                }
            }
            changed as f64 / f64::from(all.max(1))
        };
        knobs.map(of_knob).collect()
    }

    /// Returns up to `most` places at `away` from the boundary, in ranges of the knobs, far from
    /// each other.
    pub fn along(&self, most: usize, away: f64) -> Vec<Vec<f64>> {
        let mut near: Vec<&Vec<f64>> = self
            .places
            .iter()
            .filter(|place| {
                let distance = self.fit.distance(place);
                distance.is_some_and(|[distance, _]| (distance - away).abs() < 0.3 * away)
            })
            .collect();
        let mut chosen: Vec<Vec<f64>> = vec![];
        while chosen.len() < most && !near.is_empty() {
            let far = |place: &Vec<f64>| {
                let apart = |other: &Vec<f64>| {
                    place.iter().zip(other).map(|(a, b)| (a - b).powi(2)).sum::<f64>()
                };
                chosen.iter().map(apart).fold(f64::MAX, f64::min)
            };
            // The first of equals, so that the first place of all is the first chosen.
            let next = (0..near.len()).rev().max_by(|a, b| far(near[*a]).total_cmp(&far(near[*b])));
            chosen.push(near.swap_remove(next.expect("some are left")).clone());
        }
        chosen
    }
}

#[cfg(test)]
mod tests;
