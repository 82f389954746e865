//! An atomic operation stronger than relaxed has a comment that names its partner.
//!
//! The comment is on the line or in the four lines above, so that neighbouring operations can share
//! one. A doc comment does not count: it describes the function, not the operation. Checked are the
//! crates of the memory manager, without the unit tests at the end of a file.

use super::{Finding, Source, Tree};

/// The crates of the memory manager.
const CRATES: [&str; 3] = ["arch", "frames", "mm"];
/// The orderings that need a partner.
const STRONG: [&str; 4] = ["Acquire", "Release", "AcqRel", "SeqCst"];
/// Lines above an operation in which the comment may be.
const NEAR: usize = 4;

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let concerned = |source: &&Source| {
        source.krate().is_some_and(|krate| CRATES.contains(&krate)) && source.part() == "src"
    };
    tree.rust().filter(concerned).flat_map(bare).collect()
}

/// Finds the operations of a file that have no comment.
fn bare(source: &Source) -> Vec<Finding> {
    let lines: Vec<&str> = source.text.lines().map(str::trim).collect();
    let tests = lines.windows(2).position(|two| two[0] == "#[cfg(test)]" && is_module(two[1]));
    let checked = lines.iter().enumerate().take(tests.unwrap_or(lines.len()));
    let mut found = Vec::new();
    for (at, line) in checked.filter(|(_, line)| is_strong(line)) {
        let near = lines[at.saturating_sub(NEAR)..at].iter().any(|line| is_comment(line));
        if !near && !line.contains("//") {
            let what = "an ordering without a comment: name the operation that it pairs with, and \
                        what becomes visible";
            found.push(Finding::new(&source.path, at + 1, what));
        }
    }
    found
}

/// Returns whether a line has an operation that needs a partner.
fn is_strong(line: &str) -> bool {
    let other = ["//", "use ", "pub use "].iter().any(|start| line.starts_with(start));
    let mut words = line.split(|sign: char| !sign.is_alphanumeric() && sign != '_');
    !other && words.any(|word| STRONG.contains(&word))
}

/// Returns whether a line begins a module that is in the same file.
fn is_module(line: &str) -> bool {
    line.starts_with("mod ") && line.ends_with('{')
}

/// Returns whether a line is a comment, and not documentation.
fn is_comment(line: &str) -> bool {
    line.starts_with("//") && !line.starts_with("///") && !line.starts_with("//!")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(path: &str, text: &str) -> Vec<usize> {
        check(&Tree::of(&[(path, text)])).iter().map(|found| found.line).collect()
    }

    #[test]
    fn an_ordering_needs_a_comment_nearby() {
        let text = |above: &str, line: &str| format!("{above}\nfn f() {{\n    {line}\n}}\n");
        let found = |above: &str, line: &str| lines("crates/mm/src/a.rs", &text(above, line));
        assert_eq!(found("", "word.load(Acquire);"), [3]);
        assert_eq!(found("", "word.swap(0, Ordering::SeqCst);"), [3]);
        assert_eq!(found("/// Pairs with the store.", "word.load(Acquire);"), [3], "documentation");
        assert_eq!(found("// Pairs with the store.", "word.load(Acquire);"), [0; 0]);
        assert_eq!(found("", "word.load(Acquire); // Pairs with the store."), [0; 0]);
        assert_eq!(found("// Far away.\n\n\n", "word.load(Acquire);"), [6]);
        assert_eq!(found("// As far as allowed.\n\n", "word.load(Acquire);"), [0; 0]);
        assert_eq!(found("use Ordering::Release;", "word.load(Relaxed);"), [0; 0]);
    }

    #[test]
    fn unit_tests_and_other_crates_may_leave_it_out() {
        let text =
            "fn f() {}\n#[cfg(test)]\nmod tests {\n    fn f() {\n        a(SeqCst)\n    }\n}\n";
        assert_eq!(lines("crates/mm/src/a.rs", text), [0; 0]);
        let text = "#[cfg(test)]\nmod tests;\nfn f() {\n    a(SeqCst)\n}\n";
        assert_eq!(lines("crates/mm/src/a.rs", text), [4], "the module is another file");
        let text = "fn f() {\n    word.load(Acquire);\n}\n";
        assert_eq!(lines("crates/frames/src/a.rs", text), [2]);
        assert_eq!(lines("crates/mm/tests/a.rs", text), [0; 0]);
        assert_eq!(lines("crates/sim/src/a.rs", text), [0; 0]);
    }
}
