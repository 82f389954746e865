//! A map of the best arms as text.

use mmscale_document::{Better, CostPlace, SettledKnob, SettledRegion, Settlement, machine_name};

use super::{joined, wrap};
use crate::number::{percent, scaled};

/// Regions below this share of the map are not shown.
const SHOWN: f64 = 0.005;

/// Formats a map, with lines of at most [`super::WIDTH`] columns.
pub fn settlement_text(map: &Settlement) -> String {
    let better = if map.better == Better::Higher { "highest" } else { "lowest" };
    let title = format!(
        "{}: where which of {} has the {better} {}? {}, number of seeds: {}",
        map.study,
        map.arms.join(", "),
        map.metric,
        machine_name(&map.profile, &map.params),
        map.seeds.len()
    );
    let mut lines = wrap(&title, "", "  ");
    let knobs: Vec<String> = map.knobs.iter().map(range).collect();
    let what = format!(
        "{} points over {}; less than {} does not matter",
        map.points.len(),
        knobs.join(", "),
        percent(map.matters_percent)
    );
    lines.extend(wrap(&what, "", "  "));
    for region in map.regions.iter().filter(|region| region.share >= SHOWN) {
        lines.extend(wrap(&of_region(map, region), "", "    "));
    }
    if map.regions.len() > 1 {
        lines.extend(wrap(&decides(map), "", "  "));
    }
    lines.extend(wrap(&error(map), "", "  "));
    if let Some(costs) = &map.costs {
        let (same, all) =
            costs.places.iter().fold((0, 0), |(same, all), CostPlace { same: n, .. }| {
                (same + n, all + costs.machines)
            });
        let text = if all == 0 {
            "With other costs: not known, there is no boundary to be near.".to_owned()
        } else {
            format!(
                "With all costs drawn from their ranges, the best arms are the same on {same} of \
                 {all} machines, at {} places {} of the ranges from the boundary.",
                costs.places.len(),
                percent(100.0 * costs.away)
            )
        };
        lines.extend(wrap(&text, "", "  "));
    }
    joined(lines)
}

/// Names a region by its arms.
pub(crate) fn name_of(map: &Settlement, best: &[String]) -> String {
    match best {
        all if all.len() == map.arms.len() => "no difference".to_owned(),
        [one] => format!("{one} alone"),
        some => some.join(" and "),
    }
}

/// Formats a value of a knob.
pub(crate) fn value_of(map: &Settlement, knob: &str, value: f64) -> String {
    let unit = map.knobs.iter().find(|own| own.name == knob).map_or("1", |own| &own.unit);
    if unit == "ns" || unit == "bytes" {
        return scaled(value, unit);
    }
    let decimals = if value >= 100.0 { 0 } else { 1 + usize::from(value < 10.0) };
    let digits = format!("{value:.decimals$}");
    let digits = if digits.contains('.') {
        digits.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        digits
    };
    if unit == "1" { digits } else { format!("{digits} {unit}") }
}

fn range(knob: &SettledKnob) -> String {
    let end = |value| match knob.unit.as_str() {
        "ns" | "bytes" => scaled(value, &knob.unit),
        _ => format!("{value}"),
    };
    format!("{} {}..{}", knob.name, end(knob.range[0]), end(knob.range[1]))
}

fn of_region(map: &Settlement, region: &SettledRegion) -> String {
    let name = name_of(map, &region.best);
    let share = percent(100.0 * region.share);
    if region.share >= 1.0 {
        return format!("{name}: everywhere");
    }
    let limits: Vec<String> = region
        .limits
        .iter()
        .map(|limit| {
            let side = if limit.above { "above" } else { "below" };
            format!("{} is {side} {}", limit.knob, value_of(map, &limit.knob, limit.value))
        })
        .collect();
    match region.covers {
        Some(covers) => format!(
            "{name}: {share} of the map; {} of it is where {}",
            percent(100.0 * covers),
            limits.join(" and ")
        ),
        None => format!("{name}: {share} of the map, in no simple part"),
    }
}

fn decides(map: &Settlement) -> String {
    let mut knobs: Vec<&SettledKnob> = map.knobs.iter().collect();
    knobs.sort_by(|a, b| b.decides.total_cmp(&a.decides));
    let each: Vec<String> = knobs
        .iter()
        .map(|knob| format!("{} in {}", knob.name, percent(100.0 * knob.decides)))
        .collect();
    format!("Another value changes the best arms: {} of the map.", each.join(", "))
}

fn error(map: &Settlement) -> String {
    let error = &map.error;
    let place = error.distance.map_or(String::new(), |distance| {
        let within = percent(100.0 * distance);
        format!("; the boundary is known within {within} of the ranges (standard deviation)")
    });
    format!(
        "Error: {} of the map is wrong; of {} points, the others predict {} wrong{place}.",
        percent(100.0 * error.share),
        error.points,
        error.missed
    )
}
