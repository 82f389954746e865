//! The task of a CPU, and the callbacks of the machine.

use crate::code::{Act, Code, Step};
use crate::place::{CpuPlace, Places};
use crate::shared::{Guard, Line, Shared};
use crate::stores::{Stall, Stores};
use crate::tally::{Counted, Tally, now_ps};
use mmscale_arch::{Atomic, Callbacks, Cpu, CpuId, Ipi, Machine, Priority, TaskEntry, TaskSpec};
use mmscale_lift::{LineId, LockId, LockKind};
use mmscale_sim::Sim;
use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// The idle time of a CPU, in ps.
#[derive(Clone, Default)]
struct Idle {
    since_ps: Cell<Option<u64>>,
    /// The time in the window.
    counted_ps: Cell<u64>,
}

/// A machine that plays a recording.
pub(crate) struct Player {
    code: Arc<Code>,
    places: Places,
    shared: Shared,
    idle: Vec<Idle>,
    tally: RefCell<Tally>,
    /// Whether the run scales the holds of each lock.
    scaled: Vec<bool>,
}

impl Player {
    /// Makes the player of the machine that boots, and a task on each of its CPUs. The run scales
    /// the holds of spin locks of the class `scaled`.
    pub(crate) fn boot(code: Arc<Code>, counted: Counted, scaled: Option<&str>) -> Self {
        let places = code.recorded.places();
        let shared = Shared::new(&code, &places);
        let tally = RefCell::new(Tally::new(&code, counted));
        let idle = vec![Idle::default(); places.cpus.len()];
        for cpu in 0..places.cpus.len() {
            let entry = TaskEntry(cpu as u64);
            let cpu = CpuId::new(cpu);
            Sim::spawn(TaskSpec { cpu, per_cpu: true, priority: Priority::Fair, entry });
        }
        let scaled = code.locks.iter().map(|lock| {
            let class = code.line_names[lock.name as usize].as_str();
            lock.kind == LockKind::Spin && scaled == Some(class)
        });
        let scaled = scaled.collect();
        Self { code, places, shared, idle, tally, scaled }
    }
    /// Returns what was counted, and the idle time of all CPUs in the window, in ps.
    pub(crate) fn counted(&self) -> (std::cell::Ref<'_, Tally>, u64) {
        let tally = self.tally.borrow();
        let open = |idle: &Idle| {
            let until_ps = tally.counted.until_ps;
            idle.since_ps.get().map_or(0, |since| tally.counted.within(since, until_ps))
        };
        let idle = self.idle.iter().map(|idle| idle.counted_ps.get() + open(idle)).sum();
        (tally, idle)
    }
    fn until_ps(&self) -> u64 {
        self.tally.borrow().counted.until_ps
    }
    fn own_idle(&self) -> &Idle {
        &self.idle[Sim::cpu().index()]
    }
    /// Arms the tick of the running CPU, unless the run is about to end. At a tick, the CPU's speed
    /// follows the number of cores that work.
    fn arm_tick(&self) {
        let now_ns = Sim::now_ns();
        if now_ns.saturating_mul(1000) < self.until_ps() {
            let period_ns = 1_000_000_000 / u64::from(Sim::hz());
            Sim::timer_arm((now_ns / period_ns + 1) * period_ns);
        }
    }
}

impl Callbacks for Player {
    fn ipi(&self, _: Ipi) {}
    fn timer(&self) {
        self.arm_tick();
    }
    fn idle_enter(&self) {
        Sim::timer_cancel();
        self.own_idle().since_ps.set(Some(now_ps()));
    }
    fn idle_exit(&self) {
        let idle = self.own_idle();
        if let Some(since) = idle.since_ps.take() {
            let within = self.tally.borrow().counted.within(since, now_ps());
            idle.counted_ps.set(idle.counted_ps.get() + within);
        }
        self.arm_tick();
    }
    fn context_switch(&self) {}
    fn task(&self, entry: TaskEntry) {
        let place = self.places.cpus[entry.0 as usize];
        self.arm_tick();
        let worker = Worker {
            player: self,
            place,
            idle: &self.idle[entry.0 as usize],
            held: Vec::new(),
            stores: Stores::default(),
        };
        worker.run();
        Sim::timer_cancel();
    }
    fn cpu_dying(&self) -> bool {
        true
    }
    fn cpu_down_prepare(&self, _: CpuId) {}
    fn cpu_dead(&self, _: CpuId) {}
    fn cpu_online(&self, _: CpuId) {}
}

/// A lock that a CPU holds.
struct Held<'a> {
    lock: LockId,
    guard: Guard<'a>,
    row: u32,
    since_ps: u64,
    /// Whether the hold counts.
    counts: bool,
}

/// A lock that was taken.
struct Taken<'a> {
    lock: LockId,
    guard: Guard<'a>,
    row: u32,
    /// Whether it was found taken.
    waited: bool,
    /// When it was asked for, and when it was there.
    asked_ps: u64,
    since_ps: u64,
    /// Lines that had come from other CPUs at these times.
    before: (u64, u64),
    after: (u64, u64),
}

/// The task of a CPU.
struct Worker<'a> {
    player: &'a Player,
    place: CpuPlace,
    idle: &'a Idle,
    held: Vec<Held<'a>>,
    stores: Stores,
}

impl<'a> Worker<'a> {
    fn run(mut self) {
        let operations = &self.player.code.cpus[self.place.recorded];
        let until_ps = self.player.until_ps();
        // Another one on each CPU, so that equal CPUs do not run in step.
        let mut at = (Sim::random_u64(0) % operations.len() as u64) as usize;
        while now_ps() < until_ps {
            let (operation, begin_ps) = (&operations[at], now_ps());
            operation.steps.iter().for_each(|step| self.step(step));
            self.player.tally.borrow_mut().done(operation.count, begin_ps);
            at = (at + 1) % operations.len();
        }
    }
    fn step(&mut self, step: &Step) {
        let (begin, idle) = (now_ps(), self.idle.counted_ps.get());
        let stall = self.stores.execute(step.instructions, step.pace);
        self.stalled(step.path, stall);
        match step.act {
            Act::Nothing => {}
            Act::Read(line) => {
                self.use_line(line, step.path, |word| _ = word.load_uncharged(Relaxed))
            }
            Act::Write(line) => self.write(line, step.path),
            Act::Atomic(line) => {
                self.wait_for_stores(step.path);
                self.use_line(line, step.path, |word| _ = word.fetch_add(1, Relaxed));
            }
            Act::Acquire { lock, row, shared, tried: false } => {
                self.acquire(lock, row, shared, step.path);
            }
            Act::Acquire { lock, row, shared, tried: true } => {
                self.try_acquire(lock, row, shared, step.path);
            }
            Act::Release(lock) => self.release(lock, step.path),
            Act::Downgrade(lock) => self.downgrade(lock, step.path),
            Act::Clear(bytes) => Sim::clear_bytes(bytes),
            Act::Copy(bytes) => Sim::copy_bytes(bytes),
        }
        let idled = self.idle.counted_ps.get() - idle;
        let mut tally = self.player.tally.borrow_mut();
        let within = tally.counted.within(begin, now_ps());
        tally.spent(step.path, within.saturating_sub(idled));
    }
    fn line(&self, line: LineId) -> Option<(&Line, u32)> {
        let name = self.player.code.lines[line.index()].name;
        self.player.shared.line(line, &self.place).map(|word| (word, name))
    }
    /// Uses a line, and counts the transfer.
    fn use_line(&mut self, line: LineId, path: u32, access: impl FnOnce(&Line)) {
        if let Some((word, name)) = self.line(line) {
            self.fetching(path, name, || access(word));
        }
    }
    /// Counts the lines of one name that `access` brings to the CPU.
    fn fetching<R>(&self, path: u32, name: u32, access: impl FnOnce() -> R) -> R {
        let before = Sim::fetched();
        let result = access();
        let (moves, ps) = Sim::fetched();
        if moves > before.0 {
            let mut tally = self.player.tally.borrow_mut();
            tally.stalled(path, name, moves - before.0, ps - before.1);
        }
        result
    }
    fn write(&mut self, line: LineId, path: u32) {
        let Some((word, name)) = self.line(line) else { return };
        let there_ps = word.store_later(1);
        if self.stores.add(name, there_ps) {
            self.player.tally.borrow_mut().stalled(path, name, 1, 0);
        }
    }
    fn wait_for_stores(&mut self, path: u32) {
        let stall = self.stores.wait();
        self.stalled(path, stall);
    }
    fn stalled(&self, path: u32, stall: Option<Stall>) {
        if let Some((name, ps)) = stall {
            self.player.tally.borrow_mut().stalled(path, name, 0, ps);
        }
    }
    fn acquire(&mut self, lock: LockId, row: u32, shared: bool, path: u32) {
        self.wait_for_stores(path);
        let (player, place) = (self.player, self.place);
        let (asked_ps, before) = (now_ps(), Sim::fetched());
        let guard = player.shared.lock(lock, &place, shared);
        let waited = !matches!(guard, Guard::Private) && Sim::found_taken();
        let (since_ps, after) = (now_ps(), Sim::fetched());
        self.taken(Taken { lock, guard, row, waited, asked_ps, since_ps, before, after }, path);
    }
    /// Takes a lock if it is free. Else the operation goes on without it: which way the kernel goes
    /// then is not recorded.
    fn try_acquire(&mut self, lock: LockId, row: u32, shared: bool, path: u32) {
        self.wait_for_stores(path);
        let (player, place) = (self.player, self.place);
        let (asked_ps, before) = (now_ps(), Sim::fetched());
        let guard = player.shared.try_lock(lock, &place, shared);
        let (since_ps, after) = (now_ps(), Sim::fetched());
        if let Some(guard) = guard {
            let waited = false;
            self.taken(Taken { lock, guard, row, waited, asked_ps, since_ps, before, after }, path);
        }
    }
    fn taken(&mut self, taken: Taken<'a>, path: u32) {
        let Taken { lock, guard, row, waited, asked_ps, since_ps, before, after } = taken;
        let player = self.player;
        if player.scaled[lock.index()] {
            Sim::scale_hold(true);
        }
        let mut tally = player.tally.borrow_mut();
        if !waited && after.0 > before.0 {
            let name = player.code.locks[lock.index()].name;
            tally.stalled(path, name, after.0 - before.0, after.1 - before.1);
        }
        let counts = tally.acquired(row, asked_ps, waited);
        self.held.push(Held { lock, guard, row, since_ps, counts });
    }
    fn release(&mut self, lock: LockId, path: u32) {
        let Some(at) = self.held.iter().rposition(|held| held.lock == lock) else { return };
        let Held { guard, row, since_ps, counts, .. } = self.held.remove(at);
        if matches!(guard, Guard::Private) {
            // Its release is a store that nothing waits for.
        } else {
            self.wait_for_stores(path);
        }
        if counts {
            self.player.tally.borrow_mut().released(row, since_ps);
        }
        if self.player.scaled[lock.index()] {
            Sim::scale_hold(false);
        }
        let name = self.player.code.locks[lock.index()].name;
        self.fetching(path, name, || drop(guard));
    }
    fn downgrade(&mut self, lock: LockId, path: u32) {
        let Some(at) = self.held.iter().rposition(|held| held.lock == lock) else { return };
        self.wait_for_stores(path);
        let held = self.held.remove(at);
        let name = self.player.code.locks[lock.index()].name;
        let guard = self.fetching(path, name, || held.guard.downgraded());
        self.held.push(Held { guard, ..held });
    }
}
