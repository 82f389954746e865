//! Reading a slot's content into a folio.

use super::slots::SLOTS;
use super::{Swap, SwapDevice, SwapEntry};
use crate::folio::{FolioFlags, FolioInit};
use crate::lru::{FolioError, LruRef};
use crate::memcg::GroupId;
use core::sync::atomic::Ordering::Relaxed;
use mmscale_arch::{
    Atomic, Func, IoDirection, IoDone, Machine, NodeId, Op, Order, PageIo, Pfn, Span,
};
use mmscale_frames::page_alloc::Gfp;

/// The reason why a slot could not be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SwapError {
    /// The device failed.
    Io,
    /// No folio could be allocated.
    NoMemory(FolioError),
    /// No page-table entry names the slot any more: check the page table again.
    Gone,
}

impl core::fmt::Display for SwapError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Io => f.write_str("reading a page from swap: the device failed"),
            Self::NoMemory(why) => write!(f, "reading a page from swap: {why}"),
            Self::Gone => f.write_str(
                "reading a page from swap: its slot was freed; check the page table again",
            ),
        }
    }
}

impl core::error::Error for SwapError {}

/// Result of adding a new folio to the cache.
enum Joined {
    /// It was added; the slot must be read.
    Read,
    /// It was added; the slot's page is all zeros.
    Zero,
    /// Another folio is in the cache for the slot.
    Other,
    /// The slot is not used.
    Gone,
}

impl<A: Machine> Swap<A> {
    /// Like [`Swap::start_read`], and waits for the content: the folio is unlocked.
    pub fn read_in(
        &self,
        memory: LruRef<'_, A>,
        entry: SwapEntry,
        node: NodeId,
        group: GroupId,
        gfp: Gfp,
    ) -> Result<Pfn, SwapError> {
        let pfn = self.start_read(memory, entry, node, group, gfp)?;
        if !memory.folios.word(pfn).has(FolioFlags::UPTODATE) {
            self.wait_unlocked(memory, pfn);
            if !memory.folios.word(pfn).has(FolioFlags::UPTODATE) {
                self.lock_folio(memory, pfn);
                return Err(self.read_failed(memory, pfn));
            }
        }
        Ok(pfn)
    }

    /// Returns a folio for the slot's content, with a reference for the caller. The folio is from
    /// the cache, or newly allocated from memory nearest to `node`, charged to `group`, and read
    /// from the device or cleared. It is locked until it is read. The caller locks it, checks that
    /// it has its content ([`Swap::read_failed`]) and [`Swap::holds`] before mapping it. Sleeps if
    /// there is no room in the device's queue.
    pub fn start_read(
        &self,
        memory: LruRef<'_, A>,
        entry: SwapEntry,
        node: NodeId,
        group: GroupId,
        gfp: Gfp,
    ) -> Result<Pfn, SwapError> {
        let _span = Span::<A>::enter(Func::SwapReadFolio);
        let what = FolioInit {
            group,
            flags: FolioFlags::ANON | FolioFlags::SWAP_BACKED | FolioFlags::LOCKED,
            mapping: 0,
            index: 0,
        };
        loop {
            if let Some(pfn) = self.lookup(memory, entry) {
                return Ok(pfn);
            }
            let made = memory.alloc_folio(node, Order::ZERO, gfp, what);
            let pfn = made.map_err(SwapError::NoMemory)?;
            match self.join(memory, pfn, entry) {
                Joined::Zero => {
                    memory.add(pfn);
                    A::clear_block(pfn, Order::ZERO);
                    self.tally().zero_reads.add(1);
                    memory.folios.set(pfn, FolioFlags::UPTODATE);
                    self.unlock_folio(memory, pfn);
                    return Ok(pfn);
                }
                Joined::Read => {
                    memory.add(pfn);
                    self.tally().reads.add(1);
                    self.fill(
                        memory,
                        PageIo { direction: IoDirection::Read, block: entry.slot(), pfn },
                    );
                    return Ok(pfn);
                }
                Joined::Other => self.drop_new(memory, pfn),
                Joined::Gone => {
                    self.drop_new(memory, pfn);
                    return Err(SwapError::Gone);
                }
            }
        }
    }

    /// Starts reading into a new, locked folio of the cache; compressed memory is read
    /// synchronously.
    fn fill(&self, memory: LruRef<'_, A>, io: PageIo) {
        if self.config.device == SwapDevice::Block {
            return self.submit(io);
        }
        A::work(Op::DecompressPage, 1);
        self.filled(memory, IoDone { io, failed: !A::io_now(io) });
    }

    fn drop_new(&self, memory: LruRef<'_, A>, pfn: Pfn) {
        self.unlock_folio(memory, pfn);
        memory.put(pfn);
    }

    /// Adds a new, locked folio to the cache for the slot.
    fn join(&self, memory: LruRef<'_, A>, pfn: Pfn, entry: SwapEntry) -> Joined {
        let slot = self.slot(entry);
        let cluster = self.clusters[entry.index() / SLOTS].lock();
        if slot.cached.load(Relaxed) != 0 {
            return Joined::Other;
        }
        if slot.count() == 0 {
            return Joined::Gone;
        }
        self.publish(memory, pfn, entry);
        let zero = slot.is_zero();
        drop(cluster);
        if zero { Joined::Zero } else { Joined::Read }
    }

    /// Drops a folio whose read failed, and the caller's lock and reference. It leaves the cache,
    /// so that another try reads again. All tasks that have the folio get [`SwapError::Io`].
    pub fn read_failed(&self, memory: LruRef<'_, A>, pfn: Pfn) -> SwapError {
        self.delete(memory, pfn);
        self.unlock_folio(memory, pfn);
        memory.put(pfn);
        SwapError::Io
    }
}
