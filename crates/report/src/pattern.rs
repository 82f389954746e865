//! Patterns of names.

/// Returns whether a name has the form of a pattern, in which `*` stands for any text.
pub(crate) fn fits(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((start, rest)) => name.strip_prefix(start).is_some_and(|name| {
            name.char_indices()
                .map(|(at, _)| at)
                .chain([name.len()])
                .any(|at| fits(rest, &name[at..]))
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_stand_for_names() {
        for (pattern, name) in [("*", "a"), ("zone_*", "zone_a"), ("*_ns", "a_ns"), ("a*c*", "abc")]
        {
            assert!(fits(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in [("a", "ab"), ("*_ns", "a_ns_b"), ("a*c", "ab"), ("", "a")] {
            assert!(!fits(pattern, name), "{pattern} {name}");
        }
    }
}
