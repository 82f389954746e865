//! House rules, one module each.
//!
//! A rule checks the whole [`Tree`] and returns [`Finding`]s. Each rule has a test in which a
//! planted violation is found. A line that must break a rule has a reason on the same line or on
//! the one above: `// tidy: RULE: the reason`, with the rule's name in [`RULES`].

mod circles;
mod determinism;
mod direction;
mod figures;
mod floats;
mod links;
mod marks;
mod opened;
mod orderings;
mod pages;
mod papers;
mod places;
pub mod plain;
mod planted;
mod policies;
mod reached;
mod size;
mod studies;
mod tree;

pub use tree::{Source, Tree};

use std::fmt;

/// A rule over the whole tree.
pub type Rule = fn(&Tree) -> Vec<Finding>;

/// All rules by name.
pub const RULES: &[(&str, Rule)] = &[
    ("size", size::check),
    ("determinism", determinism::check),
    ("floats", floats::check),
    ("direction", direction::check),
    ("circles", circles::check),
    ("reached", reached::check),
    ("marks", marks::check),
    ("places", places::check),
    ("opened", opened::check),
    ("orderings", orderings::check),
    ("pages", pages::check),
    ("figures", figures::check),
    ("plain", plain::check),
    ("links", links::check),
    ("studies", studies::check),
    ("papers", papers::check),
    ("policies", policies::check),
    ("planted", planted::check),
];

/// A violation of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The file, relative to the root.
    pub path: String,
    /// The line number, from 1; 0 for the file as a whole.
    pub line: usize,
    /// The problem, and what to do.
    pub what: String,
}

impl Finding {
    fn new(path: &str, line: usize, what: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, what: what.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line.max(1), self.what)
    }
}

/// Runs every rule. Findings are sorted by file and line.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut all = Vec::new();
    for (name, rule) in RULES {
        let mut found = rule(tree);
        found.retain(|finding| !is_excused(tree, finding, name));
        for finding in &mut found {
            finding.what = format!("[{name}] {}", finding.what);
        }
        all.append(&mut found);
    }
    all.extend(tree.sources().filter_map(unparsed));
    all.sort_by(|a, b| (&a.path, a.line, &a.what).cmp(&(&b.path, b.line, &b.what)));
    all
}

/// Reports a Rust file that cannot be parsed, because it would pass every rule.
fn unparsed(source: &Source) -> Option<Finding> {
    let why = source.is_rust().then(|| source.parse_error())??;
    Some(Finding::new(&source.path, why.0, format!("cannot be parsed: {}", why.1)))
}

/// Returns whether the line, or the one above, has a reason for breaking `rule`.
fn is_excused(tree: &Tree, finding: &Finding, rule: &str) -> bool {
    let Some(source) = tree.source(&finding.path) else { return false };
    let mark = format!("// tidy: {rule}: ");
    let reason = |line: &str| {
        line.split_once(mark.as_str()).is_some_and(|(_, reason)| reason.trim().len() >= 8)
    };
    let at = finding.line.saturating_sub(1);
    source.text.lines().skip(at.saturating_sub(1)).take(1 + at.min(1)).any(reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn broken(comment: &str) -> Vec<Finding> {
        let text = format!("fn now() {{\n    {comment}\n    std::time::Instant::now();\n}}\n");
        let tree = Tree::of(&[("crates/sim/src/clock.rs", &text)]);
        check(&tree).into_iter().filter(|found| found.what.contains("[determinism]")).collect()
    }

    #[test]
    fn a_reason_excuses_only_its_own_rule() {
        assert_eq!(broken("").len(), 1);
        assert_eq!(broken("// tidy: determinism: host time of a progress bar").len(), 0);
        assert_eq!(broken("// tidy: floats: host time of a progress bar").len(), 1);
        assert_eq!(broken("// tidy: determinism: ok").len(), 1, "that is no reason");
    }

    #[test]
    fn a_finding_reads_like_a_compiler_message() {
        let found = &broken("")[0];
        assert!(found.to_string().starts_with("crates/sim/src/clock.rs:3: [determinism] "));
    }

    #[test]
    fn a_file_that_does_not_parse_is_a_finding() {
        let tree = Tree::of(&[("crates/mm/src/x.rs", "fn f() {\n    let = ;\n}\n")]);
        let found = check(&tree);
        assert!(found.iter().any(|f| f.line == 2 && f.what.contains("cannot be parsed")));
    }
}
