//! Documents as CSV: a row for each value, in the metric's own unit.

use std::borrow::Cow;

use mmscale_document::{Document, Value, plain};

use crate::text::{Notes, is_shown};

/// The first line: the names of the columns.
pub const CSV_HEAD: &str = "study,arm,cpus,seed,metric,value,unit,on,profile,hz,set\n";

/// Formats the values of a document, a row for each metric of each run. `value` is empty where a
/// run had nothing to measure; `set` has the parameters that are not the study's defaults.
pub fn csv_rows(document: &Document, notes: &Notes<'_>) -> String {
    let set = document
        .params
        .iter()
        .filter(|(name, value)| notes.defaults.get(*name) != Some(value))
        .map(|(name, value)| format!("{name}={value}"));
    let set = quoted(&set.collect::<Vec<_>>().join(" "));
    let [study, profile] = [&document.study, &document.profile].map(|name| quoted(name));
    let Document { cpus, on, hz, .. } = document;
    let mut text = String::new();
    for arm in &document.arms {
        let name = quoted(&arm.arm);
        let shown = arm.metrics.iter().filter(|(metric, _)| is_shown(&notes.only, metric));
        for (metric, of) in shown {
            let [metric, unit] = [metric, &of.unit].map(|text| quoted(text));
            for (seed, value) in arm.seeds.iter().zip(&of.values) {
                let value = match value {
                    None => String::new(),
                    Some(Value::Count(n)) => n.to_string(),
                    Some(Value::Real(x)) => x.to_string(),
                };
                text.push_str(&format!("{study},{name},{cpus},{seed},{metric},{value},{unit},"));
                text.push_str(&format!("{on},{profile},{hz},{set}\n"));
            }
        }
    }
    text
}

/// Returns a cell without control characters, quoted if it has a separator, a quote or a line end.
/// A text that a spreadsheet would read as a formula begins with an apostrophe.
pub(crate) fn quoted(cell: &str) -> String {
    let is_formula = cell.starts_with(['=', '+', '-', '@', '\t', '\r']);
    let cell = if is_formula && cell.parse::<f64>().is_err() {
        Cow::Owned(format!("'{}", plain(cell)))
    } else {
        plain(cell)
    };
    if cell.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", cell.replace('"', "\"\""))
    } else {
        cell.into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_is_text_without_control_characters() {
        for (cell, expected) in [
            ("stock", "stock"),
            ("a,\"b\"", "\"a,\"\"b\"\"\""),
            ("=HYPERLINK(\"x\")", "\"'=HYPERLINK(\"\"x\"\")\""),
            ("@SUM(A1)", "'@SUM(A1)"),
            ("+cmd|' /C calc'!A0", "'+cmd|' /C calc'!A0"),
            ("\tx", "'\tx"),
            ("-1.5e3", "-1.5e3"),
            ("-x", "'-x"),
            ("a\u{1b}[2J\u{9b}1m", "a\u{fffd}[2J\u{fffd}1m"),
        ] {
            assert_eq!(quoted(cell), expected);
        }
    }
}
