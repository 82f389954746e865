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

/// Returns a machine's topology for its document, with that of its profile if it differs. Nodes of
/// another size alone are no difference, and neither is a cache that spans a whole node of both.
fn topology(own: &Topology, made: &Topology, shape: Shape) -> record::Topology {
    let whole = |of: &Topology| of.cluster == of.node_cpus();
    let same_caches = own.cluster == made.cluster || (whole(own) && whole(made));
    let same = (own.nodes, own.smt) == (made.nodes, made.smt) && same_caches;
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
        profile: (!same).then_some(groups),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a machine with `cpus` CPUs is described as another kind than its profile.
    fn differs(own: Topology, cpus: usize, shape: Shape) -> bool {
        let any = mmscale_sim::profile::load("x86-512").expect("it is built in");
        let profile = Profile { topology: own, ..any };
        let (_, topology) = shaped(&profile, cpus, 1000, shape).expect("the number is allowed");
        topology.profile.is_some()
    }

    #[test]
    fn a_machine_with_the_nodes_caches_and_threads_of_its_profile_is_of_its_kind() {
        let own = Topology { cpus: 512, smt: 2, cluster: 16, nodes: 2 };
        // Nodes of 16 CPUs, each one cache of 16 CPUs: fewer caches, of the same size.
        assert!(!differs(own, 32, Shape::Keep));
        assert!(!differs(own, 96, Shape::Keep));
        assert!(differs(own, 16, Shape::Keep), "its caches have 8 CPUs");
        assert!(differs(own, 96, Shape::Fill), "it has one node");
        assert!(differs(own, 96, Shape::Flat), "it has one node and cores of one thread");
        // A cache that spans a node does so at every size.
        let whole = Topology { cpus: 144, smt: 1, cluster: 72, nodes: 2 };
        assert!(!differs(whole, 8, Shape::Keep));
    }
}
