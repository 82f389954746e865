//! All address spaces: found by number for the reverse map, and related by fork.
//!
//! The mapping word of an anonymous folio names its *family* and its last exclusive owner. A family
//! is the set of address spaces that descend by fork from one: only its members can map the folio.
//!
//! Locks: each table entry has its own (class Other), held briefly, with no lock inside.

use super::Space;
use super::committed::{CommitPolicy, Committed};
use super::file::FileTable;
use super::mappings::ImapPolicy;
use super::vma::{RootId, Roots};
use crate::pgtable::RssPolicy;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Release};
use mmscale_arch::sync::{Inside, Numbers, RwsemPolicy, Sparse, SpinLock};
use mmscale_arch::{Asid, Atomic, LockClass, Machine, Order, Pfn};
use mmscale_frames::frame::MigrateType;
use mmscale_frames::page_alloc::{AllocError, FrameAllocator, Gfp};

/// Whether address spaces get huge pages (`transparent_hugepage/enabled`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum HugePages {
    /// Never.
    Never,
    /// Where a program has asked for them.
    #[default]
    Advised,
    /// Wherever they fit.
    Always,
}

mmscale_arch::policies! {
    /// How an address space is emptied at its end, by its own exit and by its helpers.
    pub enum ExitPolicy: "exit", "exit_mmap and process_mrelease on one address space" {
        /// Walks the VMAs from the lowest to the highest, in the exit and in every helper.
        Stock = "stock",
        /// Lets helpers walk the VMAs from the highest to the lowest, and each VMA forward.
        Posted = "posted",
        /// Lets the exit claim page tables upwards from the lowest and helpers downwards from the
        /// highest, until they meet.
        Claims = "claims",
    }
}

mmscale_arch::policies! {
    /// Which operations lock one VMA instead of mmap_lock.
    pub enum VmaLockPolicy: "vma-locks", "operations that lock one VMA instead of mmap_lock" {
        /// Takes only the VMA's lock in page faults, and in MADV_DONTNEED and MADV_FREE of one VMA.
        Stock = "stock",
        /// Takes only the VMA's lock in page faults; all advice takes mmap_lock.
        Faults = "faults",
        /// Takes only the VMA's lock in page faults on anonymous memory that is not in swap.
        Anonymous = "anonymous",
        /// Takes mmap_lock for reading in page faults and for advice.
        None = "none",
    }
}

mmscale_arch::policies! {
    /// Locks of a page fault that waits for the content of a page.
    pub enum RetryPolicy: "retry", "locks of a page fault while its page is read from the device" {
        /// Releases its lock before it waits, and tries again with mmap_lock (FAULT_FLAG_RETRY).
        Stock = "stock",
        /// Releases its lock before it waits, and tries again with the lock of the VMA.
        Vma = "vma",
        /// Keeps the lock of the VMA, or mmap_lock, until the page is there.
        Hold = "hold",
    }
}

mmscale_arch::policies! {
    /// Whether unmapping drains the LRU batches of its CPU first.
    pub enum UnmapPolicy: "unmap", "LRU batches before munmap, MADV_DONTNEED and exit" {
        /// Leaves the batches as they are.
        Stock = "stock",
        /// Drains this CPU's batches before each unmapping of memory.
        Drain = "drain",
    }
}

/// The configuration of address spaces.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SpaceConfig {
    /// The most VMAs of an address space (`vm.max_map_count`; the kernel's default is 65530). mmap
    /// may exceed it by one.
    pub vmas_max: u32,
    /// The most pages that a process may lock in memory (`RLIMIT_MEMLOCK`; 8 MiB by default since
    /// 5.16).
    pub memlock_pages: u64,
    /// Huge pages.
    pub huge: HugePages,
    /// How address spaces exit.
    pub exit: ExitPolicy,
    /// Which operations lock one VMA.
    pub vma_locks: VmaLockPolicy,
    /// Locks of a fault that waits for a page.
    pub retry: RetryPolicy,
    /// Whether unmapping drains LRU batches first.
    pub unmap: UnmapPolicy,
    /// How mmap_lock and the locks of the reverse map are passed on.
    pub rwsem: RwsemPolicy,
    /// Where the pages of an address space are counted first.
    pub rss: RssPolicy,
    /// The trees of the VMAs that map a file.
    pub imap: ImapPolicy,
    /// The batch of the promised memory.
    pub commit: CommitPolicy,
}

impl Default for SpaceConfig {
    fn default() -> Self {
        Self {
            vmas_max: 65_530,
            memlock_pages: 2048,
            huge: HugePages::default(),
            exit: ExitPolicy::default(),
            vma_locks: VmaLockPolicy::default(),
            retry: RetryPolicy::default(),
            unmap: UnmapPolicy::default(),
            rwsem: RwsemPolicy::default(),
            rss: RssPolicy::default(),
            imap: ImapPolicy::default(),
            commit: CommitPolicy::default(),
        }
    }
}

/// A family: address spaces that are related by fork.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct FamilyId(pub(super) u32);

/// The most tasks of a machine.
const TASKS_MAX: usize = 1 << 22;

const SPACE_BITS: u32 = 24;
const _: () = assert!(Asid::COUNT <= 1 << SPACE_BITS);

/// A folio's mapping word: where the folio is mapped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Mapping {
    pub(super) family: FamilyId,
    /// The last exclusive owner, which the reverse map visits first.
    pub(super) owner: Asid,
}

impl Mapping {
    pub(super) fn word(self) -> u64 {
        u64::from(self.family.0) << SPACE_BITS | self.owner.index() as u64
    }
    pub(super) fn of(word: u64) -> Self {
        let owner = word & ((1 << SPACE_BITS) - 1);
        Self { family: FamilyId((word >> SPACE_BITS) as u32), owner: Asid::new(owner as usize) }
    }
}

type SpaceEntry<A> = SpinLock<A, Option<Arc<Space<A>>>>;
/// The members of a family, and the roots of its anonymous memory.
#[derive(Default)]
struct Members {
    spaces: Vec<Asid>,
    roots: Vec<RootId>,
}

type Family<A> = SpinLock<A, Members>;

/// All address spaces of a machine.
pub struct Spaces<A: Machine> {
    pub(super) config: SpaceConfig,
    entries: Sparse<SpaceEntry<A>>,
    families: Sparse<Family<A>>,
    family_numbers: Numbers<A>,
    /// The zero page plus 1; 0 before [`Spaces::start`].
    zero: AtomicU64,
    /// By task, the address space that it runs in. A task reads only its own entry.
    running: Sparse<Inside<Space<A>>>,
    files: SpinLock<A, FileTable<A>>,
    roots: Arc<Roots<A>>,
    committed: Arc<Committed<A>>,
    /// Address spaces that have started to exit.
    exits: A::AtomicU32,
}

impl<A: Machine> Spaces<A> {
    /// Creates a table without address spaces, on a machine with `pages` pages.
    pub fn new(config: SpaceConfig, pages: u64) -> Self {
        Self {
            config,
            entries: Sparse::new(Asid::COUNT),
            families: Sparse::new(Asid::COUNT),
            family_numbers: Numbers::new(0..Asid::COUNT),
            zero: AtomicU64::new(0),
            running: Sparse::new(TASKS_MAX),
            files: SpinLock::new(LockClass::Other, FileTable::new()),
            roots: Arc::new(Roots::new(config.rwsem)),
            committed: Arc::new(Committed::new(config.commit, pages)),
            exits: A::AtomicU32::new(0),
        }
    }
    /// The configuration of address spaces.
    pub fn config(&self) -> &SpaceConfig {
        &self.config
    }
    /// Allocates the zero page: once, before the first address space is used.
    pub fn start(&self, frames: &FrameAllocator<A>) -> Result<(), AllocError> {
        let pfn = frames.alloc_pages(Order::ZERO, MigrateType::Unmovable, Gfp::KERNEL)?;
        A::clear_block(pfn, Order::ZERO);
        // Pairs with the load in `zero`: the page is cleared.
        self.zero.store(pfn.index() as u64 + 1, Release);
        Ok(())
    }
    /// Frees the zero page, after the last address space has ended.
    pub fn stop(&self, frames: &FrameAllocator<A>) {
        // No partner: the last address space has ended.
        if let Some(pfn) = self.zero.swap(0, Release).checked_sub(1) {
            frames.free_pages(Pfn::new(pfn as usize), Order::ZERO);
        }
    }
    /// The zero page, which is mapped where a program has only read.
    pub(super) fn zero(&self) -> Pfn {
        // Pairs with the store in `start`.
        let word = self.zero.load(Acquire);
        assert!(word > 0, "the memory manager was not started");
        Pfn::new(word as usize - 1)
    }

    fn entry(&self, asid: Asid) -> &SpaceEntry<A> {
        self.entries.get_or_make(asid.index(), |_| SpinLock::new(LockClass::Other, None))
    }
    fn family(&self, id: FamilyId) -> &Family<A> {
        let make = |_| SpinLock::new(LockClass::Other, Members::default());
        self.families.get_or_make(id.0 as usize, make)
    }
    /// Returns the address space of this number, if it is alive.
    pub(super) fn get(&self, asid: Asid) -> Option<Arc<Space<A>>> {
        self.entry(asid).lock().clone()
    }
    /// Starts a family without members.
    pub(super) fn new_family(&self) -> FamilyId {
        // Each family has a member with its own number, or is about to get one.
        FamilyId(self.family_numbers.take().expect("as many families as address spaces") as u32)
    }
    /// Returns the `at`th member of a family. Members may come and go between two calls.
    pub(super) fn member(&self, id: FamilyId, at: usize) -> Option<Asid> {
        self.family(id).lock().spaces.get(at).copied()
    }
    /// Registers an address space.
    pub(super) fn enter(&self, space: &Arc<Space<A>>) {
        *self.entry(space.asid()).lock() = Some(Arc::clone(space));
        self.family(space.family).lock().spaces.push(space.asid());
    }
    /// Removes an address space, which maps nothing any more. The last member ends the family.
    pub(super) fn leave(&self, space: &Space<A>) {
        let gone = self.entry(space.asid()).lock().take();
        let (left, roots) = {
            let mut members = self.family(space.family).lock();
            if let Some(at) = members.spaces.iter().position(|&member| member == space.asid()) {
                members.spaces.swap_remove(at);
            }
            let left = members.spaces.len();
            let over = left == 0;
            (left, if over { core::mem::take(&mut members.roots) } else { Vec::new() })
        };
        roots.into_iter().for_each(|root| self.roots.give(root));
        if left == 0 {
            self.family_numbers.give(space.family.0 as usize);
        }
        drop(gone);
    }
    /// Records a root of a family: it ends with the last member.
    pub(super) fn note_root(&self, family: FamilyId, root: RootId) {
        self.family(family).lock().roots.push(root);
    }
    pub(super) fn roots(&self) -> &Arc<Roots<A>> {
        &self.roots
    }
    /// Returns the promised memory, for a new address space.
    pub(super) fn shared_committed(&self) -> Arc<Committed<A>> {
        Arc::clone(&self.committed)
    }
    pub(super) fn committed(&self) -> &Committed<A> {
        &self.committed
    }
    pub(super) fn files(&self) -> &SpinLock<A, FileTable<A>> {
        &self.files
    }
    /// Counts an address space that starts to exit.
    pub(super) fn begin_exit(&self) {
        // Pairs with the load in `exits`: see `Space::exit` (users.rs).
        self.exits.fetch_add(1, AcqRel);
    }
    /// The number of address spaces that have started to exit.
    pub(super) fn exits(&self) -> u32 {
        // Pairs with the add in `begin_exit`: see `Space::exit` (users.rs).
        self.exits.load(Acquire)
    }
    fn running(&self) -> &Inside<Space<A>> {
        self.running.get_or_make(A::current().index(), |_| Inside::nothing())
    }
    /// Runs `run` with the calling task in `space`.
    pub(super) fn run_in<R>(&self, space: &Arc<Space<A>>, run: impl FnOnce() -> R) -> R {
        self.running().enter(space, run)
    }
    /// Moves the calling task, which runs in `old`, to `next`.
    pub(super) fn exec_mmap(&self, old: &Arc<Space<A>>, next: &Arc<Space<A>>) {
        debug_assert!(self.current().is_some_and(|current| current.asid() == old.asid()));
        // SAFETY: the slot is the calling task's own, and `old` is held by the caller.
        drop(unsafe { self.running().replace(next) });
    }
    /// The address space that the calling task runs in, if it is in [`Spaces::run_in`].
    pub fn current(&self) -> Option<&Space<A>> {
        // SAFETY: the slot is the calling task's own, and the reference is used only within a call
        // made by `run`.
        unsafe { self.running().get() }
    }
    /// Visits every address space: for checks, while nothing changes.
    pub fn each(&self, mut see: impl FnMut(&Space<A>)) {
        self.each_shared(|space| see(space));
    }
    /// Visits every address space; some may come and go meanwhile.
    pub(super) fn each_shared(&self, mut see: impl FnMut(&Arc<Space<A>>)) {
        for entry in self.entries.iter_made() {
            let found = entry.lock().clone();
            if let Some(space) = found {
                see(&space);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mapping_is_the_same_after_it_was_a_word() {
        for (family, owner) in [(0, 7), (7, 1), (u32::MAX, Asid::COUNT - 2)] {
            let mapping = Mapping { family: FamilyId(family), owner: Asid::new(owner) };
            assert_eq!(Mapping::of(mapping.word()), mapping);
        }
    }
}
