//! The tick and the shepherd as Linux has them, and with the delay that was posted.

use super::{Parts, TickPolicy, Upkeep, trace_end};
use crate::time::Expiry;
use crate::work::WorkItem;
use mmscale_arch::{CpuId, CpuMask, Machine, TickEvent, Trace};
use mmscale_frames::page_alloc::DecayRequest;

impl<A: Machine> Upkeep<A> {
    /// One interval from now, rounded as `cpu` rounds it.
    pub(super) fn rounded_interval(&self, parts: &Parts<'_, A>, cpu: CpuId) -> Expiry {
        let now = parts.time.jiffies();
        let hz = parts.time.hz();
        let jiffies = hz.round_relative(now, self.interval_jiffies, cpu.index());
        Expiry::Deferrable { jiffies }
    }

    /// When the tick of `cpu` comes again.
    fn plain_expiry(&self, parts: &Parts<'_, A>, cpu: CpuId) -> Expiry {
        let mut online = CpuMask::EMPTY;
        A::online(&mut online);
        let cpus = online.count() as u64;
        if self.policy == TickPolicy::Posted && cpus > 1 {
            let interval = self.interval_jiffies;
            let spread = interval * (cpu.index() as u64 % cpus) / cpus;
            return Expiry::Deferrable { jiffies: interval + spread };
        }
        self.rounded_interval(parts, cpu)
    }

    pub(super) fn run_plain(&self, parts: &Parts<'_, A>, cpu: CpuId) {
        A::trace(Trace::Tick(TickEvent::Begin));
        let run = parts.frames.refresh_cpu_vm_stats(DecayRequest::PerRun, A::cond_resched);
        let again = self.goes_on(&run);
        if again {
            let expiry = self.plain_expiry(parts, cpu);
            let tick = WorkItem::VmstatTick(cpu);
            parts.work.queue_delayed_on(parts.time, cpu, tick, expiry);
        }
        trace_end::<A>(&run, again);
    }

    /// Queues the tick of every CPU that has counted something and whose tick is not armed.
    pub(super) fn kick_at_once(&self, parts: &Parts<'_, A>) {
        let mut online = CpuMask::EMPTY;
        A::online(&mut online);
        for cpu in online.iter() {
            let tick = WorkItem::VmstatTick(cpu);
            if !parts.work.is_pending(tick)
                && parts.frames.stats().needs_update(cpu)
                && parts.work.queue_on(cpu, tick)
            {
                A::trace(Trace::Tick(TickEvent::Kicked { cpu }));
            }
            A::cond_resched();
        }
    }
}
