//! Summaries of the machine profiles.

use mmscale_sim::profile::{ProfileError, Profiles};

/// A summary of a machine profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProfileSummary {
    /// The name of the profile.
    pub name: String,
    /// A description of the machine.
    pub description: String,
    /// Number of CPUs.
    pub cpus: usize,
    /// Number of memory nodes.
    pub nodes: usize,
}

/// Returns summaries of all named profiles.
pub fn profiles(of: &Profiles) -> Result<Vec<ProfileSummary>, ProfileError> {
    let summary = |name: &str| {
        let profile = of.load(name)?;
        Ok(ProfileSummary {
            name: profile.name,
            description: profile.description,
            cpus: profile.topology.cpus,
            nodes: profile.topology.nodes,
        })
    };
    of.names().into_iter().map(summary).collect()
}
