//! Costs of cache-line transfers, from a matrix of core-to-core latencies.
//!
//! `core-to-core-latency --csv` (github.com/nviennot) writes a row and a column for each CPU that
//! it may use, in the order of Linux's CPU numbers. Each cell is a one-way latency in ns, half of a
//! round trip. Only the lower triangle is filled, unless the latency depends on the direction. The
//! diagonal is empty.

use super::{DeriveError, Text};
use mmscale_sim::profile::{Number, Section, Topology};

/// The key of each distance, the nearest first.
const KEYS: [&str; 4] = ["line_smt_ns", "line_cluster_ns", "line_node_ns", "line_remote_ns"];
/// Descriptions of CPU pairs by distance.
const PAIRS: [&str; 4] = [
    "threads of a core",
    "CPUs of a last-level cache",
    "last-level caches of a node",
    "CPUs of two nodes",
];
/// The largest plausible latency: 1 ms.
const MAX_NS: f64 = 1e6;

/// The CPUs of the rows of a matrix.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rows<'a> {
    /// The number in the profile of each row's CPU; `None`: rows are in the order of a profile.
    pub(super) places: Option<&'a [usize]>,
    /// Whether medians that contradict the distances are taken all the same.
    pub(super) force: bool,
}

/// Returns the costs according to the matrix: medians, with ranges from minimum to maximum.
/// Medians that are smaller at a larger distance are an error if the rows' CPUs are only assumed.
pub(super) fn costs(
    file: &Text,
    topology: &Topology,
    of: Rows<'_>,
    notes: &mut Vec<String>,
) -> Result<Section, DeriveError> {
    let wrong = |why: String| DeriveError::Latencies { file: file.name.clone(), why };
    let rows = matrix(&file.text).map_err(wrong)?;
    if rows.len() != topology.cpus {
        let (rows, cpus) = (rows.len(), topology.cpus);
        return Err(wrong(format!(
            "it has {rows} rows, but the machine has {cpus} CPUs; measure all online CPUs, or give \
             the number of measured ones"
        )));
    }
    let mut classes: [Vec<f64>; 4] = Default::default();
    for (row, cells) in rows.iter().enumerate() {
        for (column, cell) in cells.iter().enumerate() {
            if let Some(ns) = cell.filter(|_| row != column) {
                let place = |at: usize| of.places.map_or(at, |places| places[at]);
                classes[distance(topology, place(row), place(column))].push(ns);
            }
        }
    }
    if classes.iter().all(Vec::is_empty) {
        return Err(wrong("it has no latency between two CPUs".to_owned()));
    }
    let empty = |class: &usize| classes[*class].is_empty() && used(topology, *class);
    for class in (0..KEYS.len()).filter(empty) {
        notes
            .push(format!("the CSV has no pair of {}: {} is inherited", PAIRS[class], KEYS[class]));
    }
    let mut costs = Section::new();
    let mut before: Option<(&str, f64)> = None;
    for (key, latencies) in KEYS.into_iter().zip(classes).filter(|(_, of)| !of.is_empty()) {
        let number = number(latencies, &file.name);
        if let Some((nearer, ns)) = before.filter(|(_, ns)| *ns > number.value) {
            let what = format!("{key} ({}) is less than {nearer} ({ns})", number.value);
            if of.places.is_none() && !of.force {
                return Err(wrong(format!(
                    "{what}, so its rows are of other CPUs than in a profile's order; give --lscpu \
                     with the output of `lscpu -J -e`, or --force to take them as they are"
                )));
            }
            notes.push(format!("{what}: the machine is not of the kind that a profile has"));
        }
        before = Some((key, number.value));
        costs.insert(key.to_owned(), number);
    }
    Ok(costs)
}

/// Parses rows of numbers; the matrix must be square.
fn matrix(text: &str) -> Result<Vec<Vec<Option<f64>>>, String> {
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let row = |(at, line): (usize, &&str)| {
        let cells = line.split(',').map(|cell| latency(cell.trim(), at + 1));
        let cells = cells.collect::<Result<Vec<_>, String>>()?;
        if cells.len() != lines.len() {
            return Err(format!(
                "row {} has {} columns, but there are {} rows; the file must contain one matrix \
                 without headings",
                at + 1,
                cells.len(),
                lines.len()
            ));
        }
        Ok(cells)
    };
    lines.iter().enumerate().map(row).collect()
}

fn latency(cell: &str, row: usize) -> Result<Option<f64>, String> {
    if cell.is_empty() || cell.eq_ignore_ascii_case("nan") {
        return Ok(None);
    }
    match cell.parse::<f64>() {
        Ok(ns) if ns > 0.0 && ns <= MAX_NS => Ok(Some(ns)),
        Ok(ns) => {
            Err(format!("{ns} in row {row} is out of range; allowed: above 0, at most {MAX_NS} ns"))
        }
        Err(_) => Err(format!(
            "`{cell}` in row {row} is not a number of ns; the file must contain one matrix without \
             headings"
        )),
    }
}

/// Returns the index in [`KEYS`] of the distance between two CPUs of a profile.
fn distance(topology: &Topology, one: usize, other: usize) -> usize {
    let sizes = [topology.smt, topology.cluster, topology.node_cpus()];
    let shared = sizes.into_iter().position(|size| one / size == other / size);
    shared.unwrap_or(sizes.len())
}

/// Returns whether a machine has CPU pairs of this distance.
fn used(topology: &Topology, class: usize) -> bool {
    match class {
        0 => topology.smt > 1,
        1 => topology.cluster > topology.smt,
        2 => topology.node_cpus() > topology.cluster,
        _ => topology.nodes > 1,
    }
}

fn number(mut latencies: Vec<f64>, file: &str) -> Number {
    latencies.sort_unstable_by(f64::total_cmp);
    let pairs = latencies.len();
    let median = (latencies[(pairs - 1) / 2] + latencies[pairs / 2]) / 2.0;
    let s = if pairs == 1 { "" } else { "s" };
    Number {
        value: (median * 10.0).round() / 10.0,
        range: [(latencies[0] * 10.0).floor() / 10.0, (latencies[pairs - 1] * 10.0).ceil() / 10.0],
        source: format!("measured: core-to-core CSV {file} ({pairs} pair{s})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two nodes with two caches each, of two cores with two threads.
    const MACHINE: Topology = Topology { cpus: 16, smt: 2, cluster: 4, nodes: 2 };

    fn read(text: String, places: Option<&[usize]>) -> (Result<Section, String>, Vec<String>) {
        read_as(text, Rows { places, force: false })
    }

    fn read_as(text: String, rows: Rows<'_>) -> (Result<Section, String>, Vec<String>) {
        let (file, mut notes) = (Text { name: "x.csv".to_owned(), text }, Vec::new());
        let costs = costs(&file, &MACHINE, rows, &mut notes).map_err(|why| why.to_string());
        (costs, notes)
    }

    /// Returns the lower triangle, as the tool writes it, with `ns(row, column)` as the latency.
    fn triangle(ns: impl Fn(usize, usize) -> f64) -> String {
        let cell = |row: usize, column: usize| {
            if row > column { ns(row, column).to_string() } else { String::new() }
        };
        let row =
            |row: usize| (0..16).map(|column| cell(row, column)).collect::<Vec<_>>().join(",");
        (0..16).map(|at| row(at) + "\n").collect()
    }

    /// Returns 10, 20, 40 or 80 ns by distance, slightly more for later rows.
    fn latency_of(one: usize, other: usize) -> f64 {
        [10.0, 20.0, 40.0, 80.0][distance(&MACHINE, one, other)] + one.max(other) as f64 / 100.0
    }

    #[test]
    fn each_distance_has_the_median_and_the_range_of_its_pairs() {
        let (costs, notes) = read(triangle(latency_of), None);
        let costs = costs.unwrap();
        let smt = &costs["line_smt_ns"];
        // Rows 1, 3, .. 15: 10.01 to 10.15 ns.
        assert_eq!((smt.value, smt.range), (10.1, [10.0, 10.2]));
        assert_eq!(smt.source, "measured: core-to-core CSV x.csv (8 pairs)");
        let pairs = ["(8 pairs)", "(16 pairs)", "(32 pairs)", "(64 pairs)"];
        for ((key, pairs), ns) in KEYS.into_iter().zip(pairs).zip([10.0, 20.0, 40.0, 80.0]) {
            assert!(costs[key].source.ends_with(pairs) && costs[key].value >= ns, "{key}");
            assert!(costs[key].range[0] >= ns && costs[key].range[1] <= ns + 0.2, "{key}");
        }
        assert_eq!(notes, [""; 0]);
    }

    #[test]
    fn rows_are_of_the_cpus_that_lscpu_says() {
        // Linux's numbers: the first threads of all cores, then the second threads.
        let places: Vec<usize> = (0..16).map(|cpu| cpu % 8 * 2 + cpu / 8).collect();
        let text = triangle(|row, column| {
            [10.0, 20.0, 40.0, 80.0][distance(&MACHINE, places[row], places[column])]
        });
        let (costs, notes) = read(text.clone(), Some(&places));
        for (key, ns) in KEYS.into_iter().zip([10.0, 20.0, 40.0, 80.0]) {
            assert_eq!((costs.as_ref().unwrap()[key].range, notes.len()), ([ns, ns], 0), "{key}");
        }
        // Without lscpu, threads and caches are confused, which the order of the medians reveals.
        let why = read(text.clone(), None).0.unwrap_err();
        assert!(why.contains("is less than line_") && why.contains("--lscpu"), "{why}");
        let (costs, notes) = read_as(text, Rows { places: None, force: true });
        assert_eq!(costs.unwrap()["line_smt_ns"].value, 20.0);
        assert!(notes.iter().any(|note| note.contains("is less than")), "{notes:?}");
    }

    #[test]
    fn a_full_matrix_counts_both_ways_and_gaps_are_told() {
        let full = |at: usize| {
            let cell = |other: usize| match distance(&MACHINE, at, other) {
                0 => "nan".to_owned(),
                _ => "50".to_owned(),
            };
            (0..16).map(cell).collect::<Vec<_>>().join(", ") + "\n"
        };
        let (costs, notes) = read((0..16).map(full).collect(), None);
        assert!(costs.unwrap()["line_remote_ns"].source.contains("(128 pairs)"));
        assert_eq!(notes, ["the CSV has no pair of threads of a core: line_smt_ns is inherited"]);
    }

    #[test]
    fn what_is_no_such_matrix_is_refused() {
        let refusal = |text: &str| read(text.to_owned(), None).0.unwrap_err();
        assert!(refusal(",\n5,\n").contains("it has 2 rows, but the machine has 16 CPUs"));
        assert!(refusal(",\n5,6,7\n").contains("row 2 has 3 columns, but there are 2 rows"));
        assert!(refusal("cpu0,cpu1\n5,6\n").contains("`cpu0` in row 1 is not a number"));
        assert!(refusal(",\n-5,\n").contains("-5 in row 2 is out of range"));
        let empty = refusal(&triangle(|_, _| f64::NAN));
        assert!(empty.contains("no latency between two CPUs"), "{empty}");
        assert!(refusal("").contains("0 rows"));
    }
}
