//! The memory manager of one machine, as one value.
//!
//! A machine's [`Callbacks`](crate::arch::Callbacks) forward to the methods of the same names.
//! The order of calls over a run:
//!
//! 1. [`Mm::new`] before any CPU runs; [`Mm::start`] in the first task.
//! 2. Callbacks and allocations, for as long as the machine runs. CPUs may start idle; a CPU that
//!    runs its first task has left idle, whether the machine says so ([`Mm::idle_exit`]) or not.
//! 3. [`Mm::shutdown`] in some task: sleepers wake, workers return, nothing new is queued.
//! 4. [`Mm::quiesce`] once nothing else runs, then the verifiers.
//!
//! Lock order: none of its own.

use crate::arch::{Arch, CpuId, CpuMask, Ipi, TaskEntry};
use crate::rcu::Rcu;
use crate::time::Time;
use crate::work::{Work, WorkItem};

/// Tasks whose entry has this bit are the memory manager's own; the rest of the numbers belongs
/// to whoever embeds it.
pub const MM_TASK: u64 = 1 << 63;

/// The worker of `cpu` as a task.
const fn worker_entry(cpu: CpuId) -> TaskEntry {
    TaskEntry(MM_TASK | cpu.index() as u64)
}

/// Why there is no memory manager.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MmError {
    /// The machine's timer frequency is 0 or above 10,000.
    Hz,
}

impl core::fmt::Display for MmError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Hz => "setting up timers: hz is not between 1 and 10000",
        })
    }
}

impl core::error::Error for MmError {}

/// The memory manager of one machine.
pub struct Mm<A: Arch> {
    time: Time<A>,
    work: Work<A>,
    rcu: Rcu<A>,
}

impl<A: Arch> Mm<A> {
    /// Timers and work queues for every possible CPU.
    pub fn new() -> Result<Self, MmError> {
        Ok(Self { time: Time::new().ok_or(MmError::Hz)?, work: Work::new(), rcu: Rcu::new() })
    }

    /// Timers and sleeping.
    pub fn time(&self) -> &Time<A> {
        &self.time
    }
    /// Work queues.
    pub fn work(&self) -> &Work<A> {
        &self.work
    }
    /// Grace periods.
    pub fn rcu(&self) -> &Rcu<A> {
        &self.rcu
    }

    // -- The life of a run. Tasks only.

    /// Makes the workers of all online CPUs and arms the upkeep. Once, in the first task.
    pub fn start(&self) {
        self.time.idle_exit();
        let mut online = CpuMask::EMPTY;
        A::online(&mut online);
        online.iter().for_each(|cpu| self.work.start_worker(cpu, worker_entry(cpu)));
    }

    /// The calling task sleeps for `ns`, or until [`Mm::shutdown`].
    pub fn sleep_ns(&self, ns: u64) {
        self.time.sleep_until(A::now_ns().saturating_add(ns));
    }

    /// Wakes every sleeper and lets all workers return. Nothing is queued or slept afterwards.
    pub fn shutdown(&self) {
        self.time.stop_sleeping();
        self.work.shutdown();
    }

    // -- Callbacks.

    /// An inter-processor interrupt arrived.
    pub fn ipi(&self, reason: Ipi) {
        match reason {
            Ipi::CallFunction => {}
            Ipi::RcuExpedited => self.rcu.expedited_ipi(),
            Ipi::Timer => self.time.reprogram(),
        }
    }

    /// This CPU's one-shot timer went off.
    pub fn timer(&self) {
        let cpu = A::cpu();
        if self.time.interrupt(|slot| self.work.expired(cpu, slot)) {
            self.rcu.tick();
        }
    }

    /// This CPU is about to go idle.
    pub fn idle_enter(&self) {
        self.time.idle_enter();
        self.rcu.idle_enter();
    }

    /// This CPU leaves idle.
    pub fn idle_exit(&self) {
        self.rcu.idle_exit();
        self.time.idle_exit();
    }

    /// This CPU switched tasks.
    #[inline]
    pub fn context_switch(&self) {
        self.rcu.context_switch();
    }

    /// Runs the task `entry` if it is one of the memory manager's own; `false` if it is not.
    pub fn task(&self, entry: TaskEntry) -> bool {
        if entry.0 & MM_TASK == 0 {
            return false;
        }
        let cpu = CpuId::new((entry.0 & !MM_TASK) as usize);
        // The first task of a CPU that was never idle: it ticks from now on.
        self.time.idle_exit();
        self.work.worker(cpu, |item| self.run(item));
        true
    }

    /// Runs one piece of work; the caller is a worker.
    pub fn run(&self, item: WorkItem) {
        match item {
            WorkItem::VmstatTick(_) | WorkItem::Shepherd | WorkItem::DrainPages(_) => {}
            WorkItem::Test(_) => {}
        }
    }

    // -- Hotplug.

    /// `cpu` is about to go away.
    pub fn cpu_down_prepare(&self, cpu: CpuId) {
        self.work.stop_worker(cpu);
    }

    /// `cpu` is gone.
    pub fn cpu_dead(&self, cpu: CpuId) {
        self.rcu.cpu_dead(cpu);
        self.time.cpu_dead(cpu, |slot, expiry| self.work.adopt(&self.time, cpu, slot, expiry));
    }

    /// `cpu` runs.
    pub fn cpu_online(&self, cpu: CpuId) {
        self.rcu.cpu_online(cpu);
        self.work.start_worker(cpu, worker_entry(cpu));
    }
}
