//! The simulated machine as the memory manager sees it.

use crate::atomics::{SimAtomic, SimOwnedI8, SimOwnedI64};
use crate::engine::Engine;
use crate::engine::context::{with, with_any};
use crate::heap::NEVER;
use crate::hotplug;
use crate::irq::{self, at_turn, at_turn_near};
use crate::park;
use crate::sleeping;
use crate::spin::{SimOsq, SimSpin};
use crate::task::TaskState;
use crate::tlbs::Broadcasts;
use mmscale_arch::{
    Access, Asid, Broadcast, Cpu, CpuId, CpuMask, Func, HotplugError, IoBusy, IoDone, Ipi,
    IrqState, Line, LockClass, LockHold, Machine, NodeId, Op, Order, PageEvent, PageIo, PathId,
    Pfn, TaskId, TaskSpec, Trace, Translation, VmaRange, Vpn, Walked,
};

/// The tag of the simulated machine that runs on this host thread.
///
/// Its functions work inside [`crate::run`] only. Locks and atomics made on it may also be used
/// before and after a run, as plain data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sim;

// SAFETY: all CPUs run on one host thread, and a task moves to another CPU only where preemption is
// on.
unsafe impl Cpu for Sim {
    type Spin = SimSpin;
    type AtomicU8 = SimAtomic<u8>;
    type AtomicU32 = SimAtomic<u32>;
    type AtomicU64 = SimAtomic<u64>;
    type AtomicI64 = SimAtomic<i64>;
    type OwnedI8 = SimOwnedI8;
    type OwnedI64 = SimOwnedI64;

    #[inline]
    fn cpu() -> CpuId {
        with_any(|engine| engine.cpu_id()).unwrap_or(CpuId::new(0))
    }
    #[inline]
    fn cpus_possible() -> usize {
        with(|engine| engine.cpus.len())
    }
    #[inline]
    fn node_of(cpu: CpuId) -> NodeId {
        NodeId::new(with(|engine| engine.distances.node_of(cpu.index())))
    }
    fn core_of(cpu: CpuId) -> usize {
        with(|engine| engine.distances.core_of(cpu.index()))
    }
    fn cluster_of(cpu: CpuId) -> usize {
        with(|engine| engine.distances.cluster_of(cpu.index()))
    }
    fn online(mask: &mut CpuMask) {
        at_turn(|engine| mask.clone_from(&engine.online));
    }
    #[inline]
    fn is_online(cpu: CpuId) -> bool {
        at_turn(|engine| engine.online.contains(cpu))
    }

    #[inline]
    fn preempt_disable() {
        irq::preempt_disable();
    }
    #[inline]
    fn preempt_enable() {
        irq::preempt_enable();
    }
    #[inline]
    fn irq_save() -> IrqState {
        irq::save()
    }
    #[inline]
    fn irq_restore(state: IrqState) {
        irq::restore(state);
    }
    fn unpark(task: TaskId) {
        park::unpark(task);
    }
    fn relax() {
        irq::relax();
    }
    fn request_drain(cpu: CpuId) -> bool {
        Self::ipi_send(cpu, Ipi::DrainPages);
        true
    }
    fn seed() -> u64 {
        with(|engine| engine.seed)
    }
    #[inline]
    fn fail_alloc() -> bool {
        crate::noise::fail_alloc()
    }

    #[inline]
    fn touch(line: Line, access: Access) {
        let at_turn_only = matches!(line, Line::Percpu(_) | Line::EachPercpu(_));
        if access == Access::Peek || at_turn_only {
            irq::charge(at_turn(|engine| engine.touch(line, access)));
        } else {
            irq::charge_of(|engine| engine.touch(line, access));
        }
    }
    #[inline]
    fn work(op: Op, count: u32) {
        irq::work(op, count);
    }
    #[inline]
    fn trace(event: Trace) {
        with(|engine| {
            if engine.traced >> event.group() as u16 & 1 != 0 {
                engine.trace(&event);
            }
        });
    }
    #[inline]
    fn span_enter(func: Func) -> PathId {
        with(|engine| {
            let before = engine.cpu().path;
            let path = engine.stats.child(before, func);
            engine.go_to_path(path);
            let now_ps = engine.cpu().clock;
            engine.stats.enter(path, now_ps);
            PathId(before)
        })
    }
    #[inline]
    fn span_exit(path: PathId) {
        // While a panic unwinds the stack the path stays, for the message.
        if !std::thread::panicking() {
            with(|engine| engine.go_to_path(path.0));
        }
    }
}

// SAFETY: each task has its own number, and its CPU knows which task it runs.
unsafe impl Machine for Sim {
    type Osq = SimOsq;

    #[inline]
    fn in_interrupt() -> bool {
        with(|engine| engine.cpu().in_irq)
    }

    fn ipi_send(cpu: CpuId, reason: Ipi) {
        irq::send(cpu, reason);
    }
    #[inline]
    fn now_ns() -> u64 {
        with_any(|engine| engine.cpu().clock / 1000).unwrap_or(0)
    }
    #[inline]
    fn hz() -> u32 {
        with(|engine| engine.hz)
    }
    fn timer_arm(deadline_ns: u64) {
        irq::set_timer(deadline_ns.saturating_mul(1000).min(NEVER - 1));
    }
    fn timer_cancel() {
        irq::set_timer(NEVER);
    }

    #[inline]
    fn current() -> TaskId {
        TaskId::new(with(|engine| engine.cpu().current as usize))
    }
    fn park() {
        park::park();
    }
    fn is_running(task: TaskId) -> bool {
        at_turn(|engine| engine.tasks[task.index()].state == TaskState::Running)
    }
    fn spawn(spec: TaskSpec) -> TaskId {
        park::spawn(spec)
    }
    #[inline]
    fn cond_resched() {
        irq::cond_resched();
    }

    fn need_resched() -> bool {
        at_turn(|engine| engine.cpu().need_resched)
    }
    #[inline]
    fn user(ns: u64) {
        irq::user(ns.saturating_mul(1000));
    }
    #[inline]
    fn wait_clock() -> u64 {
        sleeping::clock_ps()
    }
    #[inline]
    fn lock_taken(class: LockClass, since: Option<u64>) -> LockHold {
        sleeping::taken(class, since)
    }
    #[inline]
    fn lock_released(hold: LockHold) {
        sleeping::released(hold);
    }
    fn cpu_offline(cpu: CpuId) -> Result<(), HotplugError> {
        hotplug::offline(cpu)
    }
    fn cpu_online(cpu: CpuId) -> Result<(), HotplugError> {
        hotplug::online(cpu)
    }

    fn clear_block(pfn: Pfn, order: Order) {
        let cost = at_turn(|engine| {
            engine.check_use(pfn, order);
            engine.clear(pfn, order)
        });
        irq::charge(cost);
        Self::trace(Trace::Page(PageEvent::Clear { ns: (cost / 1000) as u32 }));
    }
    fn copy_page(from: Pfn, to: Pfn) {
        irq::charge(at_turn(|engine| {
            engine.check_use(from, Order::ZERO);
            engine.check_use(to, Order::ZERO);
            engine.copy(from, to)
        }));
    }
    fn write_stamp(pfn: Pfn, stamp: u64) {
        with(|engine| {
            engine.check_use(pfn, Order::ZERO);
            engine.memory.write_stamp(pfn, stamp);
        });
    }
    fn read_stamp(pfn: Pfn) -> u64 {
        with(|engine| {
            engine.check_use(pfn, Order::ZERO);
            engine.memory.read_stamp(pfn)
        })
    }

    fn is_zero(pfn: Pfn) -> bool {
        Self::read_stamp(pfn) == 0
    }
    fn io_submit(io: PageIo) -> Result<(), IoBusy> {
        at_turn(|engine| engine.io_submit(io))
    }
    fn io_done() -> Option<IoDone> {
        at_turn(Engine::io_done)
    }
    fn io_now(io: PageIo) -> bool {
        at_turn(|engine| engine.io_now(io))
    }

    #[inline]
    fn table_load(pfn: Pfn, index: usize) -> u64 {
        with(|engine| engine.tables.load(pfn, index))
    }
    #[inline]
    fn table_store(pfn: Pfn, index: usize, value: u64) {
        with(|engine| engine.table_store(pfn, index, value));
    }
    fn table_peek(pfn: Pfn, index: usize) -> u64 {
        at_turn(|engine| engine.table_now(pfn, index))
    }
    fn table_scan(pfn: Pfn, indices: std::ops::Range<usize>) -> Option<(usize, u64)> {
        at_turn(|engine| engine.table_scan(pfn, indices.clone()))
    }
    #[inline]
    fn table_walk(root: Pfn, path: &[usize], down: impl Fn(u64) -> Option<Pfn>) -> Walked {
        at_turn_near(
            |engine| engine.tables.address(root),
            |engine| engine.table_walk(root, path, &down),
        )
    }
    fn table_swap(pfn: Pfn, index: usize, value: u64) -> u64 {
        at_turn(|engine| engine.tables.replace(pfn, index, value))
    }
    fn table_compare_exchange(pfn: Pfn, index: usize, current: u64, new: u64) -> Result<u64, u64> {
        at_turn(|engine| engine.table_exchange(pfn, index, current, new))
    }
    fn table_drop(pfn: Pfn) {
        with(|engine| engine.tables.clear(pfn, Order::ZERO));
    }
    fn tlb_load(asid: Option<Asid>) {
        with(|engine| engine.tlbs.load(engine.cpus.at(), asid));
    }
    #[inline]
    fn tlb_lookup(asid: Asid, page: Vpn) -> Option<Translation> {
        if with(|engine| engine.tlbs.is_shared(asid)) {
            return at_turn(|engine| engine.tlb_lookup(asid, page));
        }
        with(|engine| engine.tlb_lookup(asid, page))
    }
    fn tlb_fill(asid: Asid, page: Vpn, translation: Translation) {
        with(|engine| engine.tlbs.fill(engine.cpus.at(), asid, page, translation));
    }
    fn tlb_flush_local(asid: Asid, range: Option<VmaRange>) {
        with(|engine| engine.tlbs.flush(engine.cpus.at(), asid, range));
    }
    #[inline]
    fn tlb_broadcast() -> Option<Broadcast> {
        let broadcast: Broadcast = |asid, range| {
            irq::charge(at_turn(|engine| engine.tlb_broadcast(asid, range)));
        };
        with(|engine| engine.tlbs.broadcasts() != Broadcasts::None).then_some(broadcast)
    }
    #[inline]
    fn tlb_broadcast_spaces() -> Option<u32> {
        with(|engine| match engine.tlbs.broadcasts() {
            Broadcasts::None | Broadcasts::All => None,
            Broadcasts::Some => Some(engine.tlb_broadcast_spaces),
        })
    }
}

/// Returns the host memory, in bytes, of the running machine's page-table words.
pub fn table_host_bytes() -> usize {
    with(|engine| engine.tables.host_bytes())
}
