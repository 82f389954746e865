//! A zone's free memory in the hands of another allocator, behind six C functions: for comparing an
//! allocator that exists, in C or anything else, with those of this crate under the same load.
//!
//! The guest keeps pages of one zone, numbered from 0; watermarks, counters and the record of each
//! frame stay here. It may be called by all CPUs at a time. It calls its host to know its CPU, to
//! lock, and to name its work and the lines that it touches: a simulated machine charges these, and
//! nothing else of the guest's code. `include/mmscale_guest.h` says the same in C.

use crate::pcp::Pcp;
use crate::place::{CpuTable, Place, Table, Zero};
use crate::zone::ZoneId;
use core::cell::Cell;
use core::ffi::c_void;
use core::sync::atomic::{AtomicBool, Ordering};
use mmscale_arch::sync::SpinLock;
use mmscale_arch::{
    Access, Cpu, CpuId, IrqState, Line, LockClass, LockInstance, Op, Order, Pfn, RawSpin,
};

/// Locks that a guest shares between CPUs: numbers below this. Behind them one for each CPU.
pub const SHARED_LOCKS: u32 = 16;

/// The functions of a guest. Calls may overlap, but for the first two.
#[repr(C)]
#[derive(Debug)]
pub struct GuestCalls {
    /// The bytes of memory that the guest needs for `pages` pages and `cpus` CPUs.
    pub bytes: extern "C" fn(pages: u64, cpus: u32) -> usize,
    /// Makes an allocator in `memory`, which is 0 and aligned to 128: all pages are free.
    pub init: extern "C" fn(*mut c_void, pages: u64, cpus: u32, &GuestHost),
    /// Allocates 2^`order` pages, aligned to their number, for a kind of memory (0: unmovable, 1:
    /// movable, 2: reclaimable); returns the first, or [`u64::MAX`].
    pub alloc: extern "C" fn(*mut c_void, order: u32, kind: u32) -> u64,
    /// Frees a block.
    pub free: extern "C" fn(*mut c_void, page: u64, order: u32),
    /// Makes the pages in a CPU's cache available to all; returns their number. Any CPU calls it.
    pub drain: extern "C" fn(*mut c_void, cpu: u32) -> u64,
    /// The number of free pages, those that CPUs keep included; while nothing else is called.
    pub count_free: extern "C" fn(*mut c_void) -> u64,
}

/// A guest.
#[derive(Clone, Copy, Debug)]
pub struct Guest(&'static GuestCalls);

impl Guest {
    /// A guest with these functions.
    ///
    /// # Safety
    /// They keep their descriptions, and stay in memory.
    pub const unsafe fn new(calls: &'static GuestCalls) -> Self {
        Self(calls)
    }
}

impl PartialEq for Guest {
    fn eq(&self, other: &Self) -> bool {
        self.0.alloc as usize == other.0.alloc as usize
    }
}

impl Eq for Guest {}

/// The kinds of work that a guest names; each is an operation of the machine's profile.
#[repr(u32)]
#[derive(Clone, Copy, Debug)]
enum Work {
    /// Taking a block from a CPU's own pages.
    CacheTake,
    /// Putting a block there.
    CachePut,
    /// Unlinking a block from a shared list.
    ListTake,
    /// Linking a block into one.
    ListPut,
    /// Splitting a block, or merging two.
    Step,
}

impl Work {
    const ALL: [Self; 5] =
        [Self::CacheTake, Self::CachePut, Self::ListTake, Self::ListPut, Self::Step];

    /// The work with this number. Panics if there is none.
    fn of(number: u32) -> Self {
        let found = Self::ALL.into_iter().find(|&work| work as u32 == number);
        let count = Self::ALL.len();
        found.unwrap_or_else(|| panic!("a guest names work {number}: there are {count} kinds"))
    }
    const fn op(self) -> Op {
        match self {
            Self::CacheTake => Op::PcpTake,
            Self::CachePut => Op::PcpPut,
            Self::ListTake => Op::BuddyTake,
            Self::ListPut => Op::BuddyPut,
            Self::Step => Op::BuddyStep,
        }
    }
}

/// The functions that a guest may call, with `host` as their first argument.
#[repr(C)]
#[derive(Debug)]
pub struct GuestHost {
    host: *const c_void,
    cpu: extern "C" fn() -> u32,
    lock: extern "C" fn(*const c_void, u32),
    unlock: extern "C" fn(*const c_void, u32),
    touch_page: extern "C" fn(*const c_void, u64, bool),
    touch_list: extern "C" fn(*const c_void, u32, bool),
    work: extern "C" fn(*const c_void, u32, u32),
}

/// A lock, taken with interrupts off, with their state before.
struct GuestLock<A: Cpu> {
    raw: A::Spin,
    irq: Cell<IrqState>,
}

impl<A: Cpu> GuestLock<A> {
    fn new(class: LockClass, instance: LockInstance) -> Self {
        Self { raw: A::Spin::named(class, instance), irq: Cell::new(IrqState(false)) }
    }
}

/// The host of a zone's guest.
struct Host<A: Cpu> {
    zone: ZoneId,
    start: Pfn,
    shared: [GuestLock<A>; SHARED_LOCKS as usize],
    of_cpus: CpuTable<GuestLock<A>>,
    /// The guest was initialised: its work costs time, as it runs on a CPU.
    is_ready: AtomicBool,
}

impl<A: Cpu> Host<A> {
    /// The host that a guest passes back.
    fn of<'a>(host: *const c_void) -> &'a Self {
        // SAFETY: the guest has the pointer from `GuestZone::new`, which keeps the host alive.
        unsafe { &*host.cast() }
    }
    fn table(&self) -> GuestHost {
        GuestHost {
            host: core::ptr::from_ref(self).cast(),
            cpu: Self::cpu,
            lock: Self::lock,
            unlock: Self::unlock,
            touch_page: Self::touch_page,
            touch_list: Self::touch_list,
            work: Self::work,
        }
    }

    extern "C" fn cpu() -> u32 {
        A::cpu().index() as u32
    }
    /// The lock with this number. Panics if there is none.
    fn lock_of(&self, number: u32) -> &GuestLock<A> {
        match self.shared.get(number as usize) {
            Some(shared) => shared,
            None => {
                let cpu = (number - SHARED_LOCKS) as usize;
                assert!(
                    cpu < A::cpus_possible(),
                    "a guest takes lock {number}, which is of no CPU"
                );
                self.of_cpus.of(CpuId::new(cpu))
            }
        }
    }
    extern "C" fn lock(host: *const c_void, number: u32) {
        let lock = Self::of(host).lock_of(number);
        let state = A::irq_save();
        lock.raw.lock();
        lock.irq.set(state);
    }
    extern "C" fn unlock(host: *const c_void, number: u32) {
        let lock = Self::of(host).lock_of(number);
        let state = lock.irq.get();
        // SAFETY: the guest holds it.
        unsafe { lock.raw.unlock() };
        A::irq_restore(state);
    }
    fn touch(&self, line: Line, access: Access) {
        if self.is_ready.load(Ordering::Relaxed) {
            A::touch(line, access);
        }
    }
    extern "C" fn touch_page(host: *const c_void, page: u64, writes: bool) {
        let host = Self::of(host);
        // The holder of a block writes to its record without a lock of the guest.
        let access = if writes { Access::Write } else { Access::Peek };
        host.touch(Line::Frame(host.start.offset(page as usize)), access);
    }
    extern "C" fn touch_list(host: *const c_void, list: u32, writes: bool) {
        let host = Self::of(host);
        let access = if writes { Access::Write } else { Access::Read };
        host.touch(Line::FreeArea(host.zone.index() as u32 * 16 + list % 16), access);
    }
    extern "C" fn work(host: *const c_void, kind: u32, count: u32) {
        let op = Work::of(kind).op();
        if Self::of(host).is_ready.load(Ordering::Relaxed) {
            A::work(op, count);
        }
    }
}

/// Memory of a guest.
#[repr(align(128))]
struct GuestMemory {
    _bytes: [u8; 128],
}

// SAFETY: bytes.
unsafe impl Zero for GuestMemory {}

/// The free memory of a zone with a guest.
pub(crate) struct GuestZone<A: Cpu> {
    guest: Guest,
    memory: *mut c_void,
    bytes: usize,
    start: Pfn,
    /// Kept for the guest, which has pointers to both.
    _host: Table<Host<A>>,
    _table: Table<GuestHost>,
    /// Page caches, always empty: the upkeep tick accesses them.
    pub(crate) pcps: CpuTable<SpinLock<A, Pcp>>,
}

// SAFETY: a guest may be called by all CPUs ([`Guest::new`]); the holder of a lock alone uses its
// `irq`.
unsafe impl<A: Cpu> Sync for GuestZone<A> {}
// SAFETY: as for `Sync`.
unsafe impl<A: Cpu> Send for GuestZone<A> {}

impl<A: Cpu> GuestZone<A> {
    /// Makes a guest's allocator for zone `zone`.
    pub(crate) fn new(
        place: &mut Place,
        (guest, cpus): (Guest, usize),
        (zone, start, pages): (ZoneId, Pfn, u32),
        pcps: CpuTable<SpinLock<A, Pcp>>,
    ) -> Self {
        let lock = |number| GuestLock::new(LockClass::Zone, LockInstance::Numbered(number as u32));
        let mut hosts = place.room(1);
        hosts.push(Host::<A> {
            zone,
            start,
            shared: core::array::from_fn(lock),
            of_cpus: CpuTable::new(place, cpus, |_, cpu| {
                GuestLock::new(LockClass::Pcp, LockInstance::OfCpu(cpu))
            }),
            is_ready: AtomicBool::new(false),
        });
        let hosts = hosts.done();
        let tables = place.table(1, |_| hosts[0].table());
        let bytes = (guest.0.bytes)(u64::from(pages), cpus as u32).max(1);
        let mut memory = place.zeroed::<GuestMemory>(bytes.div_ceil(size_of::<GuestMemory>()));
        let memory = memory.as_mut_ptr().cast();
        for (host, table) in hosts.iter().zip(tables.iter()) {
            (guest.0.init)(memory, u64::from(pages), cpus as u32, table);
            host.is_ready.store(true, Ordering::Relaxed);
        }
        Self { guest, memory, bytes, start, _host: hosts, _table: tables, pcps }
    }
    /// Takes a block.
    pub(crate) fn alloc(&self, order: Order, kind: u32) -> Option<Pfn> {
        let page = (self.guest.0.alloc)(self.memory, u32::from(order.get()), kind);
        (page != u64::MAX).then(|| self.start.offset(page as usize))
    }
    /// Frees a block.
    pub(crate) fn free(&self, pfn: Pfn, order: Order) {
        let page = pfn.index() - self.start.index();
        (self.guest.0.free)(self.memory, page as u64, u32::from(order.get()));
    }
    /// Drains the cache of a CPU; returns the number of pages.
    pub(crate) fn drain(&self, cpu: CpuId) -> u32 {
        (self.guest.0.drain)(self.memory, cpu.index() as u32) as u32
    }
    /// The number of free pages.
    pub(crate) fn count_free(&self) -> u64 {
        (self.guest.0.count_free)(self.memory)
    }
    /// The bytes of the guest's memory.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}
