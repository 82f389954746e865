//! One CPU, nothing else: for unit tests that must see inside. Tests of behaviour use the machine
//! of `mmscale-stepped` from outside the crate.

use super::bare::BareSpin;
use super::{
    Access, Arch, Asid, CpuId, CpuMask, Func, HotplugError, IoBusy, IoDone, Ipi, IrqState, Line,
    NodeId, Op, Order, PageIo, PathId, Pfn, TaskId, TaskSpec, Trace, Translation, VmaRange, Vpn,
};
use alloc::collections::BTreeMap;
use core::cell::UnsafeCell;
use core::sync::atomic::{
    AtomicBool, AtomicI8, AtomicI64, AtomicU8, AtomicU32, AtomicU64, Ordering,
};

/// Words of page tables, by frame and place; 0 where there is none.
type Words = BTreeMap<(Pfn, usize), u64>;

/// The words of the one test that has taken them.
struct Tables {
    taken: AtomicBool,
    words: UnsafeCell<Words>,
}

// SAFETY: only the test that has set `taken` uses the words, and a test is one thread.
unsafe impl Sync for Tables {}

static TABLES: Tables =
    Tables { taken: AtomicBool::new(false), words: UnsafeCell::new(BTreeMap::new()) };

fn words<R>(f: impl FnOnce(&mut Words) -> R) -> R {
    assert!(TABLES.taken.load(Ordering::Relaxed), "take the page tables first");
    // SAFETY: the caller's test has them, and `f` of this module does not come back here.
    f(unsafe { &mut *TABLES.words.get() })
}

fn entry<R>(pfn: Pfn, index: usize, f: impl FnOnce(&mut u64) -> R) -> R {
    words(|words| f(words.entry((pfn, index)).or_default()))
}

/// A test's right to have page tables: empty ones, and one test at a time.
pub(crate) struct HasTables(());

impl HasTables {
    pub(crate) fn take() -> Self {
        while TABLES.taken.swap(true, Ordering::Acquire) {
            core::hint::spin_loop();
        }
        words(Words::clear);
        Self(())
    }
}

impl Drop for HasTables {
    fn drop(&mut self) {
        TABLES.taken.store(false, Ordering::Release);
    }
}

/// The machine's tag.
pub(crate) struct Lone;

// SAFETY: a test is one thread, and what it makes stays there.
unsafe impl Arch for Lone {
    const TRACES: bool = false;
    type Spin = BareSpin<Self>;
    type AtomicU8 = AtomicU8;
    type AtomicU32 = AtomicU32;
    type AtomicU64 = AtomicU64;
    type AtomicI64 = AtomicI64;
    type OwnedI8 = AtomicI8;

    fn cpu() -> CpuId {
        CpuId::new(0)
    }
    fn cpus_possible() -> usize {
        1
    }
    fn node_of(_: CpuId) -> NodeId {
        NodeId::new(0)
    }
    fn online(mask: &mut CpuMask) {
        *mask = CpuMask::first(1);
    }
    fn is_online(_: CpuId) -> bool {
        true
    }
    fn preempt_disable() {}
    fn preempt_enable() {}
    fn irq_save() -> IrqState {
        IrqState(true)
    }
    fn irq_restore(_: IrqState) {}
    fn in_interrupt() -> bool {
        false
    }
    fn ipi_send(_: CpuId, _: Ipi) {}
    fn now_ns() -> u64 {
        0
    }
    fn hz() -> u32 {
        1000
    }
    fn timer_arm(_: u64) {}
    fn timer_cancel() {}
    fn current() -> TaskId {
        TaskId::new(0)
    }
    fn park() {
        panic!("nobody would wake it");
    }
    fn unpark(_: TaskId) {}
    fn is_running(_: TaskId) -> bool {
        true
    }
    fn spawn(_: TaskSpec) -> TaskId {
        panic!("there is one task");
    }
    fn relax() {
        panic!("there is nobody to wait for")
    }
    fn cond_resched() {}
    fn user(_: u64) {}
    fn cpu_offline(_: CpuId) -> Result<(), HotplugError> {
        Err(HotplugError::LastCpu)
    }
    fn cpu_online(_: CpuId) -> Result<(), HotplugError> {
        Err(HotplugError::NotNow)
    }
    fn fail_alloc() -> bool {
        false
    }
    fn touch(_: Line, _: Access) {}
    fn work(_: Op, _: u32) {}
    fn trace(_: Trace) {}
    fn span_enter(_: Func) -> PathId {
        PathId(0)
    }
    fn span_exit(_: PathId) {}
    fn clear_block(pfn: Pfn, order: Order) {
        (0..order.pages()).for_each(|page| Self::table_drop(pfn.offset(page)));
    }
    fn copy_page(_: Pfn, _: Pfn) {}
    fn write_stamp(_: Pfn, _: u64) {}
    fn read_stamp(_: Pfn) -> u64 {
        0
    }

    fn is_zero(_: Pfn) -> bool {
        false
    }
    fn io_submit(_: PageIo) -> Result<(), IoBusy> {
        panic!("it has no swap device")
    }
    fn io_done() -> Option<IoDone> {
        panic!("it has no swap device")
    }
    fn io_now(_: PageIo) -> bool {
        panic!("it has no swap device")
    }

    fn table_load(pfn: Pfn, index: usize) -> u64 {
        entry(pfn, index, |word| *word)
    }
    fn table_store(pfn: Pfn, index: usize, value: u64) {
        entry(pfn, index, |word| *word = value);
    }
    fn table_peek(pfn: Pfn, index: usize) -> u64 {
        entry(pfn, index, |word| *word)
    }
    fn table_swap(pfn: Pfn, index: usize, value: u64) -> u64 {
        entry(pfn, index, |word| core::mem::replace(word, value))
    }
    fn table_compare_exchange(pfn: Pfn, index: usize, current: u64, new: u64) -> Result<u64, u64> {
        entry(pfn, index, |word| {
            if *word == current { Ok(core::mem::replace(word, new)) } else { Err(*word) }
        })
    }
    fn table_drop(pfn: Pfn) {
        words(|words| words.retain(|&(table, _), _| table != pfn));
    }
    fn has_tlb_broadcast() -> bool {
        false
    }
    fn tlb_load(_: Option<Asid>) {}
    fn tlb_lookup(_: Asid, _: Vpn) -> Option<Translation> {
        None
    }
    fn tlb_fill(_: Asid, _: Vpn, _: Translation) {}
    fn tlb_flush_local(_: Asid, _: Option<VmaRange>) {}
    fn tlb_broadcast(_: Asid, _: Option<VmaRange>) {
        panic!("it has no broadcast")
    }
}
