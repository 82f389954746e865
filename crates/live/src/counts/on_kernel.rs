//! The program on the running kernel, and what the trace says of it.

use super::CountsError;
use super::armings::{Arming, armings, tick_gaps};
use super::effects::effects;
use super::kernel::{Cache, Kernel, Source};
use super::observed::{Blocks, Observed, PageCache};
use super::program::{self, FOREIGN, KINDS, PAST_EMPTY, Part, Step, Watcher, busy_pages};
use super::reading::{Sizes, contents, freed_between_refills, mark, within};
use super::tracing::Instance;
use mmscale_frames::frame::MigrateType;
use mmscale_harness::Interrupt;
use mmscale_linux::{Config, Failure, Linux, Shared};
use std::ops::Range;
use std::sync::Arc;

/// The longest time that the program may take beyond the time in which CPUs are kept busy, in ns.
const LIMIT_NS: u64 = 120_000_000_000;
/// Pages that the run may use beyond those of the program.
const SPARE_PAGES: u64 = 65_536;

/// The kernel's side.
pub(super) struct OnKernel {
    pub(super) observed: Observed,
    /// The source of its limits.
    pub(super) source: Source,
    /// Pages of the program's zone.
    pub(super) zone_pages: u64,
    /// The page cache of CPU 0 before the program took pages, and when it began to rest.
    pub(super) start: PageCache,
    pub(super) at_rest: PageCache,
    /// For each CPU, the runs of its tick.
    pub(super) armings: Vec<Vec<Arming>>,
    /// When CPUs were kept busy, in us.
    pub(super) busy_us: Range<u64>,
}

/// Puts marks into the trace.
#[derive(Clone)]
struct Marks {
    path: Arc<str>,
    /// Pages in the page cache of CPU 0, and its `high`: before the program takes pages, and when
    /// it begins to rest.
    cached: Shared<[[u32; 2]; 2]>,
}

impl Marks {
    fn write(&self, edge: &str, step: Step) {
        // A mark that is missing is noticed when the trace is read.
        // tidy: opened: a file of tracefs
        let _ = std::fs::write(&*self.path, mark(edge, step));
    }
    /// Marks the begin of a step, and notes the page cache of CPU 0 at that moment as the first or
    /// the second one.
    fn begin_with(&self, step: Step, at: usize) -> [u32; 2] {
        let cache = Cache::look_and(0, || self.write("begin", step));
        let cache = cache.map_or([0, 0], |cache| [cache.count, cache.high]);
        self.cached.change(|cached| cached[at] = cache);
        cache
    }
}

impl Watcher<Linux> for Marks {
    fn begin(&self, _: &Linux, step: Step) {
        match step {
            Step::Pages => {}
            Step::Rest => {
                self.begin_with(step, 1);
            }
            Step::Busy | Step::Call(_) => self.write("begin", step),
        }
    }
    fn end(&self, _: &Linux, step: Step) {
        self.write("end", step);
    }
    fn cached_pages(&self, _: &Linux) -> u64 {
        u64::from(self.begin_with(Step::Pages, 0)[0])
    }
}

/// Runs the program on the kernel.
pub(super) fn run(
    kernel: &Kernel,
    busy_ns: u64,
    interrupt: &Interrupt,
) -> Result<OnKernel, CountsError> {
    let trace = Instance::new(kernel)?;
    let cache = Cache::look(0)?;
    let (limits, source) = cache.limits(kernel.version, kernel.cpus);
    let marks = Marks { path: trace.marker().into(), cached: Shared::default() };
    let busy_pages = kernel.cpus as u64 * busy_pages(busy_ns);
    let cached = u64::from(limits.high_max.max(cache.count));
    let pages = busy_pages + cached + PAST_EMPTY + FOREIGN;
    let config = Config {
        cpus: kernel.cpus,
        memory_bytes: (pages + SPARE_PAGES) * mmscale_system::PAGE_BYTES,
        processes: kernel.cpus as u64 + 8,
        limit_ns: busy_ns + LIMIT_NS,
        interrupt: Some(interrupt.flag()),
    };
    trace.watch(kernel)?;
    let own = marks.clone();
    let part = Part::All { busy_ns, wait: kernel.wait };
    let body = move |system: &Linux| {
        let ran = program::run(system, part, &own);
        ran.expect("the calls of the program succeed");
    };
    mmscale_linux::run(&config, Box::new(body)).map_err(|why| match why {
        Failure::Interrupted => CountsError::Interrupted,
        why => CountsError::Run(why.to_string()),
    })?;
    trace.stop()?;
    let events = (0..kernel.cpus).map(|cpu| trace.events(cpu)).collect::<Result<Vec<_>, _>>()?;
    let armings: Vec<_> = events.iter().map(|events| armings(events)).collect();
    let [[count, high], at_rest] = marks.cached.get();
    if high == 0 || at_rest[1] == 0 {
        let what = "the program could not read /proc/zoneinfo: repeat the call";
        return Err(CountsError::Run(what.to_owned()));
    }
    let sizes = Sizes::of(&events[0], cache.start_pfn)?;
    let start = PageCache { blocks: contents(&events[0], cache.start_pfn, count)?, high };
    // What the CPU frees until its first tick is in the cache by then.
    let grown = sizes.ticks.first().map_or(0, |tick| tick.grown);
    let rested = u32::try_from(i64::from(at_rest[0]) + grown).unwrap_or(0);
    let blocks = vec![Blocks::single(MigrateType::Movable, rested)];
    let at_rest = PageCache { blocks, high: at_rest[1] };
    // Pages of the program's stack and heap are in the batches too.
    let others = sizes.taken.saturating_sub(count + PAST_EMPTY as u32);
    let busy = within(&events[0], Step::Busy)?;
    let busy_us = busy.first().map_or(0..0, |(_, _, us)| us.clone());
    let calls = (0..KINDS.len()).map(|at| effects(&events[0], at)).collect::<Result<_, _>>()?;
    let observed = Observed {
        limits,
        refills: sizes.refills,
        freed_between_refills: freed_between_refills(&events[0])?,
        ticked: sizes.ticked,
        drains: sizes.frees,
        high_after: at_rest.high,
        ticks: sizes.ticks,
        lru_batches: sizes.lru_batches,
        earlier_folios: sizes.earlier_folios + others,
        tick_gaps: armings.iter().map(|runs| tick_gaps(kernel, runs, &busy_us)).collect(),
        calls,
    };
    let zone_pages = cache.managed;
    Ok(OnKernel { observed, source, zone_pages, start, at_rest, armings, busy_us })
}
