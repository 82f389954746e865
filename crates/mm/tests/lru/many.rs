//! Many folios whose last references are dropped together, as at the end of a program.

use crate::lru::machine::{ANON, FILE, Machine, locks};
use mmscale_arch::{LockClass, Order, Pfn};
use mmscale_frames::page_alloc::PcpPolicy;
use mmscale_mm::folio::FolioInit;
use mmscale_mm::lru::{LruList, LruPolicy, MANY};
use mmscale_mm::memcg::GroupId;
use mmscale_stepped as stepped;

const HUGE: Order = Order::new(9).expect("there is such an order");

fn listed(machine: &Machine, order: Order, what: FolioInit) -> Pfn {
    let pfn = machine.folio_of(order, what);
    machine.memory().add(pfn);
    machine.memory().drain();
    pfn
}

#[test]
fn they_leave_their_lists_under_one_lock_and_nothing_else_does() {
    let machine = Machine::with(1, |config| {
        (config.lru, config.groups) = (LruPolicy::Stock, 2);
    });
    let other = FolioInit { group: GroupId::new(1), ..ANON };
    // Folios of one list and of two lists alternate; one has another user; one is on no list.
    let all: Vec<(Pfn, u32)> = (0..MANY as u32)
        .map(|nth| {
            let pfn = match nth {
                7 => machine.folio(ANON),
                nth if nth < 60 => listed(&machine, Order::ZERO, ANON),
                nth if nth % 2 == 0 => listed(&machine, Order::ZERO, FILE),
                _ => listed(&machine, Order::ZERO, ANON),
            };
            if nth == 90 {
                machine.memory().folios.get(pfn);
            }
            (pfn, 1)
        })
        .collect();
    let bystander = listed(&machine, Order::ZERO, ANON);
    let foreign = listed(&machine, Order::ZERO, other);
    let before = locks();
    machine.memory().release_many(&all);
    assert_eq!(locks() - before, 1);
    assert_eq!((machine.refs(all[90].0), machine.refs(all[91].0)), (1, 0));
    assert_eq!(machine.pages(LruList::InactiveAnon) + machine.pages(LruList::ActiveAnon), 1);
    assert_eq!(machine.pages(LruList::InactiveFile) + machine.pages(LruList::ActiveFile), 1);
    machine.audit();
    // Folios of two groups: a lock for each group, and different sizes.
    let before = locks();
    machine.memory().release_many(&[(bystander, 1), (foreign, 1), (all[90].0, 1)]);
    assert_eq!(locks() - before, 3);
    machine.end();
}

#[test]
fn huge_ones_go_back_to_their_zone_together() {
    for caches in PcpPolicy::ALL {
        let machine = Machine::with(1, |config| config.alloc.caches = caches);
        let all: Vec<(Pfn, u32)> = (0..7).map(|_| (listed(&machine, HUGE, ANON), 1)).collect();
        let small = listed(&machine, Order::ZERO, ANON);
        let before = stepped::lock_acquisitions(LockClass::Zone);
        machine.memory().release_many(&all);
        let taken = stepped::lock_acquisitions(LockClass::Zone) - before;
        assert!(caches != PcpPolicy::Stock || taken == 1, "{taken} times for 7 folios");
        machine.audit();
        // With other folios between them.
        let again: Vec<(Pfn, u32)> = (0..3).map(|_| (listed(&machine, HUGE, ANON), 1)).collect();
        machine.memory().release_many(&[again[0], (small, 1), again[1], again[2]]);
        machine.end();
    }
}

#[test]
#[should_panic(expected = "freed twice")]
fn a_large_block_is_not_freed_twice() {
    let machine = Machine::with(1, |_| {});
    let pfn = machine.folio_of(HUGE, ANON);
    machine.mm.frames().free_large(&[pfn], HUGE);
    machine.mm.frames().free_large(&[pfn], HUGE);
}
