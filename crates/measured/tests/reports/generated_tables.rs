//! Generated tables before and after a change whose figures are known.
//!
//! Strategy: benchmarks get figures for two or three sides, or for two sides at several numbers of
//! tasks. They are printed in one of eleven forms (aligned, with tabs, with single spaces,
//! Markdown, with borders, CSV, the kernel test robot's, mmtests', with sides as rows, a list of
//! changes, will-it-scale's), with numbers in one of seven forms, in any order of sides, between
//! prose, perhaps quoted. Some tables get a fault: a change that contradicts its figures, names
//! that do not say which column is a side, a missing figure.
//! Invariants: every figure that is found is that of its benchmark, side and number of tasks;
//! tables without a fault are found whole; a row with a fault is not found.

use std::collections::BTreeMap;

use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::comparisons::found;

const TABLES: u64 = 3000;

type Random = Xoshiro256PlusPlus;

fn below(rng: &mut Random, n: usize) -> usize {
    (rng.next_u64() % n as u64) as usize
}

fn pick<'a>(rng: &mut Random, of: &[&'a str]) -> &'a str {
    of[below(rng, of.len())]
}

/// Names of sides, the one to compare with first.
const SIDES: [&[&str]; 10] = [
    &["before", "after"],
    &["base", "patched"],
    &["vanilla", "patched"],
    &["unpatched", "patched"],
    &["baseline", "series"],
    &["v6.12", "v6.12-patched"],
    &["mainline", "patch"],
    &["old", "new"],
    &["base", "patched", "v2"],
    &["6.1.0", "6.12.0"],
];
const BENCHMARKS: [&str; 10] = [
    "page_fault1",
    "mmap1",
    "fork1",
    "malloc1",
    "brk1",
    "usemem",
    "kbuild",
    "hackbench",
    "dbench4",
    "context_switch1",
];

/// How numbers are printed.
#[derive(Clone, Copy, PartialEq)]
enum Form {
    Whole,
    Groups,
    Decimals,
    Mega,
    Exponent,
    Unit,
    Deviation,
}

const FORMS: [Form; 7] = [
    Form::Whole,
    Form::Groups,
    Form::Decimals,
    Form::Mega,
    Form::Exponent,
    Form::Unit,
    Form::Deviation,
];

/// A number as it is printed, with the value that the print has.
fn number(rng: &mut Random, form: Form) -> (String, f64) {
    let n = 1000 + rng.next_u64() % 99_000_000;
    let groups = || {
        let digits = n.to_string();
        let mut text = String::new();
        for (at, digit) in digits.chars().enumerate() {
            if at > 0 && (digits.len() - at).is_multiple_of(3) {
                text.push(',');
            }
            text.push(digit);
        }
        text
    };
    match form {
        Form::Whole => (n.to_string(), n as f64),
        Form::Groups => (groups(), n as f64),
        Form::Decimals => {
            let text = format!("{}.{:02}", n / 100, n % 100);
            let value = text.parse().unwrap();
            (text, value)
        }
        Form::Mega => {
            let text = format!("{}.{:02}", 1 + n % 900, n % 97);
            let value: f64 = text.parse().unwrap();
            (format!("{text}M"), value * 1e6)
        }
        Form::Exponent => {
            let text = format!("{}.{:03}", 1 + n % 9, n % 997);
            let value: f64 = text.parse().unwrap();
            (format!("{text}e+06"), value * 1e6)
        }
        Form::Unit => (format!("{n} ms"), n as f64),
        Form::Deviation => (format!("{n} ± {}%", 1 + below(rng, 9)), n as f64),
    }
}

/// The truth: benchmark, side and number of tasks, with the figure.
type Truth = BTreeMap<(String, String, Option<u64>), f64>;

struct Drawn {
    text: String,
    truth: Truth,
    /// Whether all of the truth has to be found.
    whole: bool,
}

fn change(before: f64, after: f64) -> String {
    format!("{:+.1}%", 100.0 * (after / before - 1.0))
}

/// Formats cells as one of the forms with columns.
fn layout(rng: &mut Random, style: usize, rows: &[Vec<String>]) -> String {
    let n = rows[0].len();
    let width = |c: usize| rows.iter().map(|row| row[c].chars().count()).max().unwrap();
    let widths: Vec<usize> = (0..n).map(width).collect();
    let gap = 3 + below(rng, 4);
    let padded = |row: &[String], between: &str| {
        let cell = |(c, text): (usize, &String)| match c {
            0 => format!("{text:<0$}", widths[0]),
            _ => format!("{text:>0$}", widths[c]),
        };
        row.iter().enumerate().map(cell).collect::<Vec<_>>().join(between)
    };
    let border = |mark: &str| {
        let cells: Vec<String> = widths.iter().map(|width| "-".repeat(width + 2)).collect();
        format!("{mark}{}{mark}\n", cells.join(mark))
    };
    let mut text = String::new();
    for (at, row) in rows.iter().enumerate() {
        let line = match style {
            0 => padded(row, &" ".repeat(gap)),
            1 => row.join("\t"),
            2 => row.join(" "),
            3 | 4 => format!("| {} |", padded(row, " | ")),
            _ => row.iter().map(|cell| cell.replace(',', "")).collect::<Vec<_>>().join(","),
        };
        if style == 4 && at == 0 {
            text.push_str(&border("+"));
        }
        text.push_str(&format!("{line}\n"));
        match (style, at) {
            (3, 0) => text.push_str(&border("|")),
            (4, 0) => text.push_str(&border("+")),
            (0, 0) if gap == 4 => text.push_str(&"-".repeat(40).replace("----", "--- ")),
            _ => {}
        }
        if style == 0 && at == 0 && gap == 4 {
            text.push('\n');
        }
    }
    if style == 4 {
        text.push_str(&border("+"));
    }
    text
}

/// A table with a row for each benchmark, or for each number of tasks.
fn columns(rng: &mut Random, style: usize) -> Drawn {
    let sides = SIDES[below(rng, SIDES.len())];
    let form = loop {
        let form = FORMS[below(rng, FORMS.len())];
        // Cells of CSV have no spaces or groups; words between single spaces have none either.
        let simple = matches!(form, Form::Whole | Form::Decimals | Form::Exponent);
        if simple || style < 5 && (style != 2 || form == Form::Groups) {
            break form;
        }
    };
    let has_change = sides.len() == 2 && below(rng, 2) == 0;
    let by_tasks = below(rng, 3) == 0;
    let turned = below(rng, 4) == 0 && sides[0] != "6.1.0" && sides.len() == 2;
    let order: Vec<usize> = if turned { vec![1, 0] } else { (0..sides.len()).collect() };
    let mut head = vec![if by_tasks { "tasks" } else { "benchmark" }.to_owned()];
    head.extend(order.iter().map(|side| sides[*side].to_owned()));
    if has_change {
        head.push(pick(rng, &["change", "%change", "diff", "delta"]).to_owned());
    }
    let fault = below(rng, 8);
    let mut rows = vec![head];
    let mut truth = Truth::new();
    let (mut tasks, mut names) = (1, BENCHMARKS.to_vec());
    for _ in 0..1 + below(rng, 5) {
        let name = names.remove(below(rng, names.len()));
        let figures: Vec<(String, f64)> = sides.iter().map(|_| number(rng, form)).collect();
        let label = if by_tasks { tasks.to_string() } else { name.to_owned() };
        let mut row = vec![label];
        row.extend(order.iter().map(|side| figures[*side].0.clone()));
        let mut is_wrong = false;
        if has_change {
            let contradicts = fault == 0 && below(rng, 2) == 0;
            let after = figures[1].1 * if contradicts { 1.7 } else { 1.0 };
            is_wrong = contradicts;
            row.push(change(figures[0].1, after));
        }
        if fault == 1 && below(rng, 3) == 0 && style != 2 {
            row[1] = "-".to_owned();
            is_wrong = true;
        }
        rows.push(row);
        if !is_wrong {
            for (side, figure) in sides.iter().zip(&figures) {
                let (name, x) = if by_tasks { ("", Some(tasks)) } else { (name, None) };
                truth.insert((name.to_owned(), (*side).to_owned(), x), figure.1);
            }
        }
        tasks += 1 + rng.next_u64() % 40;
    }
    let mut whole = true;
    if fault == 2 && !has_change {
        let metrics = ["latency", "rate", "share"];
        for (column, name) in metrics.iter().take(sides.len()).enumerate() {
            rows[0][1 + column] = (*name).to_owned();
        }
        truth.clear();
        whole = false;
    }
    Drawn { text: layout(rng, style, &rows), truth, whole }
}

/// A table of the kernel test robot.
fn robot(rng: &mut Random) -> Drawn {
    let mut text =
        "         %stddev     %change         %stddev\n             \\          |\n".to_owned();
    let mut truth = Truth::new();
    for name in &BENCHMARKS[..1 + below(rng, 5)] {
        let (before, after) = (number(rng, Form::Whole), number(rng, Form::Whole));
        let metric = format!("{name}.ops_per_sec");
        let contradicts = below(rng, 9) == 0;
        let shown = change(before.1, after.1 * if contradicts { 1.5 } else { 1.0 });
        let deviation = if below(rng, 2) == 0 { " ±  3%" } else { "" };
        text.push_str(&format!(
            "{:>12}{deviation}   {shown:>8}   {:>10}        {metric}\n",
            before.0, after.0
        ));
        if !contradicts {
            truth.insert((metric.clone(), "before".to_owned(), None), before.1);
            truth.insert((metric, "after".to_owned(), None), after.1);
        }
    }
    Drawn { text, truth, whole: true }
}

/// A table of mmtests: a row for each number of tasks, changes in brackets.
fn mmtests(rng: &mut Random) -> Drawn {
    let mut text =
        format!("{:>40}{:>24}\n{:>40}{:>24}\n", "vanilla", "patched", "6.2.0-rc4", "6.2.0-rc4");
    let mut truth = Truth::new();
    let mean = pick(rng, &["Amean", "Hmean"]);
    let mut tasks = 1;
    for _ in 0..2 + below(rng, 5) {
        let (before, after) = (number(rng, Form::Decimals), number(rng, Form::Decimals));
        let mut percent = 100.0 * (after.1 / before.1 - 1.0);
        if mean == "Amean" {
            percent = -percent;
        }
        let marks = if below(rng, 2) == 0 { ['(', ')'] } else { ['*', '*'] };
        text.push_str(&format!(
            "{mean:<9} {:<14} {:>12} (   0.00%) {:>12} {}{percent:>8.2}%{}\n",
            format!("faults-{tasks}"),
            before.0,
            after.0,
            marks[0],
            marks[1]
        ));
        let key = |side: &str| (format!("{mean} faults"), side.to_owned(), Some(tasks));
        truth.insert(key("vanilla 6.2.0-rc4"), before.1);
        truth.insert(key("patched 6.2.0-rc4"), after.1);
        tasks += 1 + rng.next_u64() % 9;
    }
    Drawn { text, truth, whole: true }
}

/// A table whose rows are the sides.
fn turned(rng: &mut Random) -> Drawn {
    let sides = SIDES[below(rng, 5)];
    let style = [0, 3, 4][below(rng, 3)];
    let metrics = ["ops/s", "latency", "faults/s"];
    let n = 1 + below(rng, 3);
    let mut rows = vec![vec!["kernel".to_owned()]];
    rows[0].extend(metrics[..n].iter().map(|name| (*name).to_owned()));
    let mut truth = Truth::new();
    for side in sides {
        let mut row = vec![(*side).to_owned()];
        for metric in &metrics[..n] {
            let form = [Form::Whole, Form::Decimals, Form::Groups][below(rng, 3)];
            let (text, value) = number(rng, form);
            row.push(text);
            truth.insert(((*metric).to_owned(), (*side).to_owned(), None), value);
        }
        rows.push(row);
    }
    Drawn { text: layout(rng, style, &rows), truth, whole: true }
}

/// A list of changes.
fn list(rng: &mut Random) -> Drawn {
    let mut text = String::new();
    let mut truth = Truth::new();
    let style = below(rng, 6);
    let mut names = BENCHMARKS.to_vec();
    for _ in 0..1 + below(rng, 5) {
        let name = names.remove(below(rng, names.len()));
        let tenths = 1 + (rng.next_u64() % 900) as i64;
        let down = below(rng, 2) == 0;
        let percent = format!("{}.{}", tenths / 10, tenths % 10);
        let sign = if down { '-' } else { '+' };
        let line = match style {
            0 => format!("{name}: {sign}{percent} %"),
            1 => format!("  - {name}    {sign}{percent}%"),
            2 => format!("{sign}{percent}% {name}"),
            3 => format!("* {name} {sign}{percent}%"),
            4 => {
                let word = if down { "regression" } else { "improvement" };
                format!("We see a {percent}% {word} in {name}.")
            }
            _ => {
                let word = if down { "drops" } else { "improves" };
                format!("{name} {word} by {percent}%.")
            }
        };
        text.push_str(&format!("{line}\n"));
        let value: f64 = percent.parse().unwrap();
        truth.insert((name.to_owned(), "before".to_owned(), None), 100.0);
        let after = 100.0 + if down { -value } else { value };
        truth.insert((name.to_owned(), "after".to_owned(), None), after);
    }
    Drawn { text, truth, whole: true }
}

/// The file that will-it-scale writes.
fn will_it_scale(rng: &mut Random) -> Drawn {
    let mut text =
        "tasks,processes,processes_idle,threads,threads_idle,linear\n0,0,100,0,100,0\n".to_owned();
    let mut truth = Truth::new();
    let mut tasks = 1;
    for _ in 0..1 + below(rng, 6) {
        let (processes, threads) = (number(rng, Form::Whole), number(rng, Form::Whole));
        let idle = below(rng, 10_000) as f64 / 100.0;
        let linear = 603_923 * tasks;
        text.push_str(&format!("{tasks},{},{idle},{},{idle},{linear}\n", processes.0, threads.0));
        truth.insert((String::new(), "processes".to_owned(), Some(tasks)), processes.1);
        truth.insert((String::new(), "threads".to_owned(), Some(tasks)), threads.1);
        tasks += 1 + rng.next_u64() % 20;
    }
    Drawn { text, truth, whole: true }
}

const PROSE: [&str; 5] = [
    "We ran this on a machine with 2 sockets, 5 times each.\n",
    "Thanks for looking at version 3 of the series; 100% of the tasks were on one node.\n",
    "perf shows 35.85% of the cycles in the lock.\n",
    "The results of the benchmarks:\n",
    "Cc: reviewer at example.org, 2024-01-02 10:11:12\n",
];

/// Puts prose around a table, and perhaps marks of a quote before each line.
fn mailed(rng: &mut Random, table: &str) -> String {
    let mut text = String::new();
    for _ in 0..below(rng, 3) {
        text.push_str(pick(rng, &PROSE));
    }
    text.push_str(&format!("\n{table}\n"));
    for _ in 0..below(rng, 3) {
        text.push_str(pick(rng, &PROSE));
    }
    match below(rng, 3) {
        0 => text.lines().map(|line| format!("> {line}\n")).collect(),
        _ => text,
    }
}

#[test]
fn every_figure_that_is_found_is_right() {
    let (mut rows, mut without) = (0, 0);
    for seed in 0..TABLES {
        let rng = &mut Random::seed_from_u64(seed);
        let drawn = match below(rng, 11) {
            style @ 0..=5 => columns(rng, style),
            6 => robot(rng),
            7 => mmtests(rng),
            8 => turned(rng),
            9 => list(rng),
            _ => will_it_scale(rng),
        };
        let text = mailed(rng, &drawn.text);
        let all = found(&text);
        let mut left = drawn.truth.clone();
        for one in &all.found {
            for (side, values) in one.sides.iter().zip(&one.values) {
                for (nth, value) in values.iter().enumerate() {
                    let x = one.at.get(nth).copied();
                    // A table by tasks has no name of its own.
                    let metric =
                        if one.axis.is_empty() { one.metric.clone() } else { String::new() };
                    let right = left.remove(&(metric, side.clone(), x));
                    let close =
                        right.is_some_and(|right| (right - value).abs() <= 1e-9 * right.abs());
                    assert!(close, "{seed}: {value} for {right:?}\n{one:#?}\n{text}");
                    rows += 1;
                }
            }
        }
        assert!(left.is_empty() || !drawn.whole, "{seed}: {left:?}\n{:?}\n{text}", all.doubts);
        without += usize::from(all.found.is_empty());
    }
    // A generator whose tables are not read would prove nothing.
    assert!(rows > 12_000 && without < 300, "{rows} {without}");
}
