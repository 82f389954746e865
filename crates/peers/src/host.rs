//! The smallest machine that the frame allocator runs on: threads with a number.
//!
//! It is what somebody writes who embeds the allocator: a CPU number, counts for preemption and
//! interrupts, spin locks, and nothing else: no tasks, no timers, no tracing, no statistics. The
//! preemption count and the interrupt flag are kept up for real, in memory of the thread; the
//! atomics are the processor's.

mod atomic;
mod lock;

use atomic::{HostAtomic, HostOwned};
use lock::HostSpin;
use mmscale_mm::arch::{
    Access, Arch, Asid, CpuId, CpuMask, Func, HotplugError, IoBusy, IoDone, Ipi, IrqState, Line,
    NodeId, Op, Order, PageIo, PathId, Pfn, TaskId, TaskSpec, Trace, Translation, VmaRange, Vpn,
};
use std::cell::Cell;
use std::sync::atomic::{AtomicI64, AtomicU8, AtomicU32, AtomicU64};
use std::time::Duration;

/// CPUs of the machine, whether or not a thread stands for them.
const CPUS: usize = 2;

/// The machine, as a tag type.
pub(crate) struct Host;

/// What a CPU knows about itself.
struct Local {
    cpu: Cell<u16>,
    preempt: Cell<u32>,
    irq_on: Cell<bool>,
}

thread_local! {
    static LOCAL: Local =
        const { Local { cpu: Cell::new(0), preempt: Cell::new(0), irq_on: Cell::new(true) } };
}

/// From now on this thread is `cpu`.
pub(crate) fn become_cpu(cpu: usize) {
    assert!(cpu < CPUS);
    LOCAL.with(|local| local.cpu.set(cpu as u16));
}

/// The frame allocator asks for none of this.
#[cold]
fn absent(what: &str) -> ! {
    unreachable!("the frame allocator alone needs no {what}")
}

impl Arch for Host {
    type Spin = HostSpin;
    type AtomicU8 = HostAtomic<AtomicU8>;
    type AtomicU32 = HostAtomic<AtomicU32>;
    type AtomicU64 = HostAtomic<AtomicU64>;
    type AtomicI64 = HostAtomic<AtomicI64>;
    type OwnedI8 = HostOwned;

    #[inline]
    fn cpu() -> CpuId {
        CpuId::new(LOCAL.with(|local| usize::from(local.cpu.get())))
    }
    #[inline]
    fn cpus_possible() -> usize {
        CPUS
    }
    #[inline]
    fn node_of(_: CpuId) -> NodeId {
        NodeId::new(0)
    }
    fn online(mask: &mut CpuMask) {
        *mask = CpuMask::first(CPUS);
    }
    #[inline]
    fn is_online(_: CpuId) -> bool {
        true
    }
    #[inline]
    fn preempt_disable() {
        LOCAL.with(|local| local.preempt.set(local.preempt.get() + 1));
    }
    #[inline]
    fn preempt_enable() {
        LOCAL.with(|local| local.preempt.set(local.preempt.get() - 1));
    }
    #[inline]
    fn irq_save() -> IrqState {
        IrqState(LOCAL.with(|local| local.irq_on.replace(false)))
    }
    #[inline]
    fn irq_restore(state: IrqState) {
        LOCAL.with(|local| local.irq_on.set(state.0));
    }
    #[inline]
    fn in_interrupt() -> bool {
        false
    }
    fn ipi_send(_: CpuId, _: Ipi) {
        absent("interrupts between CPUs")
    }
    fn now_ns() -> u64 {
        0
    }
    fn hz() -> u32 {
        1000
    }
    fn timer_arm(_: u64) {
        absent("timers")
    }
    fn timer_cancel() {
        absent("timers")
    }
    fn current() -> TaskId {
        TaskId::new(Self::cpu().index())
    }
    fn park() {
        absent("sleep")
    }
    fn unpark(_: TaskId) {
        absent("sleep")
    }
    fn is_running(_: TaskId) -> bool {
        true
    }
    fn spawn(_: TaskSpec) -> TaskId {
        absent("tasks")
    }
    #[inline]
    fn relax() {
        std::hint::spin_loop();
    }
    #[inline]
    fn cond_resched() {}
    fn user(ns: u64) {
        std::thread::sleep(Duration::from_nanos(ns));
    }
    fn cpu_offline(_: CpuId) -> Result<(), HotplugError> {
        absent("hotplug")
    }
    fn cpu_online(_: CpuId) -> Result<(), HotplugError> {
        absent("hotplug")
    }
    #[inline]
    fn fail_alloc() -> bool {
        false
    }
    #[inline]
    fn touch(_: Line, _: Access) {}
    #[inline]
    fn work(_: Op, _: u32) {}
    #[inline]
    fn trace(_: Trace) {}
    #[inline]
    fn span_enter(_: Func) -> PathId {
        PathId(0)
    }
    #[inline]
    fn span_exit(_: PathId) {}
    fn clear_block(_: Pfn, _: Order) {
        absent("memory behind the frames")
    }
    fn copy_page(_: Pfn, _: Pfn) {
        absent("memory behind the frames")
    }
    fn write_stamp(_: Pfn, _: u64) {
        absent("memory behind the frames")
    }
    fn read_stamp(_: Pfn) -> u64 {
        absent("memory behind the frames")
    }

    fn is_zero(_: Pfn) -> bool {
        absent("memory behind the frames")
    }
    fn io_submit(_: PageIo) -> Result<(), IoBusy> {
        absent("swap device")
    }
    fn io_done() -> Option<IoDone> {
        absent("swap device")
    }

    fn table_load(_: Pfn, _: usize) -> u64 {
        absent("page tables")
    }
    fn table_store(_: Pfn, _: usize, _: u64) {
        absent("page tables")
    }
    fn table_peek(_: Pfn, _: usize) -> u64 {
        absent("page tables")
    }
    fn table_swap(_: Pfn, _: usize, _: u64) -> u64 {
        absent("page tables")
    }
    fn table_compare_exchange(_: Pfn, _: usize, _: u64, _: u64) -> Result<u64, u64> {
        absent("page tables")
    }
    fn table_drop(_: Pfn) {
        absent("page tables")
    }
    fn has_tlb_broadcast() -> bool {
        false
    }
    fn tlb_load(_: Option<Asid>) {
        absent("address spaces")
    }
    fn tlb_lookup(_: Asid, _: Vpn) -> Option<Translation> {
        absent("address spaces")
    }
    fn tlb_fill(_: Asid, _: Vpn, _: Translation) {
        absent("address spaces")
    }
    fn tlb_flush_local(_: Asid, _: Option<VmaRange>) {
        absent("address spaces")
    }
    fn tlb_broadcast(_: Asid, _: Option<VmaRange>) {
        absent("address spaces")
    }
}
