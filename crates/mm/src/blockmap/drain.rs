//! Getting back what CPUs keep.
//!
//! A block that a CPU owns needs nobody's help. The frames in a CPU's words do: only that CPU
//! changes them, and without atomic operations. So others ask by an interrupt. It may come while
//! its CPU uses them; then it does nothing, says so, and is sent again.

use super::BlockMap;
use super::cpu::CpuCache;
use crate::arch::{Arch, Atomic, CpuId, Ipi, OwnedCounter};
use crate::sync::NoPreempt;
use core::sync::atomic::Ordering::{AcqRel, Acquire};

impl<A: Arch> BlockMap<A> {
    /// Gives all that a cache holds to the map; how many pages.
    pub(super) fn empty(&self, cache: &CpuCache, cpu: CpuId) -> u32 {
        let mut pages = 0;
        while let Some(run) = cache.pop() {
            cache.account(self.put_back(run));
            pages += run.frames.count_ones();
        }
        let blocks = cache.block.iter().chain([&cache.spare]);
        blocks.filter_map(|block| block.take()).for_each(|block| self.disown(block, cpu));
        pages
    }

    /// Gives all that this CPU keeps to the map; how many pages. `None`: it is an interrupt in the
    /// middle of an allocation or a free.
    pub(crate) fn drain_here(&self, pinned: &impl NoPreempt<A>) -> Option<u32> {
        let cpu = pinned.cpu();
        let cache = self.caches.of(cpu).enter()?;
        self.outside.of(cpu).filled.set(0);
        Some(self.empty(&cache, cpu))
    }

    /// The interrupt by which another CPU asks this one for what it keeps.
    pub(crate) fn drain_ipi(&self, pinned: &impl NoPreempt<A>) {
        let outside = self.outside.of(pinned.cpu());
        let answer =
            if self.drain_here(pinned).is_some() { &outside.emptied } else { &outside.refused };
        answer.fetch_add(1, AcqRel);
    }

    /// Gives all that a CPU keeps that has stopped for good to the map; how many pages, and what
    /// it had not counted.
    pub(crate) fn drain_dead(&self, dead: CpuId) -> (u32, i64) {
        let cache = self.caches.of(dead).enter();
        let cache = cache.expect("a CPU stops only between allocations and frees");
        self.outside.of(dead).filled.set(0);
        (self.empty(&cache, dead), cache.settle())
    }

    /// Has another CPU, which is online, give up what it keeps, and waits for that. The caller may
    /// wait, with interrupts on.
    pub(crate) fn drain_remote(&self, cpu: CpuId) {
        let outside = self.outside.of(cpu);
        while outside.filled.is_nonzero() {
            let before = (outside.emptied.load(Acquire), outside.refused.load(Acquire));
            A::ipi_send(cpu, Ipi::DrainPages);
            while (outside.emptied.load(Acquire), outside.refused.load(Acquire)) == before {
                if !A::is_online(cpu) {
                    return;
                }
                A::relax();
            }
            if outside.emptied.load(Acquire) != before.0 {
                return;
            }
        }
    }

    /// Pages that `cpu` keeps to itself; only while it does nothing.
    pub(crate) fn cached_pages(&self, cpu: CpuId) -> u32 {
        self.caches.of(cpu).peek().pages()
    }

    /// Whether `cpu` may keep pages or owes the counter.
    pub(crate) fn keeps_something(&self, cpu: CpuId) -> bool {
        let cache = self.caches.of(cpu).peek();
        cache.pages() > 0 || cache.uncounted() != 0
    }

    /// What this CPU has not counted yet, if that is more than `most` pages either way.
    #[inline]
    pub(crate) fn settle(&self, pinned: &impl NoPreempt<A>, most: i64) -> Option<i64> {
        let cache = self.caches.of(pinned.cpu()).peek();
        let due = cache.uncounted().abs() > most;
        due.then(|| cache.settle())
    }
}
