//! Calls to other CPUs: a function, passed by value, that other CPUs run in an interrupt.
//!
//! | policy | records | preemption during the wait | the caller waits for |
//! |---|---|---|---|
//! | `stock` | one for each source and target | off | each of its records |
//! | `posted` | one for each source and target | on | each of its records, even if reused |
//! | `requests` | 62, and a word for each CPU | on; or it sleeps | its own request |
//!
//! The first call queued to a CPU sends it an interrupt. Later calls send none until the CPU has
//! taken its queue (`ipis_elided`).
//!
//! # Callers
//! Calls are made by tasks, with interrupts on. In an interrupt, or with interrupts off, a call
//! could wait for a CPU that waits for this one: it panics. A caller takes interrupts while it
//! waits, so two CPUs may call one another at the same time.
//!
//! # CPU hotplug
//! A CPU can be called until it has closed its queue ([`Smp::cpu_dying`]). It does that as its last
//! step before it stops, with interrupts off, and only if nothing is queued and no interrupt is on
//! its way. Calls skip a CPU with a closed queue. It opens the queue before it runs anything again.
//! Thus no mask has to be stable while a call is queued.
//!
//! Locks: none, except those of the wait queues with `requests`. A caller may hold spin locks with
//! [`Wait::Spin`], but none that an interrupt takes.

mod call;
mod csd;
mod pieces;
mod queue;
mod requests;
mod stats;
mod watch;

pub use call::{Call, CallFunc, Here, Reached, Unanswered, Wait};
pub(crate) use pieces::in_pieces;
pub use stats::CallStats;
pub(crate) use stats::{CallCounters, CpuCalls};
pub(crate) use watch::Watch;

use core::cell::Cell;
use csd::{Csds, PreemptOff};
use mmscale_arch::sync::{IrqGuard, NoPreempt, PerCpu, PreemptGuard};
use mmscale_arch::{CpuId, CpuMask, Func, Machine, Span};
use requests::{Requests, SetBit};

/// Time that a caller with `requests` that may sleep spins first, in ns: about the cost of one
/// sleep and wakeup.
pub(crate) const SPIN_NS: u64 = 5_000;
/// Timeout of a call, in ns (`csd_lock_timeout` of Linux).
pub const CSD_LOCK_TIMEOUT_NS: u64 = 5_000_000_000;

mmscale_arch::policies! {
    /// How CPUs call one another.
    pub enum CallPolicy: "calls", "calls to other CPUs and TLB flushes" {
        /// Keeps preemption off until all targets have answered (Linux).
        Stock = "stock",
        /// Turns preemption on again once the call is queued and sent (v6, May 2026).
        Posted = "posted",
        /// Lets a request own its completion, queues it in bounded pieces, and waits asleep;
        /// flushes wait for generations alone.
        Requests = "requests",
    }
}

mmscale_arch::policies! {
    /// Whether x86 uses an instruction that invalidates translations on all CPUs.
    pub enum BroadcastPolicy: "broadcast", "TLB flushes without interrupts, where x86 has them" {
        /// Uses INVLPGB for address spaces that are active on four CPUs and for the kernel's range,
        /// if the machine profile has it and calls=stock or calls=posted.
        Stock = "stock",
        /// Interrupts CPUs, as on machines without INVLPGB. Machines that broadcast every
        /// invalidation, such as arm64, still do so.
        None = "none",
    }
}

mmscale_arch::policies! {
    /// When a TLB flush, or a call to all CPUs, does the part of the calling CPU.
    pub enum ShootdownPolicy: "shootdown", "the calling CPU's part of a TLB flush" {
        /// Flushes the calling CPU while the others flush.
        Together = "stock",
        /// Flushes the calling CPU before the others are called, or, for the kernel's range, after
        /// they have answered, with calls=stock.
        InTurn = "in-turn",
    }
}

mmscale_arch::policies! {
    /// How many unmapped frames wait for one TLB flush
    /// ([`Gather`](crate::pgtable::Gather)).
    pub enum GatherPolicy: "gather", "unmapped frames that wait for one TLB flush" {
        /// Gathers about 10,000 frames, in pages that it allocates.
        Stock = "stock",
        /// Gathers 8 frames, without pages, as for dirty pages of files in the first form of
        /// "mm: delay page_remove_rmap() until after the TLB has been flushed" (6.2-rc1).
        Small = "small",
    }
}

/// Configuration of calls.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SmpConfig {
    /// The policy.
    pub policy: CallPolicy,
    /// The policy of broadcast invalidations.
    pub broadcast: BroadcastPolicy,
    /// The policy of the calling CPU's part of a flush.
    pub shootdown: ShootdownPolicy,
    /// The policy of gathers.
    pub gather: GatherPolicy,
    /// Timeout in ns: a CPU that has not answered by then ends the run with a message that names
    /// it.
    pub timeout_ns: u64,
}

impl Default for SmpConfig {
    fn default() -> Self {
        Self {
            policy: CallPolicy::Stock,
            broadcast: BroadcastPolicy::Stock,
            shootdown: ShootdownPolicy::Together,
            gather: GatherPolicy::Stock,
            timeout_ns: CSD_LOCK_TIMEOUT_NS,
        }
    }
}

enum Calls<A: Machine> {
    Csds(Csds<A>),
    Requests(Requests<A>),
}

/// Calls between the CPUs of a machine.
pub struct Smp<A: Machine> {
    config: SmpConfig,
    calls: Calls<A>,
    counters: CallCounters<A>,
    /// The CPU has closed its queue.
    closed: PerCpu<A, Cell<bool>>,
}

/// Panics if the caller may not wait.
fn may_call<A: Machine>() {
    assert!(!A::in_interrupt(), "a CPU is called from an interrupt: two could wait for each other");
    let before = A::irq_save();
    A::irq_restore(before);
    assert!(before.0, "a CPU is called with interrupts off: two could wait for each other");
}

impl<A: Machine> Smp<A> {
    /// Creates empty queues; every CPU can be called once it runs.
    pub fn new(config: SmpConfig) -> Self {
        let calls = match config.policy {
            CallPolicy::Stock => Calls::Csds(Csds::new(PreemptOff::UntilDone)),
            CallPolicy::Posted => Calls::Csds(Csds::new(PreemptOff::UntilSent)),
            CallPolicy::Requests => Calls::Requests(Requests::new()),
        };
        Self {
            config,
            calls,
            counters: CallCounters::default(),
            closed: PerCpu::new(|_| Cell::new(false)),
        }
    }
    /// Returns the configuration.
    pub fn config(&self) -> &SmpConfig {
        &self.config
    }
    /// Returns the statistics.
    pub fn stats(&self) -> CallStats {
        self.counters.all()
    }
    /// Memory of the records of calls on this machine, queues included, in bytes, as it is on
    /// hardware. Masks that belong to tasks are not in it.
    pub fn memory_bytes(&self) -> u64 {
        match &self.calls {
            Calls::Csds(csds) => csds.bytes(),
            Calls::Requests(_) => Requests::<A>::bytes(),
        }
    }
    pub(crate) fn counters(&self) -> &CallCounters<A> {
        &self.counters
    }
    /// The counters of the calling CPU.
    #[inline]
    pub(crate) fn tally(&self) -> &CpuCalls {
        self.counters.here()
    }

    // -- Calls.

    /// Runs `call` on the online CPUs of `targets` for which `cond` holds
    /// (`smp_call_function_many_cond`).
    ///
    /// Other CPUs run it in an interrupt, by the machine's callback to [`Smp::interrupt`]; this CPU
    /// runs it by `run`, if `here` is [`Here::Run`] and it is among the targets. Unless `wait` is
    /// [`Wait::No`], all targets have run it when this returns.
    ///
    /// `cond` is evaluated with preemption off, once for each target, right before the call is
    /// queued. With `stock` and `posted` the caller stays on one CPU until the last interrupt is
    /// sent. With `requests` each piece of the queue phase may run on another CPU; "this CPU" is
    /// the one where the first piece began.
    pub fn call_function_many(
        &self,
        targets: impl IntoIterator<Item = CpuId>,
        cond: impl Fn(CpuId) -> bool,
        call: Call,
        here: Here,
        wait: Wait,
        run: &impl Fn(Call),
    ) -> Reached {
        let _span = Span::<A>::enter(Func::SmpCallFunctionMany);
        let (on, how) = ((&self.config, &self.counters), (here, wait));
        let targets = targets.into_iter();
        match &self.calls {
            Calls::Csds(csds) => csds.call_many(on, targets, cond, call, how, run),
            Calls::Requests(requests) => requests.call_many(on, targets, cond, call, how, run),
        }
    }
    /// Runs `call` on all online CPUs, this one included (`on_each_cpu`).
    pub fn on_each_cpu(&self, call: Call, wait: Wait, run: &impl Fn(Call)) -> Reached {
        let mut online = CpuMask::EMPTY;
        A::online(&mut online);
        if !self.is_in_turn() {
            return self.call_function_many(online.iter(), |_| true, call, Here::Run, wait, run);
        }
        let _pinned = PreemptGuard::<A>::new();
        let others = self.call_function_many(online.iter(), |_| true, call, Here::Skip, wait, run);
        let _off = IrqGuard::<A>::new();
        run(call);
        Reached { here: 1, ..others }
    }
    /// Runs a flush on the CPUs of `targets` for which `cond` holds, this one included, in the
    /// order of the policy; returns the number of other CPUs. `own` returns whether the CPU that it
    /// gets, this one, is among them.
    pub(crate) fn flush_by_call(
        &self,
        targets: impl Iterator<Item = CpuId>,
        cond: impl Fn(CpuId) -> bool,
        own: impl Fn(CpuId) -> bool,
        (call, wait): (Call, Wait),
        run: &impl Fn(Call),
    ) -> u32 {
        if !self.is_in_turn() {
            return self.call_function_many(targets, cond, call, Here::Run, wait, run).others;
        }
        let pinned = PreemptGuard::<A>::new();
        let here = pinned.cpu();
        if own(here) {
            let _off = IrqGuard::<A>::new();
            run(call);
        }
        let others = targets.filter(|&cpu| cpu != here);
        self.call_function_many(others, cond, call, Here::Skip, wait, run).others
    }
    fn is_in_turn(&self) -> bool {
        self.config.shootdown == ShootdownPolicy::InTurn && self.config.policy == CallPolicy::Stock
    }
    /// Requests [`CallFunc::FlushToCurrentGen`] from `cpu` and does not wait; one request serves
    /// all callers until the CPU runs it. Returns `false` if the CPU has stopped. Only with
    /// `requests`; preemption is off.
    pub(crate) fn send_flush_ipi(&self, _pinned: &impl NoPreempt<A>, cpu: CpuId) -> bool {
        match &self.calls {
            Calls::Requests(requests) => {
                requests.send_flush_ipi(&self.counters, cpu) != SetBit::Closed
            }
            Calls::Csds(_) => unreachable!("flush IPIs are sent with requests only"),
        }
    }

    // -- Callbacks.

    /// Handles [`Ipi::CallFunction`](mmscale_arch::Ipi::CallFunction) on this CPU: runs the queued
    /// calls. Called exactly once for each interrupt.
    pub fn interrupt(&self, run: &impl Fn(Call)) {
        match &self.calls {
            Calls::Csds(csds) => csds.run_queued(run),
            Calls::Requests(requests) => requests.run_queued(run),
        }
    }
    /// Closes this CPU's queue before it stops; interrupts are off. Returns `false` if calls are
    /// queued: their interrupt is on its way and must be taken first. After `true` nothing can be
    /// queued any more.
    pub fn cpu_dying(&self) -> bool {
        let off = IrqGuard::<A>::new();
        let closed = match &self.calls {
            Calls::Csds(csds) => csds.close(),
            Calls::Requests(requests) => requests.close(),
        };
        self.closed.get(&off).set(closed);
        closed
    }
    /// Opens this CPU's queue, if it had closed it, before it runs anything.
    pub fn idle_exit(&self) {
        let off = IrqGuard::<A>::new();
        if self.closed.get(&off).replace(false) {
            self.open(off.cpu());
        }
    }
    /// Opens the queue of `cpu`, which is online, if it has not done so itself.
    pub fn cpu_online(&self, cpu: CpuId) {
        self.open(cpu);
    }
    fn open(&self, cpu: CpuId) {
        match &self.calls {
            Calls::Csds(csds) => csds.open(cpu),
            Calls::Requests(requests) => requests.open(cpu),
        }
    }
    /// Wakes sleeping callers once an interval, so that they check for a timeout.
    pub fn watch(&self) {
        if let Calls::Requests(requests) = &self.calls {
            requests.wake_all();
        }
    }
    /// Returns whether a call is queued for `cpu`.
    pub fn is_queued(&self, cpu: CpuId) -> bool {
        match &self.calls {
            Calls::Csds(csds) => csds.is_queued(cpu),
            Calls::Requests(requests) => requests.is_queued(cpu),
        }
    }
}
