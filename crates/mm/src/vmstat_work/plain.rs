//! The tick and the shepherd as in Linux; policies differ in the delay of the next tick.

use super::{Delay, Upkeep, VmstatRef, trace_end};
use crate::time::Expiry;
use crate::work::WorkItem;
use mmscale_arch::{CpuId, CpuMask, Machine, TickEvent, Trace};
use mmscale_frames::page_alloc::DecayRequest;

impl<A: Machine> Upkeep<A> {
    /// Returns one interval from now, rounded for `cpu`.
    pub(super) fn rounded_interval(&self, parts: &VmstatRef<'_, A>, cpu: CpuId) -> Expiry {
        let now = parts.time.jiffies();
        let hz = parts.time.hz();
        let jiffies = hz.round_relative(now, self.interval_jiffies, cpu.index());
        Expiry::Deferrable { jiffies }
    }

    /// Returns Linux's delay, which does not depend on the number of CPUs.
    pub(super) fn stock_delay(&self, parts: &VmstatRef<'_, A>, cpu: CpuId, _cpus: u64) -> Expiry {
        self.rounded_interval(parts, cpu)
    }

    pub(super) fn run_plain(&self, parts: &VmstatRef<'_, A>, cpu: CpuId, delay: Delay<A>) {
        A::trace(Trace::Tick(TickEvent::Begin));
        let run = parts.frames.refresh_cpu_vm_stats(DecayRequest::PerRun, A::cond_resched);
        let again = self.goes_on(&run);
        if again {
            let mut online = CpuMask::EMPTY;
            A::online(&mut online);
            let expiry = delay(self, parts, cpu, online.count() as u64);
            let tick = WorkItem::VmstatTick(cpu);
            parts.work.queue_delayed_on(parts.time, cpu, tick, expiry);
        }
        trace_end::<A>(&run, again);
    }

    /// Queues the tick of every CPU that has counted something and whose tick is not armed.
    pub(super) fn kick_all(&self, parts: &VmstatRef<'_, A>) {
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
