//! Profiles with another number of CPUs, derived from a profile.

use super::resolve::MAX_FRAMES;
use super::{Profile, ProfileError, Topology};
use mmscale_arch::{MAX_CPUS, MAX_NODES};

/// How CPUs are grouped on a machine with another number of CPUs than its profile.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Shape {
    /// The number of nodes, the threads of a core and the size of a last-level cache are the
    /// profile's; nodes become smaller or larger. Numbers of CPUs that do not allow this are
    /// refused. A node with fewer CPUs than a cache has one cache, and a machine of one CPU has no
    /// groups.
    #[default]
    Keep,
    /// The first CPUs of the profile's machine, as when CPUs are brought online in order: cores
    /// fill caches, caches fill nodes, and the last of each may have fewer CPUs. More CPUs are more
    /// nodes. Each node with a CPU has its memory.
    Fill,
    /// One node, one last-level cache, cores of one thread.
    Flat,
}

impl Shape {
    /// All shapes.
    pub const ALL: [Self; 3] = [Self::Keep, Self::Fill, Self::Flat];

    /// The name on the command line and in records.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Keep => "keep",
            Self::Fill => "fill",
            Self::Flat => "flat",
        }
    }
}

impl Topology {
    /// Returns the number of CPUs of a node.
    pub const fn node_cpus(&self) -> usize {
        self.cpus / self.nodes
    }

    /// Returns these groups with `cpus` CPUs, or `None` if that number does not allow them.
    fn kept(&self, cpus: usize) -> Option<Self> {
        if cpus == 1 {
            return Some(Self { cpus, smt: 1, cluster: 1, nodes: 1 });
        }
        if !cpus.is_multiple_of(self.nodes * self.smt) {
            return None;
        }
        let node = cpus / self.nodes;
        // A cache that spans a whole node still does.
        let whole = self.cluster == self.node_cpus() || node < self.cluster;
        let cluster = if whole { node } else { self.cluster };
        node.is_multiple_of(cluster).then_some(Self { cpus, cluster, ..*self })
    }

    /// Returns full nodes of this size for `cpus` CPUs; the last node may be used in part.
    fn filled(&self, cpus: usize) -> Self {
        let nodes = cpus.div_ceil(self.node_cpus());
        Self { cpus: nodes * self.node_cpus(), nodes, ..*self }
    }
}

impl Profile {
    /// Returns the same kind of machine with `cpus` CPUs, grouped by `shape`. Its total memory
    /// stays; with [`Shape::Fill`] the memory of each node stays. The topology of `Fill` is that of
    /// full nodes, of which a run has the first `cpus` CPUs.
    pub fn with_cpus(&self, cpus: usize, shape: Shape) -> Result<Self, ProfileError> {
        let name = || self.name.clone();
        if cpus == 0 || cpus > MAX_CPUS {
            return Err(ProfileError::Cpus { profile: name(), cpus, max: MAX_CPUS });
        }
        let old = self.topology;
        let memory = self.node_pages * old.nodes as u64;
        let topology = match shape {
            Shape::Keep => old.kept(cpus).ok_or_else(|| self.odd(cpus))?,
            Shape::Fill => old.filled(cpus),
            Shape::Flat => Topology { cpus, smt: 1, cluster: cpus, nodes: 1 },
        };
        let node_pages = match shape {
            Shape::Keep | Shape::Flat => memory / topology.nodes as u64,
            Shape::Fill => self.node_pages,
        };
        let (nodes, max) = (topology.nodes, MAX_NODES.min((MAX_FRAMES / node_pages) as usize));
        if nodes > max {
            return Err(ProfileError::Nodes { profile: name(), cpus, nodes, max });
        }
        Ok(Self { topology, node_pages, ..self.clone() })
    }

    /// Returns the error for `cpus` CPUs that cannot be grouped as the profile's are.
    fn odd(&self, cpus: usize) -> ProfileError {
        let old = self.topology;
        let fits = |n: &usize| old.kept(*n).is_some();
        let below = (1..cpus).rev().find(fits);
        let above = (cpus + 1..=MAX_CPUS).find(fits);
        let near: Vec<String> = [below, above].iter().flatten().map(usize::to_string).collect();
        ProfileError::Shape {
            profile: self.name.clone(),
            cpus,
            nodes: old.nodes,
            smt: old.smt,
            cluster: old.cluster,
            nearest: near.join(" or "),
        }
    }
}
