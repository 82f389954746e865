//! The way out: from a folio to its slot.

use super::slots::SLOTS;
use super::{Swap, SwapDevice, Zeromap};
use crate::folio::FolioFlags;
use crate::lru::{Memory, Pending};
use core::sync::atomic::Ordering::SeqCst;
use mmscale_arch::sync::{PreemptGuard, WaitQueue};
use mmscale_arch::{Atomic, Func, IoDirection, IoDone, Machine, Op, PageIo, Pfn, Span, planted};

/// What came of writing a folio out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WriteOut {
    /// The device has been told. The folio is under writeback until [`Swap::io_interrupt`].
    Started,
    /// It is all zeros, and its slot says so. It is clean.
    Zero,
    /// The device has it, or has failed: then it is dirty again. It is not under writeback.
    Stored,
    /// Nobody needs its slot: it has left the cache.
    Unneeded,
}

/// Queues for room in the device's queue; many CPUs share each (`SBQ_WAIT_QUEUES`).
pub(super) const ROOMS: usize = 8;

/// Tasks that wait for room in the device's queue.
pub(super) struct Room<A: Machine> {
    waiters: WaitQueue<A>,
    /// How many there are, those among them that do not sleep yet or any more.
    waiting: A::AtomicU32,
}

impl<A: Machine> Room<A> {
    pub(super) fn new() -> Self {
        Self { waiters: WaitQueue::new(), waiting: A::AtomicU32::new(0) }
    }
}

impl<A: Machine> Swap<A> {
    /// Begins to write a folio of the cache to its slot, and lets its lock go, which the caller has
    /// beside a reference (`swap_writeout`). It is clean from now on, unless somebody writes to it.
    /// Sleeps if the device's queue is full, but does not wait for the device otherwise.
    ///
    /// If `RECLAIM` is set on the folio it goes to the end of its LRU list when it is written.
    pub fn write_out(&self, memory: Memory<'_, A>, pfn: Pfn) -> WriteOut {
        let _span = Span::<A>::enter(Func::SwapWriteout);
        if self.free_swap(memory, pfn) {
            memory.folios.clear(pfn, FolioFlags::RECLAIM);
            self.unlock_folio(memory, pfn);
            return WriteOut::Unneeded;
        }
        // First: what is written from now on makes it dirty again.
        let late = planted!(SwapCleanLate);
        let first = if late { FolioFlags::empty() } else { FolioFlags::DIRTY };
        let old = memory.folios.clear(pfn, first);
        debug_assert!(
            old.has(FolioFlags::LOCKED | FolioFlags::SWAP_CACHE),
            "the folio at {pfn:?} is not in the cache, or its lock is not held: {old:?}"
        );
        let zero = self.config.zeromap == Zeromap::On && A::is_zero(pfn);
        let Some(entry) = self.entry_of(memory, pfn) else {
            unreachable!("the folio at {pfn:?} is in the cache, and its lock is held")
        };
        {
            let _cluster = self.clusters[entry.index() / SLOTS].lock();
            self.slot(entry).set_zero(zero);
        }
        if zero {
            // Reading a page that is not all zeros ends at its first word mostly: it costs nothing.
            A::work(Op::ZeroScan, 1);
            self.tally().zero_writes.add(1);
            memory.folios.clear(pfn, FolioFlags::RECLAIM);
            self.unlock_folio(memory, pfn);
            return WriteOut::Zero;
        }
        let io = PageIo { direction: IoDirection::Write, block: entry.slot(), pfn };
        self.tally().writes.add(1);
        if self.config.device == SwapDevice::Compressed {
            A::work(Op::CompressPage, 1);
            if !A::io_now(io) {
                self.tally().write_errors.add(1);
                memory.folios.set(pfn, FolioFlags::DIRTY);
            }
            memory.folios.clear(pfn, FolioFlags::RECLAIM);
            self.unlock_folio(memory, pfn);
            return WriteOut::Stored;
        }
        memory.folios.set(pfn, FolioFlags::WRITEBACK);
        self.unlock_folio(memory, pfn);
        self.submit(io);
        if late {
            memory.folios.clear(pfn, FolioFlags::DIRTY);
        }
        WriteOut::Started
    }

    /// Hands a request to the device; sleeps until its queue has room.
    pub(super) fn submit(&self, io: PageIo) {
        A::work(Op::IoSubmit, 1);
        let given = || {
            let _pinned = PreemptGuard::<A>::new();
            A::io_submit(io).is_ok()
        };
        if given() {
            return;
        }
        let room = &self.rooms[A::cpu().index() % ROOMS];
        // Before the next try: if that fails too, a request will end that sees this.
        let counted = u32::from(!planted!(SwapRoomUncounted));
        room.waiting.fetch_add(counted, SeqCst);
        room.waiters.wait_until(given);
        room.waiting.fetch_sub(counted, SeqCst);
    }

    /// The device has finished requests of this CPU: for
    /// [`Ipi::Block`](mmscale_arch::Ipi::Block). Also in a task, for a CPU that has died.
    ///
    /// A folio whose write has failed is dirty again and stays in the cache: its content is in
    /// memory only. One whose read has failed is not up to date.
    pub fn io_interrupt(&self, memory: Memory<'_, A>) {
        let _span = Span::<A>::enter(Func::FolioEndWriteback);
        let _pinned = PreemptGuard::<A>::new();
        while let Some(done) = A::io_done() {
            A::work(Op::IoComplete, 1);
            match done.io.direction {
                IoDirection::Write => self.written(memory, done),
                IoDirection::Read => self.filled(memory, done),
            }
            self.wake_for_room();
        }
    }

    /// There is one place more in the device's queue: for one waiter, if there is one. If somebody
    /// else has the place by now, or the waiter has found one by himself, then that one's request
    /// wakes the next when it ends: while anybody waits, requests are under way.
    fn wake_for_room(&self) {
        let own = A::cpu().index();
        let mut rooms = (0..ROOMS).map(|step| &self.rooms[(own + step) % ROOMS]);
        if let Some(room) = rooms.find(|room| room.waiting.load(SeqCst) != 0) {
            room.waiters.wake_one();
        }
    }

    fn written(&self, memory: Memory<'_, A>, done: IoDone) {
        let pfn = done.io.pfn;
        if done.failed {
            self.tally().write_errors.add(1);
            memory.folios.set(pfn, FolioFlags::DIRTY);
            memory.folios.clear(pfn, FolioFlags::RECLAIM);
        }
        // While it is under writeback the cache keeps its reference; ours is for afterwards.
        memory.folios.get(pfn);
        let rotates = memory.folios.test_and_clear(pfn, FolioFlags::RECLAIM);
        if rotates && memory.lru.pending() == Pending::Batch {
            memory.rotate(pfn);
        }
        self.end(memory, pfn, FolioFlags::WRITEBACK);
        if rotates {
            memory.rotate_waiting(pfn);
        }
        memory.put(pfn);
    }

    pub(super) fn filled(&self, memory: Memory<'_, A>, done: IoDone) {
        let pfn = done.io.pfn;
        if done.failed {
            self.tally().read_errors.add(1);
        } else {
            memory.folios.set(pfn, FolioFlags::UPTODATE);
        }
        self.unlock_folio(memory, pfn);
    }
}
