//! Isolating pageblocks and taking them offline: no CPU allocates from them.

use super::BlockMap;
use super::head::Head;
use crate::frame::MigrateType;
use crate::zone::IsolateError;
use core::sync::atomic::Ordering::SeqCst;
use mmscale_arch::sync::PreemptGuard;
use mmscale_arch::{Atomic, Cpu, Pfn};

impl<A: Cpu> BlockMap<A> {
    /// Isolates the pageblock at `pfn` and ends its ownership: no CPU takes frames of it, and
    /// frames that are freed to it stay there. Returns the free pages that the zone loses; `None`
    /// if it is isolated already.
    ///
    /// Frames in CPUs' caches may still be allocated: the caller drains the caches afterwards.
    pub(crate) fn isolate(&self, pfn: Pfn) -> Option<u64> {
        let block = self.block_of(pfn);
        let head = self.without_batches(|| self.mark_isolated(block))?;
        // Pairs with the fence in `mark_nonempty`: a CPU that did not see the block isolated has
        // set its flag, and a drain after this fence sees the flag.
        A::fence(SeqCst);
        Some(head.free())
    }
    /// Sets `isolated` in the head; returns the head before. Waits while the block is busy, or free
    /// and not in the index.
    fn mark_isolated(&self, block: usize) -> Option<Head> {
        loop {
            let head = self.head(block);
            if head.is_isolated() {
                return None;
            }
            if head.is_unowned_free() {
                // A CPU that waits for the block has preemption off; on that CPU this task could
                // not continue if it were preempted here.
                let _pinned = PreemptGuard::<A>::new();
                if self.whole.clear(block) {
                    let head = self.head(block);
                    self.heads[block].store(head.with_isolated(true).0, SeqCst);
                    return Some(head);
                }
            } else if !head.is_busy()
                && self.change(block, head, head.disowned().with_isolated(true))
            {
                return Some(head);
            }
            A::relax();
        }
    }
    /// Undoes [`BlockMap::isolate`]; returns the free pages that the zone gains, or `None` if the
    /// pageblock is not isolated or is offline.
    pub(crate) fn unisolate(&self, pfn: Pfn) -> Option<u64> {
        let block = self.block_of(pfn);
        // As in `mark_isolated`: between the change and `file` other CPUs wait for this task.
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
    /// Takes an isolated block offline; fails with the number of used frames if there are any.
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
    /// Undoes [`BlockMap::take_offline`]: the block is then isolated, free and movable.
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
