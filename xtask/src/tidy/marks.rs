//! Nothing unfinished is merged: no marks for later work, no placeholder macros.

use super::{Finding, Tree};

/// Joined at compile time, so that this file is not a finding.
const MARKS: [&str; 5] = [
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("XX", "X"),
    concat!("to", "do!"),
    concat!("unimple", "mented!"),
];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for source in tree.sources().filter(|source| source.path != "Cargo.lock") {
        for (at, line) in source.text.lines().enumerate() {
            if let Some(mark) = MARKS.iter().find(|mark| holds_word(line, mark)) {
                let what = format!("`{mark}`: finish it, or document what is not covered");
                found.push(Finding::new(&source.path, at + 1, what));
            }
        }
    }
    found
}

/// Returns whether `word` occurs in `line` without adjacent alphanumeric characters.
pub(super) fn holds_word(line: &str, word: &str) -> bool {
    let part = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + word.len()..].chars().next();
        !before.is_some_and(part) && (word.ends_with('!') || !after.is_some_and(part))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mark_is_caught() {
        for mark in MARKS {
            let tree = Tree::of(&[("docs/a.md", &format!("# A\nsome {mark}: later\n"))]);
            assert_eq!(check(&tree).iter().map(|f| f.line).collect::<Vec<_>>(), [2], "{mark}");
        }
    }

    #[test]
    fn words_are_whole() {
        assert!(holds_word("a (word) b", "word") && holds_word("word", "word"));
        assert!(!holds_word("sword", "word") && !holds_word("word_b", "word"));
    }
}
