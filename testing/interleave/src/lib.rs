//! A machine whose CPUs run in every order, for model checking mm.
//!
//! Every CPU is a thread of shuttle, with one task on it. At each atomic operation and each lock
//! another CPU may run, and a pending interrupt is delivered if the CPU has interrupts on. A
//! [`check`] runs a small scenario some thousand times, under random schedules, and under others
//! that are mostly sequential with a few switches (PCT), which find rare orders that random ones
//! miss. A failing schedule is printed and can be replayed.
//!
//! In a [`check`] all atomics are sequentially consistent. In a [`check_weak`] memory is weak: a
//! load may return an old value where the orderings allow that, and a [`Plain`] value that two CPUs
//! use without an order between them is an error. `memory.rs` says what the model covers.
//!
//! Time passes only in reads of the clock: each is a fixed step later than the last one.

mod atomic;
mod memory;
mod plain;
mod spin;
mod tables;
mod world;

pub use atomic::{ModelAtomic, ModelOwned, ModelValue};
pub use plain::Plain;
pub use spin::{ModelOsq, ModelSpin};
pub use world::{
    CpuBody, Hooks, check, check_from, check_weak, cpu_body, interrupt, run, set_need_resched,
    set_online,
};

use core::sync::atomic::Ordering::{self, Acquire, Relaxed};
use mmscale_arch::{
    Access, Asid, Cpu, CpuId, CpuMask, Func, HotplugError, IoBusy, IoDone, Ipi, IrqState, Line,
    Machine, NodeId, Op, Order, PageIo, PathId, Pfn, TaskId, TaskSpec, Trace, Translation,
    VmaRange, Vpn,
};
use world::with;

/// The machine, as a tag type.
#[derive(Clone, Copy, Debug)]
pub struct Model;

// SAFETY: a CPU is a task of the model checker, which runs one at a time, and never changes its
// CPU.
unsafe impl Cpu for Model {
    type Spin = ModelSpin;
    type AtomicU8 = ModelAtomic<u8>;
    type AtomicU32 = ModelAtomic<u32>;
    type AtomicU64 = ModelAtomic<u64>;
    type AtomicI64 = ModelAtomic<i64>;
    type OwnedI8 = ModelOwned;
    type OwnedI64 = ModelValue;

    fn cpu() -> CpuId {
        CpuId::new(world::here())
    }
    fn cpus_possible() -> usize {
        with(|w| w.cpus.borrow().len())
    }
    fn node_of(_: CpuId) -> NodeId {
        NodeId::new(0)
    }
    fn online(mask: &mut CpuMask) {
        *mask = CpuMask::EMPTY;
        with(|w| {
            let cpus = w.cpus.borrow();
            let online = cpus.iter().enumerate().filter(|(_, cpu)| cpu.online);
            online.for_each(|(at, _)| mask.insert(CpuId::new(at)));
        });
    }
    fn is_online(cpu: CpuId) -> bool {
        with(|w| w.cpus.borrow()[cpu.index()].online)
    }
    fn preempt_disable() {
        world::on_here(|cpu| cpu.preempt += 1);
    }
    fn preempt_enable() {
        world::on_here(|cpu| cpu.preempt -= 1);
    }
    fn irq_save() -> IrqState {
        IrqState(world::on_here(|cpu| core::mem::replace(&mut cpu.irqs_on, false)))
    }
    fn irq_restore(state: IrqState) {
        world::on_here(|cpu| cpu.irqs_on = state.0);
        world::deliver();
    }
    fn unpark(task: TaskId) {
        if let Some(hooks) = world::hooks() {
            hooks.unpark(task);
        }
        world::unpark(task.index());
    }
    fn relax() {
        world::deliver();
        shuttle::thread::yield_now();
    }
    fn fence(order: Ordering) {
        world::deliver();
        with(|w| w.memory.fence(world::here(), order));
    }
    fn request_drain(cpu: CpuId) -> bool {
        Self::ipi_send(cpu, Ipi::DrainPages);
        true
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
}

// SAFETY: a CPU has one task, which has its number.
unsafe impl Machine for Model {
    type Osq = ModelOsq;

    fn in_interrupt() -> bool {
        world::on_here(|cpu| cpu.in_interrupt)
    }
    fn ipi_send(cpu: CpuId, reason: Ipi) {
        world::send(cpu.index(), reason);
        world::point();
    }
    fn now_ns() -> u64 {
        with(|w| w.now_ns.replace(w.now_ns.get() + w.step_ns))
    }
    fn hz() -> u32 {
        1000
    }
    fn timer_arm(_: u64) {}
    fn timer_cancel() {}
    fn current() -> TaskId {
        TaskId::new(world::here())
    }
    fn park() {
        world::park();
    }
    fn is_running(task: TaskId) -> bool {
        with(|w| w.cpus.borrow()[task.index()].runs)
    }
    fn spawn(_: TaskSpec) -> TaskId {
        // A CPU has one task: scenarios make the workers they need as CPUs of their own.
        TaskId::new(usize::from(u16::MAX))
    }
    fn cond_resched() {
        world::access();
    }
    fn need_resched() -> bool {
        world::on_here(|cpu| cpu.need_resched)
    }
    fn user(_: u64) {
        world::point();
    }
    fn cpu_offline(cpu: CpuId) -> Result<(), HotplugError> {
        set_online(cpu.index(), false);
        Ok(())
    }
    fn cpu_online(cpu: CpuId) -> Result<(), HotplugError> {
        set_online(cpu.index(), true);
        Ok(())
    }
    fn clear_block(pfn: Pfn, order: Order) {
        let clear = |page| {
            tables::clear(pfn.offset(page));
            with(|w| w.stamps.borrow_mut().remove(&pfn.offset(page)));
        };
        (0..order.pages()).for_each(clear);
    }
    fn copy_page(from: Pfn, to: Pfn) {
        // Copying takes a while: a write to the source meanwhile is not in the copy.
        let stamp = Self::read_stamp(from);
        world::access();
        Self::write_stamp(to, stamp);
    }
    fn write_stamp(pfn: Pfn, stamp: u64) {
        with(|w| w.stamps.borrow_mut().insert(pfn, stamp));
    }
    fn read_stamp(pfn: Pfn) -> u64 {
        with(|w| w.stamps.borrow().get(&pfn).copied().unwrap_or(0))
    }

    fn is_zero(pfn: Pfn) -> bool {
        Self::read_stamp(pfn) == 0
    }
    fn io_submit(io: PageIo) -> Result<(), IoBusy> {
        world::submit(io);
        Ok(())
    }
    fn io_done() -> Option<IoDone> {
        world::on_here(|cpu| cpu.finished.pop())
    }
    fn io_now(io: PageIo) -> bool {
        world::transfer(io);
        true
    }

    fn table_load(pfn: Pfn, index: usize) -> u64 {
        tables::load(pfn, index, Relaxed)
    }
    fn table_store(pfn: Pfn, index: usize, value: u64) {
        world::access();
        tables::store(pfn, index, value);
    }
    fn table_peek(pfn: Pfn, index: usize) -> u64 {
        world::access();
        tables::load(pfn, index, Acquire)
    }
    fn table_swap(pfn: Pfn, index: usize, value: u64) -> u64 {
        world::access();
        tables::swap(pfn, index, value)
    }
    fn table_compare_exchange(pfn: Pfn, index: usize, current: u64, new: u64) -> Result<u64, u64> {
        world::access();
        tables::compare_exchange(pfn, index, current, new)
    }
    fn table_drop(pfn: Pfn) {
        tables::drop(pfn);
    }
    fn tlb_load(_: Option<Asid>) {}
    fn tlb_lookup(asid: Asid, page: Vpn) -> Option<Translation> {
        world::access();
        world::on_here(|cpu| cpu.tlb.lookup(asid, page).map(|found| found.translation))
    }
    fn tlb_fill(asid: Asid, page: Vpn, translation: Translation) {
        world::on_here(|cpu| cpu.tlb.fill(asid, page, translation));
    }
    fn tlb_flush_local(asid: Asid, range: Option<VmaRange>) {
        world::on_here(|cpu| cpu.tlb.flush(asid, range, |_| {}));
    }
}
