//! What programs say about memory.

use crate::Fd;

/// Bytes of a page.
pub const PAGE_BYTES: u64 = 4096;
/// Bytes of a huge page.
pub const HUGE_BYTES: u64 = 2 << 20;

/// A virtual address of a program.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Addr(pub u64);

impl Addr {
    /// The address `bytes` further on.
    #[must_use]
    pub const fn offset(self, bytes: u64) -> Self {
        Self(self.0.wrapping_add(bytes))
    }
    /// The address of the page `pages` further on.
    #[must_use]
    pub const fn page(self, pages: u64) -> Self {
        self.offset(pages * PAGE_BYTES)
    }
}

/// What a program may do with its pages.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Prot {
    /// Nothing (`PROT_NONE`).
    None,
    /// Read (`PROT_READ`).
    Read,
    /// Read and write (`PROT_READ | PROT_WRITE`).
    ReadWrite,
}

/// Where a mapping goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// Anywhere.
    Any,
    /// There if nothing is there, anywhere otherwise.
    Hint(Addr),
    /// There, in place of whatever is there (`MAP_FIXED`).
    Fixed(Addr),
    /// There, if nothing is there (`MAP_FIXED_NOREPLACE`).
    Free(Addr),
}

/// When the pages of a mapping come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Populate {
    /// When they are touched.
    OnTouch,
    /// Before mmap returns (`MAP_POPULATE`), as far as there is memory.
    Now,
    /// The same, and they stay in memory (`MAP_LOCKED`).
    Locked,
}

/// Who sees what is written to a mapping of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Share {
    /// The process alone (`MAP_PRIVATE`).
    Private,
    /// All who map the file (`MAP_SHARED`).
    Shared,
}

/// A part of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FilePart {
    /// The file.
    pub fd: Fd,
    /// Where the part begins in it, in bytes: at a page.
    pub offset: u64,
    /// Who sees what is written.
    pub share: Share,
}

/// What is asked of mmap: anonymous memory, which is private, or a part of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MapSpec {
    /// Where.
    pub place: Place,
    /// How much; a part of a page counts as a page.
    pub bytes: u64,
    /// What for.
    pub prot: Prot,
    /// When.
    pub populate: Populate,
    /// Of which file; `None`: anonymous memory.
    pub file: Option<FilePart>,
}

impl MapSpec {
    /// Memory for reading and writing, anywhere, whose pages come when they are touched.
    pub const fn new(bytes: u64) -> Self {
        Self {
            place: Place::Any,
            bytes,
            prot: Prot::ReadWrite,
            populate: Populate::OnTouch,
            file: None,
        }
    }
    /// The same with its pages.
    pub const fn populated(bytes: u64) -> Self {
        Self { populate: Populate::Now, ..Self::new(bytes) }
    }
    /// Of a file.
    #[must_use]
    pub const fn of(self, fd: Fd, offset: u64, share: Share) -> Self {
        Self { file: Some(FilePart { fd, offset, share }), ..self }
    }
    /// At `place`.
    #[must_use]
    pub const fn at(self, place: Place) -> Self {
        Self { place, ..self }
    }
    /// For `prot`.
    #[must_use]
    pub const fn prot(self, prot: Prot) -> Self {
        Self { prot, ..self }
    }
}

/// Where mremap may put pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MayMove {
    /// Where they are.
    No,
    /// Anywhere (`MREMAP_MAYMOVE`).
    Anywhere,
    /// There, in place of whatever is there (`MREMAP_FIXED`).
    To(Addr),
    /// Anywhere; the old range stays mapped, and is empty (`MREMAP_DONTUNMAP`).
    Leave,
}

/// What a program says of its pages (`madvise`).
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
}

impl Advice {
    /// All advice that there is.
    pub const ALL: [Self; 14] = [
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
    ];
}

/// Which pages mlock locks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LockWhat {
    /// All of the range, now.
    Everything,
    /// Those that are there, and others when they are touched (`MLOCK_ONFAULT`).
    OnFault,
}

/// What mbind does with pages that are elsewhere.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Present {
    /// They stay.
    Stay,
    /// They are moved, as far as that goes (`MPOL_MF_MOVE`).
    Move,
    /// They are moved; the call fails if one is not (`MPOL_MF_MOVE | MPOL_MF_STRICT`).
    MoveAll,
}
