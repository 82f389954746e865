//! Draining CPUs' caches.
//!
//! Other CPUs may take over a block that a CPU owns. They cannot take the frames in its cache: only
//! that CPU changes the cache, and without atomic operations. The simple solution is an interrupt
//! to all CPUs. The cache's flag `nonempty` saves most of them: a CPU whose flag is 0 has nothing
//! to drain. The interrupt may come while its CPU uses the cache. The handler then does nothing,
//! counts that in `refused`, and the interrupt is sent again.
//!
//! # Ordering
//!
//! | | one side | other side |
//! |---|---|---|
//! | 1 | the CPU: `mark_nonempty`, then reads a head | `isolate`, then a drain reads the flag |
//! | 2 | `mark_empty`: fence `Release`, flag = 0 | a drain: flag is 0, fence `Acquire` |
//! | 3 | `end_fold`: `folding` - 1, `AcqRel` | `drain_remote`: `folding` is 0, `Acquire` |
//! | 4 | `ack_drain`: a count + 1, `AcqRel` | `drain_remote`: `Acquire` loads of the counts |
//! | 5 | `leave`: adds frames, clears `busy`, `AcqRel` | `enter`: compare-exchange, `SeqCst` |
//! | 6 | a free: clears bits, `SeqCst` or `Release` | `starts`, `word_with`: `Acquire` loads |
//! | 7 | a free: clears bits, fence `SeqCst`, reads hints | `find_among`: hint, fence, bits |
//!
//! 1. The CPU sees that the block is isolated, or the drain sees the flag set. Each side writes,
//!    executes a `SeqCst` fence, and then reads the other's word: the store-buffering pattern, for
//!    which `Release` and `Acquire` are not enough. Without both fences a CPU could put a frame of
//!    an isolated block into its cache while the drain finds the flag 0, and allocate it later.
//! 2. The drained pages are in the map. `drain_here` increments `folding` before `mark_empty`, so
//!    a CPU that sees the flag 0 also sees the increment.
//! 3. The drained pages are in the zone's counter.
//! 4. The interrupt that was sent has been handled.
//! 5. The next CPU in the block sees the bits that are set. One operation adds the frames and
//!    clears `busy`: if `busy` were cleared first, the count would be too small for a moment. Frees
//!    of other frames could bring it to 0, and the block would be taken for a free one while the
//!    new frames are in use.
//! 6. The last user of the frames is done with them.
//! 7. The free sees that the hint is cleared and sets it, or the search sees the frames: the
//!    pattern of row 1 (`order_words`).

use super::BlockMap;
use super::cpu::CpuCache;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Release, SeqCst};
use mmscale_arch::sync::NoPreempt;
use mmscale_arch::{Atomic, Cpu, CpuId, OwnedCounter};

/// Turns of a wait for a CPU that uses its cache, which another CPU is to drain. A use is some
/// hundred instructions; more turns only help where the host has preempted the CPU.
const PATIENCE: u32 = 1000;

impl<A: Cpu> BlockMap<A> {
    /// Frees all frames of a cache to the map, and gives up its blocks; returns the pages freed.
    pub(super) fn empty(&self, cache: &CpuCache, cpu: CpuId) -> u32 {
        let pages = cache.pages();
        cache.forget_recent();
        self.flush_all(cache, cpu);
        self.disown_all(cache, cpu);
        pages
    }

    /// Gives up all blocks that a cache knows as its CPU's.
    pub(super) fn disown_all(&self, cache: &CpuCache, cpu: CpuId) {
        let blocks = cache.block.iter().chain([&cache.spare]);
        for cell in blocks.filter(|cell| cell.get().is_some()) {
            cell.take().into_iter().for_each(|block| self.disown(block, cpu));
        }
    }

    /// Drains this CPU's cache to the map; returns the pages freed. Returns `None` in an interrupt
    /// that came while the CPU uses the cache. After `Some` the caller folds the CPU's delta and
    /// calls [`BlockMap::end_fold`].
    pub(crate) fn drain_here(&self, pinned: &impl NoPreempt<A>) -> Option<u32> {
        let cpu = pinned.cpu();
        let cache = self.caches.of(cpu).enter::<A>()?;
        let pages = self.empty(&cache, cpu);
        let shared = self.shared.of(cpu);
        // Before `mark_empty`: row 2 of the table.
        shared.folding.fetch_add(1, AcqRel);
        self.mark_empty(cpu);
        Some(pages)
    }

    /// Reports that the pages that [`BlockMap::drain_here`] freed are in the zone's counter.
    pub(crate) fn end_fold(&self, pinned: &impl NoPreempt<A>) {
        // Pairs with the `Acquire` load of `folding` in `drain_remote`.
        self.shared.of(pinned.cpu()).folding.fetch_sub(1, AcqRel);
    }

    /// Acknowledges a drain request to the CPU that waits in [`BlockMap::drain_remote`]: `drained`
    /// says whether the cache is empty and its delta folded.
    pub(crate) fn ack_drain(&self, pinned: &impl NoPreempt<A>, drained: bool) {
        let shared = self.shared.of(pinned.cpu());
        let answer = if drained { &shared.emptied } else { &shared.refused };
        // Pairs with the `Acquire` loads of both counts in `drain_remote`.
        answer.fetch_add(1, AcqRel);
    }

    /// Drains the cache of a CPU that is offline; returns the pages freed, and its delta, which the
    /// caller folds.
    pub(crate) fn drain_dead(&self, dead: CpuId) -> (u32, i64) {
        let cache = loop {
            if let Some(cache) = self.caches.of(dead).enter::<A>() {
                break cache;
            }
            // Only another CPU, which drains it, can be inside.
            assert!(A::SHARED_CACHES, "a CPU stops only between allocations and frees");
            A::relax();
        };
        let pages = self.empty(&cache, dead);
        self.mark_empty(dead);
        (pages, cache.take_delta())
    }

    /// Asks another CPU, which is online, to drain its cache, and waits until the pages are in the
    /// map and in the counter. Returns immediately if the cache is empty, or if CPUs cannot
    /// interrupt one another. The caller may wait, with interrupts on.
    pub(crate) fn drain_remote(&self, cpu: CpuId) {
        let shared = self.shared.of(cpu);
        while shared.nonempty.is_nonzero() {
            // Row 4: pairs with `ack_drain`. The request that follows adds to one of the counts.
            let before = (shared.emptied.load(Acquire), shared.refused.load(Acquire));
            if !A::request_drain(cpu) {
                return;
            }
            // Row 4: the CPU has answered.
            while (shared.emptied.load(Acquire), shared.refused.load(Acquire)) == before {
                if !A::is_online(cpu) || !shared.nonempty.is_nonzero() {
                    break;
                }
                A::relax();
            }
            // Row 4: pairs with `ack_drain`. If `emptied` has changed, the drained pages are in the
            // map.
            if !A::is_online(cpu) || shared.emptied.load(Acquire) != before.0 {
                break;
            }
        }
        // Pairs with the fence in `mark_empty`.
        A::fence(Acquire);
        // The pages are in the map, but perhaps not in the counter yet.
        while A::is_online(cpu) && shared.folding.load(Acquire) != 0 {
            A::relax();
        }
    }

    /// Drains the cache of another CPU from here, where CPUs share caches; returns the pages freed,
    /// and the CPU's delta, which the caller folds. Waits a while for a CPU that uses its cache,
    /// and then does nothing: `None`. Preemption is off.
    pub(crate) fn drain_shared(&self, cpu: CpuId) -> Option<(u32, i64)> {
        for _ in 0..PATIENCE {
            if !self.shared.of(cpu).nonempty.is_nonzero() {
                // Pairs with the fence in `mark_empty`.
                A::fence(Acquire);
                return Some((0, 0));
            }
            if let Some(cache) = self.caches.of(cpu).enter::<A>() {
                let pages = self.empty(&cache, cpu);
                self.mark_empty(cpu);
                return Some((pages, cache.take_delta()));
            }
            A::relax();
        }
        None
    }

    /// Waits until the caches of all CPUs that go offline are drained. The caller may wait, with
    /// interrupts on, and is not the task that takes such a CPU offline.
    pub(crate) fn wait_for_dying(&self) {
        for (cpu, shared) in self.shared.iter() {
            while !A::is_online(cpu) && shared.nonempty.is_nonzero() {
                A::relax();
            }
        }
        // Pairs with the fence in `mark_empty`.
        A::fence(Acquire);
    }

    /// Pages in the cache of `cpu`; exact while that CPU does not use it.
    pub(crate) fn cached_pages(&self, cpu: CpuId) -> u32 {
        self.caches.of(cpu).peek().pages()
    }

    /// Whether the cache of `cpu` has pages or an unfolded delta.
    pub(crate) fn has_pages_or_delta(&self, cpu: CpuId) -> bool {
        let cache = self.caches.of(cpu).peek();
        cache.pages() > 0 || cache.delta() != 0
    }

    /// Whether this CPU's unfolded delta exceeds `most` pages in either direction; the caller then
    /// calls [`BlockMap::take_delta`]. Returns `false` in an interrupt that came while the CPU uses
    /// its cache: the interrupted code may be changing the delta, and checks it itself.
    #[inline]
    pub(crate) fn has_unfolded_delta(&self, pinned: &impl NoPreempt<A>, most: i64) -> bool {
        let Some(cache) = self.caches.of(pinned.cpu()).enter::<A>() else { return false };
        let delta = cache.delta();
        let exceeds = delta.abs() > most;
        // A delta that is folded now needs no drain.
        if !exceeds && delta != 0 {
            self.mark_nonempty(pinned.cpu());
        }
        exceeds
    }

    /// Takes this CPU's unfolded delta, which the caller adds to the zone's counter. Interrupts are
    /// off, so that a drain request in between does not miss it. Returns `None` if the delta is 0,
    /// or in an interrupt that came while the CPU uses its cache.
    #[inline]
    pub(crate) fn take_delta(&self, pinned: &impl NoPreempt<A>) -> Option<i64> {
        let delta = self.caches.of(pinned.cpu()).enter::<A>()?.take_delta();
        (delta != 0).then_some(delta)
    }

    /// Clears the flag `nonempty` of a CPU whose cache is empty.
    fn mark_empty(&self, cpu: CpuId) {
        // Row 2: pairs with the fences in `drain_remote` and `wait_for_dying`. A CPU that reads 0
        // before its fence finds the pages in the map.
        A::fence(Release);
        self.shared.of(cpu).nonempty.set(0);
    }

    /// Sets this CPU's flag `nonempty`, before it puts pages or a delta into its cache. Later reads
    /// of heads are ordered after it.
    #[inline(always)]
    pub(super) fn mark_nonempty(&self, cpu: CpuId) {
        let nonempty = &self.shared.of(cpu).nonempty;
        if nonempty.get() == 0 {
            nonempty.set(1);
            // Row 1: pairs with the fence in `isolate` (isolate.rs).
            A::fence(SeqCst);
        }
    }
}
