//! The standard documents of a project exist, and the two commands that they promise are run by
//! continuous integration.

use super::{Finding, Tree};

const PAPERS: [&str; 7] = [
    "README.md",
    "ARCHITECTURE.md",
    "CAVEATS.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "LICENSE-MIT",
    "LICENSE-APACHE",
];

/// The main command and the tests.
const COMMANDS: [&str; 2] = ["cargo run --release -- run all", "cargo test --workspace"];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let missing = PAPERS.iter().filter(|paper| !tree.has(paper));
    let mut found: Vec<Finding> =
        missing.map(|paper| Finding::new(paper, 0, "is missing: add it")).collect();
    for (path, role) in [("README.md", "promise"), (".ci/run", "run")] {
        let text = tree.source(path).map_or("", |source| source.text.as_str());
        for command in COMMANDS.iter().filter(|command| !text.contains(**command)) {
            found.push(Finding::new(path, 0, format!("does not {role} `{command}`: add it")));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_papers_and_commands_are_caught() {
        let both = COMMANDS.join("\n");
        let mut files: Vec<(&str, &str)> = PAPERS.iter().map(|paper| (*paper, "x")).collect();
        files[0].1 = &both;
        files.push((".ci/run", &both));
        assert!(check(&Tree::of(&files)).is_empty());
        for (at, paper) in PAPERS.iter().enumerate().skip(1) {
            let mut fewer = files.clone();
            fewer.remove(at);
            assert_eq!(check(&Tree::of(&fewer)).len(), 1, "{paper}");
        }
        files[0].1 = COMMANDS[0];
        assert_eq!(check(&Tree::of(&files))[0].path, "README.md");
    }
}
