//! Frames that nobody waits for: they were taken out of an address space, are free once no CPU
//! uses them by an old translation, and whoever took them out has other things to do.
//!
//! A frame waits with its address space and a generation. The CPUs that were behind have been
//! nudged; when all have caught up, gone elsewhere or gone idle, the frame may go. Somebody comes
//! by once an interval and looks, and so does whoever puts frames here next; and who is short of
//! memory waits for the CPUs, and takes all.
//!
//! Only with `requests`, and only where nobody was promised that the pages are gone: the reaper's
//! victim is dying. What munmap and mprotect say to their callers needs a flush. What reclaim takes
//! out waits in parcels of its own ([`super::Batch`], `parcel`).
//!
//! Lock order: the line's lock (class Other) is innermost. Frames are released with nothing held.

use super::cpu::Loaded;
use super::{Begun, Extent, Flushed, Forgetting, SINGLE_FLUSH_CEILING, Tlb};
use crate::smp::{Count, Max, Wait};
use alloc::collections::VecDeque;
use core::sync::atomic::Ordering::{Acquire, Release, SeqCst};
use mmscale_arch::sync::SpinLock;
use mmscale_arch::{Asid, Atomic, CpuMask, LockClass, Machine, Pfn, planted};

/// Frames that limbo has room for, on any machine: 16 MiB of single pages.
pub const LIMBO_FRAMES: usize = 4096;
/// Frames that are released at a time.
const CHUNK: usize = 64;

/// A frame, or several of one folio.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Parked {
    /// The first.
    pub pfn: Pfn,
    /// References that go with it.
    pub count: u32,
}

/// One that waits.
#[derive(Clone, Copy)]
struct Waiting {
    what: Parked,
    asid: Asid,
    generation: u64,
    since_ns: u64,
}

/// Which frames leave limbo.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Leave {
    /// Those that nobody uses any more by now.
    Passed,
    /// All: the caller waits until nobody does. It may sleep.
    All,
}

/// The line of those that wait, oldest first.
pub(super) struct Limbo<A: Machine> {
    line: SpinLock<A, VecDeque<Waiting>>,
    /// How many there are, for who only wants to know whether there are any.
    len: A::AtomicU32,
}

impl<A: Machine> Limbo<A> {
    pub(super) fn new(forgetting: Forgetting) -> Self {
        let room = match forgetting {
            Forgetting::Called => 0,
            Forgetting::Nudged => LIMBO_FRAMES,
        };
        let line = SpinLock::new(LockClass::Other, VecDeque::with_capacity(room));
        Self { line, len: A::AtomicU32::new(0) }
    }
    fn is_empty(&self) -> bool {
        self.len.load_uncharged(Acquire) == 0
    }
}

impl<A: Machine> Tlb<A> {
    /// Whether frames may wait instead of their owner.
    pub fn has_limbo(&self) -> bool {
        self.forgetting() == Forgetting::Nudged && !A::has_tlb_broadcast()
    }
    /// Begins an invalidation that nobody waits for: what was taken out of `asid` within `extent`
    /// goes into limbo by it. With `requests` only.
    pub fn begin(&self, asid: Asid, extent: Extent) -> Begun {
        assert!(
            self.forgetting() == Forgetting::Nudged,
            "a flush without a wait needs generations"
        );
        self.smp.tally().add::<A>(Count::Flushes, 1);
        let space = self.space(asid);
        let generation = space.begin();
        space.note(generation, extent.at_most(SINGLE_FLUSH_CEILING));
        let interrupted = self.nudge_others(asid, space, generation).count() as u32;
        super::trace::<A>(extent, interrupted);
        Begun { asid, generation }
    }
    /// Puts frames into limbo; `false`: there is no room for all of them, and none is in it.
    pub fn park(&self, begun: Begun, frames: impl ExactSizeIterator<Item = Parked>) -> bool {
        let since_ns = A::now_ns();
        let mut line = self.limbo.line.lock();
        if line.len() + frames.len() > LIMBO_FRAMES {
            return false;
        }
        let Begun { asid, generation } = begun;
        line.extend(frames.map(|what| Waiting { what, asid, generation, since_ns }));
        self.limbo.len.store(line.len() as u32, Release);
        drop(line);
        self.note_limbo();
        true
    }
    /// Frames in limbo, reclaim's included.
    pub fn in_limbo(&self) -> usize {
        self.limbo.len.load(Acquire) as usize + self.parcels.pages()
    }
    /// More frames are in limbo than before.
    pub(super) fn note_limbo(&self) {
        let frames = self.limbo.len.load_uncharged(Acquire) as usize + self.parcels.pages();
        self.smp.tally().max::<A>(Max::Limbo, frames as u64);
    }
    /// Hands frames that leave limbo to `release`, with proof, some at a time; returns how many.
    pub fn leave_limbo(&self, leave: Leave, mut release: impl FnMut(&Flushed, &[Parked])) -> usize {
        let mut released = 0;
        // With another policy there is none, and nobody asks for its line.
        while self.forgetting() == Forgetting::Nudged && !self.limbo.is_empty() {
            let Some((asid, generation)) = self.oldest() else { break };
            let behind = self.behind(asid, generation);
            let proven = planted!(LimboUnproven);
            if leave == Leave::Passed && behind.count() > 0 && !proven {
                break;
            }
            let behind = if proven { CpuMask::EMPTY } else { behind };
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
    /// Takes frames at the front that wait for no more than this.
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
            self.smp.tally().max::<A>(Max::LimboAge, age_ns);
            to[taken] = first.what;
            line.pop_front();
            taken += 1;
        }
        self.limbo.len.store(line.len() as u32, Release);
        taken
    }
    /// The CPUs that use translations older than `generation`.
    pub(super) fn behind(&self, asid: Asid, generation: u64) -> CpuMask {
        let mut behind = CpuMask::EMPTY;
        for cpu in self.space(asid).cpus() {
            if Loaded::of(self.loaded_on(cpu).load(SeqCst)).is_behind(asid, generation) {
                behind.insert(cpu);
            }
        }
        behind
    }
}
