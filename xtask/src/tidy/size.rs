//! Files have at most 800 lines and 100 columns.

use super::{Finding, Source, Tree};

const LINES_MAX: usize = 800;
const COLUMNS_MAX: usize = 100;

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    tree.sources()
        .filter(|source| source.is_rust() || source.path.starts_with(".ci/"))
        .flat_map(file)
        .collect()
}

fn file(source: &Source) -> Vec<Finding> {
    let mut found = Vec::new();
    let lines = source.text.lines().count();
    if lines > LINES_MAX {
        let what = format!("{lines} lines; the limit is {LINES_MAX}: split the file");
        found.push(Finding::new(&source.path, LINES_MAX + 1, what));
    }
    for (at, line) in source.text.lines().enumerate() {
        let columns = line.chars().count();
        if columns > COLUMNS_MAX {
            let what = format!("{columns} columns; the limit is {COLUMNS_MAX}: break the line");
            found.push(Finding::new(&source.path, at + 1, what));
        }
        if line.ends_with([' ', '\t', '\r']) {
            found.push(Finding::new(&source.path, at + 1, "trailing white space: remove it"));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(text: &str) -> usize {
        check(&Tree::of(&[("crates/mm/src/a.rs", text)])).len()
    }

    #[test]
    fn long_files_are_refused() {
        assert_eq!(count(&"//\n".repeat(800)), 0);
        assert_eq!(count(&"//\n".repeat(801)), 1);
    }

    #[test]
    fn long_lines_are_refused() {
        assert_eq!(count(&"x".repeat(100)), 0);
        assert_eq!(count(&"x".repeat(101)), 1);
        assert_eq!(count(&"\u{fc}".repeat(100)), 0, "columns are characters, not bytes");
    }

    #[test]
    fn trailing_space_is_refused() {
        assert_eq!(count("fn a() {} \n"), 1);
    }
}
