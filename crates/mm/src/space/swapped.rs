//! Pages that are in swap.

use super::{Area, Backing, FaultError, Space, SpaceError, VmaRange, Vpn};
use crate::arch::{Arch, Func, Pfn, Span};
use crate::swap::SwapEntry;
use crate::table::Pte;

impl<A: Arch> Space<A> {
    /// A swap entry of the tables is gone.
    pub(super) fn forget_swap(&self, _: Backing<'_, A>, _: (u8, u64)) {}
    /// A swap entry is copied.
    pub(super) fn share_swap(&self, _: Backing<'_, A>, _: (u8, u64)) {}
    /// Whether the page is in memory all the same.
    pub(super) fn is_cached(&self, _: Backing<'_, A>, _: (u8, u64)) -> bool {
        false
    }
    /// Gives the folio's slot back, if nobody else needs it.
    pub(super) fn drop_swap_cache(&self, _: Backing<'_, A>, _: Pfn) -> bool {
        false
    }
    /// A page comes back from swap.
    pub(super) fn swap_in(
        &self,
        _: Backing<'_, A>,
        _: &Area,
        _: Vpn,
        _: Pte,
        _: (u8, u64),
    ) -> Result<(), FaultError> {
        let _span = Span::<A>::enter(Func::DoSwapPage);
        Err(FaultError::Bus)
    }
    pub(super) fn page_out(&self, _: Backing<'_, A>, _: VmaRange) -> Result<(), SpaceError> {
        Ok(())
    }
    pub(super) fn will_need(
        &self,
        _: Backing<'_, A>,
        _: &Area,
        _: VmaRange,
    ) -> Result<(), SpaceError> {
        Ok(())
    }
}

impl<A: Arch> Backing<'_, A> {
    pub(super) fn dup_swap(self, _: SwapEntry) {}
}
