//! Swap: where anonymous memory goes when its frames are wanted elsewhere.
//!
//! The swap area is slots of a page each. A slot is named by page-table entries that stand for a
//! page that is not there, and by the *swap cache*: the folio that has the slot's content, on its
//! way out or back in. Whoever wants the content looks there first, so no two folios are ever made
//! from one slot, and none is read while it is still being written.
//!
//! | file | what it does |
//! |---|---|
//! | `slots` | clusters of 512 slots, one for each CPU to take from; counts |
//! | `cache` | from slot to folio and back; giving slots up |
//! | `lock` | a folio's lock, waiting for it and for writeback |
//! | `write`, `read` | the way out and the way in |
//! | `verify` | whether it all adds up |
//!
//! A page of zeros need not be written: with [`Zeromap::On`] a bit of the slot says so instead, and
//! reading it is clearing a frame (Linux from 6.12).
//!
//! Left out: readahead, several areas with priorities, folios of more than one page, compressed
//! memory in front of a device (zswap), discarding freed blocks, reading past the cache. Reading
//! waits for one page at a time. Linux writes many pages behind one doorbell (`swap_iocb`,
//! plugging); here each is a request of its own.
//!
//! Lock order: [`LockClass`]. A folio's lock is a sleeping lock; under page-table locks it is
//! tried, not waited for. A cluster's lock and the list's lock are never held together, and never
//! taken in interrupts.

mod cache;
mod entry;
mod lock;
mod read;
mod slots;
mod verify;
mod write;

pub use entry::SwapEntry;
pub use read::SwapError;
pub use verify::{SwapAudit, SwapViolation};
pub use write::WriteOut;

use alloc::boxed::Box;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::Relaxed;
use mmscale_arch::counters::Counters;
use mmscale_arch::sync::{EachCpu, Sparse, SpinLock, WaitQueue};
use mmscale_arch::{Atomic, LockClass, Machine};
use slots::{Cluster, Lists, NO_CLUSTER, SLOTS, Slot};
use write::{ROOMS, Room};

/// Queues in which waiters for folios stand; a folio's is found by its number.
const QUEUES: usize = 256;

/// Whether pages of zeros are remembered instead of written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Zeromap {
    /// They are written like others (Linux before 6.12).
    Off,
    /// A bit of their slot is set.
    #[default]
    On,
}

/// What the slots are on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SwapDevice {
    /// A block device, which works by itself and interrupts when it is done.
    #[default]
    Block,
    /// Compressed memory (zram): whoever writes a page compresses it, whoever reads it unpacks it,
    /// and is done with that (`SWP_SYNCHRONOUS_IO`). A page that was written is clean, so reclaim
    /// frees its frame at once; with a slot its compressed page goes.
    ///
    /// The memory for compressed pages is beside that of the zones.
    Compressed,
}

/// What swap is made from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SwapConfig {
    /// Slots, of a page each; 0: there is no swap.
    pub pages: u32,
    /// What happens to pages of zeros.
    pub zeromap: Zeromap,
    /// Where pages go.
    pub device: SwapDevice,
}

/// There is no free slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SwapFull;

impl core::fmt::Display for SwapFull {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("taking a swap slot: none is free")
    }
}

impl core::error::Error for SwapFull {}

mmscale_arch::counters! {
    /// How often things happened, over all CPUs; exact while nothing runs.
    pub struct SwapCounters from CpuSwap {
        /// Pages handed to the device to write.
        writes: Sum,
        /// Pages handed to the device to read.
        reads: Sum,
        /// Pages of zeros that were not written.
        zero_writes: Sum,
        /// Pages of zeros that were made instead of read.
        zero_reads: Sum,
        /// Writes that failed.
        write_errors: Sum,
        /// Reads that failed.
        read_errors: Sum,
        /// Looks into the cache that found a folio.
        cache_hits: Sum,
    }
}

/// The swap area and its cache.
pub struct Swap<A: Machine> {
    config: SwapConfig,
    slots: Sparse<Slot<A>>,
    clusters: Box<[SpinLock<A, Cluster>]>,
    lists: SpinLock<A, Lists>,
    /// The cluster that each CPU takes from. Used by its CPU only, with preemption off, or after
    /// the CPU has died.
    own: EachCpu<AtomicU32>,
    /// Where the search for slots that only the cache knows goes on.
    pruned: A::AtomicU32,
    /// Slots that nobody has been promised.
    free: A::AtomicI64,
    queues: Box<[WaitQueue<A>]>,
    /// Tasks that wait for room in the device's queue, by CPU.
    rooms: Box<[Room<A>]>,
    counters: Counters<A, CpuSwap>,
}

impl<A: Machine> Swap<A> {
    /// A swap area of which nothing is used.
    pub fn new(config: SwapConfig) -> Self {
        let slots = config.pages as usize;
        let clusters = slots.div_ceil(SLOTS);
        let cluster = |at: usize| Cluster::new((slots - at * SLOTS).min(SLOTS));
        let queues = if slots == 0 { 1 } else { QUEUES };
        Self {
            config,
            slots: Sparse::new(slots),
            clusters: (0..clusters).map(|at| SpinLock::new(LockClass::Swap, cluster(at))).collect(),
            lists: SpinLock::new(LockClass::Swap, Lists::all_free(clusters)),
            own: EachCpu::new::<A>(|_| AtomicU32::new(NO_CLUSTER)),
            pruned: A::AtomicU32::new(0),
            free: A::AtomicI64::new(slots as i64),
            queues: (0..queues).map(|_| WaitQueue::new()).collect(),
            rooms: (0..ROOMS).map(|_| Room::new()).collect(),
            counters: Counters::default(),
        }
    }
    /// What it was made from.
    pub fn config(&self) -> SwapConfig {
        self.config
    }
    /// Whether there is any swap.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.config.pages > 0
    }
    /// Slots that are free now.
    pub fn free_slots(&self) -> u64 {
        self.free.load(Relaxed).max(0) as u64
    }
    /// Whether more than half of the slots are used: slots whose content is in memory too are
    /// better given back then (`vm_swap_full`).
    pub fn is_half_full(&self) -> bool {
        self.free_slots() * 2 < u64::from(self.config.pages)
    }
    /// How often things have happened.
    pub fn counters(&self) -> SwapCounters {
        self.counters.all()
    }
    /// The counters of the calling CPU.
    #[inline]
    fn tally(&self) -> &CpuSwap {
        self.counters.here()
    }
}
