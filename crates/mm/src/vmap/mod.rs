//! Frames mapped at kernel addresses (`vmap`), and lazy flushing of unmapped addresses.
//!
//! Every CPU uses the kernel's translations at any time, also when idle, so invalidating them
//! interrupts all CPUs. That flush is deferred. Unmapping clears the entries and puts the addresses
//! into limbo. When limbo is too large, or no other addresses are free, one flush serves all of
//! them ([`Vmap::purge`]) and frees those that were in limbo when it began. Thus no address is
//! mapped again while a CPU may translate it to the previous frame (`__purge_vmap_area_lazy` of
//! Linux, with every policy).
//!
//! After each mapping one page of addresses stays unmapped as a guard. It is included in all counts
//! of addresses.
//!
//! The *frames* belong to the caller again when [`Vmap::unmap`] returns, as in Linux: a CPU may
//! still cache a translation to one, but no code uses an address that it has unmapped.
//!
//! The tables of addresses are allocated before their lock is taken, and by [`Vmap::map`] only:
//! unmapping never needs memory.
//!
//! Lock order: the purge's mutex, then locks of page tables; the lock of the addresses (class
//! Other) is innermost.

mod ranges;

use crate::pgtable::{
    ENTRIES, Gather, Gathered, MemAccess, Miss, PageTable, PtRef, Pte, PteFlags, TableError,
};
use crate::smp::Wait;
use crate::tlb::Flushed;
use mmscale_arch::sync::{Mutex, SpinLock};
use mmscale_arch::{LockClass, Machine, Pfn, VmaRange, Vpn};
use ranges::{KERNEL_RANGE, RangeStorage, Ranges, Refusal, lazy_max_of};

/// The reason why frames were not mapped. Nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum VmapError {
    /// No free range of addresses is long enough, even after a purge.
    NoAddresses,
    /// No memory for the table of addresses.
    NoMemory,
    /// No memory for page tables.
    Tables(TableError),
}

impl core::fmt::Display for VmapError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::NoAddresses => f.write_str(
                "mapping frames for the kernel: no free address range is long enough, unmap some",
            ),
            Self::NoMemory => {
                f.write_str("mapping frames for the kernel: no memory for the table of addresses")
            }
            Self::Tables(why) => write!(f, "mapping frames for the kernel: {why}"),
        }
    }
}

impl core::error::Error for VmapError {}

/// Whether limbo needs a purge.
#[must_use]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purge {
    /// It does not.
    NotNeeded,
    /// There are more than [`Vmap::lazy_max_pages`] pages: a task that may sleep must call
    /// [`Vmap::purge`] soon (`drain_vmap_area_work`).
    Needed,
}

/// Pages of addresses after each mapping that stay unmapped.
const GUARD_PAGES: u64 = 1;

/// Statistics of limbo and of free addresses.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct VmapStats {
    /// Pages of addresses in limbo now.
    pub lazy_pages: u64,
    /// Maximum of `lazy_pages`.
    pub lazy_pages_max: u64,
    /// Longest time that addresses were in limbo, in ns.
    pub lazy_age_max_ns: u64,
    /// Flushes of the kernel's range.
    pub purges: u64,
    /// Free pages of addresses.
    pub free_pages: u64,
    /// Number of free ranges of addresses.
    pub free_stretches: usize,
}

struct Addresses {
    ranges: Ranges,
    stats: VmapStats,
}

/// The kernel's range of addresses.
pub struct Vmap<A: Machine> {
    table: PageTable<A>,
    addresses: SpinLock<A, Addresses>,
    /// Serializes the flushes of limbo.
    purging: Mutex<A, ()>,
    lazy_max_pages: u64,
}

impl<A: Machine> Vmap<A> {
    /// Creates a range of 64 GiB in which nothing is mapped. `lazy_max_pages` pages may be in limbo
    /// or, if that is `None`, 32 MiB for each doubling of the CPUs. Ended by [`Vmap::destroy`]. One
    /// for each [`crate::tlb::Tlb`].
    pub fn new(on: PtRef<'_, A>, lazy_max_pages: Option<u64>) -> Result<Self, TableError> {
        let (start, pages) = KERNEL_RANGE;
        let whole = VmaRange::with_pages(start, pages).unwrap_or(VmaRange::USER);
        let lazy_max = lazy_max_pages.unwrap_or_else(|| lazy_max_of(A::cpus_possible()));
        Self::with(on, whole, lazy_max)
    }
    /// Creates the range `whole`.
    pub fn with(
        on: PtRef<'_, A>,
        whole: VmaRange,
        lazy_max_pages: u64,
    ) -> Result<Self, TableError> {
        let addresses = Addresses { ranges: Ranges::new(whole), stats: VmapStats::default() };
        Ok(Self {
            table: PageTable::new_kernel(on)?,
            addresses: SpinLock::new(LockClass::Other, addresses),
            purging: Mutex::new(LockClass::Mutex, ()),
            lazy_max_pages,
        })
    }
    /// Maps at least one frame to consecutive addresses for reading and writing (`vmap`); returns
    /// these. Sleeps if all addresses are in use or in limbo.
    pub fn map(&self, on: PtRef<'_, A>, frames: &[Pfn]) -> Result<VmaRange, VmapError> {
        let range = self.take(on, frames.len() as u64)?;
        for part in by_table(range) {
            let offset = (part.start().get() - range.start().get()) as usize;
            match self.table.lock_pte(on, part.start()) {
                Ok(mut ptes) => {
                    for (at, &pfn) in each_page(part).zip(&frames[offset..]) {
                        ptes.fill(at, Pte::page(pfn, PteFlags::WRITE));
                    }
                }
                Err(why) => {
                    if self.unmap(on, range) == Purge::Needed {
                        self.purge(on);
                    }
                    return Err(VmapError::Tables(why));
                }
            }
        }
        Ok(range)
    }
    /// Allocates addresses for `pages` pages and the guard after them; returns the addresses
    /// without the guard. Sleeps if all are in use or in limbo.
    fn take(&self, on: PtRef<'_, A>, pages: u64) -> Result<VmaRange, VmapError> {
        if pages == 0 {
            return Err(VmapError::NoAddresses);
        }
        let (mut room, mut more) = (RangeStorage::default(), true);
        loop {
            // A statement of its own, so that the lock is released before the match.
            let taken = self.addresses.lock().ranges.take(pages + GUARD_PAGES, &mut room);
            match taken {
                Ok(range) => {
                    let inside = VmaRange::with_pages(range.start(), pages);
                    return inside.ok_or(VmapError::NoAddresses);
                }
                Err(Refusal::NoRoom(_)) if A::fail_alloc() => return Err(VmapError::NoMemory),
                Err(Refusal::NoRoom(stretches)) => {
                    room =
                        RangeStorage::for_stretches(stretches).map_err(|_| VmapError::NoMemory)?;
                }
                // If nothing was in limbo, another task may just have freed it.
                Err(Refusal::NoAddresses) if more => more = self.purge(on),
                Err(Refusal::NoAddresses) => return Err(VmapError::NoAddresses),
            }
        }
    }
    /// Unmaps addresses that [`Vmap::map`] returned (`vunmap`). The frames belong to the caller
    /// again; the addresses are in limbo. Returns whether the caller must have limbo purged.
    pub fn unmap(&self, on: PtRef<'_, A>, range: VmaRange) -> Purge {
        for part in by_table(range) {
            if let Some(mut ptes) = self.table.find_pte(on, part.start()) {
                each_page(part).for_each(|at| _ = ptes.take(at));
            }
        }
        let guarded = VmaRange::with_pages(range.start(), range.pages() + GUARD_PAGES);
        let mut addresses = self.addresses.lock();
        addresses.ranges.defer(guarded.unwrap_or(range), A::now_ns());
        let lazy = addresses.ranges.lazy_pages;
        addresses.stats.lazy_pages_max = addresses.stats.lazy_pages_max.max(lazy);
        if lazy > self.lazy_max_pages { Purge::Needed } else { Purge::NotNeeded }
    }
    /// Flushes and frees the addresses in limbo; returns whether there were any. Sleeps.
    pub fn purge(&self, on: PtRef<'_, A>) -> bool {
        let _one = self.purging.lock();
        // A statement of its own, so that the lock is released before the flush.
        let begun = self.addresses.lock().ranges.begin_flush();
        let Some((generation, hull)) = begun else { return false };
        on.tlb.flush_kernel_range(hull, Wait::Sleep);
        let mut addresses = self.addresses.lock();
        let oldest_ns = addresses.ranges.end_flush(generation);
        addresses.stats.purges += 1;
        let age_ns = oldest_ns.map_or(0, |since_ns| A::now_ns().saturating_sub(since_ns));
        addresses.stats.lazy_age_max_ns = addresses.stats.lazy_age_max_ns.max(age_ns);
        true
    }
    /// Performs an access of the kernel to `page` on this CPU; see [`PageTable::access`].
    pub fn access<R>(
        &self,
        on: PtRef<'_, A>,
        page: Vpn,
        access: MemAccess,
        use_page: impl FnOnce(Pfn) -> R,
    ) -> Result<R, Miss> {
        self.table.access(on, page, access, use_page)
    }
    /// Returns the statistics.
    pub fn stats(&self) -> VmapStats {
        let addresses = self.addresses.lock();
        let (free_pages, free_stretches) = addresses.ranges.free();
        VmapStats {
            lazy_pages: addresses.ranges.lazy_pages,
            free_pages,
            free_stretches,
            ..addresses.stats
        }
    }
    /// Returns the number of pages above which limbo is [`Purge::Needed`].
    pub fn lazy_max_pages(&self) -> u64 {
        self.lazy_max_pages
    }
    /// Frees all tables. Everything has been unmapped. Sleeps.
    pub fn destroy(&self, on: PtRef<'_, A>) {
        self.purge(on);
        self.table.retire(on);
        let mut nothing = |_: &Flushed, _: &[Gathered]| {};
        let mut gather = Gather::new(&self.table);
        let all = VmaRange::USER;
        self.table.free_tables(on, &mut gather, &mut nothing, all, all);
        gather.finish(on, &mut nothing);
        self.table.destroy(on);
    }
}

fn each_page(range: VmaRange) -> impl Iterator<Item = Vpn> {
    (range.start().get()..range.end().get()).map(Vpn::new)
}

/// Splits `range` into the parts of one page table each, so that its lock is taken once.
fn by_table(range: VmaRange) -> impl Iterator<Item = VmaRange> {
    let entries = ENTRIES as u64;
    let (start, end) = (range.start().get(), range.end().get());
    let tables = start / entries..end.div_ceil(entries);
    tables.filter_map(move |table| {
        let part = (table * entries).max(start)..((table + 1) * entries).min(end);
        VmaRange::new(Vpn::new(part.start), Vpn::new(part.end))
    })
}
