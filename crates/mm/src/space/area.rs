//! What is said of a VMA: its pages, what a program may do with them, and which VMAs are one.

use super::{VmaRange, Vpn};
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicU32, AtomicU64};
use mmscale_arch::NodeId;

bitflags::bitflags! {
    /// What a program may do with pages.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct Prot: u32 {
        /// Read them. On the machines modelled, writing implies it.
        const READ = 1 << 0;
        /// Write to them.
        const WRITE = 1 << 1;
    }
}

impl Prot {
    /// Reading and writing.
    pub const RW: Self = Self::READ.union(Self::WRITE);
    /// Nothing.
    pub const NONE: Self = Self::empty();

    /// Whether any access is allowed.
    #[inline]
    pub const fn is_readable(self) -> bool {
        !self.is_empty()
    }
    /// Whether writing is.
    #[inline]
    pub const fn is_writable(self) -> bool {
        self.contains(Self::WRITE)
    }
}

bitflags::bitflags! {
    /// What else holds of a VMA.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct AreaFlags: u32 {
        /// Its pages stay in memory (`VM_LOCKED`).
        const LOCKED = 1 << 0;
        /// Only pages that are touched are locked (`VM_LOCKONFAULT`).
        const LOCK_ON_FAULT = 1 << 1;
        /// Huge pages where they fit (`MADV_HUGEPAGE`).
        const HUGE = 1 << 2;
        /// No huge pages (`MADV_NOHUGEPAGE`).
        const NO_HUGE = 1 << 3;
        /// A fork does not copy it (`MADV_DONTFORK`).
        const DONT_FORK = 1 << 4;
        /// A fork gives the child an empty one (`MADV_WIPEONFORK`).
        const WIPE_ON_FORK = 1 << 5;
        /// Of a file, and writes go to the file (`MAP_SHARED`).
        const SHARED = 1 << 6;
    }
}

/// A file, by number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileId(u32);

impl FileId {
    pub(super) const fn new(index: usize) -> Self {
        Self(index as u32)
    }
    /// The number, for indexing.
    pub(super) const fn index(self) -> usize {
        self.0 as usize
    }
    /// The number as a word that is not 0, and back.
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

/// Which page of which file stands behind the pages of a VMA. Parts of a VMA, and VMAs that meet
/// within a file, have the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileMap {
    /// The file.
    pub id: FileId,
    /// The number of the page that stands for the file's first, wherever that would be.
    pub(super) base: u64,
}

impl FileMap {
    /// The file's page `index` stands at `page`.
    pub(super) const fn new(id: FileId, index: u64, page: Vpn) -> Self {
        Self { id, base: page.get().wrapping_sub(index) }
    }
    /// The file's page for `page`.
    pub const fn index_of(self, page: Vpn) -> u64 {
        page.get().wrapping_sub(self.base)
    }
    /// The same for pages that have been moved.
    pub(super) const fn moved(self, from: Vpn, to: Vpn) -> Self {
        Self::new(self.id, self.index_of(from), to)
    }
}

/// A VMA.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Area {
    /// Its pages.
    pub range: VmaRange,
    /// What its program may do.
    pub prot: Prot,
    /// What else holds.
    pub flags: AreaFlags,
    /// The index that the folio of its first page has (`vm_pgoff`): the page's number when it was
    /// first mapped, wherever mremap has moved it since.
    pub origin: u64,
    /// Where new pages come from, if mbind has said so.
    pub node: Option<NodeId>,
    /// What stands behind pages that the program has not to itself; `None`: zeros.
    pub file: Option<FileMap>,
}

impl Area {
    /// The folio index of `page`.
    #[inline]
    pub const fn index_of(&self, page: Vpn) -> u64 {
        page.get().wrapping_sub(self.range.start().get()).wrapping_add(self.origin)
    }
    /// The page whose folio has `index`, if it is one of these.
    #[inline]
    pub const fn page_of(&self, index: u64) -> Option<Vpn> {
        let at = index.wrapping_sub(self.origin);
        if at < self.range.pages() { Some(self.range.start().offset(at)) } else { None }
    }
    /// Whether mremap has moved it from where its folios' indices say.
    #[inline]
    pub const fn is_moved(&self) -> bool {
        self.range.start().get() != self.origin
    }
    /// The part of it from `range` on, which is inside it.
    pub(super) const fn part(&self, range: VmaRange) -> Self {
        Self { origin: self.index_of(range.start()), range, ..*self }
    }
    /// Whether the same is said of both.
    pub(super) fn is_alike(&self, other: &Self) -> bool {
        (self.prot, self.flags, self.node) == (other.prot, other.flags, other.node)
            && self.file == other.file
    }
    /// Whether `next`, which starts where this ends, may be one VMA with it.
    pub(super) fn joins(&self, next: &Self) -> bool {
        self.range.end() == next.range.start()
            && self.is_alike(next)
            && self.index_of(self.range.end()) == next.origin
    }
}

const NO_NODE: u32 = u32::MAX;

/// An [`Area`] where page faults read it: it changes only under mmap_lock and the VMA's own lock,
/// both held for writing, and is read under either.
#[derive(Default)]
pub(super) struct AreaCell {
    start: AtomicU64,
    end: AtomicU64,
    origin: AtomicU64,
    prot: AtomicU32,
    flags: AtomicU32,
    node: AtomicU32,
    file: AtomicU32,
    base: AtomicU64,
}

impl AreaCell {
    pub(super) fn get(&self) -> Area {
        let node = self.node.load(Relaxed);
        Area {
            range: VmaRange::raw(self.start.load(Relaxed), self.end.load(Relaxed)),
            prot: Prot::from_bits_truncate(self.prot.load(Relaxed)),
            flags: AreaFlags::from_bits_truncate(self.flags.load(Relaxed)),
            origin: self.origin.load(Relaxed),
            node: (node != NO_NODE).then(|| NodeId::new(node as usize)),
            file: FileId::from_word(self.file.load(Relaxed))
                .map(|id| FileMap { id, base: self.base.load(Relaxed) }),
        }
    }
    pub(super) fn set(&self, area: &Area) {
        self.start.store(area.range.start().get(), Relaxed);
        self.end.store(area.range.end().get(), Relaxed);
        self.origin.store(area.origin, Relaxed);
        self.prot.store(area.prot.bits(), Relaxed);
        self.flags.store(area.flags.bits(), Relaxed);
        self.file.store(FileId::to_word(area.file.map(|map| map.id)), Relaxed);
        self.base.store(area.file.map_or(0, |map| map.base), Relaxed);
        self.node.store(area.node.map_or(NO_NODE, |node| node.index() as u32), Relaxed);
    }
}
