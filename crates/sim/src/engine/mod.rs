//! The engine's state, and the order of CPUs in virtual time.
//!
//! | module | contents |
//! |---|---|
//! | `turn` | the wait for a turn |
//! | `context` | coroutines, and access to the engine from the functions of `Sim` |
//! | `cost` | what operations, cache lines and atomics cost |
//! | `check`, `checker`, `ledger` | checkers: locks and contexts; frames and counters |
//! | `blaming`, `watch`, `recording` | calls that add to the records of a run |
//!
//! # The simple version
//! Each CPU has a clock. Always run the CPU with the smallest clock, for one step; ties go by a
//! rank that is drawn from the seed. Then everything happens in the order of virtual time.
//!
//! # The real one
//! Most steps only advance the CPU's own clock, and no other CPU can see them. So the host keeps
//! running the same CPU, ahead of the others, until that CPU reaches an operation that other CPUs
//! can see: a lock, a shared atomic, an interrupt to another CPU. There it waits for its *turn*: it
//! puts its order word (time, rank) into the queue, and the host resumes the CPU with the smallest
//! one. At its turn no CPU has anything to do at an earlier time. So all operations on shared state
//! happen in the order of virtual time, and a CPU sees what it would see in the simple version,
//! which [`Policy::Naive`] runs as the reference.
//!
//! # An example
//! Two CPUs take one lock at the same time, and CPU 0 then interrupts CPU 1. Times are in ns.
//! Costs: lock 10, unlock 5, handoff 60, a line in the own cache 5, a transfer between the two 25,
//! sending an interrupt 20, its delivery 100, its entry and exit 50. The seed gives CPU 0 the lower
//! rank.
//!
//! ```text
//! time  CPU 0                           CPU 1
//!    0  works for 80                    works for 80
//!   80  lock: a tie, CPU 0 goes first   lock with interrupts off: held, waits
//!   95  holds the lock, works for 100
//!  195  unlock
//!  200  released; sends an interrupt    the lock is granted for 200 + 60 + 25
//!  220  goes on
//!  285                                  holds the lock, works for 40
//!  300                                  the interrupt arrives; they are off
//!  325                                  unlock, interrupts on
//!  330                                  atomic load: first the interrupt, 30 late
//!  380                                  the load
//!  385                                  goes on
//! ```
//!
//! The host runs this in another order, and suspends a CPU only at the marked points:
//!
//! ```text
//! 1. CPU 0 from   0 to  80: lock; CPU 1 is at 0: waits for its turn
//! 2. CPU 1 from   0 to  80: lock; CPU 0 is at 80 with a lower rank: waits for its turn
//! 3. CPU 0 from  80 to 200: takes the lock, works, unlocks without a turn; CPU 1 is at 80
//! 4. CPU 1 at 80: finds a lock that is free on the host but released at 200: waits until 285
//! 5. CPU 0 from 200: sends; the interrupt arrives at 300; goes on until its next turn
//! 6. CPU 1 from 285 to 385: has the lock, unlocks, handles the interrupt, loads
//! ```
//!
//! Step 4 is what running ahead costs: the release has happened on the host before the request,
//! though not in virtual time. [`crate::lock`] says why the result does not change. The test
//! `worked_example` (`tests/machine/example.rs`) runs this under both policies;
//! `docs/internals/virtual-time.md` has more.

mod blaming;
mod check;
mod checker;
pub(crate) mod context;
mod cost;
mod ledger;
mod recording;
pub(crate) mod turn;
mod watch;

use crate::caches::Caches;
use crate::config::LineOrder;
use crate::config::{Checks, Faults, HoldScale, Listener, Policy, SimConfig};
use crate::copies::PercpuLines;
use crate::cpu::{Cpu, WaitState, Waiter};
use crate::cpus::Cpus;
use crate::device::Device;
use crate::engine::checker::Checker;
use crate::heap::{END_PS, EventHeap, NEVER, order_of, rank_of, time_of};
use crate::lines::Lines;
use crate::memory::Memory;
use crate::outcome::{Failure, Location};
use crate::prefetch::{NO_ADDRESS, Prefetcher};
use crate::profile::{Costs, Noise};
use crate::record::blame::Blame;
use crate::record::sections::{SectionStats, Windows};
use crate::record::stats::Stats;
use crate::record::timeline::{Recorder, TimelineOf};
use crate::record::trail::Tracker;
use crate::rng::{Jitter, SplitMix64};
use crate::sharing::Sharing;
use crate::speed::Speeds;
use crate::tables::Tables;
use crate::task::{Body, IDLE_URGENCY, STOP, Switch, Task, TaskState, Yielder};
use crate::tlbs::{Broadcasts, Tlbs};
use crate::topology::Distances;
use crate::visits::Visits;
use mmscale_arch::{CallEvent, Callbacks, CpuId, CpuMask, MAX_CPUS, Probe, Trace, TraceGroup};
use std::ptr::null;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Events, or checkpoints of long work, between two checks of the interrupt flag and the limit; a
/// power of two.
const POLL_EVENTS: u64 = 4096;

/// Polls between two reports of progress.
const PROGRESS_POLLS: u64 = 128;

/// Delays between the arrival and the delivery of interrupts.
#[derive(Default)]
pub(crate) struct Delays {
    pub(crate) interrupts: u64,
    pub(crate) max_ps: u64,
    pub(crate) total_ps: u64,
}

/// How an operation on shared state continues: a switch to an earlier CPU first, or, without a
/// yielder, one of two constants. An enum of the three would pass through memory, in pieces that
/// hosts do not forward.
#[derive(Clone, Copy)]
pub(crate) struct ReadyState(Switch);

impl ReadyState {
    /// It may happen now.
    pub(crate) const READY: Self = Self(Switch { yielder: null(), next: 0 });
    /// Interrupts are taken first, by `irq::deliver`.
    pub(crate) const DELIVER: Self = Self(Switch { yielder: null(), next: 1 });

    /// Earlier CPUs run first.
    #[inline(always)]
    fn after(yielder: *const Yielder, next: u32) -> Self {
        debug_assert!(!yielder.is_null(), "a running task has a yielder");
        Self(Switch { yielder, next })
    }
    /// Returns the switch to an earlier CPU, if there is one.
    #[inline(always)]
    pub(crate) fn switch(self) -> Option<Switch> {
        (!self.0.yielder.is_null()).then_some(self.0)
    }
    /// Whether the operation may happen now.
    #[inline(always)]
    pub(crate) fn is_ready(self) -> bool {
        self.0.yielder.is_null() && self.0.next == Self::READY.0.next
    }
}

/// A running machine.
pub(crate) struct Engine {
    pub(crate) cpus: Cpus,
    pub(crate) heap: EventHeap,
    pub(crate) events: u64,
    /// The number of events at which the engine next polls or keeps a trail.
    slow_event_at: u64,
    pub(crate) tracker: Tracker,
    /// Checkpoints of long work. They do not count as events.
    checkpoints: u64,
    /// While the machine boots or ends: no CPU waits, and no interrupt is delivered.
    pub(crate) quiet: bool,
    pub(crate) naive: bool,
    pub(crate) costs: Costs,
    pub(crate) jitter: Jitter,
    /// `None`: all CPUs have one speed.
    pub(crate) speeds: Option<Speeds>,
    pub(crate) hold_scale: Option<HoldScale>,
    pub(crate) distances: Distances,
    pub(crate) stats: Stats,
    pub(crate) sharing: Sharing,
    /// The work of holders while others wait, in a run that records it.
    pub(crate) blame: Option<Box<Blame>>,
    /// The timeline, in a run that records it.
    pub(crate) recorder: Option<Box<Recorder>>,
    /// The queue entry of each CPU that waits for a lock: at `2 * cpu` in a task, at `2 * cpu + 1`
    /// in an interrupt.
    pub(crate) waiters: Vec<Waiter>,
    pub(crate) tasks: Vec<Task>,
    /// Tasks that have not returned.
    pub(crate) live: usize,
    /// When the last task returned, in ps.
    pub(crate) end_ps: u64,
    pub(crate) lines: Lines,
    pub(crate) percpu: PercpuLines,
    pub(crate) caches: Caches,
    pub(crate) visits: Option<Visits>,
    pub(crate) memory: Memory,
    pub(crate) device: Device,
    pub(crate) tables: Tables,
    /// Address spaces whose invalidations can be broadcast at a time.
    pub(crate) tlb_broadcast_spaces: u32,
    /// When the machine takes the next broadcast, in ps.
    pub(crate) broadcast_free_ps: u64,
    pub(crate) tlbs: Tlbs,
    pub(crate) online: CpuMask,
    /// CPUs that are asked to stop, each with the task to wake when it has stopped.
    pub(crate) leaving: Vec<(usize, usize)>,
    pub(crate) checker: Checker,
    pub(crate) delays: Delays,
    pub(crate) noise: Noise,
    pub(crate) faults: Faults,
    pub(crate) hz: u32,
    /// The seed from which policies draw. The engine's own generators started from it too.
    pub(crate) seed: u64,
    pub(crate) failure: Option<Failure>,
    pub(crate) callbacks: Option<Rc<dyn Callbacks>>,
    pub(crate) probes: Vec<Box<dyn Probe>>,
    /// The groups of tracepoints that have a listener, by bit.
    pub(crate) traced: u16,
    pub(crate) prefetch: Prefetcher,
    /// The CPU of each rank.
    by_rank: Box<[u16; MAX_CPUS]>,
    /// No CPU gets a turn at this time or later: the run has ended.
    over_at: u64,
    limit_ps: u64,
    interrupt: Option<Arc<AtomicBool>>,
    progress: Option<Listener>,
    polls: u64,
}

impl Engine {
    pub(crate) fn new(config: SimConfig, probe: impl FnMut(CpuId) -> Box<dyn Probe>) -> Self {
        let cpus = config.cpus;
        let distances = Distances::new(&config.profile.topology, cpus, config.profile.costs.line);
        let nodes = (0..cpus).map(|cpu| distances.node_of(cpu)).collect();
        let speeds = Speeds::of(&config.profile.clock, config.profile.topology.smt.max(1), nodes);
        let limit_ps = config.limit_ns.saturating_mul(1000).min(END_PS - (1 << 44));
        let ranks = ranks(cpus, config.seed);
        let by_rank = by_rank(&ranks);
        let mut seeds = SplitMix64::new(config.seed);
        let probes: Vec<_> = (0..cpus).map(CpuId::new).map(probe).collect();
        let traced = traced_groups(&probes, &config);
        let tasks = (0..cpus).map(|cpu| Task::new(cpu, true, IDLE_URGENCY, Body::Idle)).collect();
        // The hooks of a timeline are those of blame.
        let blamed = config.blame || config.timeline != TimelineOf::Nothing;
        let mut engine = Self {
            cpus: Cpus::new(
                (0..cpus).map(|cpu| Cpu::new(ranks[cpu], seeds.next(), cpu as u32)).collect(),
            ),
            heap: EventHeap::new(),
            events: 0,
            slow_event_at: 1,
            tracker: Tracker::new(config.trail),
            checkpoints: 0,
            quiet: true,
            naive: config.policy == Policy::Naive,
            hold_scale: config.hold_scale,
            stats: Stats::new(window_ps(config.locks_ns)),
            sharing: Sharing::new(cpus, window_ps(config.locks_ns)),
            blame: blamed.then(|| Box::new(Blame::new(cpus))),
            recorder: Recorder::new(config.timeline, cpus),
            waiters: vec![Waiter::default(); 2 * cpus],
            tasks,
            live: 0,
            end_ps: 0,
            percpu: PercpuLines::default(),
            lines: Lines::default(),
            visits: (config.line_order == LineOrder::ByCluster)
                .then(|| Visits::new(distances.clusters())),
            caches: Caches::new(config.profile.costs.cluster_cache_kib, distances.clusters()),
            memory: Memory::new(&config.profile, distances.nodes()),
            device: Device::new(config.profile.swap, config.profile.page_bytes, cpus),
            tables: Tables::new(cpus, config.profile.node_pages as usize * distances.nodes()),
            tlb_broadcast_spaces: config.profile.tlb_broadcast_spaces,
            broadcast_free_ps: 0,
            tlbs: Tlbs::new(cpus, Broadcasts::of(&config.profile), config.checks),
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
            traced,
            jitter: Jitter::new(config.profile.costs.jitter_1024),
            speeds,
            costs: config.profile.costs,
            distances,
            prefetch: Prefetcher::new(cpus),
            by_rank,
            over_at: limit_ps + 1,
            limit_ps,
            interrupt: config.interrupt,
            progress: config.progress,
            polls: 0,
        };
        engine.prepare_cpus(config.sections);
        engine
    }
    /// Prepares the CPUs of a new machine.
    fn prepare_cpus(&mut self, sections: Option<Windows>) {
        let recorded = self.recorder.is_some();
        for at in 0..self.cpus.len() {
            self.plan_noise(at, 0);
            self.set_speed_of(at);
            let cpu = &mut self.cpus[at];
            cpu.logged = recorded;
            if let Some(windows) = sections {
                (cpu.watched, cpu.watch) = (true, Some(Box::new(SectionStats::new(windows))));
            }
        }
    }
    #[inline]
    pub(crate) fn cpu(&mut self) -> &mut Cpu {
        self.cpus.running_mut()
    }
    /// The running CPU, for reads of what other CPUs write to it: interrupts, ready tasks, the
    /// request to stop. Everything that happened before its time is complete only at its turn.
    #[inline]
    pub(crate) fn cpu_at_turn(&mut self) -> &mut Cpu {
        let cpu = self.cpus.running_mut();
        // An entry with the same order word is the one of its own timer. The entry that ends a
        // failed run precedes all others.
        debug_assert!(
            self.quiet || self.failure.is_some() || cpu.order() <= self.heap.first(),
            "a CPU reads what others write to it, out of its turn"
        );
        cpu
    }
    /// Changes the running CPU's call path. The time since the last change is charged to the path
    /// that it leaves.
    #[inline]
    pub(crate) fn go_to_path(&mut self, path: u32) {
        let cpu = self.cpus.running_mut();
        if cpu.section_since != NEVER {
            cpu.section_on_path();
        }
        if cpu.logged {
            self.blame_path(self.cpus.at());
            self.record_path(self.cpus.at());
        }
        let cpu = self.cpus.running_mut();
        self.stats.spent(cpu.path, cpu.path_since, cpu.clock);
        cpu.path_since = cpu.clock;
        cpu.path = path;
    }
    #[inline]
    pub(crate) fn cpu_id(&self) -> CpuId {
        CpuId::new(self.cpus.at())
    }
    pub(crate) fn limit_ps(&self) -> u64 {
        self.limit_ps
    }
    /// Whether an operation on shared state may happen now on the running CPU: it is the earliest,
    /// and no interrupt is due. If the CPU has to wait, `near` gives the host address of what it
    /// uses, for [`Prefetcher`].
    #[inline]
    pub(crate) fn ready_state(&mut self, near: &impl Fn(&Self) -> usize) -> ReadyState {
        if !self.heap.is_first(self.cpus.running().order()) {
            let near = if self.prefetch.is_on() { near(self) } else { NO_ADDRESS };
            return self.yield_turn(near);
        }
        let cpu = self.cpus.running_mut();
        if cpu.irq_due() && !self.quiet {
            return ReadyState::DELIVER;
        }
        if !cpu.irq_off {
            cpu.plan_check();
        }
        self.count_event();
        ReadyState::READY
    }
    #[inline]
    pub(crate) fn count_event(&mut self) {
        self.events += 1;
        if self.events >= self.slow_event_at {
            self.slow_event();
        }
    }
    #[cold]
    fn slow_event(&mut self) {
        self.slow_event_at = self.events + 1;
        if self.tracker.is_on() {
            self.track_event();
        } else {
            self.slow_event_at = (self.events + 1).next_multiple_of(POLL_EVENTS);
        }
        if self.events.is_multiple_of(POLL_EVENTS) {
            self.poll();
        }
    }
    /// Records the event that was just counted in the trail. Events of the boot, which takes no
    /// virtual time, are only counted.
    fn track_event(&mut self) {
        let cpu = self.cpus.running();
        let time_ps = if self.quiet { 0 } else { cpu.clock };
        let path = || self.stats.names(cpu.path);
        self.tracker.note(self.events, CpuId::new(self.cpus.at()), time_ps, path);
    }
    /// Counts a checkpoint. Work that takes seconds of virtual time has millions of them and no
    /// event.
    pub(crate) fn count_checkpoint(&mut self) {
        self.checkpoints += 1;
        if self.checkpoints.is_multiple_of(POLL_EVENTS) {
            self.poll();
        }
    }
    /// Lets earlier CPUs run first: returns the task to switch to, or `Deliver` if it is this CPU's
    /// turn already. After the switch back it is. While a panic unwinds the stack the run has ended
    /// and guards are only dropped: no CPU waits any more, and the result is `Go`.
    pub(crate) fn yield_turn(&mut self, near: usize) -> ReadyState {
        let from = self.cpus.at();
        let cpu = &mut self.cpus[from];
        let (mine, yielder) = (cpu.order(), cpu.yielder);
        if self.quiet {
            return ReadyState::READY;
        }
        if std::thread::panicking() {
            self.die();
            return ReadyState::READY;
        }
        let Some(first) = self.heap.exchange(mine) else { return ReadyState::DELIVER };
        cpu.queued = mine;
        self.prefetch.record(from, near, cpu.current);
        if first != mine
            && let Some(next) = self.accept(first)
        {
            return ReadyState::after(yielder, next);
        }
        self.yield_on(from, mine, first == mine)
    }
    /// Continues `yield_turn` when the first entry resumed no CPU. `tie`: that entry had the
    /// running CPU's own order word.
    #[cold]
    fn yield_on(&mut self, from: usize, mine: u64, tie: bool) -> ReadyState {
        let yielder = self.cpus[from].yielder;
        if tie && let Some(next) = self.accept_tie(mine, from) {
            return ReadyState::after(yielder, next);
        }
        // The running CPU's own entry is in the queue, so the queue is not empty.
        loop {
            let first = self.heap.pop();
            if first == mine {
                break;
            }
            if let Some(next) = self.accept(first) {
                return ReadyState::after(yielder, next);
            }
        }
        while self.heap.first() == mine {
            self.heap.pop();
            if let Some(next) = self.accept_tie(mine, from) {
                return ReadyState::after(yielder, next);
            }
        }
        self.cpus[from].queued = NEVER;
        self.cpus.run(from);
        ReadyState::DELIVER
    }
    /// Handles another entry with the running CPU's own order word. It is out of date, or it is the
    /// one of its timer, which a running CPU does not wait for, or it is the end of the run.
    ///
    /// A timer's entry stays in the queue if its CPU resumed earlier, and the CPU may then reach an
    /// operation at exactly the timer's time. It takes the timer's interrupt first if interrupts
    /// are on.
    #[cold]
    fn accept_tie(&mut self, order: u64, at: usize) -> Option<u32> {
        self.accept_other(order, at).then_some(STOP)
    }
    /// Makes the running CPU wait, at most until `until`; returns the task to switch to.
    pub(crate) fn block(&mut self, wait: WaitState, until: u64) -> Switch {
        self.begin_wait(wait, until);
        self.leave_cpu()
    }
    /// Makes the running CPU wait, at most until `until`.
    pub(crate) fn begin_wait(&mut self, wait: WaitState, until: u64) {
        let cpu = self.cpus.running_mut();
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
    /// Returns the task to switch to, for a running CPU that waits already.
    pub(crate) fn leave_cpu(&mut self) -> Switch {
        let &Cpu { yielder, current, .. } = self.cpus.running();
        self.prefetch.record(self.cpus.at(), NO_ADDRESS, current);
        loop {
            let first = self.heap.pop();
            if first == NEVER {
                break;
            }
            if let Some(next) = self.accept(first) {
                return Switch { yielder, next };
            }
        }
        if self.live != 0 {
            let waiting = self.waiting();
            self.fail(Failure::Deadlock { time_ns: self.cpus.running().clock / 1000, waiting });
        }
        Switch { yielder, next: STOP }
    }
    /// Returns the first task of a started machine; `STOP` if there is none.
    pub(crate) fn first(&mut self) -> u32 {
        let order = if self.live == 0 { NEVER } else { self.heap.pop() };
        if order == NEVER { STOP } else { self.accept(order).unwrap_or(STOP) }
    }
    /// Resumes the CPU of a queue entry; `None` if the entry is out of date or the CPU waits on.
    #[inline(always)]
    fn accept(&mut self, order: u64) -> Option<u32> {
        let at = usize::from(self.by_rank[rank_of(order)]);
        if self.cpus[at].queued != order && !self.accept_other(order, at) {
            return None;
        }
        let cpu = &mut self.cpus[at];
        cpu.queued = NEVER;
        cpu.clock = cpu.clock.max(time_of(order));
        cpu.wait = WaitState::No;
        let (clock, next, wants_lock) = (cpu.clock, cpu.current, cpu.wanted_lock.is_some());
        self.cpus.run(at);
        if clock >= self.over_at {
            self.fail_limit();
            return Some(STOP);
        }
        if self.prefetch.is_on() {
            let after = usize::from(self.by_rank[rank_of(self.heap.first())]);
            self.prefetch.fetch_cpu(after, &self.cpus[after]);
        }
        if wants_lock && self.serve_request() {
            return None;
        }
        Some(next)
    }
    /// Whether an entry that is not its CPU's next turn resumes it: its timer's, or the end of the
    /// run. Timers of idle CPUs end with the last task.
    #[cold]
    fn accept_other(&mut self, order: u64, at: usize) -> bool {
        let (live, time_ps) = (self.live, time_of(order));
        let cpu = &mut self.cpus[at];
        if self.failure.is_some() || cpu.timer_queued != time_ps {
            return self.failure.is_some();
        }
        cpu.timer_queued = NEVER;
        let wakes = cpu.heeds_irqs() && (live != 0 || cpu.wait != WaitState::Halt);
        wakes && cpu.timer == time_ps
    }
    /// Drops entries that are out of date, which waits that ended early leave behind.
    #[cold]
    fn purge(&mut self) {
        let (cpus, by_rank, failed) = (&self.cpus, &self.by_rank, self.failure.is_some());
        self.heap.retain(|order| {
            let cpu = &cpus[usize::from(by_rank[rank_of(order)])];
            failed || cpu.queued == order || cpu.timer_queued == time_of(order)
        });
    }
    /// Resumes a waiting CPU at `time_ps`, unless it resumes earlier anyway.
    pub(crate) fn wake_by(&mut self, at: usize, time_ps: u64) {
        let cpu = &mut self.cpus[at];
        let time_ps = time_ps.max(cpu.clock);
        let order = order_of(time_ps, cpu.rank);
        if cpu.wait != WaitState::No && order < cpu.queued {
            cpu.queued = order;
            self.heap.push(order);
        }
    }
    /// Ends the run. The next CPU that waits for a turn does not get it.
    pub(crate) fn fail(&mut self, failure: Failure) {
        if self.failure.is_none() && !self.quiet {
            self.failure = Some(failure);
            // It precedes every other entry, so that no turn is granted again.
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
        let time_ps = self.cpus.running().clock;
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
    /// Passes a tracepoint of the running CPU to its probe and to the checkers.
    #[inline(never)]
    pub(crate) fn trace(&mut self, event: &Trace) {
        let (now_ns, at) = (self.cpu().clock / 1000, self.cpus.at());
        self.probes[at].event(now_ns, event);
        self.check_event(event);
        self.check_reached(event);
        if let Trace::Call(CallEvent::Wait { target, ns }) = *event {
            self.section_waited_for(target, ns);
        }
    }
    /// Stops all waiting and all delivery of interrupts, for good.
    pub(crate) fn die(&mut self) {
        self.quiet = true;
        self.callbacks = None;
    }
    /// The running CPU, its time and its call path.
    pub(crate) fn location(&self) -> Location {
        self.location_of(self.cpus.at(), self.cpus.running().path)
    }
    fn location_of(&self, at: usize, path: u32) -> Location {
        let time_ns = self.cpus[at].clock / 1000;
        Location { cpu: CpuId::new(at), time_ns, path: self.stats.names(path) }
    }
    /// Describes spinning CPUs, busy CPUs and parked tasks, for messages.
    pub(crate) fn waiting(&self) -> Vec<String> {
        let spinning = (0..self.cpus.len())
            .filter(|&at| self.cpus[at].wait == WaitState::Spin)
            .map(|at| self.spinning_text(at, &self.location_of(at, self.cpus[at].path)));
        let busy = (0..self.cpus.len()).filter(|&at| self.is_busy(at)).map(|at| {
            let location = self.location_of(at, self.cpus[at].path);
            format!("{location}: runs with preemption off")
        });
        let parked = self.tasks.iter().enumerate().filter_map(|(id, task)| {
            let what = match task.state {
                TaskState::Parked => "parked",
                TaskState::Ready if self.cpus[usize::from(task.cpu)].wait != WaitState::No => {
                    "ready"
                }
                _ => return None,
            };
            let location = self.location_of(usize::from(task.cpu), task.path);
            (!matches!(task.body, Body::Idle)).then(|| format!("task {id} is {what} on {location}"))
        });
        spinning.chain(busy).chain(parked).take(64).collect()
    }
    /// Whether CPU `at` runs code that it cannot leave for another task: perhaps a loop that waits
    /// for another CPU.
    fn is_busy(&self, at: usize) -> bool {
        let cpu = &self.cpus[at];
        cpu.wait == WaitState::No && cpu.preempt != 0 && cpu.current != cpu.idle
    }
}

/// The groups of tracepoints that the probes, the checkers or the section statistics want, by bit.
fn traced_groups(probes: &[Box<dyn Probe>], config: &SimConfig) -> u16 {
    let all = config.checks == Checks::On;
    let for_sections = |group| config.sections.is_some() && group == TraceGroup::Call;
    let wants = |group| probes.iter().any(|probe| probe.hears(group));
    let groups = TraceGroup::ALL.iter().copied();
    let groups = groups.filter(|&group| all || for_sections(group) || wants(group));
    groups.fold(0, |bits, group| bits | 1 << group as u16)
}

/// Converts a window from ns to ps; an open end stays open.
fn window_ps((from_ns, to_ns): (u64, u64)) -> std::ops::Range<u64> {
    from_ns.saturating_mul(1000)..to_ns.saturating_mul(1000)
}

/// Returns the CPU of each rank.
fn by_rank(ranks: &[usize]) -> Box<[u16; MAX_CPUS]> {
    let mut cpus = Box::new([0; MAX_CPUS]);
    ranks.iter().enumerate().for_each(|(cpu, &rank)| cpus[rank] = cpu as u16);
    cpus
}

/// Draws each CPU's rank in ties from the seed: a permutation.
fn ranks(cpus: usize, seed: u64) -> Vec<usize> {
    let mut rng = SplitMix64::new(seed ^ 0x7469_6573);
    let mut ranks: Vec<usize> = (0..cpus).collect();
    (1..cpus).rev().for_each(|at| ranks.swap(at, rng.below(at as u64 + 1) as usize));
    ranks
}
