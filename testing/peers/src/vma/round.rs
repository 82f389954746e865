//! Interleaved rounds, their medians, and the tables.

use super::program::{Layout, Load, Program};
use super::{BTree, FirstFit, NextFit, Ours, Ranges, Space};
use std::fmt::Write;
use std::rc::Rc;

/// A map on which programs can be run.
pub struct MapEntry {
    /// The row's name.
    pub name: String,
    time: Box<dyn FnMut(Program, u64) -> f64>,
}

impl MapEntry {
    /// Returns all maps, filled with the VMAs of `load`, ours first.
    pub fn all(load: Load) -> Vec<Self> {
        let layout = &Rc::new(Layout::worn(load.vmas));
        vec![
            Self::of::<Ours>("mmscale", load, layout, |_| 1),
            Self::first_fit::<BTree<FirstFit>>("BTreeMap, first fit", load, layout),
            Self::of::<BTree<NextFit>>("BTreeMap, next fit", load, layout, |_| 1),
            Self::first_fit::<Ranges<FirstFit>>("rangemap, first fit", load, layout),
            Self::of::<Ranges<NextFit>>("rangemap, next fit", load, layout, |_| 1),
        ]
    }
    /// Iterates over the VMAs for a gap, so it gets fewer operations the more VMAs there are.
    fn first_fit<S: Space + 'static>(name: &str, load: Load, layout: &Rc<Layout>) -> Self {
        let part = move |program| if program == Program::Gap { 1 + load.vmas / 500 } else { 1 };
        Self::of::<S>(name, load, layout, part)
    }
    fn of<S: Space + 'static>(
        name: &str,
        load: Load,
        layout: &Rc<Layout>,
        part: impl Fn(Program) -> u64 + 'static,
    ) -> Self {
        let mut space: S = layout.fill();
        let layout = Rc::clone(layout);
        let time = move |program, seed| {
            let operations = (load.operations / part(program)).max(40);
            program.time(&mut space, &layout, operations, seed)
        };
        Self { name: name.to_owned(), time: Box::new(time) }
    }
}

/// A name and, for each load, the median in ns.
pub struct MapRow {
    /// The name of the map.
    pub name: String,
    /// Medians, in the order of the loads.
    pub medians_ns: Vec<f64>,
}

/// Measures all programs under all loads, `rounds` times; returns for each program the rows, ours
/// first.
pub fn run(loads: &[Load], rounds: usize, progress: impl Fn(Load)) -> Vec<(Program, Vec<MapRow>)> {
    let mut tables: Vec<(Program, Vec<MapRow>)> =
        Program::ALL.into_iter().map(|program| (program, Vec::new())).collect();
    for &load in loads {
        progress(load);
        let mut entries = MapEntry::all(load);
        for (program, rows) in &mut tables {
            let mut samples = vec![Vec::new(); entries.len()];
            for round in 0..rounds {
                for turn in 0..entries.len() {
                    let at = (round + turn) % entries.len();
                    samples[at].push((entries[at].time)(*program, round as u64));
                }
            }
            for (at, (entry, samples)) in entries.iter().zip(&mut samples).enumerate() {
                if rows.len() <= at {
                    rows.push(MapRow { name: entry.name.clone(), medians_ns: Vec::new() });
                }
                samples.sort_by(f64::total_cmp);
                rows[at].medians_ns.push(samples[samples.len() / 2]);
            }
        }
    }
    tables
}

/// ns for each operation, then the ratio of each row to the first one, within 72 columns.
pub fn render(title: &str, loads: &[Load], rows: &[MapRow]) -> String {
    let mut text = format!("{title:<28}");
    for load in loads {
        let _ = write!(text, "{:>8}", load.vmas);
    }
    loads.iter().for_each(|_| text.push_str("    x"));
    text.push('\n');
    for row in rows {
        let _ = write!(text, "  {:<26}", row.name);
        row.medians_ns.iter().for_each(|ns| _ = write!(text, "{ns:>8.0}"));
        for (theirs, ours) in row.medians_ns.iter().zip(&rows[0].medians_ns) {
            let times = theirs / ours;
            let digits = usize::from(times < 100.0) + usize::from(times < 10.0);
            let _ = write!(text, "{times:>5.digits$}");
        }
        text.push('\n');
    }
    text
}
