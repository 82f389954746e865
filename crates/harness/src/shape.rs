//! A profile's machine with a plan's CPUs, and what its record says of them.

use mmscale_document as record;
use mmscale_sim::profile::{Profile, ProfileError, Shape, Topology};

/// The machine of a profile with `cpus` CPUs at `hz`, and its groups of CPUs.
pub(crate) fn shaped(
    own: &Profile,
    cpus: usize,
    hz: u32,
    shape: Shape,
) -> Result<(Profile, record::Topology), ProfileError> {
    let mut profile = own.with_cpus(cpus, shape)?;
    profile.hz = hz;
    let topology = topology(&own.topology, &profile.topology, shape);
    Ok((profile, topology))
}

/// A machine's groups of CPUs for its record, and those of its profile where it has others. A cache
/// of a whole node is the same group however large the node is.
fn topology(own: &Topology, made: &Topology, shape: Shape) -> record::Topology {
    let kind = |of: &Topology| {
        let cluster = (of.cluster != of.node_cpus()).then_some(of.cluster);
        (of.nodes, of.smt, cluster)
    };
    let groups = record::Groups {
        cpus: own.cpus as u32,
        nodes: own.nodes as u32,
        cache_cpus: own.cluster as u32,
        core_threads: own.smt as u32,
    };
    record::Topology {
        shape: shape.name().to_owned(),
        nodes: made.nodes as u32,
        node_cpus: made.node_cpus() as u32,
        cache_cpus: made.cluster as u32,
        core_threads: made.smt as u32,
        profile: (kind(own) != kind(made)).then_some(groups),
    }
}
