//! Allocation of named frames: for contiguous memory of devices, for reservations at boot, for a
//! hypervisor that gives a virtual machine a certain range.

use super::zone::ZoneFree;
use super::{FrameAllocator, Records, Zone};
use crate::frame::{FrameState, FrameWord};
use crate::vmstat::ZoneItem;
use crate::zone::{ContigError, FrameUse};
use core::ops::Range;
use mmscale_arch::sync::IrqGuard;
use mmscale_arch::{Cpu, CpuId, Order, PageEvent, Pfn, Trace};

impl<A: Cpu> FrameAllocator<A> {
    /// Allocates the `pages` frames that begin with `start`, as that many blocks of order 0
    /// (`alloc_contig_range` of Linux, without its migration of pages in use). The range needs no
    /// alignment and may be in several pageblocks of one zone. Watermarks are not respected.
    ///
    /// Allocates all of the range or nothing. If a frame is not free in its zone, drains the caches
    /// of all CPUs, and tries again. With the policy `blockmap`, where CPUs cannot interrupt one
    /// another, a frame in another CPU's cache counts as in use.
    ///
    /// The frames are freed one by one with [`FrameAllocator::free_pages`], or several together
    /// with [`FrameAllocator::free_contig_range`]. Waits for spin locks or for CPUs in pageblocks
    /// of the range, so it must not be called in interrupts.
    ///
    /// # Errors
    /// The first frame that cannot be allocated, and why.
    pub fn alloc_contig_range(&self, start: Pfn, pages: usize) -> Result<(), ContigError> {
        self.take_range(start, pages, Order::ZERO)
    }

    /// Allocates the block of 2^`order` frames at `pfn`, as
    /// [`FrameAllocator::alloc_contig_range`] does a range. It is freed as one block of that order.
    ///
    /// # Errors
    /// The first frame that cannot be allocated, and why; or `pfn` if no block of that order can
    /// begin there.
    pub fn alloc_at(&self, pfn: Pfn, order: Order) -> Result<(), ContigError> {
        if !pfn.is_aligned(order) || order > self.config.geometry().max {
            return Err(ContigError::Unaligned(pfn));
        }
        self.take_range(pfn, order.pages(), order)
    }

    /// Frees a range of frames that [`FrameAllocator::alloc_contig_range`] has allocated, or a part
    /// of it.
    ///
    /// # Panics
    /// As [`FrameAllocator::free_pages`] does.
    pub fn free_contig_range(&self, start: Pfn, pages: usize) {
        (0..pages).for_each(|at| self.free_pages(start.offset(at), Order::ZERO));
    }

    /// Allocates here what `lost` had allocated: after a crash that spared its memory, or where a
    /// new kernel takes over from a running one. Time is proportional to the number of frames.
    /// Without records the blocks are not known: each frame is one of order 0 here.
    ///
    /// # Errors
    /// The first frame that cannot be allocated here.
    pub fn restore_from(&self, lost: &Self) -> Result<(), ContigError> {
        for zone in lost.zones() {
            let Range { start: mut at, end } = zone.extent.span();
            while at < end {
                let Some(order) = lost.held_at(Pfn::new(at)) else {
                    at += 1;
                    continue;
                };
                self.alloc_at(Pfn::new(at), order)?;
                at += order.pages();
            }
        }
        Ok(())
    }

    /// The order of an allocated block that begins with `pfn`, of which no part was freed; order 0
    /// if only the frame is known to be allocated.
    fn held_at(&self, pfn: Pfn) -> Option<Order> {
        let held = |pfn: Pfn| match self.frame_use(pfn) {
            Some(FrameUse::Held(order)) => Some(order.unwrap_or(Order::ZERO)),
            _ => None,
        };
        let order = held(pfn)?;
        let whole = || (0..order.pages()).all(|at| held(pfn.offset(at)) == Some(order));
        Some(if pfn.is_aligned(order) && whole() { order } else { Order::ZERO })
    }

    fn take_range(&self, start: Pfn, pages: usize, piece: Order) -> Result<(), ContigError> {
        let end = start.index().checked_add(pages).ok_or(ContigError::Outside(start))?;
        let range = start.index()..end;
        if range.is_empty() {
            return Ok(());
        }
        let zone = self.zone_of(start).ok_or(ContigError::Outside(start))?;
        if let Some(missing) = zone.extent.first_missing(range.clone()) {
            return Err(ContigError::Outside(Pfn::new(missing)));
        }
        let mut taken = self.try_range(zone, range.clone(), piece);
        if let Err(ContigError::InUse(_)) = taken {
            for cpu in (0..self.cpus).map(CpuId::new) {
                self.drain_pages_zone(zone.id, cpu);
            }
            taken = self.try_range(zone, range.clone(), piece);
        }
        taken?;
        for pfn in range.step_by(piece.pages()).map(Pfn::new) {
            A::trace(Trace::Page(PageEvent::Alloc { pfn, order: piece }));
        }
        Ok(())
    }

    fn try_range(
        &self,
        zone: &Zone<A>,
        range: Range<usize>,
        piece: Order,
    ) -> Result<(), ContigError> {
        match &zone.free {
            ZoneFree::Lists(lists) => {
                let mut buddy = lists.buddy.lock_irqsave();
                buddy.take_range(&self.frames, range.clone(), piece)?;
                let change = -(range.len() as i64);
                self.stats.mod_zone(&buddy, zone.id, ZoneItem::FreePages, change);
            }
            // A guest has no such call.
            ZoneFree::Guest(_) => return Err(ContigError::InUse(Pfn::new(range.start))),
            ZoneFree::Blocks(blocks) => {
                let (taken, change) = blocks.map.take_range(range.clone(), piece);
                if change != 0 {
                    self.stats.mod_zone(&IrqGuard::new(), zone.id, ZoneItem::FreePages, change);
                }
                taken?;
                if self.config.records != Records::None {
                    let (held, id) = (FrameState::Held, zone.id.index() as u8);
                    for pfn in range.step_by(piece.pages()).map(Pfn::new) {
                        let of = blocks.map.block_type(pfn);
                        self.frames.set_word(pfn, FrameWord::new(held, piece, of, of, id));
                    }
                }
            }
        }
        Ok(())
    }
}
