//! A one-host-thread machine for unit tests of mm: every CPU is stepped by hand.
//!
//! A test says which CPU it is on ([`set_cpu`]), lets time pass ([`advance`]), and delivers
//! interrupts and timers itself. Nothing happens on its own, so a test can stand at any point
//! between two steps of two CPUs. All state is thread-local: tests run side by side.
//!
//! The machine checks what it sees: a spin lock that could never be got (recursion, or a holder on
//! another CPU that cannot move), lock ranks turned round, a lock taken both in interrupts and with
//! interrupts on, unbalanced interrupt and preemption counts, parking while atomic.

mod atomic;
mod lock;
mod machine;

pub use atomic::{UniAtomic, UniOwned};
pub use lock::UniSpin;
pub use machine::{
    advance, assert_quiet, boot, current_path, deliver_ipis, earliest_timer, fail_allocs,
    interrupt, lock_acquisitions, record, run_timer, set_clock, set_cpu, set_node, set_online,
    set_task, take_ipis, take_spawned, take_timer, take_touches, take_traces, timer_of,
    unpark_tokens, work_count,
};

use machine::expect;
use mmscale_mm::arch::{
    Access, Arch, CpuId, CpuMask, Func, HotplugError, Ipi, IrqState, Line, NodeId, Op, Order,
    PathId, Pfn, TaskId, TaskSpec, Trace,
};

/// The machine, as a tag type.
#[derive(Clone, Copy, Debug)]
pub struct Uni;

impl Arch for Uni {
    type Spin = UniSpin;
    type AtomicU8 = UniAtomic<u8>;
    type AtomicU32 = UniAtomic<u32>;
    type AtomicU64 = UniAtomic<u64>;
    type AtomicI64 = UniAtomic<i64>;
    type OwnedI8 = UniOwned<i8>;

    #[inline]
    fn cpu() -> CpuId {
        machine::cpu()
    }
    fn cpus_possible() -> usize {
        machine::with(|m| m.cpus.borrow().len())
    }
    fn node_of(cpu: CpuId) -> NodeId {
        machine::with(|m| m.cpus.borrow()[cpu.index()].node)
    }
    fn online(mask: &mut CpuMask) {
        *mask = CpuMask::EMPTY;
        machine::with(|m| {
            for (at, cpu) in m.cpus.borrow().iter().enumerate() {
                if cpu.online {
                    mask.insert(CpuId::new(at));
                }
            }
        });
    }
    fn is_online(cpu: CpuId) -> bool {
        machine::with(|m| m.cpus.borrow()[cpu.index()].online)
    }
    fn preempt_disable() {
        machine::here(|cpu| cpu.preempt += 1);
    }
    fn preempt_enable() {
        machine::here(|cpu| {
            expect(cpu.preempt > 0, "preemption enabled without having been disabled");
            cpu.preempt = cpu.preempt.saturating_sub(1);
            expect(cpu.preempt > 0 || cpu.held.is_empty(), "preemption enabled under a lock");
        });
    }
    fn irq_save() -> IrqState {
        machine::here(|cpu| IrqState(core::mem::replace(&mut cpu.irqs_on, false)))
    }
    fn irq_restore(state: IrqState) {
        machine::here(|cpu| {
            expect(!cpu.irqs_on, "interrupt state restored with interrupts on");
            cpu.irqs_on = state.0;
        });
    }
    fn in_interrupt() -> bool {
        machine::here(|cpu| cpu.in_interrupt)
    }
    fn ipi_send(cpu: CpuId, reason: Ipi) {
        machine::with(|m| m.ipis.borrow_mut().push_back((cpu, reason)));
    }
    fn now_ns() -> u64 {
        machine::with(|m| m.now_ns.get())
    }
    fn hz() -> u32 {
        machine::with(|m| m.hz.get())
    }
    fn timer_arm(deadline_ns: u64) {
        machine::here(|cpu| cpu.timer = Some(deadline_ns));
    }
    fn timer_cancel() {
        machine::here(|cpu| cpu.timer = None);
    }
    fn current() -> TaskId {
        machine::here(|cpu| cpu.task)
    }
    fn park() {
        machine::park();
    }
    fn unpark(task: TaskId) {
        machine::with(|m| m.tokens.borrow_mut().insert(task));
    }
    fn is_running(task: TaskId) -> bool {
        machine::with(|m| m.cpus.borrow().iter().any(|cpu| cpu.task == task))
    }
    fn spawn(spec: TaskSpec) -> TaskId {
        machine::spawn(spec)
    }
    fn relax() {}
    fn cond_resched() {
        machine::here(|cpu| assert!(cpu.preempt == 0, "cond_resched while atomic"));
    }
    fn user(ns: u64) {
        machine::here(|cpu| assert!(cpu.preempt == 0 && cpu.irqs_on, "user time while atomic"));
        machine::advance(ns);
    }
    fn cpu_offline(cpu: CpuId) -> Result<(), HotplugError> {
        machine::hotplug(cpu, false)
    }
    fn cpu_online(cpu: CpuId) -> Result<(), HotplugError> {
        machine::hotplug(cpu, true)
    }
    fn fail_alloc() -> bool {
        machine::fail_alloc()
    }
    fn touch(line: Line, access: Access) {
        machine::touch(line, access);
    }
    #[inline]
    fn work(op: Op, count: u32) {
        machine::work(op, count);
    }
    fn trace(event: Trace) {
        machine::trace(event);
    }
    fn span_enter(func: Func) -> PathId {
        machine::here(|cpu| {
            cpu.path.push(func);
            PathId(cpu.path.len() as u32 - 1)
        })
    }
    fn span_exit(path: PathId) {
        machine::here(|cpu| {
            expect(cpu.path.len() == path.0 as usize + 1, "spans end in the wrong order");
            cpu.path.pop();
        });
    }
    fn clear_block(pfn: Pfn, order: Order) {
        machine::work(Op::ClearPage, order.pages() as u32);
        machine::with(|m| {
            let mut stamps = m.stamps.borrow_mut();
            for at in 0..order.pages() {
                stamps.remove(&pfn.offset(at));
            }
        });
    }
    fn write_stamp(pfn: Pfn, stamp: u64) {
        machine::with(|m| m.stamps.borrow_mut().insert(pfn, stamp));
    }
    fn read_stamp(pfn: Pfn) -> u64 {
        machine::with(|m| m.stamps.borrow().get(&pfn).copied().unwrap_or(0))
    }
}
