//! Getting back what CPUs keep.
//!
//! A block that a CPU owns needs nobody's help. The frames in a CPU's words do: only that CPU
//! changes them, and without atomic operations. So others ask by an interrupt. It may come while
//! its CPU uses them; then it does nothing, says so, and is sent again.

use super::BlockMap;
use super::cpu::CpuCache;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Release, SeqCst};
use mmscale_arch::sync::NoPreempt;
use mmscale_arch::{Atomic, Cpu, CpuId, OwnedCounter, planted};

impl<A: Cpu> BlockMap<A> {
    /// Gives all that a cache holds to the map; how many pages.
    pub(super) fn empty(&self, cache: &CpuCache, cpu: CpuId) -> u32 {
        let pages = cache.pages();
        cache.forget_recent();
        self.flush_all(cache, cpu);
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
        let shared = self.shared.of(cpu);
        shared.folding.fetch_add(1, AcqRel);
        self.mark_empty(cpu);
        Some(pages)
    }

    /// What [`BlockMap::drain_here`] has brought home is counted now.
    pub(crate) fn end_fold(&self, pinned: &impl NoPreempt<A>) {
        self.shared.of(pinned.cpu()).folding.fetch_sub(1, AcqRel);
    }

    /// Tells a CPU that asked this one for what it keeps ([`BlockMap::drain_remote`]) whether that
    /// has come home and is counted.
    pub(crate) fn ack_drain(&self, pinned: &impl NoPreempt<A>, drained: bool) {
        let shared = self.shared.of(pinned.cpu());
        let answer = if drained { &shared.emptied } else { &shared.refused };
        answer.fetch_add(1, AcqRel);
    }

    /// Gives all that a CPU keeps that has stopped for good to the map; how many pages, and what
    /// it had not counted.
    pub(crate) fn drain_dead(&self, dead: CpuId) -> (u32, i64) {
        let cache = self.caches.of(dead).enter();
        let cache = cache.expect("a CPU stops only between allocations and frees");
        let pages = self.empty(&cache, dead);
        self.mark_empty(dead);
        (pages, cache.take_delta())
    }

    /// Has another CPU, which is online, give up what it keeps, and waits for that. The caller may
    /// wait, with interrupts on.
    pub(crate) fn drain_remote(&self, cpu: CpuId) {
        let shared = self.shared.of(cpu);
        while shared.nonempty.is_nonzero() {
            let before = (shared.emptied.load(Acquire), shared.refused.load(Acquire));
            if !A::request_drain(cpu) {
                return;
            }
            while (shared.emptied.load(Acquire), shared.refused.load(Acquire)) == before {
                if !A::is_online(cpu) || !shared.nonempty.is_nonzero() {
                    break;
                }
                A::relax();
            }
            if !A::is_online(cpu) || shared.emptied.load(Acquire) != before.0 {
                break;
            }
        }
        // Pairs with the fence in `mark_empty`.
        A::fence(Acquire);
        // The pages are in the map, but perhaps not in the counters.
        while A::is_online(cpu)
            && shared.folding.load(Acquire) != 0
            && !planted!(BlockmapCountUnawaited)
        {
            A::relax();
        }
    }

    /// Waits until no CPU that goes away keeps anything. The caller may wait, with interrupts on,
    /// and is not the one who sees that CPU off.
    pub(crate) fn wait_for_dying(&self) {
        for (cpu, shared) in self.shared.iter() {
            while !A::is_online(cpu) && shared.nonempty.is_nonzero() {
                A::relax();
            }
        }
        A::fence(Acquire);
    }

    /// Pages that `cpu` keeps to itself; only while it does nothing.
    pub(crate) fn cached_pages(&self, cpu: CpuId) -> u32 {
        self.caches.of(cpu).peek().pages()
    }

    /// Whether `cpu` may keep pages or owes the counter.
    pub(crate) fn has_pages_or_delta(&self, cpu: CpuId) -> bool {
        let cache = self.caches.of(cpu).peek();
        cache.pages() > 0 || cache.delta() != 0
    }

    /// Whether this CPU has not counted more than `most` pages yet, either way. Not in an interrupt
    /// that came while the CPU uses its cache: it may be adding to the sum just then, and asks
    /// itself. Who hears that it does settles it.
    #[inline]
    pub(crate) fn has_unfolded_delta(&self, pinned: &impl NoPreempt<A>, most: i64) -> bool {
        let Some(cache) = self.caches.of(pinned.cpu()).enter() else { return false };
        let delta = cache.delta();
        let owes = delta.abs() > most;
        // Who counts it all at once has nothing to say, and need not be drained for it.
        if !owes && delta != 0 {
            self.mark_nonempty(pinned.cpu());
        }
        owes
    }

    /// What this CPU has not counted yet, which the caller counts now; interrupts are off, so that
    /// who has this CPU drained meanwhile does not miss it. `None`: nothing, or it is an interrupt
    /// as above.
    #[inline]
    pub(crate) fn take_delta(&self, pinned: &impl NoPreempt<A>) -> Option<i64> {
        let owed = self.caches.of(pinned.cpu()).enter()?.take_delta();
        (owed != 0).then_some(owed)
    }

    /// Lets others know that a CPU keeps nothing any more. Who sees it, and then an acquire fence,
    /// finds the pages in the map.
    fn mark_empty(&self, cpu: CpuId) {
        A::fence(Release);
        self.shared.of(cpu).nonempty.set(0);
    }

    /// Lets others know that this CPU keeps something, or will in a moment: what it looks at
    /// afterwards is no older than that.
    #[inline(always)]
    pub(super) fn mark_nonempty(&self, cpu: CpuId) {
        let nonempty = &self.shared.of(cpu).nonempty;
        if nonempty.get() == 0 {
            nonempty.set(1);
            if !planted!(BlockmapFilledUnfenced) {
                A::fence(SeqCst);
            }
        }
    }
}
