//! The simulated machines that a run can choose from.

use mmscale_sim::profile;

/// A built-in machine profile, in short.
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

/// The built-in profiles, by name.
pub fn profiles() -> Vec<ProfileSummary> {
    let summary = |name: &str| {
        // A test of the profiles loads every one; a name from the list cannot be unknown.
        let profile = profile::load(name).expect("a built-in profile is well-formed");
        ProfileSummary {
            name: profile.name,
            description: profile.description,
            cpus: profile.topology.cpus,
            nodes: profile.topology.nodes,
        }
    };
    profile::builtin_names().into_iter().map(summary).collect()
}
