//! What is counted about calls, flushes and limbo.

use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;
use mmscale_arch::Machine;
use mmscale_arch::sync::EachCpu;

/// What calls, flushes and limbo have come to, over all CPUs; exact while nothing runs.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct CallStats {
    /// Calls that had at least one other CPU to reach.
    pub calls: u64,
    /// Interrupts sent to other CPUs for calls and flushes.
    pub ipis_sent: u64,
    /// Calls queued to a CPU without an interrupt, because one was on its way already.
    pub ipis_elided: u64,
    /// Invalidations of translations, those included that had no other CPU to reach.
    pub flushes: u64,
    /// From the end of the queue phase until all targets had answered, added up over calls, in ns.
    /// Time asleep and time preempted are in it: what was spent on the CPU stands under the call
    /// path `csd_lock_wait`.
    pub csd_wait_total_ns: u64,
    /// The longest of these, in ns.
    pub csd_wait_max_ns: u64,
    /// In the queue phase, waiting until a record's earlier use was over (`csd_lock`), in ns;
    /// preemption is off, but with `requests`.
    pub csd_lock_total_ns: u64,
    /// The longest of these, in ns.
    pub csd_lock_max_ns: u64,
    /// The longest time with preemption off in which a call was queued, interrupts sent and the
    /// call run locally, `csd_lock` included and the wait for the targets not, in ns.
    pub preempt_off_queue_phase_max_ns: u64,
    /// Times that a caller with `requests` went to sleep.
    pub sleeps: u64,
    /// The largest number of frames that waited in limbo at a time.
    pub frames_in_limbo_max: u64,
    /// The longest time that a frame waited in limbo, in ns.
    pub limbo_age_max_ns: u64,
    /// Memory of the records of calls on this machine, queues included, in bytes, as it is on
    /// hardware. Masks that belong to tasks are not in it.
    pub call_memory_bytes: u64,
}

/// What is added up.
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

/// Of what the largest is kept.
#[derive(Clone, Copy)]
pub(crate) enum Max {
    Wait,
    LockWait,
    QueuePhase,
    Limbo,
    LimboAge,
}

/// One CPU's part.
#[derive(Default)]
struct Part {
    counts: [AtomicU64; 7],
    maxima: [AtomicU64; 5],
}

/// All of it. No cost in virtual time, and no part in what anybody decides.
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
