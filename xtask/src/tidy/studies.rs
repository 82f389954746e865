//! A study is a folder with its settings (`study.toml`) and its description (`README.md`).

use super::{Finding, Tree};
use std::collections::BTreeSet;

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let folder = |path: &str| {
        let (name, _) = path.strip_prefix("studies/")?.split_once('/')?;
        (name != "tests").then(|| name.to_owned())
    };
    let studies: BTreeSet<String> = tree.sources().filter_map(|s| folder(&s.path)).collect();
    let mut found = Vec::new();
    for study in studies {
        for file in ["study.toml", "README.md"] {
            let path = format!("studies/{study}/{file}");
            if !tree.has(&path) {
                found.push(Finding::new(
                    &path,
                    0,
                    format!("study `{study}` has no {file}: add it"),
                ));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_a_study_is_caught() {
        let both = [("studies/a/study.toml", ""), ("studies/a/README.md", "# A\n")];
        assert!(check(&Tree::of(&both)).is_empty());
        assert_eq!(check(&Tree::of(&both[..1]))[0].path, "studies/a/README.md");
        assert_eq!(check(&Tree::of(&both[1..]))[0].path, "studies/a/study.toml");
    }
}
