//! The way in: from a slot to a folio that has its content.

use super::slots::SLOTS;
use super::{Swap, SwapDevice, SwapEntry};
use crate::folio::{FolioFlags, FolioInit};
use crate::group::GroupId;
use crate::lru::{FolioError, Memory};
use core::sync::atomic::Ordering::Relaxed;
use mmscale_arch::{
    Atomic, Func, IoDirection, IoDone, Machine, NodeId, Op, Order, PageIo, Pfn, Span, planted,
};
use mmscale_frames::page_alloc::Gfp;

/// Why a slot's content did not come in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SwapError {
    /// The device could not read it.
    Io,
    /// There is no folio for it.
    NoMemory(FolioError),
    /// No page-table entry names the slot any more: look at the page table again.
    Gone,
}

impl core::fmt::Display for SwapError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Io => f.write_str("reading a page from swap: the device failed"),
            Self::NoMemory(why) => write!(f, "reading a page from swap: {why}"),
            Self::Gone => f.write_str("reading a page from swap: its slot was freed; look again"),
        }
    }
}

impl core::error::Error for SwapError {}

/// What became of a new folio that was to join the cache.
enum Joined {
    /// It did; the slot's page is to be read.
    Read,
    /// It did; the slot's page is all zeros.
    Zero,
    /// Another folio is there.
    Other,
    /// The slot is not used.
    Gone,
}

impl<A: Machine> Swap<A> {
    /// A folio with the slot's content, with a reference for the caller, and not locked: out of the
    /// cache, or new, from memory nearest to `node`, charged to `group`, read from the device or
    /// cleared. The caller takes its lock and asks [`Swap::holds`] before he maps it. Sleeps.
    ///
    /// A folio whose read has failed leaves the cache, so that another try reads again; everybody
    /// who waited for that read is told [`SwapError::Io`].
    pub fn read_in(
        &self,
        memory: Memory<'_, A>,
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
                return self.wait_for_content(memory, pfn);
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
                    return self.wait_for_content(memory, pfn);
                }
                Joined::Other => self.drop_new(memory, pfn),
                Joined::Gone => {
                    self.drop_new(memory, pfn);
                    return Err(SwapError::Gone);
                }
            }
        }
    }

    /// Has a new folio of the cache, which is locked, read; it may take a while.
    fn fill(&self, memory: Memory<'_, A>, io: PageIo) {
        if self.config.device == SwapDevice::Block {
            return self.submit(io);
        }
        A::work(Op::DecompressPage, 1);
        self.filled(memory, IoDone { io, failed: !A::io_now(io) });
    }

    fn drop_new(&self, memory: Memory<'_, A>, pfn: Pfn) {
        self.unlock_folio(memory, pfn);
        memory.put(pfn);
    }

    /// Puts a new folio, locked, into the cache for the slot.
    fn join(&self, memory: Memory<'_, A>, pfn: Pfn, entry: SwapEntry) -> Joined {
        let slot = self.slot(entry);
        let cluster = self.clusters[entry.index() / SLOTS].lock();
        if slot.cached.load(Relaxed) != 0 && !planted!(SwapJoinUnchecked) {
            return Joined::Other;
        }
        if slot.count() == 0 && !planted!(SwapFreedRead) {
            return Joined::Gone;
        }
        self.publish(memory, pfn, entry);
        let zero = slot.is_zero();
        drop(cluster);
        if zero { Joined::Zero } else { Joined::Read }
    }

    /// Waits until the folio, of which the caller has a reference, has been filled.
    fn wait_for_content(&self, memory: Memory<'_, A>, pfn: Pfn) -> Result<Pfn, SwapError> {
        if memory.folios.word(pfn).has(FolioFlags::UPTODATE) {
            return Ok(pfn);
        }
        self.wait_unlocked(memory, pfn);
        if memory.folios.word(pfn).has(FolioFlags::UPTODATE) {
            return Ok(pfn);
        }
        self.lock_folio(memory, pfn);
        self.delete(memory, pfn);
        self.unlock_folio(memory, pfn);
        memory.put(pfn);
        Err(SwapError::Io)
    }
}
