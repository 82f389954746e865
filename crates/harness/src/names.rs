//! Unknown names, with suggestions.

use thiserror::Error;

/// Returns the candidate most similar to `word`: with a Jaro-Winkler similarity of at least 0.7
/// (which weighs common prefixes), or with `word` as its prefix. `None` if there is no such
/// candidate.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word = word.to_lowercase();
    candidates
        .into_iter()
        .map(|name| (strsim::jaro_winkler(&word, name), name))
        .filter(|&(likeness, _)| likeness >= 0.7)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, name)| name)
}

/// A name that does not exist.
#[derive(Debug, Error)]
#[error("there is no {what} named `{given}`{}", advice(nearest.as_deref(), all))]
pub struct UnknownName {
    what: &'static str,
    given: String,
    nearest: Option<String>,
    all: Vec<String>,
}

impl UnknownName {
    /// Creates the error that `given` is not the name of a `what` (a noun such as `study`). `all`
    /// are the existing names.
    pub fn new<'a>(
        what: &'static str,
        given: &str,
        all: impl IntoIterator<Item = &'a str> + Clone,
    ) -> Self {
        Self {
            what,
            given: given.to_owned(),
            nearest: nearest(given, all.clone()).map(str::to_owned),
            all: all.into_iter().map(str::to_owned).collect(),
        }
    }
}

/// Number of names above which a list hides the nearest one.
const LISTED: usize = 8;

/// Returns the nearest name, and all names unless they are many and one is near.
fn advice(nearest: Option<&str>, all: &[String]) -> String {
    let hint = nearest.map_or(String::new(), |name| format!("; did you mean `{name}`?"));
    match all.len() {
        0 => format!("{hint} (none exists)"),
        LISTED.. if nearest.is_some() => hint,
        _ => format!("{hint} (known: {})", all.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_that_was_meant_is_found() {
        let names = ["stock", "posted", "phased"];
        assert_eq!(nearest("stok", names), Some("stock"));
        assert_eq!(nearest("Phased", names), Some("phased"));
        assert_eq!(nearest("zzz", names), None);
    }

    #[test]
    fn the_message_names_the_nearest_and_all() {
        let error = UnknownName::new("arm", "postd", ["stock", "posted"]).to_string();
        assert_eq!(
            error,
            "there is no arm named `postd`; did you mean `posted`? (known: stock, posted)"
        );
        let many: Vec<String> = (0..20).map(|n| format!("name{n}")).collect();
        let of = |given| UnknownName::new("study", given, many.iter().map(String::as_str));
        assert_eq!(
            of("nam7").to_string(),
            "there is no study named `nam7`; did you mean `name7`?",
            "a list of 20 names would hide it"
        );
        assert!(of("xyz").to_string().ends_with(
            "`xyz` (known: name0, name1, name2, name3, \
            name4, name5, name6, name7, name8, name9, name10, name11, name12, name13, name14, \
            name15, name16, name17, name18, name19)"
        ));
    }
}
