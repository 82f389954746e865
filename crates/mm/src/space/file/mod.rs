//! Files, and VMAs that map them.
//!
//! A file in memory is its page cache: a folio for each touched page, kept as long as the file. A
//! page that was not written contains zeros and is available immediately, as in a file that was
//! read long ago. The pages of a file on the disk (`disk`) are read when a task needs them, and can
//! be dropped. File folios are on no LRU list, and reclaim does not see them. They are charged to
//! the group of the task that touches them first.
//!
//! A file ends with its last user. Users are tasks that have it open, and address spaces that have
//! mapped it, each until it exits.
//!
//! A fault takes no lock to find its file, which its address space holds, nor to find the page in
//! the file's cache (in Linux: under RCU). Only an insertion takes the lock of the cache
//! (`i_pages`).
//!
//! Lock order: the lock of a file's cache (class IPages) and that of the table of files (class
//! Other) are held briefly; inside them only a folio's state is changed.

mod disk;

pub use disk::FileAdvice;

use super::mappings::Mappings;
use super::vma::{Arena, number_of};
use super::{FaultError, FileId, FileMap, MmRef, Space, SpaceError, Vma, Vpn};
use crate::folio::{FolioFlags, FolioInit};
use crate::memcg::GroupId;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Release};
use mmscale_arch::sync::{Once, Sparse, SpinLock};
use mmscale_arch::{Atomic, DataLine, LockClass, Machine, NodeId, Order, Pfn};
use mmscale_frames::page_alloc::Gfp;

/// A file.
pub struct File<A: Machine> {
    id: FileId,
    pages: u64,
    /// The block of its first page; `None`: the file is in memory.
    block: Option<u32>,
    /// By page, the frame of its folio plus 1; 0: it has none. In memory a folio stays.
    cache: Sparse<A::AtomicU32>,
    /// Held while a folio is put into `cache` or removed.
    insertion: SpinLock<A, ()>,
    /// The VMAs that map it.
    mappings: Mappings<A>,
    users: A::AtomicU32,
}

/// All files of a machine.
pub(super) struct FileTable<A: Machine> {
    pub(super) files: Vec<Option<Arc<File<A>>>>,
    /// Blocks behind the swap area that files were given. They are not used again.
    blocks: u32,
}

impl<A: Machine> FileTable<A> {
    pub(super) fn new() -> Self {
        Self { files: Vec::new(), blocks: 0 }
    }
}

impl<A: Machine> File<A> {
    /// Creates a file of `pages` zero pages in memory, with the caller as its user. Release it with
    /// [`File::put`].
    pub fn new(on: MmRef<'_, A>, pages: u64) -> Arc<Self> {
        Self::add(on, pages, None, &mut on.spaces.files().lock())
    }
    /// Adds a file to the table.
    fn add(
        on: MmRef<'_, A>,
        pages: u64,
        block: Option<u32>,
        table: &mut FileTable<A>,
    ) -> Arc<Self> {
        let cache = Sparse::new(pages as usize);
        let insertion = SpinLock::new(LockClass::IPages, ());
        let files = &mut table.files;
        let free = files.iter().position(Option::is_none);
        let at = free.unwrap_or_else(|| {
            files.push(None);
            files.len() - 1
        });
        let config = on.spaces.config();
        let mappings = Mappings::new(config.imap, config.rwsem);
        let users = A::AtomicU32::named(1, DataLine::FileUsers);
        let id = FileId::new(at);
        let file = Arc::new(Self { id, pages, block, cache, insertion, mappings, users });
        files[at] = Some(Arc::clone(&file));
        file
    }
    /// Returns its number.
    pub fn id(&self) -> FileId {
        self.id
    }
    /// The VMAs that map it.
    pub(super) fn mappings(&self) -> &Mappings<A> {
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
        let gone = on.spaces.files().lock().files[self.id.index()].take();
        for pfn in self.folios() {
            if self.is_on_disk() {
                // It may be read or written still.
                on.swap.lock_folio(on.memory, pfn);
                on.swap.unlock_folio(on.memory, pfn);
                on.swap.wait_writeback(on.memory, pfn);
            }
            on.memory.count_file_pages(pfn, -1);
            on.memory.put(pfn);
        }
        drop(gone);
    }
    /// The folios of its pages: for its last user, and for checks.
    pub(super) fn folios(&self) -> impl Iterator<Item = Pfn> + '_ {
        // No partner: nothing is inserted meanwhile.
        let words = self.cache.iter_made().map(|slot| slot.load_uncharged(Acquire));
        words.filter_map(folio_of)
    }
    /// Returns the slot of a page; `None` beyond the end of the file.
    fn slot(&self, index: u64) -> Option<&A::AtomicU32> {
        let make = |_| A::AtomicU32::named(0, DataLine::PageCache);
        (index < self.pages).then(|| self.cache.get_or_make(index as usize, make))
    }
    /// Whether a page is in memory, with its content.
    fn has(&self, on: MmRef<'_, A>, index: u64) -> bool {
        if self.is_on_disk() {
            return self.has_read(on, index);
        }
        // Pairs with the store in `page`.
        self.slot(index).is_some_and(|slot| slot.load(Acquire) > 0)
    }
    /// Returns the folio of a page of a file in memory, with a reference (`filemap_get_folio`).
    /// Fails with `Bus` beyond the end of the file. The caller's address space is a user of the
    /// file, so that no folio leaves it.
    pub(super) fn page(
        &self,
        on: MmRef<'_, A>,
        index: u64,
        node: NodeId,
        group: GroupId,
    ) -> Result<Pfn, FaultError> {
        let slot = self.slot(index).ok_or(FaultError::Bus)?;
        let found = || {
            // Pairs with the store below: the page is cleared.
            folio_of(slot.load(Acquire)).inspect(|&pfn| on.memory.folios.get(pfn))
        };
        if let Some(pfn) = found() {
            return Ok(pfn);
        }
        let what = FolioInit { group, flags: FolioFlags::UPTODATE, mapping: 0, index };
        let new = on.new_folio(node, Order::ZERO, Gfp::RECLAIMING, what)?;
        A::clear_block(new, Order::ZERO);
        let insertion = self.insertion.lock();
        if let Some(pfn) = found() {
            // Another task was faster.
            drop(insertion);
            on.memory.put(new);
            return Ok(pfn);
        }
        on.memory.count_file_pages(new, 1);
        on.memory.folios.get(new);
        // Pairs with the load in `found`.
        slot.store(new.index() as u32 + 1, Release);
        Ok(new)
    }
}

/// Returns the folio of a slot's word.
fn folio_of(word: u32) -> Option<Pfn> {
    word.checked_sub(1).map(|frame| Pfn::new(frame as usize))
}

/// A place for a file that an address space has mapped.
struct Entry<A: Machine>(Once<Arc<File<A>>>);

impl<A: Machine> Default for Entry<A> {
    fn default() -> Self {
        Self(Once::nothing())
    }
}

/// The files that an address space has mapped. A file that was added stays until the address space
/// exits, so that finding one needs no lock.
pub(super) struct HeldFiles<A: Machine> {
    entries: Arena<Entry<A>>,
    /// The number of files. Held while one is added.
    count: SpinLock<A, u32>,
}

impl<A: Machine> HeldFiles<A> {
    pub(super) fn new() -> Self {
        Self { entries: Arena::new(), count: SpinLock::new(LockClass::Other, 0) }
    }
    fn iter(&self) -> impl Iterator<Item = &Arc<File<A>>> {
        (0..).map_while(|nth| self.entries.get(number_of(nth))?.0.get())
    }
    /// Returns a file that was added.
    fn get(&self, id: FileId) -> Option<&File<A>> {
        self.iter().find(|file| file.id == id).map(|file| &**file)
    }
}

impl<A: Machine> Space<A> {
    /// Keeps a file until the address space exits, so that it can be mapped. Fails with `NoMemory`
    /// if there are too many files.
    pub fn hold_file(&self, file: &Arc<File<A>>) -> Result<(), SpaceError> {
        let mut count = self.files.count.lock();
        if self.files.get(file.id).is_none() {
            let number = self.files.entries.ensure(*count)?;
            let entry = self.files.entries.get(number).expect("it was made");
            file.get();
            entry.0.put(Arc::clone(file));
            *count += 1;
        }
        Ok(())
    }
    /// Keeps the files that `other` keeps.
    pub(super) fn hold_files_of(&self, other: &Self) -> Result<(), SpaceError> {
        other.files.iter().try_for_each(|file| self.hold_file(file))
    }
    /// Returns a file that it keeps.
    pub(super) fn file(&self, id: FileId) -> Option<&File<A>> {
        self.files.get(id)
    }
    /// Returns `map` for a VMA that the calling CPU links: its tree depends on the CPU.
    pub(super) fn map_here(&self, map: FileMap) -> FileMap {
        let tree = self.file(map.id).map_or(map.tree, |file| file.mappings.tree_here());
        FileMap { tree, ..map }
    }
    /// Releases all files, once. No VMA is left.
    pub(super) fn drop_files(&self, on: MmRef<'_, A>) {
        let count = core::mem::take(&mut *self.files.count.lock());
        self.files.iter().take(count as usize).for_each(|file| file.put(on));
    }
    /// Whether a page without an entry is in the file's page cache.
    pub(super) fn is_in_file(&self, on: MmRef<'_, A>, vma: &Vma, page: Vpn) -> bool {
        let file = vma.file.and_then(|map| Some((map, self.file(map.id)?)));
        file.is_some_and(|(map, file)| file.has(on, map.index_of(page)))
    }
    /// Whether a VMA maps a file on the disk.
    pub(super) fn maps_disk(&self, vma: &Vma) -> bool {
        vma.file.and_then(|map| self.file(map.id)).is_some_and(File::is_on_disk)
    }
}
