//! No text says that a change holds without the choices against which it was tested.

use std::fs;
use std::path::Path;

/// Words before `holds` that make it a verdict on a change. A holder of a lock `holds` it, too.
const VERDICTS: [&str; 4] = [", holds", "change holds", "conclusion holds", "result holds"];

/// Returns what follows each verdict in a text.
fn verdicts(text: &str) -> Vec<String> {
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let after = |verdict: &&str| -> Vec<String> {
        let found = words.match_indices(*verdict);
        found.map(|(at, verdict)| words[at + verdict.len()..].chars().take(12).collect()).collect()
    };
    VERDICTS.iter().flat_map(after).collect()
}

#[test]
fn verdicts_say_what_they_hold_against() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut seen = 0;
    for folder in ["crates/report/tests/snapshots", "crates/cli/tests/cmd", "docs", "."] {
        for file in fs::read_dir(root.join(folder)).unwrap() {
            let path = file.unwrap().path();
            let text = path.extension().is_some_and(|end| end == "snap" || end == "md");
            if !text || path.ends_with("CHANGELOG.md") {
                continue;
            }
            for after in verdicts(&fs::read_to_string(&path).unwrap()) {
                let against = [" over seeds", " over costs"];
                let shown = path.display();
                assert!(against.iter().any(|words| after.starts_with(words)), "{shown}: ..{after}");
                seen += 1;
            }
        }
    }
    assert!(seen > 20, "{seen} verdicts: the words changed, and this test checks nothing");
}

#[test]
fn a_bare_verdict_is_found() {
    let found = verdicts("lazy +3 % [+2..+4],\n holds; a CPU that holds the lock");
    assert_eq!(found, ["; a CPU that"]);
}
