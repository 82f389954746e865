//! The table of scripts/README.md.

use crate::{Compared, PerOp};
use std::fs;
use std::path::Path;

const BEGIN: &str = "<!-- counted by the kernel: cargo test -p mmscale-linux --test twins -->\n";
const END: &str = "<!-- end -->\n";

/// Writes the rows into a page, between two marks.
pub(crate) fn write(page: &Path, rows: &[Compared]) {
    let text = fs::read_to_string(page).expect("there is a page");
    let (before, rest) = text.split_once(BEGIN).expect("the page has the first mark");
    let (_, after) = rest.split_once(END).expect("the page has the second mark");
    let lines: String = rows.iter().map(row).collect();
    let head = "| script | calls: script | twin | stress-ng | faults: script | twin \
                | all calls: script | twin | all faults: script | twin | stress-ng |\n\
                |---|---|---|---|---|---|---|---|---|---|---|\n";
    fs::write(page, format!("{before}{BEGIN}{head}{lines}{END}{after}")).expect("it is writable");
}

/// Two decimals, without zeros at their end.
fn short(figure: f64) -> String {
    let figure = format!("{figure:.2}");
    let short = figure.trim_end_matches('0').trim_end_matches('.');
    if short == "-0" { "0".to_owned() } else { short.to_owned() }
}

fn row(of: &Compared) -> String {
    let Compared { name, script, twin, stressor } = of;
    let both = |part: fn(&PerOp) -> f64| format!("{} | {}", short(part(script)), short(part(twin)));
    let third = |part: fn(&PerOp) -> f64| {
        stressor.as_ref().map_or(String::new(), |stressor| short(part(stressor)))
    };
    format!(
        "| {name} | {} | {} | {} | {} | {} | {} |\n",
        both(|of| of.calls),
        third(|of| of.calls),
        both(|of| of.faults),
        both(|of| of.all_calls),
        both(|of| of.all_faults),
        third(|of| of.all_faults),
    )
}
