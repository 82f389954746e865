//! The program on the running kernel, and what the trace says of it.

use super::CountsError;
use super::kernel::{Cache, Kernel, Source};
use super::observed::{Effects, Observed, PageCache};
use super::program::{self, FOREIGN, KINDS, PAST_EMPTY, Part, Step, Watcher, busy_pages};
use super::tracing::{Event, Instance};
use mmscale_harness::Interrupt;
use mmscale_linux::{Config, Failure, Linux, Shared};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

/// The longest time that the program may take beyond the time in which CPUs are kept busy, in ns.
const LIMIT_NS: u64 = 120_000_000_000;
/// Pages that the run may use beyond those of the program.
const SPARE_PAGES: u64 = 65_536;

/// The tracepoint of each page of a refill.
const REFILL: &str = "mm_page_alloc_zone_locked";

/// The tracepoint of each block of a drain.
const DRAINED: &str = "mm_page_pcpu_drain";

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
}

/// A run of the tick, and how it armed itself again if it did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Arming {
    /// When the run began, in us.
    pub(super) begun_us: u64,
    pub(super) again: Option<Armed>,
}

/// How a timer was armed, in jiffies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Armed {
    pub(super) now: u64,
    /// The expiry that was asked for.
    pub(super) expires: u64,
    /// The jiffy in which the bucket of the wheel goes off. Older kernels do not print it.
    pub(super) bucket_expires: Option<u64>,
}

/// Puts marks into the trace.
#[derive(Clone)]
struct Marks {
    path: Arc<str>,
    /// Pages in the page cache of CPU 0, and its `high`: before the program takes pages, and when
    /// it begins to rest.
    cached: Shared<[[u32; 2]; 2]>,
}

fn mark(edge: &str, step: Step) -> String {
    match step {
        Step::Busy => format!("{edge} busy"),
        Step::Pages => format!("{edge} pages"),
        Step::Rest => format!("{edge} rest"),
        Step::Call(at) => format!("{edge} call {at}"),
    }
}

impl Marks {
    fn write(&self, edge: &str, step: Step) {
        // A mark that is missing is noticed when the trace is read.
        // tidy: opened: a file of tracefs
        let _ = std::fs::write(&*self.path, mark(edge, step));
    }
    /// Notes the page cache of CPU 0 as the first or the second one.
    fn look(&self, at: usize) -> [u32; 2] {
        let cache = Cache::look(0).map_or([0, 0], |cache| [cache.count, cache.high]);
        self.cached.change(|cached| cached[at] = cache);
        cache
    }
}

impl Watcher<Linux> for Marks {
    fn begin(&self, _: &Linux, step: Step) {
        self.write("begin", step);
        if step == Step::Rest {
            self.look(1);
        }
    }
    fn end(&self, _: &Linux, step: Step) {
        self.write("end", step);
    }
    fn cached_pages(&self, _: &Linux) -> u64 {
        u64::from(self.look(0)[0])
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
    let body = move |system: &Linux| {
        let ran = program::run(system, Part::All { busy_ns }, &own);
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
    let movable = movable(&events[0], count)?;
    let start = PageCache { count, movable, high };
    let at_rest = PageCache { count: at_rest[0], movable: at_rest[0], high: at_rest[1] };
    let sizes = Sizes::of(&events[0], cache.start_pfn)?;
    let busy = within(&events[0], Step::Busy)?;
    let busy_us = busy.first().map_or(0..0, |(_, _, us)| us.clone());
    let calls = (0..KINDS.len()).map(|at| effects(&events[0], at)).collect::<Result<_, _>>()?;
    let observed = Observed {
        limits,
        refills: sizes.refills,
        freed_between_refills: freed_between_refills(&events[0])?,
        drains: sizes.frees,
        used_by_others: sizes.used_by_others,
        returned_by_ticks: sizes.ticks,
        lru_batches: sizes.lru_batches,
        earlier_folios: sizes.earlier_folios,
        tick_gaps: armings.iter().map(|runs| tick_gaps(kernel, runs, &busy_us)).collect(),
        calls,
    };
    let zone_pages = cache.managed;
    Ok(OnKernel { observed, source, zone_pages, start, at_rest, armings })
}

/// The thread that made a step's marks, the events between them, and the times of the marks, in us.
type StepEvents<'a> = (u32, &'a [Event], Range<u64>);

/// Each time that the program did a step, on this CPU. An error if there is none.
fn within(events: &[Event], step: Step) -> Result<Vec<StepEvents<'_>>, CountsError> {
    let (begin, end) = (mark("begin", step), mark("end", step));
    let at = |text: &str| {
        let found = events.iter().enumerate().filter(move |(_, e)| e.mark() == Some(text));
        found.map(|(at, _)| at).collect::<Vec<_>>()
    };
    let (begins, ends) = (at(&begin), at(&end));
    if begins.is_empty() || begins.len() != ends.len() {
        let what = format!("the trace of CPU 0 lacks a mark of `{begin}`");
        return Err(CountsError::Trace(what));
    }
    let pairs = begins.into_iter().zip(ends);
    let step = |(from, to): (usize, usize)| {
        let us = events[from].time_us..events[to].time_us;
        (events[from].pid, &events[from + 1..to], us)
    };
    Ok(pairs.map(step).collect())
}

/// Of the `count` pages in the page cache, those that the program took: single movable ones, until
/// the first refill.
fn movable(events: &[Event], count: u32) -> Result<u32, CountsError> {
    let mut movable = 0;
    for (pid, part, _) in within(events, Step::Pages)? {
        let own = part.iter().filter(|event| event.pid == pid && is_single_movable(event));
        let cached = own.take_while(|event| event.name != REFILL);
        movable += cached.filter(|event| event.name == "mm_page_alloc").count() as u32;
    }
    Ok(movable.min(count))
}

/// Whether pages were freed on this CPU between two of the program's refills.
fn freed_between_refills(events: &[Event]) -> Result<bool, CountsError> {
    let mut steps = within(events, Step::Pages)?.into_iter();
    Ok(steps.any(|(pid, part, _)| {
        let is_refill = |event: &Event| event.pid == pid && event.name == REFILL;
        let first = part.iter().position(is_refill).unwrap_or(0);
        let last = part.iter().rposition(is_refill).unwrap_or(0);
        part[first..last].iter().any(|event| event.name.starts_with("mm_page_free"))
    }))
}

/// The jiffies from the start of one tick to the start of the next, while every CPU was busy.
fn tick_gaps(kernel: &Kernel, runs: &[Arming], busy_us: &Range<u64>) -> Vec<u64> {
    let begun = runs.iter().map(|run| run.begun_us).filter(|us| busy_us.contains(us));
    let begun: Vec<u64> = begun.collect();
    let jiffy_us = 1_000_000 / u64::from(kernel.hz.get());
    begun.windows(2).map(|pair| (pair[1] - pair[0] + jiffy_us / 2) / jiffy_us).collect()
}

/// Pages and folios moved in one hold, hold after hold.
#[derive(Default, PartialEq, Eq, Debug)]
struct Sizes {
    refills: Vec<u32>,
    frees: Vec<u32>,
    ticks: Vec<u32>,
    /// Pages that other tasks took, freed and drained while the program only computed.
    used_by_others: u32,
    lru_batches: Vec<u32>,
    /// Folios of these batches that the program had not taken.
    earlier_folios: u32,
}

/// A kind of hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Hold {
    Refill,
    Free,
    Lru,
}

impl Sizes {
    /// Sums up the events of the program, and of the tick while the program only computes, for the
    /// zone that starts at `start_pfn`.
    fn of(events: &[Event], start_pfn: u64) -> Result<Self, CountsError> {
        let mut sizes = Self::default();
        for (pid, part, _) in within(events, Step::Pages)? {
            for (hold, count) in holds(part, pid, start_pfn) {
                match hold {
                    Hold::Refill => sizes.refills.push(count),
                    Hold::Free => sizes.frees.push(count),
                    Hold::Lru => sizes.lru_batches.push(count),
                }
            }
            sizes.earlier_folios += earlier_folios(part, pid, start_pfn);
        }
        for (pid, part, _) in within(events, Step::Rest)? {
            sizes.ticks.extend(returned_by_ticks(part, start_pfn));
            let of_zone = || part.iter().filter(|event| is_from(event, start_pfn));
            let used = of_zone().filter(|event| event.pid != pid && is_use(event));
            let drained = of_zone().filter(|event| event.name == DRAINED);
            let by_ticks: u32 = sizes.ticks.iter().sum();
            sizes.used_by_others += used.chain(drained).map(pages).sum::<u32>() - by_ticks;
        }
        Ok(sizes)
    }
}

/// The holds of a thread, with the number of pages or folios of each. These are traced one by one.
/// Between two holds of one kind there is another event of the thread, since each allocation and
/// each free has its own.
fn holds(events: &[Event], pid: u32, start_pfn: u64) -> Vec<(Hold, u32)> {
    let mut holds: Vec<(Hold, u32)> = Vec::new();
    // A hold may begin with pages of a lower zone, which do not count.
    let (mut open, mut counted) = (None, false);
    for event in events.iter().filter(|event| event.pid == pid) {
        let hold = match event.name.as_str() {
            REFILL if is_single_movable(event) => Some(Hold::Refill),
            DRAINED => Some(Hold::Free),
            "mm_lru_insertion" => Some(Hold::Lru),
            _ => None,
        };
        counted &= open == hold;
        open = hold;
        if let Some(hold) = hold
            && is_from(event, start_pfn)
        {
            let count = if hold == Hold::Lru { 1 } else { pages(event) };
            match holds.last_mut() {
                Some((_, sum)) if counted => *sum += count,
                _ => holds.push((hold, count)),
            }
            counted = true;
        }
    }
    holds
}

/// The folios that a thread added to LRU lists and did not take in these events.
fn earlier_folios(events: &[Event], pid: u32, start_pfn: u64) -> u32 {
    let of = |name: &'static str| {
        let own = events.iter().filter(move |event| event.pid == pid && event.name == name);
        own.filter(|event| is_from(event, start_pfn)).filter_map(|event| event.number("pfn"))
    };
    let taken: BTreeSet<i64> = of("mm_page_alloc").collect();
    of("mm_lru_insertion").filter(|pfn| !taken.contains(pfn)).count() as u32
}

/// The pages that each tick returned to the zone, of the ticks that returned any.
fn returned_by_ticks(events: &[Event], start_pfn: u64) -> Vec<u32> {
    let mut returned = Vec::new();
    let mut ticking = None;
    for event in events {
        match event.name.as_str() {
            "workqueue_execute_start" => {
                ticking = Some(event.pid);
                returned.push(0);
            }
            "workqueue_execute_end" => ticking = None,
            DRAINED if ticking == Some(event.pid) && is_from(event, start_pfn) => {
                *returned.last_mut().expect("a tick has begun") += pages(event);
            }
            _ => {}
        }
    }
    returned.retain(|&pages| pages > 0);
    returned
}

/// A block is taken from a page cache, or freed into it.
fn is_use(event: &Event) -> bool {
    ["mm_page_alloc", "mm_page_free", "mm_page_free_batched"].contains(&event.name.as_str())
}

fn is_from(event: &Event, start_pfn: u64) -> bool {
    event.number("pfn").is_some_and(|pfn| pfn as u64 >= start_pfn)
}

fn pages(event: &Event) -> u32 {
    1 << event.number("order").unwrap_or(0)
}

/// Migratetype 1 is movable.
fn is_single_movable(event: &Event) -> bool {
    let is = |key, value| event.number(key) == Some(value);
    is("order", 0) && is("migratetype", 1)
}

/// Returns the effects of the calls of one kind.
fn effects(events: &[Event], at: usize) -> Result<Effects, CountsError> {
    let mut all = Effects::default();
    for (pid, part, _) in within(events, Step::Call(at))? {
        // An interrupt on top of the call may do the same for another reason: the tick sends
        // interrupts to idle CPUs.
        let own = || part.iter().filter(|event| event.pid == pid && !event.in_interrupt);
        let count = |is: &dyn Fn(&Event) -> bool| own().filter(|event| is(event)).count() as u32;
        // Reason 3: the flush of this CPU's translations that is part of every flush.
        let flush = |event: &Event| event.name == "tlb_flush" && event.args().contains("(3)");
        let flushed = own().filter(|event| flush(event));
        all.flushes.push(count(&flush));
        let pages = flushed.map(|event| event.number("pages").unwrap_or(-1).max(0) as u32);
        all.flushed_pages.push(pages.sum());
        // Reason 4: the flush that other CPUs are asked for.
        let remote = |event: &Event| event.name == "tlb_flush" && event.args().contains("(4)");
        all.remote_flushes.push(count(&remote));
        all.interrupts.push(own().map(interrupted).sum());
        all.mmap_locks.push(acquisitions(own()));
        all.faults.push(count(&|event| event.name == "page_fault_user"));
    }
    Ok(all)
}

/// The CPUs that an event interrupts for a call of a function.
fn interrupted(event: &Event) -> u32 {
    if !event.args().contains("callback=generic_smp_call_function") {
        return 0;
    }
    match event.name.as_str() {
        "ipi_send_cpu" => 1,
        // A mask in hexadecimal digits.
        "ipi_send_cpumask" => event.arg("cpumask").map_or(0, |mask| {
            mask.chars().filter_map(|digit| digit.to_digit(16)).map(u32::count_ones).sum()
        }),
        _ => 0,
    }
}

/// Counts acquisitions of mmap_lock. A downgrade is traced as another acquisition, for reading,
/// without a release before it; it is none.
fn acquisitions<'a>(events: impl Iterator<Item = &'a Event>) -> u32 {
    let (mut acquired, mut held) = (0, false);
    for event in events {
        match event.name.as_str() {
            "mmap_lock_acquire_returned" if event.arg("success") == Some("true") => {
                acquired += u32::from(!held);
                held = true;
            }
            "mmap_lock_released" => held = false,
            _ => {}
        }
    }
    acquired
}

/// The runs of the tick of a CPU. Interrupts during a run may arm timers of other delayed work:
/// the tick's timer is the one that was armed in most runs.
fn armings(events: &[Event]) -> Vec<Arming> {
    let mut runs: Vec<(Arming, BTreeMap<&str, Armed>)> = Vec::new();
    let mut ticking = None;
    for event in events {
        match event.name.as_str() {
            "workqueue_execute_start" => {
                ticking = Some(event.pid);
                runs.push((Arming { begun_us: event.time_us, again: None }, BTreeMap::new()));
            }
            "workqueue_execute_end" => ticking = None,
            "timer_start" if ticking == Some(event.pid) => {
                if let (Some((_, armed)), Some((timer, times))) = (runs.last_mut(), armed(event)) {
                    armed.insert(timer, times);
                }
            }
            _ => {}
        }
    }
    let mut armed = BTreeMap::<&str, usize>::new();
    let timers = runs.iter().flat_map(|(_, timers)| timers.keys());
    timers.for_each(|timer| *armed.entry(timer).or_default() += 1);
    let own = armed.into_iter().max_by_key(|&(_, times)| times).map(|(timer, _)| timer);
    let again = |(run, timers): (Arming, BTreeMap<&str, Armed>)| Arming {
        again: own.and_then(|own| timers.get(own).copied()),
        ..run
    };
    runs.into_iter().map(again).collect()
}

/// The timer of a `timer_start`, and how it was armed.
fn armed(event: &Event) -> Option<(&str, Armed)> {
    let jiffies = |key| event.number(key).map(|number| number as u64);
    let expires = jiffies("expires")?;
    let now = expires.checked_sub(jiffies("timeout")?)?;
    let bucket_expires = jiffies("bucket_expiry");
    Some((event.arg("timer")?, Armed { now, expires, bucket_expires }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counts::tracing::parsed;

    #[test]
    fn an_interrupt_to_a_mask_counts_once_for_each_cpu_and_none_is_that_of_a_timer() {
        let line = |flags: &str, text: &str| format!("job-1 [000] {flags} 5.000001: {text}\n");
        let called = "callsite=x callback=generic_smp_call_function_single_interrupt";
        let lines = [
            line(".....", "tracing_mark_write: begin call 0"),
            line("d..1.", &format!("ipi_send_cpumask: cpumask=00000000,0000100e {called}")),
            line("dNh2.", &format!("ipi_send_cpu: cpu=3 {called}")),
            line("..s1.", &format!("ipi_send_cpu: cpu=3 {called}")),
            line(".....", "tracing_mark_write: end call 0"),
        ];
        assert_eq!(effects(&parsed(&lines.concat()), 0).unwrap().interrupts, [4]);
    }

    /// A trace of events, each of a thread.
    fn trace(events: &[(u32, &str)]) -> Vec<Event> {
        let line = |(at, (pid, text)): (usize, &(u32, &str))| {
            format!("job-{pid} [000] ..... 5.{at:06}: {text}\n")
        };
        parsed(&events.iter().enumerate().map(line).collect::<String>())
    }

    const ALLOC: &str = "mm_page_alloc: page=1 pfn=0x1000 order=0 migratetype=1 gfp_flags=X";
    const REFILLED: &str = "mm_page_alloc_zone_locked: page=1 pfn=0x1000 order=0 migratetype=1 \
                            percpu_refill=1";
    const FREE: &str = "mm_page_free: page=1 pfn=0x1000 order=0";
    const DRAIN: &str = "mm_page_pcpu_drain: page=1 pfn=0x1000 order=1 migratetype=1";

    #[test]
    fn pages_of_one_hold_are_summed_and_other_tasks_do_not_split_it() {
        let events = trace(&[
            (1, "tracing_mark_write: begin pages"),
            (1, ALLOC),
            (1, REFILLED),
            (2, "sched_switch: prev=1"),
            (1, REFILLED),
            (1, ALLOC),
            (2, FREE),
            (1, REFILLED),
            (1, "mm_lru_insertion: page=1 pfn=0x1000 lru=1"),
            (1, "mm_lru_insertion: page=2 pfn=0x2000 lru=1"),
            (1, FREE),
            (1, DRAIN),
            (1, DRAIN),
            (1, "tracing_mark_write: end pages"),
            (1, "tracing_mark_write: begin rest"),
            (7, "workqueue_execute_start: work struct 1: function vmstat_update"),
            (7, DRAIN),
            (3, FREE),
            (7, DRAIN),
            (7, "workqueue_execute_end: work struct 1"),
            (3, DRAIN),
            (2, "tracing_mark_write: end rest"),
        ]);
        let sizes = Sizes::of(&events, 0x1000).unwrap();
        assert_eq!(sizes.refills, [2, 1]);
        assert_eq!((sizes.lru_batches.as_slice(), sizes.earlier_folios), (&[2][..], 1));
        assert_eq!(sizes.frees, [4]);
        assert_eq!(sizes.used_by_others, 3);
        assert_eq!(sizes.ticks, [4], "what another task drains is not the tick's");
        assert_eq!(movable(&events, 9).unwrap(), 1, "taken before the first refill");
        assert!(freed_between_refills(&events).unwrap());
        let below = Sizes::of(&events, 0x2001).unwrap();
        assert_eq!(below, Sizes::default(), "pages of a lower zone do not count");
        let upper = Sizes::of(&events, 0x1001).unwrap();
        assert_eq!(upper.lru_batches, [1], "a batch may begin with a folio of a lower zone");
    }

    #[test]
    fn a_downgrade_of_mmap_lock_is_no_acquisition() {
        let acquired = |write, success| {
            format!("mmap_lock_acquire_returned: mm=1 write={write} success={success}")
        };
        let lines = [
            "tracing_mark_write: begin call 0".to_owned(),
            acquired("true", "true"),
            acquired("false", "true"),
            "mmap_lock_released: mm=1 write=false".to_owned(),
            acquired("false", "false"),
            acquired("false", "true"),
            "tlb_flush: pages:-1 reason:remote IPI send (4)".to_owned(),
            "tlb_flush: pages:-1 reason:local MM shootdown (3)".to_owned(),
            "ipi_send_cpu: cpu=1 callsite=x callback=generic_smp_call_function_single_interrupt"
                .to_owned(),
            "ipi_send_cpu: cpu=1 callsite=wakeup_preempt callback=0x0".to_owned(),
            "tracing_mark_write: end call 0".to_owned(),
        ];
        let lines: Vec<(u32, &str)> = lines.iter().map(|line| (1, line.as_str())).collect();
        let found = effects(&trace(&lines), 0).unwrap();
        assert_eq!(found.mmap_locks, [2]);
        assert_eq!((found.flushes, found.flushed_pages), (vec![1], vec![0]));
        assert_eq!((found.remote_flushes, found.interrupts), (vec![1], vec![1]));
    }

    #[test]
    fn a_missing_mark_is_an_error() {
        let events = trace(&[(1, "tracing_mark_write: begin pages")]);
        let why = Sizes::of(&events, 0).unwrap_err().to_string();
        assert_eq!(why, "the trace of CPU 0 lacks a mark of `begin pages`");
    }

    #[test]
    fn timers_that_interrupts_arm_during_a_tick_are_not_its_own() {
        let start = "workqueue_execute_start: work struct 1: function vmstat_update";
        let timer = |timer, expires| {
            format!(
                "timer_start: timer={timer} function=f expires={expires} [timeout=250] \
                 bucket_expiry=600 cpu=0"
            )
        };
        let (own, other) = (timer("a", 500), timer("b", 510));
        let end = "workqueue_execute_end: work struct 1";
        let events = trace(&[(7, start), (7, &own), (7, end), (7, start), (7, &other), (7, &own)]);
        let found = armings(&events);
        assert_eq!(found.len(), 2);
        let again = Armed { now: 250, expires: 500, bucket_expires: Some(600) };
        assert!(found.iter().all(|run| run.again == Some(again)), "{found:?}");
        // Older kernels print no bucket.
        let older = own.replace(" bucket_expiry=600", "");
        let found = armings(&trace(&[(7, start), (7, &older), (7, end)]));
        assert_eq!(found[0].again, Some(Armed { bucket_expires: None, ..again }));
    }
}
