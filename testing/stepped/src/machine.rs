//! The machine's state, and the functions with which tests change it.

use crate::device::Device;
use core::cell::{Cell, RefCell};
use mmscale_arch::{
    Access, Asid, Callbacks, CpuId, Func, HotplugError, Ipi, Line, LockClass, NodeId, Op, Pfn,
    SoftTlb, TaskId, TaskSpec, Trace,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;

/// One CPU.
pub(crate) struct CpuState {
    pub(crate) online: bool,
    pub(crate) node: NodeId,
    pub(crate) irqs_on: bool,
    pub(crate) in_interrupt: bool,
    pub(crate) preempt: u32,
    pub(crate) need_resched: bool,
    pub(crate) timer: Option<u64>,
    pub(crate) task: TaskId,
    pub(crate) path: Vec<Func>,
    pub(crate) tlb: SoftTlb,
    /// The address space whose translations it uses.
    pub(crate) asid: Option<Asid>,
    /// Spin locks held, in the order they were taken.
    pub(crate) held: Vec<(LockClass, u32)>,
}

/// The whole machine.
pub(crate) struct Machine {
    pub(crate) cpus: RefCell<Vec<CpuState>>,
    pub(crate) here: Cell<usize>,
    pub(crate) now_ns: Cell<u64>,
    pub(crate) hz: Cell<u32>,
    pub(crate) ipis: RefCell<VecDeque<(CpuId, Ipi)>>,
    pub(crate) tokens: RefCell<BTreeSet<TaskId>>,
    pub(crate) stamps: RefCell<BTreeMap<Pfn, u64>>,
    pub(crate) tables: RefCell<BTreeMap<Pfn, Box<[u64; 512]>>>,
    pub(crate) broadcast: Cell<bool>,
    pub(crate) broadcast_spaces: Cell<Option<u32>>,
    pub(crate) device: RefCell<Device>,
    on_park: RefCell<Option<Rc<dyn Fn()>>>,
    on_relax: RefCell<Option<Rc<dyn Fn()>>>,
    spawned: RefCell<Vec<(TaskId, TaskSpec)>>,
    tasks: Cell<usize>,
    locks: Cell<u32>,
    recording: Cell<bool>,
    failures: Cell<u32>,
    /// The number of allocations that succeed before the first failure.
    before_failure: Cell<u32>,
    /// A function to run in the middle of an operation, and the number of steps before it.
    step: RefCell<Option<Box<dyn FnOnce()>>>,
    before_step: Cell<u32>,
    resched_points: Cell<u64>,
    /// The only operation whose steps count.
    step_of: Cell<Option<Op>>,
    traces: RefCell<Vec<(CpuId, Trace)>>,
    touches: RefCell<Vec<(Line, Access)>>,
    work: [Cell<u64>; Op::ALL.len()],
    taken: [Cell<u64>; LockClass::ALL.len()],
}

impl Machine {
    fn new() -> Self {
        Self {
            cpus: RefCell::new(vec![CpuState::new(0)]),
            here: Cell::new(0),
            now_ns: Cell::new(0),
            hz: Cell::new(1000),
            ipis: RefCell::default(),
            tokens: RefCell::default(),
            stamps: RefCell::default(),
            tables: RefCell::default(),
            broadcast: Cell::new(false),
            broadcast_spaces: Cell::new(None),
            device: RefCell::default(),
            on_park: RefCell::default(),
            on_relax: RefCell::default(),
            spawned: RefCell::default(),
            tasks: Cell::new(1),
            locks: Cell::new(0),
            recording: Cell::new(false),
            failures: Cell::new(0),
            before_failure: Cell::new(0),
            step: RefCell::default(),
            before_step: Cell::new(0),
            resched_points: Cell::new(0),
            step_of: Cell::new(None),
            traces: RefCell::default(),
            touches: RefCell::default(),
            work: [const { Cell::new(0) }; Op::ALL.len()],
            taken: [const { Cell::new(0) }; LockClass::ALL.len()],
        }
    }
}

impl CpuState {
    fn new(cpu: usize) -> Self {
        Self {
            online: true,
            node: NodeId::new(0),
            irqs_on: true,
            in_interrupt: false,
            preempt: 0,
            need_resched: false,
            timer: None,
            task: TaskId::new(cpu),
            path: Vec::new(),
            tlb: SoftTlb::EMPTY,
            asid: None,
            held: Vec::new(),
        }
    }
}

thread_local! {
    static MACHINE: Machine = Machine::new();
}

#[inline]
pub(crate) fn with<R>(f: impl FnOnce(&Machine) -> R) -> R {
    MACHINE.with(f)
}

/// Returns the state of the current CPU.
#[inline]
pub(crate) fn here<R>(f: impl FnOnce(&mut CpuState) -> R) -> R {
    MACHINE.with(|m| f(&mut m.cpus.borrow_mut()[m.here.get()]))
}

#[inline]
pub(crate) fn cpu() -> CpuId {
    MACHINE.with(|m| CpuId::new(m.here.get()))
}

/// Panics unless `holds`; silent while a panic unwinds through guards, so that the first panic is
/// the one that is reported.
#[inline]
pub(crate) fn expect(holds: bool, message: &str) {
    assert!(holds || std::thread::panicking(), "{message}");
}

pub(crate) fn next_lock() -> u32 {
    with(|m| m.locks.replace(m.locks.get() + 1))
}

pub(crate) fn count_lock(class: LockClass) {
    with(|m| m.taken[class as usize].set(m.taken[class as usize].get() + 1));
}

pub(crate) fn park() {
    let task = here(|cpu| {
        assert!(!cpu.in_interrupt && cpu.preempt == 0 && cpu.irqs_on, "parked while atomic");
        cpu.task
    });
    let woken = with(|m| m.tokens.borrow_mut().remove(&task));
    let hook = with(|m| m.on_park.borrow().clone());
    let woken = match hook {
        Some(hook) if !woken => {
            hook();
            with(|m| m.tokens.borrow_mut().remove(&task))
        }
        _ => woken,
    };
    assert!(woken, "task {} parked without a token: it would sleep for ever", task.index());
}

pub(crate) fn spawn(spec: TaskSpec) -> TaskId {
    with(|m| {
        let task = TaskId::new(m.tasks.replace(m.tasks.get() + 1));
        m.spawned.borrow_mut().push((task, spec));
        task
    })
}

#[inline]
pub(crate) fn work(op: Op, count: u32) {
    with(|m| {
        let cell = &m.work[op as usize];
        cell.set(cell.get() + u64::from(count));
    });
    let due = with(|m| match m.before_step.get() {
        _ if m.step_of.get().is_some_and(|of| of != op) => None,
        0 => m.step.borrow_mut().take(),
        left => {
            m.before_step.set(left - 1);
            None
        }
    });
    if let Some(happen) = due {
        happen();
    }
}

/// Runs `happen` once, after `skip` steps of work: in the middle of what the caller does next. A
/// step is any call of [`Cpu::work`](mmscale_arch::Cpu::work).
pub fn at_step(skip: u32, happen: impl FnOnce() + 'static) {
    with(|m| {
        m.before_step.set(skip);
        m.step_of.set(None);
        *m.step.borrow_mut() = Some(Box::new(happen));
    });
}

/// Runs `happen` once, at the next `op`.
pub fn at_op(op: Op, happen: impl FnOnce() + 'static) {
    at_step(0, happen);
    with(|m| m.step_of.set(Some(op)));
}

/// Cancels [`at_step`]; returns whether it had not run yet.
pub fn cancel_step() -> bool {
    with(|m| m.step.borrow_mut().take()).is_some()
}

pub(crate) fn touch(line: Line, access: Access) {
    with(|m| {
        if m.recording.get() {
            m.touches.borrow_mut().push((line, access));
        }
    });
}

pub(crate) fn trace(event: Trace) {
    with(|m| {
        if m.recording.get() {
            m.traces.borrow_mut().push((CpuId::new(m.here.get()), event));
        }
    });
}

/// Sets the hook for a task that parks without an unpark, until [`boot`]: `hook` runs on the task's
/// CPU, and must cause the unpark.
pub fn on_park(hook: impl Fn() + 'static) {
    with(|m| *m.on_park.borrow_mut() = Some(Rc::new(hook)));
}

/// Sets the hook for a CPU that spins for another one, until [`boot`]: `hook` does the other CPU's
/// part, and returns on the same CPU.
pub fn on_relax(hook: impl Fn() + 'static) {
    with(|m| *m.on_relax.borrow_mut() = Some(Rc::new(hook)));
}

pub(crate) fn relax() {
    let hook = with(|m| m.on_relax.borrow().clone());
    hook.into_iter().for_each(|hook| hook());
}

/// A hotplug operation: the mask changes; the test calls the callbacks itself.
pub(crate) fn hotplug(cpu: CpuId, online: bool) -> Result<(), HotplugError> {
    with(|m| {
        let mut cpus = m.cpus.borrow_mut();
        let left = cpus.iter().filter(|cpu| cpu.online).count();
        let state = cpus.get_mut(cpu.index()).ok_or(HotplugError::NoSuchCpu)?;
        if state.online == online {
            return Err(HotplugError::NotNow);
        }
        if !online && left == 1 {
            return Err(HotplugError::LastCpu);
        }
        state.online = online;
        Ok(())
    })
}

pub(crate) fn fail_alloc() -> bool {
    with(|m| {
        if m.failures.get() > 0 && m.before_failure.get() > 0 {
            m.before_failure.set(m.before_failure.get() - 1);
            return false;
        }
        let left = m.failures.get();
        m.failures.set(left.saturating_sub(1));
        left > 0
    })
}

/// Makes the next `count` allocations fail.
pub fn fail_allocs(count: u32) {
    with(|m| {
        m.failures.set(count);
        m.before_failure.set(0);
    });
}

/// Returns the number of allocations that are still to fail.
pub fn failures_left() -> u32 {
    with(|m| m.failures.get())
}

/// Makes one allocation fail, after `skip` successful ones.
pub fn fail_alloc_after(skip: u32) {
    with(|m| {
        m.failures.set(1);
        m.before_failure.set(skip);
    });
}

/// Resets the machine: `cpus` CPUs, all online on node 0, `hz` ticks a second, time 0, nothing
/// recorded. The caller is on CPU 0.
pub fn boot(cpus: usize, hz: u32) {
    assert!(cpus > 0 && hz > 0, "a machine needs a CPU and a tick");
    with(|m| {
        *m.cpus.borrow_mut() = (0..cpus).map(CpuState::new).collect();
        m.here.set(0);
        m.now_ns.set(0);
        m.hz.set(hz);
        m.ipis.borrow_mut().clear();
        m.tokens.borrow_mut().clear();
        m.stamps.borrow_mut().clear();
        m.tables.borrow_mut().clear();
        m.broadcast.set(false);
        m.broadcast_spaces.set(None);
        *m.device.borrow_mut() = Device::default();
        *m.on_park.borrow_mut() = None;
        *m.on_relax.borrow_mut() = None;
        m.spawned.borrow_mut().clear();
        m.tasks.set(cpus);
        m.recording.set(false);
        m.failures.set(0);
        m.resched_points.set(0);
        *m.step.borrow_mut() = None;
        m.traces.borrow_mut().clear();
        m.touches.borrow_mut().clear();
        m.work.iter().chain(&m.taken).for_each(|count| count.set(0));
    });
}

/// Puts the caller on CPU `cpu`. Locks that the last CPU holds stay held.
pub fn set_cpu(cpu: usize) {
    with(|m| {
        assert!(cpu < m.cpus.borrow().len(), "there is no cpu{cpu}");
        m.here.set(cpu);
    });
}

/// Sets how many address spaces can have their translations invalidated by a broadcast; `None`:
/// all.
pub fn set_broadcast_spaces(spaces: Option<u32>) {
    with(|m| m.broadcast_spaces.set(spaces));
}

/// Sets whether translations of all CPUs can be invalidated by a broadcast; not reset by [`boot`].
pub fn set_broadcast(broadcast: bool) {
    with(|m| m.broadcast.set(broadcast));
}

/// Returns the number of translations in the TLB of CPU `cpu`.
pub fn tlb_len(cpu: usize) -> usize {
    with(|m| m.cpus.borrow()[cpu].tlb.len())
}

/// Returns the number of frames that are page tables or otherwise hold words of mm's own.
pub fn table_count() -> usize {
    with(|m| m.tables.borrow().len())
}

/// Calls `f` with entry `index` of the table at `pfn`.
pub(crate) fn entry<R>(pfn: Pfn, index: usize, f: impl FnOnce(&mut u64) -> R) -> R {
    with(|m| {
        let mut tables = m.tables.borrow_mut();
        f(&mut tables.entry(pfn).or_insert_with(|| Box::new([0; 512]))[index])
    })
}

/// Puts CPU `cpu` on memory node `node`.
pub fn set_node(cpu: usize, node: usize) {
    with(|m| m.cpus.borrow_mut()[cpu].node = NodeId::new(node));
}

/// Adds CPU `cpu` to the online mask or removes it, without callbacks.
pub fn set_online(cpu: usize, online: bool) {
    with(|m| m.cpus.borrow_mut()[cpu].online = online);
}

/// Makes `task` the running task of the current CPU.
pub fn set_task(task: TaskId) {
    here(|cpu| cpu.task = task);
}

/// Sets whether CPU `cpu` must switch tasks.
pub fn set_need_resched(cpu: usize, need_resched: bool) {
    with(|m| m.cpus.borrow_mut()[cpu].need_resched = need_resched);
}

/// Advances the clock by `ns`. Timers do not expire on their own.
pub fn advance(ns: u64) {
    with(|m| m.now_ns.set(m.now_ns.get() + ns));
}

/// Sets the clock to `now_ns`, which must not be in the past.
pub fn set_clock(now_ns: u64) {
    with(|m| {
        assert!(now_ns >= m.now_ns.get(), "the clock never goes back");
        m.now_ns.set(now_ns);
    });
}

/// Returns the deadline of CPU `cpu`'s timer, in ns.
pub fn timer_of(cpu: usize) -> Option<u64> {
    with(|m| m.cpus.borrow()[cpu].timer)
}

/// Disarms the timer of the current CPU; returns its deadline in ns.
pub fn take_timer() -> Option<u64> {
    here(|cpu| cpu.timer.take())
}

/// Returns the armed timer that expires first: its CPU and its deadline in ns. Ties: the lowest
/// CPU.
pub fn earliest_timer() -> Option<(CpuId, u64)> {
    with(|m| {
        let cpus = m.cpus.borrow();
        let armed = cpus.iter().enumerate().filter_map(|(at, cpu)| Some((cpu.timer?, at)));
        armed.min().map(|(deadline, at)| (CpuId::new(at), deadline))
    })
}

/// Runs `f` as an interrupt of the current CPU, whose interrupts must be on.
pub fn interrupt<R>(f: impl FnOnce() -> R) -> R {
    here(|cpu| {
        assert!(cpu.irqs_on && !cpu.in_interrupt, "an interrupt came with interrupts off");
        cpu.irqs_on = false;
        cpu.in_interrupt = true;
        cpu.preempt += 1;
    });
    let held = here(|cpu| cpu.held.len());
    let result = f();
    here(|cpu| {
        assert!(!cpu.irqs_on && cpu.held.len() == held, "an interrupt left something behind");
        cpu.irqs_on = true;
        cpu.in_interrupt = false;
        cpu.preempt -= 1;
    });
    result
}

/// Waits for the earliest timer, and runs its callback on its CPU. Returns false if none is armed.
/// Afterwards the caller is on that CPU.
pub fn run_timer(callbacks: &impl Callbacks) -> bool {
    let Some((cpu, deadline)) = earliest_timer() else { return false };
    set_cpu(cpu.index());
    with(|m| m.now_ns.set(m.now_ns.get().max(deadline)));
    take_timer();
    interrupt(|| callbacks.timer());
    true
}

/// Delivers IPIs, including those sent meanwhile, each on its CPU, until none is left; returns how
/// many. Afterwards the caller is on its old CPU.
pub fn deliver_ipis(callbacks: &impl Callbacks) -> usize {
    let back = cpu().index();
    let mut delivered = 0;
    while let Some((cpu, reason)) = with(|m| m.ipis.borrow_mut().pop_front()) {
        set_cpu(cpu.index());
        interrupt(|| callbacks.ipi(reason));
        delivered += 1;
    }
    set_cpu(back);
    delivered
}

/// Removes and returns the IPIs that were sent and not delivered, oldest first.
pub fn take_ipis() -> Vec<(CpuId, Ipi)> {
    with(|m| m.ipis.borrow_mut().drain(..).collect())
}

/// Returns the tasks that were spawned since the last call; the test runs them itself.
pub fn take_spawned() -> Vec<(TaskId, TaskSpec)> {
    with(|m| m.spawned.take())
}

/// Returns the tasks that were unparked and have not parked since.
pub fn unpark_tokens() -> Vec<TaskId> {
    with(|m| m.tokens.borrow().iter().copied().collect())
}

/// Starts or stops recording trace events and touched lines; off after [`boot`].
pub fn record(on: bool) {
    with(|m| m.recording.set(on));
}

/// Returns the trace events recorded since the last call, with the CPU that emitted each.
pub fn take_traces() -> Vec<(CpuId, Trace)> {
    with(|m| m.traces.take())
}

/// Returns the lines touched since the last call, while recording.
pub fn take_touches() -> Vec<(Line, Access)> {
    with(|m| m.touches.take())
}

pub(crate) fn cond_resched() {
    assert!(preempt_depth() == 0, "cond_resched while atomic");
    with(|m| m.resched_points.set(m.resched_points.get() + 1));
}

/// Returns how often a task has offered its CPU to others since [`boot`].
pub fn resched_points() -> u64 {
    with(|m| m.resched_points.get())
}

/// Returns how often `op` was done since [`boot`].
pub fn work_count(op: Op) -> u64 {
    with(|m| m.work[op as usize].get())
}

/// Returns how often a lock of `class` was taken since [`boot`].
pub fn lock_acquisitions(class: LockClass) -> u64 {
    with(|m| m.taken[class as usize].get())
}

/// Returns the call path of the current CPU, outermost first.
pub fn current_path() -> Vec<Func> {
    here(|cpu| cpu.path.clone())
}

/// Panics unless every CPU is in the state after boot: interrupts and preemption on, no lock held,
/// no span open.
pub fn assert_quiet() {
    with(|m| {
        for (at, cpu) in m.cpus.borrow().iter().enumerate() {
            assert!(cpu.irqs_on && !cpu.in_interrupt, "cpu{at} has interrupts off");
            assert!(cpu.preempt == 0, "cpu{at} has preemption off, {} deep", cpu.preempt);
            assert!(cpu.held.is_empty(), "cpu{at} holds {:?}", cpu.held);
            assert!(cpu.path.is_empty(), "cpu{at} has open spans {:?}", cpu.path);
        }
    });
}

/// Returns the preemption count of the current CPU.
pub fn preempt_depth() -> u32 {
    here(|cpu| cpu.preempt)
}
