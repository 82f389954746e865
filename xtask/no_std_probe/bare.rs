//! A machine with one CPU, no tasks and no timers: just enough for the frame allocator.

use core::sync::atomic::{
    AtomicBool, AtomicI8, AtomicI64, AtomicU8, AtomicU32, AtomicU64, Ordering,
};
use mmscale_mm::arch::{
    Access, Arch, Asid, Atomic, CpuId, CpuMask, Func, HotplugError, IoBusy, IoDone, Ipi, IrqState,
    Line, LockClass, NodeId, Op, Order, OwnedCounter, PageIo, PathId, Pfn, RawSpin, TaskId,
    TaskSpec, Trace, Translation, VmaRange, Vpn,
};

pub struct Bare;

static PREEMPT: AtomicU32 = AtomicU32::new(0);
static IRQ_ON: AtomicBool = AtomicBool::new(true);

/// Whether every guard has been let go.
pub fn is_quiet() -> bool {
    PREEMPT.load(Ordering::Relaxed) == 0 && IRQ_ON.load(Ordering::Relaxed)
}

pub struct Word<T>(T);

macro_rules! words {
    ($($atomic:ident $int:ty),*) => {$(
        impl Atomic<$int> for Word<$atomic> {
            fn new(value: $int) -> Self {
                Self($atomic::new(value))
            }
            fn load(&self, order: Ordering) -> $int {
                self.0.load(order)
            }
            fn store(&self, value: $int, order: Ordering) {
                self.0.store(value, order);
            }
            fn swap(&self, value: $int, order: Ordering) -> $int {
                self.0.swap(value, order)
            }
            fn compare_exchange(
                &self,
                current: $int,
                new: $int,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$int, $int> {
                self.0.compare_exchange(current, new, success, failure)
            }
            fn fetch_add(&self, value: $int, order: Ordering) -> $int {
                self.0.fetch_add(value, order)
            }
            fn fetch_sub(&self, value: $int, order: Ordering) -> $int {
                self.0.fetch_sub(value, order)
            }
            fn fetch_or(&self, value: $int, order: Ordering) -> $int {
                self.0.fetch_or(value, order)
            }
            fn fetch_and(&self, value: $int, order: Ordering) -> $int {
                self.0.fetch_and(value, order)
            }
        }
    )*};
}

words!(AtomicU8 u8, AtomicU32 u32, AtomicU64 u64, AtomicI64 i64);

impl OwnedCounter<i8> for Word<AtomicI8> {
    fn zero() -> Self {
        Self(AtomicI8::new(0))
    }
    fn get(&self) -> i8 {
        self.0.load(Ordering::Relaxed)
    }
    fn set(&self, value: i8) {
        self.0.store(value, Ordering::Relaxed);
    }
    fn is_nonzero(&self) -> bool {
        self.get() != 0
    }
}

/// With one CPU a lock that is taken will never be free: that is a bug, not a wait.
pub struct OneCpuSpin(AtomicBool);

impl RawSpin for OneCpuSpin {
    fn new(_: LockClass) -> Self {
        Self(AtomicBool::new(false))
    }
    fn lock(&self) {
        assert!(self.try_lock());
    }
    fn try_lock(&self) -> bool {
        !self.0.swap(true, Ordering::Acquire)
    }
    unsafe fn unlock(&self) {
        self.0.store(false, Ordering::Release);
    }
    fn is_locked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl Arch for Bare {
    type Spin = OneCpuSpin;
    type AtomicU8 = Word<AtomicU8>;
    type AtomicU32 = Word<AtomicU32>;
    type AtomicU64 = Word<AtomicU64>;
    type AtomicI64 = Word<AtomicI64>;
    type OwnedI8 = Word<AtomicI8>;

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
    fn preempt_disable() {
        PREEMPT.fetch_add(1, Ordering::Relaxed);
    }
    fn preempt_enable() {
        PREEMPT.fetch_sub(1, Ordering::Relaxed);
    }
    fn irq_save() -> IrqState {
        IrqState(IRQ_ON.swap(false, Ordering::Relaxed))
    }
    fn irq_restore(state: IrqState) {
        IRQ_ON.store(state.0, Ordering::Relaxed);
    }
    fn in_interrupt() -> bool {
        false
    }
    fn ipi_send(_: CpuId, _: Ipi) {
        unreachable!()
    }
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
        unreachable!()
    }
    fn unpark(_: TaskId) {
        unreachable!()
    }
    fn is_running(_: TaskId) -> bool {
        true
    }
    fn spawn(_: TaskSpec) -> TaskId {
        unreachable!()
    }
    fn relax() {}
    fn cond_resched() {}
    fn user(_: u64) {}
    fn cpu_offline(_: CpuId) -> Result<(), HotplugError> {
        unreachable!()
    }
    fn cpu_online(_: CpuId) -> Result<(), HotplugError> {
        unreachable!()
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
    fn clear_block(_: Pfn, _: Order) {}
    fn copy_page(_: Pfn, _: Pfn) {}
    fn write_stamp(_: Pfn, _: u64) {}
    fn read_stamp(_: Pfn) -> u64 {
        0
    }

    fn is_zero(_: Pfn) -> bool {
        false
    }
    fn io_submit(_: PageIo) -> Result<(), IoBusy> {
        unreachable!()
    }
    fn io_done() -> Option<IoDone> {
        unreachable!()
    }

    fn table_load(_: Pfn, _: usize) -> u64 {
        unreachable!()
    }
    fn table_store(_: Pfn, _: usize, _: u64) {
        unreachable!()
    }
    fn table_peek(_: Pfn, _: usize) -> u64 {
        unreachable!()
    }
    fn table_swap(_: Pfn, _: usize, _: u64) -> u64 {
        unreachable!()
    }
    fn table_compare_exchange(_: Pfn, _: usize, _: u64, _: u64) -> Result<u64, u64> {
        unreachable!()
    }
    fn table_drop(_: Pfn) {
        unreachable!()
    }
    fn has_tlb_broadcast() -> bool {
        false
    }
    fn tlb_load(_: Option<Asid>) {
        unreachable!()
    }
    fn tlb_lookup(_: Asid, _: Vpn) -> Option<Translation> {
        unreachable!()
    }
    fn tlb_fill(_: Asid, _: Vpn, _: Translation) {
        unreachable!()
    }
    fn tlb_flush_local(_: Asid, _: Option<VmaRange>) {
        unreachable!()
    }
    fn tlb_broadcast(_: Asid, _: Option<VmaRange>) {
        unreachable!()
    }
}
