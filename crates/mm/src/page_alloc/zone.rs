//! A zone: a stretch of frames of one node, with its buddy allocator and its page caches.

use crate::arch::{Arch, Atomic, LockClass, NodeId, Pfn};
use crate::pcp::{Pcp, Pressure};
use crate::sync::{EachCpu, SpinLock};
use crate::zone::{Buddy, Watermarks, ZoneId, ZoneKind};
use core::sync::atomic::Ordering;

/// The zone has fewer free pages than its high watermark: page caches must not grow.
pub(super) const BELOW_HIGH: u32 = 1;
/// Reclaim is at work in the zone: page caches stay small.
pub(super) const RECLAIM_ACTIVE: u32 = 2;

/// A zone.
pub struct Zone<A: Arch> {
    pub(super) id: ZoneId,
    pub(super) node: NodeId,
    pub(super) kind: ZoneKind,
    pub(super) start: Pfn,
    /// The frames in it, all of which the buddy allocator manages.
    pub(super) pages: u32,
    pub(super) marks: Watermarks,
    /// By the best kind that an allocation accepts: pages kept from it.
    pub(super) reserve: [u32; ZoneKind::COUNT],
    /// `BELOW_HIGH`, `RECLAIM_ACTIVE`.
    pub(super) flags: A::AtomicU32,
    /// Taken with interrupts off, inside a page cache's lock or alone.
    pub(super) buddy: SpinLock<A, Buddy<A>>,
    /// The page caches. Allocation and freeing only try their locks, so that an interrupt never
    /// waits for one; inside, the buddy lock may be taken.
    pub(super) pcps: EachCpu<SpinLock<A, Pcp>>,
}

impl<A: Arch> Zone<A> {
    pub(super) fn new(
        (id, node, kind): (ZoneId, NodeId, ZoneKind),
        (start, pages): (Pfn, u32),
        (marks, reserve): (Watermarks, [u32; ZoneKind::COUNT]),
        buddy: Buddy<A>,
        mut pcp: impl FnMut() -> Pcp,
    ) -> Self {
        Self {
            id,
            node,
            kind,
            start,
            pages,
            marks,
            reserve,
            flags: A::AtomicU32::new(0),
            buddy: SpinLock::new(LockClass::Zone, buddy),
            pcps: EachCpu::new::<A>(|_| SpinLock::new(LockClass::Pcp, pcp())),
        }
    }
    /// Its number.
    pub fn id(&self) -> ZoneId {
        self.id
    }
    /// The node it belongs to.
    pub fn node(&self) -> NodeId {
        self.node
    }
    /// What its memory can be used for.
    pub fn kind(&self) -> ZoneKind {
        self.kind
    }
    /// Its first frame.
    pub fn start(&self) -> Pfn {
        self.start
    }
    /// The number of its frames.
    pub fn pages(&self) -> u32 {
        self.pages
    }
    /// Its watermarks.
    pub fn watermarks(&self) -> Watermarks {
        self.marks
    }
    /// How short of memory it is.
    #[inline]
    pub fn pressure(&self) -> Pressure {
        let flags = self.flags.load(Ordering::Relaxed);
        Pressure {
            below_high: flags & BELOW_HIGH != 0,
            reclaim_active: flags & RECLAIM_ACTIVE != 0,
        }
    }
    /// Bytes that are kept about it beside the records of its frames; a byte for each of its
    /// `pageblocks`.
    pub(super) fn metadata_bytes(&self, pageblocks: usize) -> u64 {
        (size_of::<Self>() + self.pcps.bytes() + pageblocks) as u64
    }
    /// Sets or clears a flag.
    pub(super) fn put(&self, flag: u32, on: bool) {
        if on {
            self.flags.fetch_or(flag, Ordering::Relaxed);
        } else {
            self.flags.fetch_and(!flag, Ordering::Relaxed);
        }
    }
}
