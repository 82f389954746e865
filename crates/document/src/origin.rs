//! The origin of a document: the program, its sources, and the CPU topology.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A build of a program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Build {
    /// The name of the program.
    pub name: String,
    /// The version of the program.
    pub version: String,
    /// The commit of the sources; `unknown` outside a repository.
    pub commit: String,
    /// A hash over the files that differ from the commit. Absent if no file differs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changes: Option<String>,
}

impl Build {
    /// Creates a build from `sources`, the string that `mmscale_identity::emit` writes: `COMMIT`,
    /// or `COMMIT+HASH` if files differ from the commit.
    pub fn new(name: &str, version: &str, sources: &str) -> Self {
        let (commit, changes) = match sources.split_once('+') {
            Some((commit, hash)) => (commit, Some(hash.to_owned())),
            None => (sources, None),
        };
        Self { name: name.into(), version: version.into(), commit: commit.into(), changes }
    }

    /// Returns the commit, with the hash of the changes if there are some.
    pub fn sources(&self) -> String {
        match &self.changes {
            Some(hash) => format!("commit {} + changes {hash}", self.commit),
            None => format!("commit {}", self.commit),
        }
    }
}

impl fmt::Display for Build {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}", self.version, self.sources())
    }
}

/// How the CPUs of a simulated machine are grouped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Topology {
    /// How the topology was derived from the profile (`--shape`): `keep`, `fill` or `flat`.
    pub shape: String,
    /// Number of memory nodes.
    pub nodes: u32,
    /// CPUs per node; the last node has the remainder.
    pub node_cpus: u32,
    /// CPUs per last-level cache.
    pub cache_cpus: u32,
    /// Hardware threads per core.
    pub core_threads: u32,
    /// The groups of the profile, if its nodes, threads or caches differ from these.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<Groups>,
}

/// How the CPUs of the machine in a profile are grouped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Groups {
    /// Number of CPUs.
    pub cpus: u32,
    /// Number of memory nodes.
    pub nodes: u32,
    /// CPUs per last-level cache.
    pub cache_cpus: u32,
    /// Hardware threads per core.
    pub core_threads: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_that_differ_from_their_commit_are_never_shown_as_it() {
        let build = |sources| Build::new("x", "1.2", sources);
        assert_eq!(build("9ccc9e473612").to_string(), "1.2, commit 9ccc9e473612");
        let changed = build("9ccc9e473612+3fa2b1c0d9e8");
        assert_eq!(changed.to_string(), "1.2, commit 9ccc9e473612 + changes 3fa2b1c0d9e8");
        assert_eq!(changed.changes.as_deref(), Some("3fa2b1c0d9e8"));
    }
}
