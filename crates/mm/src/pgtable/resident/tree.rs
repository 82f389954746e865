//! Parts of a page count by CPU, and sums of them by groups of CPUs, groups of groups, and so on
//! (`percpu_counter_tree`, posted).
//!
//! A CPU's part and the sum of a group are never set back. Each gives what is above a multiple of
//! its batch to the level above, so the total has multiples of the last batch. The total's error is
//! at most a batch for each CPU and each group.

use super::cpus::CpuParts;
use alloc::boxed::Box;
use core::sync::atomic::Ordering::Relaxed;
use mmscale_arch::sync::NoPreempt;
use mmscale_arch::{Atomic, CpuId, DataLine, Machine};

/// Members of a group.
const MEMBERS: usize = 8;
/// Pages that a CPU gathers before it gives them on.
pub(super) const BATCH: i32 = 32;

/// The sums of a level of groups.
type Level<A> = Box<[<A as mmscale_arch::Cpu>::AtomicI64]>;

/// The parts of all CPUs, and the sums of groups, by level from the CPUs up.
pub(super) struct TreeParts<A: Machine> {
    parts: CpuParts,
    levels: Box<[Level<A>]>,
}

/// The change of the multiple of `batch` that a number has reached, from `before` by `change`.
const fn carried(before: i64, change: i64, batch: i64) -> i64 {
    ((before + change) / batch - before / batch) * batch
}

impl<A: Machine> TreeParts<A> {
    pub(super) fn new(cpus: usize) -> Self {
        let sizes = core::iter::successors(Some(cpus), |of| Some(of.div_ceil(MEMBERS)));
        let level = |size| (0..size).map(|_| A::AtomicI64::named(0, DataLine::Rss)).collect();
        let levels = sizes.skip(1).take_while(|&size| size > 1).map(level);
        Self { parts: CpuParts::with_batch(cpus, BATCH), levels: levels.collect() }
    }
    /// The sums of groups that are made with it.
    pub(super) fn groups(&self) -> usize {
        self.levels.iter().map(|level| level.len()).sum()
    }
    /// Adds `pages` to the calling CPU's part. Returns the pages to add to the total. `first` is
    /// called at the CPU's first use of its part.
    #[inline]
    pub(super) fn add(&self, pinned: &impl NoPreempt<A>, pages: i32, first: impl FnOnce()) -> i32 {
        let (before, _) = self.parts.change(pinned, pages, first);
        let carry = carried(before.into(), pages.into(), BATCH.into());
        if carry == 0 { 0 } else { self.carry(pinned.cpu(), carry) as i32 }
    }
    fn carry(&self, cpu: CpuId, mut pages: i64) -> i64 {
        let (mut at, mut batch) = (cpu.index(), i64::from(BATCH));
        for level in &self.levels {
            at /= MEMBERS;
            batch *= MEMBERS as i64;
            // Relaxed: as all of the count.
            let before = level[at].fetch_add(pages, Relaxed);
            pages = carried(before, pages, batch);
            if pages == 0 {
                break;
            }
        }
        pages
    }
    /// Returns the sum of all parts, which is the exact count.
    pub(super) fn sum(&self) -> i64 {
        self.parts.sum()
    }
    /// Returns the most by which the total is wrong, in pages.
    pub(super) fn error_max(&self, cpus: usize) -> u64 {
        let mut batch = BATCH as u64;
        let of_groups = self.levels.iter().map(|level| {
            batch *= MEMBERS as u64;
            level.len() as u64 * batch
        });
        of_groups.sum::<u64>() + cpus as u64 * BATCH as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mmscale_arch::sync::PreemptGuard;
    use mmscale_stepped::{self as stepped, Stepped};

    #[test]
    fn a_multiple_is_carried_when_it_is_reached_and_when_it_is_left() {
        assert_eq!(
            [(31, 1), (32, -1), (0, 95), (-31, -1), (16, -32)].map(|(b, c)| carried(b, c, 32)),
            [32, -32, 64, -32, 0]
        );
    }

    #[test]
    fn the_total_is_within_its_error_of_the_sum() {
        stepped::boot(40, 1000);
        let tree = TreeParts::<Stepped>::new(40);
        assert_eq!(tree.groups(), 5);
        let (mut total, mut exact) = (0, 0);
        for step in 0..4000_i64 {
            stepped::set_cpu((step * 7 % 40) as usize);
            let pages = ((step * 31) % 113 - 40) as i32;
            let pinned = PreemptGuard::<Stepped>::new();
            total += i64::from(tree.add(&pinned, pages, || ()));
            exact += i64::from(pages);
            assert!(
                exact.abs_diff(total) <= tree.error_max(40),
                "step {step}: {exact} for {total}"
            );
        }
        assert_eq!(tree.sum(), exact);
        assert!(total > 0);
    }
}
