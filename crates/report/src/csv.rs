//! Documents as CSV: a row for each value, in the metric's own unit.

use mmscale_document::{Document, Value};

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
            let unit = quoted(&of.unit);
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

/// Quotes a cell that has a separator, a quote or a line end.
pub(crate) fn quoted(cell: &str) -> String {
    if cell.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", cell.replace('"', "\"\""))
    } else {
        cell.to_owned()
    }
}
