//! The simulated machines that a run can choose from.

use mmscale_sim::profile::{ProfileError, Profiles};

/// A machine profile, in short.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProfileSummary {
    /// Its name.
    pub name: String,
    /// What machine it is, in words.
    pub description: String,
    /// CPUs.
    pub cpus: usize,
    /// Memory nodes.
    pub nodes: usize,
}

/// The profiles that have names.
pub fn profiles(of: Profiles) -> Result<Vec<ProfileSummary>, ProfileError> {
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
