//! Blocks that are freed in parts, and allocations of a number of pages that is no power of two.
//!
//! With records of frames each part needs a record of its own before it can be freed, so the holder
//! splits the block first ([`FrameAllocator::split_page`]). Without records nothing is known of a
//! block but its frames: its parts are freed as they are.

use super::{AllocError, FrameAllocator, Gfp, Records};
use crate::frame::MigrateType;
use crate::zone::blocks_of;
use mmscale_arch::{Cpu, Order, Pfn};

impl<A: Cpu> FrameAllocator<A> {
    /// Splits an allocated block of `order` into blocks of order `to`, each of which is freed
    /// separately, or is split again (`split_page` of Linux, for any order). Their holder is the
    /// caller, as before.
    ///
    /// Without records of frames ([`Records::None`]) it does nothing: there a part of any order can
    /// be freed anyway.
    ///
    /// # Panics
    /// As [`FrameAllocator::free_pages`] does, with records; and if `to` is larger than `order`.
    pub fn split_page(&self, pfn: Pfn, order: Order, to: Order) {
        assert!(to <= order, "block of order {} split to order {}", order.get(), to.get());
        if self.config.records != Records::None {
            self.check_held(pfn, order);
            self.split_parts((pfn, order), (0..order.pages()).step_by(to.pages()).map(|_| to));
        }
    }

    /// Allocates `pages` frames in a row, which start at a multiple of the next power of two
    /// (`alloc_pages_exact` of Linux). Frees what the block has in addition. The caller frees all
    /// of it with [`FrameAllocator::free_pages_exact`].
    ///
    /// Fails as [`FrameAllocator::alloc_pages`] does, also if `pages` is more than the largest
    /// block has.
    ///
    /// # Panics
    /// If `pages` is 0.
    pub fn alloc_pages_exact(
        &self,
        pages: usize,
        wanted: MigrateType,
        gfp: Gfp,
    ) -> Result<Pfn, AllocError> {
        assert!(pages > 0, "an allocation of 0 pages: at least 1 is required");
        let max = self.config.geometry().max;
        let larger = pages.checked_next_power_of_two().ok_or(AllocError::NoMemory)?;
        let order = Order::large(larger.ilog2() as u8);
        let order = order.filter(|&order| order <= max).ok_or(AllocError::NoMemory)?;
        let pfn = self.alloc_pages(order, wanted, gfp)?;
        let end = pfn.index() + pages;
        let rest = || blocks_of(end..pfn.index() + order.pages(), max);
        if self.config.records != Records::None {
            let parts = blocks_of(pfn.index()..end, max).chain(rest());
            self.split_parts((pfn, order), parts.map(|(_, order)| order));
        }
        rest().for_each(|(pfn, order)| self.free_pages(pfn, order));
        Ok(pfn)
    }

    /// Frees what [`FrameAllocator::alloc_pages_exact`] returned for the same number of pages.
    ///
    /// # Panics
    /// As [`FrameAllocator::free_pages`] does.
    pub fn free_pages_exact(&self, pfn: Pfn, pages: usize) {
        let max = self.config.geometry().max;
        let range = pfn.index()..pfn.index() + pages;
        blocks_of(range, max).for_each(|(pfn, order)| self.free_pages(pfn, order));
    }

    /// Gives each part of an allocated block, which has a record, a record of its own.
    fn split_parts(&self, (pfn, order): (Pfn, Order), parts: impl Iterator<Item = Order>) {
        let (word, mut at) = (self.frames.word(pfn), 0);
        for part in parts {
            self.frames.set_word(pfn.offset(at), word.with_order(part));
            at += part.pages();
        }
        debug_assert!(at == order.pages(), "the parts are all of the block");
    }
}
