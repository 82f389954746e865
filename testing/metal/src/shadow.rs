//! The translations that the hardware of a processor may use: tables of its own for the address
//! space that is loaded, which are filled page by page as a software TLB is, and emptied when
//! the memory manager flushes. So a translation that was not flushed is really used by the MMU, and
//! one that is not in these tables faults. A hypervisor without nested paging does the same.
//!
//! The kernel is mapped in the first 512 GiB, where programs have nothing here.

use crate::per_cpu::{self, MAX_CPUS};
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicUsize, Ordering};
use mmscale_arch::{Asid, PageSize, Pfn, Translation, VmaRange, Vpn};
use x86_64::VirtAddr;
use x86_64::instructions::interrupts::without_interrupts;
use x86_64::instructions::tlb;

/// Entries of a table.
const ENTRIES: usize = 512;
/// Tables of a processor, its root included. If they are all in use, all translations are dropped.
const TABLES: usize = 32;
/// A flush of more pages drops all translations.
const SINGLY: u64 = 64;

const PRESENT: u64 = 1;
const WRITABLE: u64 = 1 << 1;
const TABLE: u64 = PRESENT | WRITABLE;
/// A bit for software: the page is writable, even if `WRITABLE` waits for the first write.
const MAY_WRITE: u64 = 1 << 9;
const FRAME: u64 = 0x000f_ffff_ffff_f000;

unsafe extern "C" {
    /// The tables that map the kernel alone, in `entry.s`.
    static boot_pml4: Table;
}

#[repr(C, align(4096))]
#[derive(Clone, Copy)]
struct Table([u64; ENTRIES]);

struct Shadow {
    tables: [Table; TABLES],
    /// Tables in use, the root included.
    used: usize,
    /// The address space whose translations these are; 0: none.
    space: usize,
    /// Whether the memory manager has it loaded. If not, it does not wait for this processor's
    /// flushes: no task may use the translations until they are brought up to date.
    is_loaded: bool,
}

struct Shadows([UnsafeCell<Shadow>; MAX_CPUS]);

// SAFETY: each processor uses its own alone, with interrupts off.
unsafe impl Sync for Shadows {}

const EMPTY: Shadow =
    Shadow { tables: [Table([0; ENTRIES]); TABLES], used: 1, space: 0, is_loaded: false };

static SHADOWS: Shadows = Shadows([const { UnsafeCell::new(EMPTY) }; MAX_CPUS]);

/// The processor that ignores flushes, plus 1: a fault for tests.
static DEAF: AtomicUsize = AtomicUsize::new(0);

/// Makes `cpu` ignore flushes.
pub(crate) fn plant_stale(cpu: usize) {
    DEAF.store(cpu + 1, Ordering::Relaxed);
}

/// Calls `run` with the calling processor's tables.
fn with<R>(run: impl FnOnce(&mut Shadow) -> R) -> R {
    // SAFETY: no other processor uses them, nothing interrupts this one, and `run` does not come
    // here again.
    without_interrupts(|| run(unsafe { &mut *SHADOWS.0[per_cpu::this().index()].get() }))
}

/// Makes the hardware use the translations of `space`, if they are here; else the kernel's alone.
pub(crate) fn show(space: usize) {
    with(|shadow| shadow.show(shadow.is_loaded && shadow.space == space));
}

/// Loads an address space for the running task; `None`: the kernel's alone.
pub(crate) fn load(asid: Option<Asid>) {
    with(|shadow| {
        if let Some(asid) = asid
            && shadow.space != asid.index()
        {
            shadow.drop_all();
            shadow.space = asid.index();
        }
        shadow.is_loaded = asid.is_some();
        shadow.show(shadow.is_loaded);
    });
}

/// The translation of `page` that the hardware of this processor may use.
pub(crate) fn lookup(asid: Asid, page: Vpn) -> Option<Translation> {
    with(|shadow| {
        let entry = *shadow.entry(asid, page)?;
        (entry & PRESENT != 0).then(|| Translation {
            pfn: Pfn::new(((entry & FRAME) >> 12) as usize),
            size: PageSize::Base,
            writable: entry & MAY_WRITE != 0,
            dirty: entry & WRITABLE != 0,
        })
    })
}

/// Lets the hardware use a translation. Its first write to the page faults, unless the memory
/// manager knows already that the page is dirty.
pub(crate) fn fill(asid: Asid, page: Vpn, translation: Translation) {
    with(|shadow| {
        if shadow.space != asid.index() || indices(page)[0] == 0 {
            return;
        }
        let may_write = if translation.writable { MAY_WRITE } else { 0 };
        let writable = if translation.writable && translation.dirty { WRITABLE } else { 0 };
        let frame = (translation.frame(page).index() as u64) << 12;
        *shadow.make_entry(page) = frame | may_write | writable | PRESENT;
        tlb::flush(VirtAddr::new(page.get() << 12));
    });
}

/// Drops translations of `asid`: those of `range`, or all.
pub(crate) fn flush(asid: Asid, range: Option<VmaRange>) {
    if DEAF.load(Ordering::Relaxed) == per_cpu::this().index() + 1 {
        return;
    }
    with(|shadow| match range.filter(|range| range.pages() <= SINGLY) {
        _ if shadow.space != asid.index() => {}
        None => shadow.drop_all(),
        Some(range) => {
            for page in range.start().get()..range.end().get() {
                if let Some(entry) = shadow.entry(asid, Vpn::new(page)) {
                    *entry = 0;
                }
                tlb::flush(VirtAddr::new(page << 12));
            }
        }
    });
}

/// The indices of a page in the tables of its four levels, root first.
fn indices(page: Vpn) -> [usize; 4] {
    [27, 18, 9, 0].map(|shift| (page.get() >> shift) as usize % ENTRIES)
}

impl Shadow {
    fn show(&self, own: bool) {
        let root = if own { &raw const self.tables[0] } else { &raw const boot_pml4 };
        // SAFETY: both map the kernel. Memory is mapped to itself.
        unsafe { core::arch::asm!("mov cr3, {}", in(reg) root as u64, options(nostack)) };
    }
    fn drop_all(&mut self) {
        // The hardware may use these tables now: the kernel stays mapped.
        // SAFETY: the entry never changes after the start.
        self.tables[0].0[0] = unsafe { boot_pml4.0[0] };
        self.tables[0].0[1..].fill(0);
        tlb::flush_all();
        self.tables[1..self.used].iter_mut().for_each(|table| table.0.fill(0));
        self.used = 1;
    }
    /// The table that a table's entry leads to.
    fn below(&self, table: usize, index: usize) -> Option<usize> {
        let entry = self.tables[table].0[index];
        let first = (&raw const self.tables) as u64;
        (entry & PRESENT != 0).then(|| ((entry & FRAME) - first) as usize / size_of::<Table>())
    }
    fn entry(&mut self, asid: Asid, page: Vpn) -> Option<&mut u64> {
        let [top, middle, low, last] = indices(page);
        if self.space != asid.index() || top == 0 {
            return None;
        }
        let table = self.below(0, top)?;
        let table = self.below(table, middle)?;
        let table = self.below(table, low)?;
        Some(&mut self.tables[table].0[last])
    }
    fn make_entry(&mut self, page: Vpn) -> &mut u64 {
        if self.used + 3 > TABLES {
            self.drop_all();
        }
        let path = indices(page);
        let mut table = 0;
        for index in &path[..3] {
            table = match self.below(table, *index) {
                Some(below) => below,
                None => {
                    let below = self.used;
                    self.used += 1;
                    let address = (&raw const self.tables[below]) as u64;
                    self.tables[table].0[*index] = address | TABLE;
                    below
                }
            };
        }
        &mut self.tables[table].0[path[3]]
    }
}
