//! Writing a folio to its slot.

use super::slots::SLOTS;
use super::{Swap, SwapDevice, Zeromap};
use crate::folio::FolioFlags;
use crate::lru::{LruRef, Pending};
use core::sync::atomic::Ordering::SeqCst;
use mmscale_arch::sync::{PreemptGuard, WaitQueue};
use mmscale_arch::{Atomic, Func, IoDirection, IoDone, Machine, Op, PageIo, Pfn, Span};

/// Result of writing a folio out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WriteOut {
    /// The request was submitted. The folio is under writeback until [`Swap::io_interrupt`].
    Started,
    /// The folio is all zeros, and its slot is marked so. It is clean.
    Zero,
    /// The device has the content, or has failed and the folio is dirty again. It is not under
    /// writeback.
    Stored,
    /// The slot was not needed any more: the folio has left the cache.
    Unneeded,
}

/// Wait queues for room in the device's queue; many CPUs share each (`SBQ_WAIT_QUEUES`).
pub(super) const DEVICE_QUEUES: usize = 8;

/// Tasks that wait for room in the device's queue.
pub(super) struct DeviceWaiters<A: Machine> {
    waiters: WaitQueue<A>,
    /// Number of waiters, including those that do not sleep yet or any more.
    waiting: A::AtomicU32,
}

impl<A: Machine> DeviceWaiters<A> {
    pub(super) fn new() -> Self {
        Self { waiters: WaitQueue::new(), waiting: A::AtomicU32::new(0) }
    }
}

impl<A: Machine> Swap<A> {
    /// Starts writing a folio of the cache to its slot and unlocks it (`swap_writeout`). The caller
    /// has the lock and a reference. The folio is clean until it is written to again. Sleeps if the
    /// device's queue is full; does not wait for the device otherwise.
    ///
    /// If the folio has `RECLAIM` set, it moves to the tail of its LRU list when it is written.
    pub fn write_out(&self, memory: LruRef<'_, A>, pfn: Pfn) -> WriteOut {
        let _span = Span::<A>::enter(Func::SwapWriteout);
        if self.free_swap(memory, pfn) {
            memory.folios.clear(pfn, FolioFlags::RECLAIM);
            self.unlock_folio(memory, pfn);
            return WriteOut::Unneeded;
        }
        // Cleared before the page is read: a later write to it makes the folio dirty again.
        let old = memory.folios.clear(pfn, FolioFlags::DIRTY);
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
            // The scan of a page that is not all zeros mostly ends at its first word: it costs
            // nothing.
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
            if !self.keep_compressed(memory, entry) || !A::io_now(io) {
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
        WriteOut::Started
    }

    /// Starts reading a block that is not in the swap area into a locked folio, which the
    /// completion unlocks. Sleeps until the device's queue has room.
    pub(crate) fn read_block(&self, io: PageIo) {
        self.tally().file_reads.add(1);
        self.submit(io);
    }

    /// Starts writing a folio under writeback to a block that is not in the swap area. Sleeps until
    /// the device's queue has room.
    pub(crate) fn write_block(&self, io: PageIo) {
        self.tally().file_writes.add(1);
        self.submit(io);
    }

    /// Submits a request to the device; sleeps until its queue has room.
    pub(super) fn submit(&self, io: PageIo) {
        A::work(Op::IoSubmit, 1);
        let given = || {
            let _pinned = PreemptGuard::<A>::new();
            A::io_submit(io).is_ok()
        };
        if given() {
            return;
        }
        let queue = &self.device_waiters[A::cpu().index() % DEVICE_QUEUES];
        // Counted before the next try: if that fails too, a later completion sees the waiter.
        queue.waiting.fetch_add(1, SeqCst);
        queue.waiters.wait_until(given);
        queue.waiting.fetch_sub(1, SeqCst);
    }

    /// Completes the device's finished requests of this CPU, for
    /// [`Ipi::Block`](mmscale_arch::Ipi::Block). Also called in a task, for a CPU that has died.
    ///
    /// A folio whose write failed is dirty again and stays in the cache: its content is only in
    /// memory. One whose read failed is not up to date.
    pub fn io_interrupt(&self, memory: LruRef<'_, A>) {
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

    /// Wakes one waiter for the free place in the device's queue, if there is one. If another task
    /// takes the place first, the completion of that task's request wakes the next waiter: while a
    /// task waits, requests are in flight.
    fn wake_for_room(&self) {
        let own = A::cpu().index();
        let mut queues =
            (0..DEVICE_QUEUES).map(|step| &self.device_waiters[(own + step) % DEVICE_QUEUES]);
        // Store buffering with `submit`. There: `waiting`, then the next try. Here: the free place,
        // then `waiting`. The try finds the place, or this finds the waiter.
        if let Some(queue) = queues.find(|queue| queue.waiting.load(SeqCst) != 0) {
            queue.waiters.wake_one();
        }
    }

    fn written(&self, memory: LruRef<'_, A>, done: IoDone) {
        let pfn = done.io.pfn;
        if done.failed {
            self.tally().write_errors.add(1);
            memory.folios.set(pfn, FolioFlags::DIRTY);
            memory.folios.clear(pfn, FolioFlags::RECLAIM);
        }
        // The cache's reference lasts while the folio is under writeback; this one is for
        // afterwards.
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

    pub(super) fn filled(&self, memory: LruRef<'_, A>, done: IoDone) {
        let pfn = done.io.pfn;
        if done.failed {
            self.tally().read_errors.add(1);
        } else {
            memory.folios.set(pfn, FolioFlags::UPTODATE);
        }
        self.unlock_folio(memory, pfn);
    }
}
