//! `oom-edge`: blocks straight from the frame allocator while nearly no memory is free. Each CPU
//! fills its part of the memory, frees some, and then goes back and forth between that and no free
//! page at all. It asks for single pages, for objects of up to 256 pages, and for blocks of order 3
//! and of order 9.

use super::Tally;
use super::worker::{Worker, wait};
use mmscale_arch::{Machine, Order, Pfn};
use mmscale_frames::frame::MigrateType;
use mmscale_frames::page_alloc::{FrameAllocator, Gfp};
use mmscale_system::System;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::Rng;

const ORDER_3: Order = Order::new(3).unwrap();

/// Sizes of objects that are made of single pages: 2^0 to 2^8.
const SIZES: u64 = 9;
/// From nothing free to nothing free.
const PERIOD_NS: u64 = 1_000_000;
/// How long a program computes that got no page, before it frees something.
const BACKOFF_NS: u64 = 2_000;

/// What programs do.
#[derive(Clone, Copy, Debug)]
pub(super) struct Edge {
    /// Pages for each CPU: all that there are, when it has filled them.
    pub(super) share_pages: u64,
    /// How many of them are free at most, from then on.
    pub(super) free_pages: u64,
    /// Computing after each page.
    pub(super) user_ns: u64,
}

/// How often blocks of one order were asked for, and given, in the window.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Tries {
    pub(super) asked: u64,
    pub(super) given: u64,
}

impl Tries {
    /// How many requests got none.
    pub(super) fn refused(self) -> u64 {
        self.asked - self.given
    }
}

/// What happened at the edge.
#[derive(Debug, Default)]
pub(super) struct EdgeTally {
    pub(super) page: Tries,
    pub(super) order_3: Tries,
    pub(super) order_9: Tries,
    /// When pages were taken or freed, and how many more were taken then: at the latest from
    /// when they were asked for, and at the earliest until `free_pages` had returned.
    pub(super) taken: Vec<(u64, i64)>,
    /// From when until when requests for single pages lasted that got none, in the window.
    pub(super) failed: Vec<(u64, u64)>,
    user_ns: u64,
}

impl EdgeTally {
    /// Requests of all orders that got no block, in the window.
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

    /// Of the failures to get one page, those during all of which more than `mark` pages were free
    /// somewhere. `all_pages` were free before a program took one.
    ///
    /// Free here is what was certainly free: no program asked for it, and it was freed completely.
    pub(super) fn failures_with_free_pages(&self, all_pages: u64, mark: u64) -> u64 {
        let mut taken = self.taken.clone();
        // What happens at one time counts in the order that leaves least.
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
            // The page that was asked for counts as taken meanwhile.
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

/// A program and what it has.
struct Holder<'a, A: Machine> {
    frames: &'a FrameAllocator<A>,
    worker: &'a Worker,
    edge: Edge,
    rng: Xoshiro256PlusPlus,
    objects: Vec<Object>,
    pages: u64,
    tally: EdgeTally,
}

/// A program.
pub(super) fn program<A: Machine, S: System>(
    system: &S,
    frames: &FrameAllocator<A>,
    edge: &Edge,
    worker: &Worker,
) {
    let mut holder = Holder {
        frames,
        worker,
        edge: *edge,
        rng: worker.rng(),
        objects: Vec::new(),
        pages: 0,
        tally: EdgeTally::default(),
    };
    // The end of the run may come at any wait: then there is no time left.
    let _ = worker.begin(system);
    holder.fill();
    let _ = wait(system, worker.at().warm_ns);
    while A::now_ns() < worker.at().until_ns {
        if holder.pages < holder.wanted(A::now_ns()) {
            holder.take();
        } else {
            holder.release();
        }
    }
    let tally = std::mem::take(&mut holder.tally);
    worker.add(&Tally { user_ns: tally.user_ns, ..Tally::default() });
    worker.run.inside(|memory| memory.edge.add(tally));
    let _ = worker.rest(system);
    while !holder.objects.is_empty() {
        holder.release();
    }
}

impl<A: Machine> Holder<'_, A> {
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
    /// How many pages it wants at a time: up and down between its share and what it has filled.
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
            // A program that got no huge page takes small ones.
            return;
        }
        self.compute(BACKOFF_NS);
        self.release();
    }
    fn compute(&mut self, ns: u64) {
        if self.worker.at().counts(A::now_ns()) {
            self.tally.user_ns += ns;
        }
        A::user(ns);
    }
    /// As many of `count` single pages as there are.
    fn object(&mut self, count: usize) -> Object {
        let blocks = (0..count).map_while(|_| self.block(Order::ZERO)).collect();
        Object { blocks, order: Order::ZERO }
    }
    fn block(&mut self, order: Order) -> Option<Pfn> {
        let (pages, from_ns) = (order.pages() as i64, A::now_ns());
        self.tally.taken.push((from_ns, pages));
        let kind = match self.rng.next_u64() % 4 {
            0 => MigrateType::Unmovable,
            _ => MigrateType::Movable,
        };
        let block = self.frames.alloc_pages(order, kind, Gfp::KERNEL).ok();
        let to_ns = A::now_ns();
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
    /// Gives any one object back.
    fn release(&mut self) {
        if self.objects.is_empty() {
            return;
        }
        let at = self.rng.next_u64() as usize % self.objects.len();
        let object = self.objects.swap_remove(at);
        self.pages -= object.pages();
        for &block in &object.blocks {
            self.frames.free_pages(block, object.order);
            self.tally.taken.push((A::now_ns(), -(object.order.pages() as i64)));
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
        // 89 taken and the one that is asked for: 11 are free.
        assert_eq!(failures(&[(0, 89), (20, 1), (30, -1)], &[(20, 30)]), 1);
        assert_eq!(failures(&[(0, 90), (20, 1), (30, -1)], &[(20, 30)]), 0);
        // Another takes pages meanwhile, and gives them back.
        let busy = [(0, 50), (20, 1), (22, 40), (25, -40), (30, -1)];
        assert_eq!(failures(&busy, &[(20, 30)]), 0);
        assert_eq!(failures(&busy, &[(26, 30)]), 1);
        // What comes back at the end of the call came too late.
        assert_eq!(failures(&[(0, 95), (20, 1), (30, -60), (30, -1)], &[(20, 30)]), 0);
    }
}
