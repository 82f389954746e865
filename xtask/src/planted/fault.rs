//! The faults, which `testing/faults.toml` declares.

use serde::Deserialize;
use std::collections::BTreeMap;

/// The file with the faults.
pub(crate) const DECLARED: &str = "testing/faults.toml";

/// Whether the tests are expected to catch a fault.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Expected {
    /// They catch it within seconds: it is part of `cargo xtask planted --quick`.
    Quick,
    /// They catch it.
    Caught,
    /// They do not catch it, for this reason.
    Missed(String),
}

/// A deliberate error.
#[derive(Deserialize, Clone, Debug)]
#[serde(deny_unknown_fields)]
pub(crate) struct Fault {
    /// The name that selects it.
    pub(crate) name: String,
    /// Description of the error: one sentence.
    pub(crate) what: String,
    /// A part of the names of the tests that run first, because they are about this protocol.
    pub(crate) tests: String,
    /// Whether it is expected to be caught.
    pub(crate) expected: Expected,
    /// The source, relative to the root.
    pub(crate) file: String,
    /// The changes of the source.
    #[serde(rename = "edit")]
    pub(crate) edits: Vec<Edit>,
}

/// One change of a source.
#[derive(Deserialize, Clone, Debug)]
#[serde(deny_unknown_fields)]
pub(crate) struct Edit {
    /// The name of the functions that are searched. All of the source if there is none.
    pub(crate) function: Option<String>,
    /// Code that occurs there exactly once.
    pub(crate) from: String,
    /// The code in its place.
    pub(crate) to: String,
}

/// The root of [`DECLARED`].
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Declarations {
    fault: Vec<Fault>,
}

impl Fault {
    /// Returns the crate that contains the fault, without the prefix of all crates.
    pub(crate) fn krate(&self) -> &str {
        let inside = self.file.strip_prefix("crates/").and_then(|rest| rest.split_once('/'));
        inside.map_or("", |(krate, _)| krate)
    }
}

/// Reads the faults from the text of [`DECLARED`].
///
/// # Errors
/// The place and the reason if the text cannot be parsed.
pub(crate) fn parse(text: &str) -> Result<Vec<Fault>, String> {
    let read: Result<Declarations, _> = toml::from_str(text);
    Ok(read.map_err(|why| format!("{DECLARED}: {why}"))?.fault)
}

/// Returns the faults of each source, with their index in `faults`.
pub(crate) fn by_file(faults: &[Fault]) -> BTreeMap<&str, Vec<(usize, &Fault)>> {
    let mut files = BTreeMap::<&str, Vec<_>>::new();
    for (index, fault) in faults.iter().enumerate() {
        files.entry(&fault.file).or_default().push((index, fault));
    }
    files
}

/// Faults for tests: one that is caught, one of `mm` that is caught in seconds, one that is missed.
#[cfg(test)]
pub(crate) fn some() -> Vec<Fault> {
    let row = |name: &str, krate: &str, expected: &str| {
        format!(
            "[[fault]]\nname = '{name}'\nwhat = 'It is wrong.'\ntests = 'of_{name}'\n\
             expected = {expected}\nfile = 'crates/{krate}/src/a.rs'\n\
             [[fault.edit]]\nfrom = 'right()'\nto = 'wrong()'\n"
        )
    };
    let all = [
        row("lock-open", "arch", "'caught'"),
        row("grace-skipped", "mm", "'quick'"),
        row("grace-late", "mm", "{ missed = 'the window is short' }"),
    ];
    parse(&all.concat()).unwrap()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_is_read_with_its_crate() {
        let faults = some();
        assert_eq!(faults[1].krate(), "mm");
        assert_eq!(faults[2].expected, Expected::Missed("the window is short".to_owned()));
        let files = by_file(&faults);
        let of_mm = files["crates/mm/src/a.rs"].iter().map(|(index, _)| *index);
        assert_eq!(of_mm.collect::<Vec<_>>(), [1, 2]);
    }

    #[test]
    fn an_unknown_key_is_refused() {
        let refused = parse("[[fault]]\nnaem = 'a'\n").unwrap_err();
        assert!(refused.contains("naem"), "{refused}");
    }
}
