//! Where a document comes from: the program, its sources, and the machine's groups of CPUs.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a program was built from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Build {
    /// The program's name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// The commit of its sources; `unknown` outside a repository.
    pub commit: String,
    /// A hash over the files in which its sources differ from that commit. Not there if none does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changes: Option<String>,
}

impl Build {
    /// A build of sources as `mmscale_identity::emit` writes them down: `COMMIT`, or
    /// `COMMIT+HASH` where files differ from it.
    pub fn new(name: &str, version: &str, sources: &str) -> Self {
        let (commit, changes) = match sources.split_once('+') {
            Some((commit, hash)) => (commit, Some(hash.to_owned())),
            None => (sources, None),
        };
        Self { name: name.into(), version: version.into(), commit: commit.into(), changes }
    }

    /// The commit, and whether sources differ from it.
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
    /// How this follows from the profile: `keep`, `fill` or `flat`, as `--shape` says.
    pub shape: String,
    /// Memory nodes.
    pub nodes: u32,
    /// CPUs of a node; the last has what is left.
    pub node_cpus: u32,
    /// CPUs that share a last-level cache.
    pub cache_cpus: u32,
    /// Hardware threads of a core.
    pub core_threads: u32,
    /// The profile's own groups, if nodes, threads or caches are others there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<Groups>,
}

/// How the CPUs of a profile's own machine are grouped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Groups {
    /// CPUs.
    pub cpus: u32,
    /// Memory nodes.
    pub nodes: u32,
    /// CPUs that share a last-level cache.
    pub cache_cpus: u32,
    /// Hardware threads of a core.
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
