//! The parts of an operation that depend on the number of CPUs: recordings of several sizes of one
//! program, and a line through them for each place in the code, a + b N.
//!
//! A place is a function with its caller. Its values are the instructions an operation before its
//! events, and its accesses to lines that CPUs share: scans of per-CPU data and loops over called
//! CPUs grow in both. Places that grow, on a line, are part of the fitted recording, which is that
//! of the largest size; a replay repeats and leaves out their accesses, and scales their
//! instructions. A place that grows otherwise, shrinks, or takes locks more often is named and left
//! as it was recorded.

use crate::recording::{Growing, Growth, LineId, Operation, Recording, Share, Site, SiteId, What};
use std::collections::{BTreeMap, BTreeSet};
use thiserror::Error;

/// The largest error of a place that grows on a line: a share of the value, and one of its largest
/// value.
const STRAIGHT: [f64; 2] = [0.15, 0.03];
/// The smallest growth from the smallest to the largest recording, as a share of the latter.
const GROWS: f64 = 0.25;
/// The smallest growth that counts: instructions, or accesses, an operation.
const LEAST: [f64; 2] = [8.0, 0.7];

/// A place, for people.
#[derive(Clone, PartialEq, Debug)]
pub struct Row {
    /// The function, and its caller.
    pub function: String,
    /// See `function`.
    pub caller: String,
    /// Instructions an operation on each of the sizes.
    pub instructions: Vec<f64>,
    /// Accesses an operation on each of the sizes.
    pub accesses: Vec<f64>,
    /// a and b of the instructions.
    pub line: [f64; 2],
}

/// The result of a fit.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Fitted {
    /// The sizes.
    pub sizes: Vec<u32>,
    /// Instructions an operation on each of the sizes, and a and b of them.
    pub instructions: Vec<f64>,
    /// See `instructions`.
    pub line: [f64; 2],
    /// Places that grow; those that grow most come first.
    pub rows: Vec<Row>,
    /// Places that change and are left as they are, each with the reason.
    pub left: Vec<(Row, &'static str)>,
}

/// Why recordings cannot be fitted.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum FitError {
    /// There are too few.
    #[error("recordings of two numbers of CPUs are needed at least: record with another --cpus")]
    Sizes,
    /// Two of them have the same number of CPUs.
    #[error("two recordings are of {0} CPUs: give one of each number")]
    Twice(usize),
    /// They are of different programs or kernels.
    #[error("the recordings differ in their {0}: record one script on one kernel")]
    Differ(&'static str),
    /// One is a fitted recording.
    #[error("a recording of {0} CPUs is fitted already: give recordings as they were made")]
    Again(usize),
    /// Nothing was counted.
    #[error("the script counts no operation: record one whose loop has a `count`")]
    Nothing,
}

/// Values an operation: instructions, accesses, acquisitions.
type Values = [f64; 3];

/// A place by its names, so that it is the same in other recordings.
type Name = (String, String);

/// Fits recordings of one program on one kernel, of different numbers of CPUs.
///
/// # Errors
/// They do not belong together.
pub fn fit(recordings: &[Recording]) -> Result<(Recording, Fitted), FitError> {
    let mut all: Vec<&Recording> = recordings.iter().collect();
    all.sort_by_key(|recording| recording.cpus.len());
    belong_together(&all)?;
    let values: Vec<BTreeMap<Name, Values>> = all.iter().map(|of| values_of(of)).collect();
    let totals: Vec<f64> = values.iter().map(|of| of.values().map(|of| of[0]).sum()).collect();
    let sizes: Vec<u32> = all.iter().map(|recording| recording.cpus.len() as u32).collect();
    let mut fitted = Fitted {
        line: line_through(&sizes, &totals),
        sizes: sizes.clone(),
        instructions: totals.clone(),
        ..Fitted::default()
    };
    let names: BTreeSet<&Name> = values.iter().flat_map(BTreeMap::keys).collect();
    let mut growing: BTreeMap<&Name, [f64; 2]> = BTreeMap::new();
    for name in names {
        let of = |which: usize| -> Vec<f64> {
            values.iter().map(|place| place.get(name).map_or(0.0, |of| of[which])).collect()
        };
        let (instructions, accesses) = (of(0), of(1));
        let line = line_through(&sizes, &instructions);
        let (caller, function) = name.clone();
        let row = Row { function, caller, instructions, accesses, line };
        let found =
            [trend(&sizes, &row.instructions, LEAST[0]), trend(&sizes, &row.accesses, LEAST[1])];
        let locks = trend(&sizes, &of(2), LEAST[1]);
        match found {
            _ if locks != Trend::None => {
                fitted.left.push((row, "it takes locks more or less often"))
            }
            [Trend::None, Trend::None] => {}
            [Trend::Grows(_), Trend::Grows(_) | Trend::None] | [Trend::None, Trend::Grows(_)] => {
                growing.insert(name, found.map(Trend::share));
                fitted.rows.push(row);
            }
            _ => fitted.left.push((row, "it does not grow on a line")),
        }
    }
    let growth = |row: &Row| row.instructions[sizes.len() - 1] - row.instructions[0];
    fitted.rows.sort_by(|a, b| growth(b).total_cmp(&growth(a)));
    fitted.left.sort_by(|(a, _), (b, _)| growth(b).abs().total_cmp(&growth(a).abs()));
    let largest = all[all.len() - 1];
    let mut made = largest.clone();
    let site_of = |site: &Site| {
        let name = (largest.function(site.caller), largest.function(site.function));
        growing.iter().find(|(of, _)| (of.0.as_str(), of.1.as_str()) == name)
    };
    let places = largest.sites.iter().enumerate().filter_map(|(at, site)| {
        let [instructions, accesses] = *site_of(site)?.1;
        Some(Growing { site: SiteId(at as u32), instructions, accesses })
    });
    let places: Vec<Growing> = places.collect();
    let each = lines_of_each(largest, &places);
    let error = predicted(&sizes, &totals);
    made.growth = Some(Growth { sizes, error, places, each });
    Ok((made, fitted))
}

fn belong_together(all: &[&Recording]) -> Result<(), FitError> {
    let (Some(first), true) = (all.first(), all.len() > 1) else { return Err(FitError::Sizes) };
    if let Some(two) = all.windows(2).find(|two| two[0].cpus.len() == two[1].cpus.len()) {
        return Err(FitError::Twice(two[0].cpus.len()));
    }
    if let Some(fitted) = all.iter().find(|of| of.growth.is_some()) {
        return Err(FitError::Again(fitted.cpus.len()));
    }
    let differ = |what: &dyn Fn(&Recording) -> String| all.iter().any(|of| what(of) != what(first));
    if differ(&|of| of.origin.text.clone()) || differ(&|of| of.origin.set.concat()) {
        return Err(FitError::Differ("scripts"));
    }
    if differ(&|of| of.origin.release.clone()) || differ(&|of| of.origin.version.clone()) {
        return Err(FitError::Differ("kernels"));
    }
    if differ(&|of| of.origin.parameters.clone()) {
        return Err(FitError::Differ("parameters of the kernel"));
    }
    match all.iter().any(|of| of.operations().all(|operation| operation.count == 0)) {
        true => Err(FitError::Nothing),
        false => Ok(()),
    }
}

/// Returns the values of each place, an operation. The rest after the last event is a place too.
fn values_of(recording: &Recording) -> BTreeMap<Name, Values> {
    let mut by_site = vec![[0_u64; 3]; recording.sites.len()];
    let (mut count, mut rest) = (0, 0);
    for Operation { count: ops, instructions, events, .. } in recording.operations() {
        count += ops;
        rest += instructions;
        for event in events {
            let values = &mut by_site[event.site.index()];
            values[0] += u64::from(event.after);
            values[1] += u64::from(event.what.is_access());
            values[2] += u64::from(matches!(event.what, What::Acquire | What::AcquireShared));
            rest = rest.saturating_sub(event.after.into());
        }
    }
    let per_op = |number: u64| number as f64 / count.max(1) as f64;
    let mut values: BTreeMap<Name, Values> = BTreeMap::new();
    for (site, sums) in recording.sites.iter().zip(by_site) {
        let name = [site.caller, site.function].map(|id| recording.function(id).to_owned());
        let of = values.entry(name.into()).or_default();
        of.iter_mut().zip(sums).for_each(|(of, sum)| *of += per_op(sum));
    }
    let end = values.entry(("(end)".to_owned(), "(end)".to_owned())).or_default();
    end[0] += per_op(rest);
    values
}

/// How a value depends on the number of CPUs.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Trend {
    /// By less than counts.
    None,
    /// By such a share of its largest value with each CPU.
    Grows(f64),
    /// It shrinks, or bends.
    Otherwise,
}

impl Trend {
    fn share(self) -> f64 {
        match self {
            Self::Grows(share) => share,
            Self::None | Self::Otherwise => 0.0,
        }
    }
}

fn trend(sizes: &[u32], values: &[f64], least: f64) -> Trend {
    let (first, last) = (values[0], values[values.len() - 1]);
    let largest = values.iter().copied().fold(0.0, f64::max);
    let smallest = values.iter().copied().fold(f64::INFINITY, f64::min);
    if largest - smallest < least.max(GROWS * largest) {
        return Trend::None;
    }
    let [a, b] = line_through(sizes, values);
    let at = |size: u32| a + b * f64::from(size);
    let is_straight = sizes.iter().zip(values).all(|(size, value)| {
        (at(*size) - value).abs() <= STRAIGHT[0] * value + STRAIGHT[1] * largest
    });
    let end = at(sizes[sizes.len() - 1]);
    match is_straight && last > first && end > 0.0 {
        true => Trend::Grows((b / end).clamp(0.0, 1.0)),
        false => Trend::Otherwise,
    }
}

/// Returns a and b of the line with the smallest squares.
fn line_through(sizes: &[u32], values: &[f64]) -> [f64; 2] {
    let n = sizes.len() as f64;
    let mean_size = sizes.iter().copied().map(f64::from).sum::<f64>() / n;
    let mean = values.iter().sum::<f64>() / n;
    let (mut squares, mut products) = (0.0, 0.0);
    for (size, value) in sizes.iter().zip(values) {
        let apart = f64::from(*size) - mean_size;
        squares += apart * apart;
        products += apart * (value - mean);
    }
    let b = products / squares;
    [mean - b * mean_size, b]
}

/// Returns the error of the largest value when it is predicted from the others.
fn predicted(sizes: &[u32], values: &[f64]) -> Option<f64> {
    let before = sizes.len() - 1;
    if before < 2 {
        return None;
    }
    let [a, b] = line_through(&sizes[..before], &values[..before]);
    Some(((a + b * f64::from(sizes[before])) / values[before] - 1.0).abs())
}

/// Returns the lines that belong to each CPU: those that many share, of which a growing place uses
/// at least as many in an operation as half of the CPUs.
fn lines_of_each(recording: &Recording, places: &[Growing]) -> Vec<LineId> {
    let sites: BTreeSet<SiteId> = places.iter().map(|of| of.site).collect();
    let half = recording.cpus.len() / 2;
    let mut each: BTreeSet<LineId> = BTreeSet::new();
    for operation in recording.operations() {
        let mut used: BTreeMap<SiteId, BTreeSet<LineId>> = BTreeMap::new();
        for event in &operation.events {
            if event.what.is_access() && sites.contains(&event.site) {
                used.entry(event.site).or_default().insert(LineId(event.target));
            }
        }
        for lines in used.values() {
            let is_many = |line: &&LineId| {
                matches!(recording.lines[line.index()].share, Share::Node | Share::All)
            };
            let many: Vec<LineId> = lines.iter().filter(is_many).copied().collect();
            if many.len() >= half.max(2) {
                each.extend(many);
            }
        }
    }
    each.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::{Event, FunctionId, Line, Origin};

    /// Returns a recording whose operation has a scan of all CPUs, `each` instructions and an
    /// access of each, and other work.
    fn scan(cpus: usize, each: impl Fn(usize) -> u32) -> Recording {
        let event = |after, target, site| Event {
            after,
            what: What::Read,
            offset: 0,
            target,
            site: SiteId(site),
        };
        let mut events = vec![event(500, 0, 1)];
        events.extend((0..cpus).map(|cpu| event(each(cpu), cpu as u32, 0)));
        let instructions = 1000 + events.iter().map(|event| u64::from(event.after)).sum::<u64>();
        let operation = Operation { count: 2, instructions, events, ..Operation::default() };
        let line =
            Line { address: 0, object: String::new(), share: Share::All, users: 9, writers: 9 };
        Recording {
            origin: Origin { node_of_cpu: vec![0; cpus], ..Origin::default() },
            functions: ["scan", "work", "call"].map(str::to_owned).to_vec(),
            sites: [0, 1]
                .map(|id| Site { function: FunctionId(id), caller: FunctionId(2) })
                .to_vec(),
            lines: vec![line; cpus],
            cpus: vec![vec![operation]; cpus],
            ..Recording::default()
        }
    }

    #[test]
    fn a_scan_of_all_cpus_grows_and_other_work_does_not() {
        let (made, fitted) = fit(&[16, 4, 8].map(|cpus| scan(cpus, |_| 30))).unwrap();
        assert_eq!((fitted.sizes.as_slice(), fitted.rows.len()), (&[4, 8, 16][..], 1));
        assert_eq!(fitted.rows[0].function, "scan");
        assert_eq!(fitted.rows[0].instructions, [60.0, 120.0, 240.0]);
        assert_eq!(fitted.line.map(f64::round), [750.0, 15.0]);
        let growth = made.growth.as_ref().unwrap();
        assert!(growth.error.unwrap() < 1e-9, "{growth:?}");
        assert_eq!((growth.places.len(), growth.each.len(), made.cpus.len()), (1, 16, 16));
        let close = |of: [f64; 2], to: f64| of.iter().all(|value| (value - to).abs() < 1e-9);
        assert!(close(growth.factors(0, 16), 1.0) && close(growth.factors(0, 64), 4.0));
        assert!(close(growth.factors(0, 1), 1.0 / 16.0));
        assert!(growth.is_of(&made));
    }

    #[test]
    fn what_bends_or_shrinks_is_named_and_left() {
        let square = |cpus: usize| scan(cpus, move |_| (cpus * cpus) as u32);
        let (made, fitted) = fit(&[square(4), square(8), square(32)]).unwrap();
        assert_eq!((fitted.rows.len(), fitted.left.len()), (0, 1));
        assert_eq!(made.growth.unwrap().places, []);
        let shrinks = |cpus: usize| scan(cpus, move |_| (4096 / cpus / cpus) as u32);
        let (_, fitted) = fit(&[shrinks(4), shrinks(8)]).unwrap();
        assert_eq!((fitted.rows.len(), fitted.left.len()), (0, 1));
    }

    #[test]
    fn recordings_that_do_not_belong_together_are_refused() {
        let of = |cpus| scan(cpus, |_| 30);
        assert_eq!(fit(&[of(4)]).unwrap_err(), FitError::Sizes);
        assert_eq!(fit(&[of(4), of(4)]).unwrap_err(), FitError::Twice(4));
        let mut other = of(8);
        other.origin.set = vec!["bytes=8MiB".to_owned()];
        assert_eq!(fit(&[of(4), other]).unwrap_err(), FitError::Differ("scripts"));
        let (again, _) = fit(&[of(4), of(8)]).unwrap();
        assert_eq!(fit(&[again, of(4)]).unwrap_err(), FitError::Again(8));
    }
}
