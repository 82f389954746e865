//! The phased tick: one period for all CPUs, a phase for each, no waiting for a zone's lock.
//!
//! **Phases.** The tick of a CPU is at fixed points of time: its phase, once an interval. Each
//! online CPU has a slot of the interval, in order of its rank among the CPUs of its node, nodes in
//! turn. Unlike CPU numbers, ranks have no gaps and no duplicates on any topology. They are
//! assigned again on hotplug; each CPU then moves by at most as many slots as there are nodes, with
//! its next arming. The points are absolute, so the first armings are as spread out as all later
//! ones.
//!
//! **Precision.** The timer is exact, not on the wheel: at HZ=1000 the wheel's buckets for one
//! second are 64 ms wide, and 4 or 5 of 72 CPUs would share one. This costs one more interrupt per
//! interval and CPU. The timer is still deferrable: it does not wake an idle CPU. A tick whose
//! point passed during idle fires when the CPU goes idle again, or a quarter of its phase after the
//! wakeup if the CPU stays busy that long. So CPUs that wake together do not tick together. The
//! next tick is at the phase again, 3/8 to 11/8 of an interval later.
//!
//! **Decay.** High limits decay by the time that has passed, so neither lateness nor hotplug
//! changes the rate.
//!
//! **No lock waits.** Shrinking caches is optional work. The zone's lock is only tried. While it is
//! taken, the pages stay and the tick is retried soon, with growing delays. After [`MAX_FAILURES`]
//! consecutive attempts that moved nothing, or [`MAX_ATTEMPTS`] in all, the rest is left to the
//! next run. All attempts together are one firing, which ends with the last.
//!
//! **The shepherd** runs [`STEPS`] times an interval. Each time it checks only the CPUs whose phase
//! is next, so that each is checked once an interval and, if needed, started at its phase. A CPU's
//! counters are thus stale for at most an interval and [`LOOK_AHEAD`] steps.

use super::{Upkeep, VmstatRef, trace_end};
use crate::time::{Expiry, OverIdle};
use crate::work::WorkItem;
use core::cell::Cell;
use core::sync::atomic::Ordering::Relaxed;
use mmscale_arch::sync::PreemptGuard;
use mmscale_arch::{Atomic, CpuId, CpuMask, MAX_NODES, Machine, TickEvent, Trace};
use mmscale_frames::page_alloc::{DecayRequest, Refresh};

/// Runs of the shepherd in an interval.
pub(super) const STEPS: u64 = 8;
/// Steps that the shepherd looks ahead: one, and one in case the next run is late.
pub(super) const LOOK_AHEAD: u64 = 2;
/// Maximum of consecutive attempts that move nothing.
pub(super) const MAX_FAILURES: u8 = 6;
/// Maximum of attempts of one firing.
pub(super) const MAX_ATTEMPTS: u8 = 48;
/// Delay of the first retry: an interval / 2^10, 1 ms for an interval of 1 s.
const RETRY_SHIFT: u32 = 10;

const _: () = assert!(LOOK_AHEAD < STEPS / 2, "staleness stays below 1.5 intervals");

/// The phase of one CPU.
pub(super) struct Phase<A: Machine> {
    /// The CPU's ticks are at the times that equal this modulo the interval, in ns.
    ns: A::AtomicU64,
    /// Not zero: a firing was cut short by hotplug; the next starts from the beginning.
    cut: A::AtomicU32,
}

impl<A: Machine> Phase<A> {
    pub(super) fn new() -> Self {
        Self { ns: A::AtomicU64::new(0), cut: A::AtomicU32::new(0) }
    }
    /// Records that the CPU's tick was cancelled; it does not run now.
    pub(super) fn cut_short(&self) {
        self.cut.store(1, Relaxed);
    }
}

/// The progress of a CPU's tick. Only its worker uses it.
#[derive(Default)]
pub(super) struct Progress {
    /// Start of the last firing, if it armed the next.
    last_ns: Cell<Option<u64>>,
    /// Attempts of this firing; 0 before it began.
    attempts: Cell<u8>,
    /// Consecutive attempts that moved nothing.
    failures: Cell<u8>,
    /// The work done by this firing.
    total: Cell<Refresh>,
}

/// Returns the first time after `after_ns` that equals `phase_ns` modulo `interval_ns`.
const fn next_point(after_ns: u64, phase_ns: u64, interval_ns: u64) -> u64 {
    let base = after_ns - after_ns % interval_ns + phase_ns;
    if base > after_ns { base } else { base + interval_ns }
}

/// Returns the expiry of a tick that wakes an idle CPU.
const fn waking(deadline_ns: u64) -> Expiry {
    Expiry::Exact { deadline_ns, over_idle: OverIdle::Wake }
}

/// Returns the phase of the CPU of rank `rank` in node `node`; `cpus` has the number of CPUs of
/// each node. The order is the first CPU of each node, then the second of each that has one, and so
/// on, evenly spaced.
fn phase_of(rank: usize, node: usize, cpus: &[usize], interval_ns: u64) -> u64 {
    let earlier: usize = cpus.iter().map(|&cpus| cpus.min(rank)).sum();
    let beside = cpus[..node].iter().filter(|&&cpus| cpus > rank).count();
    let all: usize = cpus.iter().sum();
    (u128::from(interval_ns) * (earlier + beside) as u128 / all as u128) as u64
}

impl<A: Machine> Upkeep<A> {
    fn phase_ns(&self, cpu: CpuId) -> u64 {
        self.phases.of(cpu).ns.load(Relaxed)
    }

    /// Returns the delay of postponed work of `cpu` after the end of an idle time or of a
    /// shepherd's delay.
    fn late_ns(&self, cpu: CpuId) -> u64 {
        self.phase_ns(cpu) / 4
    }

    /// Returns the expiry of a tick of `cpu` that does not wake it from idle.
    fn deferrable(&self, cpu: CpuId, deadline_ns: u64) -> Expiry {
        let over_idle = OverIdle::Defer { spread_ns: self.late_ns(cpu) };
        Expiry::Exact { deadline_ns, over_idle }
    }

    /// Assigns a phase to every online CPU. Tasks only.
    pub(super) fn rank_cpus(&self) {
        let _one_at_a_time = self.ranking.lock();
        let mut online = CpuMask::EMPTY;
        A::online(&mut online);
        let mut cpus = [0_usize; MAX_NODES];
        online.iter().for_each(|cpu| cpus[A::node_of(cpu).index()] += 1);
        let mut ranks = [0_usize; MAX_NODES];
        for cpu in online.iter() {
            let node = A::node_of(cpu).index();
            let phase = phase_of(ranks[node], node, &cpus, self.interval_ns);
            self.phases.of(cpu).ns.store(phase, Relaxed);
            ranks[node] += 1;
        }
    }

    /// Arms the tick of `cpu`, if it is not armed, for its next point.
    pub(super) fn arm_at_phase(&self, parts: &VmstatRef<'_, A>, cpu: CpuId) {
        let point = next_point(A::now_ns(), self.phase_ns(cpu), self.interval_ns);
        let tick = WorkItem::VmstatTick(cpu);
        parts.work.queue_delayed_on(parts.time, cpu, tick, self.deferrable(cpu, point));
    }

    /// Runs one attempt of the tick of `cpu`, in its worker.
    pub(super) fn run_phased(&self, parts: &VmstatRef<'_, A>, cpu: CpuId) {
        let now_ns = A::now_ns();
        let elapsed_ns = self.begin_attempt(cpu, now_ns);
        let decay = DecayRequest::Elapsed { elapsed_ns, interval_ns: self.interval_ns };
        let run = parts.frames.refresh_cpu_vm_stats(decay, A::cond_resched);
        let (total, delay_ns) = self.end_attempt(&run);
        let tick = WorkItem::VmstatTick(cpu);
        let queue = |expiry| parts.work.queue_delayed_on(parts.time, cpu, tick, expiry);
        // If the tick was armed by another task meanwhile, or is being cancelled, the firing ends
        // here.
        if let Some(delay_ns) = delay_ns
            && queue(waking(A::now_ns() + delay_ns))
        {
            return;
        }
        let pinned = PreemptGuard::<A>::new();
        let own = self.progress.get(&pinned);
        own.attempts.set(0);
        own.failures.set(0);
        let again = self.goes_on(&total);
        if again {
            let earliest_ns = now_ns + self.interval_ns / 8 * 3;
            let point = next_point(earliest_ns, self.phase_ns(cpu), self.interval_ns);
            queue(self.deferrable(cpu, point));
        } else {
            own.last_ns.set(None);
        }
        drop(pinned);
        trace_end::<A>(&total, again);
    }

    /// Starts an attempt; returns the time that the decay has to cover.
    fn begin_attempt(&self, cpu: CpuId, now_ns: u64) -> u64 {
        let pinned = PreemptGuard::<A>::new();
        let own = self.progress.get(&pinned);
        let cut = &self.phases.of(cpu).cut;
        if cut.load(Relaxed) != 0 {
            cut.store(0, Relaxed);
            own.last_ns.set(None);
            own.attempts.set(0);
            own.failures.set(0);
        }
        let first = own.attempts.get() == 0;
        own.attempts.set(own.attempts.get() + 1);
        if !first {
            return 0;
        }
        A::trace(Trace::Tick(TickEvent::Begin));
        own.total.set(Refresh::default());
        // A tick that had stopped counts as one interval, as every stock tick does.
        let last_ns = own.last_ns.replace(Some(now_ns));
        last_ns.map_or(self.interval_ns, |last_ns| now_ns - last_ns)
    }

    /// Adds the attempt's work to the firing; returns the sum and the delay of the next attempt, if
    /// any.
    fn end_attempt(&self, run: &Refresh) -> (Refresh, Option<u64>) {
        let pinned = PreemptGuard::<A>::new();
        let own = self.progress.get(&pinned);
        let mut total = own.total.get();
        total.add(*run);
        // The pages that are left now, not the sum over the attempts.
        total.pages_deferred = run.pages_deferred;
        own.total.set(total);
        if run.trylock_failures == 0 || own.attempts.get() >= MAX_ATTEMPTS {
            return (total, None);
        }
        let failures = if run.pages_returned > 0 { 0 } else { own.failures.get() + 1 };
        own.failures.set(failures);
        let again = failures < MAX_FAILURES;
        let delay_ns = (self.interval_ns >> RETRY_SHIFT) << failures;
        (total, again.then_some(delay_ns))
    }

    /// Returns when the shepherd runs next.
    pub(super) fn next_shepherd_step(&self) -> Expiry {
        let step_ns = self.interval_ns / STEPS;
        // Steps are halfway between ticks of CPU 0 and those in phase with it, to avoid colliding.
        let deadline_ns = next_point(A::now_ns(), step_ns / 2, step_ns);
        Expiry::Exact { deadline_ns, over_idle: OverIdle::Defer { spread_ns: 0 } }
    }

    /// Arms the tick of every CPU whose phase is next, that has counted something, and whose tick
    /// is not armed.
    pub(super) fn kick_at_phases(&self, parts: &VmstatRef<'_, A>) {
        let now_ns = A::now_ns();
        let until_ns = now_ns + self.interval_ns / STEPS * LOOK_AHEAD;
        // The first time: every CPU whose phase is next; none is late.
        let from_ns = match self.looked_until_ns.load(Relaxed) {
            0 => now_ns,
            from_ns => from_ns.max(until_ns.saturating_sub(self.interval_ns)),
        };
        self.looked_until_ns.store(until_ns, Relaxed);
        let mut online = CpuMask::EMPTY;
        A::online(&mut online);
        for cpu in online.iter() {
            let point = next_point(from_ns, self.phase_ns(cpu), self.interval_ns);
            let tick = WorkItem::VmstatTick(cpu);
            if point > until_ns
                || parts.work.is_pending(tick)
                || !parts.frames.stats().needs_update(cpu)
            {
                continue;
            }
            // The shepherd's own CPU was idle at this CPU's point: start it soon, but not all
            // together.
            let deadline_ns = if point > now_ns { point } else { now_ns + self.late_ns(cpu) };
            // Like a kick in Linux, it wakes the CPU, whose counters would otherwise stay stale.
            if parts.work.queue_delayed_on(parts.time, cpu, tick, waking(deadline_ns)) {
                A::trace(Trace::Tick(TickEvent::Kicked { cpu }));
            }
            A::cond_resched();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn points_are_after_and_an_interval_apart() {
        for after in [0, 1, 249, 250, 251, 999, 1000, 1250, 123_456] {
            let point = next_point(after, 250, 1000);
            assert!(point > after && point <= after + 1000 && point % 1000 == 250);
        }
    }

    #[test]
    fn phases_are_even_and_distinct() {
        let interval = 1_000_000_000;
        let machines: [&[usize]; 8] =
            [&[72], &[16, 16], &[256, 256], &[1], &[3; 4], &[72, 71], &[0, 2, 1], &[1, 0, 5]];
        for cpus in machines {
            let ranks = cpus
                .iter()
                .enumerate()
                .flat_map(|(node, &cpus)| (0..cpus).map(move |rank| (rank, node)));
            let mut phases: Vec<u64> =
                ranks.map(|(rank, node)| phase_of(rank, node, cpus, interval)).collect();
            phases.sort_unstable();
            let slot = interval / cpus.iter().sum::<usize>() as u64;
            assert!(phases.windows(2).all(|w| (slot..=slot + 1).contains(&(w[1] - w[0]))));
            assert!(phases[phases.len() - 1] < interval);
        }
    }

    /// A CPU that leaves moves every other by at most as many slots as there are nodes.
    #[test]
    fn closing_ranks_moves_no_cpu_far() {
        let interval = 1_000_000_000;
        let machines: [&[usize]; 5] = [&[72], &[16, 16], &[256, 256], &[72, 71], &[3; 4]];
        for cpus in machines {
            let mut fewer = cpus.to_vec();
            fewer[0] -= 1;
            let slot = interval / fewer.iter().sum::<usize>() as u64;
            for gone in 0..cpus[0] {
                let others = cpus.iter().enumerate();
                let others = others.flat_map(|(node, &cpus)| (0..cpus).map(move |cpu| (cpu, node)));
                for (cpu, node) in others.filter(|&other| other != (gone, 0)) {
                    let before = phase_of(cpu, node, cpus, interval);
                    let rank = cpu - usize::from(node == 0 && cpu > gone);
                    let after = phase_of(rank, node, &fewer, interval);
                    let most = slot * cpus.len() as u64 + 1;
                    assert!(before.abs_diff(after) <= most, "{cpus:?}: {cpu} of {node}");
                }
            }
        }
    }
}
