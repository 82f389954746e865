//! The machine's state: CPUs, their interrupts, their one task each.
//!
//! Shuttle runs all threads of a schedule on one host thread, so plain cells suffice; accesses to
//! them are no scheduling points. The state is made anew for every schedule.

use crate::memory::{Id, Memory};
use core::cell::{Cell, RefCell};
use mmscale_arch::{IoDirection, IoDone, Ipi, PageIo, Pfn, SoftTlb, TaskId};
use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::thread::{self, Thread};
use shuttle::{Config, Runner};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

/// Callbacks of a scenario, as a machine calls [`mmscale_arch::Callbacks`].
pub trait Hooks: Send + Sync {
    /// An interrupt from another CPU arrived.
    fn ipi(&self, _: Ipi) {}
    /// This CPU unparks a task, which may be its own.
    fn unpark(&self, _: TaskId) {}
    /// This CPU's task parks, and the CPU becomes idle.
    fn idle_enter(&self) {}
    /// This CPU's task resumes.
    fn idle_exit(&self) {}
}

/// The body of one CPU.
pub type CpuBody = Box<dyn FnOnce() + Send>;

pub(crate) struct CpuState {
    pub(crate) online: bool,
    pub(crate) irqs_on: bool,
    pub(crate) in_interrupt: bool,
    pub(crate) preempt: u32,
    pub(crate) need_resched: bool,
    pub(crate) pending: Vec<Ipi>,
    /// Whether the task runs and is not parked.
    pub(crate) runs: bool,
    /// Whether the task was unparked and has not parked since.
    woken: bool,
    pub(crate) tlb: SoftTlb,
    /// Requests to the swap device that have finished.
    pub(crate) finished: Vec<IoDone>,
    thread: Option<Thread>,
    /// The views of the CPUs that interrupt it or wake its task.
    inbox: Arc<Id>,
    /// Whether its body has ended: the CPU only takes interrupts then.
    ended: bool,
}

/// The entries of a page table.
pub(crate) struct Table {
    pub(crate) last: Box<[u64; 512]>,
    pub(crate) ids: BTreeMap<usize, Id>,
}

pub(crate) struct World {
    pub(crate) cpus: RefCell<Vec<CpuState>>,
    pub(crate) now_ns: Cell<u64>,
    pub(crate) step_ns: u64,
    pub(crate) memory: Memory,
    pub(crate) tables: RefCell<BTreeMap<Pfn, Table>>,
    /// Frames that were tables and are not cleared yet.
    pub(crate) freed_tables: RefCell<BTreeSet<Pfn>>,
    pub(crate) stamps: RefCell<BTreeMap<Pfn, u64>>,
    /// The contents of the blocks of the swap device.
    blocks: RefCell<BTreeMap<u32, u64>>,
    hooks: RefCell<Option<Arc<dyn Hooks>>>,
}

/// The seed of the schedules: a run that failed fails again.
const SEED: u64 = 1;

std::thread_local! {
    /// The memory of the check that is under way.
    static STRENGTH: Cell<Strength> = const { Cell::new(Strength::Strong) };
    static WORLD: RefCell<Option<World>> = const { RefCell::new(None) };
    /// Whether one CPU runs on its own, so that no order of its steps matters.
    static ALONE: Cell<bool> = const { Cell::new(true) };
    /// Whether CPUs take turns at accesses to page tables.
    static TURNS: Cell<bool> = const { Cell::new(false) };
}

/// Bytes of a CPU's stack; only touched pages of it take memory.
const STACK_BYTES: usize = 256 * 1024;

/// The step of the clock at each read, in ns: large enough that a few reads exceed every timeout in
/// mm.
const STEP_NS: u64 = 1_500_000;

/// Calls `f` with the machine's state; no other CPU may run in `f`.
pub(crate) fn with<R>(f: impl FnOnce(&World) -> R) -> R {
    WORLD.with_borrow(|world| f(world.as_ref().expect("a scenario begins with `run`")))
}

/// Calls `f` with the memory and the current CPU if memory is weak. Most scenarios have a strong
/// one and skip the look-up.
pub(crate) fn on_weak<R>(f: impl FnOnce(&Memory, usize) -> R) -> Option<R> {
    if STRENGTH.get() == Strength::Strong {
        return None;
    }
    with(|w| w.memory.is_weak().then(|| f(&w.memory, here())))
}

/// Returns the current CPU: that of the caller of [`run`], which is shuttle's task 0, is CPU 0.
pub(crate) fn here() -> usize {
    usize::from(shuttle::current::me()).saturating_sub(1)
}

pub(crate) fn on_here<R>(f: impl FnOnce(&mut CpuState) -> R) -> R {
    let here = here();
    with(|w| f(&mut w.cpus.borrow_mut()[here]))
}

/// Performs a request to the swap device immediately, and interrupts this CPU at its next point.
pub(crate) fn submit(io: PageIo) {
    transfer(io);
    on_here(|cpu| {
        cpu.finished.push(IoDone { io, failed: false });
        cpu.pending.push(Ipi::Block);
    });
}

/// Reads or writes a block.
pub(crate) fn transfer(io: PageIo) {
    point();
    with(|w| {
        let (mut stamps, mut blocks) = (w.stamps.borrow_mut(), w.blocks.borrow_mut());
        match io.direction {
            IoDirection::Write => {
                blocks.insert(io.block, stamps.get(&io.pfn).copied().unwrap_or(0));
            }
            IoDirection::Read => {
                stamps.insert(io.pfn, blocks.get(&io.block).copied().unwrap_or(0));
            }
        }
    });
}

pub(crate) fn hooks() -> Option<Arc<dyn Hooks>> {
    with(|w| w.hooks.borrow().clone())
}

/// Runs the pending interrupts of this CPU, if its interrupts are on.
pub(crate) fn deliver() {
    while let Some(reason) = on_here(|cpu| {
        let open = cpu.irqs_on && !cpu.in_interrupt && !cpu.pending.is_empty();
        open.then(|| cpu.pending.remove(0))
    }) {
        open_inbox();
        if let Some(hooks) = hooks() {
            interrupt(|| hooks.ipi(reason));
        }
    }
}

/// Makes this CPU see everything that was written before the interrupts and wake-ups sent to it.
fn open_inbox() {
    let inbox = on_here(|cpu| Arc::clone(&cpu.inbox));
    with(|w| w.memory.learn(here(), &inbox));
}

/// Makes `cpu` see, at its next interrupt or wake-up, everything that this CPU has written.
fn fill_inbox(cpu: usize) {
    let inbox = with(|w| w.cpus.borrow().get(cpu).map(|cpu| Arc::clone(&cpu.inbox)));
    if let Some(inbox) = inbox {
        with(|w| w.memory.teach(here(), &inbox));
    }
}

/// Lets another CPU run, in some schedules.
pub(crate) fn switch() {
    if !ALONE.get() {
        // Not `yield_now`, after which a straight schedule prefers other CPUs.
        thread::sleep(Duration::ZERO);
    }
}

/// The point before an access to what CPUs share: an interrupt may arrive, and another CPU may run.
pub(crate) fn step() {
    deliver();
    switch();
}

/// A point at which another CPU runs, if there is one: a straight schedule prefers others after it.
pub(crate) fn point() {
    deliver();
    thread::yield_now();
    deliver();
}

/// The point before an access to page tables or a TLB. In every other straight schedule the CPUs
/// take turns there. The others can stop a CPU in the middle of a walk for as long as another takes
/// to exit.
pub(crate) fn access() {
    if TURNS.get() { point() } else { step() }
}

/// Runs `f` as an interrupt of this CPU, whose interrupts are on.
pub fn interrupt<R>(f: impl FnOnce() -> R) -> R {
    on_here(|cpu| {
        assert!(cpu.irqs_on && !cpu.in_interrupt, "an interrupt came with interrupts off");
        (cpu.irqs_on, cpu.in_interrupt) = (false, true);
        cpu.preempt += 1;
    });
    let result = f();
    on_here(|cpu| {
        (cpu.irqs_on, cpu.in_interrupt) = (true, false);
        cpu.preempt -= 1;
    });
    result
}

pub(crate) fn park() {
    on_here(|cpu| assert!(cpu.preempt == 0 && cpu.irqs_on, "parked while atomic"));
    idle(true);
    thread::yield_now();
    loop {
        thread::park();
        if on_here(|cpu| core::mem::take(&mut cpu.woken)) {
            break;
        }
        // An interrupt wakes the CPU and not its task.
        deliver();
    }
    open_inbox();
    idle(false);
    deliver();
}

/// Records that this CPU's task parks or resumes.
fn idle(idle: bool) {
    if idle {
        deliver();
    }
    on_here(|cpu| cpu.runs = !idle);
    if let Some(hooks) = hooks() {
        interrupt(|| if idle { hooks.idle_enter() } else { hooks.idle_exit() });
    }
}

pub(crate) fn unpark(task: usize) {
    fill_inbox(task);
    with(|w| w.cpus.borrow_mut().get_mut(task).map(|cpu| cpu.woken = cpu.thread.is_some()));
    wake(task);
}

/// Wakes a CPU that is idle.
fn wake(cpu: usize) {
    let thread = with(|w| w.cpus.borrow().get(cpu).and_then(|cpu| cpu.thread.clone()));
    if let Some(thread) = thread {
        thread.unpark();
    }
}

/// Sets whether `cpu` must switch tasks.
pub fn set_need_resched(cpu: usize, need_resched: bool) {
    with(|w| w.cpus.borrow_mut()[cpu].need_resched = need_resched);
}

/// Adds `cpu` to the online mask or removes it.
pub fn set_online(cpu: usize, online: bool) {
    with(|w| w.cpus.borrow_mut()[cpu].online = online);
}

/// Runs a machine of `cpus` CPUs, all online; the caller is on CPU 0 at first. `make` builds the
/// objects of the scenario and returns the body of each CPU; then all bodies run to their ends.
pub fn run(cpus: usize, make: impl FnOnce() -> (Option<Arc<dyn Hooks>>, Vec<CpuBody>)) {
    let cpu = |_| CpuState {
        online: true,
        irqs_on: true,
        in_interrupt: false,
        preempt: 0,
        need_resched: false,
        pending: Vec::new(),
        runs: true,
        woken: false,
        tlb: SoftTlb::EMPTY,
        finished: Vec::new(),
        thread: None,
        inbox: Arc::default(),
        ended: false,
    };
    let world = World {
        cpus: RefCell::new((0..cpus).map(cpu).collect()),
        now_ns: Cell::new(0),
        step_ns: STEP_NS,
        memory: Memory::new(),
        tables: RefCell::default(),
        freed_tables: RefCell::default(),
        stamps: RefCell::default(),
        blocks: RefCell::default(),
        hooks: RefCell::new(None),
    };
    WORLD.set(Some(world));
    let (hooks, bodies) = make();
    assert_eq!(bodies.len(), cpus, "a body for each CPU");
    with(|w| *w.hooks.borrow_mut() = hooks);
    if STRENGTH.get() == Strength::Weak {
        with(|w| w.memory.weaken(cpus));
    }
    ALONE.set(false);
    let threads: Vec<_> = bodies
        .into_iter()
        .enumerate()
        .map(|(cpu, body)| thread::spawn(move || on_cpu(cpu, body)))
        .collect();
    threads.into_iter().for_each(|thread| thread.join().expect("a CPU runs to its end"));
    ALONE.set(true);
    with(|w| w.memory.settle());
}

fn on_cpu(cpu: usize, body: CpuBody) {
    assert_eq!(here(), cpu, "one machine for each schedule");
    on_here(|state| state.thread = Some(thread::current()));
    // An earlier wake-up has no task to wake.
    open_inbox();
    body();
    // The CPU is idle for good.
    idle(true);
    on_here(|state| state.ended = true);
    if have_all_ended() {
        (0..with(|w| w.cpus.borrow().len())).for_each(unpark);
    }
    while !have_all_ended() {
        thread::park();
        if on_here(|state| state.online) {
            deliver();
        }
    }
}

fn have_all_ended() -> bool {
    with(|w| w.cpus.borrow().iter().all(|cpu| cpu.ended))
}

/// Sends an interrupt to a CPU. It wakes one that is idle: other CPUs may wait for its answer.
pub(crate) fn send(cpu: usize, reason: Ipi) {
    fill_inbox(cpu);
    let idle = with(|w| {
        let target = &mut w.cpus.borrow_mut()[cpu];
        target.pending.push(reason);
        !target.runs
    });
    if idle {
        wake(cpu);
    }
}

/// Makes a body that calls `f`.
pub fn cpu_body(f: impl FnOnce() + Send + 'static) -> CpuBody {
    Box::new(f)
}

/// Returns the factor on the usual number of schedules.
fn depth() -> usize {
    let Ok(text) = std::env::var("MMSCALE_DEPTH") else { return 1 };
    let depth = text.parse().ok().filter(|&depth| depth > 0);
    depth.unwrap_or_else(|| panic!("MMSCALE_DEPTH is {text}: give a number above 0"))
}

/// A configuration with stacks that are large enough to build a whole memory manager.
fn roomy() -> Config {
    let mut config = Config::new();
    config.stack_size = STACK_BYTES;
    config
}

/// The memory model of a check.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Strength {
    /// All operations take effect in one order.
    Strong,
    /// Loads return old values where the orderings allow that.
    Weak,
}

/// Runs `scenario` under `schedules` random schedules, and as many with few switches: the same ones
/// in every run, unless `SHUTTLE_RANDOM_SEED` gives another seed. `MMSCALE_DEPTH` multiplies their
/// number. Memory is sequentially consistent, unless `MMSCALE_MEMORY` is `weak`.
///
/// # Panics
/// If the scenario panics under any of the schedules, if `MMSCALE_DEPTH` is no number above 0, or
/// if `MMSCALE_MEMORY` is set to anything but `weak`.
pub fn check(schedules: usize, scenario: impl Fn() + Send + Sync + 'static) {
    check_from(SEED, schedules, scenario);
}

/// Like [`check`], with a seed that has found a bug once.
///
/// # Panics
/// As [`check`].
pub fn check_from(seed: u64, schedules: usize, scenario: impl Fn() + Send + Sync + 'static) {
    let strength = match std::env::var("MMSCALE_MEMORY").as_deref() {
        Err(_) => Strength::Strong,
        Ok("weak") => Strength::Weak,
        Ok(other) => panic!("MMSCALE_MEMORY is {other}: it is `weak` or not set"),
    };
    check_on(strength, seed, schedules, scenario);
}

/// As [`check`], on weak memory: each schedule draws which of the values that a load may return it
/// returns.
///
/// # Panics
/// As [`check`].
pub fn check_weak(schedules: usize, scenario: impl Fn() + Send + Sync + 'static) {
    check_on(Strength::Weak, SEED, schedules, scenario);
}

/// Begins a schedule.
fn begin(strength: Strength) {
    STRENGTH.set(strength);
    ALONE.set(true);
}

fn check_on(
    strength: Strength,
    seed: u64,
    schedules: usize,
    scenario: impl Fn() + Send + Sync + 'static,
) {
    let schedules = schedules * depth();
    let scenario = Arc::new(scenario);
    let again = Arc::clone(&scenario);
    let tried = Tried::new("random", schedules);
    let random = RandomScheduler::new_from_seed(seed, schedules);
    let one_more = tried.counter();
    TURNS.set(false);
    Runner::new(random, roomy()).run(move || {
        one_more();
        begin(strength);
        scenario();
    });
    drop(tried);
    let tried = Tried::new("straight", schedules);
    let straight = PctScheduler::new_from_seed(seed, 3, schedules);
    let one_more = tried.counter();
    TURNS.set(false);
    Runner::new(straight, roomy()).run(move || {
        one_more();
        begin(strength);
        TURNS.set(!TURNS.get());
        again();
    });
}

/// Counts schedules, and reports the number of the one that failed.
struct Tried {
    kind: &'static str,
    schedules: usize,
    begun: Arc<AtomicUsize>,
}

impl Tried {
    fn new(kind: &'static str, schedules: usize) -> Self {
        Self { kind, schedules, begun: Arc::default() }
    }
    /// Returns the function that each schedule calls first. The count is no step of the model.
    fn counter(&self) -> impl Fn() + Send + Sync + 'static {
        let begun = Arc::clone(&self.begun);
        move || _ = begun.fetch_add(1, Relaxed)
    }
}

impl Drop for Tried {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let (nth, Self { kind, schedules, .. }) = (self.begun.load(Relaxed), self);
            // Not captured by the test harness: `cargo xtask planted` reads it.
            let told =
                writeln!(std::io::stderr(), "failed in {kind} schedule {nth} of {schedules}");
            // Without a standard error there is no reader either.
            told.unwrap_or_default();
        }
    }
}
