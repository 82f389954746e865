//! Getting back what CPUs keep.
//!
//! A block that a CPU owns needs nobody's help. The frames in a CPU's words do: only that CPU
//! changes them, and without atomic operations. So others ask by an interrupt. It may come while
//! its CPU uses them; then it does nothing, says so, and is sent again.

use super::BlockMap;
use super::cpu::CpuCache;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Release, SeqCst};
use core::sync::atomic::fence;
use mmscale_arch::sync::NoPreempt;
use mmscale_arch::{Atomic, Cpu, CpuId, OwnedCounter, planted};

impl<A: Cpu> BlockMap<A> {
    /// Gives all that a cache holds to the map; how many pages.
    pub(super) fn empty(&self, cache: &CpuCache, cpu: CpuId) -> u32 {
        let pages = cache.pages();
        cache.forget_fate();
        self.send_all_home(cache, cpu);
        self.disown_all(cache, cpu);
        pages
    }

    /// Gives up all blocks that a CPU owns.
    pub(super) fn disown_all(&self, cache: &CpuCache, cpu: CpuId) {
        let blocks = cache.block.iter().chain([&cache.spare]);
        for cell in blocks.filter(|cell| cell.get().is_some()) {
            cell.take().into_iter().for_each(|block| self.disown(block, cpu));
        }
    }

    /// Gives all that this CPU keeps to the map; how many pages. `None`: it is an interrupt in the
    /// middle of an allocation or a free.
    pub(crate) fn drain_here(&self, pinned: &impl NoPreempt<A>) -> Option<u32> {
        let cpu = pinned.cpu();
        let cache = self.caches.of(cpu).enter()?;
        let pages = self.empty(&cache, cpu);
        let outside = self.outside.of(cpu);
        outside.counting.fetch_add(1, AcqRel);
        self.say_empty(cpu);
        Some(pages)
    }

    /// What [`BlockMap::drain_here`] has brought home is counted now.
    pub(crate) fn counted(&self, pinned: &impl NoPreempt<A>) {
        self.outside.of(pinned.cpu()).counting.fetch_sub(1, AcqRel);
    }

    /// Tells a CPU that asked this one for what it keeps ([`BlockMap::drain_remote`]) whether that
    /// has come home and is counted.
    pub(crate) fn answer(&self, pinned: &impl NoPreempt<A>, drained: bool) {
        let outside = self.outside.of(pinned.cpu());
        let answer = if drained { &outside.emptied } else { &outside.refused };
        answer.fetch_add(1, AcqRel);
    }

    /// Gives all that a CPU keeps that has stopped for good to the map; how many pages, and what
    /// it had not counted.
    pub(crate) fn drain_dead(&self, dead: CpuId) -> (u32, i64) {
        let cache = self.caches.of(dead).enter();
        let cache = cache.expect("a CPU stops only between allocations and frees");
        let pages = self.empty(&cache, dead);
        self.say_empty(dead);
        (pages, cache.settle())
    }

    /// Has another CPU, which is online, give up what it keeps, and waits for that. The caller may
    /// wait, with interrupts on.
    pub(crate) fn drain_remote(&self, cpu: CpuId) {
        let outside = self.outside.of(cpu);
        while outside.filled.is_nonzero() {
            let before = (outside.emptied.load(Acquire), outside.refused.load(Acquire));
            if !A::request_drain(cpu) {
                return;
            }
            while (outside.emptied.load(Acquire), outside.refused.load(Acquire)) == before {
                if !A::is_online(cpu) || !outside.filled.is_nonzero() {
                    break;
                }
                A::relax();
            }
            if !A::is_online(cpu) || outside.emptied.load(Acquire) != before.0 {
                break;
            }
        }
        // The other half of `say_empty`.
        fence(Acquire);
        // The pages are in the map, but perhaps not in the counters.
        while A::is_online(cpu)
            && outside.counting.load(Acquire) != 0
            && !planted!(BlockmapCountUnawaited)
        {
            A::relax();
        }
    }

    /// Waits until no CPU that goes away keeps anything. The caller may wait, with interrupts on,
    /// and is not the one who sees that CPU off.
    pub(crate) fn wait_for_dying(&self) {
        for (cpu, outside) in self.outside.iter() {
            while !A::is_online(cpu) && outside.filled.is_nonzero() {
                A::relax();
            }
        }
        fence(Acquire);
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

    /// Whether this CPU has not counted more than `most` pages yet, either way. Not in an interrupt
    /// that came while the CPU uses its cache: it may be adding to the sum just then, and asks
    /// itself. Who hears that it does settles it.
    #[inline]
    pub(crate) fn owes(&self, pinned: &impl NoPreempt<A>, most: i64) -> bool {
        let Some(cache) = self.caches.of(pinned.cpu()).enter() else { return false };
        let uncounted = cache.uncounted();
        let owes = uncounted.abs() > most;
        // Who counts it all at once has nothing to say, and need not be drained for it.
        if !owes && uncounted != 0 {
            self.say_filled(pinned.cpu());
        }
        owes
    }

    /// What this CPU has not counted yet, which the caller counts now; interrupts are off, so that
    /// who has this CPU drained meanwhile does not miss it. `None`: nothing, or it is an interrupt
    /// as above.
    #[inline]
    pub(crate) fn settle(&self, pinned: &impl NoPreempt<A>) -> Option<i64> {
        let owed = self.caches.of(pinned.cpu()).enter()?.settle();
        (owed != 0).then_some(owed)
    }

    /// Lets others know that a CPU keeps nothing any more. Who sees it, and then an acquire fence,
    /// finds the pages in the map.
    fn say_empty(&self, cpu: CpuId) {
        fence(Release);
        self.outside.of(cpu).filled.set(0);
    }

    /// Lets others know that this CPU keeps something, or will in a moment: what it looks at
    /// afterwards is no older than that.
    #[inline(always)]
    pub(super) fn say_filled(&self, cpu: CpuId) {
        let filled = &self.outside.of(cpu).filled;
        if filled.get() == 0 {
            filled.set(1);
            if !planted!(BlockmapFilledUnfenced) {
                fence(SeqCst);
            }
        }
    }
}
