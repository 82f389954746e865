//! The vmstat tick: each CPU folds its counters and shrinks its page caches once an interval.
//!
//! The tick of a CPU (`vmstat_update`) is deferrable delayed work on that CPU. It arms itself again
//! as long as there was something to do. Otherwise it stops, until the *shepherd* finds that the
//! CPU has counted something. A CPU that goes idle folds its counters immediately and leaves its
//! page caches as they are: its tick waits until the CPU is awake.
//!
//! * [`TickPolicy::Stock`]: the next tick is an interval later, rounded to a whole second with a
//!   skew. It decays the high limits by an eighth and waits for locks. The shepherd starts all
//!   ticks that are needed at the same time.
//! * [`TickPolicy::Posted`]: like `Stock`, but the next tick of CPU c of n is (1 + (c mod n) / n)
//!   intervals later.
//! * [`TickPolicy::Phased`]: the next tick is at the CPU's own phase of the interval, exactly. High
//!   limits decay by the time passed, no lock is waited for, and the shepherd starts each tick at
//!   its phase.
//!
//! `Posted` is the series of April 2026 on linux-mm. `Phased` is described in its module.
//!
//! Lock order: none of its own but a mutex (class Mutex) around the ranking of CPUs on hotplug.

mod phased;
mod plain;
mod posted;

use crate::time::{Expiry, Hz, Time};
use crate::work::{Work, WorkItem};
use core::sync::atomic::Ordering::Relaxed;
use mmscale_arch::sync::{EachCpu, Mutex, PerCpu};
use mmscale_arch::{Atomic, CpuId, Func, LockClass, Machine, Span, TickEvent, Trace};
use mmscale_frames::page_alloc::{FrameAllocator, Refresh};
use phased::{Phase, Progress};

mmscale_arch::policies! {
    /// How ticks are spread over time, and how they treat a zone's lock.
    pub enum TickPolicy: "tick", "the per-CPU upkeep tick and zone->lock" {
        /// Ticks again after the interval rounded to whole seconds; waits for zone->lock (Linux
        /// 6.19).
        Stock = "stock",
        /// Gives each CPU a period of its own, of one to two intervals (RFC of April 2026).
        Posted = "posted",
        /// Gives each CPU a phase of the one interval; never waits for zone->lock.
        Phased = "phased",
    }
}

/// Returns the delay of a CPU's next plain tick; the last argument is the number of online CPUs.
type Delay<A> = fn(&Upkeep<A>, &VmstatRef<'_, A>, CpuId, u64) -> Expiry;

/// The kind of a policy's ticks.
enum Ticks<A: Machine> {
    /// As in Linux, with a delay of the policy's own.
    Plain(Delay<A>),
    /// At their phases.
    Phased,
}

impl<A: Machine> Ticks<A> {
    fn of(policy: TickPolicy) -> Self {
        match policy {
            TickPolicy::Stock => Self::Plain(Upkeep::stock_delay),
            TickPolicy::Posted => Self::Plain(Upkeep::posted_delay),
            TickPolicy::Phased => Self::Phased,
        }
    }
}

/// The condition for arming the next tick.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Requeue {
    /// The tick changed something, or a page cache is above its floor (Linux).
    #[default]
    Needed,
    /// Always, to study the firing pattern alone.
    Always,
}

/// Maximum of the interval, in ns: an hour.
pub const MAX_INTERVAL_NS: u64 = 3_600_000_000_000;

/// The parts of the memory manager that the tick uses.
pub(crate) struct VmstatRef<'a, A: Machine> {
    pub(crate) frames: &'a FrameAllocator<A>,
    pub(crate) time: &'a Time<A>,
    pub(crate) work: &'a Work<A>,
}

/// The vmstat ticks of all CPUs.
pub struct Upkeep<A: Machine> {
    policy: TickPolicy,
    ticks: Ticks<A>,
    requeue: Requeue,
    interval_ns: u64,
    interval_jiffies: u64,
    /// The CPU on which the shepherd waits.
    shepherd_on: A::AtomicU32,
    phases: EachCpu<Phase<A>>,
    progress: PerCpu<A, Progress>,
    ranking: Mutex<A, ()>,
    /// The time up to which the phased shepherd has checked phases, in ns.
    looked_until_ns: A::AtomicU64,
}

impl<A: Machine> Upkeep<A> {
    /// Creates the state. Returns `None` for an interval below one jiffy or above
    /// [`MAX_INTERVAL_NS`].
    pub(crate) fn new(
        policy: TickPolicy,
        requeue: Requeue,
        interval_ns: u64,
        hz: Hz,
    ) -> Option<Self> {
        if interval_ns > MAX_INTERVAL_NS || hz.jiffies(interval_ns) == 0 {
            return None;
        }
        Some(Self {
            policy,
            ticks: Ticks::of(policy),
            requeue,
            interval_ns,
            interval_jiffies: hz.span(interval_ns),
            shepherd_on: A::AtomicU32::new(0),
            phases: EachCpu::new::<A>(|_| Phase::new()),
            progress: PerCpu::new(|_| Progress::default()),
            ranking: Mutex::new(LockClass::Mutex, ()),
            looked_until_ns: A::AtomicU64::new(0),
        })
    }

    /// Returns the policy.
    pub fn policy(&self) -> TickPolicy {
        self.policy
    }
    /// Returns whether a tick that did `run` arms itself again.
    fn goes_on(&self, run: &Refresh) -> bool {
        run.changed || self.requeue == Requeue::Always
    }
    /// Returns the interval, in ns.
    pub fn interval_ns(&self) -> u64 {
        self.interval_ns
    }

    /// Arms the shepherd on this CPU. Ticks start when the shepherd finds something to do.
    pub(crate) fn start(&self, parts: &VmstatRef<'_, A>) {
        self.rank_cpus();
        self.arm_shepherd(parts, A::cpu());
    }

    /// Runs the calling CPU's tick, in its worker.
    pub(crate) fn vmstat_update(&self, parts: &VmstatRef<'_, A>, cpu: CpuId) {
        let _span = Span::<A>::enter(Func::VmstatUpdate);
        match self.ticks {
            Ticks::Plain(delay) => self.run_plain(parts, cpu, delay),
            Ticks::Phased => self.run_phased(parts, cpu),
        }
    }

    /// Runs the shepherd, in a worker.
    pub(crate) fn shepherd(&self, parts: &VmstatRef<'_, A>) {
        let _span = Span::<A>::enter(Func::VmstatShepherd);
        match self.ticks {
            Ticks::Plain(_) => self.kick_all(parts),
            Ticks::Phased => self.kick_at_phases(parts),
        }
        self.arm_shepherd(parts, A::cpu());
    }

    fn arm_shepherd(&self, parts: &VmstatRef<'_, A>, cpu: CpuId) {
        self.shepherd_on.store(cpu.index() as u32, Relaxed);
        let expiry = match self.ticks {
            Ticks::Plain(_) => self.rounded_interval(parts, cpu),
            Ticks::Phased => self.next_shepherd_step(),
        };
        parts.work.queue_delayed_on(parts.time, cpu, WorkItem::Shepherd, expiry);
    }

    /// Folds the counters of this CPU, which goes idle (`quiet_vmstat`); its tick stays armed.
    /// Interrupts are off.
    pub(crate) fn idle_enter(&self, parts: &VmstatRef<'_, A>) {
        let cpu = A::cpu();
        let pending = parts.work.is_pending(WorkItem::VmstatTick(cpu));
        if pending
            && let Some(expires_ns) = parts.work.due_ns(parts.time, WorkItem::VmstatTick(cpu))
        {
            A::trace(Trace::Tick(TickEvent::PendingInIdle { expires_ns }));
        }
        if pending && parts.frames.stats().needs_update(cpu) {
            let _span = Span::<A>::enter(Func::QuietVmstat);
            parts.frames.fold_counters();
        }
    }

    // -- Hotplug.

    /// Disables the tick of `cpu`, which goes offline, and moves the shepherd to another CPU.
    pub(crate) fn cpu_down_prepare(&self, parts: &VmstatRef<'_, A>, cpu: CpuId) {
        parts.work.disable_sync(parts.time, WorkItem::VmstatTick(cpu));
        self.phases.of(cpu).cut_short();
        if self.shepherd_on.load(Relaxed) == cpu.index() as u32 {
            parts.work.cancel_sync(parts.time, WorkItem::Shepherd);
            // The caller's CPU is another one, and online.
            self.arm_shepherd(parts, A::cpu());
        }
    }

    /// Ranks the remaining CPUs after one has died.
    pub(crate) fn cpu_dead(&self) {
        self.rank_cpus();
    }

    /// Enables the tick of `cpu`, which is online again.
    pub(crate) fn cpu_online(&self, parts: &VmstatRef<'_, A>, cpu: CpuId) {
        self.rank_cpus();
        parts.work.enable(WorkItem::VmstatTick(cpu));
        match self.ticks {
            // The shepherd will start it.
            Ticks::Plain(_) => {}
            Ticks::Phased => self.arm_at_phase(parts, cpu),
        }
    }
}

/// Traces the end of a tick.
fn trace_end<A: Machine>(run: &Refresh, rearmed: bool) {
    A::trace(Trace::Tick(TickEvent::End {
        pages_returned: run.pages_returned,
        pages_deferred: run.pages_deferred,
        trylock_failures: run.trylock_failures,
        rearmed,
    }));
}
