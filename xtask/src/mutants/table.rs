//! The printed results: the mutants, and which test caught which.

use serde::{Deserialize, Serialize};
use std::fmt::Write;

/// The result of a mutant.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    /// The mutant was caught: this test failed.
    Caught(String),
    /// The mutant was caught: this test did not end in time.
    Timeout(String),
    /// The change does not compile.
    Unbuildable,
    /// All tests that reach the place passed.
    Missed,
    /// No test reaches the place.
    Unreached,
}

impl Verdict {
    /// Returns whether further tests cannot change the verdict.
    pub(super) fn is_settled(&self) -> bool {
        !matches!(self, Self::Missed | Self::Unreached)
    }
    fn name(&self) -> &'static str {
        match self {
            Self::Caught(_) => "caught",
            Self::Timeout(_) => "timeout",
            Self::Unbuildable => "unbuildable",
            Self::Missed => "**missed**",
            Self::Unreached => "**not reached**",
        }
    }
    fn by(&self) -> &str {
        match self {
            Self::Caught(by) | Self::Timeout(by) => by,
            _ => "",
        }
    }
}

/// A mutant and its result.
#[derive(Serialize, Deserialize, Clone, Debug)]
pub(super) struct Row {
    pub(super) name: String,
    pub(super) verdict: Verdict,
    pub(super) seconds: f64,
}

impl Row {
    /// Formats the row as one line.
    pub(super) fn short(&self) -> String {
        let Self { name, verdict, seconds } = self;
        format!("{seconds:.1} s: {name}: {} {}", verdict.name(), verdict.by())
    }
}

/// Formats the rows as a Markdown table.
pub(super) fn markdown(rows: &[&Row]) -> String {
    let mut text = "| mutant | | by | s |\n|---|---|---|---|\n".to_owned();
    for Row { name, verdict, seconds } in rows {
        // A bar would end the cell. Writing to a string does not fail.
        let name = name.replace('|', "\\|");
        let _ =
            writeln!(text, "| `{name}` | {} | {} | {seconds:.1} |", verdict.name(), verdict.by());
    }
    text
}

/// Returns the sums; as an error if a mutant was missed.
pub(super) fn verdict(rows: &[&Row]) -> Result<String, String> {
    let count = |of: fn(&Verdict) -> bool| rows.iter().filter(|row| of(&row.verdict)).count();
    let missed: Vec<String> = (rows.iter().filter(|row| !row.verdict.is_settled()))
        .map(|row| format!("{} {}", row.verdict.name().replace('*', ""), row.name))
        .collect();
    let told = format!(
        "mutants: {} of {} caught, {} of them by a test that does not end; {} do not compile",
        count(|of| matches!(of, Verdict::Caught(_) | Verdict::Timeout(_))),
        rows.len(),
        count(|of| matches!(of, Verdict::Timeout(_))),
        count(|of| *of == Verdict::Unbuildable),
    );
    if missed.is_empty() { Ok(told) } else { Err(format!("{told}\n{}", missed.join("\n"))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missed_mutant_is_an_error() {
        let of = |verdict| Row { name: "a.rs:1:1: a | b".to_owned(), verdict, seconds: 0.5 };
        let caught = of(Verdict::Caught("mm `a::b`".to_owned()));
        let missed = of(Verdict::Unreached);
        assert!(verdict(&[&caught, &of(Verdict::Unbuildable)]).is_ok());
        let told = verdict(&[&caught, &missed]).expect_err("one is missed");
        assert!(told.contains("1 of 2 caught") && told.contains("not reached a.rs:1:1"), "{told}");
        assert!(
            markdown(&[&caught]).contains("| `a.rs:1:1: a \\| b` | caught | mm `a::b` | 0.5 |")
        );
    }
}
