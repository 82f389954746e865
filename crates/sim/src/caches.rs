//! Caches have a size: how long a line stays in the caches of its cluster.
//!
//! Each cluster (the CPUs that share a last-level cache) counts the lines that its CPUs bring in:
//! 64 for each 4 KiB that they clear, twice that for a copy, and each frame's line that they did
//! not have. A line that was used before the last so many others is lost, as if the caches of the
//! cluster were one, which drops the line that was not used for longest.
//!
//! A CPU counts its lines by itself, and adds them to the cluster's at operations on shared state:
//! clears, copies, and the taking of spin locks. There it also learns what the others have added.
//! Both happen at its turn, so that both schedules give each CPU the same counts.

/// Lines in a KiB.
const LINES_PER_KIB: u64 = 16;
/// A line that was used within this part of the cache's size is not marked as used again.
const FRESH_PARTS: u32 = 8;

/// A time as a cluster counts it, in KiB that it has brought in. It wraps after 4 TiB.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Age(pub(crate) u32);

/// The counts of all clusters.
pub(crate) struct Caches {
    /// Lines that each cluster has brought in.
    brought: Vec<u64>,
    size_kib: u32,
}

impl Caches {
    /// Makes the caches of `clusters` clusters, of `size_kib` KiB each.
    pub(crate) fn new(size_kib: u32, clusters: usize) -> Self {
        Self { brought: vec![0; clusters], size_kib }
    }
    /// Adds lines to a cluster's count, which is returned.
    #[inline]
    pub(crate) fn bring(&mut self, cluster: usize, lines: u64) -> Age {
        let brought = &mut self.brought[cluster];
        *brought += lines;
        Age((*brought / LINES_PER_KIB) as u32)
    }
    /// Whether a line that was used at `used` needs no new mark at `now`.
    #[inline]
    pub(crate) fn is_fresh(&self, used: Age, now: Age) -> bool {
        now.0.wrapping_sub(used.0) <= self.size_kib / FRESH_PARTS
    }
    /// Whether a line that was used at `used` is in the caches no more at `now`.
    #[inline]
    pub(crate) fn is_lost(&self, used: Age, now: Age) -> bool {
        now.0.wrapping_sub(used.0) > self.size_kib
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_counts_what_its_cpus_bring_in() {
        let mut caches = Caches::new(64, 2);
        assert_eq!(
            [caches.bring(0, 15), caches.bring(0, 17), caches.bring(1, 64)],
            [0, 2, 4].map(Age)
        );
        assert!(caches.is_fresh(Age(2), Age(10)) && !caches.is_fresh(Age(2), Age(11)));
        assert!(!caches.is_lost(Age(2), Age(66)) && caches.is_lost(Age(2), Age(67)));
    }
}
