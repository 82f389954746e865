//! Names that a call chooses by patterns.

use crate::pattern::fits;

/// Returns whether a name is to be shown: if there are no patterns, or one matches. `*` stands for
/// any text; a pattern without it matches names that contain it.
pub(crate) fn is_shown(patterns: &[String], name: &str) -> bool {
    patterns.is_empty() || patterns.iter().any(|pattern| matches(pattern, name))
}

fn matches(pattern: &str, name: &str) -> bool {
    if pattern.contains('*') { fits(pattern, name) } else { name.contains(pattern) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_text() {
        let shown = |pattern: &str, name: &str| is_shown(&[pattern.to_owned()], name);
        assert!(is_shown(&[], "anything"));
        assert!(shown("wait", "zone_lock_wait_max_ns"));
        assert!(shown("zone*max*", "zone_lock_wait_max_ns"));
        assert!(shown("*_ns", "zone_lock_wait_max_ns"));
        assert!(!shown("zone*s_max", "zone_lock_wait_max_ns"));
        assert!(!shown("wait*", "zone_lock_wait_max_ns"));
        assert!(shown("zone rmqueue*", "zone rmqueue_bulk"));
    }
}
