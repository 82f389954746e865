//! A zone whose free memory a guest has.

use super::claim::Request;
use super::zone::BELOW_HIGH;
use super::{Audit, FrameAllocator, Violation, Zone};
use crate::frame::{FrameState, MigrateType};
use crate::guest::GuestZone;
use crate::vmstat::ZoneItem;
use mmscale_arch::sync::IrqGuard;
use mmscale_arch::{Cpu, Func, Order, Pfn, Span};

impl<A: Cpu> FrameAllocator<A> {
    /// Takes a block from a guest; the caller has checked the zone's watermark. Panics if the guest
    /// hands out a block that it cannot have.
    pub(super) fn rmqueue_guest(
        &self,
        zone: &Zone<A>,
        guest: &GuestZone<A>,
        request: Request,
    ) -> Option<Pfn> {
        let _span = Span::<A>::enter(Func::Rmqueue);
        let kind = match request.wanted {
            MigrateType::Unmovable => 0,
            MigrateType::Movable => 1,
            MigrateType::Reclaimable => 2,
        };
        let pfn = guest.alloc(request.order, kind)?;
        let (order, pages) = (request.order, request.order.pages());
        let range = pfn.index()..pfn.index() + pages;
        let (at, of) = (pfn.index(), order.get());
        assert!(pfn.is_aligned(order), "the guest returned frame {at} for order {of}: not aligned");
        let outside = zone.extent.first_missing(range);
        assert!(outside.is_none(), "the guest returned frame {at}, order {of}: not in its zone");
        let held = self.frames.word(pfn).state() == FrameState::Held;
        assert!(!held, "the guest returned frame {at}, which is allocated");
        self.stats.mod_zone(&IrqGuard::new(), zone.id, ZoneItem::FreePages, -(pages as i64));
        self.note_held(zone, pfn, request);
        Some(pfn)
    }

    /// Frees a block to a guest.
    pub(super) fn free_to_guest(
        &self,
        zone: &Zone<A>,
        guest: &GuestZone<A>,
        pfn: Pfn,
        order: Order,
    ) {
        self.frames.set_inside(pfn);
        guest.free(pfn, order);
        let pages = order.pages() as i64;
        self.stats.mod_zone(&IrqGuard::new(), zone.id, ZoneItem::FreePages, pages);
        if zone.pressure().below_high && self.above_high(zone) {
            zone.put(BELOW_HIGH, false);
        }
    }

    /// Compares a guest's count with the counter and with the records. Its structures are its own.
    pub(super) fn verify_guest(
        &self,
        zone: &Zone<A>,
        guest: &GuestZone<A>,
    ) -> Result<Audit, Violation> {
        let (free, mut held) = (guest.count_free(), 0);
        let span = zone.extent.span();
        let mut at = span.start;
        while at < span.end {
            let word = self.frames.word(Pfn::new(at));
            let is_held = word.state() == FrameState::Held;
            let pages = if is_held { word.order().pages() } else { 1 };
            held += if is_held { pages as u64 } else { 0 };
            at += pages;
        }
        let counted = self.stats.zone_snapshot(zone.id, ZoneItem::FreePages);
        if counted != free as i64 || free + held != u64::from(zone.pages()) {
            return Err(Violation::Counter(zone.id));
        }
        Ok(Audit { free, held, ..Audit::default() })
    }
}
