//! A machine on one host thread, for unit tests of mm: every CPU is stepped by hand.
//!
//! A test chooses the CPU that it is on ([`set_cpu`]), advances the time ([`advance`]), and
//! delivers interrupts and timers itself. Nothing happens on its own, so a test can stop at any
//! point between two steps of two CPUs. All state is thread-local: tests run in parallel.
//!
//! The machine checks what it sees: a spin lock that can never be taken (recursion, or a holder on
//! another CPU that cannot run), a wrong order of locks, a lock taken both in interrupts and with
//! interrupts on, unbalanced interrupt and preemption counts, parking while atomic.

mod atomic;
mod device;
mod io;
mod lock;
mod machine;

pub use atomic::{SteppedAtomic, SteppedOwned};
pub use io::{fail_ios, finish_ios, ios_in_flight, set_io_depth};
pub use lock::SteppedSpin;
pub use machine::{
    advance, assert_quiet, at_op, at_step, boot, cancel_step, current_path, deliver_ipis,
    earliest_timer, fail_alloc_after, fail_allocs, failures_left, interrupt, lock_acquisitions,
    on_park, on_relax, preempt_depth, record, resched_points, run_timer, set_broadcast,
    set_broadcast_spaces, set_clock, set_cpu, set_need_resched, set_node, set_online, set_task,
    table_count, take_ipis, take_spawned, take_timer, take_touches, take_traces, timer_of, tlb_len,
    unpark_tokens, work_count,
};

use machine::expect;
use mmscale_arch::sync::Osq;
use mmscale_arch::{
    Access, Asid, Broadcast, Cpu, CpuId, CpuMask, Func, HotplugError, IoBusy, IoDone, Ipi,
    IrqState, Line, Machine, NodeId, Op, Order, PageIo, PathId, Pfn, TaskId, TaskSpec, Trace,
    Translation, VmaRange, Vpn,
};

/// The machine, as a tag type.
#[derive(Clone, Copy, Debug)]
pub struct Stepped;

// SAFETY: all CPUs are steps of one thread, and the test chooses the one that runs.
unsafe impl Cpu for Stepped {
    type Spin = SteppedSpin;
    type AtomicU8 = SteppedAtomic<u8>;
    type AtomicU32 = SteppedAtomic<u32>;
    type AtomicU64 = SteppedAtomic<u64>;
    type AtomicI64 = SteppedAtomic<i64>;
    type OwnedI8 = SteppedOwned<i8>;
    type OwnedI64 = SteppedOwned<i64>;

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
    fn unpark(task: TaskId) {
        machine::with(|m| m.tokens.borrow_mut().insert(task));
    }
    fn relax() {
        machine::relax();
    }
    fn request_drain(cpu: CpuId) -> bool {
        Self::ipi_send(cpu, Ipi::DrainPages);
        true
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
}

// SAFETY: the test chooses the task that a CPU runs, on one thread.
unsafe impl Machine for Stepped {
    type Osq = Osq<Stepped>;

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
    fn is_running(task: TaskId) -> bool {
        machine::with(|m| m.cpus.borrow().iter().any(|cpu| cpu.task == task))
    }
    fn spawn(spec: TaskSpec) -> TaskId {
        machine::spawn(spec)
    }
    fn need_resched() -> bool {
        machine::here(|cpu| cpu.need_resched)
    }
    fn cond_resched() {
        machine::cond_resched();
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
    fn clear_block(pfn: Pfn, order: Order) {
        machine::work(Op::ClearPage, order.pages() as u32);
        machine::with(|m| {
            let (mut stamps, mut tables) = (m.stamps.borrow_mut(), m.tables.borrow_mut());
            for at in 0..order.pages() {
                stamps.remove(&pfn.offset(at));
                tables.remove(&pfn.offset(at));
            }
        });
    }
    fn copy_page(from: Pfn, to: Pfn) {
        machine::work(Op::CopyPage, 1);
        Self::write_stamp(to, Self::read_stamp(from));
    }
    fn write_stamp(pfn: Pfn, stamp: u64) {
        machine::with(|m| m.stamps.borrow_mut().insert(pfn, stamp));
    }
    fn read_stamp(pfn: Pfn) -> u64 {
        machine::with(|m| m.stamps.borrow().get(&pfn).copied().unwrap_or(0))
    }

    fn is_zero(pfn: Pfn) -> bool {
        Self::read_stamp(pfn) == 0
    }
    fn io_submit(io: PageIo) -> Result<(), IoBusy> {
        io::submit(io)
    }
    fn io_done() -> Option<IoDone> {
        io::done()
    }
    fn io_now(io: PageIo) -> bool {
        io::now(io)
    }

    fn table_load(pfn: Pfn, index: usize) -> u64 {
        machine::entry(pfn, index, |entry| *entry)
    }
    fn table_store(pfn: Pfn, index: usize, value: u64) {
        machine::entry(pfn, index, |entry| *entry = value);
    }
    fn table_peek(pfn: Pfn, index: usize) -> u64 {
        machine::entry(pfn, index, |entry| *entry)
    }
    fn table_swap(pfn: Pfn, index: usize, value: u64) -> u64 {
        machine::entry(pfn, index, |entry| core::mem::replace(entry, value))
    }
    fn table_compare_exchange(pfn: Pfn, index: usize, current: u64, new: u64) -> Result<u64, u64> {
        machine::entry(pfn, index, |entry| {
            if *entry == current { Ok(core::mem::replace(entry, new)) } else { Err(*entry) }
        })
    }
    fn table_drop(pfn: Pfn) {
        machine::with(|m| m.tables.borrow_mut().remove(&pfn));
    }
    fn tlb_load(asid: Option<Asid>) {
        machine::here(|cpu| cpu.asid = asid);
    }
    fn tlb_lookup(asid: Asid, page: Vpn) -> Option<Translation> {
        machine::here(|cpu| {
            let loaded = cpu.asid == Some(asid) || asid == Asid::KERNEL;
            assert!(!cpu.irqs_on && loaded, "a look at what is not loaded");
            cpu.tlb.lookup(asid, page).map(|found| found.translation)
        })
    }
    fn tlb_fill(asid: Asid, page: Vpn, translation: Translation) {
        machine::here(|cpu| {
            let loaded = cpu.asid == Some(asid) || asid == Asid::KERNEL;
            assert!(!cpu.irqs_on && loaded, "a walk of what is not loaded");
            cpu.tlb.fill(asid, page, translation);
        });
    }
    fn tlb_flush_local(asid: Asid, range: Option<VmaRange>) {
        machine::here(|cpu| cpu.tlb.flush(asid, range, |_| {}));
    }
    fn tlb_broadcast() -> Option<Broadcast> {
        let broadcast: Broadcast = |asid, range| {
            machine::with(|m| {
                let mut cpus = m.cpus.borrow_mut();
                cpus.iter_mut().for_each(|cpu| cpu.tlb.flush(asid, range, |_| {}));
            });
        };
        machine::with(|m| m.broadcast.get()).then_some(broadcast)
    }
    fn tlb_broadcast_spaces() -> Option<u32> {
        machine::with(|m| m.broadcast_spaces.get())
    }
}
