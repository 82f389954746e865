//! Calls to other CPUs: a function, by value, that other CPUs run in an interrupt.
//!
//! | policy | records | preemption in the wait | the caller waits for |
//! |---|---|---|---|
//! | `stock` | one for each source and target | off | each of its records |
//! | `posted` | the same | on | the same, whoever uses them by then |
//! | `requests` | 62, and a word for each CPU | on; or it sleeps | its own request |
//!
//! Whoever queues the first call to a CPU interrupts it; whoever comes later, until the CPU has
//! taken its calls, need not (`ipis_elided`).
//!
//! # Who may call
//! Tasks, with interrupts on. In an interrupt, or with interrupts off, a call could wait for a CPU
//! that waits for this one: it panics. While a caller waits it takes interrupts, so two CPUs may
//! call one another at the same time.
//!
//! # CPUs that leave
//! A CPU is called until it has closed its queue, which it does as the last thing before it stops,
//! with interrupts off ([`Smp::cpu_dying`]): only when nothing is queued and no interrupt on its
//! way. From then on nothing can be queued to it, and a call passes it over. It opens its queue
//! before it runs anything again. So no mask has to be stable while a call is queued.
//!
//! Locks: none, but the wait queues' with `requests`. A caller may hold spin locks if it says so
//! ([`Wait::Spin`]), but none that an interrupt takes.

mod call;
mod csd;
mod pieces;
mod queue;
mod requests;
mod stats;
mod watch;

pub use call::{Call, CallFunc, Here, Offline, Reached, Unanswered, Wait};
pub(crate) use pieces::in_pieces;
pub use stats::CallStats;
pub(crate) use stats::{Count, Max, Tally};
pub(crate) use watch::Watch;

use core::cell::Cell;
use csd::{Csds, Section};
use mmscale_arch::sync::{IrqGuard, NoPreempt, PerCpu};
use mmscale_arch::{CpuId, CpuMask, Func, Machine, Span, planted};
use requests::{Requests, Set};

/// With `requests`, how long a caller that may sleep spins first, in ns: about what it takes to
/// sleep and to be woken.
pub(crate) const SPIN_NS: u64 = 5_000;
/// When a CPU that has not answered is given up (`csd_lock_timeout` of Linux), in ns.
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

/// What can be set about calls.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SmpConfig {
    /// How they are made.
    pub policy: CallPolicy,
    /// After which a CPU that has not answered ends the run with its name, in ns.
    pub timeout_ns: u64,
}

impl Default for SmpConfig {
    fn default() -> Self {
        Self { policy: CallPolicy::Stock, timeout_ns: CSD_LOCK_TIMEOUT_NS }
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
    tally: Tally,
    /// The CPU has closed its queue.
    closed: PerCpu<A, Cell<bool>>,
}

/// Panics where a caller may not wait.
fn may_call<A: Machine>() {
    assert!(!A::in_interrupt(), "a CPU is called from an interrupt: two could wait for each other");
    let before = A::irq_save();
    A::irq_restore(before);
    assert!(before.0, "a CPU is called with interrupts off: two could wait for each other");
}

impl<A: Machine> Smp<A> {
    /// Nothing is queued; every CPU can be called once it runs.
    pub fn new(config: SmpConfig) -> Self {
        let calls = match config.policy {
            CallPolicy::Stock => Calls::Csds(Csds::new(Section::Whole)),
            CallPolicy::Posted => Calls::Csds(Csds::new(Section::QueuePhase)),
            CallPolicy::Requests => Calls::Requests(Requests::new()),
        };
        Self { config, calls, tally: Tally::new::<A>(), closed: PerCpu::new(|_| Cell::new(false)) }
    }
    /// What was set.
    pub fn config(&self) -> &SmpConfig {
        &self.config
    }
    /// What has been counted.
    pub fn stats(&self) -> CallStats {
        self.tally.stats(match &self.calls {
            Calls::Csds(csds) => csds.bytes(),
            Calls::Requests(_) => Requests::<A>::bytes(),
        })
    }
    pub(crate) fn tally(&self) -> &Tally {
        &self.tally
    }

    // -- Calls.

    /// Runs `call` on those CPUs of `targets` that run and for which `cond` holds
    /// (`smp_call_function_many_cond`): on others in an interrupt, by whatever the machine's
    /// callback hands to [`Smp::interrupt`], and on this one by `run`, if `here` says so and it is
    /// among the targets. With `wait` other than [`Wait::No`] all have run it when this returns.
    ///
    /// `cond` is asked with preemption off, for each target once, right before the call is queued.
    /// The CPU that is this one is so from the first look at a target to the local run, and but for
    /// `requests`, of which each piece may run elsewhere, to the last interrupt sent.
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
        let (on, how) = ((&self.config, &self.tally), (here, wait));
        let targets = targets.into_iter();
        match &self.calls {
            Calls::Csds(csds) => csds.call_many(on, targets, cond, call, how, run),
            Calls::Requests(requests) => requests.call_many(on, targets, cond, call, how, run),
        }
    }
    /// The same for all CPUs that are online, this one included (`on_each_cpu`).
    pub fn on_each_cpu(&self, call: Call, wait: Wait, run: &impl Fn(Call)) -> Reached {
        let mut online = CpuMask::EMPTY;
        A::online(&mut online);
        self.call_function_many(online.iter(), |_| true, call, Here::Run, wait, run)
    }
    /// The same for one CPU, which may be this one (`smp_call_function_single`).
    pub fn call_function_single(
        &self,
        cpu: CpuId,
        call: Call,
        wait: Wait,
        run: &impl Fn(Call),
    ) -> Result<(), Offline> {
        let reached = self.call_function_many([cpu], |_| true, call, Here::Run, wait, run);
        if reached == Reached::default() { Err(Offline) } else { Ok(()) }
    }
    /// Asks `cpu` for [`CallFunc::CatchUp`], once for all who ask before it does, and does not
    /// wait; `false`: it has stopped. Only with `requests`; preemption is off.
    pub(crate) fn nudge(&self, _pinned: &impl NoPreempt<A>, cpu: CpuId) -> bool {
        match &self.calls {
            Calls::Requests(requests) => requests.nudge(&self.tally, cpu) != Set::Closed,
            Calls::Csds(_) => unreachable!("CPUs are nudged with requests only"),
        }
    }

    // -- Callbacks.

    /// This CPU was interrupted ([`Ipi::CallFunction`](mmscale_arch::Ipi::CallFunction)): runs what
    /// it was called for. Exactly once for each interrupt.
    pub fn interrupt(&self, run: &impl Fn(Call)) {
        match &self.calls {
            Calls::Csds(csds) => csds.run_queued(run),
            Calls::Requests(requests) => requests.run_queued(run),
        }
    }
    /// This CPU is about to stop for good; interrupts are off. `false`: an interrupt is on its way
    /// for what is queued, which it must take first. `true`: nothing can be queued any more.
    pub fn cpu_dying(&self) -> bool {
        let off = IrqGuard::<A>::new();
        let closed = match &self.calls {
            Calls::Csds(csds) => csds.close(),
            Calls::Requests(requests) => requests.close(),
        };
        self.closed.get(&off).set(closed);
        closed
    }
    /// This CPU is about to run something: if it had stopped it can be called again.
    pub fn idle_exit(&self) {
        let off = IrqGuard::<A>::new();
        if self.closed.get(&off).replace(false) && !planted!(SmpStaysClosed) {
            self.open(off.cpu());
        }
    }
    /// `cpu` runs: it can be called, if it has not seen to that itself.
    pub fn cpu_online(&self, cpu: CpuId) {
        self.open(cpu);
    }
    fn open(&self, cpu: CpuId) {
        match &self.calls {
            Calls::Csds(csds) => csds.open(cpu),
            Calls::Requests(requests) => requests.open(cpu),
        }
    }
    /// Once an interval: whoever sleeps looks at the clock.
    pub fn watch(&self) {
        if let Calls::Requests(requests) = &self.calls {
            requests.wake_all();
        }
    }
    /// Whether anything is queued for `cpu`.
    pub fn is_queued(&self, cpu: CpuId) -> bool {
        match &self.calls {
            Calls::Csds(csds) => csds.is_queued(cpu),
            Calls::Requests(requests) => requests.is_queued(cpu),
        }
    }
}
