//! Counts of outcomes.

use std::collections::BTreeSet;
use std::fmt;

use super::watch::Finding;
use crate::outcome::Outcome;

/// Counts of the outcomes of a target.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Inputs that were accepted.
    pub accepted: u64,
    /// Inputs that were refused.
    pub refused: u64,
    /// Cases with a panic.
    pub panics: u64,
    /// Cases that ended their worker, as a full stack does.
    pub ended: u64,
    /// Cases that did not end.
    pub hangs: u64,
    /// Cases with more memory than is allowed.
    pub memory: u64,
    /// Cases with wrong output.
    pub output: u64,
    /// Different findings: panics by their place, others by their first words.
    pub different: BTreeSet<String>,
}

impl Counts {
    /// Adds an outcome. Returns whether it is a finding of a new kind.
    pub(super) fn add(&mut self, finding: &Finding) -> bool {
        let count = match finding {
            Finding::Done(Outcome::Accepted) => &mut self.accepted,
            Finding::Done(Outcome::Refused(_)) => &mut self.refused,
            Finding::Done(Outcome::Wrong(what)) if what.starts_with("panic") => &mut self.panics,
            Finding::Done(Outcome::Wrong(_)) => &mut self.output,
            Finding::Ended(_) => &mut self.ended,
            Finding::Hang(_) => &mut self.hangs,
            Finding::Memory(_) => &mut self.memory,
        };
        *count += 1;
        let kind = finding.text().map(|what| match what.split_once(": ") {
            Some((place, _)) if place.starts_with("panic") => place.to_owned(),
            _ => what.chars().filter(|c| !c.is_ascii_digit()).take(60).collect(),
        });
        kind.is_some_and(|kind| self.different.insert(kind))
    }
    /// Returns the number of cases.
    pub fn cases(&self) -> u64 {
        self.accepted + self.refused + self.failed()
    }
    /// Returns the number of cases that fail the search.
    pub fn failed(&self) -> u64 {
        self.panics + self.ended + self.hangs + self.memory + self.output
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} cases: {} accepted, {} refused; {} panics, {} ended the process, {} hung, {} took \
             too much memory, {} had wrong output; {} different findings",
            self.cases(),
            self.accepted,
            self.refused,
            self.panics,
            self.ended,
            self.hangs,
            self.memory,
            self.output,
            self.different.len()
        )
    }
}

/// Returns a line for each target.
pub(super) fn table(all: &[(&str, Counts)]) -> String {
    let lines = all.iter().map(|(name, counts)| format!("{name}: {counts}"));
    lines.collect::<Vec<_>>().join("\n")
}
