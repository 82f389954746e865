//! Names of columns: which side of a comparison they are, and what else they can be.

/// The role of a column or a row, by its name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Role {
    /// The side to compare with.
    Before,
    /// The changed side.
    After,
    /// A version, a commit, or processes or threads: a side, but the name does not say which.
    Side,
    /// A change between sides.
    Change,
    /// A deviation, an index or another figure that is no side.
    Other,
    /// The number of tasks, CPUs or clients.
    Axis,
    /// Unknown.
    None,
}

const BEFORE: [&str; 16] = [
    "before",
    "base",
    "baseline",
    "vanilla",
    "unpatched",
    "mainline",
    "stock",
    "upstream",
    "orig",
    "original",
    "old",
    "parent",
    "w/o",
    "without",
    "control",
    "reference",
];
const AFTER: [&str; 11] = [
    "after", "patched", "patch", "patches", "with", "w/", "new", "series", "modified", "fixed",
    "commit",
];
const CHANGE: [&str; 18] = [
    "change",
    "%change",
    "diff",
    "%diff",
    "delta",
    "%delta",
    "gain",
    "%gain",
    "improvement",
    "%improvement",
    "impr",
    "speedup",
    "regression",
    "relative",
    "ratio",
    "%",
    "δ",
    "imp%",
];
const OTHER: [&str; 17] = [
    "stddev", "%stddev", "stdev", "std", "cv", "error", "err", "±", "+/-", "p", "p-value", "pval",
    "runs", "samples", "linear", "n", "variance",
];
const AXIS: [&str; 27] = [
    "tasks",
    "task",
    "nr_task",
    "nr_tasks",
    "threads",
    "thread",
    "processes",
    "process",
    "procs",
    "cpus",
    "cpu",
    "clients",
    "jobs",
    "workers",
    "groups",
    "#",
    "nr",
    "cores",
    "vcpus",
    "nproc",
    "#threads",
    "#tasks",
    "#cpus",
    "nthreads",
    "instances",
    "users",
    "copies",
];

/// Returns the role of a name.
pub(crate) fn role(name: &str) -> Role {
    let lower = name.to_lowercase();
    let lower = lower.trim_matches(['*', '`', ':', ' ']);
    let words: Vec<&str> = lower
        .split(|c: char| c.is_whitespace() || "(),;[]_".contains(c))
        .filter(|word| !word.is_empty())
        .collect();
    let has = |list: &[&str]| words.iter().any(|word| list.contains(word));
    let contains = |list: &[&str]| list.iter().any(|part| lower.contains(part));
    match () {
        () if lower.is_empty() => Role::None,
        () if lower.ends_with("_idle") || has(&OTHER) => Role::Other,
        () if has(&CHANGE) || ["change", "diff", "delta"].iter().any(|w| lower.contains(w)) => {
            Role::Change
        }
        () if has(&BEFORE) || contains(&["unpatched", "baseline", "without-", "base-"]) => {
            Role::Before
        }
        () if has(&AFTER) || lower.contains("patched") || contains(&["with-"]) => Role::After,
        () if lower.contains('+') && lower.contains("patch") => Role::After,
        () if ["processes", "threads"].contains(&lower) => Role::Side,
        () if words.iter().any(|word| is_version(word)) => Role::Side,
        () if is_axis(lower) => Role::Axis,
        () => Role::None,
    }
}

/// The most words of a caption that is a side.
const WORDS: usize = 6;

/// Returns the side that a caption is.
pub(crate) fn side(caption: &str) -> Option<Role> {
    let short = caption.split_whitespace().count() <= WORDS;
    Some(role(caption)).filter(|role| short && matches!(role, Role::Before | Role::After))
}

/// Returns whether a name is that of a number of tasks or CPUs.
pub(crate) fn is_axis(name: &str) -> bool {
    let lower = name.to_lowercase();
    let last = lower.split_whitespace().next_back().unwrap_or("");
    AXIS.contains(&lower.trim()) || AXIS.contains(&last)
}

/// `6.2.0-rc4`, `v6.12`, `next-20240101`, `mm-unstable`, a hash of a commit.
fn is_version(word: &str) -> bool {
    let digits = word.strip_prefix('v').unwrap_or(word);
    let mut parts = digits.split(['.', '-']);
    let number = |part: Option<&str>| {
        part.is_some_and(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()))
    };
    let dotted = digits.contains('.') && number(parts.next()) && number(parts.next());
    let series = word.len() >= 2
        && word.starts_with('v')
        && word[1..].bytes().all(|byte| byte.is_ascii_digit());
    let hash = (7..=40).contains(&word.len())
        && word.bytes().all(|byte| byte.is_ascii_hexdigit())
        && word.bytes().any(|byte| byte.is_ascii_digit())
        && word.bytes().any(|byte| byte.is_ascii_alphabetic());
    let branch = ["mm-", "next-", "linux-"].iter().any(|begin| word.starts_with(begin));
    dotted || series || hash || branch
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_roles() {
        for (name, expected) in [
            ("before", Role::Before),
            ("w/o patch", Role::Before),
            ("unpatched", Role::Before),
            ("with patch", Role::After),
            ("with-patch", Role::After),
            ("without-patch", Role::Before),
            ("6.2.0-rc4", Role::Side),
            ("v2", Role::Side),
            ("8ba7b9db", Role::Side),
            ("%change", Role::Change),
            ("change (%)", Role::Change),
            ("processes_idle", Role::Other),
            ("tasks", Role::Axis),
            ("ops/s", Role::None),
            ("latency", Role::None),
        ] {
            assert_eq!(role(name), expected, "{name}");
        }
    }
}
