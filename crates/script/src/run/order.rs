//! Orders of the CPUs of a machine, for tasks that a script places by a word.

use crate::ast::Order;
use mmscale_system::{CpuPosition, System};
use std::cmp::Reverse;

/// A CPU and its place in each order.
#[derive(Clone, Copy, Debug)]
struct Ranked {
    at: CpuPosition,
    /// Which of the hardware threads of its core it is.
    thread: usize,
    /// Its place among the CPUs of its node, whole cores first.
    in_node: usize,
}

/// The CPUs of a machine in the orders of a script.
#[derive(Debug)]
pub(crate) struct Orders {
    cpus: Vec<Ranked>,
    /// CPUs in the orders `cores`, `nodes` and `spread`.
    fixed: [Vec<usize>; 3],
}

impl Orders {
    /// Returns the orders of a system's CPUs.
    pub(crate) fn of<S: System>(system: &S) -> Self {
        Self::new((0..system.cpus()).map(|cpu| system.position(cpu)))
    }

    fn new(positions: impl Iterator<Item = CpuPosition>) -> Self {
        let mut cpus: Vec<Ranked> = Vec::new();
        for at in positions {
            let thread = cpus.iter().filter(|other| other.at.core == at.core).count();
            cpus.push(Ranked { at, thread, in_node: 0 });
        }
        let nodes = sorted(&cpus, |cpu, of| (of.at.node, of.thread, cpu));
        let mut before: Option<(usize, usize)> = None;
        for &cpu in &nodes {
            let node = cpus[cpu].at.node;
            let place = before.filter(|(last, _)| *last == node).map_or(0, |(_, place)| place + 1);
            cpus[cpu].in_node = place;
            before = Some((node, place));
        }
        let cores = sorted(&cpus, |cpu, of| (of.thread, of.at.node, cpu));
        let spread = sorted(&cpus, |cpu, of| (of.in_node, of.at.node, cpu));
        Self { cpus, fixed: [cores, nodes, spread] }
    }

    /// Returns the CPU that is `seat` places behind `from`.
    pub(super) fn cpu(&self, order: Order, from: usize, seat: usize) -> usize {
        let fixed = match order {
            Order::Cores => &self.fixed[0],
            Order::Nodes => &self.fixed[1],
            Order::Spread => &self.fixed[2],
            Order::Near => return self.near(from)[seat % self.cpus.len()],
        };
        let begin = fixed.iter().position(|&cpu| cpu == from).unwrap_or(0);
        fixed[(begin + seat) % fixed.len()]
    }

    /// Returns all CPUs by their distance from one: the CPU itself, its core, its cache, its node, the next node.
    fn near(&self, from: usize) -> Vec<usize> {
        let (own, count) = (self.cpus[from].at, self.cpus.len());
        sorted(&self.cpus, |cpu, of| {
            let node = (of.at.node + count - own.node) % count;
            let together = Reverse((of.at.core == own.core, of.at.cluster == own.cluster));
            // Behind the CPU itself comes the next one, and after the last one the first.
            (cpu != from, node, together, of.thread, (cpu + count - from) % count)
        })
    }
}

/// Returns the numbers of CPUs, sorted by a key.
fn sorted<K: Ord>(cpus: &[Ranked], key: impl Fn(usize, Ranked) -> K) -> Vec<usize> {
    let mut numbers: Vec<usize> = (0..cpus.len()).collect();
    numbers.sort_by_key(|&cpu| key(cpu, cpus[cpu]));
    numbers
}

#[cfg(test)]
mod tests {
    use super::Orders;
    use crate::ast::Order::{Cores, Near, Nodes, Spread};
    use mmscale_system::CpuPosition;

    /// Two nodes of two caches of two cores of two hardware threads.
    fn sixteen(numbers: impl Fn(usize) -> usize) -> Orders {
        Orders::new((0..16).map(numbers).map(|place| CpuPosition {
            core: place / 2,
            cluster: place / 4,
            node: place / 8,
        }))
    }
    fn from(orders: &Orders, order: crate::ast::Order, from: usize, count: usize) -> Vec<usize> {
        (0..count).map(|seat| orders.cpu(order, from, seat)).collect()
    }

    #[test]
    fn orders_fill_cores_or_nodes_or_take_nodes_in_turn() {
        let orders = sixteen(|cpu| cpu);
        assert_eq!(from(&orders, Cores, 0, 10), [0, 2, 4, 6, 8, 10, 12, 14, 1, 3]);
        assert_eq!(from(&orders, Nodes, 0, 10), [0, 2, 4, 6, 1, 3, 5, 7, 8, 10]);
        assert_eq!(from(&orders, Spread, 0, 10), [0, 8, 2, 10, 4, 12, 6, 14, 1, 9]);
        assert_eq!(from(&orders, Near, 5, 9), [5, 4, 6, 7, 0, 2, 1, 3, 8]);
    }

    #[test]
    fn orders_begin_at_the_task_and_go_round() {
        let orders = sixteen(|cpu| cpu);
        assert_eq!(from(&orders, Cores, 14, 3), [14, 1, 3]);
        for order in [Cores, Nodes, Spread, Near] {
            for begin in 0..16 {
                let mut all = from(&orders, order, begin, 16);
                assert_eq!((all[0], orders.cpu(order, begin, 16)), (begin, begin), "{order:?}");
                all.sort_unstable();
                assert_eq!(all, (0..16).collect::<Vec<_>>(), "{order:?} from {begin}");
            }
        }
    }

    #[test]
    fn cpus_may_be_numbered_by_thread_first() {
        // As on most computers: CPU 8 is the second thread of the core of CPU 0.
        let orders = sixteen(|cpu| cpu % 8 * 2 + cpu / 8);
        assert_eq!(from(&orders, Cores, 0, 9), [0, 1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(from(&orders, Nodes, 0, 9), [0, 1, 2, 3, 8, 9, 10, 11, 4]);
        assert_eq!(from(&orders, Near, 0, 4), [0, 8, 1, 9]);
    }
}
