//! Anonymous pages: a new folio for a page, and write access to a folio.

use crate::folio::{FolioFlags, FolioInit};
use crate::pgtable::{Pte, PteFlags, PteTable};
use crate::space::registry::Mapping;
use crate::space::{FaultError, MmRef, Space, Vma, VmaFlags, Vpn};
use mmscale_arch::{Func, Machine, NodeId, Op, Order, Pfn, Span};
use mmscale_frames::page_alloc::Gfp;

/// Flags of a page that only its program has.
pub(super) const OWN: FolioFlags = FolioFlags::ANON
    .union(FolioFlags::SWAP_BACKED)
    .union(FolioFlags::UPTODATE)
    .union(FolioFlags::EXCLUSIVE);

impl<A: Machine> Space<A> {
    /// The node for new pages of the VMA: the one set by mbind, or this CPU's.
    pub(crate) fn node_for(&self, vma: &Vma) -> NodeId {
        vma.node.unwrap_or_else(|| A::node_of(A::cpu()))
    }
    pub(crate) fn init_for(&self, vma: &Vma, page: Vpn) -> FolioInit {
        FolioInit {
            group: self.group,
            flags: OWN,
            mapping: self.mapping().word(),
            index: vma.index_of(page),
        }
    }
    fn mapping(&self) -> Mapping {
        Mapping { family: self.family, owner: self.asid() }
    }
    /// Allocates a folio for `page`; its content is not set.
    pub(crate) fn new_page(
        &self,
        on: MmRef<'_, A>,
        vma: &Vma,
        page: Vpn,
    ) -> Result<Pfn, FaultError> {
        let what = self.init_for(vma, page);
        on.new_folio(self.node_for(vma), Order::ZERO, Gfp::RECLAIMING, what)
    }
    /// Handles a write fault on an empty entry (`do_anonymous_page`).
    pub(super) fn fill_anonymous(
        &self,
        on: MmRef<'_, A>,
        vma: &Vma,
        page: Vpn,
    ) -> Result<(), FaultError> {
        let _span = Span::<A>::enter(Func::DoAnonymousPage);
        let what = self.init_for(vma, page);
        let pfn = on.new_initializing(self.node_for(vma), Gfp::RECLAIMING, what)?;
        A::clear_block(pfn, Order::ZERO);
        let mut ptes = match self.table.lock_pte(on.paging, page) {
            Ok(ptes) => ptes,
            Err(why) => {
                on.memory.free_initializing(pfn);
                return on.table_or_oom(why);
            }
        };
        let stable = self.stable();
        if stable.is_ok() && ptes.get(page).is_none() {
            on.memory.add_mapped(pfn, what.flags);
            self.enter(on, vma, &mut ptes, page, pfn);
            return Ok(());
        }
        // Another thread has filled the entry, or a reaper has started.
        drop(ptes);
        on.memory.free_initializing(pfn);
        stable
    }
    /// Maps a new folio at `page`, whose entry is not present. The mapping takes over its
    /// reference.
    pub(crate) fn map_anonymous(
        &self,
        on: MmRef<'_, A>,
        vma: &Vma,
        ptes: &mut PteTable<'_, A>,
        page: Vpn,
        pfn: Pfn,
    ) {
        on.memory.add_map(pfn);
        on.memory.add(pfn);
        self.enter(on, vma, ptes, page, pfn);
    }
    /// Fills the entry for a folio whose mapping is counted and which is in a batch.
    fn enter(&self, on: MmRef<'_, A>, vma: &Vma, ptes: &mut PteTable<'_, A>, page: Vpn, pfn: Pfn) {
        if vma.flags.contains(VmaFlags::LOCKED) {
            on.memory.mlock(pfn);
        }
        let marks = PteFlags::ACCESSED | PteFlags::DIRTY;
        ptes.by_fault();
        A::work(Op::MapPage, 1);
        ptes.fill(page, Pte::page(pfn, marks | self.rights(vma)));
    }
    /// The write permission of an exclusive page's entry.
    pub(crate) fn rights(&self, vma: &Vma) -> PteFlags {
        if vma.prot.is_writable() { PteFlags::WRITE } else { PteFlags::empty() }
    }
    /// Marks the folio as exclusive to this address space.
    pub(super) fn own(&self, on: MmRef<'_, A>, folio: Pfn) {
        let index = on.memory.folios.index(folio);
        on.memory.folios.set_mapping(folio, self.mapping().word(), index);
        on.memory.folios.set(folio, FolioFlags::EXCLUSIVE);
    }
}
