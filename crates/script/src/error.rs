//! Errors in a script, with their places.

use std::fmt;

/// An error in the text of a script.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ScriptError {
    /// The name of the file.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// The column in characters, from 1.
    pub column: usize,
    /// The problem, and what to do.
    pub what: String,
    /// The text of the line.
    source: String,
}

impl ScriptError {
    /// Creates an error at a byte of a text.
    pub(crate) fn new(file: &str, text: &str, at: usize, what: String) -> Self {
        let mut at = at.min(text.len());
        while !text.is_char_boundary(at) {
            at -= 1;
        }
        let before = &text[..at];
        let begin = before.rfind('\n').map_or(0, |newline| newline + 1);
        let line = text[begin..].lines().next().unwrap_or("");
        Self {
            file: file.to_owned(),
            line: before.matches('\n').count() + 1,
            column: text[begin..at].chars().count() + 1,
            what,
            source: line.to_owned(),
        }
    }
}

impl fmt::Display for ScriptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, line, column, what, source } = self;
        writeln!(f, "{file}:{line}:{column}: {what}")?;
        // A tab stays one, so that the mark is below its character.
        let blank = |letter: char| if letter == '\t' { '\t' } else { ' ' };
        let indent: String = source.chars().take(column - 1).map(blank).collect();
        let width = line.to_string().len();
        writeln!(f, "{line} | {source}")?;
        write!(f, "{:width$} | {indent}^", "")
    }
}

impl std::error::Error for ScriptError {}

/// An error at a place of the text.
#[derive(Debug)]
pub(crate) struct Wrong {
    pub(crate) at: usize,
    pub(crate) what: String,
}

/// Creates an error as a result.
pub(crate) fn wrong<T>(at: usize, what: impl Into<String>) -> Result<T, Wrong> {
    Err(Wrong { at, what: what.into() })
}

/// Returns the known name most similar to `word`.
pub(crate) fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let likeness =
        |name: &'a str| (strsim::jaro_winkler(&word.to_lowercase(), &name.to_lowercase()), name);
    let all = known.into_iter().map(likeness).filter(|(likeness, _)| *likeness >= 0.75);
    all.max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, name)| name)
}

/// Number of names above which a list hides the nearest one.
const LISTED: usize = 8;

/// Returns the error that `given` is not the name of a `what`, with the nearest name, and with all
/// names unless they are many and one is near.
pub(crate) fn unknown<'a>(
    what: &str,
    given: &str,
    known: impl IntoIterator<Item = &'a str> + Clone,
) -> String {
    let nearest = nearest(given, known.clone());
    let hint = nearest.map_or(String::new(), |name| format!("; did you mean `{name}`?"));
    let known: Vec<&str> = known.into_iter().collect();
    let known = match known.len() {
        0 => " (none exists)".to_owned(),
        LISTED.. if nearest.is_some() => String::new(),
        _ => format!(" (known: {})", known.join(", ")),
    };
    format!("there is no {what} named `{given}`{hint}{known}")
}
