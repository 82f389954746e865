//! The program on the simulator, on a machine like this computer, in the state that the kernel's
//! page cache had.

use super::CountsError;
use super::kernel::Kernel;
use super::observed::{Blocks, Effects, Observed, PageCache, TickDrain, Works};
use super::on_kernel::OnKernel;
use super::program::{self, KINDS, OTHERS, Part, Step, Wait, Watcher};
use mmscale_arch::{
    CounterEvent, CpuId, Func, LockClass, LruEvent, Order, PageEvent, PcpEvent, Pfn, Probe,
    TickEvent, TlbEvent, Trace, TraceGroup,
};
use mmscale_document::{CallRow, LockRow};
use mmscale_frames::page_alloc::MemoryMap;
use mmscale_frames::pcp::PcpLimits;
use mmscale_frames::vmstat::NodeItem;
use mmscale_frames::zone::{ZoneId, ZoneKind};
use mmscale_harness::machine::{self, MachineRun, MachineSpec};
use mmscale_harness::{Checks, Interrupt, Profiles, RunContext, Shape, StudyError};
use mmscale_kernel::{Inside, Os};
use mmscale_mm::versions::policies_of;
use mmscale_system::{System, ThreadSpec};
use std::any::Any;
use std::sync::{Arc, Mutex, PoisonError};

/// A machine of the architecture that has the tracepoints. No count depends on its costs.
const PROFILE: &str = "x86-32";
/// The kind of batch that adds folios to the LRU lists, as `LruEvent::Move` numbers it.
const ADDED: u8 = 0;
const CPU: CpuId = CpuId::new(0);
/// How threads wait: a simulated CPU that is idle has no tick, and its time costs nothing here.
const WAIT: Wait = Wait::Compute;
/// Pages of machines whose memory does not matter: 4 GiB, as busy CPUs take page after page, and
/// 256 MiB.
const BUSY_PAGES: u64 = 1 << 20;
const CALL_PAGES: u64 = 1 << 16;

/// Runs the program on the simulator.
pub(super) fn run(
    kernel: &Kernel,
    live: &OnKernel,
    busy_ns: u64,
    interrupt: &Interrupt,
) -> Result<Observed, CountsError> {
    let simulator = Simulator { kernel, live, interrupt };
    let (ran, seen) = simulator.run(Part::Busy { busy_ns, wait: WAIT })?;
    let busy = events_of(ran);
    let (ran, taken) = simulator.run(Part::Pages)?;
    let events = events_of(ran).swap_remove(0);
    let mut observed = Observed {
        limits: taken.limits.expect("the program has looked at its page cache"),
        refills: Vec::new(),
        ticked: false,
        used_by_others: false,
        drains: Vec::new(),
        last_blocks: Vec::new(),
        high_after: taken.high_after,
        ticks: simulator.ticks()?,
        lru_batches: Vec::new(),
        earlier_folios: 0,
        tick_gaps: busy.iter().map(|events| tick_gaps(kernel, &seen, events)).collect(),
        calls: Vec::new(),
        works: simulator.works()?,
    };
    let mut is_same_free = false;
    for event in taken.within(&events, Step::Pages) {
        match *event {
            Trace::Page(_) => is_same_free = false,
            Trace::Pcp(PcpEvent::Refill { pages, .. }) => observed.refills.push(pages),
            Trace::Pcp(PcpEvent::Drain { pages, .. }) => match observed.drains.last_mut() {
                // The kernel's trace does not show where one hold ends and the next one begins.
                Some(last) if is_same_free && !kernel.sees_drains => *last += pages,
                _ => {
                    observed.drains.push(pages);
                    is_same_free = true;
                }
            },
            Trace::Lru(LruEvent::Move { kind: ADDED, folios, .. }) => {
                observed.lru_batches.push(u32::from(folios));
            }
            _ => {}
        }
    }
    for &(at, _) in &live.observed.calls {
        let of = |made| simulator.run(Part::Calls { kind: at, made });
        observed.calls.push((at, effects(of(true)?, of(false)?, at)?));
    }
    Ok(observed)
}

/// A machine like this computer.
struct Simulator<'a> {
    kernel: &'a Kernel,
    live: &'a OnKernel,
    interrupt: &'a Interrupt,
}

impl Simulator<'_> {
    fn run(&self, part: Part) -> Result<(MachineRun, Seen), CountsError> {
        let failed = |why: StudyError| match why {
            StudyError::Interrupted => CountsError::Interrupted,
            why => CountsError::Run(why.to_string()),
        };
        let notes = Notes { seen: Arc::default(), part, live: Arc::new(Left::by(self.live)) };
        let own = notes.clone();
        let program = Box::new(move |os: &Os| {
            program::run(os, part, &own).expect("the calls of the program succeed");
        });
        let probe = &mut |_| Box::new(Recorder::default()) as Box<dyn Probe>;
        let run = machine::run(self.machine(part), probe, program).map_err(failed)?;
        let seen = notes.seen.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Ok((run, seen))
    }
    /// The ticks of a CPU that takes and frees no page. The cache has the state of the kernel's at
    /// its first tick.
    fn ticks(&self) -> Result<Vec<TickDrain>, CountsError> {
        let (ran, seen) = self.run(Part::Rest { wait: WAIT })?;
        let events = events_of(ran);
        let mut ticks = Vec::<TickDrain>::new();
        for event in seen.within(&events[0], Step::Rest) {
            match (event, ticks.last_mut()) {
                (Trace::Tick(TickEvent::Begin), _) => ticks.push(TickDrain::default()),
                (Trace::Pcp(PcpEvent::Drain { pages, .. }), Some(last)) => last.returned += pages,
                _ => {}
            }
        }
        Ok(ticks)
    }
    /// The works of each mbind, for each number of other CPUs with folios in their batches.
    fn works(&self) -> Result<Vec<Vec<Works>>, CountsError> {
        let (_, seen) = self.run(Part::Works)?;
        let of = |step| seen.works.iter().filter(move |(own, _)| *own == step);
        let of = |step| of(step).map(|&(_, works)| Works { all: works as u32, own: 0 }).collect();
        Ok(OTHERS.iter().map(|&others| of(Step::Works(others))).collect())
    }
    fn machine(&self, part: Part) -> MachineSpec {
        let kernel = self.kernel;
        // Timers and the effects of calls do not depend on the memory, which takes time to set up.
        let small = match part {
            Part::Busy { .. } => Some(BUSY_PAGES),
            Part::Calls { .. } | Part::Works => Some(CALL_PAGES),
            Part::All { .. } | Part::Pages | Part::Rest { .. } => None,
        };
        let low_pages = if small.is_some() { 0 } else { kernel.low_pages };
        let pages = small.unwrap_or(low_pages + self.live.zone_pages);
        let profile = Profiles::with(&[]).load(PROFILE).expect("the profile is a built-in one");
        let mut profile =
            profile.with_cpus(kernel.cpus, Shape::Flat).expect("any number of CPUs fits");
        profile.hz = kernel.hz.get();
        profile.node_pages = pages;
        let on_simulator = RunContext::on_simulator(profile, self.interrupt);
        let ctx = RunContext { checks: Checks::On, ..on_simulator };
        let mut spec = MachineSpec::new(&ctx, 1);
        for (mechanism, policy) in policies_of(kernel.version) {
            mechanism.choose(&mut spec.mm, policy);
        }
        let (low, all) = (low_pages as u32, pages as u32);
        let map = MemoryMap::single(all);
        spec.mm.map = if low > 0 { map.with_dma32(low) } else { map };
        if small.is_none() {
            spec.mm.alloc.min_free_kb = Some(kernel.min_free_kb);
            spec.mm.alloc.watermark_scale = kernel.watermark_scale;
            spec.mm.alloc.normal_marks = Some(kernel.cache.marks);
        }
        spec
    }
}

/// The times of the steps of a program, and the limits that it saw.
#[derive(Clone, Default)]
struct Seen {
    /// Each step with its begin and its end, in ns.
    steps: Vec<(Step, u64, u64)>,
    limits: Option<PcpLimits>,
    /// `high` of the page cache after the program's frees.
    high_after: u32,
    /// For each mbind, the works that it queued; until it ends, those queued before.
    works: Vec<(Step, u64)>,
}

impl Seen {
    fn times(&self, step: Step) -> impl Iterator<Item = (u64, u64)> + '_ {
        let own = self.steps.iter().filter(move |(of, ..)| *of == step);
        own.map(|&(_, begin_ns, end_ns)| (begin_ns, end_ns))
    }
    fn within<'a>(
        &'a self,
        events: &'a [(u64, Trace)],
        step: Step,
    ) -> impl Iterator<Item = &'a Trace> {
        self.times(step).flat_map(|(begin_ns, end_ns)| between(events, begin_ns, end_ns))
    }
}

fn between(events: &[(u64, Trace)], begin_ns: u64, end_ns: u64) -> impl Iterator<Item = &Trace> {
    let inside = events.iter().filter(move |(ns, _)| (begin_ns..=end_ns).contains(ns));
    inside.map(|(_, event)| event)
}

/// The state of the kernel's CPU 0 from earlier work.
struct Left {
    /// Its page cache before the program takes pages, and when it begins to rest.
    caches: [PageCache; 2],
    /// Pages in it by the program's look, before the program takes pages.
    looked: u32,
    /// Folios in its batch for the LRU lists, before the program takes pages.
    folios: u32,
}

impl Left {
    fn by(live: &OnKernel) -> Self {
        let caches = [live.start.clone(), live.at_rest.clone()];
        Self { caches, looked: live.looked, folios: live.observed.earlier_folios }
    }
}

/// Notes when the steps of the program are, and gives CPU 0 the state of the kernel's.
#[derive(Clone)]
struct Notes {
    seen: Arc<Mutex<Seen>>,
    part: Part,
    live: Arc<Left>,
}

impl Notes {
    fn change(&self, change: impl FnOnce(&mut Seen)) {
        change(&mut self.seen.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

impl Watcher<Os> for Notes {
    fn begin(&self, os: &Os, step: Step) {
        match (self.part, step) {
            (Part::Rest { .. }, Step::Rest) => {
                let blocks = on_cpu_1(os, &self.live.caches[1]);
                put(os.inside(), normal(os), &self.live.caches[1], blocks);
            }
            (Part::Pages, Step::Rest) => {
                let high = os.inside().pcp_high(normal(os), CPU);
                self.change(|seen| seen.high_after = high);
            }
            (_, Step::Works(_)) => {
                let before = os.inside().lru_counters().cpus_drained;
                self.change(|seen| seen.works.push((step, before)));
            }
            _ => {}
        }
        let now_ns = os.clock_ns();
        self.change(|seen| seen.steps.push((step, now_ns, u64::MAX)));
    }
    fn end(&self, os: &Os, step: Step) {
        let now_ns = os.clock_ns();
        if let Step::Works(_) = step {
            let all = os.inside().lru_counters().cpus_drained;
            self.change(|seen| {
                let works = &mut seen.works.last_mut().expect("it has begun").1;
                *works = all - *works;
            });
        }
        self.change(|seen| {
            let open = seen.steps.iter_mut().rev().find(|(of, ..)| *of == step);
            open.expect("it has begun").2 = now_ns;
        });
    }
    fn cached_pages(&self, os: &Os) -> u64 {
        let (inside, zone) = (os.inside(), normal(os));
        let blocks = on_cpu_1(os, &self.live.caches[0]);
        inside.drain_lists();
        if self.live.folios > 0 {
            let at = program::touched(os, u64::from(self.live.folios));
            at.expect("there is memory");
        }
        put(inside, zone, &self.live.caches[0], blocks);
        let limits = inside.pcp_limits(zone, CPU);
        // The time of this is not the program's.
        let now_ns = os.clock_ns();
        self.change(|seen| {
            seen.limits = Some(limits);
            let open = seen.steps.last_mut().expect("the step of the pages has begun");
            open.1 = now_ns;
        });
        u64::from(self.live.looked)
    }
    fn is_enough(&self) -> bool {
        true
    }
}

/// The program's zone.
fn normal(os: &Os) -> ZoneId {
    os.inside().zone_of_kind(ZoneKind::Normal).expect("the map has a normal zone")
}

/// Allocates the blocks of a page cache on CPU 1: blocks that CPU 0 allocated would raise its
/// `high`.
fn on_cpu_1(os: &Os, state: &PageCache) -> Vec<(Pfn, Order)> {
    let taken = Arc::new(Mutex::new(Vec::new()));
    let (all, blocks) = (Arc::clone(&taken), state.blocks.clone());
    let body = move |os: &Os| {
        let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
        blocks.iter().for_each(|&blocks| all.extend(take(os.inside(), blocks)));
    };
    let thread = os.spawn(ThreadSpec::on(1), Box::new(body)).expect("there is memory");
    os.join(thread).expect("it is a thread of this process");
    std::mem::take(&mut *taken.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Gives the page cache of CPU 0 these blocks and the `high` that the kernel's had.
fn put(inside: &dyn Inside, zone: ZoneId, state: &PageCache, blocks: Vec<(Pfn, Order)>) {
    inside.drain_pages_zone(zone, CPU);
    // A free that reaches `high` would drain some of the pages.
    inside.set_pcp_high(zone, CPU, state.high.max(state.pages() + 1));
    blocks.into_iter().for_each(|(pfn, order)| inside.free_pages(pfn, order));
    inside.set_pcp_high(zone, CPU, state.high);
}

fn take(inside: &dyn Inside, blocks: Blocks) -> Vec<(Pfn, Order)> {
    let take = |_| inside.alloc_pages(blocks.order, blocks.list);
    (0..blocks.count).map(|at| (take(at).expect("the zone is large"), blocks.order)).collect()
}

/// Records the events that are compared.
#[derive(Default)]
struct Recorder(Vec<(u64, Trace)>);

impl Probe for Recorder {
    fn hears(&self, group: TraceGroup) -> bool {
        use TraceGroup::{Counter, Lru, Page, Pcp, Tick, Tlb};
        [Counter, Lru, Page, Pcp, Tick, Tlb].contains(&group)
    }
    fn event(&mut self, now_ns: u64, event: &Trace) {
        let compared = matches!(
            event,
            Trace::Pcp(PcpEvent::Refill { .. } | PcpEvent::Drain { .. })
                | Trace::Tick(TickEvent::Begin)
                | Trace::Lru(LruEvent::Move { .. })
                | Trace::Page(PageEvent::Alloc { .. } | PageEvent::Free { .. })
                | Trace::Tlb(_)
        ) || tables(event) != 0;
        if compared {
            self.0.push((now_ns, *event));
        }
    }
    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

/// The page tables that an event adds: the change of their counter.
fn tables(event: &Trace) -> i64 {
    /// The domains of nodes.
    const NODE: u16 = 0x8000;
    match *event {
        Trace::Counter(CounterEvent::Delta { domain, item, old, new, folded, .. })
            if domain & NODE != 0 && usize::from(item) == NodeItem::PageTable as usize =>
        {
            i64::from(new) - i64::from(old) + i64::from(folded)
        }
        _ => 0,
    }
}

/// The events of each CPU.
fn events_of(run: MachineRun) -> Vec<Vec<(u64, Trace)>> {
    let own = |probe: Box<dyn Probe>| probe.into_any().downcast::<Recorder>();
    run.probes.into_iter().map(|probe| own(probe).expect("made above").0).collect()
}

/// The jiffies from the start of one tick to the start of the next, while every CPU was busy.
fn tick_gaps(kernel: &Kernel, seen: &Seen, events: &[(u64, Trace)]) -> Vec<u64> {
    let is_begin = |(_, event): &&(u64, Trace)| *event == Trace::Tick(TickEvent::Begin);
    let begins = events.iter().filter(is_begin).map(|&(ns, _)| ns);
    let busy = |ns: &u64| seen.times(Step::Busy).any(|(from, to)| (from..=to).contains(ns));
    let begins: Vec<u64> = begins.filter(busy).collect();
    let jiffy_ns = 1_000_000_000 / u64::from(kernel.hz.get());
    begins.windows(2).map(|pair| (pair[1] - pair[0] + jiffy_ns / 2) / jiffy_ns).collect()
}

/// Returns the effects of the calls of one kind. Locks and faults have no tracepoints: their number
/// is that of a run with the calls less that of a run without them, for all calls together.
fn effects(
    with: (MachineRun, Seen),
    without: (MachineRun, Seen),
    at: usize,
) -> Result<Effects, CountsError> {
    let of_calls = |of: fn(&MachineRun) -> u64| {
        let more = of(&with.0).checked_sub(of(&without.0)).ok_or_else(|| {
            let kind = KINDS[at];
            CountsError::Run(format!("the simulator does less with the calls of {kind:?}"))
        })?;
        Ok::<_, CountsError>(shared_out(more, KINDS[at].rounds()))
    };
    let (locks, faults) = (of_calls(mmap_locks)?, of_calls(faults)?);
    let (run, seen) = with;
    let mut all = Effects::default();
    let events = events_of(run).swap_remove(0);
    for (begin_ns, end_ns) in seen.times(Step::Call(at)) {
        let (mut flushes, mut flushed_pages, mut interrupts) = (0, 0, 0);
        let (mut blocks, mut made) = ([0; 3], 0);
        for event in between(&events, begin_ns, end_ns) {
            made += tables(event).max(0) as u32;
            match *event {
                Trace::Tlb(TlbEvent::Flush { pages, interrupted }) => {
                    flushes += 1;
                    flushed_pages += pages;
                    interrupts += interrupted;
                }
                Trace::Page(PageEvent::Alloc { order: Order::ZERO, .. }) => blocks[0] += 1,
                Trace::Page(PageEvent::Alloc { order: Order::PAGEBLOCK, .. }) => blocks[1] += 1,
                Trace::Page(PageEvent::Alloc { .. }) => blocks[2] += 1,
                _ => {}
            }
        }
        // Page tables are single pages too.
        blocks[0] -= made;
        all.taken.iter_mut().zip(blocks).for_each(|(all, blocks)| all.push(blocks));
        all.tables.push(made);
        all.flushes.push(flushes);
        all.flushed_pages.push(flushed_pages);
        all.remote_flushes.push(u32::from(interrupts > 0));
        all.interrupts.push(interrupts);
    }
    let freed = seen.times(Step::Release(at)).map(|(begin_ns, end_ns)| {
        let changes = between(&events, begin_ns, end_ns).map(tables);
        changes.map(|change| (-change).max(0) as u32).sum()
    });
    Ok(Effects { mmap_locks: locks, faults, freed_tables: freed.collect(), ..all })
}

/// Shares a sum out among the calls of a kind: a remainder shows as calls that differ.
fn shared_out(sum: u64, rounds: u32) -> Vec<u32> {
    let rounds = u64::from(rounds);
    (0..rounds).map(|at| (sum / rounds + u64::from(at < sum % rounds)) as u32).collect()
}

/// Acquisitions of mmap_lock in a run.
fn mmap_locks(run: &MachineRun) -> u64 {
    let own = |row: &&LockRow| row.class == LockClass::MmapLock.name();
    run.locks.iter().filter(own).map(|row| row.acquisitions).sum()
}

/// Page faults in a run, without those that a call does itself.
fn faults(run: &MachineRun) -> u64 {
    let [fault, populate] = [Func::HandleMmFault, Func::MmPopulate].map(Func::name);
    let own = |row: &&CallRow| {
        let is_fault = row.path.last().is_some_and(|last| last == fault);
        is_fault && row.path.iter().all(|above| above != populate)
    };
    run.calls.iter().filter(own).map(|row| row.entered).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counts::kernel::{Facts, Source};
    use crate::counts::observed::usual;
    use mmscale_frames::frame::MigrateType;

    /// /proc/zoneinfo of a guest with 2 CPUs and Linux 6.18, cut.
    const ZONEINFO: &str = "\
Node 0, zone    DMA32
        managed  776758
Node 0, zone   Normal
        min      9148
        low      11436
        high     13723
        managed  917504
    cpu: 0
              count:    4873
              high:     5718
              batch:    63
              high_min: 5718
              high_max: 57344
  start_pfn:           1048576
";

    fn kernel() -> Kernel {
        Kernel::of(&Facts {
            release: "6.18.1".to_owned(),
            hz: 250,
            is_guest: false,
            is_emulated: false,
            cpus: 2,
            sees_interrupts: true,
            sees_drains: true,
            has_huge: true,
            min_free_kb: 67_584,
            watermark_scale: 10,
            parameters: String::new(),
            zoneinfo: ZONEINFO.to_owned(),
        })
        .unwrap()
    }

    fn live(start: PageCache, at_rest: PageCache) -> OnKernel {
        let limits = PcpLimits::of(917_504, 0, 2, 63, None);
        let observed = Observed {
            limits,
            refills: vec![],
            ticked: false,
            used_by_others: false,
            drains: vec![],
            last_blocks: vec![],
            high_after: 0,
            ticks: vec![],
            lru_batches: vec![],
            earlier_folios: 0,
            tick_gaps: vec![],
            calls: (0..KINDS.len()).map(|at| (at, Effects::default())).collect(),
            works: vec![],
        };
        OnKernel {
            observed,
            source: Source::Printed,
            zone_pages: 917_504,
            looked: start.pages(),
            start,
            at_rest,
            armings: vec![],
            busy_us: 0..0,
            is_stolen: false,
        }
    }

    /// Flushes, pages, interrupts, acquisitions of mmap_lock and faults of a call on Linux 6.18,
    /// on a computer with 2 CPUs (`mmscale live counts`).
    const ON_LINUX: [[u32; 5]; 16] = [
        [1, 1, 1, 1, 0],
        [1, 33, 1, 1, 0],
        [1, 0, 1, 1, 0],
        [1, 0, 1, 1, 0],
        [1, 0, 1, 1, 0],
        [1, 1, 1, 0, 0],
        [1, 33, 1, 0, 0],
        [1, 0, 1, 0, 0],
        [1, 0, 1, 0, 0],
        [1, 1, 1, 1, 0],
        [1, 33, 1, 1, 0],
        [1, 0, 1, 1, 0],
        [1, 1, 1, 1, 0],
        [1, 0, 1, 1, 0],
        [0, 0, 0, 0, 1],
        [0, 0, 0, 0, 64],
    ];

    #[test]
    fn a_sum_that_is_not_equal_for_all_calls_shows() {
        assert_eq!(shared_out(32, 16), [2; 16]);
        let uneven = shared_out(19, 16);
        assert_eq!((uneven[2], uneven[3], uneven.iter().sum::<u32>()), (2, 1, 19));
    }

    #[test]
    fn counts_are_those_that_linux_had() {
        let of = |list, count| Blocks::single(list, count);
        let blocks = vec![of(MigrateType::Movable, 4384), of(MigrateType::Unmovable, 489)];
        let start = PageCache { blocks, high: 5718 };
        let at_rest = PageCache { blocks: vec![of(MigrateType::Movable, 16_098)], high: 17_751 };
        let (kernel, live) = (kernel(), live(start, at_rest));
        let seen = run(&kernel, &live, 3_000_000_000, &Interrupt::default()).unwrap();
        let PcpLimits { batch, high_min, high_max, .. } = seen.limits;
        assert_eq!([batch, high_min, high_max], [63, 5718, 57_344]);
        assert_eq!(seen.refills[..5], [63, 126, 252, 504, 1008]);
        assert!(seen.refills[5..].iter().all(|&pages| pages == 2016), "{:?}", seen.refills);
        assert_eq!(seen.returned_by_ticks()[1..], [1941, 1699, 1486, 1300, 1138, 996, 871, 384]);
        assert!(seen.lru_batches.iter().all(|&folios| folios == 31), "{:?}", seen.lru_batches);
        let calls = seen.calls.iter();
        let calls: Vec<_> = calls.map(|(_, of)| of.counts().map(|n| usual(n).unwrap())).collect();
        assert_eq!(calls[..ON_LINUX.len()], ON_LINUX);
    }
}
