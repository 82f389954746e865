//! The machine's state: CPUs, their interrupts, their one task each.
//!
//! Shuttle runs all threads of a schedule on one thread of the host, so plain cells do; they are
//! no points of the schedule. The state is made anew for every schedule.

use crate::memory::{Id, Memory};
use core::cell::{Cell, RefCell};
use mmscale_arch::{IoDirection, IoDone, Ipi, PageIo, Pfn, SoftTlb};
use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::thread::{self, Thread};
use shuttle::{Config, Runner};
use std::collections::BTreeMap;
use std::io::Write as _;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// What a scenario wants to be told, as a machine tells [`mmscale_arch::Callbacks`].
pub trait Hooks: Send + Sync {
    /// An interrupt from another CPU arrived.
    fn ipi(&self, _: Ipi) {}
    /// This CPU's task parks, and leaves it idle.
    fn idle_enter(&self) {}
    /// This CPU's task goes on.
    fn idle_exit(&self) {}
}

/// The body of one CPU.
pub type CpuBody = Box<dyn FnOnce() + Send>;

pub(crate) struct CpuState {
    pub(crate) online: bool,
    pub(crate) irqs_on: bool,
    pub(crate) in_interrupt: bool,
    pub(crate) preempt: u32,
    pub(crate) pending: Vec<Ipi>,
    /// The task is on the CPU, not parked.
    pub(crate) runs: bool,
    pub(crate) tlb: SoftTlb,
    /// Requests to the swap device that have finished.
    pub(crate) finished: Vec<IoDone>,
    thread: Option<Thread>,
    /// The views of CPUs that interrupt it or wake its task.
    inbox: Arc<Id>,
    /// Its body has ended: it takes interrupts, and nothing else.
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
    pub(crate) stamps: RefCell<BTreeMap<Pfn, u64>>,
    /// What the blocks of the swap device hold.
    blocks: RefCell<BTreeMap<u32, u64>>,
    hooks: RefCell<Option<Arc<dyn Hooks>>>,
}

/// Where the schedules begin: a run that failed fails again.
const SEED: u64 = 1;

std::thread_local! {
    /// The memory of the check that is under way.
    static STRENGTH: Cell<Strength> = const { Cell::new(Strength::Strong) };
    static WORLD: RefCell<Option<Rc<World>>> = const { RefCell::new(None) };
}

shuttle::thread_local! {
    static HERE: Cell<usize> = Cell::new(0);
}

/// Bytes of a CPU's stack; only touched pages of it take memory.
const STACK_BYTES: usize = 256 * 1024;

/// How far the clock goes on with each reading, in ns: far enough that a few readings outlast
/// every patience in mm.
const STEP_NS: u64 = 1_500_000;

pub(crate) fn with<R>(f: impl FnOnce(&World) -> R) -> R {
    let world = WORLD.with(|world| world.borrow().clone());
    f(&world.expect("a scenario begins with `boot`"))
}

/// The CPU this runs on.
pub(crate) fn here() -> usize {
    HERE.with(Cell::get)
}

pub(crate) fn on_here<R>(f: impl FnOnce(&mut CpuState) -> R) -> R {
    let here = here();
    with(|w| f(&mut w.cpus.borrow_mut()[here]))
}

/// The swap device does what is asked at once, and interrupts this CPU at its next point.
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

/// Runs the pending interrupts of this CPU, if its interrupts are on.
pub(crate) fn deliver() {
    while let Some(reason) = on_here(|cpu| {
        let open = cpu.irqs_on && !cpu.in_interrupt && !cpu.pending.is_empty();
        open.then(|| cpu.pending.remove(0))
    }) {
        open_inbox();
        let hooks = with(|w| w.hooks.borrow().clone());
        if let Some(hooks) = hooks {
            interrupt(|| hooks.ipi(reason));
        }
    }
}

/// This CPU sees what was written before the interrupts and wake-ups that it was sent.
fn open_inbox() {
    let inbox = on_here(|cpu| Arc::clone(&cpu.inbox));
    with(|w| w.memory.learn(here(), &inbox));
}

/// `cpu` is going to see what this one has written.
fn fill_inbox(cpu: usize) {
    let inbox = with(|w| w.cpus.borrow().get(cpu).map(|cpu| Arc::clone(&cpu.inbox)));
    if let Some(inbox) = inbox {
        with(|w| w.memory.teach(here(), &inbox));
    }
}

/// A point at which another CPU may go on.
pub(crate) fn point() {
    deliver();
    thread::yield_now();
    deliver();
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
    thread::park();
    open_inbox();
    idle(false);
    deliver();
}

/// This CPU's task stops or goes on.
fn idle(idle: bool) {
    let hooks = with(|w| w.hooks.borrow().clone());
    if idle {
        deliver();
    }
    on_here(|cpu| cpu.runs = !idle);
    if let Some(hooks) = hooks {
        interrupt(|| if idle { hooks.idle_enter() } else { hooks.idle_exit() });
    }
}

pub(crate) fn unpark(task: usize) {
    fill_inbox(task);
    let thread = with(|w| w.cpus.borrow().get(task).and_then(|cpu| cpu.thread.clone()));
    if let Some(thread) = thread {
        thread.unpark();
    }
}

/// Takes `cpu` in or out of the online mask.
pub fn set_online(cpu: usize, online: bool) {
    with(|w| w.cpus.borrow_mut()[cpu].online = online);
}

/// A machine of `cpus` CPUs, all online; the caller is on CPU 0 for now. `make` builds what the
/// scenario is about, and says what each CPU runs; then they all run to their ends.
pub fn run(cpus: usize, make: impl FnOnce() -> (Option<Arc<dyn Hooks>>, Vec<CpuBody>)) {
    let cpu = |_| CpuState {
        online: true,
        irqs_on: true,
        in_interrupt: false,
        preempt: 0,
        pending: Vec::new(),
        runs: true,
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
        stamps: RefCell::default(),
        blocks: RefCell::default(),
        hooks: RefCell::new(None),
    };
    WORLD.with(|slot| *slot.borrow_mut() = Some(Rc::new(world)));
    HERE.with(|here| here.set(0));
    let (hooks, bodies) = make();
    assert_eq!(bodies.len(), cpus, "a body for each CPU");
    with(|w| *w.hooks.borrow_mut() = hooks);
    if STRENGTH.get() == Strength::Weak {
        with(|w| w.memory.weaken(cpus));
    }
    let threads: Vec<_> = bodies
        .into_iter()
        .enumerate()
        .map(|(cpu, body)| thread::spawn(move || on_cpu(cpu, body)))
        .collect();
    threads.into_iter().for_each(|thread| thread.join().expect("a CPU runs to its end"));
    with(|w| w.memory.settle());
}

fn on_cpu(cpu: usize, body: CpuBody) {
    HERE.with(|here| here.set(cpu));
    on_here(|state| state.thread = Some(thread::current()));
    // A wake-up that came before has no task to wake.
    open_inbox();
    body();
    // Nothing runs here any more.
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

/// An interrupt for a CPU. It wakes one whose body has ended: others may wait for its answer.
pub(crate) fn send(cpu: usize, reason: Ipi) {
    fill_inbox(cpu);
    let ended = with(|w| {
        let target = &mut w.cpus.borrow_mut()[cpu];
        target.pending.push(reason);
        target.ended
    });
    if ended {
        unpark(cpu);
    }
}

/// A body that does `f`.
pub fn cpu_body(f: impl FnOnce() + Send + 'static) -> CpuBody {
    Box::new(f)
}

/// How many times as many schedules as usual to try.
fn depth() -> usize {
    let Ok(text) = std::env::var("MMSCALE_DEPTH") else { return 1 };
    let depth = text.parse().ok().filter(|&depth| depth > 0);
    depth.unwrap_or_else(|| panic!("MMSCALE_DEPTH is {text}: give a number above 0"))
}

/// Stacks on which a whole memory manager can be built.
fn roomy() -> Config {
    let mut config = Config::new();
    config.stack_size = STACK_BYTES;
    config
}

/// How memory behaves.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Strength {
    /// All operations take effect in one order.
    Strong,
    /// Loads return old values where the orderings allow that.
    Weak,
}

/// Runs `scenario` under `schedules` random schedules, and as many with few switches: the same in
/// every run, unless `SHUTTLE_RANDOM_SEED` gives another seed. `MMSCALE_DEPTH` tries that many
/// times as many. Memory is sequentially consistent, unless `MMSCALE_MEMORY` is `weak`.
///
/// # Panics
/// Where the scenario does, under any of the schedules, where `MMSCALE_DEPTH` is no number above 0,
/// and where `MMSCALE_MEMORY` is anything but `weak`.
pub fn check(schedules: usize, scenario: impl Fn() + Send + Sync + 'static) {
    check_from(SEED, schedules, scenario);
}

/// As [`check`], from a seed that has found something once.
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
    Runner::new(random, roomy()).run(move || {
        one_more();
        STRENGTH.set(strength);
        scenario();
    });
    drop(tried);
    let tried = Tried::new("straight", schedules);
    let straight = PctScheduler::new_from_seed(seed, 3, schedules);
    let one_more = tried.counter();
    Runner::new(straight, roomy()).run(move || {
        one_more();
        STRENGTH.set(strength);
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
    /// What each schedule calls first. The count is no step of the model.
    fn counter(&self) -> impl Fn() + Send + Sync + 'static {
        let begun = Arc::clone(&self.begun);
        move || _ = begun.fetch_add(1, Relaxed)
    }
}

impl Drop for Tried {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let (nth, Self { kind, schedules, .. }) = (self.begun.load(Relaxed), self);
            // Past the capture of the test harness: `cargo xtask planted` reads it.
            let told =
                writeln!(std::io::stderr(), "failed in {kind} schedule {nth} of {schedules}");
            // Without a standard error there is no reader either.
            told.unwrap_or_default();
        }
    }
}
