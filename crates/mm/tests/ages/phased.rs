//! The decay of page caches by the phased tick: as many pages as with stock, without waiting for a
//! zone lock.

use crate::ages::machine::{Machine, SEC};
use mmscale_arch::{CpuId, Machine as _, Order, Pfn, TickEvent, Trace};
use mmscale_frames::frame::MigrateType;
use mmscale_frames::page_alloc::Gfp;
use mmscale_frames::zone::ZoneId;
use mmscale_mm::vmstat_work::TickPolicy;
use mmscale_mm::work::WorkItem;
use mmscale_stepped::{self as stepped, Stepped};

/// Pages of a burst.
const BURST: usize = 20_000;

/// Allocates and frees a burst on `cpu`, which leaves its cache full and its high limit raised.
fn burst(machine: &Machine, cpu: usize) {
    machine.on(cpu, || {
        let frames = machine.mm.frames();
        let pages: Vec<Pfn> = (0..BURST)
            .map(|_| frames.alloc_pages(Order::ZERO, MigrateType::Movable, Gfp::KERNEL).unwrap())
            .collect();
        pages.into_iter().for_each(|pfn| frames.free_pages(pfn, Order::ZERO));
    });
}

/// Returns (count, high, high_min) of a CPU's cache.
fn cache(machine: &Machine, cpu: usize) -> (u32, u32, u32) {
    machine.mm.frames().inspect_pcp(ZoneId::new(0), CpuId::new(cpu), |pcp| {
        (pcp.count(), pcp.high(), pcp.limits().high_min)
    })
}

/// The time in ns until `high` of CPU 1 is back at its minimum after a burst, and the pages that
/// its ticks have freed.
fn recovery(policy: TickPolicy, hz: u32) -> (u64, u32) {
    let mut machine = Machine::boot(4, hz, policy);
    machine.run_until(SEC + SEC / 3, |_, _| {});
    burst(&machine, 1);
    let (count, high, floor) = cache(&machine, 1);
    assert!(high > 2 * floor && count > floor, "the burst raised it: {count} {high} {floor}");
    // The shepherd checks counters only, and the burst may have folded them.
    machine.count(1);
    let began_ns = Stepped::now_ns();
    stepped::record(true);
    let (mut back_ns, mut returned) = (None, 0);
    machine.run_until(60 * SEC, |machine, _| {
        for (_, event) in stepped::take_traces() {
            if let Trace::Tick(TickEvent::End { pages_returned, .. }) = event {
                returned += pages_returned;
            }
        }
        let (_, high, floor) = cache(machine, 1);
        if high == floor && back_ns.is_none() {
            back_ns = Some(Stepped::now_ns() - began_ns);
        }
    });
    (back_ns.expect("it comes back"), returned)
}

#[test]
fn phased_shrinks_as_fast_and_as_much_as_stock() {
    for hz in [100, 250, 1000] {
        let (stock_ns, stock_pages) = recovery(TickPolicy::Stock, hz);
        let (phased_ns, phased_pages) = recovery(TickPolicy::Phased, hz);
        let (time, pages) =
            (phased_ns as f64 / stock_ns as f64, f64::from(phased_pages) / f64::from(stock_pages));
        assert!((0.8..=1.2).contains(&time), "{hz}: {phased_ns} for {stock_ns}");
        assert!((0.95..=1.05).contains(&pages), "{hz}: {phased_pages} for {stock_pages}");
    }
}

/// While the zone lock is held, the tick keeps the pages, retries for a while and gives up until
/// its next run. When the lock is free the pages are freed. The tick fires once per interval all
/// the time, and each firing ends.
#[test]
fn a_taken_zone_is_never_waited_for() {
    let mut machine = Machine::boot(2, 1000, TickPolicy::Phased);
    machine.run_until(SEC + SEC / 3, |_, _| {});
    burst(&machine, 1);
    machine.count(1);
    let tick = WorkItem::VmstatTick(CpuId::new(1));
    while !machine.mm.work().is_pending(tick) {
        machine.run_until(Stepped::now_ns() + SEC / 1000, |_, _| {});
    }
    stepped::record(true);
    let before = cache(&machine, 1);
    stepped::set_cpu(0);
    let mut traces = Vec::new();
    // On this machine, waiting for a held lock panics.
    machine.mm.frames().inspect_buddy(ZoneId::new(0), |_| {
        let until_ns = Stepped::now_ns() + 4 * SEC;
        machine.run_one(1, until_ns, |_| traces.extend(stepped::take_traces()));
    });
    let (mut begun, mut ended, mut failures) = (0, 0, 0);
    for (_, event) in traces {
        match event {
            Trace::Tick(TickEvent::Begin) => begun += 1,
            Trace::Tick(TickEvent::End {
                trylock_failures,
                pages_deferred,
                pages_returned,
                ..
            }) => {
                ended += 1;
                failures += trylock_failures;
                assert_eq!(pages_returned, 0);
                assert!(pages_deferred > 0);
            }
            _ => {}
        }
    }
    assert_eq!(cache(&machine, 1).0, before.0, "not one page moved");
    assert!((3..=5).contains(&begun) && ended == begun, "{begun} {ended}");
    assert!((4 * ended..=8 * ended).contains(&failures), "it tries again, not for ever");
    machine.run_until(Stepped::now_ns() + 2 * SEC, |_, _| {});
    assert!(cache(&machine, 1).0 < before.0);
}
