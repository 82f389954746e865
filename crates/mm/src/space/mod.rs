//! Address spaces: which pages of a process are mapped, and how.
//!
//! | module | content |
//! |---|---|
//! | `tree` | the VMAs of an address space in order: a B-tree that knows its gaps |
//! | `vma` | what a VMA is: its slot by id, its lock, its place in the reverse map |
//! | `change` | changing VMAs: memory first, then locks, then the tree |
//! | `calls` | the system calls on memory, and fork |
//! | `fault` | how a page gets its frame, also from swap |
//! | `file` | files in memory and on the disk, and faults in them |
//! | `zap` | how frames leave: clear the entry, gather, flush, free |
//! | `end` | the exit, and tasks that unmap pages of a dying process at the same time |
//! | `mappings` | the trees of the VMAs that map a file, and their locks |
//! | `registry` | all address spaces |
//! | `reverse` | from a folio to the pages that map it, and the locks of that |
//! | `verify` | consistency checks |
//!
//! Memory is private and anonymous, or of a file, private or shared.
//!
//! # How a VMA is found
//! The simple version: mmap_lock protects the tree of VMAs. A reader of the tree takes it for
//! reading, a change takes it for writing (`change`). Then all page faults of a process write one
//! cache line.
//!
//! The real version: a page fault does not take mmap_lock (`vma::lock`). It
//!
//! 1. checks that the tree is not being changed, and looks up the id of the VMA at the page;
//! 2. looks up the slot of this id; the id of a VMA that was removed leads to nothing;
//! 3. tries to take the lock of this one VMA for reading;
//! 4. checks, with that lock held, that the id is still live and that the VMA's range holds the
//!    page;
//! 5. falls back to mmap_lock if any of these steps fails.
//!
//! A change holds mmap_lock for writing. It also takes the lock of each VMA for writing before it
//! changes the range or flags of that VMA, removes it from the tree or ends its id, and holds the
//! lock until the whole change is done. Hence a fault that has passed step 4 has a VMA that stays
//! in the tree until the fault releases the lock. The reverse map looks up VMAs in the same way,
//! and skips a VMA that it cannot lock. The orderings are listed in `vma::lock`.
//!
//! # Users of an address space
//! The users (`mm_users`) are the process with its threads (`OWNED`) and tasks that read its memory
//! from outside (`READER` for each; `end::users`). The last of them frees everything, in its own
//! task: usually the process at its exit, otherwise the last reader. A reader can only join while
//! the process has not left.
//!
//! # Flags of the end of an address space
//! `Space::state` has the users, and a bit for each step of the end of an address space. None of
//! these bits is ever cleared: the state ends with the address space. All are set by `fetch_or`
//! with `AcqRel`, which pairs with the `Acquire` loads of the readers.
//!
//! | flag | Linux | set by | held then | effect |
//! |---|---|---|---|---|
//! | `KILLED` | SIGKILL pending | `kill` | nothing | faults fail, long operations stop |
//! | `VICTIM` | `TIF_MEMDIE` | `mark` | nothing | the OOM reaper takes it at `due_ns` |
//! | `UNSTABLE` | `MMF_UNSTABLE` | `reap_pages` | mmap_lock, read | no fault makes a page |
//! | `CHANGED` | - | `change` | mmap_lock, write | `die` opens the claims again |
//! | `LEFT` | - | `zap_claimed` of a reaper | mmap_lock, read | the exit zaps shared VMAs itself |
//! | no users | `mm_users` is 0 | the last user | nothing | OOM waits; a `claims` reaper yields |
//! | `DEAD` | - | `die` | mmap_lock and all VMAs, write | walkers lock no page table |
//! | `SKIP` | `MMF_OOM_SKIP` | `skip` | nothing | reapers return, no victim is seen |
//!
//! Which may be set together:
//!
//! * The OOM killer sets `KILLED`, then `VICTIM` (`Oom::mark_victim`), and its reaper `UNSTABLE`.
//!   process_mrelease sets `UNSTABLE` without `VICTIM`. All three may be set while there are users:
//!   threads may still run.
//! * The last user may leave before any flag is set: a process that returns from `main` is never
//!   killed.
//! * `CHANGED` implies `UNSTABLE`, and is set before `DEAD` only: nothing changes VMAs afterwards.
//! * `LEFT` implies `UNSTABLE`, and is set before `DEAD` only. `LEFT` and `DEAD` occur with the
//!   policy `claims` only. A walker reads `DEAD` with mmap_lock held for reading, so it does not
//!   change during the walk of one claim.
//! * `DEAD` implies that there are no users.
//! * `SKIP` is set by the exit after the last page is out, or by the OOM reaper after its last
//!   attempt; then threads may still run, and the exit is still to come.
//!
//! The whole sequence is in `docs/internals/exit.md`, and by policy in `end::exit`.
//!
//! Lock order: [`LockClass`]. A task that holds a VMA's lock for reading may wait for memory, but
//! not for mmap_lock.

mod calls;
mod change;
mod committed;
mod end;
mod error;
mod fault;
mod file;
mod mappings;
mod registry;
mod reverse;
mod tree;
mod verify;
mod vma;
mod zap;

pub use calls::{Advice, LockWhat, MAP_MIN, MapRequest, MayMove, Place, Present, RemapRequest};
pub use committed::CommitPolicy;
pub use end::{ClaimEnd, Claims, ReapLock, Reaped};
pub use error::{FaultError, SpaceError};
pub use file::{File, FileAdvice};
pub use mappings::ImapPolicy;
pub use mmscale_arch::{ADDRESS_BITS, PAGE_SHIFT, PAGE_SIZE, USER_END, VmaRange, Vpn};
pub use registry::{
    ExitPolicy, HugePages, RetryPolicy, SpaceConfig, Spaces, UnmapPolicy, VmaLockPolicy,
};
pub use tree::{
    Edit, GapRequest, InsertError, Iter, Overlap, TreeAudit, TreeDefect, TreeWord, VmaCursor,
    VmaEntry, VmaFinder, VmaTree,
};
pub use verify::{SpaceAudit, SpaceDefect};
pub use vma::{
    AnonChain, FileId, FileMap, Prot, RootId, TreeId, Vma, VmaFlags, VmaId, VmaLookup, VmaSlots,
};

use crate::lru::LruRef;
use crate::memcg::GroupId;
use crate::oom::Oom;
use crate::pgtable::{PageTable, PtRef};
use crate::reclaim::Reclaim;
use crate::swap::Swap;
use crate::time::Time;
use alloc::sync::Arc;
use alloc::vec::Vec;
use change::{Change, Vmas};
use committed::Committed;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{AcqRel, Acquire};
use file::HeldFiles;
use mmscale_arch::sync::{RwSem, SpinLock, WaitQueue};
use mmscale_arch::{Asid, Atomic, DataLine, LockClass, Machine, TaskId};
use registry::FamilyId;
use reverse::Moved;
use vma::{Roots, VmaLock};

/// No memory for a tree node or a slot. Nothing was changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NoMemory;

impl core::fmt::Display for NoMemory {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("no memory for a tree node or a slot: free some and try again")
    }
}

impl core::error::Error for NoMemory {}

/// References to everything that an operation on an address space uses.
///
/// One `Copy` value is passed down instead of seven. It is a value of its own, and not a reference
/// to `Mm`, so that tests and embedders can build address spaces from single parts.
pub struct MmRef<'a, A: Machine> {
    /// The frame allocator, folios, memory groups and LRU lists.
    pub memory: LruRef<'a, A>,
    /// Frames and locks of page tables, and the TLB.
    pub paging: PtRef<'a, A>,
    /// All address spaces.
    pub spaces: &'a Spaces<A>,
    /// Swap slots, the swap cache and swap I/O.
    pub swap: &'a Swap<A>,
    /// Page reclaim.
    pub reclaim: &'a Reclaim<A>,
    /// The OOM killer, which runs if reclaim frees nothing.
    pub oom: &'a Oom<A>,
    /// Timers, for waiting.
    pub time: &'a Time<A>,
}

impl<A: Machine> Clone for MmRef<'_, A> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<A: Machine> Copy for MmRef<'_, A> {}

/// SIGKILL is pending: faults fail and long operations stop.
const KILLED: u32 = 1 << 0;
/// A reaper has unmapped pages whose VMAs are still there (`MMF_UNSTABLE`). No fault makes a new
/// page: it would be zeroed where the program had data.
const UNSTABLE: u32 = 1 << 1;
/// A reaper has nothing left to do (`MMF_OOM_SKIP`).
const SKIP: u32 = 1 << 2;
/// VMAs were changed after a reaper had started: pages may be in tables that it has passed.
const CHANGED: u32 = 1 << 3;
/// A reaper has skipped VMAs that it may not zap while threads run.
const LEFT: u32 = 1 << 4;
/// The last thread has exited and all VMAs are locked for good. Only the exit and reapers look up
/// VMAs, by the tree.
const DEAD: u32 = 1 << 5;
/// The OOM killer waits for its memory (`TIF_MEMDIE`).
const VICTIM: u32 = 1 << 6;
/// Its process uses it.
const OWNED: u32 = 1 << 8;
/// A task reads its memory from outside. The bits from here count these tasks.
const READER: u32 = 1 << 9;

/// Whether it has no users: its end has started.
const fn is_unused(state: u32) -> bool {
    state < OWNED
}

/// The address space of a process.
pub struct Space<A: Machine> {
    /// mmap_lock, with the VMAs.
    lock: RwSem<A, Vmas<A>>,
    /// Odd while the tree of VMAs changes.
    changes: A::AtomicU32,
    finder: VmaFinder<VmaId>,
    lookup: VmaLookup<VmaLock<A>>,
    /// Writers of a VMA's lock that wait for its readers.
    vma_waiters: WaitQueue<A>,
    table: PageTable<A>,
    /// Where mremap has moved pages, for the reverse map.
    moved: SpinLock<A, Moved>,
    family: FamilyId,
    group: GroupId,
    config: SpaceConfig,
    /// Its users, and how far its end has come: [`KILLED`] and the flags after it.
    state: A::AtomicU32,
    /// Which of its page tables are not claimed yet.
    claims: Claims<A>,
    /// The locks of anonymous memory in the reverse map.
    roots: Arc<Roots<A>>,
    /// The memory that is promised to all address spaces.
    committed: Arc<Committed<A>>,
    /// Files that it has mapped.
    files: HeldFiles<A>,
    /// Tasks that run in it.
    tasks: SpinLock<A, Vec<TaskId>>,
    /// `oom_score_adj` in thousandths, as an `i32`.
    adjustment: A::AtomicU32,
    /// When the OOM reaper may take it, in ns. Stored before `VICTIM` is set, and read after it.
    due_ns: AtomicU64,
}

impl<A: Machine> Space<A> {
    /// Creates an address space that maps nothing and whose pages are charged to `group`. End it
    /// with [`Space::exit`].
    pub fn new(on: MmRef<'_, A>, group: GroupId) -> Result<Arc<Self>, SpaceError> {
        let table = PageTable::with_rss(on.paging, on.spaces.config().rss)?;
        let space = Arc::new(Self::with(on, table, on.spaces.new_family(), group));
        on.spaces.enter(&space);
        Ok(space)
    }
    fn with(on: MmRef<'_, A>, table: PageTable<A>, family: FamilyId, group: GroupId) -> Self {
        let vmas = Vmas::new();
        Self {
            changes: A::AtomicU32::named(0, DataLine::MmLockSeq),
            finder: vmas.tree.finder(),
            lookup: vmas.slots().lookup(),
            vma_waiters: WaitQueue::new(),
            table,
            moved: SpinLock::new(LockClass::Other, Moved::new()),
            family,
            group,
            config: *on.spaces.config(),
            state: A::AtomicU32::named(OWNED, DataLine::MmFlags),
            claims: Self::new_claims(),
            roots: on.spaces.shared_roots(),
            committed: on.spaces.shared_committed(),
            files: HeldFiles::new(),
            tasks: SpinLock::new(LockClass::Other, Vec::new()),
            adjustment: A::AtomicU32::new(0),
            due_ns: AtomicU64::new(0),
            lock: RwSem::with_policy(on.spaces.config().rwsem, LockClass::MmapLock, vmas),
        }
    }
    /// Prepares the count of its pages for one more thread than the first.
    pub fn thread_starts(&self, on: MmRef<'_, A>) {
        self.table.share(on.paging);
    }
    /// Ends the part of the calling task, a thread that returns, in the count of its pages
    /// (`sync_mm_rss`).
    pub fn thread_ends(&self) {
        self.table.task_ends();
    }
    /// Its number.
    pub fn asid(&self) -> Asid {
        self.table.asid()
    }
    /// The memory group that its pages are charged to.
    pub fn group(&self) -> GroupId {
        self.group
    }
    /// Whether SIGKILL is pending.
    pub fn is_killed(&self) -> bool {
        // Pairs with the exchange in `kill` (victim.rs).
        self.state.load(Acquire) & KILLED != 0
    }
    fn alive(&self) -> Result<(), SpaceError> {
        if self.is_killed() { Err(SpaceError::Interrupted) } else { Ok(()) }
    }
    fn change(&self) -> Change<'_, A> {
        let change = Change::begin(self);
        // `UNSTABLE` pairs with the exchange in `reap_pages` (reap.rs), `CHANGED` with the one in
        // `die` (claims.rs). mmap_lock orders both.
        if self.state.load_uncharged(Acquire) & (UNSTABLE | DEAD) == UNSTABLE {
            self.state.fetch_or(CHANGED, AcqRel);
        }
        change
    }
}
