//! Files in memory, and VMAs that map them.
//!
//! A file is its page cache: a folio for each touched page, kept as long as the file. A page that
//! was not written contains zeros and is available immediately, as in a file that was read long
//! ago. There is no disk, so nothing is read, written back or evicted: file folios are on no LRU
//! list, and reclaim does not see them. They are charged to the group of the task that touches them
//! first.
//!
//! A file ends with its last user. Users are tasks that have it open, and address spaces that have
//! mapped it, each until it exits.
//!
//! Lock order: the lock of a file's cache and that of the table of files (class Other) are held
//! briefly; inside them only a folio's state is changed. A fault finds its file by the lock of the
//! file's number, which no other file shares: in Linux the VMA points to its file.

use super::{FaultError, FileId, FileMap, MmRef, Space, Vma, VmaFlags, Vpn};
use crate::folio::{FolioFlags, FolioInit};
use crate::memcg::GroupId;
use crate::pgtable::{MemAccess, Pte, PteFlags};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering::AcqRel;
use mmscale_arch::sync::{RwSem, SpinLock};
use mmscale_arch::{Atomic, DataLine, Func, LockClass, Machine, NodeId, Op, Order, Pfn, Span};
use mmscale_frames::page_alloc::Gfp;

/// A file in memory.
pub struct File<A: Machine> {
    id: FileId,
    /// By page, the frame of its folio plus 1; 0: not touched yet.
    cache: SpinLock<A, Vec<u32>>,
    /// Held while a VMA that maps it is linked or unlinked (`i_mmap_rwsem`).
    mappings: RwSem<A, ()>,
    users: A::AtomicU32,
}

/// All files of a machine.
pub(super) type Files<A> = SpinLock<A, Vec<Option<Arc<File<A>>>>>;

impl<A: Machine> File<A> {
    /// Creates a file of `pages` zero pages, with the caller as its user. Release it with
    /// [`File::put`].
    pub fn new(on: MmRef<'_, A>, pages: u64) -> Arc<Self> {
        let cache = SpinLock::new(LockClass::Other, alloc::vec![0; pages as usize]);
        let mut files = on.spaces.files().lock();
        let free = files.iter().position(Option::is_none);
        let at = free.unwrap_or_else(|| {
            files.push(None);
            files.len() - 1
        });
        let mappings = RwSem::with_policy(on.spaces.config().rwsem, LockClass::IMmap, ());
        let users = A::AtomicU32::named(1, DataLine::FileUsers);
        let file = Arc::new(Self { id: FileId::new(at), cache, mappings, users });
        files[at] = Some(Arc::clone(&file));
        drop(files);
        on.spaces.set_file(file.id, Some(Arc::clone(&file)));
        file
    }
    /// Returns its number.
    pub fn id(&self) -> FileId {
        self.id
    }
    /// The lock of the VMAs that map it.
    pub(super) fn mappings(&self) -> &RwSem<A, ()> {
        &self.mappings
    }
    /// Adds a user. The caller is a user or knows of one.
    pub fn get(&self) {
        // No partner: the user that the caller knows of keeps the file.
        self.users.fetch_add(1, AcqRel);
    }
    /// Removes a user. The last one frees the file's pages.
    pub fn put(&self, on: MmRef<'_, A>) {
        // Pairs with itself in other tasks: the last user sees what the others did with the file.
        if self.users.fetch_sub(1, AcqRel) > 1 {
            return;
        }
        // The number is free once the table forgets the file.
        on.spaces.set_file(self.id, None);
        let gone = on.spaces.files().lock()[self.id.index()].take();
        let pages = core::mem::take(&mut *self.cache.lock());
        for word in pages.into_iter().filter(|&word| word > 0) {
            let pfn = Pfn::new(word as usize - 1);
            on.memory.count_file_pages(pfn, -1);
            on.memory.put(pfn);
        }
        drop(gone);
    }
    /// The folios of its pages, for checks.
    pub(super) fn folios(&self) -> Vec<Pfn> {
        let cache = self.cache.lock();
        cache.iter().filter_map(|word| Some(Pfn::new(word.checked_sub(1)? as usize))).collect()
    }
    /// Whether a page is in memory.
    pub(super) fn has(&self, index: u64) -> bool {
        self.cache.lock().get(index as usize).is_some_and(|&word| word > 0)
    }
    /// Returns the folio of a page, with a reference. Fails with `Bus` beyond the end of the file.
    fn page(
        &self,
        on: MmRef<'_, A>,
        index: u64,
        node: NodeId,
        group: GroupId,
    ) -> Result<Pfn, FaultError> {
        match self.cache.lock().get(index as usize) {
            None => return Err(FaultError::Bus),
            Some(0) => {}
            Some(&word) => return Ok(referenced(on, word)),
        }
        let what = FolioInit { group, flags: FolioFlags::UPTODATE, mapping: 0, index };
        let new = on.new_folio(node, Order::ZERO, Gfp::RECLAIMING, what)?;
        A::clear_block(new, Order::ZERO);
        let mut cache = self.cache.lock();
        let slot = &mut cache[index as usize];
        if *slot > 0 {
            // Another task was faster.
            let pfn = referenced(on, *slot);
            drop(cache);
            on.memory.put(new);
            return Ok(pfn);
        }
        *slot = new.index() as u32 + 1;
        on.memory.count_file_pages(new, 1);
        on.memory.folios.get(new);
        Ok(new)
    }
}

fn referenced<A: Machine>(on: MmRef<'_, A>, word: u32) -> Pfn {
    let pfn = Pfn::new(word as usize - 1);
    on.memory.folios.get(pfn);
    pfn
}

impl<A: Machine> Space<A> {
    /// Keeps a file until the address space exits.
    pub(super) fn hold_file(&self, file: &Arc<File<A>>) {
        let mut files = self.files.lock();
        if files.iter().all(|held| held.id != file.id) {
            file.get();
            files.push(Arc::clone(file));
        }
    }
    /// Keeps the files that `other` keeps.
    pub(super) fn hold_files_of(&self, other: &Self) {
        let files = other.files.lock().clone();
        files.iter().for_each(|file| self.hold_file(file));
    }
    /// Releases all files. No VMA is left.
    pub(super) fn drop_files(&self, on: MmRef<'_, A>) {
        let files = core::mem::take(&mut *self.files.lock());
        files.iter().for_each(|file| file.put(on));
    }
    /// Whether a page without an entry is in the file's page cache.
    pub(super) fn is_in_file(&self, on: MmRef<'_, A>, vma: &Vma, page: Vpn) -> bool {
        let file = vma.file.and_then(|map| Some((map, on.spaces.file(map.id)?)));
        file.is_some_and(|(map, file)| file.has(map.index_of(page)))
    }
    /// Handles a fault on an unmapped page of a file (`do_fault`): maps the file's folio, or a copy
    /// for a write to a private mapping.
    pub(super) fn fill_from_file(
        &self,
        on: MmRef<'_, A>,
        vma: &Vma,
        map: FileMap,
        page: Vpn,
        access: MemAccess,
    ) -> Result<(), FaultError> {
        let _span = Span::<A>::enter(Func::DoFault);
        let file = on.spaces.file(map.id).ok_or(FaultError::Bus)?;
        let folio = file.page(on, map.index_of(page), self.node_for(vma), self.group)?;
        let shared = vma.flags.contains(VmaFlags::SHARED);
        let own = access == MemAccess::Write && !shared;
        let mut folio = folio;
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
                let rights = if shared { self.rights(vma) } else { PteFlags::empty() };
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
    pub(super) fn write_shared(&self, on: MmRef<'_, A>, page: Vpn) -> Result<(), FaultError> {
        if let Some(mut ptes) = self.table.find_pte(on.paging, page)
            && ptes.get(page).is_present()
        {
            ptes.update(page, |pte| pte.with(PteFlags::WRITE | PteFlags::ACCESSED));
        }
        Ok(())
    }
}
