//! Swap: moving anonymous memory to a device when its frames are needed.
//!
//! The swap area is divided into slots of a page each. A slot is named by page-table entries of
//! pages that are not in memory, and by the *swap cache*: the folio that has the slot's content
//! while it is written or read. A task that needs the content looks in the cache first, so that
//! there is never a second folio of one slot, and no slot is read while it is being written.
//!
//! | file | contents |
//! |---|---|
//! | `slots` | clusters of 512 slots, one for each CPU to allocate from; counts |
//! | `cache` | from slot to folio and back; freeing slots |
//! | `lock` | a folio's lock, waiting for it and for writeback |
//! | `write`, `read` | writing folios out, reading slots in |
//! | `zram` | the compressed pages of a device in memory |
//! | `verify` | consistency checks |
//!
//! A page of zeros need not be written: with [`Zeromap::On`] a bit of the slot is set instead, and
//! reading it clears a frame (Linux since 6.12).
//!
//! Not modelled: readahead, several areas with priorities, folios of more than one page, compressed
//! memory in front of a device (zswap), discarding freed blocks, reading without the cache. Reading
//! waits for one page at a time. Linux submits many pages with one doorbell (`swap_iocb`,
//! plugging); here each page is a request of its own.
//!
//! Lock order: [`LockClass`]. A folio's lock is a sleeping lock; under page-table locks only
//! `trylock` is allowed. A cluster's lock and the lists' lock are never held together, and never
//! taken in interrupts.

mod cache;
mod entry;
mod lock;
mod read;
mod slots;
mod verify;
mod write;
mod zram;

pub use entry::SwapEntry;
pub use read::SwapError;
pub use verify::{SwapAudit, SwapViolation};
pub use write::WriteOut;

use alloc::boxed::Box;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::Relaxed;
use mmscale_arch::counters::Counters;
use mmscale_arch::sync::{EachCpu, Sparse, SpinLock, WaitQueue};
use mmscale_arch::{Atomic, LockClass, LockInstance, Machine};
use slots::{Cluster, Lists, NO_CLUSTER, SLOTS, SwapSlot};
use write::{DEVICE_QUEUES, DeviceWaiters};
use zram::Zram;

use crate::zsmalloc::ZsConfig;

/// Number of wait queues for folios; a folio's queue is selected by its number.
const QUEUES: usize = 256;

/// Whether pages of zeros are recorded instead of written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Zeromap {
    /// They are written like others (Linux before 6.12).
    Off,
    /// A bit of their slot is set.
    #[default]
    On,
}

/// The kind of swap device.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SwapDevice {
    /// A block device, which works asynchronously and interrupts on completion.
    #[default]
    Block,
    /// Compressed memory (zram): the CPU that writes a page compresses it, the CPU that reads it
    /// decompresses it, both synchronously (`SWP_SYNCHRONOUS_IO`). A written page is clean, so
    /// reclaim frees its frame immediately. Freeing a slot frees its compressed page, which is in a
    /// zspage ([`zsmalloc`](crate::zsmalloc)).
    Compressed,
}

/// Configuration of swap.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SwapConfig {
    /// Number of slots, of a page each; 0: no swap.
    pub pages: u32,
    /// The treatment of pages of zeros.
    pub zeromap: Zeromap,
    /// The device.
    pub device: SwapDevice,
    /// The allocator of compressed pages, if the device is compressed memory.
    pub zs: ZsConfig,
    /// The size of each compressed page in percent of a page, 1 to 100; `None`: sizes differ
    /// ([`zram`]).
    pub compressed_percent: Option<u8>,
}

/// No slot is free.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SwapFull;

impl core::fmt::Display for SwapFull {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("taking a swap slot: none is free")
    }
}

impl core::error::Error for SwapFull {}

mmscale_arch::counters! {
    /// Event counts over all CPUs; exact while nothing runs.
    pub struct SwapCounters from CpuSwap {
        /// Pages submitted to the device to write.
        writes: Sum,
        /// Pages submitted to the device to read.
        reads: Sum,
        /// Pages of files submitted to the device to read.
        file_reads: Sum,
        /// Pages of files submitted to the device to write.
        file_writes: Sum,
        /// Pages of zeros that were not written.
        zero_writes: Sum,
        /// Pages of zeros that were cleared instead of read.
        zero_reads: Sum,
        /// Writes that failed.
        write_errors: Sum,
        /// Reads that failed.
        read_errors: Sum,
        /// Lookups that found a folio in the cache.
        cache_hits: Sum,
        /// Faults that released their lock before they waited for a page.
        fault_retries: Sum,
    }
}

/// The swap area and its cache.
pub struct Swap<A: Machine> {
    config: SwapConfig,
    slots: Sparse<SwapSlot<A>>,
    clusters: Box<[SpinLock<A, Cluster>]>,
    lists: SpinLock<A, Lists>,
    /// The cluster from which each CPU allocates. Used by its CPU only, with preemption off, or
    /// after the CPU has died.
    own: EachCpu<AtomicU32>,
    /// The cluster at which pruning continues.
    pruned: A::AtomicU32,
    /// Slots that are neither used nor reserved.
    free: A::AtomicI64,
    queues: Box<[WaitQueue<A>]>,
    /// Compressed pages; none on other devices.
    zram: Option<Zram<A>>,
    /// Tasks that wait for room in the device's queue, by CPU.
    device_waiters: Box<[DeviceWaiters<A>]>,
    counters: Counters<A, CpuSwap>,
}

impl<A: Machine> Swap<A> {
    /// Creates a swap area without used slots.
    pub fn new(config: SwapConfig) -> Self {
        let slots = config.pages as usize;
        let clusters = slots.div_ceil(SLOTS);
        let cluster = |at: usize| Cluster::new((slots - at * SLOTS).min(SLOTS));
        let named = |at: usize| {
            SpinLock::named(LockClass::Swap, LockInstance::Numbered(at as u32), cluster(at))
        };
        Self {
            config,
            slots: Sparse::new(slots),
            clusters: (0..clusters).map(named).collect(),
            lists: SpinLock::new(LockClass::Swap, Lists::all_free(clusters)),
            own: EachCpu::new::<A>(|_| AtomicU32::new(NO_CLUSTER)),
            pruned: A::AtomicU32::new(0),
            free: A::AtomicI64::new(slots as i64),
            zram: (config.device == SwapDevice::Compressed).then(|| Zram::new(&config)),
            queues: (0..QUEUES).map(|_| WaitQueue::new()).collect(),
            device_waiters: (0..DEVICE_QUEUES).map(|_| DeviceWaiters::new()).collect(),
            counters: Counters::default(),
        }
    }
    /// Returns the configuration.
    pub fn config(&self) -> SwapConfig {
        self.config
    }
    /// Returns whether there is swap.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.config.pages > 0
    }
    /// Returns the number of free slots.
    pub fn free_slots(&self) -> u64 {
        self.free.load(Relaxed).max(0) as u64
    }
    /// Returns whether more than half of the slots are used. Slots whose content is also in memory
    /// should then be freed (`vm_swap_full`).
    pub fn is_half_full(&self) -> bool {
        self.free_slots() * 2 < u64::from(self.config.pages)
    }
    /// Returns the event counts.
    pub fn counters(&self) -> SwapCounters {
        self.counters.all()
    }
    /// The counters of the calling CPU.
    #[inline]
    fn tally(&self) -> &CpuSwap {
        self.counters.here()
    }
}
