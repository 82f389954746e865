//! Statistics of calls, flushes and limbo.

use mmscale_arch::counters::Counters;

mmscale_arch::counters! {
    /// What calls, flushes and limbo have come to, over all CPUs; exact while nothing runs.
    pub struct CallStats from CpuCalls {
        /// Calls that had at least one other CPU to reach.
        calls: Sum,
        /// Interrupts sent to other CPUs for calls and flushes.
        ipis_sent: Sum,
        /// Calls queued to a CPU without an interrupt, because one was on its way already.
        ipis_elided: Sum,
        /// Invalidations of translations, those included that had no other CPU to reach.
        flushes: Sum,
        /// From the end of the queue phase until all targets had answered, added up over calls, in
        /// ns. Time asleep and time preempted are in it: what was spent on the CPU stands under the
        /// call path `csd_lock_wait`.
        csd_wait_total_ns: Sum,
        /// The longest of these, in ns.
        csd_wait_max_ns: Max,
        /// In the queue phase, waiting until a record's earlier use was over (`csd_lock`), in ns;
        /// preemption is off, but with `requests`.
        csd_lock_total_ns: Sum,
        /// The longest of these, in ns.
        csd_lock_max_ns: Max,
        /// The longest time with preemption off in which a call was queued, interrupts sent and the
        /// call run locally, `csd_lock` included and the wait for the targets not, in ns.
        preempt_off_queue_phase_max_ns: Max,
        /// Times that a caller with `requests` went to sleep.
        sleeps: Sum,
        /// The largest number of frames that waited in limbo at a time.
        frames_in_limbo_max: Max,
        /// The longest time that a frame waited in limbo, in ns.
        limbo_age_max_ns: Max,
    }
}

/// What all CPUs count.
pub(crate) type CallCounters<A> = Counters<A, CpuCalls>;
