//! Errors in profiles.

use thiserror::Error;

/// Why a profile cannot be used. Each message names the file and the key, and says what is wrong
/// and what to do.
#[derive(Clone, PartialEq, Debug, Error)]
pub enum ProfileError {
    /// No profile of this name is built in.
    #[error(
        "there is no profile named `{name}`{} (built in: {all}); give a file by its path, as in \
         `./my.toml`",
        near(nearest)
    )]
    Unknown {
        /// The requested name.
        name: String,
        /// The most similar built-in name.
        nearest: Option<String>,
        /// All built-in names.
        all: String,
    },
    /// The file could not be read.
    #[error(
        "cannot read the profile `{file}`: {reason}; give the path of a profile file or the \
         name of a built-in profile"
    )]
    Read {
        /// The path.
        file: String,
        /// The system's error.
        reason: String,
    },
    /// The file is not TOML, or a value has the wrong shape.
    #[error(
        "profile `{file}`, line {line}: {reason}; a number is written \
         `key = {{ value = 1.0, range = [0.5, 2.0], source = \"...\" }}`"
    )]
    Syntax {
        /// The file or the built-in name.
        file: String,
        /// The line, from 1.
        line: usize,
        /// The parser's error.
        reason: String,
    },
    /// A key that no profile has.
    #[error("profile `{file}`: unknown key `{key}`: correct or remove it{}", near(nearest))]
    UnknownKey {
        /// The file or the built-in name.
        file: String,
        /// Section and key.
        key: String,
        /// The most similar known key.
        nearest: Option<String>,
    },
    /// A key that older profiles have.
    #[error("profile `{file}`: `{key}` is now {now}; see docs/your-machine.md")]
    OldKey {
        /// The file or the built-in name.
        file: String,
        /// Section and key.
        key: String,
        /// What is in its place.
        now: &'static str,
    },
    /// A key that every profile must have.
    #[error(
        "profile `{file}`: the key `{key}` is missing; add it with value, range and source, or \
         name a `base` that has it"
    )]
    MissingKey {
        /// The file or the built-in name.
        file: String,
        /// Section and key.
        key: String,
    },
    /// A number, its range or its source is invalid.
    #[error("profile `{file}`: `{key}` {reason}")]
    Number {
        /// The file or the built-in name.
        file: String,
        /// Section and key.
        key: String,
        /// The problem and what to do.
        reason: String,
    },
    /// A cost that no profile has.
    #[error(
        "profile `{profile}` has no cost named `{key}`{}; `mmscale profile show {profile}` has all",
        near(nearest)
    )]
    UnknownCost {
        /// The profile.
        profile: String,
        /// The requested key.
        key: String,
        /// The most similar key of a cost.
        nearest: Option<String>,
    },
    /// A value outside the range of its cost.
    #[error(
        "--cost {key}={value} is outside the range of `{key}` in profile `{profile}`, which is \
         {low} to {high} (its value: {usual}); for another value write a profile with a range and \
         a source of its own (base = \"{profile}\")"
    )]
    CostRange {
        /// The profile.
        profile: String,
        /// The key of the cost.
        key: String,
        /// The requested value.
        value: f64,
        /// The smallest value of the range.
        low: f64,
        /// The largest value of the range.
        high: f64,
        /// The value in the profile.
        usual: f64,
    },
    /// The base of a file could not be used.
    #[error("base of profile `{file}`: {why}")]
    Base {
        /// The file that names the base.
        file: String,
        /// The error in the base.
        why: Box<ProfileError>,
    },
    /// A file is its own base, directly or over other files.
    #[error("profile `{file}`: its bases form a circle ({chain}); name another `base`")]
    Circle {
        /// The file that names the base.
        file: String,
        /// The chain of files, joined by arrows.
        chain: String,
    },
    /// A chain of bases is too long.
    #[error(
        "profile `{file}`: a profile has at most {max} files, including its bases, and this one \
         has more ({chain}); name a `base` with fewer bases of its own"
    )]
    Deep {
        /// The file that names the base.
        file: String,
        /// The most files of a profile.
        max: usize,
        /// The chain of files, joined by arrows.
        chain: String,
    },
    /// A number of CPUs that no simulated machine can have.
    #[error("cannot run {cpus} CPUs on profile `{profile}`; allowed: 1 to {max}")]
    Cpus {
        /// The profile.
        profile: String,
        /// The requested number of CPUs.
        cpus: usize,
        /// The largest number of CPUs.
        max: usize,
    },
    /// A number of CPUs that does not keep the profile's groups.
    #[error(
        "cannot run {cpus} CPUs on profile `{profile}` with --shape keep: it has {nodes} node{}, \
         {smt} thread{} a core and last-level caches of {cluster} CPUs; use {nearest} CPUs, \
         --shape fill (the first {cpus} CPUs of such a machine) or --shape flat (no groups)",
        plural(*nodes),
        plural(*smt)
    )]
    Shape {
        /// The profile.
        profile: String,
        /// The requested number of CPUs.
        cpus: usize,
        /// The nodes of the profile.
        nodes: usize,
        /// The hardware threads of a core.
        smt: usize,
        /// The CPUs of a last-level cache.
        cluster: usize,
        /// The nearest numbers of CPUs that keep the groups, in words.
        nearest: String,
    },
    /// More nodes than a machine can have.
    #[error(
        "cannot run {cpus} CPUs on profile `{profile}` with --shape fill: they are {nodes} nodes \
         of its size, and a machine has at most {max}; use fewer CPUs, or --shape keep"
    )]
    Nodes {
        /// The profile.
        profile: String,
        /// The requested number of CPUs.
        cpus: usize,
        /// The nodes that these CPUs fill.
        nodes: usize,
        /// The largest number of nodes.
        max: usize,
    },
}

fn plural(n: usize) -> &'static str {
    if n == 1 { "" } else { "s" }
}

fn near(nearest: &Option<String>) -> String {
    nearest.as_ref().map_or(String::new(), |name| format!("; did you mean `{name}`?"))
}

/// Returns what is in the place of a key of older profiles.
pub(super) fn replaced(key: &str) -> Option<&'static str> {
    (key == "handoff_ns").then_some("`handoff_fixed_ns` and `handoff_lines`")
}

/// Returns the candidate most similar to `name`, if one is similar enough.
pub(super) fn nearest<'a>(
    name: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<String> {
    candidates
        .into_iter()
        .map(|candidate| (strsim::jaro_winkler(name, candidate), candidate))
        .filter(|(likeness, _)| *likeness > 0.6)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, candidate)| candidate.to_owned())
}
