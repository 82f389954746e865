//! Page tables: the mapping from pages to frames.
//!
//! Four levels of 512 entries. A table is a frame. An upper entry points to a table; an entry of
//! the lowest level maps a page; an entry of the level above maps 512 pages or points to a table.
//!
//! * `entry`: the format of an entry. `level`: levels and indices.
//! * `lock`: the lock of each table. `slot`: an entry under its table's lock.
//! * `walk`: from the root to an entry, allocating tables on the way. `range`: the tables of a
//!   range.
//! * `access`: the hardware's walk, and the memory accesses of programs.
//! * `resident`: the count of resident and swapped pages.
//! * `copy`, `shift`, `huge`: for fork, for mremap, and splitting huge pages.
//! * `teardown`, `gather`: freeing tables, and freeing pages after their TLB flush.
//! * `verify`: consistency checks.
//!
//! # Locking
//! To read or fill entries, the caller keeps the VMA from changing: by mmap_lock or the VMA's lock
//! for reading, or by the reverse map's. Tables are unlinked only when the VMAs of their range
//! cannot be found any more ([`PageTable::free_tables`]), or while both mmap_lock and the VMA's
//! lock are held for writing (mremap). Thus a table, once found, stays linked.
//!
//! The reverse map may look for a page between its removal from one table and its insertion into
//! another ([`PageTable::move_range`], [`PageTable::copy_range`]). It then finds no entry although
//! the page's map count is not 0, and must retry.
//!
//! Lock order: [`LockClass`]. Tables are allocated with no lock of a table held.

mod access;
mod copy;
mod entry;
mod gather;
mod huge;
mod level;
mod lock;
mod range;
mod resident;
mod shift;
mod slot;
mod teardown;
mod verify;
mod walk;

pub use access::{MemAccess, Miss};
pub use copy::{CopyError, CopyPte, Downgraded};
pub use entry::{Pte, PteFlags, SWAP_BITS};
pub use gather::{Gather, Gathered, Room, Sink};
pub use level::{ENTRIES, Level};
pub use lock::TableLocks;
pub(crate) use range::HUGE_AT_ONCE;
pub use range::{Direction, Leaf, Leaves};
pub use shift::MoveError;
pub(crate) use slot::Hold;
pub use slot::{PmdTable, PteTable};
pub use verify::{TableAudit, TableDefect};

use crate::oom::OomRetries;
use crate::tlb::{Extent, Retired, Tlb};
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use mmscale_arch::sync::{IrqGuard, SpinLock};
use mmscale_arch::{Asid, Atomic, DataLine, Func, LockClass, Machine, Order, Pfn, Span};
use mmscale_frames::frame::MigrateType;
use mmscale_frames::page_alloc::{AllocError, FrameAllocator, Gfp};
use mmscale_frames::vmstat::NodeItem;
use mmscale_frames::zone::ZoneId;
use resident::Resident;
pub use resident::{CountMemory, RssPolicy, counter_batch};

/// The parts of the memory manager that page tables use.
pub struct PtRef<'a, A: Machine> {
    /// Allocates the frames of tables.
    pub frames: &'a FrameAllocator<A>,
    /// The tables' locks.
    pub locks: &'a TableLocks<A>,
    /// The TLB state.
    pub tlb: &'a Tlb<A>,
    /// The per-CPU memory of page counts.
    pub counts: &'a CountMemory<A>,
    /// Frees memory if no frame is free; `None`: the allocation fails instead.
    pub room: Option<&'a dyn MakeRoom>,
}

/// Frees memory when a page table cannot be allocated.
pub trait MakeRoom {
    /// Frees memory after an allocation has failed with `why`. Returns the flags with which the
    /// caller retries, or the error if the allocation has failed for good. Sleeps; no lock of a
    /// table is held.
    fn make_room(&self, why: AllocError, retries: &mut OomRetries) -> Result<Gfp, AllocError>;
}

impl<A: Machine> Clone for PtRef<'_, A> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<A: Machine> Copy for PtRef<'_, A> {}

/// The reason why an entry was not reached. Nothing has changed, except that upper tables may have
/// been added.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TableError {
    /// No frame for a table could be allocated.
    NoMemory(AllocError),
    /// All ASIDs are in use.
    NoAsid,
    /// A huge page is mapped there: split it first.
    Huge,
    /// A table is linked where a huge page was to be mapped.
    Table,
}

impl From<AllocError> for TableError {
    fn from(why: AllocError) -> Self {
        Self::NoMemory(why)
    }
}

impl core::fmt::Display for TableError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::NoMemory(why) => write!(f, "making a page table: {why}"),
            Self::NoAsid => {
                f.write_str("making a page table: all address-space numbers are in use")
            }
            Self::Huge => {
                f.write_str("finding a page's table: a huge page is mapped there, split it first")
            }
            Self::Table => f.write_str("mapping a huge page: single pages are mapped there"),
        }
    }
}

impl core::error::Error for TableError {}

/// The page tables of one address space.
pub struct PageTable<A: Machine> {
    root: Pfn,
    asid: Asid,
    /// Taken to link a table into an empty entry of the two upper levels.
    upper: SpinLock<A, ()>,
    /// Tables, the root included.
    tables: A::AtomicU32,
    /// Gathers in progress.
    gathers: A::AtomicU32,
    /// Pages that are mapped or swapped out.
    resident: Resident<A>,
    /// 1 once no CPU will use a translation any more.
    retired: A::AtomicU32,
}

impl<A: Machine> PageTable<A> {
    /// Creates an address space that maps nothing, with the default policy of its page count. Ended
    /// by [`PageTable::destroy`].
    pub fn new(on: PtRef<'_, A>) -> Result<Self, TableError> {
        Self::with_rss(on, RssPolicy::default())
    }
    /// Creates an address space like [`PageTable::new`], whose pages are counted by `rss`.
    pub fn with_rss(on: PtRef<'_, A>, rss: RssPolicy) -> Result<Self, TableError> {
        let root = alloc_table(on, Level::Pgd)?;
        let Ok(asid) = on.tlb.alloc_asid() else {
            free_table(on, root);
            return Err(TableError::NoAsid);
        };
        Ok(Self::of(root, asid, Resident::new(rss, on.counts)))
    }
    /// Creates the kernel's own tables, which map nothing. All CPUs use them at any time.
    pub(crate) fn new_kernel(on: PtRef<'_, A>) -> Result<Self, TableError> {
        Ok(Self::of(alloc_table(on, Level::Pgd)?, Asid::KERNEL, Resident::of_kernel()))
    }
    fn of(root: Pfn, asid: Asid, resident: Resident<A>) -> Self {
        Self {
            root,
            asid,
            upper: SpinLock::new(LockClass::PageTable, ()),
            tables: A::AtomicU32::named(1, DataLine::TableCount),
            gathers: A::AtomicU32::named(0, DataLine::FlushPending),
            resident,
            retired: A::AtomicU32::new(0),
        }
    }
    /// Frees the root and the ASID; the last use of the address space.
    ///
    /// Panics unless [`PageTable::free_tables`] has freed all other tables.
    pub fn destroy(&self, on: PtRef<'_, A>) {
        let left = self.tables.load(Relaxed);
        assert!(left == 1, "an address space ends with {} page tables left", left - 1);
        // CPUs that still have it loaded unload it before the root is freed.
        if self.asid != Asid::KERNEL {
            on.tlb.free_asid(self.asid);
        }
        self.resident.end(on.counts);
        free_table(on, self.root);
    }
    /// Returns the ASID.
    pub fn asid(&self) -> Asid {
        self.asid
    }
    /// Returns the number of tables, the root included.
    pub fn tables(&self) -> u32 {
        self.tables.load(Relaxed)
    }
    /// Counts a page fault of the calling task, one of this address space's.
    #[inline]
    pub(crate) fn note_fault(&self) {
        self.resident.note_fault();
    }
    /// Adds the page faults of the calling task, which ends, to the number of mapped pages.
    pub(crate) fn task_ends(&self) {
        self.resident.task_ends();
    }
    /// Prepares the count of mapped pages for a second task.
    pub(crate) fn share(&self, on: PtRef<'_, A>) {
        self.resident.share(on.counts);
    }
    /// Returns the number of mapped and swapped-out pages, the zero page excluded. The error is at
    /// most max(32, 2 * CPUs) pages for each CPU; with `rss=tasks` 65 pages for each task, and with
    /// `rss=tree` 32 pages for each CPU and each level of groups.
    pub fn resident_pages(&self) -> u64 {
        self.resident.pages()
    }
    /// Returns the number of mapped and swapped-out pages after reading the counts of all CPUs.
    pub(crate) fn resident_sum(&self, on: PtRef<'_, A>) -> u64 {
        self.resident.sum(on.counts)
    }
    /// Returns the most by which [`PageTable::resident_pages`] is wrong, if the count knows it.
    pub(crate) fn resident_error_max(&self) -> Option<u64> {
        self.resident.error_max()
    }
    /// Ensures that no CPU uses the mappings of `extent` from before its entries were last changed.
    pub fn flush(&self, on: PtRef<'_, A>, extent: Extent) -> crate::tlb::Flushed {
        on.tlb.flush(self.asid, extent)
    }
    /// Invalidates all translations of the address space, in which no thread runs or will run
    /// ([`Tlb::retire`]). Gathers need no flush afterwards.
    ///
    /// For the kernel's tables the caller has flushed already, and no CPU uses them any more.
    pub fn retire(&self, on: PtRef<'_, A>) {
        if self.asid != Asid::KERNEL {
            let _ = on.tlb.retire(self.asid);
        }
        // Pairs with the load in `retired`: its caller comes after the flush.
        self.retired.store(1, Release);
    }
    /// Returns the proof of [`PageTable::retire`], if that was done.
    pub fn retired(&self) -> Option<Retired> {
        // Pairs with the store in `retire`.
        (self.retired.load(Acquire) == 1).then(|| Retired::again(self.asid))
    }
    /// Allocates a table of `level` that is not linked yet.
    fn alloc(&self, on: PtRef<'_, A>, level: Level) -> Result<Pfn, TableError> {
        let pfn = alloc_table(on, level)?;
        // A count, like the subtraction in `free`.
        self.tables.fetch_add(1, AcqRel);
        Ok(pfn)
    }
    /// Frees a table that is not linked.
    fn free(&self, on: PtRef<'_, A>, table: Pfn) {
        // A count that is read relaxed. mmap_lock, held for writing, orders it before `destroy`.
        self.tables.fetch_sub(1, AcqRel);
        free_table(on, table);
    }
}

fn alloc_table<A: Machine>(on: PtRef<'_, A>, level: Level) -> Result<Pfn, TableError> {
    let _span = Span::<A>::enter(Func::PteAlloc);
    let pfn = alloc_frame(on)?;
    A::clear_block(pfn, Order::ZERO);
    match level {
        Level::Pte => on.locks.make(pfn, LockClass::Pte),
        Level::Pmd => on.locks.make(pfn, LockClass::Pmd),
        Level::Pud | Level::Pgd => {}
    }
    count(on, pfn, 1);
    Ok(pfn)
}

/// Allocates a frame for the kernel; reclaims memory if none is free. Sleeps.
pub(crate) fn alloc_frame<A: Machine>(on: PtRef<'_, A>) -> Result<Pfn, AllocError> {
    let gfp = if on.room.is_some() { Gfp::RECLAIMING } else { Gfp::KERNEL };
    let alloc = |more| on.frames.alloc_pages(Order::ZERO, MigrateType::Unmovable, gfp | more);
    alloc(Gfp::empty()).or_else(|why| alloc_slowly(on, why, alloc))
}

#[cold]
fn alloc_slowly<A: Machine>(
    on: PtRef<'_, A>,
    mut why: AllocError,
    alloc: impl Fn(Gfp) -> Result<Pfn, AllocError>,
) -> Result<Pfn, AllocError> {
    let Some(room) = on.room else { return Err(why) };
    let mut retries = OomRetries::new();
    loop {
        match alloc(room.make_room(why, &mut retries)?) {
            Ok(pfn) => return Ok(pfn),
            Err(next) => why = next,
        }
    }
}

fn free_table<A: Machine>(on: PtRef<'_, A>, table: Pfn) {
    A::table_drop(table);
    count(on, table, -1);
    on.frames.free_pages(table, Order::ZERO);
}

/// Counts a table in the statistics of its frame's node.
fn count<A: Machine>(on: PtRef<'_, A>, table: Pfn, change: i64) {
    let zone = ZoneId::new(usize::from(on.frames.frames().word(table).zone()));
    let node = on.frames.zone(zone).node();
    let off = IrqGuard::<A>::new();
    on.frames.stats().mod_node(&off, node, NodeItem::PageTable, change);
}
