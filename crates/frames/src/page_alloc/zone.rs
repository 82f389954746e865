//! A zone: a stretch of frames of one node, with its buddy allocator and its page caches.

use super::PcpPolicy;
use crate::blockmap::BlockMap;
use crate::pcp::{Pcp, Pressure};
use crate::zone::{Buddy, Owners, Watermarks, ZoneId, ZoneKind};
use core::sync::atomic::Ordering;
use mmscale_arch::sync::{EachCpu, SpinLock};
use mmscale_arch::{Atomic, Cpu, LockClass, NodeId, Pfn};

/// The zone has fewer free pages than its high watermark: page caches must not grow.
pub(super) const BELOW_HIGH: u32 = 1;
/// Reclaim is at work in the zone: page caches stay small.
pub(super) const RECLAIM_ACTIVE: u32 = 2;

/// A pageblock of the zone is isolated: a page that comes back may be of it.
pub(super) const ISOLATING: u32 = 4;

/// A zone.
pub struct Zone<A: Cpu> {
    pub(super) id: ZoneId,
    pub(super) node: NodeId,
    pub(super) kind: ZoneKind,
    pub(super) start: Pfn,
    /// The frames in it, all of which the buddy allocator manages.
    pub(super) pages: u32,
    pub(super) marks: Watermarks,
    /// By the best kind that an allocation accepts: pages kept from it.
    pub(super) reserve: [u32; ZoneKind::COUNT],
    /// `BELOW_HIGH`, `RECLAIM_ACTIVE`, `ISOLATING`.
    pub(super) flags: A::AtomicU32,
    /// Pages of pageblocks that are offline. Written under the zone lock.
    pub(super) offline: A::AtomicU32,
    /// Who owns which pageblock, if pageblocks have owners.
    pub(super) owners: Owners<A>,
    /// Taken with interrupts off, inside a page cache's lock or alone.
    pub(super) buddy: SpinLock<A, Buddy<A>>,
    /// The free pages, with the policy `blockmap`; the buddy allocator and the page caches are
    /// empty then.
    pub(super) blocks: Option<BlockMap<A>>,
    /// Pages by which one CPU's account of `blocks` may lag.
    pub(super) lag_pages: u32,
    /// The page caches. Allocation and freeing only try their locks, so that an interrupt never
    /// waits for one; inside, the buddy lock may be taken.
    pub(super) pcps: EachCpu<SpinLock<A, Pcp>>,
}

impl<A: Cpu> Zone<A> {
    pub(super) fn new(
        (id, node, kind): (ZoneId, NodeId, ZoneKind),
        (start, pages): (Pfn, u32),
        (marks, reserve): (Watermarks, [u32; ZoneKind::COUNT]),
        (mut buddy, blocks): (Buddy<A>, Option<BlockMap<A>>),
        policy: PcpPolicy,
        mut pcp: impl FnMut() -> Pcp,
    ) -> Self {
        let owners = match policy {
            PcpPolicy::Stock | PcpPolicy::Blockmap => Owners::none(),
            PcpPolicy::Posted => buddy.with_owners(),
        };
        let mut cache = |cpu| match policy {
            PcpPolicy::Stock | PcpPolicy::Blockmap => pcp(),
            PcpPolicy::Posted => pcp().owning(cpu),
        };
        Self {
            id,
            node,
            kind,
            start,
            pages,
            marks,
            reserve,
            flags: A::AtomicU32::new(0),
            offline: A::AtomicU32::new(0),
            owners,
            buddy: SpinLock::new(LockClass::Zone, buddy),
            blocks,
            lag_pages: (marks.low - marks.min) / A::cpus_possible() as u32,
            pcps: EachCpu::new::<A>(|cpu| SpinLock::new(LockClass::Pcp, cache(cpu))),
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
    /// The number of its frames, those that are offline included.
    pub fn pages(&self) -> u32 {
        self.pages
    }
    /// The number of its frames that are not offline.
    pub fn managed_pages(&self) -> u32 {
        self.pages - self.offline.load(Ordering::Relaxed)
    }
    /// Its watermarks: those that it started with, also when pageblocks have gone offline.
    pub fn watermarks(&self) -> Watermarks {
        self.marks
    }
    /// How short of memory it is.
    #[inline]
    pub fn pressure(&self) -> Pressure {
        pressure_of(self.flags.glance(Ordering::Relaxed))
    }
    /// How short of memory it is, and whether a pageblock of it is isolated.
    #[inline]
    pub(super) fn condition(&self) -> (Pressure, bool) {
        let flags = self.flags.glance(Ordering::Relaxed);
        (pressure_of(flags), flags & ISOLATING != 0)
    }
    /// Bytes that are kept about it beside the records of its frames; a byte for each of its
    /// `pageblocks`, and four more where CPUs own them, and their lists for each CPU.
    pub(super) fn metadata_bytes(&self, pageblocks: usize) -> u64 {
        let owners = if self.owners.exist() { 4 * pageblocks } else { 0 };
        (size_of::<Self>() + pageblocks + owners) as u64 + self.cpu_metadata_bytes()
    }
    /// Of these, what is kept for CPUs.
    pub(super) fn cpu_metadata_bytes(&self) -> u64 {
        let lists = if self.owners.exist() { Pcp::OWNED_BYTES + 4 } else { 0 };
        (self.pcps.bytes() + A::cpus_possible() * lists) as u64
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

#[inline]
fn pressure_of(flags: u32) -> Pressure {
    Pressure { below_high: flags & BELOW_HIGH != 0, reclaim_active: flags & RECLAIM_ACTIVE != 0 }
}
