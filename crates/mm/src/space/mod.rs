//! Address spaces: which pages of a process are mapped, and as what.
//!
//! | file | what it does |
//! |---|---|
//! | `tree`, `arena` | the VMAs of an address space in order, a B-tree that knows its gaps |
//! | `vma`, `area`, `lock` | VMAs by number, what is said of each, and its own lock |
//! | `change` | changing VMAs: memory first, then locks, then the tree |
//! | `mmap`, `protect`, `remap`, `advise`, `locked`, `bind`, `query` | the system calls |
//! | `fault`, `anon`, `huge`, `populate` | how a page gets its frame |
//! | `zap`, `exit` | how frames leave: entries out, gather, flush, release |
//! | `reap` | taking pages out of an address space whose process is dying, beside its exit |
//! | `claims` | page tables that exit and reapers share out among them |
//! | `victim` | what the out-of-memory killer asks of them |
//! | `file` | files in memory, and what a fault in one does |
//! | `fork` | copying an address space |
//! | `registry`, `rmap` | all address spaces, and from a folio to the pages that it stands for |
//! | `verify` | whether it all adds up |
//!
//! Memory is private and anonymous, or of a file, private or shared.
//!
//! # Who finds a VMA, and how
//! The tree belongs to mmap_lock: reading it takes the lock for reading, changing it for writing
//! (`change`). A page fault does without (`lock`). It
//!
//! 1. asks whether the tree is being changed just now, and if not, asks it for the id at the page;
//! 2. asks the slots for the VMA of that id; ids of the past give nothing;
//! 3. tries to take that VMA's own lock for reading;
//! 4. asks, with the lock held, whether the id still lives and whether the VMA's own range holds
//!    the page;
//! 5. on any no it lets go, and does it all again under mmap_lock.
//!
//! The other side, with mmap_lock held for writing, takes a VMA's lock for writing before it
//! changes its range or flags, removes it from the tree or ends its id, and keeps it until all of
//! that is done. So a fault that passed step 4 has a VMA that is in the tree and stays there until
//! the fault lets go. The reverse map goes the same way, and leaves out what it cannot lock.
//!
//! Lock order: [`LockClass`]. A task that holds a VMA's lock for reading may wait for memory, but
//! not for mmap_lock.

mod advise;
mod anon;
mod area;
mod arena;
mod bind;
mod change;
mod claims;
mod collapse;
mod error;
mod exit;
mod fault;
mod file;
mod fork;
mod huge;
mod lock;
mod locked;
mod mmap;
#[cfg(test)]
mod planted;
mod populate;
mod protect;
mod query;
mod reap;
mod registry;
mod remap;
mod rmap;
mod swapped;
mod tree;
mod verify;
mod victim;
mod vma;
mod zap;

pub use advise::Advice;
pub use area::{Area, AreaFlags, FileId, FileMap, Prot};
pub use bind::Present;
pub use claims::{Claims, End};
pub use error::{FaultError, SpaceError};
pub use file::File;
pub use locked::LockWhat;
pub use mmap::{MAP_MIN, MapRequest, Place};
pub use mmscale_arch::{ADDRESS_BITS, PAGE_SHIFT, PAGE_SIZE, USER_END, VmaRange, Vpn};
pub use reap::{ReapLock, Reaped};
pub use registry::{ExitPolicy, HugePages, SpaceConfig, Spaces};
pub use remap::{MayMove, RemapRequest};
pub use tree::{
    Edit, Found, GapRequest, InsertError, Iter, Overlap, TreeAudit, TreeDefect, TreeWord, VmaEntry,
    VmaFinder, VmaTree,
};
pub use verify::{SpaceAudit, SpaceDefect};
pub use vma::{VmaId, VmaLookup, VmaSlots};

use crate::group::GroupId;
use crate::lru::Memory;
use crate::oom::Oom;
use crate::reclaim::Reclaim;
use crate::swap::Swap;
use crate::table::{PageTable, Paging};
use crate::time::Time;
use alloc::sync::Arc;
use alloc::vec::Vec;
use change::{Change, Vmas};
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{AcqRel, Acquire};
use lock::Vma;
use mmscale_arch::sync::{RwSem, SpinLock, WaitQueue};
use mmscale_arch::{Asid, Atomic, LockClass, Machine, TaskId};
use registry::FamilyId;
use rmap::Moved;

/// There is no memory for a node or a slot: nothing was changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NoMemory;

impl core::fmt::Display for NoMemory {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("no memory for a tree node or a slot: free some and try again")
    }
}

impl core::error::Error for NoMemory {}

/// What stands behind address spaces.
pub struct Backing<'a, A: Machine> {
    /// Folios and where they come from.
    pub memory: Memory<'a, A>,
    /// What page tables are made of.
    pub paging: Paging<'a, A>,
    /// The other address spaces.
    pub spaces: &'a Spaces<A>,
    /// Where pages go when their frames are wanted elsewhere.
    pub swap: &'a Swap<A>,
    /// Who takes them there.
    pub reclaim: &'a Reclaim<A>,
    /// Who is asked when that did not help.
    pub oom: &'a Oom<A>,
    /// For waiting.
    pub time: &'a Time<A>,
}

impl<A: Machine> Clone for Backing<'_, A> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<A: Machine> Copy for Backing<'_, A> {}

/// Its process is to end: long operations stop.
const KILLED: u32 = 1 << 0;
/// Pages were taken out that no VMA says are gone (`MMF_UNSTABLE`): no page is made any more, as it
/// would be an empty one where there was something.
const UNSTABLE: u32 = 1 << 1;
/// There is nothing left for a reaper to do (`MMF_OOM_SKIP`).
const SKIP: u32 = 1 << 2;
/// VMAs were changed after a reaper had begun.
const CHANGED: u32 = 1 << 3;
/// A reaper has left pages that it may not take while threads run.
const LEFT: u32 = 1 << 4;
/// Its last thread has ended, and nobody finds its VMAs but who empties it.
const DEAD: u32 = 1 << 5;
/// The out-of-memory killer waits for its memory (`TIF_MEMDIE`).
const VICTIM: u32 = 1 << 6;
/// Its exit has begun.
const EXITING: u32 = 1 << 7;

/// The address space of a process.
pub struct Space<A: Machine> {
    /// mmap_lock, and the VMAs.
    lock: RwSem<A, Vmas<A>>,
    /// Odd while the tree of VMAs changes.
    changes: A::AtomicU32,
    finder: VmaFinder<VmaId>,
    lookup: VmaLookup<Vma<A>>,
    /// Whoever waits for the readers of a VMA.
    vma_waiters: WaitQueue<A>,
    table: PageTable<A>,
    /// Where mremap has put what.
    moved: SpinLock<A, Moved>,
    family: FamilyId,
    group: GroupId,
    config: SpaceConfig,
    /// What of its end has come: [`KILLED`] and the others.
    state: A::AtomicU32,
    /// Which of its page tables nobody has claimed.
    claims: Claims<A>,
    /// Files that it has mapped.
    files: SpinLock<A, Vec<Arc<File<A>>>>,
    /// Who runs in it.
    tasks: SpinLock<A, Vec<TaskId>>,
    /// Thousandths, as an `i32`.
    adjustment: A::AtomicU32,
    /// When the reaper comes, in ns. Written before `VICTIM` is set.
    due_ns: AtomicU64,
}

impl<A: Machine> Space<A> {
    /// An address space that maps nothing, whose pages are charged to `group`. End it with
    /// [`Space::exit`].
    pub fn new(on: Backing<'_, A>, group: GroupId) -> Result<Arc<Self>, SpaceError> {
        let table = PageTable::new(on.paging)?;
        let space = Arc::new(Self::with(on, table, on.spaces.new_family(), group));
        on.spaces.enter(&space);
        Ok(space)
    }
    fn with(on: Backing<'_, A>, table: PageTable<A>, family: FamilyId, group: GroupId) -> Self {
        let vmas = Vmas::new();
        Self {
            changes: A::AtomicU32::new(0),
            finder: vmas.tree.finder(),
            lookup: vmas.slots().lookup(),
            vma_waiters: WaitQueue::new(),
            table,
            moved: SpinLock::new(LockClass::Other, Moved::new()),
            family,
            group,
            config: *on.spaces.config(),
            state: A::AtomicU32::new(0),
            claims: Self::new_claims(),
            files: SpinLock::new(LockClass::Other, Vec::new()),
            tasks: SpinLock::new(LockClass::Other, Vec::new()),
            adjustment: A::AtomicU32::new(0),
            due_ns: AtomicU64::new(0),
            lock: RwSem::new(vmas),
        }
    }
    /// Its number.
    pub fn asid(&self) -> Asid {
        self.table.asid()
    }
    /// Who pays for its pages.
    pub fn group(&self) -> GroupId {
        self.group
    }
    /// Whether its process is to end.
    pub fn is_killed(&self) -> bool {
        self.state.load(Acquire) & KILLED != 0
    }
    fn alive(&self) -> Result<(), SpaceError> {
        if self.is_killed() { Err(SpaceError::Interrupted) } else { Ok(()) }
    }
    fn change(&self) -> Change<'_, A> {
        let change = Change::begin(self);
        if self.state.load_uncharged(Acquire) & (UNSTABLE | DEAD) == UNSTABLE {
            self.state.fetch_or(CHANGED, AcqRel);
        }
        change
    }
}
