//! `cargo xtask plain`: hits of the rule `plain` below a path, with their number per area.

use crate::tidy::{Tree, plain};
use std::collections::BTreeMap;
use std::path::Path;

/// Returns the table of phrases as text.
pub fn phrases() -> String {
    plain::phrases().collect::<Vec<_>>().join("\n")
}

/// Lists the hits in files whose path begins with one of `prefixes`; all files without a prefix.
///
/// # Errors
/// The tree cannot be read.
pub fn list(root: &Path, prefixes: &[&str]) -> Result<String, String> {
    let tree = Tree::read(root).map_err(|why| format!("{}: {why}", root.display()))?;
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    let mut lines = Vec::new();
    for (area, hit) in plain::hits(&tree) {
        if prefixes.is_empty() || prefixes.iter().any(|prefix| hit.path.starts_with(prefix)) {
            *counts.entry(area).or_default() += 1;
            lines.push(hit.to_string());
        }
    }
    lines.extend(counts.iter().map(|(area, count)| format!("{count:5}  {area}")));
    lines.push(format!("{:5}  in all", counts.values().sum::<usize>()));
    Ok(lines.join("\n"))
}
