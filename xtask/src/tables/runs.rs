//! The runs that fill the tables.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The list of runs: a name, and the words after `mmscale run`.
const LIST: &str = "testing/tables.txt";

/// Executes all runs of the list. Returns the folders of their documents.
///
/// # Errors
/// A list that cannot be read, or a run that fails.
pub(super) fn execute(root: &Path) -> Result<Vec<PathBuf>, String> {
    let text = fs::read_to_string(root.join(LIST));
    let text = text.map_err(|why| format!("reading {LIST}: {why}"))?;
    rows(&text).map(|(name, words)| execute_one(root, name, &words)).collect()
}

/// Returns the names and words of a list.
fn rows(text: &str) -> impl Iterator<Item = (&str, Vec<&str>)> {
    text.lines().filter(|line| !line.starts_with('#')).filter_map(|line| {
        let mut words = line.split_whitespace();
        Some((words.next()?, words.collect()))
    })
}

fn execute_one(root: &Path, name: &str, words: &[&str]) -> Result<PathBuf, String> {
    let folder = root.join("target/tables").join(name);
    let mut cargo = Command::new(env!("CARGO"));
    cargo.current_dir(root).args(["run", "--release", "--", "run"]).args(words);
    cargo.args(["--replace", "--output"]).arg(&folder).stdout(std::process::Stdio::null());

    eprintln!("tables: {name}");
    let status = cargo.status().map_err(|why| format!("cannot run {cargo:?}: {why}"))?;
    if status.success() { Ok(folder) } else { Err(format!("{cargo:?} failed")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_has_names_and_words() {
        let found: Vec<_> = rows("# a comment\n\nall   all\nx  reap --set pages=1\n").collect();
        assert_eq!(found, [("all", vec!["all"]), ("x", vec!["reap", "--set", "pages=1"])]);
    }
}
