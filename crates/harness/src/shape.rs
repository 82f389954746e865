//! Derives a machine with the plan's number of CPUs from a profile, and the topology for its
//! document.

use mmscale_document as record;
use mmscale_sim::profile::{Profile, ProfileError, Shape, Topology};

/// Returns the machine of a profile with `cpus` CPUs at `hz`, and its CPU topology.
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

/// Returns a machine's topology for its document, with that of its profile if it differs. A cache
/// that spans a whole node counts as equal regardless of the node's size.
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
