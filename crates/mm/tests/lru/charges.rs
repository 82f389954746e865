//! Memory groups: limits, stocks, and charges that are left when folios are freed.

use crate::lru::machine::{ALL, ANON, Machine, NODE};
use mmscale_arch::{CpuId, Order};
use mmscale_frames::page_alloc::Gfp;
use mmscale_mm::folio::FolioInit;
use mmscale_mm::lru::{FolioError, LruPolicy, LruViolation};
use mmscale_mm::memcg::{CHARGE_BATCH, GroupId, LifetimeError, OverLimit, StockPolicy};

const GROUP: GroupId = GroupId::new(1);
const MINE: FolioInit = FolioInit { group: GROUP, ..ANON };

fn machine(policy: LruPolicy, cpus: usize) -> Machine {
    Machine::with(cpus, |config| {
        config.lru = policy;
        config.groups = 3;
    })
}

#[test]
fn charges_come_in_64_pages_and_what_is_given_back_goes_at_once() {
    let machine = machine(LruPolicy::Stock, 1);
    let groups = machine.memory().groups;
    for pages in 1..=CHARGE_BATCH {
        groups.charge(GROUP, 1).unwrap();
        assert_eq!(groups.usage(GROUP), 64, "{pages} pages");
    }
    groups.charge(GROUP, 1).unwrap();
    assert_eq!(groups.usage(GROUP), 128);
    groups.uncharge(GROUP, 65);
    assert_eq!(groups.usage(GROUP), 63, "the stock");
    groups.drain_stock();
    assert_eq!(groups.usage(GROUP), 0);
    groups.charge(GROUP, 512).unwrap();
    assert_eq!(groups.usage(GROUP), 512, "a huge page leaves no stock");
    groups.uncharge(GROUP, 512);
}

#[test]
fn a_cpu_has_stocks_of_as_many_groups_as_its_policy_says() {
    for (policy, most) in
        [(StockPolicy::One, 1), (StockPolicy::Seven, 7), (StockPolicy::Counter, 11)]
    {
        let machine = Machine::with(1, |config| {
            (config.groups, config.group_depth, config.charge_stock) = (12, 2, policy);
        });
        let groups = machine.memory().groups;
        let ids = || (1..12).map(GroupId::new);
        ids().for_each(|group| groups.charge(group, 1).unwrap());
        let stocked = ids().filter(|group| groups.usage(*group) == 64).count();
        assert_eq!(stocked, most, "{policy:?}");
        // The groups above count what is in stocks too, and nothing of the root's own folios.
        groups.charge(GroupId::ROOT, 1000).unwrap();
        assert_eq!(groups.usage(GroupId::ROOT), 11 + 63 * most as u64, "{policy:?}");
        // Those with a stock charge it, and the others take the places of theirs.
        let before = groups.usage(GroupId::ROOT);
        let last = GroupId::new(11);
        groups.charge(last, 63).unwrap();
        assert_eq!((groups.usage(last), groups.usage(GroupId::ROOT)), (64, before), "{policy:?}");
        groups.uncharge(last, 63);
        // A huge page has no place in a stock, and leaves those of others.
        groups.charge(GROUP, 512).unwrap();
        assert_eq!(groups.usage(GroupId::ROOT), before - 63 + 512, "{policy:?}");
        groups.uncharge(GROUP, 512);
        ids().for_each(|group| groups.uncharge(group, 1));
        machine.end();
    }
}

#[test]
fn a_limit_refuses_and_leaves_nothing_behind() {
    let machine = machine(LruPolicy::Stock, 2);
    let (memory, groups) = (machine.memory(), machine.memory().groups);
    groups.set_limit(GROUP, Some(70));
    assert_eq!((groups.limit(GROUP), groups.limit(GroupId::new(2))), (Some(70), None));
    let first = machine.folio(MINE);
    // The limit leaves no room for a stock of the other CPU: it charges single pages.
    let six: Vec<_> = machine.on(1, || (0..6).map(|_| machine.folio(MINE)).collect());
    assert_eq!(groups.usage(GROUP), 70);
    let held = machine.mm.verify().unwrap().held;
    let refused = machine.on(1, || memory.alloc_folio(NODE, Order::ZERO, Gfp::KERNEL, MINE));
    assert_eq!(refused, Err(FolioError::Group(OverLimit { group: GROUP })));
    assert_eq!((groups.usage(GROUP), machine.mm.verify().unwrap().held), (70, held));
    // This CPU still has its stock; after it is drained the other CPU can charge again.
    groups.drain_stock();
    assert_eq!(groups.usage(GROUP), 7);
    let seventh = machine.on(1, || machine.folio(MINE));
    machine.audit();
    [vec![first, seventh], six].concat().into_iter().for_each(|pfn| memory.put(pfn));
    machine.end();
    assert_eq!(groups.usage(GROUP), 0);
}

#[test]
fn unmapped_memory_stays_charged_for_as_long_as_a_batch_keeps_it() {
    for policy in ALL {
        let machine = machine(policy, 1);
        let groups = machine.memory().groups;
        for _ in 0..20 {
            let pfn = machine.fault(MINE);
            machine.unmap(pfn);
        }
        groups.drain_stock();
        let kept = if policy == LruPolicy::Lazy { 0 } else { 20 };
        assert_eq!(groups.usage(GROUP), kept, "{policy:?}");
        machine.audit();
        machine.memory().drain();
        assert_eq!(groups.usage(GROUP), 0);
        machine.end();
    }
}

#[test]
fn each_group_has_lists_of_its_own() {
    let machine = machine(LruPolicy::Stock, 1);
    let (mine, roots) = (machine.listed(MINE), machine.listed(ANON));
    let list = mmscale_mm::lru::LruList::InactiveAnon;
    assert_eq!(machine.memory().list_pages(GROUP, NODE, list), 1);
    assert_eq!(machine.memory().list_pages(GroupId::ROOT, NODE, list), 1);
    // Folios of two groups alternate: each needs another lock.
    let before = crate::lru::machine::locks();
    [mine, roots].iter().for_each(|&pfn| {
        machine.memory().remove_maps(pfn, 1);
    });
    machine.memory().release(&[(mine, 1), (roots, 1)]);
    assert_eq!(crate::lru::machine::locks() - before, 2);
    machine.end();
}

/// Groups 1 and 2, and identities for `spare` more.
fn with_spare(cpus: usize, spare: usize) -> Machine {
    Machine::with(cpus, |config| {
        (config.groups, config.group_depth, config.spare_groups) = (3, 2, spare);
    })
}

#[test]
fn pages_stay_charged_to_a_group_that_is_removed_and_on_its_lists() {
    let machine = with_spare(2, 1);
    let (mm, groups) = (&machine.mm, machine.memory().groups);
    let list = mmscale_mm::lru::LruList::InactiveAnon;
    groups.set_limit(GROUP, Some(100));
    let stays = machine.listed(MINE);
    let gone = machine.on(1, || machine.folio(MINE));
    machine.on(1, || machine.memory().put(gone));
    // The other CPU has no room for a stock of a group with this limit.
    assert_eq!((groups.usage(GROUP), groups.usage(GroupId::ROOT)), (64, 64));

    mm.remove_group(1).unwrap();
    assert_eq!(mm.lifetimes().dying(), [GROUP]);
    machine.work_on(0);
    assert_eq!((groups.usage(GROUP), groups.usage(GroupId::ROOT)), (1, 1), "no stock");
    assert_eq!(machine.memory().list_pages(GROUP, NODE, list), 1);
    machine.audit();

    // Its number has another group then, with the limit of the first.
    mm.create_group(1).unwrap();
    let second = mm.lifetimes().enter(1).unwrap();
    assert!(second != GROUP && groups.limit(second) == Some(100));
    let its = machine.listed(FolioInit { group: second, ..ANON });
    assert_eq!(machine.memory().list_pages(GROUP, NODE, list), 1);
    assert_eq!(groups.usage(second), 64);
    machine.unmap(stays);
    machine.unmap(its);
    machine.memory().drain();
    assert_eq!((groups.usage(GROUP), groups.usage(second)), (0, 63));

    // The identity is used again: there is no other.
    mm.lifetimes().leave(1);
    mm.remove_group(2).unwrap();
    mm.create_group(2).unwrap();
    assert_eq!((mm.lifetimes().enter(2), mm.lifetimes().dying()), (Ok(GroupId::new(2)), vec![]));
    mm.remove_group(1).unwrap();
    machine.work_on(0);
    machine.end();
}

#[test]
fn a_group_with_a_process_is_not_removed() {
    let machine = with_spare(1, 1);
    let (mm, lifetimes) = (&machine.mm, machine.mm.lifetimes());
    assert_eq!(mm.create_group(1), Err(LifetimeError::Exists));
    assert_eq!(lifetimes.enter(1), Ok(GROUP));
    lifetimes.inherit(1);
    lifetimes.leave(1);
    assert_eq!(mm.remove_group(1), Err(LifetimeError::Busy));
    lifetimes.leave(1);
    mm.remove_group(1).unwrap();
    assert_eq!(mm.remove_group(1), Err(LifetimeError::Missing));
    assert_eq!(lifetimes.enter(1), Err(LifetimeError::Missing));
    for none in [0, 3] {
        assert_eq!(mm.remove_group(none), Err(LifetimeError::Missing));
        assert_eq!(mm.create_group(none), Err(LifetimeError::Missing));
    }
    machine.end();
}

#[test]
fn removed_groups_with_pages_have_identities_until_these_are_freed() {
    let machine = with_spare(1, 1);
    let mm = &machine.mm;
    let stays = [1, 2].map(|at| machine.listed(FolioInit { group: GroupId::new(at), ..ANON }));
    let bytes = || mm.mm_ref().paging.counts.percpu().bytes();
    let before = bytes();
    [1, 2].iter().for_each(|&number| mm.remove_group(number).unwrap());
    machine.work_on(0);
    mm.create_group(1).unwrap();
    assert!(bytes() > before, "its statistics are in per-CPU memory");
    assert_eq!(mm.create_group(2), Err(LifetimeError::Full));
    machine.unmap(stays[0]);
    machine.memory().drain();
    mm.create_group(2).unwrap();
    assert_eq!(mm.lifetimes().enter(2), Ok(GROUP), "that of the freed group");
    machine.unmap(stays[1]);
    machine.end();
}

#[test]
fn a_system_without_removal_counts_no_processes() {
    let machine = machine(LruPolicy::Stock, 1);
    assert_eq!(machine.mm.lifetimes().enter(2), Ok(GroupId::new(2)));
    assert_eq!(machine.mm.remove_group(1), Err(LifetimeError::Busy));
    machine.end();
}

#[test]
fn a_charge_that_belongs_to_no_folio_is_seen() {
    let machine = machine(LruPolicy::Stock, 1);
    machine.memory().groups.charge(GROUP, 1).unwrap();
    assert!(matches!(machine.memory().verify(), Err(LruViolation::Charge(_))));
}

#[test]
fn a_dead_cpus_stock_is_uncharged() {
    let machine = machine(LruPolicy::Stock, 2);
    let pfn = machine.on(1, || machine.folio(MINE));
    mmscale_stepped::set_online(1, false);
    machine.mm.cpu_dead(CpuId::new(1));
    assert_eq!(machine.memory().groups.usage(GROUP), 1);
    machine.memory().put(pfn);
    machine.end();
}
