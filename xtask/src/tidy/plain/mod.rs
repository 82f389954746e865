//! Comments, pages and messages are plain technical English: [`phrases`] has what is refused.
//!
//! A hit that has to stay gives its reason as for every rule: `// tidy: plain: the reason`.

mod phrases;
mod prose;

use super::{Finding, Source, Tree, is_excused};
use phrases::PHRASES;
use prose::{Block, Kind};
use regex::Regex;

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    hits(tree).into_iter().map(|(_, hit)| hit).collect()
}

/// Every hit that is not excused, with its area, by path and line.
pub fn hits(tree: &Tree) -> Vec<(&str, Finding)> {
    let phrases: Vec<Phrase> = PHRASES.iter().map(Phrase::new).collect();
    let mut found = Vec::new();
    for source in tree.sources().filter(|source| is_checked(source)) {
        for block in prose::blocks(source) {
            for phrase in &phrases {
                phrase.find(&block, |line, text| {
                    let what = format!("`{text}`: {}", phrase.instead);
                    found.push((area(source), Finding::new(&source.path, line, what)));
                });
            }
        }
    }
    found.retain(|(_, finding)| !is_excused(tree, finding, "plain"));
    found.sort_by(|a, b| (&a.1.path, a.1.line).cmp(&(&b.1.path, b.1.line)));
    found
}

/// Every phrase with what to write instead, and a sentence that is refused for it.
pub fn phrases() -> impl Iterator<Item = String> {
    PHRASES.iter().map(|row| format!("{}\n    not: {}", row.instead, row.example))
}

/// The crate of a file; `pages` for what is in none.
fn area(source: &Source) -> &str {
    source.krate().unwrap_or("pages")
}

/// This folder has to quote the phrases.
fn is_checked(source: &Source) -> bool {
    !source.path.starts_with("xtask/src/tidy/plain/")
}

/// A compiled row of [`PHRASES`].
struct Phrase {
    pattern: Regex,
    instead: &'static str,
    docs_only: bool,
}

impl Phrase {
    fn new(row: &phrases::Row) -> Self {
        let pattern = Regex::new(row.pattern).expect("a pattern of the table compiles");
        Self { pattern, instead: row.instead, docs_only: row.docs_only }
    }

    /// Calls `hit` with the line and the text of each match in `block`.
    fn find(&self, block: &Block, mut hit: impl FnMut(usize, &str)) {
        if self.docs_only && block.kind != Kind::Doc {
            return;
        }
        for found in self.pattern.find_iter(&block.text) {
            if !is_question(&block.text[found.start()..]) {
                hit(block.line_at(found.end() - 1), found.as_str().trim());
            }
        }
    }
}

/// Whether a sentence ends with a question mark: it may begin with `What` or `Who`.
fn is_question(rest: &str) -> bool {
    let begins = rest.trim_start_matches(['.', ';', ' ']);
    let asks = begins.starts_with("What") || begins.starts_with("Who");
    asks && begins.find(['.', '?', '!']).is_some_and(|at| begins[at..].starts_with('?'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(path: &str, text: &str) -> Vec<usize> {
        let tree = Tree::of(&[(path, text)]);
        hits(&tree).into_iter().map(|(_, found)| found.line).collect()
    }

    #[test]
    fn each_phrase_has_an_example_that_it_finds() {
        for row in PHRASES {
            let phrase = Phrase::new(row);
            let comment = format!("/// {}\nfn f() {{}}\n", row.example);
            let tree = Tree::of(&[("crates/mm/src/a.rs", &comment)]);
            let source = tree.source("crates/mm/src/a.rs").expect("it is there");
            let mut count = 0;
            prose::blocks(source).iter().for_each(|block| phrase.find(block, |_, _| count += 1));
            assert_eq!(count, 1, "{} in {:?}", row.pattern, row.example);
        }
    }

    #[test]
    fn a_phrase_is_found_across_lines_and_at_its_last() {
        let text = "fn f() {\n    // It has to let the lock\n    // go there.\n    g();\n}\n";
        assert_eq!(lines("crates/mm/src/a.rs", text), [3]);
    }

    #[test]
    fn code_and_names_are_not_prose() {
        let text = "// `nobody` and [`let_it_go`]\nfn nobody() { let beside = 1; }\n";
        assert_eq!(lines("crates/mm/src/a.rs", text), [0; 0]);
        assert_eq!(lines("docs/a.md", "# A\n\n```\nnobody\n```\n\nnobody\n"), [7]);
    }

    #[test]
    fn messages_count_and_single_words_do_not() {
        let text = "fn f() { g(\"nobody has it\"); h(\"nobody\"); }\n";
        assert_eq!(lines("crates/mm/src/a.rs", text), [1]);
    }

    #[test]
    fn a_question_may_begin_with_what() {
        assert_eq!(lines("docs/a.md", "# A\n\nIt waits. What limits it? Read on.\n"), [0; 0]);
        assert_eq!(lines("docs/a.md", "# A\n\nIt waits. What is there goes.\n"), [3]);
    }

    #[test]
    fn a_reason_excuses_a_hit() {
        let text = "// tidy: plain: quotes the message of Linux\n// nobody cared\n";
        assert_eq!(lines("crates/mm/src/a.rs", text), [0; 0]);
    }
}
