//! Periodic work and hotplug: folding counters, shrinking and draining page caches.

use super::{FrameAllocator, Zone};
use crate::pcp::{Pcp, PcpList};
use crate::zone::ZoneId;
use mmscale_arch::sync::{IrqGuard, NoPreempt, PreemptGuard};
use mmscale_arch::{Cpu, CpuId, CpuMask, Func, Span};

/// Runs of the upkeep tick after which an unused page cache of a remote zone is drained.
const REMOTE_EXPIRE: u8 = 3;

/// Rule by which a CPU's page caches shrink.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DecayRequest {
    /// No shrinking: only counters are folded.
    Skip,
    /// By an eighth per run, waiting for locks: as the kernel does.
    PerRun,
    /// In proportion to the time since the last run, without waiting for a lock: pages whose zone
    /// lock is taken stay in the cache and remain due. With an elapsed time of 0 only pages that
    /// remained due are tried again.
    Elapsed {
        /// Time since this CPU's last run, in ns.
        elapsed_ns: u64,
        /// The time in which a cache shrinks by an eighth, in ns.
        interval_ns: u64,
    },
}

/// Result of one run.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Refresh {
    /// Counter bytes that were not zero.
    pub folded: u32,
    /// Pages freed to zones.
    pub pages_returned: u32,
    /// Pages that were due and stayed in caches because a lock was taken.
    pub pages_deferred: u32,
    /// Attempts at a lock that failed.
    pub trylock_failures: u32,
    /// Whether the run did something or left something to do, so that another run is useful.
    pub changed: bool,
}

impl Refresh {
    /// Adds the result of another part of the run.
    pub fn add(&mut self, other: Self) {
        self.folded += other.folded;
        self.pages_returned += other.pages_returned;
        self.pages_deferred += other.pages_deferred;
        self.trylock_failures += other.trylock_failures;
        self.changed |= other.changed;
    }
}

impl<A: Cpu> FrameAllocator<A> {
    /// Does the upkeep tick's work on the calling CPU (`refresh_cpu_vm_stats`): folds its counters,
    /// shrinks its page caches, drains unused ones of remote zones.
    ///
    /// The caller is a task bound to its CPU; it may be preempted between zones. `pause` is called
    /// before the caches of each zone, without locks: the task may yield there.
    pub fn refresh_cpu_vm_stats(&self, decay: DecayRequest, pause: impl Fn()) -> Refresh {
        let _span = Span::<A>::enter(Func::RefreshCpuVmStats);
        let mut run = Refresh { folded: self.fold_all_deltas(), ..Refresh::default() };
        for zone in self.zones.iter() {
            let folded = self.stats.fold_zone(&IrqGuard::new(), zone.id);
            run.folded += folded;
            if decay != DecayRequest::Skip {
                pause();
            }
            let cpu = PreemptGuard::<A>::new().cpu();
            match decay {
                DecayRequest::Skip => {}
                DecayRequest::PerRun => run.add(self.decay_waiting(zone, cpu)),
                DecayRequest::Elapsed { elapsed_ns, interval_ns } => {
                    run.add(self.decay_trying(zone, cpu, elapsed_ns, interval_ns));
                }
            }
            if zone.node != A::node_of(cpu) {
                run.add(self.expire_remote(zone, cpu, folded, decay));
            }
        }
        run.folded += self.stats.fold_nodes(&IrqGuard::new());
        run.changed |= run.folded > 0;
        run
    }

    /// Folds only the calling CPU's counters, as at idle entry; returns the number of counters that
    /// were not zero.
    pub fn fold_counters(&self) -> u32 {
        self.fold_all_deltas() + self.stats.fold_all(&IrqGuard::new())
    }

    /// Shrinks a page cache by an eighth, waiting for locks (`decay_pcp_high`).
    fn decay_waiting(&self, zone: &Zone<A>, cpu: CpuId) -> Refresh {
        let _span = Span::<A>::enter(Func::DecayPcpHigh);
        let mut run = Refresh::default();
        let mut pcp = zone.pcps().of(cpu).lock();
        let mut left = pcp.decay_by_run();
        run.changed = pcp.high() > pcp.limits().high_min || left > 0;
        loop {
            let old = pcp.count();
            let moved = if left == 0 {
                0
            } else {
                let step = self.hold_pages(&pcp, left);
                self.shrink(zone, &mut pcp, step)
            };
            self.trace_count(zone, cpu, &pcp, old);
            run.pages_returned += moved;
            left = left.saturating_sub(moved);
            if left == 0 || moved == 0 {
                return run;
            }
            drop(pcp);
            pcp = zone.pcps().of(cpu).lock();
        }
    }

    /// Shrinks a page cache in proportion to time, without waiting: the zone lock is tried before
    /// any page leaves its list. The page cache's lock is tried too, because a remote CPU that
    /// drains the cache may hold it while it waits for the zone lock.
    fn decay_trying(
        &self,
        zone: &Zone<A>,
        cpu: CpuId,
        elapsed_ns: u64,
        interval_ns: u64,
    ) -> Refresh {
        let _span = Span::<A>::enter(Func::DecayPcpHigh);
        let mut run = Refresh::default();
        let Some(mut pcp) = zone.pcps().of(cpu).try_lock() else {
            run.trylock_failures = 1;
            run.changed = true;
            return run;
        };
        let target = pcp.decay_target(elapsed_ns, interval_ns);
        let mut left = pcp.count().saturating_sub(target);
        run.changed = target > pcp.limits().high_min || left > 0;
        loop {
            let old = pcp.count();
            let step = self.hold_pages(&pcp, left);
            let moved = if left == 0 { Some(0) } else { self.try_shrink(zone, &mut pcp, step) };
            left = left.saturating_sub(moved.unwrap_or(0)).min(pcp.count());
            pcp.approach(target, left);
            self.trace_count(zone, cpu, &pcp, old);
            run.pages_returned += moved.unwrap_or(0);
            if left == 0 {
                return run;
            }
            drop(pcp);
            let again = if moved.is_some() { zone.pcps().of(cpu).try_lock() } else { None };
            let Some(again) = again else { break };
            pcp = again;
        }
        run.trylock_failures = 1;
        run.pages_deferred = left;
        run
    }

    /// Drains a page cache of a remote zone that has not been used for some runs, one batch per run
    /// (`drain_zone_pages`).
    fn expire_remote(
        &self,
        zone: &Zone<A>,
        cpu: CpuId,
        folded: u32,
        decay: DecayRequest,
    ) -> Refresh {
        let mut run = Refresh::default();
        let pcp = zone.pcps().of(cpu);
        let locked = match decay {
            DecayRequest::PerRun => Some(pcp.lock()),
            _ => pcp.try_lock(),
        };
        let Some(mut pcp) = locked else {
            run.trylock_failures = 1;
            return run;
        };
        if folded > 0 {
            pcp.expire = REMOTE_EXPIRE;
        }
        if decay == DecayRequest::Skip || pcp.expire == 0 || pcp.count() == 0 {
            return run;
        }
        run.changed = true;
        pcp.expire -= 1;
        if pcp.expire > 0 {
            return run;
        }
        let _span = Span::<A>::enter(Func::DrainZonePages);
        let (old, step) = (pcp.count(), pcp.limits().batch.min(pcp.count()));
        let moved = if decay == DecayRequest::PerRun {
            Some(self.shrink(zone, &mut pcp, step))
        } else {
            self.try_shrink(zone, &mut pcp, step)
        };
        match moved {
            Some(pages) => run.pages_returned = pages,
            None => {
                pcp.expire = 1;
                run.trylock_failures = 1;
                run.pages_deferred = step;
            }
        }
        self.trace_count(zone, cpu, &pcp, old);
        run
    }

    /// Moves `pages` pages of a locked page cache to its zone, if that has free lists; returns the
    /// number of pages moved.
    fn shrink(&self, zone: &Zone<A>, pcp: &mut Pcp, pages: u32) -> u32 {
        let bulk = |lists| self.free_pcppages_bulk((zone, lists), pcp, pages, PcpList::FIRST);
        zone.lists().map_or(0, bulk)
    }

    /// As [`FrameAllocator::shrink`], but returns `None` if the zone lock is taken.
    fn try_shrink(&self, zone: &Zone<A>, pcp: &mut Pcp, pages: u32) -> Option<u32> {
        let bulk = |lists| self.try_free_pcppages_bulk((zone, lists), pcp, pages);
        zone.lists().map_or(Some(0), bulk)
    }

    /// Drains all page caches of `cpu`; returns the number of pages freed.
    pub fn drain_pages(&self, cpu: CpuId) -> u32 {
        (0..self.zones.len()).map(|zone| self.drain_pages_zone(ZoneId::new(zone), cpu)).sum()
    }

    /// Drains all page caches of all online CPUs; returns the number of pages freed.
    pub fn drain_all(&self) -> u32 {
        let _span = Span::<A>::enter(Func::DrainAllPages);
        let mut online = CpuMask::EMPTY;
        A::online(&mut online);
        online.iter().filter(|cpu| cpu.index() < self.cpus).map(|cpu| self.drain_pages(cpu)).sum()
    }

    /// Takes over the state of a CPU that is offline: frees its cached pages to their zones, folds
    /// its counters, and adapts limits and thresholds to the remaining CPUs.
    pub fn cpu_dead(&self, dead: CpuId) {
        // First: no other CPU may free pages into its caches any more.
        self.disown(dead);
        self.drain_pages(dead);
        self.drain_dead(dead);
        self.stats.fold_dead(dead);
        self.refresh_limits();
        self.refresh_thresholds();
    }

    /// Adapts limits and thresholds after a CPU came online.
    pub fn cpu_online(&self) {
        self.refresh_limits();
        self.refresh_thresholds();
    }
}
