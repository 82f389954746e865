//! Statistics of nodes, memory groups and lruvecs.

use crate::lru::machine::{ANON, FILE, Machine, NODE};
use mmscale_arch::sync::{IrqGuard, PreemptGuard};
use mmscale_arch::{Op, Order, Policy as _};
use mmscale_frames::vmstat::NodeItem;
use mmscale_mm::folio::FolioInit;
use mmscale_mm::lru::{LruPolicy, LruViolation};
use mmscale_mm::memcg::{CHARGE_BATCH, GroupEvent, GroupId, ThresholdPolicy};
use mmscale_mm::work::WorkItem;
use mmscale_stepped::{self as stepped, Stepped};

const GROUP: GroupId = GroupId::new(1);
const MINE: FolioInit = FolioInit { group: GROUP, ..ANON };

/// Two CPUs, and groups that are three levels below the root.
fn machine() -> Machine {
    Machine::with(2, |config| {
        (config.groups, config.group_depth) = (3, 3);
    })
}

/// Maps pages without folios, one by one.
fn map(machine: &Machine, group: GroupId, pages: u32) {
    let stats = machine.memory().groups.stats();
    let pinned = PreemptGuard::<Stepped>::new();
    (0..pages).for_each(|_| stats.add(&pinned, group, NODE, NodeItem::AnonMapped, 1));
}

#[test]
fn mapped_pages_count_for_their_node_group_and_lruvec() {
    for policy in LruPolicy::ALL {
        let machine = Machine::with(1, |config| (config.groups, config.lru) = (2, policy));
        let memory = machine.memory();
        let counts = |item| {
            let of_node = machine.mm.frames().stats().node_snapshot(NODE, item);
            (of_node, memory.groups.stats().own_lruvec(GROUP, NODE, item))
        };
        let page = machine.fault(MINE);
        memory.add_map(page);
        let of_file = machine.fault(FolioInit { group: GROUP, ..FILE });
        let of_root = machine.fault(ANON);
        let huge = machine.folio_of(Order::new(9).unwrap(), MINE);
        (0..3).for_each(|_| _ = memory.add_map(huge));
        assert_eq!(counts(NodeItem::AnonMapped), (514, 513));
        assert_eq!(counts(NodeItem::FileMapped), (1, 1));
        machine.audit();
        // A folio counts with all its pages until its last mapping is gone.
        memory.remove_maps(huge, 2);
        memory.remove_maps(page, 1);
        assert_eq!(counts(NodeItem::AnonMapped), (514, 513));
        memory.remove_maps(huge, 1);
        assert_eq!(counts(NodeItem::AnonMapped), (2, 1));
        memory.drain();
        machine.audit();
        memory.put(huge);
        [page, of_file, of_root].into_iter().for_each(|pfn| machine.unmap(pfn));
        machine.end();
        assert_eq!([NodeItem::AnonMapped, NodeItem::FileMapped].map(counts), [(0, 0); 2]);
    }
}

#[test]
fn what_is_not_counted_is_found() {
    let machine = machine();
    let memory = machine.memory();
    let page = machine.folio(MINE);
    memory.folios.add_map(page);
    assert_eq!(memory.verify(), Err(LruViolation::Stat(NODE, NodeItem::AnonMapped)));
    memory.folios.remove_maps(page, 1);
    machine.audit();
    let off = IrqGuard::<Stepped>::new();
    memory.groups.stats().count(&off, GROUP, GroupEvent::FolioOut, 1);
    assert_eq!(memory.verify(), Err(LruViolation::Flush(GROUP)));
    memory.groups.stats().count(&off, GROUP, GroupEvent::FolioIn, 1);
    drop(off);
    memory.put(page);
    machine.end();
}

/// A reader flushes if there were more than 64 changes a CPU since the last flush.
#[test]
fn a_reader_flushes_when_there_are_many_changes() {
    let machine = machine();
    let stats = machine.memory().groups.stats();
    let read = |group| stats.read(group, NodeItem::AnonMapped);
    let most = 2 * CHARGE_BATCH;
    map(&machine, GROUP, most);
    assert_eq!((read(GROUP), read(GroupId::ROOT)), (0, 0), "not flushed yet");
    assert_eq!(stepped::work_count(Op::StatFlush), 0);
    machine.on(1, || map(&machine, GroupId::new(2), CHARGE_BATCH));
    // There are enough changes of both groups together.
    assert_eq!(read(GroupId::ROOT), (3 * CHARGE_BATCH).into());
    assert_eq!((read(GROUP), read(GroupId::new(2))), (most.into(), CHARGE_BATCH.into()));
    // On each CPU one of the groups has changed, and the two groups and the root above it.
    assert_eq!(stepped::work_count(Op::StatFlush), 2 * 4);
    map(&machine, GROUP, most + CHARGE_BATCH);
    assert_eq!(read(GROUP), (2 * most + CHARGE_BATCH).into());
}

/// A change is counted at each level, until a reader would flush in any case.
#[test]
fn changes_are_counted_at_all_levels_up_to_the_threshold() {
    let machine = machine();
    let additions = |pages: u32| {
        let before = stepped::work_count(Op::PercpuAdd);
        map(&machine, GROUP, pages);
        stepped::work_count(Op::PercpuAdd) - before
    };
    // The group, its lruvec; the group, two above it, the root.
    assert_eq!(additions(1), 2 + 4);
    assert_eq!(additions(3 * CHARGE_BATCH - 1), u64::from(3 * CHARGE_BATCH - 1) * (2 + 4));
    assert_eq!(additions(10), 10 * 2);
    machine.memory().groups.stats().flush();
    assert_eq!(additions(10), 10 * (2 + 4));
}

/// Before Linux 6.8 readers of all groups flush after more than one batch of changes a CPU, of any
/// group. Before 5.16 they always do.
#[test]
fn a_global_threshold_counts_the_changes_of_all_groups() {
    let most = CHARGE_BATCH + 1;
    for policy in ThresholdPolicy::ALL {
        let machine = Machine::with(2, |config| {
            (config.groups, config.group_depth, config.stat_threshold) = (3, 3, policy);
        });
        let stats = machine.memory().groups.stats();
        let flushes = |group| {
            let before = stepped::work_count(Op::StatFlush);
            let _ = stats.read(group, NodeItem::AnonMapped);
            stepped::work_count(Op::StatFlush) > before
        };
        let additions = stepped::work_count(Op::PercpuAdd);
        map(&machine, GROUP, 2 * most);
        let additions = stepped::work_count(Op::PercpuAdd) - additions;
        let levels = [4, 1, 1, 0][policy.place()];
        assert_eq!(additions, u64::from(2 * most) * (2 + levels), "{policy:?}");
        let always = policy == ThresholdPolicy::None;
        assert_eq!(flushes(GROUP), always, "{policy:?}: not enough for any");
        if !always {
            stats.flush();
        }
        map(&machine, GROUP, 3 * CHARGE_BATCH);
        machine.on(1, || map(&machine, GroupId::new(2), most));
        // Group 2 has few changes of its own.
        assert_eq!(flushes(GroupId::new(2)), policy != ThresholdPolicy::Group, "{policy:?}");
        // For all other policies that flush was of all groups.
        assert_eq!(flushes(GROUP), policy == ThresholdPolicy::Group, "{policy:?}");
    }
}

/// Few changes are flushed too, after two seconds.
#[test]
fn a_worker_flushes_and_comes_back() {
    let machine = machine();
    let stats = machine.memory().groups.stats();
    map(&machine, GROUP, 3);
    assert_eq!(stats.lruvec(GROUP, NODE, NodeItem::AnonMapped), 0);
    assert!(machine.mm.work().is_pending(WorkItem::StatFlush));
    let due_ns = machine.mm.work().due_ns(machine.mm.time(), WorkItem::StatFlush);
    assert!(due_ns.is_some_and(|at_ns| (2_000_000_000..3_000_000_000).contains(&at_ns)));
    machine.mm.run(WorkItem::StatFlush);
    assert_eq!(stats.lruvec(GROUP, NODE, NodeItem::AnonMapped), 3);
    assert!(machine.mm.work().is_pending(WorkItem::StatFlush));
}

/// A charge to a group is also a charge to the groups above it.
#[test]
fn charges_go_up_to_the_root() {
    let machine = machine();
    let groups = machine.memory().groups;
    let pages: Vec<_> = (0..3).map(|_| machine.folio(MINE)).collect();
    assert_eq!((groups.usage(GROUP), groups.usage(GroupId::ROOT)), (64, 64));
    machine.audit();
    pages.into_iter().for_each(|pfn| machine.memory().put(pfn));
    groups.drain_stock();
    assert_eq!((groups.usage(GROUP), groups.usage(GroupId::ROOT)), (0, 0));
    groups.stats().flush();
    let events = [GroupEvent::FolioIn, GroupEvent::FolioOut];
    assert_eq!(events.map(|event| groups.stats().events(GroupId::ROOT, event)), [3, 3]);
    machine.end();
}
