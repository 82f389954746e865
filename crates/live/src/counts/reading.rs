//! Pages and folios that the program moved, by a trace of CPU 0.

use super::CountsError;
use super::observed::{Blocks, TickDrain};
use super::program::Step;
use super::tracing::Event;
use mmscale_arch::Order;
use mmscale_frames::frame::MigrateType;
use mmscale_frames::pcp::COSTLY_ORDER;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// The tracepoint of each page of a refill.
pub(super) const REFILL: &str = "mm_page_alloc_zone_locked";

/// The tracepoint of the begin of a tick.
const TICK: &str = "workqueue_execute_start";

/// The tracepoint of each block of a drain.
pub(super) const DRAINED: &str = "mm_page_pcpu_drain";

/// The text of a mark.
pub(super) fn mark(edge: &str, step: Step) -> String {
    match step {
        Step::Busy => format!("{edge} busy"),
        Step::Pages => format!("{edge} pages"),
        Step::Rest => format!("{edge} rest"),
        Step::Call(at) => format!("{edge} call {at}"),
        Step::Release(at) => format!("{edge} release {at}"),
        Step::Beside => format!("{edge} second"),
        Step::Works(others) => format!("{edge} works {others:?}"),
    }
}

/// The number of the first time that the program took and freed pages without a tick and without
/// others who did; the first one of all if there is none.
pub(super) fn undisturbed(events: &[Event]) -> Result<usize, CountsError> {
    let mut times = within(events, Step::Pages)?.into_iter();
    Ok(times.position(|(pid, part, _)| !has_tick(part) && !is_used(pid, part)).unwrap_or(0))
}

/// The events of a CPU that a comparison reads. Of the times that the program took and freed pages,
/// only this one.
pub(super) fn kept(events: Vec<Event>, cpu: usize, time: usize) -> Vec<Event> {
    let (mut times, mut inside) = (0, false);
    let mut tables = BTreeSet::new();
    let mut is_kept = |event: &Event| {
        if let Some(text) = event.mark() {
            let is_pages = text.ends_with(" pages");
            let is_other = is_pages && times != time;
            times += usize::from(is_pages && text.starts_with("end"));
            // Until the next step nothing counts, and a busy CPU takes many pages.
            inside = !is_other && text.starts_with("begin") && text != "begin busy";
            return !is_other;
        }
        let is_table = match event.name.as_str() {
            "mm_page_alloc" if is_table(event) => {
                tables.insert(event.number("pfn"));
                true
            }
            "mm_page_free" => tables.remove(&event.number("pfn")),
            name => ["workqueue_", "timer_start", "sched_switch"]
                .iter()
                .any(|kept| name.starts_with(kept)),
        };
        is_table || (cpu == 0 && inside)
    };
    events.into_iter().filter(|event| is_kept(event)).map(Event::shortened).collect()
}

/// Whether an event is the allocation of a page table of a process: these are cleared and charged.
pub(super) fn is_table(event: &Event) -> bool {
    let flags = event.arg("gfp_flags").unwrap_or_default();
    let has = |flag: &str| flags.split('|').any(|one| one == flag);
    event.number("order") == Some(0) && has("GFP_KERNEL_ACCOUNT") && has("__GFP_ZERO")
}

/// The thread that made a step's marks, the events between them, and the times of the marks, in us.
pub(super) type StepEvents<'a> = (u32, &'a [Event], Range<u64>);

/// Each time that the program did a step, on this CPU. An error if there is none.
pub(super) fn within(events: &[Event], step: Step) -> Result<Vec<StepEvents<'_>>, CountsError> {
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

/// The blocks of the list of one order and one type, less those that it had at first.
#[derive(Clone, Copy, Default)]
struct Level {
    now: i64,
    least: i64,
    is_refilled: bool,
}

/// Returns the pages that the program freed into its CPU's page cache before it took any: the end
/// of its look at the page cache frees the text, which takes several pages if there are many CPUs.
pub(super) fn freed_first(events: &[Event], start_pfn: u64) -> Result<u32, CountsError> {
    let freed = within(events, Step::Pages)?.into_iter().map(|(pid, part, _)| {
        let own = part.iter().filter(|event| event.pid == pid && is_cached(event, start_pfn));
        let first = own.take_while(|event| event.name == "mm_page_free");
        first.map(pages).sum::<u32>()
    });
    Ok(freed.sum())
}

/// Returns the blocks that the page cache of `count` pages had when the program began to take
/// pages. A list had what was taken from it before its first refill. The blocks that nothing took
/// are on a list that was not refilled.
pub(super) fn contents(
    events: &[Event],
    start_pfn: u64,
    count: u32,
) -> Result<Vec<Blocks>, CountsError> {
    let mut levels = BTreeMap::<(i64, i64), Level>::new();
    let mut taken = BTreeMap::<i64, i64>::new();
    for (_, part, _) in within(events, Step::Pages)? {
        // A drain takes blocks from all lists.
        let before = part.iter().take_while(|event| event.name != DRAINED);
        for event in before.filter(|event| is_cached(event, start_pfn)) {
            let (order, pfn) = (event.number("order").unwrap_or(0), event.number("pfn"));
            let list = event.number("migratetype").unwrap_or(UNMOVABLE);
            match (event.name.as_str(), pfn) {
                (REFILL, _) => levels.entry((order, list)).or_default().is_refilled = true,
                ("mm_page_alloc", Some(pfn)) => {
                    taken.insert(pfn, list);
                    levels.entry((order, list)).or_default().change(-1);
                }
                ("mm_page_free", Some(pfn)) => {
                    // A block that was taken earlier is most likely the kernel's own.
                    let list = taken.remove(&pfn).unwrap_or(UNMOVABLE);
                    levels.entry((order, list)).or_default().change(1);
                }
                _ => {}
            }
        }
    }
    Ok(filled(&levels, count))
}

impl Level {
    fn change(&mut self, blocks: i64) {
        if !self.is_refilled {
            self.now += blocks;
            self.least = self.least.min(self.now);
        }
    }
}

/// Fills a page cache of `count` pages with the blocks that its lists had.
fn filled(levels: &BTreeMap<(i64, i64), Level>, count: u32) -> Vec<Blocks> {
    let mut left = count;
    let mut all = Vec::new();
    // The program takes single movable pages: their number matters most.
    let is_other = |key: &&(i64, i64)| **key != (0, MOVABLE);
    let keys = [&(0, MOVABLE)].into_iter().chain(levels.keys().filter(is_other));
    for key @ &(order, list) in keys {
        let (Some(level), Some(list)) = (levels.get(key), list_of(list)) else { continue };
        let Some(order) = u8::try_from(order).ok().and_then(Order::new) else { continue };
        let blocks = (-level.least) as u32;
        let found = Blocks { order, list, count: blocks.min(left >> order.get()) };
        left -= found.pages();
        all.push(found);
    }
    let is_refilled = |list| levels.get(&(0, list)).is_some_and(|level| level.is_refilled);
    // Page tables come from the first of these: the simulator must not refill it where the kernel
    // did not.
    let rest = [UNMOVABLE, RECLAIMABLE].into_iter().find(|&list| !is_refilled(list));
    let list = rest.and_then(list_of).unwrap_or(MigrateType::Reclaimable);
    all.push(Blocks::single(list, left));
    all.retain(|blocks| blocks.count > 0);
    all
}

/// Linux's numbers of types.
const UNMOVABLE: i64 = 0;
const MOVABLE: i64 = 1;
const RECLAIMABLE: i64 = 2;

fn list_of(number: i64) -> Option<MigrateType> {
    match number {
        UNMOVABLE => Some(MigrateType::Unmovable),
        MOVABLE => Some(MigrateType::Movable),
        RECLAIMABLE => Some(MigrateType::Reclaimable),
        _ => None,
    }
}

/// Whether an event is of a block that page caches of the zone have: of order 0 to 3, or a huge
/// page. A block that is taken from the zone for no page cache is none.
fn is_cached(event: &Event, start_pfn: u64) -> bool {
    let order = event.number("order").unwrap_or(0);
    let has_list = (0..=i64::from(COSTLY_ORDER)).contains(&order)
        || order == i64::from(Order::PAGEBLOCK.get());
    is_from(event, start_pfn) && has_list && event.number("percpu_refill") != Some(0)
}

/// Whether another task or an interrupt used the page cache or the LRU batch of the CPU.
fn is_used(pid: u32, part: &[Event]) -> bool {
    let is_others = |event: &Event| event.pid != pid || event.in_interrupt;
    let uses = |event: &Event| event.name.starts_with("mm_");
    part.iter().any(|event| is_others(event) && uses(event))
}

fn has_tick(part: &[Event]) -> bool {
    part.iter().any(|event| event.name == TICK)
}

/// Pages and folios moved in one hold, hold after hold.
#[derive(Default, PartialEq, Eq, Debug)]
pub(super) struct Sizes {
    pub(super) refills: Vec<u32>,
    pub(super) frees: Vec<u32>,
    /// Pages of the last block of each of these.
    pub(super) last_blocks: Vec<u32>,
    pub(super) ticks: Vec<TickDrain>,
    pub(super) lru_batches: Vec<u32>,
    /// Folios of these batches that the program had not taken.
    pub(super) earlier_folios: u32,
    /// Single movable pages that the program took.
    pub(super) taken: u32,
    /// Whether a tick ran while it took and freed pages, and whether others did the same.
    pub(super) ticked: bool,
    pub(super) used_by_others: bool,
}

/// A kind of hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Hold {
    Refill,
    Free,
    Lru,
}

impl Sizes {
    /// Sums up the events of the program, and of the tick while the program takes no pages, for the
    /// zone that starts at `start_pfn`.
    pub(super) fn of(events: &[Event], start_pfn: u64) -> Result<Self, CountsError> {
        let mut sizes = Self::default();
        for (pid, part, _) in within(events, Step::Pages)? {
            for (hold, count, last) in holds(part, pid, start_pfn) {
                match hold {
                    Hold::Refill => sizes.refills.push(count),
                    Hold::Free => {
                        sizes.frees.push(count);
                        sizes.last_blocks.push(last);
                    }
                    Hold::Lru => sizes.lru_batches.push(count),
                }
            }
            sizes.earlier_folios += earlier_folios(part, pid, start_pfn);
            sizes.ticked |= has_tick(part);
            sizes.used_by_others |= is_used(pid, part);
            let own = part.iter().filter(|event| event.pid == pid && is_from(event, start_pfn));
            let taken = own.filter(|event| event.name == "mm_page_alloc");
            sizes.taken += taken.filter(|event| is_single_movable(event)).count() as u32;
        }
        for (_, part, _) in within(events, Step::Rest)? {
            sizes.ticks.extend(ticks(part, start_pfn));
        }
        Ok(sizes)
    }
}

/// The holds of a thread, with the number of pages or folios of each, and of the last block among
/// them. These are traced one by one.
/// Between two holds of one kind there is another event of the thread: each allocation and each
/// free has its own, and of several drains in one free, each is a call of `free_pcppages_bulk`. The
/// drains of a block of several pages are left out: the program frees single pages, and Linux
/// before 6.7 drains the whole cache when the text of a look at it is freed.
fn holds(events: &[Event], pid: u32, start_pfn: u64) -> Vec<(Hold, u32, u32)> {
    let mut holds: Vec<(Hold, u32, u32)> = Vec::new();
    // A hold may begin with pages of a lower zone, which do not count.
    let (mut open, mut counted) = (None, false);
    let mut frees_block = false;
    for event in events.iter().filter(|event| event.pid == pid) {
        if event.name == "mm_page_free" {
            frees_block = pages(event) > 1;
        }
        let hold = match event.name.as_str() {
            REFILL if is_single_movable(event) => Some(Hold::Refill),
            DRAINED if !frees_block => Some(Hold::Free),
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
                Some((_, sum, last)) if counted => (*sum, *last) = (*sum + count, count),
                _ => holds.push((hold, count, count)),
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

/// The ticks of a part of a trace.
fn ticks(events: &[Event], start_pfn: u64) -> Vec<TickDrain> {
    let (mut ticks, mut ticking) = (Vec::<TickDrain>::new(), None);
    let (mut grown, mut moved) = (0, 0);
    for event in events {
        match event.name.as_str() {
            TICK => {
                ticking = Some(event.pid);
                ticks.push(TickDrain { grown, moved, returned: 0 });
                (grown, moved) = (0, 0);
                continue;
            }
            "workqueue_execute_end" => ticking = None,
            _ => {}
        }
        if !is_cached(event, start_pfn) {
            continue;
        }
        let change = i64::from(pages(event));
        match event.name.as_str() {
            DRAINED => match ticks.last_mut() {
                Some(tick) if ticking == Some(event.pid) => tick.returned += pages(event),
                _ => {
                    grown -= change;
                    moved += pages(event);
                }
            },
            REFILL => {
                grown += change;
                moved += pages(event);
            }
            "mm_page_free" => grown += change,
            "mm_page_alloc" => grown -= change,
            _ => {}
        }
    }
    ticks
}

fn is_from(event: &Event, start_pfn: u64) -> bool {
    event.number("pfn").is_some_and(|pfn| pfn as u64 >= start_pfn)
}

fn pages(event: &Event) -> u32 {
    1 << event.number("order").unwrap_or(0)
}

/// Migratetype 1 is movable.
fn is_single_movable(event: &Event) -> bool {
    event.number("order") == Some(0) && is_movable(event)
}

pub(super) fn is_movable(event: &Event) -> bool {
    event.number("migratetype") == Some(MOVABLE)
}

/// A trace of events, each of a thread.
#[cfg(test)]
pub(super) fn trace(events: &[(u32, &str)]) -> Vec<Event> {
    let line = |(at, (pid, text)): (usize, &(u32, &str))| {
        format!("job-{pid} [000] ..... 5.{at:06}: {text}\n")
    };
    super::tracing::parsed(&events.iter().enumerate().map(line).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALLOC: &str = "mm_page_alloc: page=1 pfn=0x1000 order=0 migratetype=1 gfp_flags=X";
    const REFILLED: &str = "mm_page_alloc_zone_locked: page=1 pfn=0x1000 order=0 migratetype=1 \
                            percpu_refill=1";
    const FREE: &str = "mm_page_free: page=1 pfn=0x1000 order=0";
    const BLOCK: &str = "mm_page_pcpu_drain: page=1 pfn=0x1000 order=1 migratetype=1";

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
            (1, "free_pcppages_bulk <-free_unref_page_commit"),
            (1, BLOCK),
            (1, BLOCK),
            (1, "free_pcppages_bulk <-free_unref_page_commit"),
            (1, BLOCK),
            (1, "mm_page_free: page=1 pfn=0x1000 order=2"),
            (1, "free_pcppages_bulk <-free_unref_page_commit"),
            (1, BLOCK),
            (1, "tracing_mark_write: end pages"),
            (1, "tracing_mark_write: begin rest"),
            (7, "workqueue_execute_start: work struct 1: function vmstat_update"),
            (7, BLOCK),
            (3, FREE),
            (7, BLOCK),
            (7, "workqueue_execute_end: work struct 1"),
            (3, BLOCK),
            (2, "tracing_mark_write: end rest"),
        ]);
        let sizes = Sizes::of(&events, 0x1000).unwrap();
        assert_eq!(sizes.refills, [2, 1]);
        assert_eq!((sizes.lru_batches.as_slice(), sizes.earlier_folios), (&[2][..], 1));
        assert_eq!((sizes.frees.as_slice(), sizes.taken), (&[4, 2][..], 2));
        assert_eq!(sizes.last_blocks, [2, 2]);
        let tick = TickDrain { returned: 4, ..TickDrain::default() };
        assert_eq!(sizes.ticks, [tick], "what another task drains is not the tick's");
        let [taken, rest] = contents(&events, 0x1000, 9).unwrap()[..] else { panic!() };
        assert_eq!(taken, Blocks::single(MigrateType::Movable, 1), "before the first refill");
        assert_eq!(rest, Blocks::single(MigrateType::Unmovable, 8));
        assert!(!sizes.ticked, "the tick ran later");
        assert!(sizes.used_by_others, "another task freed a page");
        let below = Sizes::of(&events, 0x2001).unwrap();
        let ticks = vec![TickDrain::default()];
        let none = Sizes { ticks, used_by_others: true, ..Sizes::default() };
        assert_eq!(below, none, "pages of a lower zone do not count");
        let upper = Sizes::of(&events, 0x1001).unwrap();
        assert_eq!(upper.lru_batches, [1], "a batch may begin with a folio of a lower zone");
    }

    #[test]
    fn what_the_look_at_the_page_cache_frees_is_in_it() {
        let events = trace(&[
            (1, "tracing_mark_write: begin pages"),
            (1, "mm_page_free: page=1 pfn=0x1000 order=3"),
            (2, FREE),
            (1, "mm_page_free: page=1 pfn=0x10 order=0"),
            (1, FREE),
            (1, ALLOC),
            (1, FREE),
            (1, "tracing_mark_write: end pages"),
        ]);
        assert_eq!(freed_first(&events, 0x1000).unwrap(), 9, "of this zone and this thread");
    }

    #[test]
    fn a_recording_keeps_one_attempt_and_the_lives_of_page_tables() {
        let table = "mm_page_alloc: page=1 pfn=0x9 order=0 migratetype=0 \
                     gfp_flags=GFP_KERNEL_ACCOUNT|__GFP_ZERO";
        let events = trace(&[
            (1, "tracing_mark_write: begin busy"),
            (1, ALLOC),
            (1, "tracing_mark_write: end busy"),
            (1, "tracing_mark_write: begin pages"),
            (7, "workqueue_execute_start: work struct 1: function vmstat_update"),
            (1, ALLOC),
            (1, "tracing_mark_write: end pages"),
            (1, table),
            (1, "tracing_mark_write: begin pages"),
            (1, ALLOC),
            (1, "tracing_mark_write: end pages"),
            (1, "mm_page_free: page=1 pfn=0x9 order=0"),
            (1, FREE),
        ]);
        assert_eq!(undisturbed(&events).unwrap(), 1, "a tick ran in the first one");
        let names = |cpu| {
            let kept = kept(events.clone(), cpu, 1);
            kept.into_iter().map(|event| event.name).collect::<Vec<_>>()
        };
        let mark = "tracing_mark_write";
        let [alloc, free, tick] = ["mm_page_alloc", "mm_page_free", "workqueue_execute_start"];
        assert_eq!(names(0), [mark, mark, tick, alloc, mark, alloc, mark, free]);
    }

    #[test]
    fn a_missing_mark_is_an_error() {
        let events = trace(&[(1, "tracing_mark_write: begin pages")]);
        let why = Sizes::of(&events, 0).unwrap_err().to_string();
        assert_eq!(why, "the trace of CPU 0 lacks a mark of `begin pages`");
    }
}
