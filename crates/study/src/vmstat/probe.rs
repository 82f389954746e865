//! What one CPU's tracepoints say about the upkeep tick, the page caches and the counters.
//!
//! Every quantity is such that the machine's value is a sum, a maximum or a list over CPUs, so that
//! no probe needs to see another CPU, and the result does not depend on the order in which a
//! machine runs its CPUs.

use mmscale_arch::{CounterEvent, CpuId, PcpEvent, Probe, TickEvent, Trace, TraceGroup};
use std::any::Any;
use std::collections::BTreeMap;

/// How often the drift of the counters is sampled.
pub(crate) const DRIFT_GRID_NS: u64 = 1_000_000;

/// One CPU's view of a run.
#[derive(Debug, Default)]
pub(crate) struct TickProbe {
    cpu: usize,
    /// When `vmstat_update` began, in runs in which the tick stayed armed.
    pub(crate) stretches: Vec<Vec<u64>>,
    /// Whether the next firing begins a new stretch.
    broken: bool,
    /// Ticks that came due while this CPU was idle.
    pub(crate) idle_skips: u64,
    idle_tick_expires_ns: Option<u64>,
    pub(crate) pages_returned: u64,
    /// Of these, those of the start: policies differ in when the first tick comes.
    pub(crate) pages_returned_early: u64,
    early_until_ns: u64,
    pub(crate) pages_deferred: u64,
    pub(crate) trylock_failures: u64,
    /// Sum over changes of a page cache's count of (change * time of the change in ns).
    count_moment: i128,
    count_change: i64,
    /// When `high` of this CPU's cache last came back to its floor, and whether it is there.
    pub(crate) high_back_ns: u64,
    high_raised: bool,
    /// From then on processes end, which is not what is being looked at.
    high_until_ns: u64,
    /// Since when each counter delta of this CPU has been unfolded, by domain and item.
    unfolded_since_ns: BTreeMap<(u16, u8), u64>,
    /// Deltas of this CPU that began to be unfolded and were folded by another CPU.
    taken_over: Vec<((u16, u8), u64)>,
    /// Deltas of other CPUs that this one folded: whose, which, when.
    folded_for: Vec<(usize, (u16, u8), u64)>,
    pub(crate) staleness_max_ns: u64,
    /// The delta of the free-pages counter as this CPU passed each grid point, per zone.
    pub(crate) drift: BTreeMap<u16, Vec<i32>>,
    deltas: BTreeMap<u16, i32>,
    pub(crate) refills: u64,
    pub(crate) refill_pages: u64,
    pub(crate) drains: u64,
    pub(crate) drain_pages: u64,
}

impl TickProbe {
    /// The probe of `cpu`; ticks before `early_until_ns` belong to the start of the run, and what
    /// happens to `high` from `high_until_ns` on to its end.
    pub(crate) fn new(cpu: CpuId, early_until_ns: u64, high_until_ns: u64) -> Self {
        let cpu = cpu.index();
        Self { cpu, broken: true, early_until_ns, high_until_ns, ..Self::default() }
    }

    /// Pages in the caches times ns, from the changes this CPU made, up to `end_ns`. The sum over
    /// CPUs is the integral of the machine's total.
    pub(crate) fn page_ns(&self, end_ns: u64) -> i128 {
        i128::from(self.count_change) * i128::from(end_ns) - self.count_moment
    }

    /// When this CPU's `high` came back to its floor for good; `None` if it is still raised.
    pub(crate) fn high_settled_ns(&self) -> Option<u64> {
        (!self.high_raised).then_some(self.high_back_ns)
    }

    /// Another CPU folded `delta` of this one at `at_ns`, after this one had died.
    fn close(&mut self, delta: (u16, u8), at_ns: u64) {
        if let Some(&since_ns) = self.unfolded_since_ns.get(&delta)
            && since_ns <= at_ns
        {
            self.unfolded_since_ns.remove(&delta);
            self.staleness_max_ns = self.staleness_max_ns.max(at_ns - since_ns);
            return;
        }
        let before = |&(which, since_ns): &((u16, u8), u64)| which == delta && since_ns <= at_ns;
        if let Some(place) = self.taken_over.iter().position(before) {
            let (_, since_ns) = self.taken_over.swap_remove(place);
            self.staleness_max_ns = self.staleness_max_ns.max(at_ns - since_ns);
        }
    }

    /// Tells the probes of a machine what other CPUs folded for their CPUs. Before `finish`.
    pub(crate) fn settle(probes: &mut [Self]) {
        for at in 0..probes.len() {
            for (cpu, delta, at_ns) in std::mem::take(&mut probes[at].folded_for) {
                probes[cpu].close(delta, at_ns);
            }
        }
    }

    /// Closes what is still open at the end of a run.
    pub(crate) fn finish(&mut self, end_ns: u64) {
        for &since_ns in self.unfolded_since_ns.values() {
            self.staleness_max_ns = self.staleness_max_ns.max(end_ns.saturating_sub(since_ns));
        }
        let zones: Vec<u16> = self.deltas.keys().copied().collect();
        zones.into_iter().for_each(|zone| self.pass_grid(zone, end_ns));
    }

    fn firing(&mut self, now_ns: u64) {
        if let Some(expires_ns) = self.idle_tick_expires_ns.take()
            && now_ns >= expires_ns
        {
            self.idle_skips += 1;
            self.broken = true;
        }
        if self.broken {
            self.stretches.push(Vec::new());
        }
        self.broken = false;
        self.stretches.last_mut().expect("a stretch is open").push(now_ns);
    }

    /// Notes the delta of `zone` for every grid point up to `now_ns` that was not noted yet.
    fn pass_grid(&mut self, zone: u16, now_ns: u64) {
        let delta = self.deltas.get(&zone).copied().unwrap_or(0);
        let grid = self.drift.entry(zone).or_default();
        grid.resize(((now_ns / DRIFT_GRID_NS) as usize + 1).max(grid.len()), delta);
    }

    fn counter(&mut self, now_ns: u64, cpu: CpuId, (domain, item): (u16, u8), old: i8, new: i8) {
        if cpu.index() != self.cpu {
            self.folded_for.push((cpu.index(), (domain, item), now_ns));
        } else if old == 0 && new != 0 {
            let before = self.unfolded_since_ns.insert((domain, item), now_ns);
            self.taken_over.extend(before.map(|since_ns| ((domain, item), since_ns)));
        } else if old != 0
            && new == 0
            && let Some(since_ns) = self.unfolded_since_ns.remove(&(domain, item))
        {
            self.staleness_max_ns = self.staleness_max_ns.max(now_ns - since_ns);
        }
        if item == 0 && domain & 0x8000 == 0 {
            self.pass_grid(domain, now_ns);
            *self.deltas.entry(domain).or_default() += i32::from(new) - i32::from(old);
        }
    }

    fn pcp(&mut self, now_ns: u64, event: PcpEvent) {
        match event {
            PcpEvent::Count { cpu, old, count, high, high_min, .. } => {
                let change = i64::from(count) - i64::from(old);
                self.count_change += change;
                self.count_moment += i128::from(change) * i128::from(now_ns);
                if cpu.index() == self.cpu && now_ns < self.high_until_ns {
                    if self.high_raised && high <= high_min {
                        self.high_back_ns = now_ns;
                    }
                    self.high_raised = high > high_min;
                }
            }
            PcpEvent::Refill { pages, .. } => {
                self.refills += 1;
                self.refill_pages += u64::from(pages);
            }
            PcpEvent::Drain { pages, .. } => {
                self.drains += 1;
                self.drain_pages += u64::from(pages);
            }
            _ => {}
        }
    }

    fn tick(&mut self, now_ns: u64, event: TickEvent) {
        match event {
            TickEvent::Begin => self.firing(now_ns),
            TickEvent::End { pages_returned, pages_deferred, trylock_failures, rearmed } => {
                self.pages_returned += u64::from(pages_returned);
                if now_ns < self.early_until_ns {
                    self.pages_returned_early += u64::from(pages_returned);
                }
                self.pages_deferred += u64::from(pages_deferred);
                self.trylock_failures += u64::from(trylock_failures);
                self.broken = !rearmed;
            }
            TickEvent::PendingInIdle { expires_ns } => self.idle_tick_expires_ns = Some(expires_ns),
            TickEvent::Kicked { .. } => {}
        }
    }
}

impl Probe for TickProbe {
    fn hears(&self, group: TraceGroup) -> bool {
        matches!(group, TraceGroup::Pcp | TraceGroup::Counter | TraceGroup::Tick)
    }
    fn event(&mut self, now_ns: u64, event: &Trace) {
        match *event {
            Trace::Pcp(event) => self.pcp(now_ns, event),
            Trace::Counter(CounterEvent::Delta { cpu, domain, item, old, new, .. }) => {
                self.counter(now_ns, cpu, (domain, item), old, new);
            }
            Trace::Tick(event) => self.tick(now_ns, event),
            _ => {}
        }
    }
    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}
