//! A table of results in a page has a mark, so that `cargo xtask tables` compares it with runs.
//!
//! That is a table with a column of the first arm, `stock`, or of simulated values next to others.
//! A table that was written down before the runs has the mark of [`PREDICTED`] instead.

use super::pages::prose;
use super::{Finding, Source, Tree};

/// The beginning of a mark with a run.
const MARK: &str = "<!-- table:";
/// The mark of a table of predictions.
const PREDICTED: &str = "<!-- predicted -->";
/// Columns of results.
const COLUMNS: [&str; 2] = ["stock", "simulated"];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    tree.sources().filter(|source| is_checked(source)).flat_map(page).collect()
}

fn is_checked(source: &Source) -> bool {
    let path = source.path.as_str();
    let folder = path.starts_with("docs/") || path.starts_with("studies/");
    source.is_page() && (folder || path == "README.md")
}

fn page(source: &Source) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut before = "";
    for (line, text) in prose(&source.text) {
        let is_head = text.starts_with('|') && !before.starts_with('|');
        let is_marked = before.starts_with(MARK) || before == PREDICTED;
        if is_head && !is_marked && text.split('|').any(|cell| COLUMNS.contains(&cell.trim())) {
            let what = format!(
                "a table of results without a mark: add `{MARK} STUDY KEY=VALUE.. -->` above it, \
                 or `{PREDICTED}`"
            );
            found.push(Finding::new(&source.path, line, what));
        }
        before = text;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(path: &str, text: &str) -> Vec<usize> {
        check(&Tree::of(&[(path, text)])).iter().map(|f| f.line).collect()
    }

    #[test]
    fn a_table_of_results_has_a_mark() {
        let table = "| | stock | lazy |\n|---|---|---|\n| `ops_per_s` | 1 | 2 |\n";
        assert_eq!(lines("docs/a.md", &format!("# A\n\n{table}")), [3]);
        assert_eq!(lines("studies/a/README.md", &format!("# A\n\n{table}")), [3]);
        for mark in ["<!-- table: churn seeds=7 -->", PREDICTED] {
            assert_eq!(lines("docs/a.md", &format!("# A\n\n{mark}\n{table}")), [0; 0], "{mark}");
        }
        assert_eq!(lines("CHANGELOG.md", &format!("# A\n\n{table}")), [0; 0]);
    }

    #[test]
    fn a_table_about_policies_needs_none() {
        let text = "# A\n\n| | `stock` | `claims` |\n|---|---|---|\n| flushes | exit | helper |\n";
        assert_eq!(lines("docs/a.md", text), [0; 0]);
    }
}
