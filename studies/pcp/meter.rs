//! The events of one CPU about pages, their clearing, and page caches.

use super::{Pcp, Plan};
use mmscale_arch::{CpuId, Order, PageEvent, PcpEvent, Pfn, Trace, TraceGroup};
use mmscale_harness::{Env, Level, Meter};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering::Relaxed};

/// The CPU that allocated each frame last: its number plus 1, or 0.
///
/// Meters of all CPUs share this. The values are nevertheless those of virtual time: a frame passes
/// between CPUs by a lock or an atomic, and thus in order on the host, too.
#[derive(Clone, Debug)]
pub(super) struct Owners(Arc<[AtomicU16]>);

impl Owners {
    pub(super) fn new(frames: usize) -> Self {
        Self((0..frames).map(|_| AtomicU16::new(0)).collect())
    }
    fn of(&self, pfn: Pfn) -> Option<&AtomicU16> {
        self.0.get(pfn.index())
    }
}

/// Counters of one CPU.
#[derive(Debug)]
pub struct PageMeter {
    cpu: u16,
    window_ns: Range<u64>,
    owners: Owners,
    /// Pages that this CPU allocated in the window.
    pub(super) allocated: u64,
    /// Pages that this CPU freed in the window.
    pub(super) freed: u64,
    /// Pages that this CPU freed in the window and that another CPU had allocated.
    pub(super) freed_elsewhere: u64,
    /// Pages that this CPU allocated, within or outside the window, except for blocks of the
    /// largest order, which no program uses.
    pub(super) all_pages: u64,
    /// Times of the first and the last allocation or free in the window.
    pub(super) busy_ns: Option<(u64, u64)>,
    /// Time spent clearing pages in the window.
    pub(super) clear_ns: u64,
    /// Pages in page caches.
    pub(super) cached: Level,
}

impl PageMeter {
    fn new(cpu: CpuId, window_ns: Range<u64>, owners: Owners) -> Self {
        Self {
            cpu: cpu.index() as u16 + 1,
            window_ns,
            owners,
            allocated: 0,
            freed: 0,
            freed_elsewhere: 0,
            all_pages: 0,
            busy_ns: None,
            clear_ns: 0,
            cached: Level::default(),
        }
    }
    fn page(&mut self, now_ns: u64) {
        let (_, last_ns) = self.busy_ns.get_or_insert((now_ns, now_ns));
        *last_ns = now_ns;
    }
    fn given(&mut self, now_ns: u64, pfn: Pfn, order: Order) {
        if let Some(owner) = self.owners.of(pfn) {
            owner.store(self.cpu, Relaxed);
        }
        if order < Order::MAX {
            self.all_pages += order.pages() as u64;
        }
        if self.window_ns.contains(&now_ns) {
            self.allocated += order.pages() as u64;
            self.page(now_ns);
        }
    }
    fn came_back(&mut self, now_ns: u64, pfn: Pfn, order: Order) {
        if self.window_ns.contains(&now_ns) {
            self.freed += order.pages() as u64;
            let owner = self.owners.of(pfn).map_or(0, |owner| owner.load(Relaxed));
            if owner != self.cpu {
                self.freed_elsewhere += order.pages() as u64;
            }
            self.page(now_ns);
        }
    }
}

impl Meter<Pcp> for PageMeter {
    fn of_cpus(env: &Env<Pcp>, plan: &Plan) -> impl FnMut(CpuId) -> Self {
        let (window_ns, owners) = (plan.at.window_ns(), Owners::new(env.pages as usize));
        move |cpu| Self::new(cpu, window_ns.clone(), owners.clone())
    }
    fn hears(&self, group: TraceGroup) -> bool {
        matches!(group, TraceGroup::Page | TraceGroup::Pcp)
    }
    fn event(&mut self, now_ns: u64, event: &Trace) {
        match *event {
            Trace::Page(PageEvent::Alloc { pfn, order }) => self.given(now_ns, pfn, order),
            Trace::Page(PageEvent::Free { pfn, order }) => self.came_back(now_ns, pfn, order),
            Trace::Page(PageEvent::Clear { ns }) if self.window_ns.contains(&now_ns) => {
                self.clear_ns += u64::from(ns)
            }
            Trace::Pcp(PcpEvent::Count { old, count, .. }) => {
                self.cached.change(now_ns, i64::from(count) - i64::from(old));
            }
            _ => {}
        }
    }
    /// Extends the level of cached pages, which no longer changes, to the end of the run.
    fn close(meters: &mut [Self], end_ns: u64) {
        meters.iter_mut().for_each(|meter| meter.cached.pass(end_ns));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_that_another_cpu_was_given_comes_back_from_elsewhere() {
        let owners = Owners::new(8);
        let meter = |cpu| PageMeter::new(CpuId::new(cpu), 100..200, owners.clone());
        let (mut one, mut other) = (meter(0), meter(1));
        let (four, pfn) = (Order::new(2).unwrap(), Pfn::new(4));
        one.event(90, &Trace::Page(PageEvent::Alloc { pfn, order: four }));
        one.event(120, &Trace::Page(PageEvent::Alloc { pfn: Pfn::new(1), order: Order::ZERO }));
        other.event(130, &Trace::Page(PageEvent::Free { pfn, order: four }));
        one.event(150, &Trace::Page(PageEvent::Free { pfn: Pfn::new(1), order: Order::ZERO }));
        one.event(160, &Trace::Page(PageEvent::Clear { ns: 7 }));
        one.event(200, &Trace::Page(PageEvent::Clear { ns: 7 }));
        assert_eq!((one.allocated, one.freed, one.freed_elsewhere), (1, 1, 0));
        assert_eq!((other.freed, other.freed_elsewhere), (4, 4));
        assert_eq!((one.busy_ns, one.clear_ns), (Some((120, 150)), 7));
    }
}
