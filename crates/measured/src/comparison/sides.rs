//! From a block of rows to comparisons: which columns are sides, and whether the changes that are
//! printed agree.

use super::figure::{Change, Comma, Figure};
use super::grid::{Block, Row};
use super::names::{Heading, heading, is_one_side};
use super::{Chosen, Comparison, Comparisons, doubt};
use crate::role::{Role, is_axis, role};
use crate::text::Line;

/// The columns of a block, by their meaning.
pub(super) struct Columns {
    axis: Option<usize>,
    /// The first is the one to compare with.
    sides: Vec<usize>,
    changes: Vec<usize>,
    /// Whether names decided, or the caller; otherwise changes have to.
    named: bool,
}

impl Columns {
    /// Columns that are sides, and no other ones.
    pub(super) fn of_sides(sides: Vec<usize>) -> Self {
        Self { axis: None, sides, changes: vec![], named: true }
    }
}

/// Enters the comparisons of a block. Returns whether it is a table.
pub(super) fn block(
    lines: &[&Line],
    block: &Block,
    chosen: &Chosen,
    all: &mut Comparisons,
) -> bool {
    let first = &block.rows[0];
    let heading = heading(lines, block).or_else(|| pair(lines, block));
    if first.figures.len() == 1 && !labels_are_sides(block) {
        return false;
    }
    let figures = || block.rows.iter().flat_map(|row| row.figures.iter().flatten());
    let has = |form: Comma| figures().any(|figure| figure.comma == form);
    if has(Comma::Decimal) && has(Comma::Either) {
        let what = "a table with decimal commas, in which numbers such as 1,234 have two meanings";
        all.doubts.push(doubt(first.line, what));
        return true;
    }
    let Some(heading) = heading else {
        if block.rows.len() < 2 || first.figures.len() < 2 {
            return false;
        }
        let n = first.figures.len();
        let what = format!("rows of {n} figures, and no line above that has as many names");
        all.doubts.push(doubt(first.line, what));
        return true;
    };
    if let Some(line) = block.unread {
        all.doubts.push(doubt(line, "a line below a table that is no row of it"));
    }
    if labels_are_sides(block) && !heading.columns.iter().any(|name| is_side(name)) {
        by_rows(block, &heading, all);
        return true;
    }
    if chosen.sides.is_empty() && is_one_side(&heading) {
        let caption = &heading.caption;
        let what = format!("a table of the side `{caption}`, and none of another side below it");
        all.doubts.push(doubt(first.line, what));
        return true;
    }
    match columns(block, &heading, chosen) {
        Ok(columns) => by_columns(block, &heading, &columns, all),
        Err(what) => all.doubts.push(doubt(first.line, what)),
    }
    true
}

/// Returns the heading of two figures without names above them, `before: 0.75` and `after: 0.73`:
/// the line above them names the metric.
fn pair(lines: &[&Line], block: &Block) -> Option<Heading> {
    let above = *block.above.first()?;
    let name = lines[above].text.trim().trim_end_matches(':');
    let is_pair = block.rows[0].figures.len() == 1 && labels_are_sides(block);
    let columns = vec![name.to_owned()];
    is_pair.then(|| Heading { columns, ..Heading::default() })
}

fn is_side(name: &str) -> bool {
    matches!(role(name), Role::Before | Role::After)
}

/// Returns whether the rows are the sides: `base`, `patched`.
fn labels_are_sides(block: &Block) -> bool {
    let mut names: Vec<&str> = block.rows.iter().map(|row| row.label.text.as_str()).collect();
    let sides = names.iter().all(|name| {
        matches!(role(name), Role::Before | Role::After | Role::Side) && !is_axis(name)
    });
    names.sort_unstable();
    names.dedup();
    sides && names.len() == block.rows.len() && names.len() >= 2
}

/// Decides what each column is.
fn columns(block: &Block, heading: &Heading, chosen: &Chosen) -> Result<Columns, String> {
    let n = heading.columns.len();
    let roles: Vec<Role> = heading.columns.iter().map(|name| role(name)).collect();
    let of = |column: usize| block.rows.iter().filter_map(move |row| row.figures[column].as_ref());
    let is_change = |column: usize| {
        let signed = of(column).all(|f| f.percent && f.signed) || of(column).all(|f| f.times);
        roles[column] == Role::Change || roles[column] == Role::None && signed
    };
    let axis = axis(block, heading, &roles)?;
    let changes: Vec<usize> = (0..n).filter(|c| is_change(*c)).collect();
    let values: Vec<usize> =
        (0..n).filter(|c| Some(*c) != axis && !is_change(*c) && roles[*c] != Role::Other).collect();
    if !chosen.sides.is_empty() {
        let sides = places(&heading.columns, &chosen.sides)?;
        return Ok(Columns { axis, sides, changes, named: true });
    }
    let with = |wanted: &[Role]| -> Vec<usize> {
        values.iter().copied().filter(|c| wanted.contains(&roles[*c])).collect()
    };
    let mut sides = with(&[Role::Before, Role::After, Role::Side]);
    let before = with(&[Role::Before]);
    let named = || values.iter().map(|c| format!("`{}`", heading.columns[*c])).collect::<Vec<_>>();
    let unclear = || {
        // More than two may be machines or tests.
        let choice = match values[..] {
            [base, other] if heading.columns[base] != heading.columns[other] => {
                format!("as in --sides '{},{}'", heading.columns[base], heading.columns[other])
            }
            _ => "the one to compare with first: --sides 'BASE,OTHER'".to_owned(),
        };
        let columns = named().join(", ");
        Err(format!("its columns {columns} may be sides or metrics; choose sides, {choice}"))
    };
    let repeated = |all: &[usize]| {
        let name = |c: usize| heading.columns[c].as_str();
        (1..all.len()).any(|at| all[..at].iter().any(|c| name(*c) == name(all[at])))
    };
    if repeated(&values) {
        return Err(format!("its columns {} have equal names", named().join(", ")));
    }
    if sides.len() >= 2 && sides.len() == values.len() && before.len() <= 1 {
        let bases: Vec<usize> = if before.is_empty() { with(&[Role::Side]) } else { before };
        // With one that is no patch, that is the base; of versions, the first.
        let base = bases.first().copied().unwrap_or(sides[0]);
        sides.retain(|side| *side != base);
        sides.insert(0, base);
        return Ok(Columns { axis, sides, changes, named: true });
    }
    if values.len() == 1 && axis.is_some() {
        return Ok(Columns { axis, sides: values, changes: vec![], named: true });
    }
    // One of two columns is the base by its name, and a change in some row names the other one.
    if let ([base], &[first, second]) = (&before[..], &values[..]) {
        let other = if first == *base { second } else { first };
        let sides = vec![*base, other];
        let columns = Columns { axis, sides, changes: changes.clone(), named: false };
        let all: Vec<_> = block.rows.iter().map(|row| checked(row, &columns)).collect();
        if all.iter().all(Result::is_ok) && all.contains(&Ok(true)) {
            return Ok(columns);
        }
    }
    let columns = Columns { axis, sides: values.clone(), changes, named: false };
    let agrees = |columns: &Columns| {
        block.rows.iter().all(|row| checked(row, columns).is_ok_and(|proven| proven))
    };
    if values.len() == 2 && before.len() <= 1 && agrees(&columns) {
        // Small changes may agree in both directions.
        let sides = values.iter().rev().copied().collect();
        let turned = Columns { axis, sides, changes: columns.changes.clone(), named: false };
        if !agrees(&turned) {
            return Ok(columns);
        }
    }
    unclear()
}

/// Returns the columns with the names that a caller chose. Names with commas are in several parts.
fn places(columns: &[String], sides: &[String]) -> Result<Vec<usize>, String> {
    let (mut places, mut at) = (vec![], 0);
    while at < sides.len() {
        let fits = |name: &String| {
            let parts: Vec<&str> = name.split(',').map(str::trim).collect();
            let own = sides.get(at..at + parts.len())?;
            let is_same = parts.iter().zip(own).all(|(part, own)| part.eq_ignore_ascii_case(own));
            is_same.then_some(parts.len())
        };
        let all = columns.iter().enumerate();
        let longest = all.filter_map(|(c, name)| Some((fits(name)?, std::cmp::Reverse(c)))).max();
        let (parts, place) = longest.ok_or_else(|| format!("it has no column `{}`", sides[at]))?;
        places.push(place.0);
        at += parts;
    }
    Ok(places)
}

/// Returns the column of numbers of tasks, if there is one.
pub(super) fn axis(
    block: &Block,
    heading: &Heading,
    roles: &[Role],
) -> Result<Option<usize>, String> {
    let has_label = !block.rows[0].label.text.is_empty();
    let name = &heading.columns[0];
    if has_label || block.rows.len() == 1 && is_side(name) {
        return Ok(None);
    }
    if is_side(name) || roles[0] == Role::Change {
        return Err("its rows have no names".to_owned());
    }
    let values: Option<Vec<u64>> =
        block.rows.iter().map(|row| row.figures[0].as_ref().and_then(whole)).collect();
    let rising = |all: &Vec<u64>| all.windows(2).all(|pair| pair[0] < pair[1]);
    match values {
        Some(all) if rising(&all) => Ok(Some(0)),
        _ if roles[0] == Role::Axis || is_axis(name) => {
            Err(format!("the column `{name}` does not rise from row to row"))
        }
        _ => Err("its rows have no names".to_owned()),
    }
}

pub(super) fn whole(figure: &Figure) -> Option<u64> {
    let plain = figure.unit.is_empty() && !figure.percent && !figure.signed && !figure.times;
    let whole = figure.value.fract() == 0.0 && figure.value >= 0.0 && figure.half == 0.5;
    (plain && whole && figure.value < 1e15).then_some(figure.value as u64)
}

/// A row with its figures.
#[derive(Clone)]
struct Point {
    label: String,
    x: Option<u64>,
    line: usize,
    values: Vec<f64>,
    unit: String,
}

/// Enters a comparison for each row, or one for all points of an axis.
fn by_columns(block: &Block, heading: &Heading, columns: &Columns, all: &mut Comparisons) {
    let sides: Vec<String> = columns.sides.iter().map(|c| heading.columns[*c].clone()).collect();
    let mut points: Vec<Point> = vec![];
    for row in &block.rows {
        let x = columns.axis.and_then(|c| row.figures[c].as_ref()).and_then(whole);
        // will-it-scale begins with a row for no tasks.
        if x == Some(0) {
            continue;
        }
        match of_row(row, columns) {
            Ok((values, unit)) => {
                let label = row.label.text.trim_matches(['*', ':', ' ']).to_owned();
                points.push(Point { label, x, line: row.line, values, unit });
            }
            Err(why) => all.doubts.push(doubt(row.line, why)),
        }
    }
    if columns.axis.is_none() {
        split_labels(&mut points);
    }
    let mut at = 0;
    while at < points.len() {
        let Point { label, x, line, .. } = points[at].clone();
        let same = |point: &&Point| point.label == label && point.x.is_some() && x.is_some();
        let count = points[at..].iter().take_while(same).count().max(1);
        let of = &points[at..at + count];
        at += count;
        let units: Vec<&String> = of.iter().map(|point| &point.unit).collect();
        if units.iter().any(|unit| *unit != units[0]) {
            all.doubts.push(doubt(line, "its figures have different units"));
            continue;
        }
        let value = |side: usize| of.iter().map(|point| point.values[side]).collect();
        all.found.push(Comparison {
            line,
            caption: heading.caption.clone(),
            metric: if label.is_empty() { metric_of(heading, &sides) } else { label },
            unit: unit_of(units[0], heading),
            values: (0..sides.len()).map(value).collect(),
            sides: sides.clone(),
            axis: columns.axis.map_or(String::new(), |c| heading.columns[c].clone()),
            at: of.iter().filter_map(|point| point.x).collect(),
            only_changes: false,
        });
    }
}

/// Divides labels such as `faults/sec-16`, if several rows differ by the number alone.
fn split_labels(points: &mut [Point]) {
    let split = |label: &str| {
        let (stem, number) = label.rsplit_once('-')?;
        let digits = !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit());
        digits.then(|| Some((stem.to_owned(), number.parse::<u64>().ok()?))).flatten()
    };
    let mut at = 0;
    while at < points.len() {
        let mut count = 0;
        let first = split(&points[at].label);
        let mut last = None;
        while let (Some(next), Some(first)) = (points.get(at + count), &first)
            && let Some((stem, n)) = split(&next.label)
            && stem == first.0
            && last.is_none_or(|last| last < n)
        {
            last = Some(n);
            count += 1;
        }
        if count >= 2 {
            for point in &mut points[at..at + count] {
                if let Some((stem, n)) = split(&point.label) {
                    (point.label, point.x) = (stem, Some(n));
                }
            }
        }
        at += count.max(1);
    }
}

fn metric_of(heading: &Heading, sides: &[String]) -> String {
    match sides {
        [only] => only.clone(),
        _ if !heading.caption.is_empty() => heading.caption.clone(),
        _ => heading.label.clone(),
    }
}

/// Returns the unit of the figures, or that in brackets in the names of columns.
fn unit_of(unit: &str, heading: &Heading) -> String {
    let in_brackets = |name: &String| {
        let (_, rest) = name.split_once('(')?;
        let inner = rest.split_once(')')?.0.trim();
        (inner.contains('/') || super::figure::is_unit(inner)).then(|| inner.to_owned())
    };
    match unit {
        "" => heading.columns.iter().find_map(in_brackets).unwrap_or_default(),
        unit => unit.to_owned(),
    }
}

/// Returns the values of the sides with their unit, if the row does not contradict itself.
pub(super) fn of_row(row: &Row, columns: &Columns) -> Result<(Vec<f64>, String), String> {
    let name = match row.label.text.as_str() {
        "" => "the row".to_owned(),
        label => format!("`{label}`"),
    };
    let figures: Option<Vec<&Figure>> =
        columns.sides.iter().map(|c| row.figures[*c].as_ref()).collect();
    let figures = figures.ok_or_else(|| format!("{name} lacks a figure"))?;
    let units: Vec<&str> =
        figures.iter().map(|f| f.unit.as_str()).filter(|unit| !unit.is_empty()).collect();
    let mixed = units.len() != figures.len() && figures.iter().any(|figure| figure.percent);
    if mixed && !units.is_empty() || units.iter().any(|unit| *unit != units[0]) {
        return Err(format!("{name} has figures with different units"));
    }
    if figures.iter().any(|figure| figure.times) {
        return Err(format!("{name} has multiples in place of figures"));
    }
    checked(row, columns).map_err(|change| {
        let values: Vec<String> = figures.iter().map(|f| f.value.to_string()).collect();
        format!("{name}: the change {change} does not lead from {}", values.join(" to "))
    })?;
    Ok((figures.iter().map(|f| f.value).collect(), units.first().copied().unwrap_or("").to_owned()))
}

/// Compares the changes of a row with its figures. Returns whether a change proves which side is
/// which, or the change that contradicts.
fn checked(row: &Row, columns: &Columns) -> Result<bool, String> {
    let sides: Vec<&Figure> =
        columns.sides.iter().filter_map(|c| row.figures[*c].as_ref()).collect();
    let Some((base, others)) = sides.split_first() else { return Ok(false) };
    let mut proven = false;
    for other in others {
        if let Some(change) = other.change {
            // Without a sign it may be a deviation; mmtests turns the sign where less is better.
            proven |= other.follows(base, change);
        }
    }
    for column in &columns.changes {
        let Some(figure) = row.figures[*column].as_ref() else { continue };
        let change = match figure.times {
            true => ratio(figure, 100.0),
            false => Change { percent: figure.value, half: figure.half },
        };
        let strict = others.iter().any(|other| other.follows(base, change));
        let pairs = || {
            let ends = || sides.iter().enumerate();
            ends().flat_map(move |(i, from)| {
                ends().filter(move |(j, _)| i != *j).map(move |(_, to)| (*from, *to))
            })
        };
        let lenient = columns.named && pairs().any(|(from, to)| is_change(figure, from, to));
        if !strict && !lenient {
            let sign = if figure.signed && figure.value >= 0.0 { "+" } else { "" };
            let unit = if figure.percent { " %" } else { "" };
            return Err(format!("{sign}{}{unit}", figure.value));
        }
        proven |= strict;
    }
    Ok(proven)
}

/// Returns whether a figure is a change from one figure to another in some form: in percent of
/// either, as a difference, as a multiple.
fn is_change(figure: &Figure, from: &Figure, to: &Figure) -> bool {
    let change = |percent: f64| Change { percent, half: figure.half };
    let value = figure.value;
    let sign = to.follows(from, change(-value)) || to.follows(from, change(value));
    let difference = (to.value - from.value).abs();
    let rounding = figure.half + to.half + from.half + 1e-9;
    let is_difference = !figure.percent && (difference - value.abs()).abs() <= rounding;
    let scale = if figure.percent { 1.0 } else { 100.0 };
    sign || is_difference || to.follows(from, ratio(figure, scale))
}

/// Returns the change that a multiple is. `scale` is that of 1 in percent.
fn ratio(figure: &Figure, scale: f64) -> Change {
    Change { percent: figure.value * scale - 100.0, half: figure.half * scale }
}

/// Enters a comparison for each column of a table whose rows are the sides.
fn by_rows(block: &Block, heading: &Heading, all: &mut Comparisons) {
    let is_before = |row: &&Row| role(&row.label.text) == Role::Before;
    let before = block.rows.iter().filter(is_before).count();
    if before > 1 {
        all.doubts.push(doubt(block.rows[0].line, "several of its rows may be the base"));
        return;
    }
    let mut rows: Vec<&Row> = block.rows.iter().collect();
    let side = |row: &&Row| role(&row.label.text) == Role::Side;
    let base = rows.iter().position(is_before).or_else(|| rows.iter().position(side));
    if let Some(base) = base {
        let row = rows.remove(base);
        rows.insert(0, row);
    }
    for (column, name) in heading.columns.iter().enumerate() {
        if matches!(role(name), Role::Change | Role::Other) {
            continue;
        }
        let turned = Row {
            figures: rows.iter().map(|row| row.figures[column].clone()).collect(),
            label: super::grid::Cell { text: name.clone(), from: 0, to: 0 },
            ..block.rows[0].clone()
        };
        let columns = Columns::of_sides((0..rows.len()).collect());
        match of_row(&turned, &columns) {
            Ok((values, unit)) => all.found.push(Comparison {
                line: block.rows[0].line,
                caption: heading.caption.clone(),
                metric: name.trim_start_matches(['#', ' ']).to_owned(),
                unit,
                sides: rows
                    .iter()
                    .map(|row| row.label.text.trim_matches([':', '*', ' ']).to_owned())
                    .collect(),
                values: values.into_iter().map(|value| vec![value]).collect(),
                ..Comparison::default()
            }),
            Err(why) => all.doubts.push(doubt(block.rows[0].line, why)),
        }
    }
}
