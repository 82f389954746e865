//! Shrinking of page caches with time, hotplug, and page caches of remote zones.

use mmscale_arch::{CpuId, LockClass, Machine, NodeId, Order, PcpEvent, Pfn, Trace};
use mmscale_frames::frame::MigrateType;
use mmscale_frames::page_alloc::{
    AllocConfig, BulkHold, DecayRequest, FrameAllocator, Gfp, MemoryMap, Refresh,
};
use mmscale_frames::pcp::decayed;
use mmscale_frames::zone::ZoneId;
use mmscale_stepped::{self as stepped, Stepped};

const ZONE: ZoneId = ZoneId::new(0);
const SECOND: u64 = 1_000_000_000;

type Frames = FrameAllocator<Stepped>;

fn boot(config: AllocConfig) -> Frames {
    stepped::boot(4, 1000);
    FrameAllocator::new(&MemoryMap::single(1 << 20), config).unwrap()
}

fn take_many(frames: &Frames, count: usize) -> Vec<Pfn> {
    let take = |_| frames.alloc_pages(Order::ZERO, MigrateType::Movable, Gfp::KERNEL).unwrap();
    (0..count).map(take).collect()
}

/// Count and high of CPU 0's cache.
fn state(frames: &Frames) -> (u32, u32) {
    frames.inspect_pcp(ZONE, CpuId::new(0), |pcp| (pcp.count(), pcp.high()))
}

/// A burst on CPU 0 that leaves its cache full: 20,000 pages allocated and freed.
fn burst(frames: &Frames) {
    burst_of(frames, 20_000);
}

fn burst_of(frames: &Frames, pages: usize) {
    for page in take_many(frames, pages) {
        frames.free_pages(page, Order::ZERO);
    }
}

fn drains() -> Vec<u32> {
    let events = stepped::take_traces().into_iter();
    let pages = events.filter_map(|(_, event)| match event {
        Trace::Pcp(PcpEvent::Drain { pages, .. }) => Some(pages),
        _ => None,
    });
    pages.collect()
}

fn elapsed(elapsed_ns: u64) -> DecayRequest {
    DecayRequest::Elapsed { elapsed_ns, interval_ns: SECOND }
}

#[test]
fn a_run_takes_an_eighth_off_the_limit_in_steps_of_a_batch() {
    let frames = boot(AllocConfig::default());
    burst(&frames);
    let (count, high) = state(&frames);
    assert!(count > 15_000 && count <= high, "{count} {high}");
    stepped::record(true);
    let run = frames.refresh_cpu_vm_stats(DecayRequest::PerRun, Stepped::cond_resched);
    let after = (high - high / 8).max(count - 2016);
    assert_eq!(state(&frames), (count.min(after), after));
    let steps = drains();
    assert_eq!(steps.iter().sum::<u32>(), run.pages_returned);
    assert!(run.changed && run.pages_returned > 63);
    assert!(steps[..steps.len() - 1].iter().all(|&pages| pages == 63));
}

#[test]
fn a_run_returns_at_most_2016_pages_in_32_holds() {
    for (hold, expected) in [(BulkHold::Batch, vec![63; 32]), (BulkHold::Whole, vec![2016])] {
        let frames = boot(AllocConfig { hold, ..AllocConfig::default() });
        // The limit drops by 32,256 / 8 = 4032, but no run may free that much.
        for page in take_many(&frames, 32_000) {
            frames.free_pages(page, Order::ZERO);
        }
        let (count, _) = state(&frames);
        stepped::record(true);
        let run = frames.refresh_cpu_vm_stats(DecayRequest::PerRun, Stepped::cond_resched);
        assert_eq!(run.pages_returned, 2016);
        assert_eq!(drains(), expected);
        assert_eq!(state(&frames), (count - 2016, count - 2016));
    }
}

#[test]
fn runs_go_on_until_the_limit_is_at_its_floor() {
    let frames = boot(AllocConfig::default());
    burst(&frames);
    let mut runs = 0;
    while frames.refresh_cpu_vm_stats(DecayRequest::PerRun, Stepped::cond_resched).changed {
        runs += 1;
        assert!(runs < 100);
    }
    assert_eq!(state(&frames), (774, 774));
    // ln(20160 / 774) / ln(8 / 7) is 24.4; the last run finds nothing to do.
    assert!((20..32).contains(&runs), "{runs}");
}

#[test]
fn decay_does_not_depend_on_the_division_of_time() {
    assert_eq!(decayed(8000, SECOND, SECOND), 7000);
    assert_eq!(decayed(8000, 0, SECOND), 8000);
    assert_eq!(decayed(64_000, 3 * SECOND, SECOND), 42_875);
    // An eighth of an interval: 64000 * 0.875^0.125 = 62940.6.
    assert_eq!(decayed(64_000, SECOND / 8, SECOND), 62_941);
    assert_eq!(decayed(1 << 31, 500 * SECOND, SECOND), 0);
    for parts in [2, 3, 7, 10, 64] {
        let mut pages = 1 << 24;
        for _ in 0..parts {
            pages = decayed(pages, SECOND / parts, SECOND);
        }
        let whole = decayed(1 << 24, SECOND, SECOND);
        assert!(pages.abs_diff(whole) <= 600, "{parts} parts: {pages}, {whole}");
    }
}

#[test]
fn proportional_decay_does_what_runs_do() {
    let by_run = boot(AllocConfig::default());
    burst(&by_run);
    let mut runs = Vec::new();
    for _ in 0..20 {
        runs.push(
            by_run.refresh_cpu_vm_stats(DecayRequest::PerRun, Stepped::cond_resched).pages_returned,
        );
    }
    let end = state(&by_run);
    let by_time = boot(AllocConfig::default());
    burst(&by_time);
    for &returned in &runs {
        assert_eq!(
            by_time.refresh_cpu_vm_stats(elapsed(SECOND), Stepped::cond_resched).pages_returned,
            returned
        );
    }
    assert_eq!(state(&by_time), end);
}

#[test]
fn proportional_decay_does_not_depend_on_how_often_it_runs() {
    let ends = [1, 2, 5, 20].map(|parts| {
        let frames = boot(AllocConfig::default());
        burst_of(&frames, 10_000);
        for _ in 0..10 * parts {
            returned(frames.refresh_cpu_vm_stats(elapsed(SECOND / parts), Stepped::cond_resched));
        }
        state(&frames).1
    });
    // Each run rounds up, and what is left of a page's rounding decays as well.
    for end in ends {
        assert!(end.abs_diff(ends[0]) <= 60, "{ends:?}");
    }
}

fn returned(run: Refresh) -> u32 {
    assert_eq!((run.pages_deferred, run.trylock_failures), (0, 0));
    run.pages_returned
}

#[test]
fn background_decay_leaves_pages_when_the_zone_is_taken_and_keeps_them_due() {
    let frames = boot(AllocConfig::default());
    burst(&frames);
    let before = state(&frames);
    stepped::set_cpu(1);
    let run = frames.inspect_buddy(ZONE, |_| {
        stepped::set_cpu(0);
        let run = frames.refresh_cpu_vm_stats(elapsed(SECOND), Stepped::cond_resched);
        stepped::set_cpu(1);
        run
    });
    let due = before.0 - (before.1 - before.1 / 8).max(before.0 - 2016);
    assert_eq!((run.pages_returned, run.pages_deferred, run.trylock_failures), (0, due, 1));
    assert!(run.changed);
    // The limit stays above the count: the next free must not wait for the zone lock either.
    let (count, high) = state(&frames);
    assert!(count == before.0 && high >= count);
    // A retry after no time frees exactly the remaining pages.
    stepped::set_cpu(0);
    assert_eq!(returned(frames.refresh_cpu_vm_stats(elapsed(0), Stepped::cond_resched)), due);
    assert_eq!(state(&frames).1, before.0 - due);
    assert_eq!(returned(frames.refresh_cpu_vm_stats(elapsed(0), Stepped::cond_resched)), 0);
    frames.verify().unwrap();
    stepped::assert_quiet();
}

#[test]
fn background_decay_does_not_wait_for_a_remote_drain() {
    let frames = boot(AllocConfig::default());
    burst(&frames);
    stepped::set_cpu(1);
    let run = frames.inspect_pcp(ZONE, CpuId::new(0), |_| {
        stepped::set_cpu(0);
        let run = frames.refresh_cpu_vm_stats(elapsed(SECOND), Stepped::cond_resched);
        stepped::set_cpu(1);
        run
    });
    assert_eq!((run.pages_returned, run.trylock_failures, run.changed), (0, 1, true));
}

#[test]
fn folding_alone_leaves_the_caches() {
    let frames = boot(AllocConfig::default());
    take_many(&frames, 10);
    let before = (state(&frames), stepped::lock_acquisitions(LockClass::Zone));
    assert!(frames.stats().needs_update(CpuId::new(0)));
    let run = frames.refresh_cpu_vm_stats(DecayRequest::Skip, Stepped::cond_resched);
    assert_eq!(run, Refresh { folded: 1, changed: true, ..Refresh::default() });
    assert_eq!((state(&frames), stepped::lock_acquisitions(LockClass::Zone)), before);
    assert!(!frames.stats().needs_update(CpuId::new(0)));
    assert!(!frames.refresh_cpu_vm_stats(DecayRequest::Skip, Stepped::cond_resched).changed);
}

#[test]
fn an_unused_cache_of_a_remote_zone_is_drained_after_three_runs() {
    for request in [DecayRequest::PerRun, elapsed(SECOND)] {
        stepped::boot(2, 1000);
        stepped::set_node(1, 1);
        let frames: Frames =
            FrameAllocator::new(&MemoryMap::nodes(2, 1 << 19), AllocConfig::default()).unwrap();
        let (wanted, far) = (MigrateType::Movable, ZoneId::new(1));
        frames.alloc_pages_node(NodeId::new(1), Order::ZERO, wanted, Gfp::KERNEL).unwrap();
        take_many(&frames, 1);
        // The first run folds the counter and starts to count: 3, 2, 1, empty.
        let run = |_| frames.refresh_cpu_vm_stats(request, Stepped::cond_resched).pages_returned;
        assert_eq!((0..6).map(run).collect::<Vec<_>>(), [0, 0, 62, 0, 0, 0], "{request:?}");
        assert_eq!(frames.inspect_pcp(far, CpuId::new(0), |pcp| pcp.count()), 0);
        // The cache of the local zone does not change.
        assert_eq!(state(&frames).0, 62);
    }
}

#[test]
fn a_dead_cpu_leaves_nothing_and_the_others_share_its_room() {
    let frames = boot(AllocConfig::default());
    stepped::set_cpu(3);
    let pages = take_many(&frames, 5);
    stepped::set_cpu(0);
    stepped::set_online(3, false);
    frames.cpu_dead(CpuId::new(3));
    assert!(!frames.stats().needs_update(CpuId::new(3)));
    let audit = frames.verify().unwrap();
    assert_eq!((audit.cached, audit.held), (0, 5));
    let limits = || frames.inspect_pcp(ZONE, CpuId::new(0), |pcp| pcp.limits());
    assert_eq!(limits().high_min, 3096 / 3);
    stepped::set_online(3, true);
    frames.cpu_online();
    assert_eq!(limits().high_min, 774);
    pages.into_iter().for_each(|page| frames.free_pages(page, Order::ZERO));
    frames.verify().unwrap();
}
