//! `cargo xtask same OLD NEW`: compares the results of two folders of documents.
//!
//! A change of structure must not change a result. Documents are compared as plain JSON values, so
//! that the comparison does not depend on the types that write them. Excluded are fields that name
//! the program and the computer that made a document, and the run's cost on that computer.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::Value;

/// Fields of a document that name the program and the computer that made it.
const MAKERS: [&str; 6] = ["build", "program", "command", "host", "study_file_hash", "checksum"];

/// The prefix of the names of host metrics, at any depth.
const HOST: &str = "host_";

/// Maximum number of differences to print; the others are counted.
const SHOWN_MAX: usize = 20;

/// Compares the documents of two folders, by file name.
///
/// # Errors
/// The first differences by file and path, and files that one of the folders lacks.
pub fn check(old: &Path, new: &Path) -> Result<String, String> {
    compare(&crate::folder::read(old)?, &crate::folder::read(new)?)
}

fn compare(old: &BTreeMap<String, Value>, new: &BTreeMap<String, Value>) -> Result<String, String> {
    let mut differences = Differences::default();
    for name in old.keys().chain(new.keys()).collect::<BTreeSet<_>>() {
        match (old.get(name), new.get(name)) {
            (Some(old), Some(new)) => {
                differences.values(&format!("{name}: "), &without_makers(old), &without_makers(new))
            }
            (Some(_), None) => differences.add(format!("{name}: only in the old folder")),
            (None, _) => differences.add(format!("{name}: only in the new folder")),
        }
    }
    if old.is_empty() && new.is_empty() {
        return Err("the folders have no documents: nothing was compared".to_owned());
    }
    if differences.count == 0 {
        let (documents, values) = (old.len(), differences.compared);
        return Ok(format!(
            "same: {documents} documents, {values} values, equal but for build and host times"
        ));
    }
    let mut lines = differences.shown;
    if differences.count > lines.len() {
        let more = differences.count - (SHOWN_MAX - 1);
        lines[SHOWN_MAX - 1] = format!("and {more} more differences");
    }
    Err(lines.join("\n"))
}

/// Returns the document without the fields in [`MAKERS`].
fn without_makers(document: &Value) -> Value {
    let mut document = document.clone();
    if let Value::Object(fields) = &mut document {
        fields.retain(|name, _| !MAKERS.contains(&name.as_str()));
    }
    document
}

/// The result of a comparison.
#[derive(Default)]
struct Differences {
    /// Number of compared leaf values.
    compared: usize,
    count: usize,
    shown: Vec<String>,
}

impl Differences {
    fn add(&mut self, what: String) {
        self.count += 1;
        if self.shown.len() < SHOWN_MAX {
            self.shown.push(what);
        }
    }
    fn values(&mut self, at: &str, old: &Value, new: &Value) {
        match (old, new) {
            (Value::Object(old), Value::Object(new)) => {
                let names = old.keys().chain(new.keys()).collect::<BTreeSet<_>>();
                for name in names.into_iter().filter(|name| !name.starts_with(HOST)) {
                    self.pair(&format!("{at}.{name}"), old.get(name), new.get(name));
                }
            }
            (Value::Array(old), Value::Array(new)) => {
                for index in 0..old.len().max(new.len()) {
                    self.pair(&format!("{at}[{index}]"), old.get(index), new.get(index));
                }
            }
            _ => {
                self.compared += 1;
                if old != new {
                    self.add(format!("{at}: old {old}, new {new}"));
                }
            }
        }
    }
    fn pair(&mut self, at: &str, old: Option<&Value>, new: Option<&Value>) {
        match (old, new) {
            (Some(old), Some(new)) => self.values(at, old, new),
            (Some(_), None) => self.add(format!("{at}: only in the old document")),
            (None, _) => self.add(format!("{at}: only in the new document")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(files: &[(&str, &str)]) -> BTreeMap<String, Value> {
        let parsed = |text: &str| serde_json::from_str(text).expect("JSON");
        files.iter().map(|(name, text)| ((*name).to_owned(), parsed(text))).collect()
    }

    const OLD: &str = r#"{"build": 1, "host": {"cpu": "a"}, "cpus": 8,
        "arms": [{"arm": "stock", "host_metrics": {"s": 1.5}, "seeds": [1, 2]}]}"#;

    #[test]
    fn builds_hosts_and_host_times_are_left_out() {
        let new = r#"{"build": 2, "host": {"cpu": "b"}, "command": ["x"], "cpus": 8,
            "arms": [{"arm": "stock", "host_metrics": {"s": 9.5}, "seeds": [1, 2]}]}"#;
        let done = compare(&folder(&[("a.json", OLD)]), &folder(&[("a.json", new)]));
        let done = done.expect("equal");
        assert_eq!(done, "same: 1 documents, 4 values, equal but for build and host times");
    }

    #[test]
    fn one_changed_value_is_caught_with_its_path() {
        let broken = OLD.replace("[1, 2]", "[1, 3]");
        let why = compare(&folder(&[("a.json", OLD)]), &folder(&[("a.json", &broken)]));
        assert_eq!(why.expect_err("it differs"), "a.json: .arms[0].seeds[1]: old 2, new 3");
        let longer = OLD.replace("[1, 2]", "[1, 2, 3]");
        let why = compare(&folder(&[("a.json", OLD)]), &folder(&[("a.json", &longer)]));
        let why = why.expect_err("it is longer");
        assert_eq!(why, "a.json: .arms[0].seeds[2]: only in the new document");
    }

    #[test]
    fn missing_files_and_empty_folders_are_caught() {
        let both = folder(&[("a.json", OLD), ("b.json", OLD)]);
        let why = compare(&both, &folder(&[("a.json", OLD)])).expect_err("a file is missing");
        assert_eq!(why, "b.json: only in the old folder");
        let why = compare(&folder(&[]), &both).expect_err("files are missing");
        assert_eq!(why.lines().count(), 2);
        assert!(compare(&folder(&[]), &folder(&[])).is_err());
    }

    #[test]
    fn twenty_lines_are_printed_at_most() {
        let numbers = |from: u32| serde_json::json!((from..from + 50).collect::<Vec<_>>());
        let old = BTreeMap::from([("a.json".to_owned(), numbers(0))]);
        let new = BTreeMap::from([("a.json".to_owned(), numbers(100))]);
        let why = compare(&old, &new).expect_err("all differ");
        assert_eq!(why.lines().count(), SHOWN_MAX);
        assert!(why.ends_with("and 31 more differences"), "{why}");
    }
}
