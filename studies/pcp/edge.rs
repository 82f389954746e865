//! `oom-edge`: blocks straight from the frame allocator while nearly all memory is allocated. Each
//! CPU fills its part of the memory, frees some of it, and then alternates between that level and
//! no free page at all. It requests single pages, objects of up to 256 pages, and blocks of order 3
//! and 9.

use super::Tally;
use super::worker::{Worker, wait};
use mmscale_arch::{Order, Pfn};
use mmscale_frames::frame::MigrateType;
use mmscale_kernel::{Inside, Os};
use mmscale_system::System;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::Rng;

const ORDER_3: Order = Order::new(3).unwrap();

/// Number of sizes of objects that consist of single pages: 2^0 to 2^8.
const SIZES: u64 = 9;
/// Period between two times without free memory.
const PERIOD_NS: u64 = 1_000_000;
/// Time that a program computes after a failed allocation, before it frees memory.
const BACKOFF_NS: u64 = 2_000;

/// Sizes of the workload.
#[derive(Clone, Copy, Debug)]
pub(super) struct Edge {
    /// Pages per CPU, all of which are allocated after the fill phase.
    pub(super) share_pages: u64,
    /// Maximum number of them that are free after the fill phase.
    pub(super) free_pages: u64,
    /// CPU time in user mode after each page, in ns.
    pub(super) user_ns: u64,
}

/// Requested and allocated blocks of one order, in the window.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Tries {
    pub(super) asked: u64,
    pub(super) given: u64,
}

impl Tries {
    /// Returns the number of failed requests.
    pub(super) fn refused(self) -> u64 {
        self.asked - self.given
    }
}

/// Counters of the workload.
#[derive(Debug, Default)]
pub(super) struct EdgeTally {
    pub(super) page: Tries,
    pub(super) order_3: Tries,
    pub(super) order_9: Tries,
    /// Changes of the number of allocated pages: time and difference. An allocation counts from the
    /// request, and a free counts after `free_pages` has returned.
    pub(super) taken: Vec<(u64, i64)>,
    /// Start and end of failed requests for single pages, in the window.
    pub(super) failed: Vec<(u64, u64)>,
    user_ns: u64,
}

impl EdgeTally {
    /// Returns the number of failed requests of all orders, in the window.
    pub(super) fn refused(&self) -> u64 {
        [self.page, self.order_3, self.order_9].map(Tries::refused).iter().sum()
    }
    pub(super) fn add(&mut self, other: Self) {
        let pairs = [
            (&mut self.page, other.page),
            (&mut self.order_3, other.order_3),
            (&mut self.order_9, other.order_9),
        ];
        for (sum, tries) in pairs {
            sum.asked += tries.asked;
            sum.given += tries.given;
        }
        self.taken.extend(other.taken);
        self.failed.extend(other.failed);
    }

    /// Returns the number of failed requests for a page during which more than `mark` pages were
    /// always free somewhere. `all_pages` were free before the first request.
    ///
    /// Only pages that were certainly free count: no program requested them, and their last free
    /// had completed.
    pub(super) fn failures_with_free_pages(&self, all_pages: u64, mark: u64) -> u64 {
        let mut taken = self.taken.clone();
        // Changes at the same time are ordered so that the number of free pages is minimal.
        taken.sort_by_key(|&(at_ns, pages)| (at_ns, -pages));
        let mut free = all_pages as i64;
        let levels: Vec<(u64, i64)> = taken
            .into_iter()
            .map(|(at_ns, pages)| {
                free -= pages;
                (at_ns, free)
            })
            .collect();
        let in_vain = |&&(from_ns, to_ns): &&(u64, u64)| {
            let first = levels.partition_point(|&(at_ns, _)| at_ns < from_ns).saturating_sub(1);
            let during = levels[first..].iter().take_while(|(at_ns, _)| *at_ns <= to_ns);
            // The requested page counts as allocated during the request.
            let least = during.map(|(_, free)| free + 1).min().unwrap_or(0);
            least > mark as i64
        };
        self.failed.iter().filter(in_vain).count() as u64
    }
}

/// Some blocks of one order.
struct Object {
    blocks: Vec<Pfn>,
    order: Order,
}

impl Object {
    fn pages(&self) -> u64 {
        (self.blocks.len() * self.order.pages()) as u64
    }
}

/// A program and its blocks.
struct Holder<'a> {
    os: &'a Os,
    inside: &'a dyn Inside,
    worker: &'a Worker,
    edge: Edge,
    rng: Xoshiro256PlusPlus,
    objects: Vec<Object>,
    pages: u64,
    tally: EdgeTally,
}

/// The program.
pub(super) fn program(os: &Os, edge: &Edge, worker: &Worker) {
    let mut holder = Holder {
        os,
        inside: os.inside(),
        worker,
        edge: *edge,
        rng: worker.rng(),
        objects: Vec::new(),
        pages: 0,
        tally: EdgeTally::default(),
    };
    // The run may end during any wait; then no time is left.
    let _ = worker.begin(os);
    holder.fill();
    let _ = wait(os, worker.at().warm_ns);
    while os.clock_ns() < worker.at().until_ns {
        if holder.pages < holder.wanted(os.clock_ns()) {
            holder.take();
        } else {
            holder.release();
        }
    }
    let tally = std::mem::take(&mut holder.tally);
    worker.add(&Tally { user_ns: tally.user_ns, ..Tally::default() });
    worker.run.inside(|memory| memory.edge.add(tally));
    let _ = worker.rest(os);
    while !holder.objects.is_empty() {
        holder.release();
    }
}

impl Holder<'_> {
    fn fill(&mut self) {
        let goal = self.edge.share_pages;
        while self.pages < goal {
            let count = 1 << (self.rng.next_u64() % SIZES);
            let object = self.object(count);
            if object.blocks.is_empty() {
                break;
            }
            self.keep(object);
        }
        while self.pages > goal.saturating_sub(self.edge.free_pages) && !self.objects.is_empty() {
            self.release();
        }
        self.tally.taken = vec![(0, self.pages as i64)];
    }
    /// Returns how many pages to hold: alternates between its share and its fill level.
    fn wanted(&self, now_ns: u64) -> u64 {
        let phase = now_ns % PERIOD_NS;
        let free = phase.abs_diff(PERIOD_NS / 2) * 2 * self.edge.free_pages / PERIOD_NS;
        self.edge.share_pages - free.min(self.edge.share_pages)
    }
    fn take(&mut self) {
        let (order, counted) = match self.rng.next_u64() % 16 {
            0 => (Order::PAGEBLOCK, 1),
            1..4 => (ORDER_3, 1),
            _ => (Order::ZERO, 1 << (self.rng.next_u64() % SIZES)),
        };
        if order == Order::ZERO {
            let object = self.object(counted);
            let complete = object.blocks.len() == counted;
            self.keep(object);
            if complete {
                return;
            }
        } else if let Some(block) = self.block(order) {
            self.keep(Object { blocks: vec![block], order });
            return;
        } else if order == Order::PAGEBLOCK {
            // A program that gets no huge page would allocate small ones.
            return;
        }
        self.compute(BACKOFF_NS);
        self.release();
    }
    fn compute(&mut self, ns: u64) {
        if self.worker.at().counts(self.os.clock_ns()) {
            self.tally.user_ns += ns;
        }
        self.inside.compute(ns);
    }
    /// Allocates up to `count` single pages, as many as are available.
    fn object(&mut self, count: usize) -> Object {
        let blocks = (0..count).map_while(|_| self.block(Order::ZERO)).collect();
        Object { blocks, order: Order::ZERO }
    }
    fn block(&mut self, order: Order) -> Option<Pfn> {
        let (pages, from_ns) = (order.pages() as i64, self.os.clock_ns());
        self.tally.taken.push((from_ns, pages));
        let kind = match self.rng.next_u64() % 4 {
            0 => MigrateType::Unmovable,
            _ => MigrateType::Movable,
        };
        let block = self.inside.alloc_pages(order, kind).ok();
        let to_ns = self.os.clock_ns();
        let counts = self.worker.at().counts(from_ns);
        if counts {
            let tries = match order {
                Order::ZERO => &mut self.tally.page,
                ORDER_3 => &mut self.tally.order_3,
                _ => &mut self.tally.order_9,
            };
            tries.asked += 1;
            tries.given += u64::from(block.is_some());
            if order == Order::ZERO && block.is_none() {
                self.tally.failed.push((from_ns, to_ns));
            }
        }
        if block.is_none() {
            self.tally.taken.push((to_ns, -pages));
        }
        self.compute(self.edge.user_ns);
        block
    }
    fn keep(&mut self, object: Object) {
        if !object.blocks.is_empty() {
            self.pages += object.pages();
            self.objects.push(object);
        }
    }
    /// Frees a random object.
    fn release(&mut self) {
        if self.objects.is_empty() {
            return;
        }
        let at = self.rng.next_u64() as usize % self.objects.len();
        let object = self.objects.swap_remove(at);
        self.pages -= object.pages();
        for &block in &object.blocks {
            self.inside.free_pages(block, object.order);
            self.tally.taken.push((self.os.clock_ns(), -(object.order.pages() as i64)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failures(taken: &[(u64, i64)], failed: &[(u64, u64)]) -> u64 {
        let tally =
            EdgeTally { taken: taken.to_vec(), failed: failed.to_vec(), ..EdgeTally::default() };
        tally.failures_with_free_pages(100, 10)
    }

    #[test]
    fn a_failure_counts_if_more_than_the_mark_was_free_all_the_time() {
        // 89 are allocated and one is requested: 11 are free.
        assert_eq!(failures(&[(0, 89), (20, 1), (30, -1)], &[(20, 30)]), 1);
        assert_eq!(failures(&[(0, 90), (20, 1), (30, -1)], &[(20, 30)]), 0);
        // Another program allocates and frees pages meanwhile.
        let busy = [(0, 50), (20, 1), (22, 40), (25, -40), (30, -1)];
        assert_eq!(failures(&busy, &[(20, 30)]), 0);
        assert_eq!(failures(&busy, &[(26, 30)]), 1);
        // Pages that are freed at the end of the request are too late.
        assert_eq!(failures(&[(0, 95), (20, 1), (30, -60), (30, -1)], &[(20, 30)]), 0);
    }
}
