//! The engine's state, and the order of CPUs in virtual time.
//!
//! Each CPU has its own clock. Code on a CPU runs on the host until it does something that other
//! CPUs can see; there it waits for its *turn*: until no CPU has anything to do at an earlier time
//! (ties go by a rank drawn from the seed). So all operations on shared state happen in the order
//! of virtual time, whatever ran ahead on the host.

use crate::ahead::{Ahead, NOWHERE};
use crate::checker::Checker;
use crate::config::{Checks, Faults, HoldScale, Listener, Policy, SimConfig};
use crate::cpu::{Cpu, Wait, Waiter};
use crate::device::Device;
use crate::heap::{END_PS, EventHeap, NEVER, order_of, rank_of, time_of};
use crate::lines::Lines;
use crate::memory::Memory;
use crate::outcome::{Failure, Place};
use crate::profile::{Costs, Noise};
use crate::rng::{Jitter, SplitMix64};
use crate::sections::Watch;
use crate::stats::Stats;
use crate::tables::Tables;
use crate::task::{Body, IDLE_URGENCY, STOP, Switch, Task, TaskState, Yielder};
use crate::tlbs::Tlbs;
use crate::topology::Seats;
use crate::trail::Tracker;
use mmscale_arch::{CallEvent, Callbacks, CpuId, CpuMask, MAX_CPUS, Probe, Trace, TraceGroup};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// How many events, or checkpoints of long work, pass between two looks at the interrupt flag and
/// the limit; a power of two.
const POLL_EVENTS: u64 = 4096;

/// How many of these pass between two reports of progress.
const PROGRESS_POLLS: u64 = 128;

/// Delays of delivered interrupts.
#[derive(Default)]
pub(crate) struct Delays {
    pub(crate) interrupts: u64,
    pub(crate) max_ps: u64,
    pub(crate) total_ps: u64,
}

/// How an operation on shared state goes on.
pub(crate) enum Gate {
    /// Now.
    Go,
    /// After the CPUs that are behind: a [`Switch`], but flat, so that it fits registers.
    Switch { yielder: *const Yielder, next: u32 },
    /// After `irq::deliver`.
    Deliver,
}

/// A running machine.
pub(crate) struct Engine {
    /// The CPU that runs on the host now.
    pub(crate) cur: usize,
    pub(crate) cpus: Vec<Cpu>,
    pub(crate) heap: EventHeap,
    pub(crate) events: u64,
    /// The number of events at which the engine next looks up from its work.
    look_up_at: u64,
    pub(crate) tracker: Tracker,
    /// Checkpoints of long work, which are no events.
    checkpoints: u64,
    /// Booting or dying: nothing waits, nothing is delivered.
    pub(crate) quiet: bool,
    pub(crate) naive: bool,
    pub(crate) costs: Costs,
    pub(crate) jitter: Jitter,
    pub(crate) hold_scale: Option<HoldScale>,
    pub(crate) seats: Seats,
    pub(crate) stats: Stats,
    /// A place to wait for a lock, for each CPU in a task (`2 * cpu`) and in an interrupt (+ 1).
    pub(crate) waiters: Vec<Waiter>,
    pub(crate) tasks: Vec<Task>,
    /// Tasks that have not returned.
    pub(crate) live: usize,
    /// When the last task returned, in ps.
    pub(crate) end_ps: u64,
    pub(crate) lines: Lines,
    pub(crate) memory: Memory,
    pub(crate) device: Device,
    pub(crate) tables: Tables,
    pub(crate) tlbs: Tlbs,
    pub(crate) online: CpuMask,
    /// CPUs that are asked to stop, each with the task that waits for it.
    pub(crate) leaving: Vec<(usize, usize)>,
    pub(crate) checker: Checker,
    pub(crate) delays: Delays,
    pub(crate) noise: Noise,
    pub(crate) faults: Faults,
    pub(crate) hz: u32,
    /// What policies draw from; the engine's own generators began with it.
    pub(crate) seed: u64,
    pub(crate) failure: Option<Failure>,
    pub(crate) callbacks: Option<Rc<dyn Callbacks>>,
    pub(crate) probes: Vec<Box<dyn Probe>>,
    /// Groups of tracepoints that anybody hears, by bit.
    pub(crate) heard: u16,
    pub(crate) ahead: Ahead,
    /// The CPU of each rank.
    by_rank: Box<[u16; MAX_CPUS]>,
    /// No CPU is given a turn at this time or later: the run is over.
    over_at: u64,
    limit_ps: u64,
    interrupt: Option<Arc<AtomicBool>>,
    progress: Option<Listener>,
    polls: u64,
}

impl Engine {
    pub(crate) fn new(config: SimConfig, probe: impl FnMut(CpuId) -> Box<dyn Probe>) -> Self {
        let cpus = config.cpus;
        let seats = Seats::new(&config.profile.topology, cpus, config.profile.costs.line);
        let limit_ps = config.limit_ns.saturating_mul(1000).min(END_PS - (1 << 44));
        let ranks = ranks(cpus, config.seed);
        let mut by_rank = Box::new([0; MAX_CPUS]);
        ranks.iter().enumerate().for_each(|(cpu, &rank)| by_rank[rank] = cpu as u16);
        let mut seeds = SplitMix64::new(config.seed);
        let probes: Vec<_> = (0..cpus).map(CpuId::new).map(probe).collect();
        let heard = heard(&probes, &config);
        let tasks = (0..cpus).map(|cpu| Task::new(cpu, true, IDLE_URGENCY, Body::Idle)).collect();
        let mut engine = Self {
            cur: 0,
            cpus: (0..cpus).map(|cpu| Cpu::new(ranks[cpu], seeds.next(), cpu as u32)).collect(),
            heap: EventHeap::new(),
            events: 0,
            look_up_at: 1,
            tracker: Tracker::new(config.trail),
            checkpoints: 0,
            quiet: true,
            naive: config.policy == Policy::Naive,
            hold_scale: config.hold_scale,
            stats: Stats::new(window_ps(config.locks_ns)),
            waiters: vec![Waiter::default(); 2 * cpus],
            tasks,
            live: 0,
            end_ps: 0,
            lines: Lines::new(config.profile.node_pages as usize * seats.nodes()),
            memory: Memory::new(&config.profile, seats.nodes()),
            device: Device::new(config.profile.swap, config.profile.page_bytes, cpus),
            tables: Tables::new(cpus, config.profile.node_pages as usize * seats.nodes()),
            tlbs: Tlbs::new(cpus, config.profile.costs.tlb_broadcast_ps > 0, config.checks),
            online: CpuMask::first(cpus),
            leaving: Vec::new(),
            checker: Checker::new(config.checks, cpus),
            delays: Delays::default(),
            noise: config.noise,
            faults: config.faults,
            hz: config.hz,
            seed: config.seed,
            failure: None,
            callbacks: None,
            probes,
            heard,
            jitter: Jitter::new(config.profile.costs.jitter_1024),
            costs: config.profile.costs,
            seats,
            ahead: Ahead::new(cpus),
            by_rank,
            over_at: limit_ps + 1,
            limit_ps,
            interrupt: config.interrupt,
            progress: config.progress,
            polls: 0,
        };
        (0..cpus).for_each(|cpu| engine.plan_noise(cpu, 0));
        if let Some(windows) = config.sections {
            for cpu in &mut engine.cpus {
                (cpu.watched, cpu.watch) = (true, Some(Box::new(Watch::new(windows))));
            }
        }
        engine
    }
    #[inline]
    pub(crate) fn cpu(&mut self) -> &mut Cpu {
        &mut self.cpus[self.cur]
    }
    /// The running CPU, when it reads what other CPUs write to it: interrupts, tasks that wait, the
    /// request to stop. All that happened before its time is there only at its turn.
    #[inline]
    pub(crate) fn cpu_at_turn(&mut self) -> &mut Cpu {
        let cpu = &mut self.cpus[self.cur];
        // An entry at the same place is its own timer's.
        debug_assert!(
            self.quiet || cpu.order() <= self.heap.first(),
            "a CPU reads what others write to it, out of its turn"
        );
        cpu
    }
    /// The running CPU's call path changes: what has passed since the last change was spent on the
    /// path that it leaves.
    #[inline]
    pub(crate) fn go_to_path(&mut self, path: u32) {
        let cpu = &mut self.cpus[self.cur];
        if cpu.section_since != NEVER {
            cpu.section_on_path();
        }
        self.stats.spent(cpu.path, cpu.path_since, cpu.clock);
        cpu.path_since = cpu.clock;
        cpu.path = path;
    }
    pub(crate) fn cpu_id(&self) -> CpuId {
        CpuId::new(self.cur)
    }
    pub(crate) fn limit_ps(&self) -> u64 {
        self.limit_ps
    }
    /// Whether an operation on shared state may happen now on the running CPU: it is the earliest,
    /// and no interrupt should come first. `near` says what it uses, for [`Ahead`].
    #[inline]
    pub(crate) fn gate(&mut self, near: &impl Fn(&Self) -> usize) -> Gate {
        if !self.heap.is_first(self.cpus[self.cur].order()) {
            let near = if self.ahead.is_on() { near(self) } else { NOWHERE };
            return self.yield_turn(near);
        }
        let cpu = &mut self.cpus[self.cur];
        if cpu.irq_due() && !self.quiet {
            return Gate::Deliver;
        }
        if !cpu.irq_off {
            cpu.plan_check();
        }
        self.count_event();
        Gate::Go
    }
    #[inline]
    pub(crate) fn count_event(&mut self) {
        self.events += 1;
        if self.events >= self.look_up_at {
            self.look_up();
        }
    }
    #[cold]
    fn look_up(&mut self) {
        self.look_up_at = self.events + 1;
        if self.tracker.is_on() {
            self.track_event();
        } else {
            self.look_up_at = (self.events + 1).next_multiple_of(POLL_EVENTS);
        }
        if self.events.is_multiple_of(POLL_EVENTS) {
            self.poll();
        }
    }
    /// Keeps what the trail wants of the event that has just been counted. Events of the boot,
    /// which takes no virtual time, only count.
    fn track_event(&mut self) {
        let cpu = &self.cpus[self.cur];
        let time_ps = if self.quiet { 0 } else { cpu.clock };
        let path = || self.stats.names(cpu.path);
        self.tracker.note(self.events, CpuId::new(self.cur), time_ps, path);
    }
    /// Counts a checkpoint: work that takes seconds of virtual time has millions and no event.
    pub(crate) fn count_checkpoint(&mut self) {
        self.checkpoints += 1;
        if self.checkpoints.is_multiple_of(POLL_EVENTS) {
            self.poll();
        }
    }
    /// Lets the CPUs go first that are behind: whom to switch to, or `Deliver` if it is this CPU's
    /// turn. After the switch back it is. While a panic unwinds the stack the run is over, and
    /// guards are only being dropped: from here on nothing waits any more, and all may `Go`.
    pub(crate) fn yield_turn(&mut self, near: usize) -> Gate {
        let from = self.cur;
        let cpu = &mut self.cpus[from];
        let (mine, yielder) = (cpu.order(), cpu.yielder);
        if self.quiet {
            return Gate::Go;
        }
        if std::thread::panicking() {
            self.die();
            return Gate::Go;
        }
        let Some(first) = self.heap.exchange(mine) else { return Gate::Deliver };
        cpu.queued = mine;
        self.ahead.leaves(from, near, cpu.current);
        if first != mine
            && let Some(next) = self.accept(first)
        {
            return Gate::Switch { yielder, next };
        }
        self.yield_on(from, mine, first == mine)
    }
    /// Goes on with yielding when the first entry was for nobody; `twin`: it was one at the running
    /// CPU's own place.
    #[cold]
    fn yield_on(&mut self, from: usize, mine: u64, twin: bool) -> Gate {
        let yielder = self.cpus[from].yielder;
        if twin && let Some(next) = self.accept_twin(mine, from) {
            return Gate::Switch { yielder, next };
        }
        // The running CPU's own entry is in the queue, so there is one.
        loop {
            let first = self.heap.pop().unwrap_or(mine);
            if first == mine {
                break;
            }
            if let Some(next) = self.accept(first) {
                return Gate::Switch { yielder, next };
            }
        }
        while self.heap.first() == mine && self.heap.pop().is_some() {
            if let Some(next) = self.accept_twin(mine, from) {
                return Gate::Switch { yielder, next };
            }
        }
        self.cpus[from].queued = NEVER;
        self.cur = from;
        Gate::Deliver
    }
    /// Takes note of another entry at the running CPU's own place: out of date, or its timer's,
    /// which it does not wait for; or the end of the run.
    #[cold]
    fn accept_twin(&mut self, order: u64, at: usize) -> Option<u32> {
        self.accept_other(order, at).then_some(STOP)
    }
    /// The running CPU waits, at most until `until`; whom to switch to.
    pub(crate) fn block(&mut self, wait: Wait, until: u64) -> Switch {
        self.rest(wait, until);
        self.leave_cpu()
    }
    /// The running CPU waits, at most until `until`.
    pub(crate) fn rest(&mut self, wait: Wait, until: u64) {
        let cpu = &mut self.cpus[self.cur];
        cpu.wait = wait;
        cpu.queued = NEVER;
        if until != NEVER {
            cpu.queued = order_of(until.max(cpu.clock), cpu.rank);
            self.heap.push(cpu.queued);
        }
        if cpu.heeds_irqs() && cpu.timer != NEVER && cpu.timer_queued != cpu.timer {
            cpu.timer_queued = cpu.timer;
            self.heap.push(order_of(cpu.timer, cpu.rank));
        }
        if self.heap.len() > 4 * self.cpus.len() + 256 {
            self.purge();
        }
    }
    /// The running CPU waits already: whom to switch to.
    pub(crate) fn leave_cpu(&mut self) -> Switch {
        let Cpu { yielder, current, .. } = self.cpus[self.cur];
        self.ahead.leaves(self.cur, NOWHERE, current);
        while let Some(first) = self.heap.pop() {
            if let Some(next) = self.accept(first) {
                return Switch { yielder, next };
            }
        }
        if self.live != 0 {
            let waiting = self.waiting();
            self.fail(Failure::Deadlock { time_ns: self.cpus[self.cur].clock / 1000, waiting });
        }
        Switch { yielder, next: STOP }
    }
    /// The first task of a started machine; `STOP` if there is none.
    pub(crate) fn first(&mut self) -> u32 {
        let order = if self.live == 0 { None } else { self.heap.pop() };
        order.and_then(|order| self.accept(order)).unwrap_or(STOP)
    }
    /// Goes on with the CPU that an entry of the queue is for; `None` if the entry is out of date.
    #[inline(always)]
    fn accept(&mut self, order: u64) -> Option<u32> {
        let at = usize::from(self.by_rank[rank_of(order)]);
        if self.cpus[at].queued != order && !self.accept_other(order, at) {
            return None;
        }
        let cpu = &mut self.cpus[at];
        cpu.queued = NEVER;
        cpu.clock = cpu.clock.max(time_of(order));
        cpu.wait = Wait::No;
        let (clock, next, asks) = (cpu.clock, cpu.current, cpu.asks.is_some());
        self.cur = at;
        if clock >= self.over_at {
            self.fail_limit();
            return Some(STOP);
        }
        if self.ahead.is_on() {
            let after = usize::from(self.by_rank[rank_of(self.heap.first())]);
            self.ahead.comes(after, &self.cpus[after]);
        }
        if asks && self.answer_spin() {
            return None;
        }
        Some(next)
    }
    /// Whether an entry that is not for its CPU's next turn wakes it: its timer's, or the end of
    /// the run. Timers of idle CPUs end with the last task.
    #[cold]
    fn accept_other(&mut self, order: u64, at: usize) -> bool {
        let (live, time_ps) = (self.live, time_of(order));
        let cpu = &mut self.cpus[at];
        if self.failure.is_some() || cpu.timer_queued != time_ps {
            return self.failure.is_some();
        }
        cpu.timer_queued = NEVER;
        let heard = cpu.heeds_irqs() && (live != 0 || cpu.wait != Wait::Halt);
        heard && cpu.timer == time_ps
    }
    /// Drops entries that are out of date: waits that ended early leave them behind.
    #[cold]
    fn purge(&mut self) {
        let (cpus, by_rank, failed) = (&self.cpus, &self.by_rank, self.failure.is_some());
        self.heap.retain(|order| {
            let cpu = &cpus[usize::from(by_rank[rank_of(order)])];
            failed || cpu.queued == order || cpu.timer_queued == time_of(order)
        });
    }
    /// A waiting CPU goes on at `time_ps`, if not earlier.
    pub(crate) fn wake_by(&mut self, at: usize, time_ps: u64) {
        let cpu = &mut self.cpus[at];
        let time_ps = time_ps.max(cpu.clock);
        let order = order_of(time_ps, cpu.rank);
        if cpu.wait != Wait::No && order < cpu.queued {
            cpu.queued = order;
            self.heap.push(order);
        }
    }
    /// Ends the run: for whoever waits for a turn next.
    pub(crate) fn fail(&mut self, failure: Failure) {
        if self.failure.is_none() && !self.quiet {
            self.failure = Some(failure);
            // Comes before everything, so that nobody's turn is granted again.
            self.over_at = 0;
            self.heap.push(0);
        }
    }
    fn fail_limit(&mut self) {
        let waiting = self.waiting();
        self.fail(Failure::Limit { limit_ns: self.limit_ps / 1000, waiting });
    }
    #[cold]
    pub(crate) fn poll(&mut self) {
        let time_ps = self.cpus[self.cur].clock;
        self.polls += 1;
        if self.polls.is_multiple_of(PROGRESS_POLLS)
            && let Some(progress) = &self.progress
        {
            progress.tell(time_ps / 1000);
        }
        if self.interrupt.as_ref().is_some_and(|flag| flag.load(Ordering::Relaxed)) {
            self.fail(Failure::Interrupted { time_ns: time_ps / 1000 });
        }
        if time_ps > self.limit_ps {
            self.fail_limit();
        }
    }
    /// Tells of a tracepoint on the running CPU.
    #[inline(never)]
    pub(crate) fn tell(&mut self, event: &Trace) {
        let (now_ns, at) = (self.cpu().clock / 1000, self.cur);
        self.probes[at].event(now_ns, event);
        self.check_event(event);
        self.check_reached(event);
        if let Trace::Call(CallEvent::Wait { target, ns }) = *event {
            self.section_waited_for(target, ns);
        }
    }
    /// From now on nothing waits and nothing is delivered.
    pub(crate) fn die(&mut self) {
        self.quiet = true;
        self.callbacks = None;
    }
    /// Where the running CPU is.
    pub(crate) fn place(&self) -> Place {
        self.place_of(self.cur, self.cpus[self.cur].path)
    }
    fn place_of(&self, at: usize, path: u32) -> Place {
        let time_ns = self.cpus[at].clock / 1000;
        Place { cpu: CpuId::new(at), time_ns, path: self.stats.names(path) }
    }
    /// Who waits for what, for messages: spinning CPUs, parked tasks.
    pub(crate) fn waiting(&self) -> Vec<String> {
        let spinning = (0..self.cpus.len())
            .filter(|&at| self.cpus[at].wait == Wait::Spin)
            .map(|at| self.spinning_text(at, &self.place_of(at, self.cpus[at].path)));
        let busy = (0..self.cpus.len()).filter(|&at| self.is_busy(at)).map(|at| {
            let place = self.place_of(at, self.cpus[at].path);
            format!("{place}: runs with preemption off")
        });
        let parked = self.tasks.iter().enumerate().filter_map(|(id, task)| {
            let what = match task.state {
                TaskState::Parked => "parked",
                TaskState::Ready if self.cpus[usize::from(task.cpu)].wait != Wait::No => "ready",
                _ => return None,
            };
            let place = self.place_of(usize::from(task.cpu), task.path);
            (!matches!(task.body, Body::Idle)).then(|| format!("task {id} is {what} on {place}"))
        });
        spinning.chain(busy).chain(parked).take(64).collect()
    }
    /// Whether CPU `at` runs something that nothing else can interrupt for a task: a loop that
    /// waits for another CPU, perhaps.
    fn is_busy(&self, at: usize) -> bool {
        let cpu = &self.cpus[at];
        cpu.wait == Wait::No && cpu.preempt != 0 && cpu.current != cpu.idle
    }
}

/// What the probes, the checkers and the books of stretches without preemption hear, by bit.
fn heard(probes: &[Box<dyn Probe>], config: &SimConfig) -> u16 {
    let all = config.checks == Checks::On;
    let for_sections = |group| config.sections.is_some() && group == TraceGroup::Call;
    let hears = |group| probes.iter().any(|probe| probe.hears(group));
    let groups = TraceGroup::ALL.iter().copied();
    let groups = groups.filter(|&group| all || for_sections(group) || hears(group));
    groups.fold(0, |heard, group| heard | 1 << group as u16)
}

/// A window in ns as one in ps; open ends stay open.
fn window_ps((from_ns, to_ns): (u64, u64)) -> std::ops::Range<u64> {
    from_ns.saturating_mul(1000)..to_ns.saturating_mul(1000)
}

/// Each CPU's rank in ties: a permutation drawn from the seed.
fn ranks(cpus: usize, seed: u64) -> Vec<usize> {
    let mut rng = SplitMix64::new(seed ^ 0x7469_6573);
    let mut ranks: Vec<usize> = (0..cpus).collect();
    (1..cpus).rev().for_each(|at| ranks.swap(at, rng.below(at as u64 + 1) as usize));
    ranks
}
