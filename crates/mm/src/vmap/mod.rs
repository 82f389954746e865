//! Frames at addresses of the kernel's own (`vmap`), and addresses that wait for CPUs to forget
//! them.
//!
//! Every CPU uses the kernel's translations at any time, idle ones too: so to invalidate them all
//! CPUs are interrupted. That is put off. Unmapping takes the entries out, and puts the addresses
//! into limbo; when there are too many there, or no others are left, one flush is done
//! for all of them ([`Vmap::purge`]), and those that were there when it began are free. So no
//! address is mapped anew while a CPU may translate it to what was there before
//! (`__purge_vmap_area_lazy` of Linux, with every policy).
//!
//! Behind each mapping a page of addresses stays unmapped, as a guard. It counts where addresses
//! are counted.
//!
//! The *frames* are the caller's again when [`Vmap::unmap`] returns, as in Linux: a CPU may keep a
//! translation to one that it does not use, as nobody uses an address that he has unmapped.
//!
//! Memory for the books of addresses is taken before their lock is, and by [`Vmap::map`] alone:
//! what is mapped can always be unmapped.
//!
//! Lock order: the purge's mutex, then locks of page tables; the lock of the addresses (class
//! Other) is innermost.

mod ranges;

use crate::smp::Wait;
use crate::table::{
    ENTRIES, Gather, Gathered, MemAccess, Miss, PageTable, Paging, Pte, PteFlags, TableError,
};
use crate::tlb::Flushed;
use mmscale_arch::sync::{Mutex, SpinLock};
use mmscale_arch::{LockClass, Machine, Pfn, VmaRange, Vpn, planted};
use ranges::{KERNEL_RANGE, Ranges, Refusal, Room, lazy_max_of};

/// Why frames were not mapped. Nothing was changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum VmapError {
    /// There is no free stretch of addresses as long, not even after a purge.
    NoAddresses,
    /// There is no memory to keep books of one stretch more.
    NoMemory,
    /// There is no memory for page tables.
    Tables(TableError),
}

impl core::fmt::Display for VmapError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::NoAddresses => f.write_str(
                "mapping frames for the kernel: no stretch of addresses is as long, unmap some",
            ),
            Self::NoMemory => f.write_str("mapping frames for the kernel: no memory for its books"),
            Self::Tables(why) => write!(f, "mapping frames for the kernel: {why}"),
        }
    }
}

impl core::error::Error for VmapError {}

/// Whether addresses in limbo are to be purged.
#[must_use]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Limbo {
    /// They may stay there.
    Open,
    /// There are more than [`Vmap::lazy_max_pages`]: have [`Vmap::purge`] called, soon, by a task
    /// that may sleep (`drain_vmap_area_work`).
    Full,
}

/// Pages of addresses behind each mapping that nothing is mapped at.
const GUARD_PAGES: u64 = 1;

/// What limbo came to, and what there is.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct VmapStats {
    /// Pages of addresses in limbo now.
    pub lazy_pages: u64,
    /// The most that ever were.
    pub lazy_pages_max: u64,
    /// The longest time that addresses waited there, in ns.
    pub lazy_age_max_ns: u64,
    /// Flushes of the kernel's range.
    pub purges: u64,
    /// Pages of addresses that are free, and in how many stretches.
    pub free_pages: u64,
    /// See [`VmapStats::free_pages`].
    pub free_stretches: usize,
}

struct Books {
    ranges: Ranges,
    stats: VmapStats,
}

/// The kernel's own range.
pub struct Vmap<A: Machine> {
    table: PageTable<A>,
    books: SpinLock<A, Books>,
    /// One flush at a time, for all that is in limbo.
    purging: Mutex<A, ()>,
    lazy_max_pages: u64,
}

impl<A: Machine> Vmap<A> {
    /// A range in which nothing is mapped: 64 GiB, of which `lazy_max_pages` pages may be in limbo
    /// or, if that is `None`, 32 MiB for each doubling of the CPUs. It is given back with
    /// [`Vmap::destroy`]. One for each [`crate::tlb::Tlb`].
    pub fn new(on: Paging<'_, A>, lazy_max_pages: Option<u64>) -> Result<Self, TableError> {
        let (start, pages) = KERNEL_RANGE;
        let whole = VmaRange::with_pages(start, pages).unwrap_or(VmaRange::USER);
        let lazy_max = lazy_max_pages.unwrap_or_else(|| lazy_max_of(A::cpus_possible()));
        Self::with(on, whole, lazy_max)
    }
    /// A range of other addresses.
    pub fn with(
        on: Paging<'_, A>,
        whole: VmaRange,
        lazy_max_pages: u64,
    ) -> Result<Self, TableError> {
        let books = Books { ranges: Ranges::new(whole), stats: VmapStats::default() };
        Ok(Self {
            table: PageTable::new_kernel(on)?,
            books: SpinLock::new(LockClass::Other, books),
            purging: Mutex::new(()),
            lazy_max_pages,
        })
    }
    /// Maps frames one after the other, at least one, to be read and written (`vmap`); where.
    /// Sleeps if all addresses are in use or in limbo.
    pub fn map(&self, on: Paging<'_, A>, frames: &[Pfn]) -> Result<VmaRange, VmapError> {
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
                    if self.unmap(on, range) == Limbo::Full {
                        self.purge(on);
                    }
                    return Err(VmapError::Tables(why));
                }
            }
        }
        Ok(range)
    }
    /// Takes addresses for `pages` pages and the guard behind them; returns those without the
    /// guard. Sleeps if all are in use or in limbo.
    fn take(&self, on: Paging<'_, A>, pages: u64) -> Result<VmaRange, VmapError> {
        if pages == 0 {
            return Err(VmapError::NoAddresses);
        }
        let (mut room, mut more) = (Room::default(), true);
        loop {
            // A statement of its own: what follows is done with the lock free.
            let taken = self.books.lock().ranges.take(pages + GUARD_PAGES, &mut room);
            match taken {
                Ok(range) => {
                    let inside = VmaRange::with_pages(range.start(), pages);
                    return inside.ok_or(VmapError::NoAddresses);
                }
                Err(Refusal::NoRoom(_)) if A::fail_alloc() => return Err(VmapError::NoMemory),
                Err(Refusal::NoRoom(stretches)) => {
                    room = Room::for_stretches(stretches).map_err(|_| VmapError::NoMemory)?;
                }
                // If nothing was in limbo, somebody else may just have freed it.
                Err(Refusal::NoAddresses) if more => more = self.purge(on),
                Err(Refusal::NoAddresses) => return Err(VmapError::NoAddresses),
            }
        }
    }
    /// Unmaps what [`Vmap::map`] returned (`vunmap`). The frames are the caller's; the addresses
    /// are in limbo. Returns what the caller has to do about that.
    pub fn unmap(&self, on: Paging<'_, A>, range: VmaRange) -> Limbo {
        for part in by_table(range) {
            if let Some(mut ptes) = self.table.find_pte(on, part.start()) {
                each_page(part).for_each(|at| _ = ptes.take(at));
            }
        }
        let guarded = VmaRange::with_pages(range.start(), range.pages() + GUARD_PAGES);
        let mut books = self.books.lock();
        books.ranges.defer(guarded.unwrap_or(range), A::now_ns());
        let lazy = books.ranges.lazy_pages;
        books.stats.lazy_pages_max = books.stats.lazy_pages_max.max(lazy);
        if lazy > self.lazy_max_pages { Limbo::Full } else { Limbo::Open }
    }
    /// Flushes for all that is in limbo, and frees it; whether there was anything. Sleeps.
    pub fn purge(&self, on: Paging<'_, A>) -> bool {
        let _one = self.purging.lock();
        // A statement of its own: the flush is waited for with nothing else held.
        let begun = self.books.lock().ranges.begin_flush();
        let Some((generation, hull)) = begun else { return false };
        if planted!(VmapFreedBeforeFlush) {
            self.books.lock().ranges.end_flush(generation);
        }
        on.tlb.flush_kernel_range(hull, Wait::Sleep);
        let mut books = self.books.lock();
        let oldest_ns = books.ranges.end_flush(generation);
        books.stats.purges += 1;
        let age_ns = oldest_ns.map_or(0, |since_ns| A::now_ns().saturating_sub(since_ns));
        books.stats.lazy_age_max_ns = books.stats.lazy_age_max_ns.max(age_ns);
        true
    }
    /// The kernel uses `page`, on this CPU; see [`PageTable::access`].
    pub fn access<R>(
        &self,
        on: Paging<'_, A>,
        page: Vpn,
        access: MemAccess,
        use_page: impl FnOnce(Pfn) -> R,
    ) -> Result<R, Miss> {
        self.table.access(on, page, access, use_page)
    }
    /// What limbo came to.
    pub fn stats(&self) -> VmapStats {
        let books = self.books.lock();
        let (free_pages, free_stretches) = books.ranges.free();
        VmapStats { lazy_pages: books.ranges.lazy_pages, free_pages, free_stretches, ..books.stats }
    }
    /// With more pages of addresses than these, limbo is [`Limbo::Full`].
    pub fn lazy_max_pages(&self) -> u64 {
        self.lazy_max_pages
    }
    /// Frees all tables. Everything was unmapped. Sleeps.
    pub fn destroy(&self, on: Paging<'_, A>) {
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

/// The parts of `range` that have a page table each, whose lock is taken once for all entries.
fn by_table(range: VmaRange) -> impl Iterator<Item = VmaRange> {
    let entries = ENTRIES as u64;
    let (start, end) = (range.start().get(), range.end().get());
    let tables = start / entries..end.div_ceil(entries);
    tables.filter_map(move |table| {
        let part = (table * entries).max(start)..((table + 1) * entries).min(end);
        VmaRange::new(Vpn::new(part.start), Vpn::new(part.end))
    })
}
