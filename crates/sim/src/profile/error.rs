//! What can be wrong with a profile.

use thiserror::Error;

/// Why a profile could not be used. Each message says which file, which key, what is wrong and
/// what to do.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum ProfileError {
    /// No profile of this name is built in.
    #[error(
        "no profile is called `{name}`{}; built in are {all}; a file of your own is given \
             by its path, as in `./my.toml`",
        near(nearest)
    )]
    Unknown {
        /// What was asked for.
        name: String,
        /// The built-in name most like it.
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
        /// What the system said.
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
        /// What the parser said.
        reason: String,
    },
    /// A key that no profile has.
    #[error("profile `{file}`: unknown key `{key}`{}; correct or remove it", near(nearest))]
    UnknownKey {
        /// The file or the built-in name.
        file: String,
        /// Section and key.
        key: String,
        /// The known key most like it.
        nearest: Option<String>,
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
    /// A number, its range or its source makes no sense.
    #[error("profile `{file}`: `{key}` {reason}")]
    Number {
        /// The file or the built-in name.
        file: String,
        /// Section and key.
        key: String,
        /// What is wrong and what to do.
        reason: String,
    },
    /// The base of a file could not be used.
    #[error("profile `{file}`, its base: {why}")]
    Base {
        /// The file that names the base.
        file: String,
        /// What is wrong with the base.
        why: Box<ProfileError>,
    },
    /// A file is its own base, over others or not.
    #[error(
        "profile `{file}`: its bases lead back to where they began ({chain}); name another `base`"
    )]
    Circle {
        /// The file that names the base.
        file: String,
        /// The files on the way, with arrows between.
        chain: String,
    },
    /// Too many bases of bases.
    #[error(
        "profile `{file}`: a profile has at most {max} files, its bases counted, and this is one \
         more ({chain}); name a `base` with fewer bases of its own"
    )]
    Deep {
        /// The file that names the base.
        file: String,
        /// The most files of a profile.
        max: usize,
        /// The files on the way, with arrows between.
        chain: String,
    },
    /// A number of CPUs that no machine here can have.
    #[error("{cpus} CPUs on profile `{profile}`: a machine has between 1 and {max} CPUs")]
    Cpus {
        /// The profile.
        profile: String,
        /// What was asked for.
        cpus: usize,
        /// The most there can be.
        max: usize,
    },
    /// A number of CPUs that the profile's groups do not divide.
    #[error(
        "{cpus} CPUs on profile `{profile}`, which has {nodes} node{}, {smt} thread{} a core and \
         last-level caches of {cluster} CPUs: {cpus} cannot keep these; take {nearest} CPUs, or \
         the shape `fill` (the first {cpus} CPUs of such a machine) or `flat` (no groups)",
        plural(*nodes),
        plural(*smt)
    )]
    Shape {
        /// The profile.
        profile: String,
        /// What was asked for.
        cpus: usize,
        /// The profile's nodes.
        nodes: usize,
        /// Its threads of a core.
        smt: usize,
        /// Its CPUs of a last-level cache.
        cluster: usize,
        /// The nearest numbers of CPUs that do, in words.
        nearest: String,
    },
    /// More nodes than a machine can have.
    #[error(
        "{cpus} CPUs on profile `{profile}` fill {nodes} nodes: a machine of such nodes has at \
         most {max}; take fewer CPUs or the shape `keep`"
    )]
    Nodes {
        /// The profile.
        profile: String,
        /// What was asked for.
        cpus: usize,
        /// The nodes that they fill.
        nodes: usize,
        /// The most there can be.
        max: usize,
    },
}

fn plural(n: usize) -> &'static str {
    if n == 1 { "" } else { "s" }
}

fn near(nearest: &Option<String>) -> String {
    nearest.as_ref().map_or(String::new(), |name| format!(" (did you mean `{name}`?)"))
}

/// The candidate most like `name`, if one is like it at all.
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
