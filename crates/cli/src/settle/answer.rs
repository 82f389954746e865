//! The document of a map.

use std::collections::BTreeMap;

use mmscale_document::{
    MapSection, SETTLEMENT_SCHEMA, SettledCosts, SettledError, SettledKnob, SettledLimit,
    SettledPoint, SettledRegion, Settlement,
};
use mmscale_harness::{Best, MapError, Region, Rule, Settled};

use super::{Point, Settle};

/// Cells of a section along each knob.
const CELLS: usize = 24;
/// Where the third and the fourth knob are cut, as shares of their ranges.
const CUTS: [f64; 3] = [1.0 / 6.0, 0.5, 5.0 / 6.0];

impl Settle<'_> {
    /// Returns the document of a map.
    pub(super) fn answer(
        &self,
        settled: &Settled,
        points: &[Point],
        costs: Option<SettledCosts>,
    ) -> Settlement {
        let first = points.iter().find_map(|point| point.tasks.first());
        let plan = &first.expect("a map has points").plan;
        let decides = settled.decides();
        let mut regions = settled.regions();
        let sections = self.sections(settled, points, &decides, &mut regions);
        let knobs = self.question.knobs.iter().zip(&decides).map(|(knob, decides)| SettledKnob {
            name: knob.name.clone(),
            unit: knob.unit.clone(),
            range: knob.range,
            log: knob.log,
            decides: *decides,
        });
        let is_knob = |name: &str| {
            let name = name.strip_prefix("--cost ").unwrap_or(name);
            self.question.knobs.iter().any(|knob| knob.name == name)
        };
        let params = plan.shown_params().into_iter();
        let MapError { share, missed, points: known, distance } = settled.error();
        let metric = plan.study.metrics().iter().find(|metric| metric.name == self.metric);
        Settlement {
            schema: SETTLEMENT_SCHEMA.to_owned(),
            build: plan.origin.build.clone(),
            command: plan.origin.command.clone(),
            study: plan.study.name().to_owned(),
            profile: plan.profile_name.clone(),
            params: params.filter(|(name, _)| !is_knob(name)).collect(),
            seeds: plan.seeds.to_vec(),
            arms: self.names(points, |_| true),
            metric: self.metric.to_owned(),
            unit: metric.map_or("1", |metric| metric.unit).to_owned(),
            better: self.better,
            matters_percent: self.args.matters,
            knobs: knobs.collect(),
            points: points.iter().map(|point| self.point(point, points)).collect(),
            regions: regions.iter().map(|region| self.region(region, points)).collect(),
            error: SettledError { share, missed: missed as u32, points: known as u32, distance },
            sections,
            costs,
        }
    }

    /// Returns the names of arms, in their order.
    fn names(&self, points: &[Point], is: impl Fn(usize) -> bool) -> Vec<String> {
        let tasks = &points.first().expect("a map has points").tasks;
        let seeds = tasks.len() / self.question.arms;
        let arms = tasks.chunks(seeds).map(|own| own[0].arm_name().to_owned());
        arms.enumerate().filter(|(arm, _)| is(*arm)).map(|(_, name)| name).collect()
    }

    pub(super) fn best_names(&self, best: Best, points: &[Point]) -> Vec<String> {
        self.names(points, |arm| best.has(arm))
    }

    fn point(&self, point: &Point, points: &[Point]) -> SettledPoint {
        let gains = point.tried.gains.as_ref();
        let values = gains.map(|gains| gains.iter().map(|gain| (gain * self.sign()).exp()));
        let best = gains.map(|gains| self.best_names(self.question.best(gains), points));
        SettledPoint {
            at: self.knobs.values(&point.tried.at),
            values: values.map_or(vec![], Iterator::collect),
            best: best.unwrap_or_default(),
        }
    }

    fn region(&self, region: &Region, points: &[Point]) -> SettledRegion {
        let limits = |rule: &Rule| {
            let limit = |limit: &mmscale_harness::Limit| SettledLimit {
                knob: self.question.knobs[limit.knob].name.clone(),
                above: limit.above,
                value: limit.value,
            };
            rule.limits.iter().map(limit).collect()
        };
        SettledRegion {
            best: self.best_names(region.best, points),
            share: region.share,
            limits: region.rule.as_ref().map_or(vec![], limits),
            covers: region.rule.as_ref().map(|rule| rule.covers),
        }
    }

    /// Returns sections along the two knobs that decide most, at three values of the third and of
    /// the fourth knob. Best arms that no place of the map has become regions without a share.
    fn sections(
        &self,
        settled: &Settled,
        points: &[Point],
        decides: &[f64],
        regions: &mut Vec<Region>,
    ) -> Vec<MapSection> {
        let mut order: Vec<usize> = (0..decides.len()).collect();
        order.sort_by(|a, b| decides[*b].total_cmp(&decides[*a]));
        let (along, others) = order.split_at(order.len().min(2));
        let cuts = |at: usize| if at < others.len() { &CUTS[..] } else { &CUTS[1..2] };
        let name = |knob: &usize| self.question.knobs[*knob].name.clone();
        let mut centres = vec![];
        for &fourth in cuts(1) {
            for &third in cuts(0) {
                let mut place = vec![0.5; decides.len()];
                for (knob, cut) in others.iter().zip([third, fourth]) {
                    place[*knob] = cut;
                }
                centres.push(place);
            }
        }
        let section = |(own, centre): (usize, &Vec<f64>)| {
            let up = if along.len() > 1 { CELLS } else { 1 };
            let share = |cell: usize| (cell as f64 + 0.5) / CELLS as f64;
            let rows = (0..up).map(|y| {
                let cell = |x: usize| {
                    let mut place = centre.clone();
                    place[along[0]] = share(x);
                    if let Some(knob) = along.get(1) {
                        place[*knob] = share(y);
                    }
                    index(regions, settled.best(&place))
                };
                (0..CELLS).map(cell).collect()
            });
            let rows = rows.collect();
            let far = |place: &[f64], centre: &[f64]| -> f64 {
                others.iter().map(|knob| (place[*knob] - centre[*knob]).powi(2)).sum()
            };
            let nearest = |place: &[f64]| {
                let all = 0..centres.len();
                all.min_by(|a, b| far(place, &centres[*a]).total_cmp(&far(place, &centres[*b])))
            };
            let near = points.iter().enumerate();
            let near = near.filter(|(_, point)| nearest(&point.tried.at) == Some(own));
            let values = self.knobs.values(centre);
            MapSection {
                along: along.iter().map(name).collect(),
                others: others
                    .iter()
                    .map(|knob| (name(knob), values[*knob]))
                    .collect::<BTreeMap<_, _>>(),
                rows,
                points: near.map(|(at, _)| at as u32).collect(),
            }
        };
        centres.iter().enumerate().map(section).collect()
    }
}

fn index(regions: &mut Vec<Region>, best: Best) -> u32 {
    let found = regions.iter().position(|region| region.best == best);
    found.unwrap_or_else(|| {
        regions.push(Region { best, share: 0.0, rule: None });
        regions.len() - 1
    }) as u32
}
