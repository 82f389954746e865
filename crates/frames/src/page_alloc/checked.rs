//! Frees that report a wrong call as a value.

use super::{FrameAllocator, Records};
use crate::frame::{FrameState, FrameTable, FrameWord};
use crate::zone::{FrameUse, FreeError};
use mmscale_arch::{Access, Cpu, Order, Pfn};

impl<A: Cpu> FrameAllocator<A> {
    /// Frees a block as [`FrameAllocator::free_pages`] does, and reports a wrong call as an error
    /// in place of a panic. Nothing has changed then.
    ///
    /// With records of frames every wrong call is detected, also that of two CPUs that free one
    /// block at the same time. Without records ([`Records::None`]) it finds frames that no zone
    /// has, unaligned blocks, frames that are free in the zone or in the cache of this CPU, and
    /// pageblocks that are not allocated as one block. It does not find a frame in the cache of
    /// another CPU, nor another order below a pageblock's, and searches the cache of this CPU.
    ///
    /// # Errors
    /// Why the block cannot be freed.
    pub fn try_free_pages(&self, pfn: Pfn, order: Order) -> Result<(), FreeError> {
        let zone = self.zone_of(pfn).ok_or(FreeError::NoFrame)?;
        match self.config.records {
            Records::Kept => {
                let word =
                    self.frames.claim_held(pfn, order).map_err(|word| self.why(pfn, word))?;
                self.free_claimed(pfn, word);
            }
            Records::Orders => {
                self.frames.claim_held(pfn, order).map_err(|word| self.why(pfn, word))?;
                FrameTable::touch::<A>(pfn, Access::Write);
                self.frames.set_inside(pfn);
                self.free_unrecorded(pfn, order);
            }
            Records::None => {
                if !pfn.is_aligned(order) {
                    return Err(FreeError::NoBlock);
                }
                let range = pfn.index()..pfn.index() + order.pages();
                if zone.extent.first_missing(range).is_some() {
                    return Err(FreeError::NoFrame);
                }
                if let Some(map) = zone.map() {
                    map.check_free(pfn, order)?;
                }
                self.free_unrecorded(pfn, order);
            }
        }
        Ok(())
    }

    /// Why a frame with this record is not the head of a block that can be freed.
    #[cold]
    fn why(&self, pfn: Pfn, word: FrameWord) -> FreeError {
        match word.state() {
            FrameState::Held => FreeError::Order(word.order()),
            FrameState::Free | FrameState::Cached => FreeError::Free,
            FrameState::Inside => match self.frame_use(pfn) {
                Some(FrameUse::Held(_)) => FreeError::NoBlock,
                _ => FreeError::Free,
            },
        }
    }
}
