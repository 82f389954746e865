//! Ageing, isolation, mlock: the rules of each move between lists.

use crate::lru::machine::{ALL, ANON, FILE, Machine, NODE};
use mmscale_arch::Pfn;
use mmscale_frames::vmstat::ZoneItem;
use mmscale_frames::zone::ZoneId;
use mmscale_mm::folio::{FolioFlags, FolioInit};
use mmscale_mm::lru::{LruList, LruPolicy, LruViolation};
use mmscale_mm::memcg::GroupId;

fn boot() -> Machine {
    Machine::boot(LruPolicy::Stock, 1)
}

fn mlocked(machine: &Machine) -> i64 {
    machine.mm.frames().stats().zone_snapshot(ZoneId::new(0), ZoneItem::Mlock)
}

#[test]
fn activation_and_deactivation_change_the_list_and_forget_a_use() {
    let machine = boot();
    let (memory, pfn) = (machine.memory(), machine.listed(FILE));
    memory.folios.set(pfn, FolioFlags::REFERENCED);
    memory.activate(pfn);
    memory.drain();
    assert_eq!(machine.oldest_first(LruList::ActiveFile), [pfn]);
    assert!(!machine.flags(pfn).contains(FolioFlags::REFERENCED));
    memory.folios.set(pfn, FolioFlags::REFERENCED);
    memory.deactivate(pfn);
    memory.drain();
    assert_eq!(machine.oldest_first(LruList::InactiveFile), [pfn]);
    assert!(!machine.flags(pfn).contains(FolioFlags::REFERENCED));
    machine.unmap(pfn);
    machine.end();
}

#[test]
fn activation_finds_a_folio_in_this_cpus_batch() {
    for policy in ALL {
        let machine = Machine::boot(policy, 1);
        let pfn = machine.fault(ANON);
        machine.memory().activate(pfn);
        machine.memory().drain();
        assert_eq!(machine.oldest_first(LruList::ActiveAnon), [pfn], "{policy:?}");
        machine.unmap(pfn);
        machine.end();
    }
}

#[test]
fn lazily_freed_memory_goes_to_the_inactive_file_list() {
    let machine = boot();
    let memory = machine.memory();
    let swapped = FolioInit { flags: ANON.flags | FolioFlags::SWAP_CACHE, ..ANON };
    let [pfn, file, cached] = [ANON, FILE, swapped].map(|what| machine.listed(what));
    [pfn, file, cached].iter().for_each(|&pfn| memory.lazyfree(pfn));
    memory.drain();
    assert!(memory.folios.word(pfn).is_lazyfree());
    assert!(!memory.folios.word(file).is_lazyfree() && !memory.folios.word(cached).is_lazyfree());
    assert_eq!(machine.oldest_first(LruList::InactiveFile), [file, pfn]);
    [pfn, file, cached].into_iter().for_each(|pfn| machine.unmap(pfn));
    machine.end();
}

#[test]
fn an_isolated_folio_is_one_mans_until_he_puts_it_back() {
    for policy in ALL {
        let machine = Machine::boot(policy, 1);
        let (memory, pfn) = (machine.memory(), machine.listed(ANON));
        assert!(memory.isolate(pfn));
        assert!(!memory.isolate(pfn));
        assert_eq!((machine.refs(pfn), machine.pages(LruList::InactiveAnon)), (2, 0));
        memory.activate(pfn);
        memory.rotate(pfn);
        assert_eq!(machine.audit().gathered, 0);
        memory.putback(pfn);
        memory.drain();
        assert_eq!((machine.refs(pfn), machine.pages(LruList::InactiveAnon)), (1, 1));
        machine.unmap(pfn);
        machine.end();
    }
}

#[test]
fn a_folio_whose_users_leave_while_it_is_isolated_goes_with_the_isolator() {
    for policy in ALL {
        let machine = Machine::boot(policy, 1);
        let memory = machine.memory();
        for at_once in [true, false] {
            let pfn = machine.listed(ANON);
            assert!(memory.isolate(pfn));
            machine.unmap(pfn);
            assert_eq!(machine.refs(pfn), 1);
            if at_once {
                memory.putback_now(&[pfn]);
            } else {
                memory.putback(pfn);
                memory.drain();
            }
            assert_eq!(machine.audit().folios, 0);
        }
        machine.end();
    }
}

#[test]
fn reclaim_takes_the_oldest_first_and_no_more_than_it_asks_for() {
    let machine = boot();
    let memory = machine.memory();
    let folios: Vec<_> = (0..10).map(|_| machine.listed(ANON)).collect();
    let mut taken = [Pfn::new(0); 4];
    let list = LruList::InactiveAnon;
    let scan = memory.isolate_oldest(GroupId::ROOT, NODE, list, 100, &mut taken);
    assert_eq!((scan.scanned, scan.taken, &taken[..]), (4, 4, &folios[..4]));
    assert_eq!(memory.isolate_oldest(GroupId::ROOT, NODE, list, 2, &mut taken[2..]).taken, 2);
    assert_eq!(taken, [folios[0], folios[1], folios[4], folios[5]]);
    memory.putback_now(&folios[..6]);
    assert_eq!(machine.oldest_first(list), [&folios[6..], &folios[..6]].concat());
    folios.into_iter().for_each(|pfn| machine.unmap(pfn));
    machine.end();
}

#[test]
fn locked_memory_leaves_the_evictable_lists_until_the_last_one_unlocks_it() {
    let machine = boot();
    let (memory, pfn) = (machine.memory(), machine.listed(ANON));
    memory.folios.set(pfn, FolioFlags::REFERENCED);
    memory.mlock(pfn);
    memory.mlock(pfn);
    assert_eq!((machine.oldest_first(LruList::Unevictable), mlocked(&machine)), (vec![pfn], 1));
    memory.activate(pfn);
    memory.munlock(pfn);
    assert_eq!((machine.pages(LruList::Unevictable), mlocked(&machine)), (1, 1));
    memory.munlock(pfn);
    assert_eq!(machine.oldest_first(LruList::InactiveAnon), [pfn]);
    machine.unmap(pfn);
    assert_eq!(mlocked(&machine), 0);
    machine.end();
}

#[test]
fn a_folio_locked_in_a_batch_goes_to_the_unevictable_list() {
    for policy in ALL {
        for unlocks in [false, true] {
            let machine = Machine::boot(policy, 1);
            let (memory, pfn) = (machine.memory(), machine.fault(ANON));
            memory.mlock(pfn);
            if unlocks {
                memory.munlock(pfn);
            }
            memory.drain();
            let list = if unlocks { LruList::InactiveAnon } else { LruList::Unevictable };
            assert_eq!(machine.oldest_first(list), [pfn], "{policy:?}");
            assert_eq!(mlocked(&machine), (!unlocks).into());
            machine.unmap(pfn);
            assert_eq!(mlocked(&machine), 0, "a folio that ends is not locked any more");
            machine.end();
        }
    }
}

#[test]
fn a_folio_locked_while_isolated_is_put_back_unevictable() {
    let machine = boot();
    let (memory, pfn) = (machine.memory(), machine.listed(ANON));
    assert!(memory.isolate(pfn));
    memory.mlock(pfn);
    memory.putback_now(&[pfn]);
    assert_eq!(machine.oldest_first(LruList::Unevictable), [pfn]);
    assert!(memory.isolate(pfn));
    memory.munlock(pfn);
    memory.putback_now(&[pfn]);
    assert_eq!(machine.oldest_first(LruList::InactiveAnon), [pfn]);
    machine.unmap(pfn);
    machine.end();
}

/// Each of these states is unreachable by calls: the checks must detect it.
#[test]
fn planted_errors_are_found() {
    let planted = |plant: fn(&Machine, Pfn)| {
        let machine = boot();
        let pfn = machine.listed(ANON);
        plant(&machine, pfn);
        machine.memory().verify().expect_err("the error is seen")
    };
    let seen = planted(|machine, pfn| {
        machine.memory().folios.clear(pfn, FolioFlags::LRU);
    });
    assert!(matches!(seen, LruViolation::Listed(_)));
    let seen = planted(|machine, pfn| {
        machine.memory().folios.set(pfn, FolioFlags::ACTIVE);
    });
    assert!(matches!(seen, LruViolation::Listed(_)));
    let seen =
        planted(|machine, pfn| machine.mm.frames().free_pages(pfn, mmscale_arch::Order::ZERO));
    assert!(matches!(seen, LruViolation::Free(_) | LruViolation::Link(_)));
    let seen = planted(|machine, pfn| assert!(machine.memory().folios.freeze(pfn, 1)));
    assert!(matches!(seen, LruViolation::Free(_)));
    let seen = planted(|machine, _| {
        let other = machine.folio(ANON);
        machine.memory().folios.set(other, FolioFlags::LRU);
    });
    assert!(matches!(seen, LruViolation::Lost(_)));
    let seen = planted(|machine, _| {
        let other = machine.folio(ANON);
        machine.memory().folios.set(other, FolioFlags::PENDING);
    });
    assert!(matches!(seen, LruViolation::Pending(_)));
    let seen = planted(|machine, pfn| {
        machine.memory().folios.set(pfn, FolioFlags::MLOCKED);
    });
    assert!(matches!(seen, LruViolation::Mlocked(_)));
}
