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
    /// The text of the line, or the part of a long one around the place.
    source: String,
    /// The number of characters before the place in it.
    before: usize,
}

/// Most characters of a line that an error shows before and after its place.
const AROUND: usize = 80;
/// Most characters of a problem. A name in it may be as long as the script.
const LONGEST: usize = 600;

/// Returns text without characters that change what a terminal does.
fn plain(text: impl Iterator<Item = char>) -> String {
    let is_plain = |letter: char| letter == '\t' || !letter.is_control();
    text.map(|letter| if is_plain(letter) { letter } else { char::REPLACEMENT_CHARACTER }).collect()
}

/// Returns the beginning of a problem, with a mark where it was cut.
fn short(what: &str) -> String {
    let cut = what.chars().nth(LONGEST).map_or("", |_| " ..");
    format!("{}{cut}", plain(what.chars().take(LONGEST)))
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
        let column = text[begin..at].chars().count();
        let skipped = column.saturating_sub(AROUND);
        Self {
            file: file.to_owned(),
            line: before.matches('\n').count() + 1,
            column: column + 1,
            what: short(&what),
            source: plain(line.chars().skip(skipped).take(2 * AROUND)),
            before: column - skipped,
        }
    }
}

impl fmt::Display for ScriptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, line, column, what, source, before } = self;
        writeln!(f, "{file}:{line}:{column}: {what}")?;
        // A tab stays one, so that the mark is below its character.
        let blank = |letter: char| if letter == '\t' { '\t' } else { ' ' };
        let indent: String = source.chars().take(*before).map(blank).collect();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_any_text_is_short_and_without_escapes() {
        let text = format!("a\n{}\u{1b}]0;x\u{7}{}", "b".repeat(5000), "c".repeat(5000));
        let error = ScriptError::new("x.mms", &text, 5002, "d\u{1b}[2J".repeat(10_000));
        let shown = error.to_string();
        assert!(shown.len() < 2000, "{} bytes", shown.len());
        assert!(!shown.chars().any(|letter| letter.is_control() && letter != '\n'), "{shown:?}");
        let lines: Vec<&str> = shown.lines().collect();
        let mark = lines[2].chars().position(|letter| letter == '^').unwrap();
        assert_eq!(lines[1].chars().nth(mark), Some(char::REPLACEMENT_CHARACTER), "{shown}");
        assert!(lines[0].starts_with("x.mms:2:5001: d"), "{shown}");
    }
}
