//! Pages of files.

use super::{Handled, Patience};
use crate::folio::FolioFlags;
use crate::pgtable::{MemAccess, Pte, PteFlags};
use crate::space::file::File;
use crate::space::{FaultError, FileMap, MmRef, Space, Vma, VmaFlags, Vpn};
use mmscale_arch::{Func, Machine, Op, Pfn, Span};

impl<A: Machine> Space<A> {
    /// Handles a fault on an unmapped page of a file (`do_fault`): maps the file's folio, or a copy
    /// for a write to a private mapping.
    pub(super) fn fill_from_file(
        &self,
        on: MmRef<'_, A>,
        vma: &Vma,
        map: FileMap,
        page: Vpn,
        access: MemAccess,
        patience: Patience,
    ) -> Result<Handled, FaultError> {
        let _span = Span::<A>::enter(Func::DoFault);
        let file = self.file(map.id).ok_or(FaultError::Bus)?;
        if file.is_on_disk() {
            return self.fill_from_disk(
                on,
                vma,
                (file, map.index_of(page)),
                page,
                access,
                patience,
            );
        }
        let folio = file.page(on, map.index_of(page), self.node_for(vma), self.group)?;
        self.map_of_file(on, vma, page, access, folio).map(|()| Handled::Done)
    }
    /// Maps a folio of a file, whose reference it takes over, at an empty entry.
    fn map_of_file(
        &self,
        on: MmRef<'_, A>,
        vma: &Vma,
        page: Vpn,
        access: MemAccess,
        mut folio: Pfn,
    ) -> Result<(), FaultError> {
        let shared = vma.flags.contains(VmaFlags::SHARED);
        let own = access == MemAccess::Write && !shared;
        if own {
            let copy = self.new_page(on, vma, page);
            if let Ok(copy) = copy {
                A::copy_page(folio, copy);
            }
            on.memory.put(folio);
            folio = copy?;
        }
        let mut ptes = match self.table.lock_pte(on.paging, page) {
            Ok(ptes) => ptes,
            Err(why) => {
                on.memory.put(folio);
                return on.table_or_oom(why);
            }
        };
        let stable = self.stable();
        if stable.is_ok() && ptes.get(page).is_none() {
            if own {
                self.map_anonymous(on, vma, &mut ptes, page, folio);
            } else {
                on.memory.add_map(folio);
                let rights = match shared {
                    true => self.shared_rights(on, vma, access, folio),
                    false => PteFlags::empty(),
                };
                ptes.by_fault();
                A::work(Op::MapPage, 1);
                ptes.fill(page, Pte::page(folio, PteFlags::ACCESSED | rights));
            }
            return Ok(());
        }
        drop(ptes);
        on.memory.put(folio);
        stable
    }
    /// Handles a write to a read-only page of a shared mapping.
    pub(super) fn write_shared(
        &self,
        on: MmRef<'_, A>,
        vma: &Vma,
        page: Vpn,
    ) -> Result<(), FaultError> {
        if let Some(mut ptes) = self.table.find_pte(on.paging, page)
            && let pte = ptes.get(page)
            && pte.is_present()
            && let Some(folio) = pte.pfn()
        {
            let rights = self.shared_rights(on, vma, MemAccess::Write, folio);
            ptes.update(page, |pte| pte.with(rights | PteFlags::ACCESSED));
        }
        Ok(())
    }
    /// Handles a fault on an unmapped page of a file on the disk (`filemap_fault`).
    pub(super) fn fill_from_disk(
        &self,
        on: MmRef<'_, A>,
        vma: &Vma,
        (file, index): (&File<A>, u64),
        page: Vpn,
        access: MemAccess,
        patience: Patience,
    ) -> Result<Handled, FaultError> {
        let pfn = file.start_read(on, index, self.node_for(vma), self.group)?;
        if !on.swap.trylock_folio(on.memory, pfn) {
            if patience == Patience::Return {
                return Ok(Handled::Wait(pfn));
            }
            on.swap.lock_folio(on.memory, pfn);
        }
        if !on.memory.folios.word(pfn).has(FolioFlags::UPTODATE) {
            // All tasks that wait for this read fail. Another fault reads again.
            file.remove(on, index, pfn);
            on.swap.unlock_folio(on.memory, pfn);
            on.memory.put(pfn);
            return Err(FaultError::Bus);
        }
        // The cache has it still: a drop takes no folio that has another reference.
        let mapped = self.map_of_file(on, vma, page, access, pfn);
        // The cache has a reference while the folio is locked.
        on.swap.unlock_folio(on.memory, pfn);
        mapped.map(|()| Handled::Done)
    }
    /// The write permission of an entry for a folio in a shared mapping after `access`. The first
    /// write to a page of a file on the disk faults and makes its folio dirty (`do_page_mkwrite`).
    pub(super) fn shared_rights(
        &self,
        on: MmRef<'_, A>,
        vma: &Vma,
        access: MemAccess,
        folio: Pfn,
    ) -> PteFlags {
        if self.maps_disk(vma) {
            if access == MemAccess::Read {
                return PteFlags::empty();
            }
            on.memory.folios.set(folio, FolioFlags::DIRTY);
        }
        self.rights(vma)
    }
}
