//! The mutants that `cargo mutants` lists, and a sample of them.

use serde::Deserialize;
use sha2::{Digest, Sha256};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::process::{Command, Stdio};

/// The crates that are mutated, without the prefix of all crates.
pub(super) const CRATES: [&str; 3] = ["arch", "frames", "mm"];

/// A place in a source as `cargo mutants` counts: lines and characters, both from 1.
#[derive(Deserialize, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct At {
    pub(super) line: usize,
    pub(super) column: usize,
}

/// One change of one source.
#[derive(Deserialize, Clone, Debug)]
pub(super) struct Mutant {
    /// File, place and change; unique.
    pub(super) name: String,
    pub(super) package: String,
    /// The path, relative to the workspace's root.
    pub(super) file: String,
    pub(super) genre: String,
    /// The text that replaces what is in `span`.
    pub(super) replacement: String,
    pub(super) span: Span,
}

/// The text that a mutant replaces.
#[derive(Deserialize, Clone, Copy, Debug)]
pub(super) struct Span {
    pub(super) start: At,
    pub(super) end: At,
}

impl Mutant {
    pub(super) fn krate(&self) -> &str {
        self.package.trim_start_matches("mmscale-")
    }
    /// Returns the source with this change.
    pub(super) fn applied(&self, source: &str) -> String {
        let Range { start, end } = bytes(source, self.span.start, self.span.end);
        [&source[..start], &self.replacement, &source[end..]].concat()
    }
    /// Returns the file and the change, without the place in the file.
    fn change(&self) -> String {
        let change = self.name.split_once(": ").map_or("", |(_, change)| change);
        format!("{}: {change}", self.file)
    }
}

/// Returns the range of bytes of `source` between two places.
pub(super) fn bytes(source: &str, start: At, end: At) -> Range<usize> {
    let of = |at: At| {
        let mut lines = source.split_inclusive('\n');
        let before: usize = lines.by_ref().take(at.line - 1).map(str::len).sum();
        let line = lines.next().unwrap_or_default();
        let within = line.char_indices().nth(at.column - 1).map_or(line.len(), |(byte, _)| byte);
        before + within
    };
    of(start)..of(end)
}

/// Returns all mutants of the crates.
///
/// # Errors
/// Fails if `cargo mutants` is missing or fails, or if its output cannot be parsed.
pub(super) fn all(root: &Path) -> Result<Vec<Mutant>, String> {
    let mut cargo = Command::new("cargo");
    cargo.current_dir(root).args(["mutants", "--list", "--json"]).stderr(Stdio::inherit());
    CRATES.iter().for_each(|krate| _ = cargo.arg("-p").arg(format!("mmscale-{krate}")));
    let output = cargo.output().map_err(|why| format!("starting cargo: {why}"))?;
    if !output.status.success() {
        return Err("`cargo mutants --list` failed: is it installed? \
                    cargo install cargo-mutants --locked"
            .to_owned());
    }
    serde_json::from_slice(&output.stdout).map_err(|why| format!("cargo mutants --list: {why}"))
}

/// Returns `size` of the mutants in a random order. Each crate's share is in proportion to its
/// number of mutants. A mutant's rank depends on the seed, the file and the change, not on the
/// line: an edit of one function does not change the rest of the sample.
pub(super) fn sample(all: Vec<Mutant>, size: usize, seed: u64) -> Vec<Mutant> {
    let total = all.len().max(1);
    let (mut seen, mut crates) = (BTreeMap::new(), BTreeMap::<String, Vec<_>>::new());
    for mutant in all {
        let change = mutant.change();
        let nth: &mut u32 = seen.entry(change.clone()).or_default();
        *nth += 1;
        let rank: [u8; 32] = Sha256::digest(format!("{seed} {nth} {change}")).into();
        crates.entry(mutant.package.clone()).or_default().push((rank, mutant));
    }
    let (mut before, mut drawn) = (0, Vec::new());
    for mut of_crate in crates.into_values() {
        of_crate.sort_by_key(|(rank, _)| Reverse(*rank));
        let after = before + of_crate.len();
        let share = after * size / total - before * size / total;
        drawn.extend(of_crate.into_iter().take(share));
        before = after;
    }
    drawn.sort_by_key(|(rank, _)| Reverse(*rank));
    drawn.into_iter().map(|(_, mutant)| mutant).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns `count` mutants of a crate, `below` lines further down.
    fn of(krate: &str, count: usize, below: usize) -> Vec<Mutant> {
        let one = |number| {
            let start = At { line: number + below, column: 1 };
            Mutant {
                name: format!("{krate}.rs:{}:1: replace f{number} with ()", start.line),
                package: format!("mmscale-{krate}"),
                file: format!("{krate}.rs"),
                genre: "FnValue".to_owned(),
                replacement: "()".to_owned(),
                span: Span { start, end: start },
            }
        };
        (1..=count).map(one).collect()
    }

    #[test]
    fn a_sample_is_in_proportion_and_the_same_where_lines_move() {
        let drawn = |seed, below| -> Vec<String> {
            let all = [of("arch", 100, below), of("mm", 300, below)].concat();
            sample(all, 40, seed).iter().map(Mutant::change).collect()
        };
        let (first, again) = (drawn(1, 0), drawn(1, 7));
        assert_eq!(first.iter().filter(|change| change.starts_with("arch")).count(), 10);
        assert_eq!((first.len(), &again), (40, &first));
        assert_ne!(drawn(2, 0), first);
    }

    #[test]
    fn columns_are_characters() {
        let source = "one\n\u{e4}\u{e4} two\n";
        let (start, end) = (At { line: 2, column: 4 }, At { line: 2, column: 7 });
        assert_eq!(&source[bytes(source, start, end)], "two");
    }
}
