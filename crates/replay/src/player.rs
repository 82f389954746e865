//! The task of a CPU, and the callbacks of the machine.

use crate::calls::{Calls, Request, Ticket};
use crate::code::{Act, Code, Rounds, Step};
use crate::growth::{Factors, Rests};
use crate::place::{CpuPlace, Places};
use crate::shared::{Guard, Line, Shared, lock_names};
use crate::stores::{Stall, Stores};
use crate::tally::{Counted, Tally, now_ps};
use crate::ticks::Ticks;
use mmscale_arch::{Atomic, Callbacks, Cpu, CpuId, Ipi, Machine, Priority, TaskEntry, TaskSpec};
use mmscale_lift::{LineId, LockId, LockKind};
use mmscale_sim::{Names, Sim};
use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// The time of a CPU in which its task does not run: idle, or in interrupts, in ps.
#[derive(Clone, Default)]
struct Idle {
    since_ps: Cell<Option<u64>>,
    /// The time in the window.
    counted_ps: Cell<u64>,
    /// Time in the window in interrupts, and lines that came in them, with their time.
    answering_ps: Cell<u64>,
    answering_lines: Cell<(u64, u64)>,
}

impl Idle {
    /// The time in the window in which the CPU's task did not run.
    fn away_ps(&self) -> u64 {
        self.counted_ps.get() + self.answering_ps.get()
    }
    /// Returns how many lines have come to the task of the running CPU, with their time.
    fn fetched(&self) -> (u64, u64) {
        let ((moves, ps), (other, other_ps)) = (Sim::fetched(), self.answering_lines.get());
        (moves - other, ps - other_ps)
    }
}

/// A machine that plays a recording.
pub(crate) struct Player {
    code: Arc<Code>,
    rounds: Rounds,
    places: Places,
    shared: Shared,
    idle: Vec<Idle>,
    calls: Calls,
    ticks: Ticks,
    factors: Factors,
    tally: RefCell<Tally>,
    /// Whether the run scales the holds of each lock.
    scaled: Vec<bool>,
}

impl Player {
    /// Makes the player of the machine that boots, and a task on each of its CPUs. The run scales
    /// the holds of spin locks of the class `scaled`.
    pub(crate) fn boot(
        code: Arc<Code>,
        rounds: Rounds,
        counted: Counted,
        scaled: Option<&str>,
    ) -> Self {
        let places = code.recorded.places();
        let shared = Shared::new(&code, &places);
        Sim::set_names(Names::new(code.paths.clone(), lock_names(&code, &places)));
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
        let calls = Calls::new(places.cpus.len());
        let ticks = Ticks::new(places.cpus.len());
        let factors = Factors::new(code.growth.as_ref(), places.cpus.len());
        Self { code, rounds, places, shared, idle, calls, ticks, factors, tally, scaled }
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
    fn worker(&self, cpu: usize) -> Worker<'_> {
        Worker {
            player: self,
            place: self.places.cpus[cpu],
            idle: &self.idle[cpu],
            held: Vec::new(),
            stores: Stores::default(),
            tickets: Vec::new(),
            rests: Rests::new(&self.factors),
        }
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

impl Player {
    /// Does the work of an interrupt, which is none of the task that it interrupts. Returns its
    /// time in the window.
    fn interrupted(&self, work: impl FnOnce(&mut Worker<'_>)) -> u64 {
        let (idle, begin, before) = (self.own_idle(), now_ps(), Sim::fetched());
        work(&mut self.worker(Sim::cpu().index()));
        let within = self.tally.borrow().counted.within(begin, now_ps());
        idle.answering_ps.set(idle.answering_ps.get() + within);
        let (after, lines) = (Sim::fetched(), idle.answering_lines.get());
        idle.answering_lines.set((lines.0 + after.0 - before.0, lines.1 + after.1 - before.1));
        within
    }
}

impl Callbacks for Player {
    /// Answers calls.
    fn ipi(&self, _: Ipi) {
        let within = self.interrupted(|worker| {
            self.calls.take().into_iter().for_each(|request| worker.answer(request));
        });
        self.tally.borrow_mut().answered(within);
    }
    fn timer(&self) {
        self.arm_tick();
        let Some(of) = &self.code.ticks else { return };
        let mut batches = 0;
        let within = self.interrupted(|worker| {
            let recorded = worker.place.recorded;
            if let Some(tick) = self.ticks.take_tick(of, recorded) {
                worker.interrupt(tick);
            }
            while let Some(batch) = self.ticks.take_batch(of, recorded) {
                worker.interrupt(batch);
                batches += 1;
            }
        });
        self.tally.borrow_mut().ticked(batches, within);
    }
    fn idle_enter(&self) {
        Sim::timer_cancel();
        self.calls.set_idle(true);
        self.own_idle().since_ps.set(Some(now_ps()));
    }
    fn idle_exit(&self) {
        self.calls.set_idle(false);
        let idle = self.own_idle();
        if let Some(since) = idle.since_ps.take() {
            let within = self.tally.borrow().counted.within(since, now_ps());
            idle.counted_ps.set(idle.counted_ps.get() + within);
        }
        self.arm_tick();
    }
    fn context_switch(&self) {}
    fn task(&self, entry: TaskEntry) {
        self.arm_tick();
        self.worker(entry.0 as usize).run();
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
    /// Calls that are not waited for yet.
    tickets: Vec<Ticket>,
    /// The remainders of the growth of places.
    rests: Rests,
}

impl<'a> Worker<'a> {
    fn run(mut self) {
        let operations = self.player.rounds.of(&self.player.code.cpus[self.place.recorded]);
        let until_ps = self.player.until_ps();
        // Another one on each CPU, so that equal CPUs do not run in step.
        let mut at = (Sim::random_u64(0) % operations.len() as u64) as usize;
        // And within long rounds, so that few of them show all of their parts.
        let starts = &operations[at].starts;
        let start = starts.get((Sim::random_u64(1) % starts.len().max(1) as u64) as usize);
        let mut first = start.map_or(0, |step| *step as usize);
        while now_ps() < until_ps {
            let (operation, begin_ps) = (operations[at], now_ps());
            operation.steps[first..].iter().for_each(|step| self.step(step));
            self.tickets.clear();
            let count = if first == 0 { operation.count } else { operation.count_from(first) };
            first = 0;
            self.player.tally.borrow_mut().done(count, begin_ps);
            if let Some(of) = &self.player.code.ticks {
                self.player.ticks.add_round(of);
            }
            at = (at + 1) % operations.len();
        }
    }
    fn step(&mut self, step: &Step) {
        Sim::go_to_path(step.path);
        let (begin, away) = (now_ps(), self.idle.away_ps());
        let (instructions, times) = match step.grows {
            0 => (step.instructions, 1),
            grows => {
                let at = grows as usize - 1;
                self.rests.step(&self.player.factors, at, step.instructions)
            }
        };
        let stall = self.stores.execute(instructions, step.pace);
        self.stalled(step.path, stall);
        match step.act {
            Act::Read(line) | Act::Write(line) | Act::Atomic(line) if step.grows > 0 => {
                let (player, place) = (self.player, self.place);
                let by_called = player.code.lines[line.index()].by_called;
                for again in 0..times {
                    self.place = player.places.further(place, again as usize, by_called);
                    self.act(step);
                }
                self.place = place;
            }
            _ => self.act(step),
        }
        let away = self.idle.away_ps() - away;
        let mut tally = self.player.tally.borrow_mut();
        let within = tally.counted.within(begin, now_ps());
        tally.spent(step.path, within.saturating_sub(away));
    }
    /// Does what follows the instructions of a step.
    fn act(&mut self, step: &Step) {
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
            Act::Call(call) => self.call(call, step.path),
            Act::Wait => self.wait_for_answers(),
            Act::Clear(bytes) => Sim::clear_bytes(bytes),
            Act::Copy(bytes) => Sim::copy_bytes(bytes),
        }
    }
    /// Calls other CPUs.
    fn call(&mut self, call: u32, path: u32) {
        // The interrupt is sent after all that is written.
        self.wait_for_stores(path);
        let (player, before) = (self.player, self.tickets.len());
        let call = &player.code.calls[call as usize];
        player.calls.send(call, &self.place, &player.places, &mut self.tickets);
        let receivers = self.tickets.len() - before;
        player.tally.borrow_mut().called(receivers as u64);
    }
    /// Waits until all calls are answered, with interrupts on.
    fn wait_for_answers(&mut self) {
        let (begin, away) = (now_ps(), self.idle.away_ps());
        for ticket in std::mem::take(&mut self.tickets) {
            while !self.player.calls.is_answered(ticket) {
                Sim::relax();
            }
        }
        let away = self.idle.away_ps() - away;
        let mut tally = self.player.tally.borrow_mut();
        let within = tally.counted.within(begin, now_ps());
        tally.waited_for_answers(within.saturating_sub(away));
    }
    /// Answers a call, in an interrupt.
    fn answer(&mut self, request: Request) {
        let (player, place) = (self.player, self.place);
        let answer = &player.code.answers[request.answer as usize];
        let sender = CpuPlace { called: place.turn, ..request.sender };
        for (at, of) in answer.steps.iter().enumerate() {
            if at == answer.until_done {
                self.done_with_answer(of.step.path);
            }
            self.place = if of.is_of_sender { sender } else { place };
            self.step(&of.step);
        }
        self.place = place;
        let path = answer.steps.last().map_or(0, |of| of.step.path);
        if answer.until_done >= answer.steps.len() {
            self.done_with_answer(path);
        }
        self.wait_for_stores(path);
    }
    /// Does what was recorded of an interrupt that nothing waits for.
    fn interrupt(&mut self, number: u32) {
        let steps = &self.player.code.answers[number as usize].steps;
        steps.iter().for_each(|of| self.step(&of.step));
        self.wait_for_stores(steps.last().map_or(0, |of| of.step.path));
    }
    fn done_with_answer(&mut self, path: u32) {
        self.wait_for_stores(path);
        self.player.calls.answered();
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
        let before = self.idle.fetched();
        let result = access();
        let (moves, ps) = self.idle.fetched();
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
        let (asked_ps, before, away) = (now_ps(), self.idle.fetched(), self.idle.away_ps());
        let guard = player.shared.lock(lock, &place, shared);
        let waited = !matches!(guard, Guard::Private) && Sim::found_taken();
        let (since_ps, after) = (now_ps(), self.idle.fetched());
        if waited && player.code.locks[lock.index()].kind != LockKind::Spin {
            let away = self.idle.away_ps() - away;
            let mut tally = player.tally.borrow_mut();
            let within = tally.counted.within(asked_ps, since_ps);
            tally.spun(path, within.saturating_sub(away));
        }
        self.taken(Taken { lock, guard, row, waited, asked_ps, since_ps, before, after }, path);
    }
    /// Takes a lock if it is free. Else the operation goes on without it: which way the kernel goes
    /// then is not recorded.
    fn try_acquire(&mut self, lock: LockId, row: u32, shared: bool, path: u32) {
        self.wait_for_stores(path);
        let (player, place) = (self.player, self.place);
        let (asked_ps, before) = (now_ps(), self.idle.fetched());
        let guard = player.shared.try_lock(lock, &place, shared);
        let (since_ps, after) = (now_ps(), self.idle.fetched());
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
