//! Giving several pageblocks back together, each with one plain store to its head.

use super::BlockMap;
use super::head::Head;
use core::cell::Cell;
use core::sync::atomic::Ordering::{Acquire, Release, SeqCst};
use mmscale_arch::{Atomic, Cpu, CpuId, planted};

/// While it lasts, its CPU changes the heads of pageblocks of which it gives everything back.
/// Nobody else changes these but who isolates one. So a CPU that nobody isolates anything beside
/// needs no atomic operation for each of them: it says once that it begins, and who isolates waits
/// until it ends, or those who come later see that somebody does and are as careful as one has to
/// be.
///
/// Whole pageblocks on the way out need none of this: who has taken the bit of one out of where
/// they are found is the only one who may change its head, and who isolates waits for that bit.
pub(super) struct Batch<'a, A: Cpu> {
    /// Nonzero while its CPU changes heads with plain stores.
    inside: &'a A::AtomicU32,
    mode: Cell<Mode>,
}

/// What a batch's CPU does.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// It has not changed any head yet.
    Idle,
    /// As [`HeadWrite::Plain`].
    Plain,
    /// As [`HeadWrite::Cas`].
    Cas,
}

/// How a CPU changes heads until its batch ends.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum HeadWrite {
    /// With plain stores: who isolates waits.
    Plain,
    /// With compare-and-exchange: somebody isolates.
    Cas,
}

impl<A: Cpu> Batch<'_, A> {
    /// How its CPU may change heads from now on.
    #[inline]
    pub(super) fn enter(&self, map: &BlockMap<A>) -> HeadWrite {
        if self.mode.get() == Mode::Idle {
            self.begin(map);
        }
        if self.mode.get() == Mode::Plain { HeadWrite::Plain } else { HeadWrite::Cas }
    }
    fn begin(&self, map: &BlockMap<A>) {
        // Pairs with `without_batches`, which counts itself and then loads `inside`: all four
        // operations are sequentially consistent, so one side sees the other.
        self.inside.swap(1, SeqCst);
        let order = if planted!(BlockmapBatchAcquired) { Acquire } else { SeqCst };
        if map.isolating.load(order) == 0 {
            self.mode.set(Mode::Plain);
        } else {
            self.inside.store(0, Release);
            self.mode.set(Mode::Cas);
        }
    }
}

impl<A: Cpu> Drop for Batch<'_, A> {
    #[inline]
    fn drop(&mut self) {
        if self.mode.get() == Mode::Plain {
            self.inside.store(0, Release);
        }
    }
}

impl<A: Cpu> BlockMap<A> {
    /// For the CPU this runs on, or one that has stopped, with preemption off. It is in no other
    /// batch: its cache has been entered.
    #[inline]
    pub(super) fn batch(&self, cpu: CpuId) -> Batch<'_, A> {
        Batch { inside: &self.shared.of(cpu).inside, mode: Cell::new(Mode::Idle) }
    }

    /// Makes of the head of a pageblock that the batch's CPU has all of what `change` makes of it.
    /// `false`: that is nothing, or somebody isolated the pageblock meanwhile.
    #[inline(always)]
    pub(super) fn replace(
        &self,
        write: HeadWrite,
        block: usize,
        change: impl FnOnce(Head) -> Option<Head>,
    ) -> bool {
        let head = &self.heads[block];
        let from = head.load(SeqCst);
        let Some(to) = change(Head(from)) else { return false };
        match write {
            HeadWrite::Plain => {
                head.store(to.0, Release);
                true
            }
            HeadWrite::Cas => head.compare_exchange(from, to.0, SeqCst, Acquire).is_ok(),
        }
    }

    /// Has no CPU in a batch with plain stores, and runs `isolate`. The caller may wait.
    pub(super) fn without_batches<T>(&self, isolate: impl FnOnce() -> T) -> T {
        self.isolating.fetch_add(1, SeqCst);
        for (_, shared) in self.shared.iter() {
            while shared.inside.load(SeqCst) != 0 {
                A::relax();
            }
        }
        let done = isolate();
        self.isolating.fetch_sub(1, Release);
        done
    }
}
