//! Freeing several pageblocks together, with one plain store to the head of each.
//!
//! A CPU that frees all frames of a pageblock is the only one that may change its head, with one
//! exception: another CPU may isolate the block. To be safe against that alone, each head would
//! need a compare-exchange. Isolation is rare, so a batch excludes it once for all of its heads:
//! Dekker's algorithm with two flags, `inside` of each CPU and `isolating` of the map.
//!
//! ```text
//! CPU in a batch                         isolator
//! (1) inside = 1          SeqCst         (a) isolating += 1       SeqCst
//! (2) read isolating      SeqCst         (b) read inside          SeqCst
//!     0: change heads with plain stores      0: change the head
//!     else: inside = 0, use                  else: repeat (b)
//!           compare-exchange
//! (3) inside = 0          Release        (c) isolating -= 1       Release
//! ```
//!
//! Each side writes its flag and then reads the other's: the store-buffering pattern. `SeqCst` puts
//! all four operations into one total order, so at least one side sees the other's flag: if (2)
//! reads 0, it is before (a), so (1) is before (b), which reads 1. With `Acquire` and `Release`
//! alone a processor may do its read before its write is visible to the other. Both sides could
//! then read 0, and a plain store could overwrite the `isolated` bit.
//!
//! (3) pairs with (b): an isolator that reads 0 sees the batch's heads. (c) pairs with (2): a batch
//! that reads 0 sees the isolated heads, and leaves them alone.
//!
//! Allocating whole pageblocks needs no batch. The CPU that has cleared a block's bit in the index
//! of whole blocks is the only one that may change its head, and isolators compete for that bit.

use super::BlockMap;
use super::head::Head;
use core::cell::Cell;
use core::sync::atomic::Ordering::{Acquire, Release, SeqCst};
use mmscale_arch::{Atomic, Cpu, CpuId};

/// A section in which a CPU changes the heads of pageblocks of which it frees all frames. It ends
/// when this is dropped.
pub(super) struct Batch<'a, A: Cpu> {
    /// Nonzero while its CPU changes heads with plain stores.
    inside: &'a A::AtomicU32,
    mode: Cell<Mode>,
}

/// State of a batch.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// The batch has not changed a head yet.
    Idle,
    /// It changes heads as [`HeadWrite::Plain`].
    Plain,
    /// It changes heads as [`HeadWrite::Cas`].
    Cas,
}

/// Operation with which a CPU changes heads until its batch ends.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum HeadWrite {
    /// Plain stores: isolators wait for the end of the batch.
    Plain,
    /// Compare-exchange: an isolation is in progress.
    Cas,
}

impl<A: Cpu> Batch<'_, A> {
    /// Starts the section, if it has not started; returns how its CPU may change heads.
    #[inline]
    pub(super) fn enter(&self, map: &BlockMap<A>) -> HeadWrite {
        if self.mode.get() == Mode::Idle {
            self.begin(map);
        }
        if self.mode.get() == Mode::Plain { HeadWrite::Plain } else { HeadWrite::Cas }
    }
    fn begin(&self, map: &BlockMap<A>) {
        // (1) and (2) of the module's documentation.
        self.inside.swap(1, SeqCst);
        if map.isolating.load(SeqCst) == 0 {
            self.mode.set(Mode::Plain);
        } else {
            // Pairs with (b), as (3) does.
            self.inside.store(0, Release);
            self.mode.set(Mode::Cas);
        }
    }
}

impl<A: Cpu> Drop for Batch<'_, A> {
    #[inline]
    fn drop(&mut self) {
        if self.mode.get() == Mode::Plain {
            // (3)
            self.inside.store(0, Release);
        }
    }
}

impl<A: Cpu> BlockMap<A> {
    /// A batch of the CPU this runs on, or of one that has stopped, with preemption off. The caller
    /// has entered that CPU's cache, so the CPU has no other batch.
    #[inline]
    pub(super) fn batch(&self, cpu: CpuId) -> Batch<'_, A> {
        Batch { inside: &self.shared.of(cpu).inside, mode: Cell::new(Mode::Idle) }
    }

    /// Replaces the head of a pageblock, all frames of which belong to the batch's CPU, by
    /// `change(head)`. Returns `false`, and changes nothing, if that is `None` or if the pageblock
    /// was isolated meanwhile.
    #[inline(always)]
    pub(super) fn replace(
        &self,
        write: HeadWrite,
        block: usize,
        change: impl FnOnce(Head) -> Option<Head>,
    ) -> bool {
        let head = &self.heads[block];
        // Pairs with the changes of heads on other CPUs. After (2) has read 0 it sees `isolated`:
        // (c).
        let from = head.load(SeqCst);
        let Some(to) = change(Head(from)) else { return false };
        match write {
            // Pairs with the loads of heads: a CPU that finds the block free finds its bits clear.
            HeadWrite::Plain => {
                head.store(to.0, Release);
                true
            }
            // Pairs with the loads of heads, and with `mark_isolated` (isolate.rs) on the same
            // word.
            HeadWrite::Cas => head.compare_exchange(from, to.0, SeqCst, Acquire).is_ok(),
        }
    }

    /// Waits until no CPU is in a batch with plain stores, and runs `isolate` while none is. The
    /// caller may wait. Its steps are (a), (b) and (c) of the module's documentation.
    pub(super) fn without_batches<T>(&self, isolate: impl FnOnce() -> T) -> T {
        // (a)
        self.isolating.fetch_add(1, SeqCst);
        // (b)
        for (_, shared) in self.shared.iter() {
            while shared.inside.load(SeqCst) != 0 {
                A::relax();
            }
        }
        let done = isolate();
        // (c)
        self.isolating.fetch_sub(1, Release);
        done
    }
}
