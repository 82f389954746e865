//! Counters: thresholds, folding, drift.

use mmscale_arch::sync::IrqGuard;
use mmscale_arch::{CounterEvent, CpuId, NodeId, Order, Trace};
use mmscale_frames::frame::MigrateType;
use mmscale_frames::page_alloc::{AllocConfig, FrameAllocator, Gfp, MemoryMap};
use mmscale_frames::vmstat::{NodeItem, ZoneItem, normal_threshold, pressure_threshold};
use mmscale_frames::zone::ZoneId;
use mmscale_stepped::{self as stepped, Stepped};

const ZONE: ZoneId = ZoneId::new(0);
const NODE: NodeId = NodeId::new(0);

type Frames = FrameAllocator<Stepped>;

fn boot(cpus: usize) -> Frames {
    stepped::boot(cpus, 1000);
    FrameAllocator::new(&MemoryMap::single(1 << 20), AllocConfig::default()).unwrap()
}

/// The old and the new byte and the folded amount of each change since the last call.
fn changes() -> Vec<(i8, i8, i32)> {
    let events = stepped::take_traces().into_iter();
    let changes = events.filter_map(|(_, event)| match event {
        Trace::Counter(CounterEvent::Delta { old, new, folded, .. }) => Some((old, new, folded)),
        _ => None,
    });
    changes.collect()
}

#[test]
fn thresholds_follow_cpus_and_memory() {
    let gib = 1u64 << 18;
    let of = |cpus, pages| normal_threshold(cpus, pages, 4);
    // The table that the formula is documented with: just under 1, 1, 2 and 4 GiB.
    assert_eq!([of(1, gib - 1), of(2, gib - 1), of(2, gib), of(2, 2 * gib)], [8, 16, 20, 24]);
    assert_eq!([of(4, gib - 1), of(8, gib), of(16, 64 * gib)], [24, 40, 110]);
    assert_eq!(of(72, 128 * gib), 125);
    assert_eq!(pressure_threshold(4, 1048), 125);
    assert_eq!(pressure_threshold(72, 1048), 14);
    assert_eq!(pressure_threshold(4096, 1048), 1);
}

#[test]
fn larger_changes_go_to_the_total_at_once() {
    let frames = boot(2);
    let stats = frames.stats();
    let off = IrqGuard::<Stepped>::new();
    stepped::record(true);
    stats.mod_zone(&off, ZONE, ZoneItem::Mlock, 28);
    stats.mod_zone(&off, ZONE, ZoneItem::Mlock, 1);
    stats.mod_zone(&off, ZONE, ZoneItem::Mlock, 512);
    stats.mod_zone(&off, ZONE, ZoneItem::Mlock, -5);
    assert_eq!(changes(), [(0, 28, 0), (28, 0, 29), (0, 0, 512), (0, -5, 0)]);
    assert_eq!(stats.zone(ZONE, ZoneItem::Mlock), 541);
    assert_eq!(stats.zone_snapshot(ZONE, ZoneItem::Mlock), 536);
}

#[test]
fn many_single_pages_leave_what_a_loop_would_leave() {
    let frames = boot(2);
    let (stats, off) = (frames.stats(), IrqGuard::<Stepped>::new());
    let mut loops = 0;
    for pages in [63i64, -63, 5, -200, 2016, -1, 28, 29, -29] {
        stepped::record(true);
        stats.mod_zone_singly(&off, ZONE, ZoneItem::ActiveAnon, pages);
        loops += changes().len();
        stepped::record(false);
        for _ in 0..pages.abs() {
            stats.mod_zone(&off, ZONE, ZoneItem::ActiveFile, pages.signum());
        }
        let (bulk, single) = (ZoneItem::ActiveAnon, ZoneItem::ActiveFile);
        assert_eq!(stats.zone(ZONE, bulk), stats.zone(ZONE, single), "{pages}");
        assert_eq!(stats.zone_snapshot(ZONE, bulk), stats.zone_snapshot(ZONE, single));
    }
    // A change per fold of 29 pages and one for the rest, not one per page.
    assert!(loops < 100, "{loops}");
}

#[test]
fn folding_moves_every_byte_and_returns_their_number() {
    let frames = boot(2);
    let stats = frames.stats();
    let off = IrqGuard::<Stepped>::new();
    stats.mod_zone(&off, ZONE, ZoneItem::InactiveAnon, 1);
    stats.mod_zone(&off, ZONE, ZoneItem::ActiveAnon, -3);
    stats.mod_node(&off, NODE, NodeItem::PageTable, 1);
    drop(off);
    assert!(stats.needs_update(CpuId::new(0)) && !stats.needs_update(CpuId::new(1)));
    // Another CPU's fold does not reach it.
    stepped::set_cpu(1);
    assert_eq!(frames.fold_counters(), 0);
    assert!(stats.needs_update(CpuId::new(0)));
    stepped::set_cpu(0);
    assert_eq!(frames.fold_counters(), 3);
    assert!(!stats.needs_update(CpuId::new(0)));
    assert_eq!(stats.zone(ZONE, ZoneItem::InactiveAnon), 1);
    assert_eq!(stats.node(NODE, NodeItem::PageTable), 1);
    // A total below zero, as another CPU's byte can make it, reads as zero.
    assert_eq!(stats.zone(ZONE, ZoneItem::ActiveAnon), 0);
    assert_eq!(stats.zone_snapshot(ZONE, ZoneItem::ActiveAnon), -3);
    assert_eq!(frames.fold_counters(), 0);
}

#[test]
fn a_dead_cpus_bytes_are_folded_and_told_as_its_own() {
    let frames = boot(2);
    stepped::set_cpu(1);
    frames.stats().mod_zone(&IrqGuard::<Stepped>::new(), ZONE, ZoneItem::Mlock, 1);
    stepped::set_cpu(0);
    stepped::set_online(1, false);
    stepped::record(true);
    frames.cpu_dead(CpuId::new(1));
    let told = stepped::take_traces().into_iter().any(|(_, event)| {
        matches!(event, Trace::Counter(CounterEvent::Delta { cpu, old: 1, new: 0, folded: 1, .. })
            if cpu == CpuId::new(1))
    });
    assert!(told);
    assert_eq!(frames.stats().zone(ZONE, ZoneItem::Mlock), 1);
    assert_eq!(frames.stats().threshold(ZONE), normal_threshold(1, 1 << 20, 4));
}

#[test]
fn pressure_lowers_thresholds_from_the_next_fold_on() {
    let frames = boot(72);
    let stats = frames.stats();
    assert_eq!(stats.threshold(ZONE), 98);
    let add = |pages| stats.mod_zone(&IrqGuard::<Stepped>::new(), ZONE, ZoneItem::Mlock, pages);
    add(90);
    assert_eq!(stats.zone(ZONE, ZoneItem::Mlock), 0);
    frames.node_is_short();
    // (low - min) / 72 = 1048 / 72.
    assert_eq!(stats.threshold(ZONE), 14);
    frames.fold_counters();
    add(15);
    assert_eq!(stats.zone(ZONE, ZoneItem::Mlock), 105);
    frames.node_is_short();
    frames.node_is_balanced();
    assert_eq!(stats.threshold(ZONE), 14, "another node is still short");
    frames.node_is_balanced();
    assert_eq!(stats.threshold(ZONE), 98);
    frames.fold_counters();
    add(15);
    assert_eq!(stats.zone(ZONE, ZoneItem::Mlock), 105);
}

#[test]
fn totals_never_drift_further_than_the_bound() {
    let frames = boot(8);
    let (stats, mut held) = (frames.stats(), Vec::new());
    let mut worst = 0;
    for round in 0..4000 {
        stepped::set_cpu(round % 8);
        if round / 1000 % 2 == 0 {
            let wanted = MigrateType::Movable;
            held.push(frames.alloc_pages(Order::ZERO, wanted, Gfp::KERNEL).unwrap());
        } else if let Some(page) = held.pop() {
            frames.free_pages(page, Order::ZERO);
        }
        let total = stats.zone(ZONE, ZoneItem::FreePages) as i64;
        let exact = frames.inspect_buddy(ZONE, |buddy| buddy.free_pages()) as i64;
        assert_eq!(stats.zone_snapshot(ZONE, ZoneItem::FreePages), exact);
        worst = worst.max(total.abs_diff(exact));
    }
    assert!(worst > 0 && worst <= 8 * u64::from(stats.threshold(ZONE)), "{worst}");
}
