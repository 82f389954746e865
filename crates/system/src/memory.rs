//! Arguments of the system calls on memory.

use crate::Fd;

/// Bytes of a page.
pub const PAGE_BYTES: u64 = 4096;
/// Bytes of a huge page.
pub const HUGE_BYTES: u64 = 2 << 20;

/// A virtual address of a program.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Addr(pub u64);

impl Addr {
    /// Returns the address `bytes` higher.
    #[must_use]
    pub const fn offset(self, bytes: u64) -> Self {
        Self(self.0.wrapping_add(bytes))
    }
    /// Returns the address `pages` pages higher.
    #[must_use]
    pub const fn page(self, pages: u64) -> Self {
        self.offset(pages * PAGE_BYTES)
    }
}

/// Access that a mapping allows.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Prot {
    /// No access (`PROT_NONE`).
    None,
    /// Read access (`PROT_READ`).
    Read,
    /// Read access and execution (`PROT_READ | PROT_EXEC`).
    ReadExec,
    /// Read and write access (`PROT_READ | PROT_WRITE`).
    ReadWrite,
}

/// The address of a new mapping.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// Any free range.
    Any,
    /// This address if the range is free, any free range otherwise.
    Hint(Addr),
    /// This address; existing mappings there are replaced (`MAP_FIXED`).
    Fixed(Addr),
    /// This address; fails if the range is already mapped (`MAP_FIXED_NOREPLACE`).
    Free(Addr),
}

/// When the pages of a mapping are allocated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Populate {
    /// On first access.
    OnTouch,
    /// Before mmap returns (`MAP_POPULATE`), as far as there is memory.
    Now,
    /// Before mmap returns, and the pages are locked in memory (`MAP_LOCKED`).
    Locked,
}

/// Where the content of a file is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Backing {
    /// In memory only (`memfd_create`).
    Memory,
    /// On a disk: pages are read when they are needed, and can be dropped from memory.
    Disk,
}

/// Advice about a part of a file.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum FileAdvice {
    /// Read it (`POSIX_FADV_WILLNEED`).
    WillNeed,
    /// Drop its pages that are clean, not mapped and not locked (`POSIX_FADV_DONTNEED`).
    DontNeed,
}

/// Visibility of writes to a mapping of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Share {
    /// Visible to the process only (`MAP_PRIVATE`).
    Private,
    /// Visible to all processes that map the file (`MAP_SHARED`).
    Shared,
}

/// A part of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FilePart {
    /// The descriptor of the file.
    pub fd: Fd,
    /// Offset of the part in the file, in bytes; page-aligned.
    pub offset: u64,
    /// Visibility of writes.
    pub share: Share,
}

/// Arguments of mmap: private anonymous memory, or a part of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MapSpec {
    /// The address of the mapping.
    pub place: Place,
    /// Length in bytes; rounded up to pages.
    pub bytes: u64,
    /// Access that the mapping allows.
    pub prot: Prot,
    /// When pages are allocated.
    pub populate: Populate,
    /// The part of a file to map; `None` for anonymous memory.
    pub file: Option<FilePart>,
}

impl MapSpec {
    /// Anonymous memory of `bytes` bytes: readable and writable, at any address, populated on
    /// access.
    pub const fn new(bytes: u64) -> Self {
        Self {
            place: Place::Any,
            bytes,
            prot: Prot::ReadWrite,
            populate: Populate::OnTouch,
            file: None,
        }
    }
    /// Anonymous memory of `bytes` bytes that is populated before mmap returns.
    pub const fn populated(bytes: u64) -> Self {
        Self { populate: Populate::Now, ..Self::new(bytes) }
    }
    /// Maps a part of a file instead.
    #[must_use]
    pub const fn of(self, fd: Fd, offset: u64, share: Share) -> Self {
        Self { file: Some(FilePart { fd, offset, share }), ..self }
    }
    /// Sets the address.
    #[must_use]
    pub const fn at(self, place: Place) -> Self {
        Self { place, ..self }
    }
    /// Sets the protection.
    #[must_use]
    pub const fn prot(self, prot: Prot) -> Self {
        Self { prot, ..self }
    }
}

/// Where mremap may move a mapping.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MayMove {
    /// Not at all; the mapping can only be resized in place.
    No,
    /// To any free range (`MREMAP_MAYMOVE`).
    Anywhere,
    /// To this address; existing mappings there are replaced (`MREMAP_FIXED`).
    To(Addr),
    /// To any free range; the old range stays mapped, without pages (`MREMAP_DONTUNMAP`).
    Leave,
}

/// Advice on the use of pages (`madvise`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Advice {
    /// `MADV_DONTNEED`.
    DontNeed,
    /// `MADV_FREE`.
    Free,
    /// `MADV_COLD`.
    Cold,
    /// `MADV_PAGEOUT`.
    PageOut,
    /// `MADV_POPULATE_READ`.
    PopulateRead,
    /// `MADV_POPULATE_WRITE`.
    PopulateWrite,
    /// `MADV_WILLNEED`.
    WillNeed,
    /// `MADV_COLLAPSE`.
    Collapse,
    /// `MADV_HUGEPAGE`.
    HugePage,
    /// `MADV_NOHUGEPAGE`.
    NoHugePage,
    /// `MADV_DONTFORK`.
    DontFork,
    /// `MADV_DOFORK`.
    DoFork,
    /// `MADV_WIPEONFORK`.
    WipeOnFork,
    /// `MADV_KEEPONFORK`.
    KeepOnFork,
    /// `MADV_NORMAL`.
    Normal,
    /// `MADV_RANDOM`.
    Random,
    /// `MADV_SEQUENTIAL`.
    Sequential,
    /// `MADV_MERGEABLE`; refused by a kernel that was built without KSM.
    Mergeable,
    /// `MADV_UNMERGEABLE`; refused by a kernel that was built without KSM.
    Unmergeable,
    /// `MADV_DONTDUMP`.
    DontDump,
    /// `MADV_DODUMP`.
    DoDump,
}

impl Advice {
    /// All variants.
    pub const ALL: [Self; 21] = [
        Self::DontNeed,
        Self::Free,
        Self::Cold,
        Self::PageOut,
        Self::PopulateRead,
        Self::PopulateWrite,
        Self::WillNeed,
        Self::Collapse,
        Self::HugePage,
        Self::NoHugePage,
        Self::DontFork,
        Self::DoFork,
        Self::WipeOnFork,
        Self::KeepOnFork,
        Self::Normal,
        Self::Random,
        Self::Sequential,
        Self::Mergeable,
        Self::Unmergeable,
        Self::DontDump,
        Self::DoDump,
    ];
}

/// Which pages mlock locks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LockWhat {
    /// All pages of the range, populated immediately.
    Everything,
    /// Present pages, and others on first access (`MLOCK_ONFAULT`).
    OnFault,
}

/// Treatment of pages on other nodes by mbind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Present {
    /// They stay.
    Stay,
    /// They are moved where possible (`MPOL_MF_MOVE`).
    Move,
    /// They are moved; the call fails if one cannot be moved (`MPOL_MF_MOVE | MPOL_MF_STRICT`).
    MoveAll,
}
