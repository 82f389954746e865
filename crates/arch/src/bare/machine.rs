//! The machine that comes out of a [`Bare`].

use super::{Bare, BareSpin, absent};
use crate::{
    Access, Arch, Asid, CpuId, CpuMask, Func, HotplugError, IoBusy, IoDone, Ipi, IrqState, Line,
    NodeId, Op, Order, PageIo, PathId, Pfn, TaskId, TaskSpec, Trace, Translation, VmaRange, Vpn,
};
use core::marker::PhantomData;
use core::sync::atomic::{AtomicI8, AtomicI64, AtomicU8, AtomicU32, AtomicU64};

/// An [`Arch`] for the frame allocator alone, as a tag type.
pub struct BareMachine<T>(PhantomData<fn() -> T>);

// SAFETY: as `Bare` promises, which has the same rules.
unsafe impl<T: Bare> Arch for BareMachine<T> {
    const TRACES: bool = false;
    type Spin = BareSpin<Self>;
    type AtomicU8 = AtomicU8;
    type AtomicU32 = AtomicU32;
    type AtomicU64 = AtomicU64;
    type AtomicI64 = AtomicI64;
    type OwnedI8 = AtomicI8;

    // -- What the embedder says.

    #[inline]
    fn cpu() -> CpuId {
        T::cpu()
    }
    #[inline]
    fn cpus_possible() -> usize {
        T::cpus()
    }
    #[inline]
    fn node_of(cpu: CpuId) -> NodeId {
        T::node_of(cpu)
    }
    fn online(mask: &mut CpuMask) {
        T::online(mask);
    }
    #[inline]
    fn is_online(cpu: CpuId) -> bool {
        T::is_online(cpu)
    }
    #[inline]
    fn preempt_disable() {
        T::preempt_disable();
    }
    #[inline]
    fn preempt_enable() {
        T::preempt_enable();
    }
    #[inline]
    fn irq_save() -> IrqState {
        T::irq_save()
    }
    #[inline]
    fn irq_restore(state: IrqState) {
        T::irq_restore(state);
    }
    #[inline]
    fn relax() {
        T::relax();
    }
    fn has_ipi() -> bool {
        T::has_ipi()
    }
    fn ipi_send(cpu: CpuId, reason: Ipi) {
        T::ipi_send(cpu, reason);
    }

    // -- What costs nothing here.

    #[inline]
    fn cond_resched() {}
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

    // -- What nobody asks.

    fn in_interrupt() -> bool {
        absent("word on where it runs")
    }
    fn now_ns() -> u64 {
        absent("clock")
    }
    fn hz() -> u32 {
        absent("clock")
    }
    fn timer_arm(_: u64) {
        absent("timers")
    }
    fn timer_cancel() {
        absent("timers")
    }
    fn current() -> TaskId {
        absent("tasks")
    }
    fn park() {
        absent("tasks")
    }
    fn unpark(_: TaskId) {
        absent("tasks")
    }
    fn is_running(_: TaskId) -> bool {
        absent("tasks")
    }
    fn spawn(_: TaskSpec) -> TaskId {
        absent("tasks")
    }
    fn user(_: u64) {
        absent("tasks")
    }
    fn cpu_offline(_: CpuId) -> Result<(), HotplugError> {
        absent("hotplug")
    }
    fn cpu_online(_: CpuId) -> Result<(), HotplugError> {
        absent("hotplug")
    }
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
    fn io_now(_: PageIo) -> bool {
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
        absent("address spaces")
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
