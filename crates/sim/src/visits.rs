//! Contended lines visit clusters, if [`LineOrder::ByCluster`](crate::LineOrder) says so.
//!
//! While a line is in a cache of a cluster, the cluster's last-level cache answers the requests of
//! its own CPUs: they do not leave the cluster. Requests of other clusters go to the line's home
//! first. Requests of one cluster for a line that is elsewhere are one request to the home; when
//! the line comes, it goes to each CPU of the cluster that has waited. So the way between clusters
//! is paid once a visit, by the first CPU of the cluster that asked; others pay the way within the
//! cluster.
//!
//! Approximation: the requests of a visit join it at the end of the line's queue, where they were
//! made, and not all at the time of the visit. The line is busy for as long; which CPU gets it
//! earlier differs within the queue.
//!
//! Each visit is bounded: a request joins only until the line is there, and a CPU has one request.

use crate::lines::LineState;
use crate::topology::Distances;

/// When contended lines are in each cluster.
pub(crate) struct Visits {
    clusters: usize,
    /// By line, then by cluster: the time of the last visit, in ps.
    there_ps: Vec<u64>,
}

impl Visits {
    pub(crate) fn new(clusters: usize) -> Self {
        Self { clusters, there_ps: Vec::new() }
    }
    /// Returns the place of a line, from the first time on at which a CPU finds it busy.
    fn place(&mut self, line: &LineState, clock: u64, distances: &Distances) -> Option<usize> {
        if let Some(number) = line.contended.get().checked_sub(1) {
            return Some(number as usize * self.clusters);
        }
        let (writer, busy_until_ps) = line.busy()?;
        if busy_until_ps <= clock {
            return None;
        }
        let place = self.there_ps.len();
        self.there_ps.resize(place + self.clusters, 0);
        line.contended.set((place / self.clusters) as u32 + 1);
        self.there_ps[place + distances.cluster_of(writer)] = busy_until_ps;
        Some(place)
    }
    /// Whether a request of `cpu` joins one of its cluster that waits for the line.
    pub(crate) fn joins(
        &mut self,
        line: &LineState,
        cpu: usize,
        clock: u64,
        distances: &Distances,
    ) -> bool {
        let place = self.place(line, clock, distances);
        place.is_some_and(|place| self.there_ps[place + distances.cluster_of(cpu)] > clock)
    }
    /// Notes that `cpu`, which did not join a request, has the line for itself at `there_ps`.
    pub(crate) fn comes(
        &mut self,
        line: &LineState,
        cpu: usize,
        there_ps: u64,
        distances: &Distances,
    ) {
        if let Some(number) = line.contended.get().checked_sub(1) {
            let place = number as usize * self.clusters + distances.cluster_of(cpu);
            self.there_ps[place] = there_ps;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lines::{Atomics, Usage};
    use crate::profile::{LineCosts, Topology};
    use mmscale_arch::{DataLine, LineName};

    fn distances() -> Distances {
        let line = LineCosts {
            own_ps: 1,
            smt_ps: 2,
            cluster_ps: 10,
            node_ps: 100,
            remote_ps: 200,
            memory_ps: 6,
        };
        Distances::new(&Topology { cpus: 8, smt: 1, cluster: 2, nodes: 2 }, 8, line)
    }

    /// Returns the time at which each of the requests, all of which are made at time 5, has the
    /// line that CPU 0 wrote before.
    fn served(by: &[usize], by_cluster: bool) -> Vec<u64> {
        let (distances, line) = (distances(), LineState::new(LineName::Data(DataLine::Other)));
        let mut visits = Visits::new(distances.clusters());
        let mut update = |cpu: usize, clock: u64| {
            let joins = by_cluster && visits.joins(&line, cpu, clock, &distances);
            let costs = Atomics { atomic_ps: 0, far_add_ps: 0, joins };
            let there = clock + line.take(cpu, Usage::Update, clock, &distances, costs).cost_ps;
            if !joins {
                visits.comes(&line, cpu, there, &distances);
            }
            there
        };
        update(0, 0);
        update(2, 4);
        by.iter().map(|&cpu| update(cpu, 5)).collect()
    }

    #[test]
    fn cpus_of_a_cluster_share_a_way_between_clusters() {
        // CPUs 2 and 3 are a cluster, 4 and 5 one of the other node.
        assert_eq!(served(&[4, 3, 5], false), [304, 504, 704]);
        assert_eq!(served(&[4, 3, 5], true), [304, 314, 324]);
        // A visit that is over is not joined.
        assert_eq!(served(&[4, 6, 1], true), [304, 404, 604]);
    }
}
