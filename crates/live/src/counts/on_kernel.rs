//! The kernel's side of a recording.

use super::CountsError;
use super::armings::{Arming, armings, tick_gaps};
use super::effects::{effects, works};
use super::kernel::{Kernel, Source};
use super::observed::{Blocks, Observed, PageCache};
use super::program::{KINDS, OTHERS, PAST_EMPTY, Step};
use super::reading::{Sizes, contents, freed_first, within};
use super::recording::Recording;
use mmscale_frames::frame::MigrateType;
use std::ops::Range;

/// The kernel's side.
pub(super) struct OnKernel {
    pub(super) observed: Observed,
    /// The source of its limits.
    pub(super) source: Source,
    /// Pages of the program's zone.
    pub(super) zone_pages: u64,
    /// Pages in the page cache of CPU 0 by the program's look, before it took pages.
    pub(super) looked: u32,
    /// The page cache of CPU 0 before the program took pages, and when it began to rest.
    pub(super) start: PageCache,
    pub(super) at_rest: PageCache,
    /// For each CPU, the runs of its tick.
    pub(super) armings: Vec<Vec<Arming>>,
    /// When CPUs were kept busy, in us.
    pub(super) busy_us: Range<u64>,
    /// Whether a hypervisor took time of CPU 1 during the calls.
    pub(super) is_stolen: bool,
}

impl OnKernel {
    /// Reads a recording of this kernel.
    pub(super) fn of(recording: &Recording, kernel: &Kernel) -> Result<Self, CountsError> {
        let (traces, caches) = (&recording.traces, recording.caches);
        let events = traces[0].as_slice();
        let start_pfn = kernel.cache.start_pfn;
        let (limits, source) = kernel.cache.limits(kernel.version, kernel.cpus);
        let armings: Vec<_> = traces.iter().map(|events| armings(events)).collect();
        let sizes = Sizes::of(events, start_pfn)?;
        let [count, high] = caches.start;
        let there = count + freed_first(events, start_pfn)?;
        let start = PageCache { blocks: contents(events, start_pfn, there)?, high };
        // What the CPU frees until its first tick is in the cache by then.
        let grown = sizes.ticks.first().map_or(0, |tick| tick.grown);
        let rested = u32::try_from(i64::from(caches.at_rest[0]) + grown).unwrap_or(0);
        let blocks = vec![Blocks::single(MigrateType::Movable, rested)];
        let at_rest = PageCache { blocks, high: caches.at_rest[1] };
        // Pages of the program's stack and heap are in the batches too.
        let others = sizes.taken.saturating_sub(count + PAST_EMPTY as u32);
        let busy = within(events, Step::Busy)?;
        let busy_us = busy.first().map_or(0..0, |(_, _, us)| us.clone());
        let made = (0..KINDS.len()).filter(|&at| kernel.has_huge || !KINDS[at].call.is_huge());
        let calls = made.map(|at| Ok((at, effects(events, &traces[1], at)?)));
        let observed = Observed {
            limits,
            refills: sizes.refills,
            ticked: sizes.ticked,
            used_by_others: sizes.used_by_others,
            drains: sizes.frees,
            last_blocks: sizes.last_blocks,
            high_after: caches.after[1],
            ticks: sizes.ticks,
            lru_batches: sizes.lru_batches,
            earlier_folios: sizes.earlier_folios + others,
            tick_gaps: armings.iter().map(|runs| tick_gaps(kernel, runs, &busy_us)).collect(),
            calls: calls.collect::<Result<_, _>>()?,
            works: OTHERS.iter().map(|&others| works(events, others)).collect::<Result<_, _>>()?,
        };
        let zone_pages = kernel.cache.managed;
        let is_stolen = recording.stolen_ticks[1] > recording.stolen_ticks[0];
        Ok(Self {
            observed,
            source,
            zone_pages,
            looked: count,
            start,
            at_rest,
            armings,
            busy_us,
            is_stolen,
        })
    }
}
