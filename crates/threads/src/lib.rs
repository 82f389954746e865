//! This computer's OS threads as a machine.
//!
//! Each CPU is a thread, pinned to a CPU of the computer where the system allows it. The tasks of a
//! CPU are coroutines on its thread, with a run queue of their own: real time by priority, then
//! fair by CPU time used, in slices. A CPU polls for interrupts and the timer where interrupts or
//! preemption are turned on, in wait loops, and in idle. Locks and atomics are real, and frames are
//! real memory.
//!
//! Architecture invariant: this crate knows no study, no profile, no policy and no simulator.
//!
//! The modules, each using only those before it: `host`, `clock`, `arena`, `atomic`, `config`,
//! `file`, `paths`, `task`, `queue`, `state` (the machine and its CPUs), `wake`, `interrupt`,
//! `device`, `lock`, `hotplug`, `sched`, `run`, and `calibrate`, which measures steps of this
//! computer.

mod arena;
mod atomic;
pub mod calibrate;
mod clock;
mod config;
mod device;
mod file;
mod host;
mod hotplug;
mod interrupt;
mod lock;
mod paths;
mod queue;
mod run;
mod sched;
mod state;
mod task;
mod wake;

pub use atomic::{ThreadsI64, ThreadsOwnedI8, ThreadsOwnedI64, ThreadsU8, ThreadsU32, ThreadsU64};
pub use config::{Failure, Outcome, ThreadsConfig};
pub use lock::{ThreadsOsq, ThreadsSpin};
pub use run::run;

use mmscale_arch::Machine as _;
use mmscale_arch::{
    Access, Asid, Cpu, CpuId, CpuMask, Func, HotplugError, IoBusy, IoDone, Ipi, IrqState, Line,
    LockClass, LockHold, NodeId, Op, Order, PageEvent, PageIo, PathId, Pfn, SoftTlb, TaskId,
    TaskSpec, Trace, Translation, VmaRange, Vpn,
};
use state::{Machine, NEVER, here};
use std::sync::atomic::Ordering;

/// Returns the number of CPUs of this computer that the process may use.
pub fn host_cpus() -> usize {
    host::HostCpus::allowed().count()
}

/// The default number of frames of a machine: 2 GiB of 4 KiB pages. The system provides them only
/// as they are touched.
pub const MEMORY_PAGES: u64 = 1 << 19;

/// The machine, as a tag type.
#[derive(Clone, Copy, Debug)]
pub struct Threads;

// SAFETY: a CPU is a thread, and a task leaves it only where preemption is on.
unsafe impl Cpu for Threads {
    type Spin = ThreadsSpin;
    type AtomicU8 = ThreadsU8;
    type AtomicU32 = ThreadsU32;
    type AtomicU64 = ThreadsU64;
    type AtomicI64 = ThreadsI64;
    type OwnedI8 = ThreadsOwnedI8;
    type OwnedI64 = ThreadsOwnedI64;

    #[inline]
    fn cpu() -> CpuId {
        here().id
    }
    fn cpus_possible() -> usize {
        here().machine().cpus.len()
    }
    /// Returns node 0: the arena is one mapping, so the machine has one node on any computer.
    fn node_of(_: CpuId) -> NodeId {
        NodeId::new(0)
    }
    fn online(mask: &mut CpuMask) {
        here().machine().online(mask);
    }
    fn is_online(cpu: CpuId) -> bool {
        here().machine().is_online(cpu)
    }

    #[inline]
    fn preempt_disable() {
        let preempt = &here().local.preempt;
        preempt.set(preempt.get() + 1);
    }
    #[inline]
    fn preempt_enable() {
        let cpu = here();
        let local = &cpu.local;
        local.preempt.set(local.preempt.get() - 1);
        if local.preempt.get() == 0 && local.irqs_on.get() && !local.in_interrupt.get() {
            interrupt::poll(cpu);
        }
    }
    #[inline]
    fn irq_save() -> IrqState {
        IrqState(here().local.irqs_on.replace(false))
    }
    #[inline]
    fn irq_restore(state: IrqState) {
        let cpu = here();
        cpu.local.irqs_on.set(state.0);
        if state.0 {
            interrupt::poll(cpu);
        }
    }
    fn unpark(task: TaskId) {
        wake::unpark(here().machine(), task);
    }
    fn relax() {
        interrupt::relax();
    }
    fn request_drain(cpu: CpuId) -> bool {
        Self::ipi_send(cpu, Ipi::DrainPages);
        true
    }

    fn seed() -> u64 {
        here().machine().seed
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
    fn trace(event: Trace) {
        let cpu = here();
        let now_ns = cpu.machine().clock.now_ns();
        let probe = cpu.local.probe.try_borrow_mut();
        let mut probe = probe.expect("a probe is called once at a time: it may not trace");
        if let Some(probe) = &mut *probe {
            probe.event(now_ns, &event);
        }
    }
    #[inline]
    fn span_enter(func: Func) -> PathId {
        let cpu = here();
        let path = cpu.machine().paths.child(cpu.local.path.get(), func);
        PathId(cpu.go_to_path(path))
    }
    #[inline]
    fn span_exit(path: PathId) {
        here().go_to_path(path.0);
    }
}

// SAFETY: each task has its own number, and its CPU knows which task it runs.
unsafe impl mmscale_arch::Machine for Threads {
    type Osq = ThreadsOsq;

    fn in_interrupt() -> bool {
        here().local.in_interrupt.get()
    }

    fn ipi_send(cpu: CpuId, reason: Ipi) {
        interrupt::send(cpu, reason);
    }
    #[inline]
    fn now_ns() -> u64 {
        here().machine().clock.now_ns()
    }
    fn hz() -> u32 {
        here().machine().hz
    }
    fn timer_arm(deadline_ns: u64) {
        here().deadline_ns.store(deadline_ns, Ordering::Relaxed);
    }
    fn timer_cancel() {
        here().deadline_ns.store(NEVER, Ordering::Relaxed);
    }

    fn current() -> TaskId {
        let cpu = here();
        // SAFETY: the running task is alive.
        let task = unsafe { cpu.local.task.get().as_ref() };
        task.map_or(Machine::idle_task(cpu.id), |task| task.id)
    }
    fn park() {
        wake::park();
    }
    fn is_running(task: TaskId) -> bool {
        here().machine().tasks.get(task).is_some_and(|task| task.is_running())
    }
    fn spawn(spec: TaskSpec) -> TaskId {
        wake::spawn(here().machine(), spec)
    }
    fn cond_resched() {
        interrupt::poll(here());
    }
    fn need_resched() -> bool {
        interrupt::must_switch()
    }
    fn user(ns: u64) {
        interrupt::compute(ns);
    }
    fn wait_clock() -> u64 {
        lock::clock_ns()
    }
    fn lock_taken(class: LockClass, since: Option<u64>) -> LockHold {
        lock::count_sleeping(class, since);
        LockHold::default()
    }
    fn cpu_offline(cpu: CpuId) -> Result<(), HotplugError> {
        hotplug::offline(cpu)
    }
    fn cpu_online(cpu: CpuId) -> Result<(), HotplugError> {
        hotplug::online(cpu)
    }

    fn clear_block(pfn: Pfn, order: Order) {
        let machine = here().machine();
        let begin_ns = machine.clock.now_ns();
        machine.arena.clear(pfn, order);
        let ns = machine.clock.now_ns() - begin_ns;
        Self::trace(Trace::Page(PageEvent::Clear { ns: ns.try_into().unwrap_or(u32::MAX) }));
    }
    fn copy_page(from: Pfn, to: Pfn) {
        here().machine().arena.copy(from, to);
    }
    fn copy_shared_page(from: Pfn, to: Pfn) {
        here().machine().arena.copy_words(from, to);
    }
    fn write_stamp(pfn: Pfn, stamp: u64) {
        here().machine().arena.set_stamp(pfn, stamp);
    }
    fn read_stamp(pfn: Pfn) -> u64 {
        here().machine().arena.stamp(pfn)
    }

    fn is_zero(pfn: Pfn) -> bool {
        here().machine().arena.is_zero(pfn)
    }
    fn io_submit(io: PageIo) -> Result<(), IoBusy> {
        device::submit(io);
        Ok(())
    }
    fn io_done() -> Option<IoDone> {
        device::done()
    }
    fn io_now(io: PageIo) -> bool {
        device::now(io)
    }

    fn table_load(pfn: Pfn, index: usize) -> u64 {
        here().machine().arena.word(pfn, index).load(Ordering::Relaxed)
    }
    fn table_store(pfn: Pfn, index: usize, value: u64) {
        here().machine().arena.word(pfn, index).store(value, Ordering::Release);
    }
    fn table_peek(pfn: Pfn, index: usize) -> u64 {
        here().machine().arena.word(pfn, index).load(Ordering::Acquire)
    }
    fn table_swap(pfn: Pfn, index: usize, value: u64) -> u64 {
        here().machine().arena.word(pfn, index).swap(value, Ordering::AcqRel)
    }
    fn table_compare_exchange(pfn: Pfn, index: usize, current: u64, new: u64) -> Result<u64, u64> {
        let word = here().machine().arena.word(pfn, index);
        word.compare_exchange(current, new, Ordering::AcqRel, Ordering::Acquire)
    }
    fn table_drop(_: Pfn) {}
    fn tlb_load(_: Option<Asid>) {}
    fn tlb_lookup(asid: Asid, page: Vpn) -> Option<Translation> {
        on_tlb(|tlb| tlb.lookup(asid, page)).map(|found| found.translation)
    }
    fn tlb_fill(asid: Asid, page: Vpn, translation: Translation) {
        on_tlb(|tlb| tlb.fill(asid, page, translation));
    }
    fn tlb_flush_local(asid: Asid, range: Option<VmaRange>) {
        on_tlb(|tlb| tlb.flush(asid, range, |_| {}));
    }
}

/// Calls `f` with the TLB of this CPU. Interrupts are off, and `f` calls no machine.
fn on_tlb<R>(f: impl FnOnce(&mut SoftTlb) -> R) -> R {
    let tlb = here().local.tlb.get();
    // SAFETY: only the CPU's own thread calls this, and `f` does not call it again.
    f(unsafe { &mut *tlb })
}
