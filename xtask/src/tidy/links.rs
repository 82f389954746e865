//! Targets of pages and comments exist: relative links, their anchors, and files of the workspace
//! that are named in back quotes.

use super::pages::{headings, prose};
use super::{Finding, Source, Tree};

/// Top-level folders. A name in back quotes that begins with one is a file of the workspace.
const FOLDERS: [&str; 8] =
    ["crates/", "testing/", "studies/", "machines/", "xtask/", "docs/", "fuzz/", ".ci/"];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for source in tree.sources() {
        if source.is_page() {
            for (line, text) in prose(&source.text) {
                check_links(tree, source, line, text, &mut found);
                check_names(tree, source, line, text, &mut found);
            }
        } else if source.is_rust() {
            for (at, text) in source.text.lines().enumerate() {
                if text.trim_start().starts_with("//") {
                    check_names(tree, source, at + 1, text, &mut found);
                }
            }
        }
    }
    found
}

/// Checks `[text](target)` with a target inside the workspace.
fn check_links(tree: &Tree, page: &Source, line: usize, text: &str, found: &mut Vec<Finding>) {
    for (at, _) in text.match_indices("](") {
        let target = text[at + 2..].split([')', ' ']).next().unwrap_or("");
        if target.contains("://") || target.starts_with("mailto:") {
            continue;
        }
        let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
        let path = if file.is_empty() { page.path.clone() } else { resolve(&page.path, file) };
        if !tree.has(&path) {
            let what = format!("dead link: there is no `{path}`");
            found.push(Finding::new(&page.path, line, what));
        } else if !anchor.is_empty() && !has_anchor(tree, &path, anchor) {
            let what = format!("dead link: `{path}` has no section `#{anchor}`");
            found.push(Finding::new(&page.path, line, what));
        }
    }
}

/// Checks names in back quotes that look like files of the workspace.
fn check_names(tree: &Tree, source: &Source, line: usize, text: &str, found: &mut Vec<Finding>) {
    for name in text.split('`').skip(1).step_by(2) {
        let ours = FOLDERS.iter().any(|folder| name.starts_with(folder));
        let pattern = name.contains(|c: char| "*<>{}$ ?[],".contains(c)) || name.contains("...");
        let path = name.split(':').next().unwrap_or(name);
        if ours && !pattern && !tree.has(path) {
            let what = format!("there is no `{path}`: correct the name");
            found.push(Finding::new(&source.path, line, what));
        }
    }
}

/// Returns `target`, which is relative to the page at `from`, relative to the root.
pub(super) fn resolve(from: &str, target: &str) -> String {
    let folder = from.rsplit_once('/').map_or("", |(folder, _)| folder);
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

fn has_anchor(tree: &Tree, path: &str, anchor: &str) -> bool {
    let Some(source) = tree.source(path).filter(|source| source.is_page()) else { return true };
    headings(&source.text).any(|heading| slug(heading.text) == anchor)
}

/// Returns a heading's anchor, as forges generate it.
fn slug(heading: &str) -> String {
    let kept = heading.chars().filter(|&c| c.is_alphanumeric() || " -_".contains(c));
    kept.map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(page: &str) -> Vec<Finding> {
        let other = "# B\n\n## The life of a frame\n";
        let tree = Tree::of(&[("docs/a.md", page), ("docs/b.md", other), ("crates/mm/x.rs", "")]);
        check(&tree)
    }

    #[test]
    fn links_lead_somewhere() {
        assert!(found("[b](b.md) [c](../crates/mm) [u](https://example.org/x.md)\n").is_empty());
        assert_eq!(found("# A\n[b](c.md)\n")[0].line, 2);
        assert_eq!(found("[b](../docs/b.md) [b](../b.md)\n").len(), 1);
        assert!(found("```\n[b](c.md)\n```\n").is_empty());
    }

    #[test]
    fn anchors_exist() {
        assert!(found("[b](b.md#the-life-of-a-frame)\n").is_empty());
        assert_eq!(found("[b](b.md#the-death-of-a-frame)\n").len(), 1);
        assert_eq!(found("# A\n[a](#a) [b](#b)\n").len(), 1);
    }

    #[test]
    fn named_files_exist() {
        assert!(found("see `crates/mm/x.rs`, `crates/mm/`, `machines/*.toml`, `x/y`\n").is_empty());
        assert_eq!(found("see `crates/mm/y.rs`\n").len(), 1);
        let tree = Tree::of(&[("crates/a/src/lib.rs", "//! See `docs/gone.md`.\n")]);
        assert_eq!(check(&tree).len(), 1);
    }
}
