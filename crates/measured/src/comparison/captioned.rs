//! Tables that follow each other with equal columns, each of them one side by its caption:
//!
//! ```text
//! Without:
//! tasks   processes   threads
//! 16      8000        5000
//! With:
//! tasks   processes   threads
//! 16      8200        5500
//! ```
//!
//! Their columns are metrics, whatever their names are.

use super::grid::{Block, Cell, Row};
use super::names::{Heading, heading, may_be_metric};
use super::sides::{Columns, axis, of_row, whole};
use super::{Comparison, Comparisons, doubt};
use crate::role::{Role, is_axis, role, side};
use crate::text::Line;

/// Enters the comparisons of the first blocks if their captions are sides. Returns the number of
/// those blocks.
pub(super) fn blocks(lines: &[&Line], blocks: &[Block], all: &mut Comparisons) -> usize {
    let Some(first) = blocks.first().and_then(|block| heading(lines, block)) else { return 0 };
    if side(&first.caption).is_none() || !first.columns.iter().all(|name| may_be_metric(name)) {
        return 0;
    }
    let equal = |next: &Heading| {
        (&next.columns, &next.label) == (&first.columns, &first.label)
            && side(&next.caption).is_some()
    };
    let mut names: Vec<String> = vec![];
    for next in blocks.iter().map_while(|block| heading(lines, block)).take_while(equal) {
        if names.contains(&next.caption) {
            break;
        }
        names.push(next.caption);
    }
    let count = names.len();
    let is_before = |name: &&String| side(name) == Some(Role::Before);
    if count < 2 || names.iter().filter(is_before).count() != 1 {
        return 0;
    }
    let mut sides: Vec<(&Block, String)> = blocks.iter().zip(names).collect();
    sides.sort_by_key(|(_, name)| side(name) != Some(Role::Before));
    if let Err(why) = compare(&sides, &first, all) {
        all.doubts.push(doubt(blocks[0].rows[0].line, why));
    }
    count
}

/// Enters a comparison for each column that is a metric.
fn compare(
    sides: &[(&Block, String)],
    heading: &Heading,
    all: &mut Comparisons,
) -> Result<(), String> {
    let roles: Vec<Role> = heading.columns.iter().map(|name| role(name)).collect();
    let base = &sides[0].0;
    let axis = match base.rows.len() {
        1 => (base.rows[0].label.text.is_empty() && is_axis(&heading.columns[0])).then_some(0),
        _ => axis(base, heading, &roles)?,
    };
    let x = |row: &Row| axis.and_then(|c| row.figures[c].as_ref()).and_then(whole);
    let key = |row: &Row| (row.label.text.clone(), x(row));
    let keys = |block: &Block| block.rows.iter().map(key).collect::<Vec<_>>();
    if sides.iter().any(|(block, _)| keys(block) != keys(base)) {
        return Err("a table of one side, and that of another side has other rows".to_owned());
    }
    let columns = Columns::of_sides((0..sides.len()).collect());
    for (column, name) in heading.columns.iter().enumerate() {
        if Some(column) == axis || matches!(roles[column], Role::Change | Role::Other) {
            continue;
        }
        let mut found: Vec<Comparison> = vec![];
        for (nth, row) in base.rows.iter().enumerate() {
            let (label, x) = key(row);
            if x == Some(0) {
                continue;
            }
            let metric = format!("{} {name}", label.trim_matches(['*', ':', ' ']));
            let metric = metric.trim().to_owned();
            let figures =
                sides.iter().map(|(block, _)| block.rows[nth].figures[column].clone()).collect();
            let label = Cell { text: metric.clone(), from: 0, to: 0 };
            match of_row(&Row { figures, label, ..row.clone() }, &columns) {
                Ok((values, unit)) => match found.last_mut() {
                    Some(last) if x.is_some() && last.metric == metric && last.unit == unit => {
                        last.at.extend(x);
                        last.values.iter_mut().zip(values).for_each(|(all, one)| all.push(one));
                    }
                    _ => found.push(Comparison {
                        line: row.line,
                        metric,
                        unit,
                        sides: sides.iter().map(|(_, name)| name.clone()).collect(),
                        axis: axis.map_or(String::new(), |c| heading.columns[c].clone()),
                        at: x.into_iter().collect(),
                        values: values.into_iter().map(|value| vec![value]).collect(),
                        ..Comparison::default()
                    }),
                },
                Err(why) => all.doubts.push(doubt(row.line, why)),
            }
        }
        all.found.append(&mut found);
    }
    Ok(())
}
