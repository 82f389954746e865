//! The project does not depend on a particular computer: no absolute paths, and dependencies come
//! from crates.io.

use super::{Finding, Tree};

/// Paths that exist on particular computers only. Joined, so that this file is not a finding.
const PLACES: [&str; 5] = [
    concat!("/ho", "me/"),
    concat!("/ro", "ot/"),
    concat!("/Us", "ers/"),
    concat!("/wo", "rk/"),
    concat!("/t", "mp/"),
];

const CRATES_IO: &str = "registry+https://github.com/rust-lang/crates.io-index";

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for source in tree.sources() {
        let lock = source.path.ends_with("Cargo.lock");
        for (at, line) in source.text.lines().enumerate() {
            if let Some(place) = PLACES.iter().find(|place| holds_place(line, place)) {
                let what = format!(
                    "`{place}` is specific to a computer: use a relative or a temporary path"
                );
                found.push(Finding::new(&source.path, at + 1, what));
            }
            if lock && line.starts_with("source = ") && !line.contains(CRATES_IO) {
                let what = "a dependency that is not from crates.io: use the published one";
                found.push(Finding::new(&source.path, at + 1, what));
            }
        }
    }
    found
}

/// Returns whether an absolute path in `line` begins with `place`.
fn holds_place(line: &str, place: &str) -> bool {
    line.match_indices(place).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        !before.is_some_and(|c| c.is_alphanumeric() || matches!(c, '.' | '_' | '-' | '}' | ')'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(path: &str, text: &str) -> usize {
        check(&Tree::of(&[(path, text)])).len()
    }

    #[test]
    fn places_are_caught() {
        for place in PLACES {
            assert_eq!(count("a.rs", &format!("let p = \"{place}me/x\";\n")), 1, "{place}");
            assert_eq!(count("a.rs", &format!("https://lists.example{place}x\n")), 0, "{place}");
        }
    }

    #[test]
    fn dependencies_come_from_crates_io() {
        assert_eq!(count("Cargo.lock", &format!("source = \"{CRATES_IO}\"\n")), 0);
        assert_eq!(count("Cargo.lock", "source = \"registry+https://mirror.example/\"\n"), 1);
        assert_eq!(count("Cargo.lock", "source = \"git+https://example.com/a\"\n"), 1);
    }
}
