//! A memory manager with swap, and operations on pages.

use mmscale_arch::{Callbacks, CpuId, Ipi, Machine as _, NodeId, Order, Pfn, TaskEntry};
use mmscale_frames::page_alloc::{Gfp, MemoryMap};
use mmscale_mm::folio::{FolioFlags, FolioInit, FolioWord};
use mmscale_mm::lru::{LruAudit, LruPolicy, LruRef};
use mmscale_mm::memcg::GroupId;
use mmscale_mm::mm::{Mm, MmConfig};
use mmscale_mm::swap::{
    Swap, SwapAudit, SwapConfig, SwapDevice, SwapEntry, SwapError, WriteOut, Zeromap,
};
use mmscale_mm::vmstat_work::TickPolicy;
use mmscale_stepped::{self as stepped, Stepped};
use std::cell::RefCell;
use std::rc::Rc;

pub(crate) const NODE: NodeId = NodeId::new(0);
/// An ordinary page of a program.
pub(crate) const ANON: FolioInit = FolioInit {
    group: GroupId::ROOT,
    flags: FolioFlags::ANON.union(FolioFlags::SWAP_BACKED),
    mapping: 7,
    index: 3,
};

pub(crate) struct Machine {
    pub(crate) mm: Mm<Stepped>,
    pub(crate) swap: Swap<Stepped>,
    /// The swap entries that page tables would have.
    pub(crate) named: RefCell<Vec<SwapEntry>>,
}

impl Machine {
    /// Boots a machine on which device requests complete whenever a task sleeps.
    pub(crate) fn boot(cpus: usize, pages: u32, zeromap: Zeromap) -> Rc<Self> {
        Self::boot_with(cpus, SwapConfig { pages, zeromap, ..SwapConfig::default() })
    }
    /// Like [`Machine::boot`], with another device.
    pub(crate) fn boot_on(cpus: usize, pages: u32, device: SwapDevice) -> Rc<Self> {
        Self::boot_with(cpus, SwapConfig { pages, device, ..SwapConfig::default() })
    }
    pub(crate) fn boot_with(cpus: usize, swap: SwapConfig) -> Rc<Self> {
        stepped::boot(cpus, 1000);
        let mut config = MmConfig::new(MemoryMap::single(1 << 14), TickPolicy::Stock);
        config.lru = LruPolicy::Lazy;
        let mm = Mm::new(&config).expect("the configuration is sound");
        mm.start().expect("there is memory to start with");
        let swap = Swap::new(swap);
        let machine = Rc::new(Self { mm, swap, named: RefCell::default() });
        let sleeper = Rc::downgrade(&machine);
        stepped::on_park(move || sleeper.upgrade().expect("it is there").finish_ios());
        machine
    }
    pub(crate) fn memory(&self) -> LruRef<'_, Stepped> {
        self.mm.memory()
    }
    /// Completes all requests and delivers their interrupts.
    pub(crate) fn finish_ios(&self) {
        stepped::finish_ios(usize::MAX);
        stepped::deliver_ipis(self);
    }
    /// A page with `stamp` in it and one reference, on the LRU.
    pub(crate) fn page(&self, stamp: u64) -> Pfn {
        let pfn = self.memory().alloc_folio(NODE, Order::ZERO, Gfp::KERNEL, ANON).expect("memory");
        Stepped::clear_block(pfn, Order::ZERO);
        Stepped::write_stamp(pfn, stamp);
        self.memory().add(pfn);
        pfn
    }
    /// A page in the swap cache that one page-table entry names; the caller has its lock and a
    /// reference.
    pub(crate) fn to_cache(&self, stamp: u64) -> (Pfn, SwapEntry) {
        let pfn = self.page(stamp);
        self.swap.lock_folio(self.memory(), pfn);
        let entry = self.swap.alloc(self.memory(), pfn).expect("a slot");
        self.dup(entry);
        (pfn, entry)
    }
    /// Writes a page out, up to the device request.
    pub(crate) fn write(&self, stamp: u64) -> (Pfn, SwapEntry, WriteOut) {
        let (pfn, entry) = self.to_cache(stamp);
        (pfn, entry, self.swap.write_out(self.memory(), pfn))
    }
    /// Frees a page to which only the caller and the swap cache have references.
    pub(crate) fn forget(&self, pfn: Pfn) -> bool {
        assert!(self.swap.trylock_folio(self.memory(), pfn));
        if self.memory().isolate(pfn) {
            self.memory().put(pfn);
        }
        let gone = self.swap.take_away(self.memory(), pfn);
        self.swap.unlock_folio(self.memory(), pfn);
        if gone {
            self.memory().put(pfn);
        }
        gone
    }
    /// A page that is only in its slot.
    pub(crate) fn out(&self, stamp: u64) -> SwapEntry {
        let (pfn, entry, _) = self.write(stamp);
        self.finish_ios();
        assert!(self.forget(pfn), "{:?}", self.word(pfn));
        entry
    }
    pub(crate) fn dup(&self, entry: SwapEntry) {
        self.swap.dup(entry);
        self.named.borrow_mut().push(entry);
    }
    /// Frees all page-table entries that name the slot.
    pub(crate) fn free(&self, entry: SwapEntry) {
        let before = self.named.borrow().len();
        self.named.borrow_mut().retain(|&named| named != entry);
        let entries = before - self.named.borrow().len();
        self.swap.free(self.memory(), entry, entries as u32);
    }
    pub(crate) fn read(&self, entry: SwapEntry) -> Result<Pfn, SwapError> {
        self.swap.read_in(self.memory(), entry, NODE, GroupId::ROOT, Gfp::KERNEL)
    }
    pub(crate) fn word(&self, pfn: Pfn) -> FolioWord {
        self.memory().folios.word(pfn)
    }
    pub(crate) fn audit(&self) -> SwapAudit {
        let named = self.named.borrow().clone();
        self.swap.verify(self.memory(), named.into_iter()).expect("swap adds up")
    }
    /// Checks that nothing is left.
    pub(crate) fn end(&self) {
        self.swap.quiesce(self.memory());
        self.mm.quiesce();
        assert_eq!(self.audit(), SwapAudit::default());
        assert_eq!(self.memory().verify().expect("the LRU adds up"), LruAudit::default());
        let audit = self.mm.verify().expect("the frames add up");
        assert_eq!((audit.held, audit.cached), (0, 0));
        stepped::assert_quiet();
    }
}

impl Callbacks for Machine {
    fn ipi(&self, reason: Ipi) {
        match reason {
            Ipi::Block => self.swap.io_interrupt(self.memory()),
            _ => self.mm.ipi(reason),
        }
    }
    fn timer(&self) {
        self.mm.timer();
    }
    fn idle_enter(&self) {}
    fn idle_exit(&self) {}
    fn context_switch(&self) {}
    fn task(&self, _: TaskEntry) {}
    fn cpu_dying(&self) -> bool {
        true
    }
    fn cpu_down_prepare(&self, _: CpuId) {}
    fn cpu_dead(&self, _: CpuId) {}
    fn cpu_online(&self, _: CpuId) {}
}
