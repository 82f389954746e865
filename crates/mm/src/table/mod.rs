//! Page tables: which frame stands behind a page.
//!
//! Four levels of 512 entries. A table is a frame; an upper entry points to a table, an entry of
//! the lowest level maps a page, one of the level above maps 512 pages or points to a table.
//!
//! * `entry`: what an entry says. `level`: which entry stands for which page.
//! * `lock`: the lock of each table. `slot`: an entry under its table's lock.
//! * `walk`: from the root to an entry, making tables on the way. `range`: the tables of a range.
//! * `access`: what the hardware does, and what a program's access to a page comes to.
//! * `resident`: how many pages there are.
//! * `copy`, `shift`, `huge`: for fork, for mremap, and splitting huge pages.
//! * `teardown`, `gather`: freeing tables, and freeing pages once no CPU translates to them.
//! * `verify`: whether all adds up.
//!
//! # Who may do what
//! Reading and filling needs the VMA to stay: mmap_lock or the VMA's lock for reading, or the
//! reverse map's. Tables are unlinked only when nobody can find the VMAs of their range
//! ([`PageTable::free_tables`]), or while both of mmap_lock and the VMA's lock are held for writing
//! (moving one): so a table, once found, stays. The reverse map may look at a page between its
//! removal from one table and its arrival in another ([`PageTable::move_range`],
//! [`PageTable::copy_range`]): it finds nothing there, while the page's count of mappings is not 0,
//! and has to look again.
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

use crate::oom::Patience;
use crate::tlb::{Extent, Retired, Tlb};
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use mmscale_arch::sync::{IrqGuard, SpinLock};
use mmscale_arch::{Asid, Atomic, Func, LockClass, Machine, Order, Pfn, Span};
use mmscale_frames::frame::MigrateType;
use mmscale_frames::page_alloc::{AllocError, FrameAllocator, Gfp};
use mmscale_frames::vmstat::NodeItem;
use mmscale_frames::zone::ZoneId;
use resident::Resident;

/// What page tables are made of and share.
pub struct Paging<'a, A: Machine> {
    /// Where tables come from.
    pub frames: &'a FrameAllocator<A>,
    /// Their locks.
    pub locks: &'a TableLocks<A>,
    /// What CPUs keep of them.
    pub tlb: &'a Tlb<A>,
    /// Who is asked when there is no frame for one; `None`: nobody, it fails.
    pub room: Option<&'a dyn MakeRoom>,
}

/// Who frees memory for page tables.
pub trait MakeRoom {
    /// Frees memory, as far as that goes, after an allocation has failed because of `why`: it is
    /// tried again, and may do what this says too. An error: it has failed for good. Sleeps; no
    /// lock of a table is held.
    fn make_room(&self, why: AllocError, patience: &mut Patience) -> Result<Gfp, AllocError>;
}

impl<A: Machine> Clone for Paging<'_, A> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<A: Machine> Copy for Paging<'_, A> {}

/// Why an entry was not reached. Nothing was changed but that upper tables may be there now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TableError {
    /// There is no frame for a table.
    NoMemory(AllocError),
    /// There are as many address spaces as there can be.
    NoAsid,
    /// A huge page is mapped there: split it first.
    Huge,
    /// A table is there, where a huge page was to be mapped.
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
            Self::NoAsid => f.write_str("making a page table: too many address spaces"),
            Self::Huge => f.write_str("looking for a page: a huge page is there, split it first"),
            Self::Table => f.write_str("mapping a huge page: single pages are mapped there"),
        }
    }
}

impl core::error::Error for TableError {}

/// The page tables of one address space.
pub struct PageTable<A: Machine> {
    root: Pfn,
    asid: Asid,
    /// Entries of the two upper levels change from nothing to a table under this.
    upper: SpinLock<A, ()>,
    /// Tables, the root included.
    tables: A::AtomicU32,
    /// Gathers under way.
    gathers: A::AtomicU32,
    /// Pages that are mapped or swapped out.
    resident: Resident<A>,
    /// 1 once nobody will use a translation any more.
    retired: A::AtomicU32,
}

impl<A: Machine> PageTable<A> {
    /// An address space that maps nothing. Give it back with [`PageTable::destroy`].
    pub fn new(on: Paging<'_, A>) -> Result<Self, TableError> {
        let root = alloc_table(on, Level::Pgd)?;
        let Ok(asid) = on.tlb.alloc_asid() else {
            free_table(on, root);
            return Err(TableError::NoAsid);
        };
        Ok(Self::of(root, asid))
    }
    /// The kernel's own tables, which map nothing. All CPUs use them at any time.
    pub(crate) fn new_kernel(on: Paging<'_, A>) -> Result<Self, TableError> {
        Ok(Self::of(alloc_table(on, Level::Pgd)?, Asid::KERNEL))
    }
    fn of(root: Pfn, asid: Asid) -> Self {
        Self {
            root,
            asid,
            upper: SpinLock::new(LockClass::PageTable, ()),
            tables: A::AtomicU32::new(1),
            gathers: A::AtomicU32::new(0),
            resident: Resident::new(),
            retired: A::AtomicU32::new(0),
        }
    }
    /// Frees the root and the address space's number: the last that is done with it.
    ///
    /// Panics unless [`PageTable::free_tables`] has freed everything else.
    pub fn destroy(&self, on: Paging<'_, A>) {
        let left = self.tables.load(Relaxed);
        assert!(left == 1, "an address space ends with {} page tables left", left - 1);
        // Whoever still has it loaded forgets it before the root goes.
        if self.asid != Asid::KERNEL {
            on.tlb.free_asid(self.asid);
        }
        free_table(on, self.root);
    }
    /// The number by which CPUs know the address space.
    pub fn asid(&self) -> Asid {
        self.asid
    }
    /// The number of tables, the root included.
    pub fn tables(&self) -> u32 {
        self.tables.load(Relaxed)
    }
    /// Pages that are mapped, but for that of zeros, or swapped out. It is off by up to max(32,
    /// 2 * CPUs) pages for each CPU.
    pub fn resident_pages(&self) -> u64 {
        self.resident.pages()
    }
    /// Makes sure that no CPU uses what `extent` mapped before its entries were last changed.
    pub fn flush(&self, on: Paging<'_, A>, extent: Extent) -> crate::tlb::Flushed {
        on.tlb.flush(self.asid, extent)
    }
    /// No thread is in the address space, and none will be: makes sure that no CPU uses a
    /// translation of it, once and for all ([`Tlb::retire`]). Gathers need no flush from then on.
    ///
    /// Of the kernel's own: the caller has flushed it, and nobody uses it any more.
    pub fn retire(&self, on: Paging<'_, A>) {
        if self.asid != Asid::KERNEL {
            let _ = on.tlb.retire(self.asid);
        }
        self.retired.store(1, Release);
    }
    /// Proof of [`PageTable::retire`], if that was done.
    pub fn retired(&self) -> Option<Retired> {
        (self.retired.load(Acquire) == 1).then(|| Retired::again(self.asid))
    }
    /// A table of `level` that nobody knows.
    fn alloc(&self, on: Paging<'_, A>, level: Level) -> Result<Pfn, TableError> {
        let pfn = alloc_table(on, level)?;
        self.tables.fetch_add(1, AcqRel);
        Ok(pfn)
    }
    /// Frees a table that nobody knows any more.
    fn free(&self, on: Paging<'_, A>, table: Pfn) {
        self.tables.fetch_sub(1, AcqRel);
        free_table(on, table);
    }
}

fn alloc_table<A: Machine>(on: Paging<'_, A>, level: Level) -> Result<Pfn, TableError> {
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

/// Allocates a frame of the kernel's own, and has memory reclaimed if there is none. Sleeps.
pub(crate) fn alloc_frame<A: Machine>(on: Paging<'_, A>) -> Result<Pfn, AllocError> {
    let alloc =
        |more| on.frames.alloc_pages(Order::ZERO, MigrateType::Unmovable, Gfp::KERNEL | more);
    alloc(Gfp::empty()).or_else(|why| alloc_slowly(on, why, alloc))
}

#[cold]
fn alloc_slowly<A: Machine>(
    on: Paging<'_, A>,
    mut why: AllocError,
    alloc: impl Fn(Gfp) -> Result<Pfn, AllocError>,
) -> Result<Pfn, AllocError> {
    let Some(room) = on.room else { return Err(why) };
    let mut patience = Patience::new();
    loop {
        match alloc(room.make_room(why, &mut patience)?) {
            Ok(pfn) => return Ok(pfn),
            Err(next) => why = next,
        }
    }
}

fn free_table<A: Machine>(on: Paging<'_, A>, table: Pfn) {
    A::table_drop(table);
    count(on, table, -1);
    on.frames.free_pages(table, Order::ZERO);
}

/// Counts a table of its frame's node.
fn count<A: Machine>(on: Paging<'_, A>, table: Pfn, change: i64) {
    let zone = ZoneId::new(usize::from(on.frames.frames().word(table).zone()));
    let node = on.frames.zone(zone).node();
    let off = IrqGuard::<A>::new();
    on.frames.stats().mod_node(&off, node, NodeItem::PageTable, change);
}
