//! The house rules hold for the workspace.

use xtask::tidy::{Tree, check};

#[test]
fn the_workspace_is_tidy() {
    let root = xtask::root();
    let tree = Tree::read(&root).expect("the workspace can be read");
    assert!(tree.has("crates/mm/src/lib.rs"), "{} is the workspace", root.display());
    let findings = check(&tree);
    let lines: Vec<String> = findings.iter().map(ToString::to_string).collect();
    assert!(findings.is_empty(), "{} findings:\n{}", lines.len(), lines.join("\n"));
}
