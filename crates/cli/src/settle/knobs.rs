//! The knobs of a call: what they are of, and their ranges.

use mmscale_harness::param::Kind;
use mmscale_harness::{Knob, MAX_CPUS, Merged, ParamSpec, Unit};
use serde_json::Value;

use crate::failure::Failure;
use crate::sweep::{Spec, call};

/// The most knobs: each doubles the corners of the map.
const MOST: usize = 6;
/// The ratio of the ends of a range from which equal steps are equal ratios.
const WIDE: f64 = 8.0;
/// The length of a range of a cost from which whole numbers are fine enough.
const LONG: f64 = 100.0;

/// The part of a run that a knob moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Cpus,
    Param,
    Cost,
}

/// The knobs of a call.
pub(super) struct Knobs {
    pub(super) all: Vec<Knob>,
    parts: Vec<Part>,
}

impl Knobs {
    /// Reads the knobs of a call. `fixed` has what the call sets besides.
    pub(super) fn read(
        texts: &[String],
        params: &[ParamSpec],
        profile: &Merged,
        fixed: &Spec,
    ) -> Result<Self, Failure> {
        if texts.len() > MOST {
            let what = format!("{} knobs are too many: a map has one to {MOST}", texts.len());
            return Err(call(what));
        }
        let mut knobs = Self { all: vec![], parts: vec![] };
        for text in texts {
            let (knob, part) = of_text(text, params, profile)?;
            let name = &knob.name;
            if knobs.all.iter().any(|other| other.name == *name) {
                return Err(call(format!("knob `{name}` is named twice; name it once")));
            }
            let is_fixed = match part {
                Part::Cpus => fixed.cpus.is_some() || fixed.set.contains_key("cpus"),
                Part::Param => fixed.set.contains_key(name),
                Part::Cost => fixed.cost.contains_key(name),
            };
            if is_fixed {
                return Err(call(format!(
                    "`{name}` is a knob and has a value too; leave one of them out"
                )));
            }
            knobs.all.push(knob);
            knobs.parts.push(part);
        }
        Ok(knobs)
    }

    /// Returns whether the number of CPUs moves.
    pub(super) fn move_cpus(&self) -> bool {
        self.parts.contains(&Part::Cpus)
    }

    /// Returns the names of the knobs that are costs.
    pub(super) fn costs(&self) -> impl Iterator<Item = &str> {
        let own = self.all.iter().zip(&self.parts);
        own.filter(|(_, part)| **part == Part::Cost).map(|(knob, _)| knob.name.as_str())
    }

    /// Returns the values of all knobs at shares of their ranges.
    pub(super) fn values(&self, at: &[f64]) -> Vec<f64> {
        self.all.iter().zip(at).map(|(knob, share)| knob.value(*share)).collect()
    }

    /// Returns the spec with the knobs at these shares of their ranges.
    pub(super) fn at(&self, fixed: &Spec, at: &[f64]) -> Spec {
        let mut spec = fixed.clone();
        for ((knob, part), value) in self.all.iter().zip(&self.parts).zip(self.values(at)) {
            let value = if knob.whole { Value::from(value as u64) } else { Value::from(value) };
            match part {
                Part::Cpus => spec.cpus = Some(value),
                Part::Param => _ = spec.set.insert(knob.name.clone(), value),
                Part::Cost => _ = spec.cost.insert(knob.name.clone(), value),
            }
        }
        spec
    }
}

/// Reads `NAME=LOW..HIGH`, with `:log` or `:linear` after it or not.
fn of_text(text: &str, params: &[ParamSpec], profile: &Merged) -> Result<(Knob, Part), Failure> {
    let wrong = |what: &str| call(format!("--knob {text}: {what}"));
    let form = "give a name and a range, as in --knob cpus=8..128";
    let (name, range) = text.split_once('=').ok_or_else(|| wrong(form))?;
    let (range, scale) = match range.rsplit_once(':') {
        Some((range, scale)) => (range, Some(scale)),
        None => (range, None),
    };
    let (low, high) = range.split_once("..").ok_or_else(|| wrong(form))?;
    let number = |unit: Unit, text: &str| {
        unit.parse_real(text).map_err(|why| wrong(&format!("cannot read `{text}`: {why}")))
    };
    let kind = params.iter().find(|spec| spec.name == name).map(|spec| &spec.kind);
    let cost = profile.file.costs().find(|(_, key, _)| *key == name).map(|(.., number)| number);
    let (unit, part, whole, allowed) = match (name, kind, cost) {
        ("cpus", ..) => (Unit::One, Part::Cpus, true, [1.0, MAX_CPUS as f64]),
        (_, Some(&Kind::Count { unit, range, .. }), _) => {
            (unit, Part::Param, true, range.map(|end| end as f64))
        }
        (_, Some(&Kind::Real { unit, range, .. }), _) => (unit, Part::Param, false, range),
        (_, Some(_), _) => {
            let what = format!(
                "`{name}` is no number, and has no range: make a map for each of its values, with \
                 --set {name}=VALUE"
            );
            return Err(wrong(&what));
        }
        (_, None, Some(cost)) => {
            let unit = if name.ends_with("_ns") { Unit::Ns } else { Unit::One };
            (unit, Part::Cost, false, cost.range)
        }
        (_, None, None) => {
            let names = params.iter().map(|spec| &*spec.name).chain(["cpus"]);
            let costs = profile.file.costs().map(|(_, key, _)| key);
            let all: Vec<&str> = names.chain(costs).collect();
            let near = mmscale_harness::nearest(name, all.iter().copied());
            let near = near.map_or(String::new(), |near| format!("; did you mean `{near}`?"));
            return Err(wrong(&format!(
                "there is no parameter or cost named `{name}`{near} (mmscale list STUDY and \
                 mmscale profile show NAME have all)"
            )));
        }
    };
    let ends = [number(unit, low)?, number(unit, high)?];
    if ends[0] >= ends[1] {
        return Err(wrong("the range is empty: LOW is below HIGH"));
    }
    if ends[0] < allowed[0] || ends[1] > allowed[1] {
        let (least, most) = (allowed[0], allowed[1]);
        let unit = unit.suffix();
        return Err(wrong(&format!("allowed is {least}..{most}{unit}")));
    }
    if whole && ends.iter().any(|end| end.fract() != 0.0) {
        return Err(wrong("the ends of the range are whole numbers"));
    }
    let log = match scale {
        None => ends[0] > 0.0 && ends[1] >= WIDE * ends[0],
        Some("linear") => false,
        Some("log") if ends[0] > 0.0 => true,
        Some("log") => return Err(wrong("a range that begins at 0 is `:linear`")),
        Some(_) => return Err(wrong("the scale is `:log` or `:linear`")),
    };
    let whole_cost = part == Part::Cost
        && ends[1] - ends[0] >= LONG
        && ends.iter().all(|end| end.fract() == 0.0);
    let whole = whole || whole_cost;
    let unit = unit.name().to_owned();
    Ok((Knob { name: name.to_owned(), unit, range: ends, log, whole }, part))
}
