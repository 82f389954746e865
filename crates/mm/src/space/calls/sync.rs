//! msync.

use crate::pgtable::{Direction, Leaf, PteFlags};
use crate::space::{FileId, MmRef, Space, SpaceError, VmaFlags, VmaRange};
use crate::tlb::Extent;
use alloc::vec::Vec;
use core::ops::Range;
use mmscale_arch::{Func, Machine, PageSize, Span};

impl<A: Machine> Space<A> {
    /// Writes the dirty pages of files on the disk that `range` maps, and waits for the device
    /// (`msync` with `MS_SYNC`). Other memory has nothing to write. A page that the device cannot
    /// write stays dirty, which is not reported.
    ///
    /// `NoMemory`: the range is not fully mapped; the mapped part was written.
    pub fn msync(&self, on: MmRef<'_, A>, range: VmaRange) -> Result<(), SpaceError> {
        let _span = Span::<A>::enter(Func::VfsFsyncRange);
        let (mut parts, mut mapped) = (Vec::new(), 0);
        for (vma, part) in self.lock.read().in_range(range) {
            mapped += part.pages();
            if let Some(map) = vma.file.filter(|_| vma.flags.contains(VmaFlags::SHARED)) {
                let first = map.index_of(part.start());
                parts.push((map.id, first..first + part.pages()));
            }
        }
        // The address space keeps its files. Without mmap_lock, as the device takes long.
        for (id, pages) in parts {
            self.file(id).into_iter().for_each(|file| file.write_back(on, pages.clone()));
        }
        if mapped == range.pages() { Ok(()) } else { Err(SpaceError::NoMemory) }
    }
    /// Removes the write permission of the entries of shared mappings for `pages` of a file
    /// (`folio_mkclean`), so that the next write makes a folio dirty.
    pub(in crate::space) fn write_protect(
        &self,
        on: MmRef<'_, A>,
        file: FileId,
        pages: &Range<u64>,
    ) {
        if self.file(file).is_none() {
            return;
        }
        let vmas = self.lock.read();
        for (vma, _) in vmas.in_range(VmaRange::raw(0, u64::MAX)) {
            let map = vma.file.filter(|_| vma.flags.contains(VmaFlags::SHARED));
            let Some(map) = map.filter(|map| map.id == file) else { continue };
            let (start, first) = (vma.range.start(), map.index_of(vma.range.start()));
            let from = pages.start.max(first);
            let until = pages.end.min(first + vma.range.pages());
            let part = VmaRange::new(
                start.offset(from - first),
                start.offset(until.saturating_sub(first).max(from - first)),
            );
            part.into_iter().for_each(|part| self.write_protect_part(on, part));
        }
    }
    fn write_protect_part(&self, on: MmRef<'_, A>, part: VmaRange) {
        let mut changed = false;
        for leaf in self.table.leaves(on.paging, part, Direction::Forward) {
            let Leaf::Ptes(mut ptes, some) = leaf else { continue };
            for page in Direction::Forward.pages(some) {
                let pte = ptes.get(page);
                if pte.is_present() && pte.flags().contains(PteFlags::WRITE) {
                    ptes.clear(page, PteFlags::WRITE);
                    changed = true;
                }
            }
        }
        if changed {
            let _ = self.table.flush(on.paging, Extent::Range(part, PageSize::Base));
        }
    }
}
