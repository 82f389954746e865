//! The rows of the comparison, and why the sides of a row may differ.

use super::armings::{Armed, Arming};
use super::kernel::{Kernel, Source};
use super::observed::{Effects, Observed, Works, usual};
use super::on_kernel::OnKernel;
use super::program::{Call, KINDS, Kind, OTHERS, Others};
use super::{Row, Section, Verdict};
use mmscale_frames::pcp::{BATCH_SCALE_MAX, PcpLimits, decayed_by_run};
use mmscale_mm::time::Hz;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;

/// Why all that depends on the page cache and the LRU batch may differ.
const OTHERS_USED: &str = "by the trace an interrupt or another task took, freed or moved pages on \
                           the CPU meanwhile, which changes the next refills, drains and batches";
/// Why refills and drains may differ.
const TICKED: &str = "by the trace an upkeep tick ran meanwhile, which shrinks the page cache: the \
                      program took longer than real-time threads may run";
/// Why refills may be one more or less.
const ONE_MORE: &str = "the first one had begun before, or the last one was not complete";
/// Why `high` may differ.
const REFILLED: &str = "on both sides `high` grew by the pages of the refills, which differ";
/// Why LRU batches may have other sizes at their begin and end.
const CARRIED_OVER: &str = "the first batch had folios of earlier work, so the last one differs";
/// Why drains may differ.
const GATHER: &str = "a page that the gather of an munmap takes halves the count of recent frees, \
                      and where that falls depends on the pages in the cache before";
/// Why drains may be larger by a few pages.
const BLOCK: &str = "by the trace the last block of each larger drain has several pages, of which \
                     some are beyond the end; the simulator's cache has single pages only";
/// Why drains may differ for both reasons.
const GATHER_AND_BLOCK: &str = "a page that the gather of an munmap takes halves the count of \
                                recent frees, and by the trace the last block of each drain that \
                                is too large has several pages";
/// Why ticks may return something else.
const FOUND: &str = "other tasks took, freed or drained pages on the CPU between the ticks; by the \
                     trace each tick returned what ours does with the pages that it found";
/// Why ticks may return what the rule does not tell.
const MOVED: &str = "by the trace other tasks refilled or drained the page cache between ticks, \
                     which changes `high` too: repeat on an idle computer";
/// Why ticks may begin at other times.
const LATE: &str = "by the trace some ticks began later than the jiffy of their timers, and none \
                    began earlier";
/// Why gaps of ticks may occur in other numbers.
const PHASE: &str = "by the trace each tick began in the jiffy of its timer, and each gap is one \
                     of ours; how many of each there are depends on when the CPUs began";
/// Why timers may differ.
const PASSED: &str = "by the trace the other timers are those of ours if a jiffy passes between \
                      the rounding of the time and the start of the timer";
/// Why gaps of ticks may be of other sizes.
const STOPPED: &str = "by the trace a tick did not arm its timer again, as it found nothing to do: \
                       the next one begins when another task sees that the CPU is busy";
/// Why some calls may differ from most.
const SOME_CALLS: &str = "some calls differ from most, which agree: by the trace an interrupt or \
                          another task did something on the CPU during each of these calls";
/// Why calls may interrupt no CPU.
const ELSEWHERE: &str = "in these calls, by the trace, CPU 1 ran another task, or had not \
                         completed its switch back: the kernel had to interrupt no CPU of the \
                         program";
/// Why calls may interrupt no CPU.
const DESCHEDULED: &str = "by its ticks a hypervisor took time of CPU 1 during the calls: such a \
                           CPU flushes when it runs again, without an interrupt";
/// Why page tables of huge pages may differ.
const DEPOSITS: &str = "the model lacks this: by the trace Linux keeps one page table for each \
                        huge page, to split it later, and frees it with the page";
/// Why all `high` may lie above the lower limit.
const ALL_TUNED: &str = "the page caches of all CPUs have grown";
/// Why there may be one work more.
const OWN_FOLIOS: &str = "by the trace one of these works is for CPU 0 itself, and found folios \
                          there: the page of another task, or of the program's stack or heap";
/// Shown for a count that the kernel has no tracepoint of.
const UNSEEN: &str = "-";

/// The counts of a call, in the order of [`Effects::counts`], and the widths of their columns.
///
/// [`Effects::counts`]: super::observed::Effects::counts
const COLUMNS: [(&str, usize); 5] =
    [("flushes", 9), ("pages", 8), ("interrupts", 11), ("mmap_lock", 11), ("faults", 8)];

/// The counts of [`Effects::memory`], and the widths of their columns.
const MEMORY: [(&str, usize); 5] =
    [("single", 9), ("huge", 8), ("other", 8), ("tables", 11), ("freed", 11)];

/// The column of interrupts.
const INTERRUPTS: usize = 2;

/// The most drains below the largest: five doublings from a batch, once after the first free and
/// a part of it after a page of a gather.
const SMALLER: usize = 7;

/// Returns all rows.
pub(super) fn sections(kernel: &Kernel, live: &OnKernel, simulated: &Observed) -> Vec<Section> {
    let real = &live.observed;
    let plain = |title, rows| Section { title, columns: None, rows };
    vec![
        plain("page cache of CPU 0, in pages", page_cache(live, simulated)),
        plain(
            "upkeep tick: expiry and bucket of its timers, gaps of its starts",
            ticks(kernel, live, simulated),
        ),
        plain("LRU lists", vec![lru(real, simulated)]),
        Section {
            title: match kernel.sees_interrupts {
                true => "calls (madvise: MADV_DONTNEED), another thread of the process on CPU 1",
                false => {
                    "calls (madvise: MADV_DONTNEED), another thread of the process on CPU 1; \
                     interrupts are not compared: Linux has tracepoints of them since 6.4"
                }
            },
            columns: Some(names(COLUMNS)),
            rows: pairs(real, simulated)
                .map(|(kind, real, simulated)| call(kernel, live, kind, real, simulated))
                .collect(),
        },
        Section {
            title: "memory that calls take: single and huge pages, other blocks; page tables, and \
                    those freed by the munmap of it all",
            columns: Some(names(MEMORY)),
            rows: pairs(real, simulated)
                .filter(|(kind, ..)| kind.call.takes_pages())
                .map(|(kind, real, simulated)| memory(kind, real, simulated))
                .collect(),
        },
        plain(
            "works that mbind(MPOL_MF_MOVE) queues, to drain LRU batches",
            works(real, simulated),
        ),
    ]
}

fn names(columns: [(&str, usize); 5]) -> String {
    columns.map(|(name, width)| format!("{name:>width$}")).concat()
}

/// The kinds of calls, each with the effects on both sides.
fn pairs<'a>(
    real: &'a Observed,
    simulated: &'a Observed,
) -> impl Iterator<Item = (&'static Kind, &'a Effects, &'a Effects)> {
    let both = real.calls.iter().zip(&simulated.calls);
    both.map(|((at, real), (_, simulated))| (&KINDS[*at], real, simulated))
}

/// The numbers of a side that did nothing.
const NONE: &str = "none";

/// A row whose sides differ for the reason `why`, unless they are equal.
fn row(
    what: impl Into<String>,
    kernel: String,
    simulated: String,
    why: Option<&'static str>,
) -> Row {
    let verdict = match why {
        _ if kernel == simulated => Verdict::Equal,
        Some(why) => Verdict::Explained(why),
        None => Verdict::Different,
    };
    Row { what: what.into(), kernel, simulated, verdict }
}

fn page_cache(live: &OnKernel, simulated: &Observed) -> Vec<Row> {
    let real = &live.observed;
    // One batch a hold, or the largest number of pages that a free may drain.
    let most = simulated.drains.iter().copied().max().unwrap_or(0);
    let sizes = |what, of: fn(&Observed) -> &[u32], why| {
        row(what, runs(of(real)), runs(of(simulated)), why)
    };
    let largest = real.limits.batch << BATCH_SCALE_MAX;
    let disturbed = disturbed(real);
    let one_more = is_one_more(&real.refills, &simulated.refills);
    let refills = disturbed.or(one_more.then_some(ONE_MORE));
    let largest = largest.max(most);
    let about = is_about(&real.drains, &simulated.drains, most, largest);
    let is_about_but_blocks =
        is_about(&without_blocks(real, most), &simulated.drains, most, largest);
    let drains = is_block_more(real, &simulated.drains).then_some(BLOCK);
    let drains = drains.or(disturbed).or(about.then_some(GATHER));
    let drains = drains.or(is_about_but_blocks.then_some(GATHER_AND_BLOCK));
    let returned = match is_by_rule(live) {
        true => Some(FOUND),
        false => real.ticks.iter().any(|tick| tick.moved > 0).then_some(MOVED),
    };
    let grown = |of: &Observed| live.start.high + of.refills.iter().sum::<u32>() == of.high_after;
    let refilled = (grown(real) && grown(simulated)).then_some(REFILLED);
    let high_after = disturbed.or(refilled);
    let high_after = high_after.or(drains.filter(|_| real.drains != simulated.drains));
    let of_ticks = |of: &Observed| runs(&of.returned_by_ticks());
    let mut rows = limits(live, simulated.limits);
    rows.extend([
        sizes("each refill", |of| &of.refills, refills),
        sizes("each drain by frees", |of| &of.drains, drains),
        row(
            "high after these frees",
            real.high_after.to_string(),
            simulated.high_after.to_string(),
            high_after,
        ),
        row("returned by each tick", of_ticks(real), of_ticks(simulated), returned),
    ]);
    rows
}

/// Returns whether each tick on the kernel returned what ours returns with the pages that it found.
fn is_by_rule(live: &OnKernel) -> bool {
    let limits = live.observed.limits;
    let (mut count, mut high) = (i64::from(live.at_rest.pages()), live.at_rest.high);
    let mut grown = None;
    live.observed.ticks.iter().all(|tick| {
        // The pages at rest are those that the first tick found.
        count += grown.replace(tick.grown).map_or(0, |_| tick.grown);
        let found = u32::try_from(count).unwrap_or(0);
        high = decayed_by_run(high, found, limits);
        let returned = found.saturating_sub(high);
        count -= i64::from(returned);
        returned == tick.returned
    })
}

/// The limits of the page cache; of those that the kernel does not print, with their source.
fn limits(live: &OnKernel, simulated: PcpLimits) -> Vec<Row> {
    let real = live.observed.limits;
    let limit = |what: &str, real: u32, simulated: u32, why| {
        row(what, real.to_string(), simulated.to_string(), why)
    };
    let batch = limit("batch", real.batch, simulated.batch, None);
    match live.source {
        Source::Printed => vec![
            batch,
            limit("high_min", real.high_min, simulated.high_min, None),
            limit("high_max", real.high_max, simulated.high_max, None),
        ],
        Source::Fixed => {
            vec![batch, limit("high, not tuned", real.high_min, simulated.high_min, None)]
        }
        // The formula is the simulator's own: only what the kernel shows is compared.
        Source::Computed { least_high } => {
            let why = (least_high > simulated.high_min).then_some(ALL_TUNED);
            let what = "least high of a CPU, for the high_min that is computed from `low`";
            vec![batch, limit(what, least_high, simulated.high_min, why)]
        }
    }
}

/// Returns whether one side has one number more than the other, at its end or at its beginning.
fn is_one_more(real: &[u32], simulated: &[u32]) -> bool {
    let (long, short) =
        if real.len() > simulated.len() { (real, simulated) } else { (simulated, real) };
    long.len() == short.len() + 1 && (long.starts_with(short) || long.ends_with(short))
}

/// Why what the program took and freed may have changed the page cache in another way.
fn disturbed(real: &Observed) -> Option<&'static str> {
    let used = real.used_by_others.then_some(OTHERS_USED);
    real.ticked.then_some(TICKED).or(used)
}

/// Returns whether each drain of the kernel is as large as that of the simulator, or larger by less
/// than its last block, which has several pages.
fn is_block_more(real: &Observed, simulated: &[u32]) -> bool {
    let sizes = real.drains.iter().zip(&real.last_blocks).zip(simulated);
    let is_known = |((&real, &last), &simulated): ((&u32, &u32), &u32)| {
        real == simulated || (real > simulated && real - simulated < last)
    };
    real.drains.len() == simulated.len() && { sizes }.all(is_known)
}

/// Returns the drains of the kernel, those of more than `most` pages as `most` if their last block
/// alone is beyond it.
fn without_blocks(real: &Observed, most: u32) -> Vec<u32> {
    let sizes = real.drains.iter().zip(&real.last_blocks);
    let whole = |(&pages, &last): (&u32, &u32)| match pages > most && pages - most < last {
        true => most,
        false => pages,
    };
    sizes.map(whole).collect()
}

/// Returns whether both sides drained `most` pages a hold equally often, and the same number of
/// pages, both up to what two frees drain, `largest` pages each. Before drains grow to `most`
/// again, there are at most [`SMALLER`] smaller ones.
fn is_about(real: &[u32], simulated: &[u32], most: u32, largest: u32) -> bool {
    let sum = |of: &[u32]| of.iter().sum::<u32>();
    let full = |of: &[u32]| of.iter().filter(|&&pages| pages == most).count();
    let grows = |of: &[u32]| {
        let smaller = of.len() - full(of);
        smaller <= SMALLER && full(of) > 0 && of.iter().all(|&pages| pages <= most)
    };
    grows(real)
        && grows(simulated)
        && full(real).abs_diff(full(simulated)) as u32 <= 2 * largest / most
        && sum(real).abs_diff(sum(simulated)) <= 2 * largest
}

/// Lists numbers in their order; several equal ones in a row as `3 x 2016`.
fn runs(numbers: &[u32]) -> String {
    let equal = numbers.chunk_by(|a, b| a == b).map(|chunk| times(chunk.len(), chunk[0]));
    some(equal.collect())
}

/// Lists how often each number occurs, smallest number first.
fn listed<T: Display + Ord + Copy>(numbers: impl IntoIterator<Item = T>) -> String {
    let mut all = BTreeMap::<T, usize>::new();
    numbers.into_iter().for_each(|number| *all.entry(number).or_default() += 1);
    some(all.into_iter().map(|(number, n)| times(n, number)).collect())
}

fn times(n: usize, number: impl Display) -> String {
    if n == 1 { number.to_string() } else { format!("{n} x {number}") }
}

fn some(words: Vec<String>) -> String {
    if words.is_empty() { NONE.to_owned() } else { words.join(", ") }
}

fn ticks(kernel: &Kernel, live: &OnKernel, simulated: &Observed) -> Vec<Row> {
    let mut rows = Vec::new();
    for (cpu, runs) in live.armings.iter().enumerate() {
        let armed: Vec<Armed> = runs.iter().filter_map(|run: &Arming| run.again).collect();
        let equal = armed.iter().filter(|live| is_ours(kernel.hz, cpu, live)).count();
        let late = armed.iter().filter(|live| is_ours_late(kernel.hz, cpu, live)).count();
        let is_known = equal + late == armed.len();
        let alike = format!("CPU {cpu}: timers alike");
        // Without a timer nothing is compared.
        let all = armed.len().max(1);
        let why = is_known.then_some(PASSED);
        rows.push(row(alike, all.to_string(), equal.to_string(), why));
        let ms = |gaps: &[u64]| {
            listed(gaps.iter().map(|jiffies| jiffies * 1000 / u64::from(kernel.hz.get())))
        };
        rows.push(row(
            format!("CPU {cpu}: gaps in ms"),
            ms(&live.observed.tick_gaps[cpu]),
            ms(&simulated.tick_gaps[cpu]),
            is_known.then(|| starts(kernel.hz, cpu, live)).flatten(),
        ));
    }
    rows
}

/// Why gaps of the starts of a CPU's ticks may differ, by the starts and the timers of the trace.
fn starts(hz: Hz, cpu: usize, live: &OnKernel) -> Option<&'static str> {
    let busy = |run: &&Arming| live.busy_us.contains(&run.begun_us);
    let armed = live.armings[cpu].iter().filter(busy).map(|run| run.again);
    let Some(armed) = armed.collect::<Option<Vec<Armed>>>() else { return Some(STOPPED) };
    let bucket = |of: &Armed| of.bucket_expires.or(again(hz, cpu, of.now).bucket_expires);
    let due: Vec<u64> = armed.iter().map(bucket).collect::<Option<_>>()?;
    let mut late = armed.iter().skip(1).zip(&due).map(|(next, &due)| next.now.checked_sub(due));
    let is_late = late.try_fold(false, |any, late| late.map(|late| any || late > 0))?;
    let ours = steady_gaps(hz, cpu);
    let is_ours = due.windows(2).all(|pair| ours.contains(&(pair[1] - pair[0])));
    match is_late {
        true => Some(LATE),
        false => is_ours.then_some(PHASE),
    }
}

/// The gaps between the buckets of our ticks that begin in the jiffies of their buckets.
fn steady_gaps(hz: Hz, cpu: usize) -> BTreeSet<u64> {
    let next = |&now: &u64| again(hz, cpu, now).bucket_expires;
    // The first one is not the firing of a timer.
    let firings: Vec<u64> =
        std::iter::successors(Some(1_000_003), next).skip(1).take(100).collect();
    firings.windows(2).map(|pair| pair[1] - pair[0]).collect()
}

/// How our rounding and our wheel arm a tick again in jiffy `now`.
fn again(hz: Hz, cpu: usize, now: u64) -> Armed {
    let expires = now + hz.round_relative(now, u64::from(hz.get()), cpu);
    Armed { now, expires, bucket_expires: Some(hz.bucket_expiry(now, expires)) }
}

/// Returns whether our tick arms itself like this one, as far as the kernel shows it.
fn is_ours(hz: Hz, cpu: usize, live: &Armed) -> bool {
    let ours = again(hz, cpu, live.now);
    live.expires == ours.expires
        && live.bucket_expires.is_none_or(|bucket| Some(bucket) == ours.bucket_expires)
}

/// Returns whether our tick would arm itself like this one if it rounded in one jiffy and armed its
/// timer in the next one.
fn is_ours_late(hz: Hz, cpu: usize, live: &Armed) -> bool {
    let Some(rounded) = live.now.checked_sub(1) else { return false };
    let expires = live.now + hz.round_relative(rounded, u64::from(hz.get()), cpu);
    let bucket = hz.bucket_expiry(live.now, expires);
    !is_ours(hz, cpu, live)
        && live.expires == expires
        && live.bucket_expires.is_none_or(|of_kernel| of_kernel == bucket)
}

fn lru(real: &Observed, simulated: &Observed) -> Row {
    let batches = |of: &Observed| listed(of.lru_batches.iter().copied());
    let why = match is_carried_over(real, simulated) {
        true => Some(CARRIED_OVER),
        false => disturbed(real),
    };
    row("folios of each batch", batches(real), batches(simulated), why)
}

/// Returns whether the batch of the CPU had folios of earlier work on the kernel, and both sides
/// added the program's own folios, but for a last batch that is not full.
fn is_carried_over(real: &Observed, simulated: &Observed) -> bool {
    let sum = |of: &Observed| of.lru_batches.iter().sum::<u32>();
    let full = simulated.lru_batches.iter().copied().max().unwrap_or(0);
    let short = real.lru_batches.iter().filter(|&&folios| folios != full).count();
    let own = sum(real).saturating_sub(real.earlier_folios);
    real.earlier_folios > 0 && short <= 2 && own.abs_diff(sum(simulated)) < full
}

/// The row of one kind of call.
fn call(kernel: &Kernel, live: &OnKernel, kind: &Kind, real: &Effects, simulated: &Effects) -> Row {
    let (mut as_real, mut as_simulated) = (String::new(), String::new());
    let (mut known, mut uninterrupted) = (true, None);
    for (column, (_, width)) in COLUMNS.into_iter().enumerate() {
        if column == INTERRUPTS && !kernel.sees_interrupts {
            as_real += &format!("{UNSEEN:>width$}");
            as_simulated += &format!("{UNSEEN:>width$}");
            continue;
        }
        let (of_real, of_simulated) = (real.counts()[column], simulated.counts()[column]);
        as_real += &format!("{:>width$}", of_calls(of_real));
        as_simulated += &format!("{:>width$}", of_calls(of_simulated));
        if column == INTERRUPTS && of_real != of_simulated {
            uninterrupted = why_uninterrupted(kernel, live, real, simulated);
            known &= uninterrupted.is_some() || is_disturbed(of_real, real);
        } else {
            known &= usual(of_real) == usual(of_simulated) && is_disturbed(of_real, real);
        }
    }
    let why = uninterrupted.unwrap_or(SOME_CALLS);
    row(name(kind), as_real, as_simulated, known.then_some(why))
}

fn name(kind: &Kind) -> String {
    let call = match kind.call {
        Call::Munmap => "munmap",
        Call::DontNeed => "madvise",
        Call::Mprotect => "mprotect",
        Call::Mremap => "mremap",
        Call::Touch => "touch",
        Call::Populate => "populate",
        Call::Huge => "huge",
    };
    format!("{call}, {}", pages(kind.pages))
}

/// The row of the memory that one kind of call takes.
fn memory(kind: &Kind, real: &Effects, simulated: &Effects) -> Row {
    let text = |of: &Effects| {
        let columns = of.memory().into_iter().zip(MEMORY);
        columns.map(|(counts, (_, width))| format!("{:>width$}", of_calls(counts))).collect()
    };
    let both = real.memory().into_iter().zip(simulated.memory());
    let is_known = |(of_real, of_simulated)| {
        usual(of_real) == usual(of_simulated) && is_disturbed(of_real, real)
    };
    let known = { both }.all(is_known).then_some(SOME_CALLS);
    row(name(kind), text(real), text(simulated), known.or(has_deposits(real, simulated)))
}

/// Returns why page tables differ if the kernel has one more for each huge page, and no other count
/// differs.
fn has_deposits(real: &Effects, simulated: &Effects) -> Option<&'static str> {
    let most = |of: &[u32]| usual(of).unwrap_or(0);
    let huge = most(&real.taken[1]);
    let is_more = |real: &[u32], simulated: &[u32]| most(real) == most(simulated) + huge;
    let is_same = (0..3).all(|at| real.taken[at] == simulated.taken[at]);
    let is_known = huge > 0
        && is_same
        && is_more(&real.tables, &simulated.tables)
        && is_more(&real.freed_tables, &simulated.freed_tables);
    is_known.then_some(DEPOSITS)
}

/// The rows of works, for each number of other CPUs with folios in their batches.
fn works(real: &Observed, simulated: &Observed) -> Vec<Row> {
    let both = OTHERS.iter().zip(real.works.iter().zip(&simulated.works));
    both.map(|(others, (real, simulated))| {
        let what = match others {
            Others::None => "folios on no CPU",
            Others::One => "folios on 1 other CPU",
            Others::All => "folios on all others",
        };
        let all = |works: &[Works]| works.iter().map(|works| works.all).collect::<Vec<_>>();
        let of_others: Vec<u32> = real.iter().map(|works| works.all - works.own).collect();
        let why = (of_others == all(simulated)).then_some(OWN_FOLIOS);
        row(what, runs(&all(real)), runs(&all(simulated)), why)
    })
    .collect()
}

/// Returns whether something disturbed each call that differs from most.
fn is_disturbed(numbers: &[u32], real: &Effects) -> bool {
    let most = usual(numbers);
    let mut calls = numbers.iter().zip(&real.disturbed);
    calls.all(|(&number, &is_disturbed)| is_disturbed || Some(number) == most)
}

/// Why the kernel interrupted no CPU in some calls in which it had to flush another.
fn why_uninterrupted(
    kernel: &Kernel,
    live: &OnKernel,
    real: &Effects,
    simulated: &Effects,
) -> Option<&'static str> {
    let most = simulated.interrupts.iter().max();
    let mut calls = real.interrupts.iter().zip(&real.elsewhere);
    if calls.all(|(number, &elsewhere)| Some(number) == most || (*number == 0 && elsewhere)) {
        return Some(ELSEWHERE);
    }
    let no_more = real.interrupts.iter().max() <= most;
    let is_asked = usual(&real.remote_flushes) == usual(&simulated.remote_flushes);
    let is_stolen = kernel.is_guest && !kernel.is_emulated && live.is_stolen;
    (no_more && is_asked && is_stolen).then_some(DESCHEDULED)
}

/// The number that all calls had, or the one that most had with how many did: `1 (15/16)`.
fn of_calls(numbers: &[u32]) -> String {
    let Some(number) = usual(numbers) else { return NONE.to_owned() };
    match numbers.iter().filter(|&&other| other == number).count() {
        all if all == numbers.len() => number.to_string(),
        most => format!("{number} ({most}/{})", numbers.len()),
    }
}

fn pages(pages: u64) -> String {
    if pages == 1 { "1 page".to_owned() } else { format!("{pages} pages") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counts::observed::{Blocks, PageCache, TickDrain};
    use mmscale_frames::frame::MigrateType;

    #[test]
    fn a_reason_covers_its_own_differences_only() {
        assert!(is_one_more(&[63, 126, 252], &[63, 126]));
        assert!(is_one_more(&[63, 126], &[9, 63, 126]));
        assert!(!is_one_more(&[63, 126], &[63, 252]));
        assert!(is_about(&[71, 142, 2016], &[2016, 2016], 2016, 2016));
        assert!(!is_about(&[2017], &[2016], 2016, 2016), "no drain is larger than the largest");
        assert!(!is_about(&[2016; 6], &[2016; 3], 2016, 2016));
        let one_batch = [&[63; 124][..], &[8], &[63; 32]].concat();
        assert!(is_about(&one_batch, &[63; 160], 63, 2016), "as on Linux 7.3");
        assert!(!is_about(&one_batch, &[63; 240], 63, 2016));
        assert!(!is_about(&[], &[63], 2016, 2016));
        assert!(!is_about(&[63; 192], &[2016; 6], 2016, 2016), "drains that do not grow");
        let seen = [71, 142, 284, 568, 1136, 2016, 2016, 2016, 2016, 1667, 2016];
        assert!(is_about(&seen, &[2016; 6], 2016, 2016), "as on Linux 6.18");
    }

    #[test]
    fn a_tick_that_found_other_pages_is_by_the_rule_if_it_returned_what_ours_does() {
        let ticks = |second: TickDrain| {
            let blocks = vec![Blocks::single(MigrateType::Movable, 10_000)];
            let ticks = vec![TickDrain { grown: 9, moved: 0, returned: 2000 }, second];
            OnKernel {
                observed: Observed { ticks, ..empty() },
                source: Source::Printed,
                zone_pages: 1 << 20,
                looked: 0,
                start: PageCache { blocks: vec![], high: 8000 },
                at_rest: PageCache { blocks, high: 9142 },
                armings: vec![],
                busy_us: 0..0,
                is_stolen: false,
            }
        };
        let of = |grown, returned| TickDrain { grown, moved: 0, returned };
        // `high` is 8000 after the first tick, and 7000 after the second.
        assert!(is_by_rule(&ticks(of(0, 1000))));
        assert!(is_by_rule(&ticks(of(50, 1050))));
        assert!(is_by_rule(&ticks(of(-1200, 0))));
        assert!(!is_by_rule(&ticks(of(50, 1000))));
    }

    fn empty() -> Observed {
        Observed {
            limits: PcpLimits::of(1 << 20, 1, 1, 63, None),
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
            calls: vec![],
            works: vec![],
        }
    }

    #[test]
    fn folios_that_the_batch_had_before_explain_as_many_and_no_more() {
        let of = |lru_batches: &[u32], earlier_folios| Observed {
            lru_batches: lru_batches.to_vec(),
            earlier_folios,
            ..empty()
        };
        let simulated = of(&[31, 31, 20], 0);
        assert!(is_carried_over(&of(&[31, 31, 31], 11), &simulated));
        assert!(is_carried_over(&of(&[31, 31, 10, 17], 7), &simulated), "drained in two parts");
        assert!(!is_carried_over(&of(&[31, 31, 31], 0), &simulated), "no such folio was seen");
        assert!(!is_carried_over(&of(&[31; 5], 11), &simulated), "two batches more");
        assert!(!is_carried_over(&of(&[20, 20, 20, 20], 1), &simulated), "all are short");
    }

    #[test]
    fn sides_without_a_reason_are_different() {
        let of = |real: &str, simulated: &str, why| {
            row("x", real.to_owned(), simulated.to_owned(), why).verdict
        };
        assert_eq!(of("1", "1", Some(GATHER)), Verdict::Equal);
        assert_eq!(of("1", "2", Some(GATHER)), Verdict::Explained(GATHER));
        assert_eq!(of("1", "2", None), Verdict::Different);
        assert_eq!(of(NONE, NONE, Some(GATHER)), Verdict::Equal, "neither side drained");
    }

    #[test]
    fn a_page_table_for_each_huge_page_is_known_and_no_other_difference_is() {
        let of = |huge, tables, freed| Effects {
            taken: [vec![0], vec![huge], vec![0]],
            tables: vec![tables],
            freed_tables: vec![freed],
            ..Effects::default()
        };
        let simulated = of(2, 1, 2);
        assert_eq!(has_deposits(&of(2, 3, 4), &simulated), Some(DEPOSITS));
        assert_eq!(has_deposits(&of(2, 3, 3), &simulated), None);
        assert_eq!(has_deposits(&of(1, 2, 3), &simulated), None);
        assert_eq!(has_deposits(&of(0, 1, 2), &of(0, 1, 2)), None);
    }

    #[test]
    fn a_block_at_the_end_of_a_drain_explains_less_than_its_pages() {
        let of = |drains: &[u32], last_blocks: &[u32]| Observed {
            drains: drains.to_vec(),
            last_blocks: last_blocks.to_vec(),
            ..empty()
        };
        let is = |real: Observed| is_block_more(&real, &[504, 952, 952]);
        assert!(is(of(&[504, 954, 955], &[1, 4, 4])), "as on Linux 6.1");
        assert!(!is(of(&[504, 954, 956], &[1, 4, 4])), "a whole block more");
        assert!(!is(of(&[504, 953, 952], &[1, 1, 1])), "a single page is never too many");
        assert!(!is(of(&[504, 951, 952], &[1, 4, 4])), "smaller");
        assert!(!is(of(&[504, 954], &[1, 4])), "one hold less");
        let real = of(&[958, 1432, 1428, 1430], &[1, 8, 1, 2]);
        assert_eq!(without_blocks(&real, 1428), [958, 1428, 1428, 1430], "as on Linux 6.12");
    }

    #[test]
    fn a_work_for_the_own_cpu_explains_one_more_and_no_other() {
        let of = |all: [(u32, u32); 2]| {
            let row = all.map(|(all, own)| Works { all, own }).to_vec();
            Observed { works: vec![row; OTHERS.len()], ..empty() }
        };
        let simulated = of([(63, 0), (63, 0)]);
        let verdict = |real| works(&real, &simulated)[2].verdict.clone();
        assert_eq!(verdict(of([(63, 0), (63, 0)])), Verdict::Equal);
        assert_eq!(verdict(of([(64, 1), (63, 0)])), Verdict::Explained(OWN_FOLIOS));
        assert_eq!(verdict(of([(64, 0), (63, 0)])), Verdict::Different);
        assert_eq!(verdict(of([(65, 1), (63, 0)])), Verdict::Different);
    }

    #[test]
    fn numbers_are_listed_with_how_often_they_occur() {
        assert_eq!(runs(&[63, 126, 2016, 2016, 63]), "63, 126, 2 x 2016, 63");
        assert_eq!(runs(&[]), "none");
        assert_eq!(listed([1024, 992, 992]), "2 x 992, 1024");
        assert_eq!(of_calls(&[1, 0, 1, 1]), "1 (3/4)");
        assert_eq!(of_calls(&[0; 3]), "0");
        assert_eq!(of_calls(&[]), "none");
    }

    /// The gaps that are seen on kernels at 250 Hz.
    #[test]
    fn a_tick_at_250_hz_comes_after_992_or_1024_ms() {
        let hz = Hz::new(250).unwrap();
        let gaps: Vec<u64> = steady_gaps(hz, 1).into_iter().map(|jiffies| jiffies * 4).collect();
        assert_eq!(gaps, [992, 1024]);
    }

    #[test]
    fn a_jiffy_may_pass_between_rounding_and_arming() {
        let hz = Hz::new(250).unwrap();
        let ours = again(hz, 1, 1_000_003);
        let now = ours.now + 1;
        let late = Armed { now, expires: ours.expires + 1, bucket_expires: None };
        assert!(is_ours_late(hz, 1, &late) && !is_ours(hz, 1, &late));
        assert!(!is_ours_late(hz, 1, &ours), "no jiffy passed");
        assert!(!is_ours_late(hz, 1, &Armed { expires: late.expires + 1, ..late }));
    }

    #[test]
    fn a_bucket_that_the_kernel_does_not_print_is_not_compared() {
        let hz = Hz::new(250).unwrap();
        let ours = again(hz, 1, 1_000_003);
        assert!(is_ours(hz, 1, &ours));
        assert!(is_ours(hz, 1, &Armed { bucket_expires: None, ..ours }));
        assert!(!is_ours(
            hz,
            1,
            &Armed { expires: ours.expires + 1, bucket_expires: None, ..ours }
        ));
        assert!(!is_ours(hz, 1, &Armed { bucket_expires: Some(1), ..ours }));
    }
}
