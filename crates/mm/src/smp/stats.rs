//! Statistics of calls, flushes and limbo.

use mmscale_arch::counters::Counters;

mmscale_arch::counters! {
    /// Statistics of calls, flushes and limbo over all CPUs; exact while nothing runs.
    pub struct CallStats from CpuCalls {
        /// Calls that had at least one other CPU to reach.
        calls: Sum,
        /// Interrupts sent to other CPUs for calls and flushes.
        ipis_sent: Sum,
        /// Calls queued to a CPU without an interrupt, because one was on its way already.
        ipis_elided: Sum,
        /// Invalidations of translations, including those that had no other CPU to reach.
        flushes: Sum,
        /// Total time from the end of the queue phase until all targets had answered, in ns.
        /// Includes time asleep and preempted; the CPU time of the wait is under the call path
        /// `csd_lock_wait`.
        csd_wait_total_ns: Sum,
        /// Longest wait of one call for its targets, in ns.
        csd_wait_max_ns: Max,
        /// Total time in the queue phase waiting until a record's earlier use was over
        /// (`csd_lock`), in ns. Preemption is off, except with `requests`.
        csd_lock_total_ns: Sum,
        /// Longest wait of one call in `csd_lock`, in ns.
        csd_lock_max_ns: Max,
        /// Longest time with preemption off in which a call was queued, interrupts were sent and
        /// the call ran locally, in ns. Includes `csd_lock`, excludes the wait for the targets.
        preempt_off_queue_phase_max_ns: Max,
        /// Number of times that a caller with `requests` went to sleep.
        sleeps: Sum,
        /// Largest number of frames that were in limbo at a time.
        frames_in_limbo_max: Max,
        /// Longest time that a frame was in limbo, in ns.
        limbo_age_max_ns: Max,
    }
}

/// The counters of all CPUs.
pub(crate) type CallCounters<A> = Counters<A, CpuCalls>;
