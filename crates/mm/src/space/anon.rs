//! Anonymous pages: a new folio for a page, and a page that comes back from swap.

use super::registry::Mapping;
use super::{Area, AreaFlags, Backing, FaultError, Space, Vpn};
use crate::folio::{FolioFlags, FolioInit};
use crate::table::{Pte, PteFlags, PteTable};
use mmscale_arch::{Func, Machine, NodeId, Order, Pfn, Span, planted};
use mmscale_frames::page_alloc::Gfp;

/// What a page is that its program alone has.
pub(super) const OWN: FolioFlags = FolioFlags::ANON
    .union(FolioFlags::SWAP_BACKED)
    .union(FolioFlags::UPTODATE)
    .union(FolioFlags::EXCLUSIVE);

impl<A: Machine> Space<A> {
    /// Where new pages of the VMA come from.
    pub(super) fn node_for(&self, area: &Area) -> NodeId {
        area.node.unwrap_or_else(|| A::node_of(A::cpu()))
    }
    pub(super) fn init_for(&self, area: &Area, page: Vpn) -> FolioInit {
        FolioInit {
            group: self.group,
            flags: OWN,
            mapping: self.mapping().word(),
            index: area.index_of(page),
        }
    }
    fn mapping(&self) -> Mapping {
        Mapping { family: self.family, owner: self.asid() }
    }
    /// A folio for `page`, with its content still to be made.
    pub(super) fn new_page(
        &self,
        on: Backing<'_, A>,
        area: &Area,
        page: Vpn,
    ) -> Result<Pfn, FaultError> {
        let what = self.init_for(area, page);
        on.new_folio(self.node_for(area), Order::ZERO, Gfp::KERNEL, what)
    }
    /// A write to a page that nothing stands for (`do_anonymous_page`).
    pub(super) fn fill_anonymous(
        &self,
        on: Backing<'_, A>,
        area: &Area,
        page: Vpn,
    ) -> Result<(), FaultError> {
        let _span = Span::<A>::enter(Func::DoAnonymousPage);
        let what = self.init_for(area, page);
        let pfn = on.new_unborn(self.node_for(area), Gfp::KERNEL, what)?;
        A::clear_block(pfn, Order::ZERO);
        let mut ptes = match self.table.lock_pte(on.paging, page) {
            Ok(ptes) => ptes,
            Err(why) => {
                on.memory.free_unborn(pfn);
                return on.table_or_oom(why);
            }
        };
        let stable = self.stable();
        if stable.is_ok() && (ptes.get(page).is_none() || planted!(FaultUnchecked)) {
            on.memory.add_mapped(pfn, what.flags);
            self.enter(on, area, &mut ptes, page, pfn);
            return Ok(());
        }
        // Another thread was faster, or a reaper.
        drop(ptes);
        on.memory.free_unborn(pfn);
        stable
    }
    /// Fills the entry, where nothing is present, with a new folio, whose reference goes with it.
    pub(super) fn map_anonymous(
        &self,
        on: Backing<'_, A>,
        area: &Area,
        ptes: &mut PteTable<'_, A>,
        page: Vpn,
        pfn: Pfn,
    ) {
        on.memory.folios.add_map(pfn);
        on.memory.add(pfn);
        self.enter(on, area, ptes, page, pfn);
    }
    /// The entry of a folio that is mapped, as far as it itself says, and pending.
    fn enter(
        &self,
        on: Backing<'_, A>,
        area: &Area,
        ptes: &mut PteTable<'_, A>,
        page: Vpn,
        pfn: Pfn,
    ) {
        if area.flags.contains(AreaFlags::LOCKED) {
            on.memory.mlock(pfn);
        }
        let marks = PteFlags::ACCESSED | PteFlags::DIRTY;
        ptes.fill(page, Pte::page(pfn, marks | self.rights(area)));
    }
    /// What an entry for a page of its own says.
    pub(super) fn rights(&self, area: &Area) -> PteFlags {
        if area.prot.is_writable() { PteFlags::WRITE } else { PteFlags::empty() }
    }
    /// The folio belongs to this address space alone from now on.
    pub(super) fn own(&self, on: Backing<'_, A>, folio: Pfn) {
        let index = on.memory.folios.index(folio);
        on.memory.folios.set_mapping(folio, self.mapping().word(), index);
        on.memory.folios.set(folio, FolioFlags::EXCLUSIVE);
    }
}
