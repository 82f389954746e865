//! Blocks that nobody may allocate from: isolated, and then taken offline.

use super::BlockMap;
use super::head::Head;
use crate::frame::MigrateType;
use crate::zone::IsolateError;
use core::sync::atomic::Ordering::SeqCst;
use mmscale_arch::sync::PreemptGuard;
use mmscale_arch::{Atomic, Cpu, Pfn, planted};

impl<A: Cpu> BlockMap<A> {
    /// Keeps the pageblock at `pfn` from being allocated from, and takes it from its owner; what
    /// is freed into it from now on stays there. Returns the free pages that are lost to the zone;
    /// `None`: it is isolated already.
    ///
    /// Frames of it that CPUs keep are still handed out: drain them afterwards.
    pub(crate) fn isolate(&self, pfn: Pfn) -> Option<u64> {
        let block = self.block_of(pfn);
        let head = self.without_batches(|| self.mark_isolated(block))?;
        // The other half of `mark_nonempty`: a CPU that took the block for an open one says that it
        // keeps something, and whoever drains from now on sees that.
        A::fence(SeqCst);
        Some(head.free())
    }
    /// What the head said before. Waits while the block is in somebody's hands.
    fn mark_isolated(&self, block: usize) -> Option<Head> {
        loop {
            let head = self.head(block);
            if head.is_isolated() {
                return None;
            }
            if head.is_unowned_free() {
                // Whoever waits for the block has preemption off, and this task may be on his CPU.
                let _pinned = PreemptGuard::<A>::new();
                if self.whole.clear(block) {
                    let head = self.head(block);
                    self.heads[block].store(head.with_isolated(true).0, SeqCst);
                    return Some(head);
                }
            } else if (!head.is_busy() || planted!(BlockmapBusyIsolated))
                && self.change(block, head, head.disowned().with_isolated(true))
            {
                return Some(head);
            }
            A::relax();
        }
    }
    /// Undoes [`BlockMap::isolate`]; the free pages that the zone has again.
    pub(crate) fn unisolate(&self, pfn: Pfn) -> Option<u64> {
        let block = self.block_of(pfn);
        // As in `mark_isolated`: until it is filed it is in this task's hands.
        let _pinned = PreemptGuard::<A>::new();
        loop {
            let head = self.head(block);
            if !head.is_isolated() || head.is_offline() {
                return None;
            }
            let open = head.with_isolated(false);
            if self.change(block, head, open) {
                self.file(block, open);
                return Some(head.free());
            }
        }
    }
    /// Takes an isolated block offline if nothing of it is used.
    pub(crate) fn take_offline(&self, pfn: Pfn) -> Result<(), IsolateError> {
        let block = self.block_of(pfn);
        loop {
            let head = self.head(block);
            if !head.is_isolated() || head.is_offline() {
                return Err(IsolateError::NotNow);
            }
            if head.used() != 0 {
                return Err(IsolateError::Busy(head.used() as u32));
            }
            if self.change(block, head, head.with_offline(true)) {
                return Ok(());
            }
        }
    }
    /// Undoes [`BlockMap::take_offline`]: the block is isolated, and all of it is free.
    pub(crate) fn bring_online(&self, pfn: Pfn) -> Result<(), IsolateError> {
        let block = self.block_of(pfn);
        let head = self.head(block);
        let back = head.with_offline(false).with_kind(MigrateType::Movable);
        if head.is_offline() && self.change(block, head, back) {
            Ok(())
        } else {
            Err(IsolateError::NotNow)
        }
    }
}
