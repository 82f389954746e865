//! Limbo: frames that were unmapped and become free once no CPU can use them by an old translation.
//! The task that unmapped them does not wait for that.
//!
//! A frame waits with its address space and a generation; the CPUs that were behind have been sent
//! a flush IPI. Once each of them has flushed, unloaded the address space or gone idle, the frame
//! is released. Frames are released by a check once an interval, by the next caller that adds
//! frames, and by a task that is short of memory, which waits for the CPUs and releases all.
//!
//! Used only with `requests`, and only for pages whose unmapping was not promised to a caller: the
//! reaper's victim is dying. `munmap` and `mprotect` need a completed flush before they return.
//! Pages that reclaim unmaps wait in batches of their own ([`super::UnmapBatch`], module
//! `limbo_batch`).
//!
//! Lock order: the queue's lock (class Other) is innermost. Frames are released with no lock held.

use super::cpu::ActiveMm;
use super::{Extent, FlushBy, Flushed, PendingFlush, SINGLE_FLUSH_CEILING, Tlb};
use crate::smp::Wait;
use alloc::collections::VecDeque;
use core::sync::atomic::Ordering::{Acquire, Release, SeqCst};
use mmscale_arch::sync::SpinLock;
use mmscale_arch::{Asid, Atomic, CpuMask, LockClass, Machine, Pfn};

/// Capacity of limbo in frames, on any machine: 16 MiB of base pages.
pub const LIMBO_FRAMES: usize = 4096;
/// Frames that are released together.
const CHUNK: usize = 64;

/// One frame, or several of one folio.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Parked {
    /// The first frame.
    pub pfn: Pfn,
    /// References that limbo holds on it.
    pub count: u32,
}

/// A queue entry: frames and the generation that they wait for.
#[derive(Clone, Copy)]
struct LimboEntry {
    what: Parked,
    asid: Asid,
    generation: u64,
    since_ns: u64,
}

/// Selects the frames to release.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Leave {
    /// Those that no CPU uses any more; does not wait.
    Passed,
    /// All: the caller waits until no CPU uses them. It may sleep.
    All,
}

/// The queue of waiting frames, oldest first.
pub(super) struct Limbo<A: Machine> {
    line: SpinLock<A, VecDeque<LimboEntry>>,
    /// Length of `line`, readable without the lock.
    len: A::AtomicU32,
}

impl<A: Machine> Limbo<A> {
    pub(super) fn new(flush_by: FlushBy) -> Self {
        let room = match flush_by {
            FlushBy::Call => 0,
            FlushBy::Generation => LIMBO_FRAMES,
        };
        let line = SpinLock::new(LockClass::Other, VecDeque::with_capacity(room));
        Self { line, len: A::AtomicU32::new(0) }
    }
    fn is_empty(&self) -> bool {
        // A hint. Pairs with the stores in `park` and `take`; frames are read under the lock.
        self.len.load_uncharged(Acquire) == 0
    }
}

impl<A: Machine> Tlb<A> {
    /// Returns whether frames may wait in limbo.
    pub fn has_limbo(&self) -> bool {
        self.flush_by() == FlushBy::Generation && Self::broadcast_for_all().is_none()
    }
    /// Starts an invalidation of `asid` within `extent` and does not wait for it. The returned
    /// value is passed to [`Tlb::park`] with the unmapped frames. With `requests` only.
    pub fn begin(&self, asid: Asid, extent: Extent) -> PendingFlush {
        assert!(self.flush_by() == FlushBy::Generation, "a flush without a wait needs generations");
        self.smp.tally().flushes.add(1);
        let context = self.context(asid);
        let generation = context.begin();
        context.publish(generation, extent.at_most(SINGLE_FLUSH_CEILING));
        let interrupted = self.send_flush_ipis(asid, context, generation).count() as u32;
        super::trace::<A>(extent, interrupted);
        PendingFlush { asid, generation }
    }
    /// Puts frames into limbo. Returns `false`, and adds none, if there is no room for all of them.
    pub fn park(&self, begun: PendingFlush, frames: impl ExactSizeIterator<Item = Parked>) -> bool {
        let since_ns = A::now_ns();
        let mut line = self.limbo.line.lock();
        if line.len() + frames.len() > LIMBO_FRAMES {
            return false;
        }
        let PendingFlush { asid, generation } = begun;
        line.extend(frames.map(|what| LimboEntry { what, asid, generation, since_ns }));
        // Pairs with the loads in `is_empty`, `in_limbo` and `note_limbo`, which are hints.
        self.limbo.len.store(line.len() as u32, Release);
        drop(line);
        self.note_limbo();
        true
    }
    /// Returns the number of frames in limbo, those of reclaim included.
    pub fn in_limbo(&self) -> usize {
        // Pairs with the stores in `park` and `take`, as in `is_empty`.
        self.limbo.len.load(Acquire) as usize + self.limbo_batches.pages()
    }
    /// Updates the maximum after frames were added.
    pub(super) fn note_limbo(&self) {
        // Pairs with the stores in `park` and `take`, as in `is_empty`.
        let frames = self.limbo.len.load_uncharged(Acquire) as usize + self.limbo_batches.pages();
        self.smp.tally().frames_in_limbo_max.note(frames as u64);
    }
    /// Passes frames that leave limbo, in chunks and with the proof, to `release`; returns their
    /// number.
    pub fn leave_limbo(&self, leave: Leave, mut release: impl FnMut(&Flushed, &[Parked])) -> usize {
        let mut released = 0;
        // The other policies have no limbo: do not take its lock.
        while self.flush_by() == FlushBy::Generation && !self.limbo.is_empty() {
            let Some((asid, generation)) = self.oldest() else { break };
            let behind = self.behind(asid, generation);
            if leave == Leave::Passed && behind.count() > 0 {
                break;
            }
            self.wait_for_all(asid, generation, &behind, Wait::Sleep);
            let mut chunk = [Parked { pfn: Pfn::new(0), count: 0 }; CHUNK];
            let mut len = CHUNK;
            while len == CHUNK {
                len = self.take(asid, generation, &mut chunk);
                if len > 0 {
                    release(&Flushed { asid }, &chunk[..len]);
                    released += len;
                }
            }
        }
        released
    }
    fn oldest(&self) -> Option<(Asid, u64)> {
        let line = self.limbo.line.lock();
        line.front().map(|first| (first.asid, first.generation))
    }
    /// Takes frames from the front of the queue that wait for `generation` of `asid` or an earlier
    /// one.
    fn take(&self, asid: Asid, generation: u64, to: &mut [Parked; CHUNK]) -> usize {
        let now_ns = A::now_ns();
        let mut line = self.limbo.line.lock();
        let mut taken = 0;
        while taken < CHUNK
            && let Some(first) = line.front()
            && first.asid == asid
            && first.generation <= generation
        {
            let age_ns = now_ns.saturating_sub(first.since_ns);
            self.smp.tally().limbo_age_max_ns.note(age_ns);
            to[taken] = first.what;
            line.pop_front();
            taken += 1;
        }
        // Pairs with the loads in `is_empty`, `in_limbo` and `note_limbo`, which are hints.
        self.limbo.len.store(line.len() as u32, Release);
        taken
    }
    /// Returns the CPUs that use translations older than `generation`.
    pub(super) fn behind(&self, asid: Asid, generation: u64) -> CpuMask {
        let mut behind = CpuMask::EMPTY;
        for cpu in self.context(asid).cpus() {
            // Step 3 of the table in mod.rs: pairs with the stores of loaded words in `switch` and
            // `enter_lazy` (mod.rs) and `flush_to_current_gen` (target.rs).
            if ActiveMm::of(self.loaded_on(cpu).load(SeqCst)).is_behind(asid, generation) {
                behind.insert(cpu);
            }
        }
        behind
    }
}
