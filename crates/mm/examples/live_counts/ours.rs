//! The job with our code, on the machine whose CPUs are stepped by hand.

use crate::kernel::{Cache, Kernel};
use crate::trace::Arming;
use mmscale_arch::{CpuId, Machine, Order, PcpEvent, Pfn, Trace};
use mmscale_frames::frame::MigrateType;
use mmscale_frames::page_alloc::{
    AllocConfig, BulkHold, DecayRequest, FrameAllocator, Gfp, MemoryMap,
};
use mmscale_frames::pcp::{Pcp, PcpLimits};
use mmscale_frames::zone::{ZoneId, ZoneKind};
use mmscale_mm::time::{Expiry, Hz, NSEC_PER_SEC, Time, TimerSlot};
use mmscale_stepped::{self as stepped, Stepped};
use std::collections::BTreeMap;

const CPU: CpuId = CpuId::new(0);
/// Runs of the tick after the job.
const TICKS: usize = 12;

/// Our allocator over memory like the kernel's, in the state that the kernel's page cache had.
pub(crate) struct Ours {
    frames: FrameAllocator<Stepped>,
    zone: ZoneId,
}

/// The effects of the job.
pub(crate) struct Done {
    pub(crate) refills: Vec<u32>,
    pub(crate) frees: Vec<u32>,
    pub(crate) ticks: Vec<u32>,
    pub(crate) count: u32,
    pub(crate) high: u32,
}

fn sizes() -> (Vec<u32>, Vec<u32>) {
    let (mut refills, mut drains) = (Vec::new(), Vec::new());
    for (_, event) in stepped::take_traces() {
        match event {
            Trace::Pcp(PcpEvent::Refill { pages, .. }) => refills.push(pages),
            Trace::Pcp(PcpEvent::Drain { pages, .. }) => drains.push(pages),
            _ => {}
        }
    }
    (refills, drains)
}

impl Ours {
    pub(crate) fn new(kernel: &Kernel, start: &Cache) -> Result<Self, String> {
        stepped::boot(kernel.cpus, 250);
        let (low, all) = (kernel.low_pages as u32, (kernel.low_pages + start.managed) as u32);
        let map = MemoryMap::single(all);
        let map = if low > 0 { map.with_dma32(low) } else { map };
        let config = AllocConfig {
            min_free_kb: Some(kernel.min_free_kb),
            watermark_scale: kernel.watermark_scale,
            hold: if kernel.holds_whole() { BulkHold::Whole } else { BulkHold::Batch },
            ..AllocConfig::default()
        };
        let frames = FrameAllocator::new(&map, config).map_err(|why| why.to_string())?;
        let normal = frames.zones().iter().find(|zone| zone.kind() == ZoneKind::Normal);
        let zone = normal.ok_or("a map without a normal zone")?.id();
        let ours = Self { frames, zone };
        ours.bring_to(start);
        Ok(ours)
    }
    fn cache<R>(&self, look: impl FnOnce(&Pcp) -> R) -> R {
        self.frames.inspect_pcp(self.zone, CPU, look)
    }
    pub(crate) fn limits(&self) -> PcpLimits {
        self.cache(Pcp::limits)
    }
    fn take(&self, pages: usize) -> Vec<Pfn> {
        let take = |_| self.frames.alloc_pages(Order::ZERO, MigrateType::Movable, Gfp::KERNEL);
        (0..pages).map(|at| take(at).expect("the zone is large")).collect()
    }
    fn free(&self, pages: Vec<Pfn>) {
        pages.into_iter().for_each(|pfn| self.frames.free_pages(pfn, Order::ZERO));
    }
    /// The kernel's cache had so many pages and such a `high`. Each refill after a free raises
    /// `high` by one batch, so ours is up to one batch higher.
    fn bring_to(&self, start: &Cache) {
        while self.cache(Pcp::high) < start.high {
            self.frames.drain_pages_zone(self.zone, CPU);
            let page = self.take(1);
            self.free(page);
        }
        self.frames.drain_pages_zone(self.zone, CPU);
        stepped::set_cpu(1);
        let pages = self.take(start.count as usize);
        stepped::set_cpu(0);
        self.free(pages);
    }
    /// The job of the live kernel.
    pub(crate) fn job(&mut self, pages: usize, foreign: usize) -> Done {
        stepped::set_cpu(1);
        let others = self.take(foreign);
        stepped::set_cpu(0);
        stepped::record(true);
        let own = self.take(pages);
        let (refills, _) = sizes();
        self.free(own);
        self.free(others);
        let (_, frees) = sizes();
        for _ in 0..TICKS {
            self.frames.refresh_cpu_vm_stats(DecayRequest::PerRun, Stepped::cond_resched);
        }
        let (_, ticks) = sizes();
        stepped::record(false);
        Done { refills, frees, ticks, count: self.cache(Pcp::count), high: self.cache(Pcp::high) }
    }
}

/// The expiry and the bucket that our rounding and our wheel give a tick that arms itself in jiffy
/// `now`.
fn armed(hz: Hz, cpus: usize, cpu: usize, now: u64) -> [u64; 3] {
    stepped::boot(cpus, hz.get());
    stepped::set_clock(hz.edge_ns(now));
    stepped::set_cpu(cpu);
    let time = Time::<Stepped>::new().expect("the rate is a usual one");
    stepped::interrupt(|| time.idle_exit());
    let jiffies = hz.round_relative(now, u64::from(hz.get()), cpu);
    let slot = TimerSlot::new(0);
    time.arm(CpuId::new(cpu), slot, Expiry::Deferrable { jiffies });
    let due_ns = time.due_ns(CpuId::new(cpu), slot).expect("it was armed");
    [now, now + jiffies, hz.jiffies(due_ns)]
}

/// The rate at which jiffies pass, of the usual ones.
fn rate(armings: &[Arming]) -> Option<Hz> {
    let mut armed = armings.iter().filter_map(|run| Some((run.begun_us, run.again?[0])));
    let (first, last) = (armed.next()?, armed.next_back()?);
    let (us, jiffies) = (last.0 - first.0, last.1 - first.1);
    let hz =
        [100, 250, 300, 1000].into_iter().min_by_key(|hz| (hz * us / 1_000_000).abs_diff(jiffies));
    Hz::new(hz? as u32)
}

/// Prints how a CPU's ticks came, and whether our rounding and wheel agree.
pub(crate) fn compare_ticks(cpu: usize, cpus: usize, armings: &[Arming]) {
    let Some(hz) = rate(armings) else {
        println!("tick of CPU {cpu}: armed itself less than twice");
        return;
    };
    let ms = |jiffies: u64| jiffies * 1000 / u64::from(hz.get());
    let (mut same, mut all) = (0, 0);
    let (mut buckets, mut started) = (BTreeMap::<u64, u32>::new(), BTreeMap::<u64, u32>::new());
    let mut mine = BTreeMap::<u64, u32>::new();
    for pair in armings.windows(2) {
        let Some(live) = pair[0].again else { continue };
        all += 1;
        let ours = armed(hz, cpus, cpu, live[0]);
        same += u32::from(ours == live);
        let us = pair[1].begun_us - pair[0].begun_us;
        let jiffy_us = NSEC_PER_SEC / 1000 / u64::from(hz.get());
        *started.entry(ms((us + jiffy_us / 2) / jiffy_us)).or_default() += 1;
        if let Some(next) = pair[1].again {
            let after = armed(hz, cpus, cpu, next[0])[2];
            *buckets.entry(ms(next[2] - live[2])).or_default() += 1;
            *mine.entry(ms(after - ours[2])).or_default() += 1;
        }
    }
    println!(
        "tick of CPU {cpu} at HZ={}: our rounding and wheel agree on {same} of {all}",
        hz.get()
    );
    println!("  from expiry to expiry:  live {}; ours {}", listed(&buckets), listed(&mine));
    println!("  from start to start:    live {}", listed(&started));
}

fn listed(gaps: &BTreeMap<u64, u32>) -> String {
    let words: Vec<String> = gaps.iter().map(|(ms, n)| format!("{n} x {ms} ms")).collect();
    words.join(", ")
}
