//! Statistics of calls, flushes and limbo.

use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;
use mmscale_arch::Machine;
use mmscale_arch::sync::EachCpu;

/// Totals of calls, flushes and limbo over all CPUs; exact while nothing runs.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct CallStats {
    /// Calls that had at least one other CPU to reach.
    pub calls: u64,
    /// Interrupts sent to other CPUs for calls and flushes.
    pub ipis_sent: u64,
    /// Calls queued to a CPU without an interrupt, because one was on its way already.
    pub ipis_elided: u64,
    /// Invalidations of translations, including those that had no other CPU to reach.
    pub flushes: u64,
    /// Total time from the end of the queue phase until all targets had answered, in ns. Includes
    /// time asleep and preempted; the CPU time of the wait is under the call path `csd_lock_wait`.
    pub csd_wait_total_ns: u64,
    /// Longest wait of one call for its targets, in ns.
    pub csd_wait_max_ns: u64,
    /// Total time in the queue phase waiting until a record's earlier use was over (`csd_lock`), in
    /// ns. Preemption is off, except with `requests`.
    pub csd_lock_total_ns: u64,
    /// Longest wait of one call in `csd_lock`, in ns.
    pub csd_lock_max_ns: u64,
    /// Longest time with preemption off in which a call was queued, interrupts were sent and the
    /// call ran locally, in ns. Includes `csd_lock`, excludes the wait for the targets.
    pub preempt_off_queue_phase_max_ns: u64,
    /// Number of times that a caller with `requests` went to sleep.
    pub sleeps: u64,
    /// Largest number of frames that were in limbo at a time.
    pub frames_in_limbo_max: u64,
    /// Longest time that a frame was in limbo, in ns.
    pub limbo_age_max_ns: u64,
    /// Memory of the machine's call records, queues included, in bytes as on hardware. Excludes
    /// masks that belong to tasks.
    pub call_memory_bytes: u64,
}

/// Counters that are summed over CPUs.
#[derive(Clone, Copy)]
pub(crate) enum Count {
    Calls,
    Sent,
    Elided,
    Flushes,
    Waited,
    LockWaited,
    Sleeps,
}

/// Values of which the maximum is kept.
#[derive(Clone, Copy)]
pub(crate) enum Max {
    Wait,
    LockWait,
    QueuePhase,
    Limbo,
    LimboAge,
}

/// The statistics of one CPU.
#[derive(Default)]
struct Part {
    counts: [AtomicU64; 7],
    maxima: [AtomicU64; 5],
}

/// The statistics of all CPUs. They cost no virtual time, and no decision depends on them. Relaxed:
/// statistics only.
pub(crate) struct Tally {
    parts: EachCpu<Part>,
}

impl Tally {
    pub(super) fn new<A: Machine>() -> Self {
        Self { parts: EachCpu::new::<A>(|_| Part::default()) }
    }
    pub(crate) fn add<A: Machine>(&self, what: Count, count: u64) {
        self.parts.of(A::cpu()).counts[what as usize].fetch_add(count, Relaxed);
    }
    pub(crate) fn max<A: Machine>(&self, what: Max, value: u64) {
        self.parts.of(A::cpu()).maxima[what as usize].fetch_max(value, Relaxed);
    }
    fn sum(&self, what: Count) -> u64 {
        self.parts.iter().map(|(_, part)| part.counts[what as usize].load(Relaxed)).sum()
    }
    fn largest(&self, what: Max) -> u64 {
        let values = self.parts.iter().map(|(_, part)| part.maxima[what as usize].load(Relaxed));
        values.max().unwrap_or(0)
    }
    pub(super) fn stats(&self, call_memory_bytes: u64) -> CallStats {
        CallStats {
            calls: self.sum(Count::Calls),
            ipis_sent: self.sum(Count::Sent),
            ipis_elided: self.sum(Count::Elided),
            flushes: self.sum(Count::Flushes),
            csd_wait_total_ns: self.sum(Count::Waited),
            csd_wait_max_ns: self.largest(Max::Wait),
            csd_lock_total_ns: self.sum(Count::LockWaited),
            csd_lock_max_ns: self.largest(Max::LockWait),
            preempt_off_queue_phase_max_ns: self.largest(Max::QueuePhase),
            sleeps: self.sum(Count::Sleeps),
            frames_in_limbo_max: self.largest(Max::Limbo),
            limbo_age_max_ns: self.largest(Max::LimboAge),
            call_memory_bytes,
        }
    }
}
