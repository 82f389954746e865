//! VMAs: their pages, their protection and flags, and which VMAs can be merged.

mod arena;
mod lock;
mod roots;
mod slots;

pub(super) use arena::{Arena, MAX_SLOTS, NUMBER_BITS, number_of};
pub(super) use lock::{VmaLock, VmaReadGuard};
pub(super) use roots::Roots;
pub use roots::{AnonChain, RootId};
pub use slots::{VmaId, VmaLookup, VmaSlots};

use super::{VmaRange, Vpn};
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicU32, AtomicU64};
use mmscale_arch::NodeId;

bitflags::bitflags! {
    /// Access rights of a program to pages.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct Prot: u32 {
        /// Read them. On the modelled machines, writing implies reading.
        const READ = 1 << 0;
        /// Write to them.
        const WRITE = 1 << 1;
        /// Execute them. Programs do not, so it only keeps VMAs apart.
        const EXEC = 1 << 2;
    }
}

impl Prot {
    /// Reading and writing.
    pub const RW: Self = Self::READ.union(Self::WRITE);
    /// Reading and execution.
    pub const RX: Self = Self::READ.union(Self::EXEC);
    /// No access.
    pub const NONE: Self = Self::empty();

    /// Whether any access is allowed.
    #[inline]
    pub const fn is_readable(self) -> bool {
        !self.is_empty()
    }
    /// Whether writing is allowed.
    #[inline]
    pub const fn is_writable(self) -> bool {
        self.contains(Self::WRITE)
    }
}

bitflags::bitflags! {
    /// Flags of a VMA (`vm_flags`).
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct VmaFlags: u32 {
        /// Its pages stay in memory (`VM_LOCKED`).
        const LOCKED = 1 << 0;
        /// Pages are locked when they are touched (`VM_LOCKONFAULT`).
        const LOCK_ON_FAULT = 1 << 1;
        /// Huge pages are used where they fit (`MADV_HUGEPAGE`).
        const HUGE = 1 << 2;
        /// No huge pages are used (`MADV_NOHUGEPAGE`).
        const NO_HUGE = 1 << 3;
        /// fork does not copy it (`MADV_DONTFORK`).
        const DONT_FORK = 1 << 4;
        /// fork gives the child zero pages (`MADV_WIPEONFORK`).
        const WIPE_ON_FORK = 1 << 5;
        /// It maps a file, and writes go to the file (`MAP_SHARED`).
        const SHARED = 1 << 6;
        /// Pages are read in random order (`VM_RAND_READ`).
        const RANDOM_READ = 1 << 7;
        /// Pages are read in ascending order (`VM_SEQ_READ`).
        const SEQUENTIAL_READ = 1 << 8;
        /// Pages with equal content may be merged (`VM_MERGEABLE`). No task merges pages here, as
        /// in Linux while KSM is not started.
        const MERGEABLE = 1 << 9;
        /// A core dump leaves it out (`VM_DONTDUMP`).
        const DONT_DUMP = 1 << 10;
    }
}

/// A file, by number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileId(u32);

impl FileId {
    pub(super) const fn new(index: usize) -> Self {
        Self(index as u32)
    }
    /// Returns the number, for indexing.
    pub(super) const fn index(self) -> usize {
        self.0 as usize
    }
    /// Returns the number plus 1 as a word; 0 for none.
    pub(super) const fn to_word(id: Option<Self>) -> u32 {
        match id {
            Some(id) => id.0 + 1,
            None => 0,
        }
    }
    pub(super) const fn from_word(word: u32) -> Option<Self> {
        match word.checked_sub(1) {
            Some(id) => Some(Self(id)),
            None => None,
        }
    }
}

/// One of the trees that have the VMAs of a file.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct TreeId(u16);

impl TreeId {
    pub(super) const fn new(index: usize) -> Self {
        Self(index as u16)
    }
    /// Returns the number, for indexing.
    pub(super) const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Which page of which file a VMA's pages map. Parts of a VMA have equal values, and so have two
/// VMAs that map adjacent parts of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileMap {
    /// The file.
    pub id: FileId,
    /// The page that would map the file's first page.
    pub(super) base: u64,
    /// The tree of the reverse map that the VMA is in.
    pub(super) tree: TreeId,
}

impl FileMap {
    /// Maps the file's page `index` at `page`, in the first tree.
    pub(super) const fn new(id: FileId, index: u64, page: Vpn) -> Self {
        Self { id, base: page.get().wrapping_sub(index), tree: TreeId::new(0) }
    }
    /// Whether both map the same pages of the same file, in any tree.
    fn is_alike(self, other: Self) -> bool {
        (self.id, self.base) == (other.id, other.base)
    }
    /// The file's page at `page`.
    pub const fn index_of(self, page: Vpn) -> u64 {
        page.get().wrapping_sub(self.base)
    }
    /// Returns the value for pages that mremap has moved.
    pub(super) const fn moved(self, from: Vpn, to: Vpn) -> Self {
        Self { tree: self.tree, ..Self::new(self.id, self.index_of(from), to) }
    }
}

/// A VMA.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Vma {
    /// Its pages.
    pub range: VmaRange,
    /// Its protection.
    pub prot: Prot,
    /// Its flags.
    pub flags: VmaFlags,
    /// The folio index of its first page (`vm_pgoff`): the page's number when it was first mapped.
    /// mremap does not change it.
    pub origin: u64,
    /// The node that new pages come from, if mbind has set one.
    pub node: Option<NodeId>,
    /// The file that it maps; `None`: anonymous memory.
    pub file: Option<FileMap>,
    /// Where its anonymous pages are in the reverse map, after a fork.
    pub anon: Option<AnonChain>,
}

impl Vma {
    /// Whether its pages count as promised memory: they are its own, and may be written
    /// (`VM_ACCOUNT`).
    #[inline]
    pub const fn is_promised(&self) -> bool {
        !self.flags.contains(VmaFlags::SHARED) && self.prot.contains(Prot::WRITE)
    }
    /// The folio index of `page`.
    #[inline]
    pub const fn index_of(&self, page: Vpn) -> u64 {
        page.get().wrapping_sub(self.range.start().get()).wrapping_add(self.origin)
    }
    /// The page whose folio has `index`, if this VMA holds it.
    #[inline]
    pub const fn page_of(&self, index: u64) -> Option<Vpn> {
        let at = index.wrapping_sub(self.origin);
        if at < self.range.pages() { Some(self.range.start().offset(at)) } else { None }
    }
    /// Whether mremap has moved it, so that page numbers differ from folio indices.
    #[inline]
    pub const fn is_moved(&self) -> bool {
        self.range.start().get() != self.origin
    }
    /// The part of it that is `range`, which is inside it.
    pub(super) const fn part(&self, range: VmaRange) -> Self {
        Self { origin: self.index_of(range.start()), range, ..*self }
    }
    /// Whether protection, flags, node and file are equal.
    pub(super) fn is_alike(&self, other: &Self) -> bool {
        (self.prot, self.flags, self.node) == (other.prot, other.flags, other.node)
            && match (self.file, other.file) {
                (Some(own), Some(other)) => own.is_alike(other),
                (own, other) => own.is_none() && other.is_none(),
            }
    }
    /// Whether it can be merged with `next`, which starts where this one ends.
    pub(super) fn joins(&self, next: &Self) -> bool {
        self.range.end() == next.range.start()
            && self.is_alike(next)
            && self.index_of(self.range.end()) == next.origin
    }
}

/// A change of a VMA that is in the reverse map.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Link {
    /// It is new.
    New,
    /// Its ends have changed.
    Again,
    /// It was split in two.
    Split,
    /// It has the pages of the VMA after it, this one, which is gone.
    Join(Vma),
}

const NO_NODE: u32 = u32::MAX;

/// A [`Vma`] as page faults read it. It is written with mmap_lock and the VMA's own lock held for
/// writing, and read with either held. The fields are relaxed atomics: those locks order them.
#[derive(Default)]
pub(super) struct VmaCell {
    start: AtomicU64,
    end: AtomicU64,
    origin: AtomicU64,
    prot: AtomicU32,
    flags: AtomicU32,
    node: AtomicU32,
    file: AtomicU32,
    tree: AtomicU32,
    base: AtomicU64,
    anon: AtomicU64,
}

impl VmaCell {
    fn tree(&self) -> TreeId {
        TreeId::new(self.tree.load(Relaxed) as usize)
    }
    pub(super) fn get(&self) -> Vma {
        let node = self.node.load(Relaxed);
        Vma {
            range: VmaRange::raw(self.start.load(Relaxed), self.end.load(Relaxed)),
            prot: Prot::from_bits_truncate(self.prot.load(Relaxed)),
            flags: VmaFlags::from_bits_truncate(self.flags.load(Relaxed)),
            origin: self.origin.load(Relaxed),
            node: (node != NO_NODE).then(|| NodeId::new(node as usize)),
            file: FileId::from_word(self.file.load(Relaxed)).map(|id| FileMap {
                id,
                base: self.base.load(Relaxed),
                tree: self.tree(),
            }),
            anon: AnonChain::from_word(self.anon.load(Relaxed)),
        }
    }
    pub(super) fn set(&self, vma: &Vma) {
        self.start.store(vma.range.start().get(), Relaxed);
        self.end.store(vma.range.end().get(), Relaxed);
        self.origin.store(vma.origin, Relaxed);
        self.prot.store(vma.prot.bits(), Relaxed);
        self.flags.store(vma.flags.bits(), Relaxed);
        self.file.store(FileId::to_word(vma.file.map(|map| map.id)), Relaxed);
        self.tree.store(vma.file.map_or(0, |map| map.tree.index() as u32), Relaxed);
        self.base.store(vma.file.map_or(0, |map| map.base), Relaxed);
        self.anon.store(AnonChain::to_word(vma.anon), Relaxed);
        self.node.store(vma.node.map_or(NO_NODE, |node| node.index() as u32), Relaxed);
    }
}
