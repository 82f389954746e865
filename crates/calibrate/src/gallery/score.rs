//! Predictions next to published figures, and a verdict for each.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::data::{Compare, Item, Knowledge};
use super::run::Figures;

/// An effect holds if it is within this share of the published one.
pub const EFFECT_WITHIN: f64 = 0.25;
/// A curve holds while each point, relative to the first, is within this share.
pub const CURVE_WITHIN: f64 = 0.15;
/// A value holds if it is within this share.
pub const LEVEL_WITHIN: f64 = 0.25;
/// A share of CPU time holds if it is this near.
pub const SHARE_WITHIN: f64 = 0.10;
/// A lock limits if CPUs wait for it for this share of their time or more.
const LIMITS_FROM: f64 = 0.05;
/// A published change of less than this counts as none.
const NONE_BELOW: f64 = 0.01;

/// The verdict on a prediction.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// The effect has the wrong sign.
    Sign,
    /// The curve leaves the published one.
    Parts,
    /// The value is too far off.
    Off,
    /// The effect has the right sign and another size.
    Size,
    /// It holds.
    Holds,
    /// The published value is an input of the profile.
    Input,
    /// The published result was not known.
    Blind,
}

impl Verdict {
    /// Returns the word for tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sign => "wrong sign",
            Self::Parts => "parts",
            Self::Off => "off",
            Self::Size => "size differs",
            Self::Holds => "holds",
            Self::Input => "input",
            Self::Blind => "blind",
        }
    }
}

/// One comparison.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Row {
    /// The item.
    pub item: String,
    /// The kind of the comparison.
    pub what: What,
    /// The arms and the point.
    pub label: String,
    /// The published value: a ratio for effects and curves; `None` if it is not known.
    pub published: Option<f64>,
    /// The predicted value, in the same form.
    pub predicted: f64,
    /// The least and the greatest prediction on the profile's machine and those with drawn costs.
    pub interval: Option<[f64; 2]>,
    /// The predicted effect, in parts of the published one; for other comparisons predicted by
    /// published.
    pub part: Option<f64>,
    /// Whether an effect has the right sign.
    pub sign: Option<bool>,
    /// The verdict.
    pub verdict: Verdict,
    /// The point at which a curve parts.
    pub parts_at: Option<u64>,
    /// Whether the result was not known when it was first predicted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub predicted_blind: bool,
    /// All points of a curve.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub points: Vec<Point>,
}

/// A point of a curve, in the published unit.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Point {
    /// The parameter.
    pub x: u64,
    /// The published value; `None` if it is not known.
    pub published: Option<f64>,
    /// The predicted value.
    pub predicted: f64,
}

/// The kind of a comparison.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum What {
    /// An arm by the first arm.
    Effect,
    /// The last point by the first one.
    Curve,
    /// A value, in the published unit.
    Level,
    /// The value at the last point of a curve, in the published unit.
    Last,
    /// The share of the CPU time that was not idle in which the lock was waited for that the source
    /// has as the most waited for.
    Limiter,
    /// A share of the CPU time that was not idle.
    Share,
}

impl What {
    /// Returns the word for tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Effect => "effect",
            Self::Curve => "curve",
            Self::Level => "level",
            Self::Last => "last",
            Self::Limiter => "lock",
            Self::Share => "share",
        }
    }
}

/// Returns the comparisons of an item for which it has figures.
pub fn rows(item: &Item, figures: &Figures) -> Vec<Row> {
    let mut rows = Vec::new();
    let scored = Scored { item, figures };
    for arm in 0..item.arm.len() {
        if item.compares(Compare::Effect) && arm > 0 {
            rows.extend(scored.effect(arm));
        }
        if item.compares(Compare::Curve) {
            rows.extend(scored.curve(arm));
            rows.extend(scored.last(arm));
        }
        if item.compares(Compare::Level) {
            rows.extend(scored.levels(arm));
        }
        if item.compares(Compare::Shares) || item.compares(Compare::Limiter) {
            rows.extend(scored.limiter(arm));
        }
        if item.compares(Compare::Shares) {
            rows.extend(scored.shares(arm));
        }
    }
    rows
}

struct Scored<'a> {
    item: &'a Item,
    figures: &'a Figures,
}

impl Scored<'_> {
    fn value(&self, arm: usize, place: usize, machine: usize) -> Option<f64> {
        Some(self.figures.get((arm, place, machine), &self.item.metric)? * self.item.scale)
    }
    fn published(&self, arm: usize, place: usize) -> Option<f64> {
        self.item.arm[arm].published.get(place).copied()
    }
    /// Returns the range of a value over the machines that have it; `None` without drawn ones.
    fn interval(&self, of: impl Fn(usize) -> Option<f64>) -> Option<[f64; 2]> {
        let all: Vec<f64> = (0..=self.item.drawn).filter_map(of).collect();
        let least = all.iter().copied().fold(f64::INFINITY, f64::min);
        let greatest = all.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        (all.len() > 1).then_some([least, greatest])
    }
    /// Returns ` at X` for the point of a place.
    fn at(&self, place: usize) -> String {
        self.item.points()[place].map_or(String::new(), |x| format!(" at {x}"))
    }
    fn row(&self, what: What, label: String, published: Option<f64>, predicted: f64) -> Row {
        Row {
            item: self.item.id.clone(),
            what,
            label,
            published,
            predicted,
            interval: None,
            part: published.map(|published| predicted / published),
            sign: None,
            verdict: Verdict::Blind,
            parts_at: None,
            predicted_blind: self.item.seen == Knowledge::Predicted,
            points: Vec::new(),
        }
    }

    fn effect(&self, arm: usize) -> Option<Row> {
        let place = self.item.effect_place();
        let of = |machine| Some(self.value(arm, place, machine)? / self.value(0, place, machine)?);
        let predicted = of(0)?;
        let published = self.published(arm, place).zip(self.published(0, place));
        let published = published.map(|(after, before)| after / before);
        let arms = &self.item.arm;
        let label = format!("{} / {}{}", arms[arm].name, arms[0].name, self.at(place));
        let row = self.row(What::Effect, label, published, predicted);
        let (sign, part, verdict) = match published {
            None => (None, None, Verdict::Blind),
            Some(published) => judged(published - 1.0, predicted - 1.0),
        };
        Some(Row { interval: self.interval(of), sign, part, verdict, ..row })
    }

    fn curve(&self, arm: usize) -> Option<Row> {
        let points = self.item.points();
        let predicted: Vec<(usize, f64)> = (0..points.len())
            .filter_map(|place| Some((place, self.value(arm, place, 0)? / self.value(arm, 0, 0)?)))
            .collect();
        let &(last, at_last) = predicted.last()?;
        let values = (0..points.len()).filter_map(|place| {
            let (x, predicted) = (points[place]?, self.value(arm, place, 0)?);
            Some(Point { x, published: self.published(arm, place), predicted })
        });
        if self.item.seen == Knowledge::Blind {
            let row = self.row(What::Curve, self.span(arm, last), None, at_last);
            return Some(Row { points: values.collect(), ..row });
        }
        let shape = |place| Some(self.published(arm, place)? / self.published(arm, 0)?);
        let leaves = predicted.iter().find(|&&(place, predicted)| {
            shape(place).is_some_and(|shape| (predicted / shape - 1.0).abs() > CURVE_WITHIN)
        });
        let parts_at = leaves.and_then(|&(place, _)| points[place]);
        let verdict = if leaves.is_some() { Verdict::Parts } else { Verdict::Holds };
        let row = self.row(What::Curve, self.span(arm, last), shape(last), at_last);
        Some(Row { verdict, parts_at, points: values.collect(), ..row })
    }

    /// Returns the label of a curve up to a place.
    fn span(&self, arm: usize, last: usize) -> String {
        let points = self.item.points();
        let x = |place: usize| points[place].unwrap_or_default();
        format!("{}, {} to {}", self.item.arm[arm].name, x(0), x(last))
    }

    /// Returns the value at the first point; at each of an item that was predicted blind.
    fn levels(&self, arm: usize) -> Vec<Row> {
        let places = if self.item.seen == Knowledge::Open { 1 } else { self.item.points().len() };
        let level = |place| {
            let row = self.level(What::Level, arm, place)?;
            let verdict =
                if self.item.arm[arm].level_is_input { Verdict::Input } else { row.verdict };
            Some(Row { verdict, ..row })
        };
        (0..places).filter_map(level).collect()
    }

    /// Returns the value at the last point of a curve.
    fn last(&self, arm: usize) -> Option<Row> {
        let places = self.item.points().len();
        let place = (1..places).rev().find(|&place| self.value(arm, place, 0).is_some())?;
        self.level(What::Last, arm, place)
    }

    fn level(&self, what: What, arm: usize, place: usize) -> Option<Row> {
        let predicted = self.value(arm, place, 0)?;
        let published = self.published(arm, place);
        let label = format!("{}{}", self.item.arm[arm].name, self.at(place));
        let row = self.row(what, label, published, predicted);
        let verdict = row.part.map_or(Verdict::Blind, |part| {
            if (part - 1.0).abs() <= LEVEL_WITHIN { Verdict::Holds } else { Verdict::Off }
        });
        let interval = self.interval(|machine| self.value(arm, place, machine));
        Some(Row { verdict, interval, ..row })
    }

    /// Compares the lock that is waited for most.
    fn limiter(&self, arm: usize) -> Option<Row> {
        let (published, share) = self.item.arm[arm].limiter()?;
        let place = self.item.effect_place();
        let runs = self.figures.0.get(&(arm, place, 0))?;
        let waits =
            runs.iter().filter_map(|(key, share)| Some((key.strip_prefix("wait_share:")?, *share)));
        let most = waits.max_by(|one, other| one.1.total_cmp(&other.1));
        let most = most.filter(|(_, share)| *share >= LIMITS_FROM);
        let predicted = most.map_or("none", |(class, _)| class);
        let own = runs.get(&format!("wait_share:{published}")).copied().unwrap_or(0.0);
        let (name, at) = (&self.item.arm[arm].name, self.at(place));
        let label = format!("{name}{at}: {published} is waited for most, here {predicted}");
        let row = self.row(What::Limiter, label, share, own);
        let verdict = if predicted == published { Verdict::Holds } else { Verdict::Off };
        Some(Row { verdict, ..row })
    }

    fn shares(&self, arm: usize) -> Vec<Row> {
        let place = self.item.effect_place();
        let share = |class: &str, machine| {
            let runs = self.figures.0.get(&(arm, place, machine))?;
            Some(runs.get(&format!("wait_share:{class}")).copied().unwrap_or(0.0))
        };
        let classes: Vec<&str> = match self.item.seen {
            Knowledge::Blind => vec!["zone", "lruvec"],
            _ => self.item.arm[arm].shares.keys().map(String::as_str).collect(),
        };
        let row = |class: &str| {
            let published = self.item.arm[arm].shares.get(class).copied();
            let predicted = share(class, 0)?;
            let label = format!("{}{}: waits for {class}", self.item.arm[arm].name, self.at(place));
            let row = self.row(What::Share, label, published, predicted);
            let verdict = published.map_or(Verdict::Blind, |published| {
                let near = (predicted - published).abs() <= SHARE_WITHIN;
                if near { Verdict::Holds } else { Verdict::Off }
            });
            Some(Row { verdict, interval: self.interval(|machine| share(class, machine)), ..row })
        };
        classes.into_iter().filter_map(row).collect()
    }
}

/// Returns sign, part and verdict of a predicted change, both relative to 0.
fn judged(published: f64, predicted: f64) -> (Option<bool>, Option<f64>, Verdict) {
    if published.abs() < NONE_BELOW {
        let none = predicted.abs() < 2.0 * NONE_BELOW;
        return (Some(none), None, if none { Verdict::Holds } else { Verdict::Size });
    }
    let (sign, part) = (published * predicted > 0.0, predicted / published);
    let verdict = match (sign, (part - 1.0).abs() <= EFFECT_WITHIN) {
        (false, _) => Verdict::Sign,
        (true, true) => Verdict::Holds,
        (true, false) => Verdict::Size,
    };
    (Some(sign), Some(part), verdict)
}

/// A number of comparisons, and of those that hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Those that hold.
    pub held: usize,
    /// All.
    pub all: usize,
}

impl Held {
    fn add(&mut self, holds: bool) {
        self.all += 1;
        self.held += usize::from(holds);
    }
}

impl fmt::Display for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", self.held, self.all)
    }
}

/// Counts of verdicts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Items with at least one comparison.
    pub items: usize,
    /// Arms of which the lock is known that is waited for most.
    pub limiters: Held,
    /// Signs of effects.
    pub signs: Held,
    /// Sizes of effects.
    pub effects: Held,
    /// Curves.
    pub curves: Held,
    /// Points of curves, next to the first.
    pub points: Held,
    /// Values at the last points of curves.
    pub lasts: Held,
    /// Values at first points that are not inputs.
    pub levels: Held,
    /// Shares.
    pub shares: Held,
    /// Published values within the interval of machines with drawn costs.
    pub covered: Held,
}

/// Counts the verdicts on items whose results are known, of those that were predicted blind, or of
/// the others.
pub fn counts(rows: &[Row], predicted_blind: bool) -> Counts {
    let mut counts = Counts::default();
    let mut items: Vec<&str> = Vec::new();
    let scored = |row: &&Row| {
        row.predicted_blind == predicted_blind
            && !matches!(row.verdict, Verdict::Blind | Verdict::Input)
    };
    for row in rows.iter().filter(scored) {
        if !items.contains(&row.item.as_str()) {
            items.push(&row.item);
        }
        let holds = row.verdict == Verdict::Holds;
        match row.what {
            What::Effect => {
                counts.signs.add(row.sign == Some(true));
                counts.effects.add(holds);
            }
            What::Curve => {
                counts.curves.add(holds);
                growths(row).for_each(|holds| counts.points.add(holds));
            }
            What::Level => counts.levels.add(holds),
            What::Last => counts.lasts.add(holds),
            What::Limiter => counts.limiters.add(holds),
            What::Share => counts.shares.add(holds),
        }
        if let (Some([least, greatest]), Some(published)) = (row.interval, row.published) {
            counts.covered.add(least <= published && published <= greatest);
        }
    }
    counts.items = items.len();
    counts
}

/// Returns for each later point of a curve whether its growth from the first one holds.
fn growths(row: &Row) -> impl Iterator<Item = bool> {
    let first = row.points.first().copied();
    row.points.iter().skip(1).filter_map(move |point| {
        let first = first?;
        let published = point.published? / first.published?;
        Some((point.predicted / first.predicted / published - 1.0).abs() <= CURVE_WITHIN)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_effect_holds_within_a_quarter_of_its_size() {
        assert_eq!(judged(0.5, 0.4375), (Some(true), Some(0.875), Verdict::Holds));
        assert_eq!(judged(0.5, 0.3125).2, Verdict::Size);
        assert_eq!(judged(-0.5, -0.2).2, Verdict::Size);
        assert_eq!(judged(0.1, -0.1).2, Verdict::Sign);
        assert_eq!(judged(0.0, 0.005), (Some(true), None, Verdict::Holds));
        assert_eq!(judged(0.0, 0.5).2, Verdict::Size);
    }
}
