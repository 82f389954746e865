//! The decisions of reclaim about a page, by kind and use.

use crate::reclaim::machine::Machine;
use crate::reclaim::paged::{Entry, NODE};
use mmscale_mm::folio::FolioFlags;
use mmscale_mm::lru::LruList;
use mmscale_mm::memcg::GroupId;
use mmscale_mm::reclaim::Rmap;
use mmscale_stepped as stepped;

/// Reclaims until a round frees nothing; returns the number of freed pages.
fn squeeze(machine: &Machine) -> u32 {
    machine.settle();
    machine.reclaim.direct(machine.scope(), NODE, u32::MAX, None)
}

fn list(machine: &Machine, list: LruList) -> u64 {
    machine.memory().list_pages(GroupId::ROOT, NODE, list)
}

/// Clears the accessed bit of the page's entry.
fn rest(machine: &Machine, page: usize) {
    let pfn = machine.hold(page).expect("it is there");
    machine.referenced(pfn);
    machine.memory().put(pfn);
}

#[test]
fn a_page_that_is_paged_out_is_written_once_and_comes_back() {
    let machine = Machine::boot(1 << 12, 64, 8, 1);
    machine.touch(3, Some(33)).expect("memory");
    machine.settle();
    assert_eq!(machine.page_out(3), 0, "it has to be written first");
    assert!(matches!(machine.entry(3), Entry::Swapped(_)));
    machine.rest();
    // A written page goes to the end of the inactive list: it is reclaimed next.
    assert_eq!(squeeze(&machine), 1);
    assert_eq!(machine.touch(3, None), Ok(33));
    assert_eq!((machine.swap.counters().writes, machine.swap.counters().reads), (1, 1));
    // Its slot still has its content: nothing is written this time.
    machine.settle();
    assert_eq!(machine.page_out(3), 1);
    assert_eq!(machine.swap.counters().writes, 1);
    assert_eq!(machine.touch(3, Some(34)), Ok(34));
    machine.settle();
    assert_eq!(machine.page_out(3), 0, "it was written to");
    assert_eq!(machine.swap.counters().writes, 2);
    machine.rest();
    machine.end();
}

#[test]
fn what_was_written_goes_next_even_if_it_was_wanted_meanwhile() {
    let machine = Machine::boot(1 << 12, 64, 8, 1);
    (0..4).for_each(|page| _ = machine.touch(page, Some(1 + page as u64)).expect("memory"));
    machine.settle();
    let pfn = machine.hold(3).expect("it is there");
    machine.memory().put(pfn);
    machine.page_out(3);
    machine.touch(3, None).expect("it is in the cache");
    machine.page_out(3);
    let waits = FolioFlags::WRITEBACK | FolioFlags::RECLAIM | FolioFlags::ACTIVE | FolioFlags::LRU;
    assert!(machine.flags(3).contains(waits), "{:?}", machine.flags(3));
    assert_eq!(list(&machine, LruList::ActiveAnon), 1);
    machine.rest();
    machine.settle();
    let mut oldest = [pfn; 1];
    let (memory, from) = (machine.memory(), LruList::InactiveAnon);
    memory.isolate_oldest(GroupId::ROOT, NODE, from, 1, &mut oldest);
    assert_eq!(oldest, [pfn]);
    memory.putback_now(&oldest);
    machine.end();
}

#[test]
fn a_page_of_zeros_goes_at_once() {
    let machine = Machine::boot(1 << 12, 64, 8, 1);
    machine.touch(3, None).expect("memory");
    machine.settle();
    assert_eq!(machine.page_out(3), 1);
    assert!(stepped::ios_in_flight().is_empty());
    assert_eq!(machine.touch(3, None), Ok(0));
    assert_eq!(machine.swap.counters().zero_reads, 1);
    machine.end();
}

#[test]
fn use_gives_another_round_and_two_uses_the_active_list() {
    let machine = Machine::boot(1 << 12, 64, 8, 1);
    (0..3).for_each(|page| _ = machine.touch(page, Some(1 + page as u64)).expect("memory"));
    rest(&machine, 0);
    machine.settle();
    assert_eq!(list(&machine, LruList::InactiveAnon), 3);
    let round = || {
        // Priority 0 scans everything once.
        machine.reclaim.direct(machine.scope(), NODE, 1, None)
    };
    machine.touch(1, None).expect("it is there");
    machine.touch(2, None).expect("it is there");
    machine.memory().folios.set(machine.hold(2).expect("there"), FolioFlags::REFERENCED);
    round();
    assert!(matches!(machine.entry(0), Entry::Swapped(_)), "it was not used");
    assert!(machine.flags(2).contains(FolioFlags::ACTIVE), "it was used twice");
    assert_eq!(machine.reclaim.counters().activated, 1);
}

#[test]
fn the_active_list_gives_up_its_oldest_when_the_inactive_one_is_short() {
    let machine = Machine::boot(1 << 12, 256, 128, 1);
    for page in 0..128 {
        machine.touch(page, Some(9)).expect("memory");
    }
    machine.settle();
    for page in 0..128 {
        let pfn = machine.hold(page).expect("there");
        machine.memory().activate(pfn);
        machine.memory().put(pfn);
    }
    machine.settle();
    assert_eq!(
        (list(&machine, LruList::InactiveAnon), list(&machine, LruList::ActiveAnon)),
        (0, 128)
    );
    let first = squeeze(&machine);
    machine.rest();
    assert_eq!(first + squeeze(&machine), 128, "{:?}", machine.reclaim.counters());
    assert_eq!(machine.reclaim.counters().deactivated, 128);
    for page in 0..128 {
        assert_eq!(machine.touch(page, None), Ok(9));
    }
    machine.end();
}

#[test]
fn shared_pages_lose_all_their_entries_and_share_again() {
    let machine = Machine::boot(1 << 12, 64, 8, 1);
    machine.touch(4, Some(44)).expect("memory");
    machine.share(4);
    machine.settle();
    machine.page_out(4);
    let (Entry::Swapped(one), Entry::Swapped(other)) = (machine.entry(4), machine.entry(5)) else {
        panic!("both entries name the slot")
    };
    assert!(one == other && machine.swap.count(one) == 2);
    machine.rest();
    squeeze(&machine);
    assert_eq!((machine.touch(5, None), machine.touch(4, None)), (Ok(44), Ok(44)));
    assert_eq!(machine.swap.counters().reads, 1, "the second finds it in the cache");
    let (Entry::Page { pfn: one, .. }, Entry::Page { pfn: other, .. }) =
        (machine.entry(4), machine.entry(5))
    else {
        panic!("both are there")
    };
    assert_eq!(one, other);
    machine.end();
}

#[test]
fn given_up_memory_goes_without_being_written_unless_it_was_used_again() {
    let machine = Machine::boot(1 << 12, 64, 8, 1);
    (0..4).for_each(|page| _ = machine.touch(page, Some(1 + page as u64)).expect("memory"));
    machine.settle();
    (0..4).for_each(|page| machine.give_up(page));
    machine.settle();
    machine.touch(2, Some(99)).expect("it is there");
    squeeze(&machine);
    let counters = machine.reclaim.counters();
    assert_eq!(counters.lazyfreed, 3);
    assert_eq!(machine.touch(1, None), Ok(0), "its content was dropped");
    assert_eq!(machine.touch(2, None), Ok(99));
    assert!(machine.swap.counters().writes <= 1, "only what was used again");
    machine.rest();
    machine.end();
}

#[test]
fn a_list_whose_share_of_a_round_is_less_than_a_page_is_left_alone() {
    let machine = Machine::boot(1 << 12, 64, 1_026, 1);
    for page in 0..1_025 {
        machine.touch(page, None).expect("memory");
        rest(&machine, page);
    }
    machine.settle();
    machine.give_up(1_024);
    machine.settle();
    assert_eq!(list(&machine, LruList::InactiveFile), 1);
    // 1024 pages have a share of 1 from the third round on, one page has it in the last.
    assert_eq!(machine.reclaim.direct(machine.scope(), NODE, 1, None), 32);
    assert_eq!(list(&machine, LruList::InactiveFile), 1);
    assert_eq!(list(&machine, LruList::InactiveAnon), 1_024 - 32);
    assert!(matches!(machine.entry(1_024), Entry::Page { .. }));
    machine.end();
}

#[test]
fn without_swap_only_given_up_memory_goes() {
    let machine = Machine::boot(1 << 12, 0, 8, 1);
    (0..4).for_each(|page| _ = machine.touch(page, Some(1 + page as u64)).expect("memory"));
    machine.settle();
    machine.give_up(1);
    machine.settle();
    rest(&machine, 0);
    assert_eq!(squeeze(&machine), 1);
    assert_eq!((machine.touch(0, None), machine.touch(1, None)), (Ok(1), Ok(0)));
    machine.end();
}

#[test]
fn locked_pages_and_pages_with_other_users_stay() {
    let machine = Machine::boot(1 << 12, 64, 8, 1);
    (0..4).for_each(|page| _ = machine.touch(page, Some(1 + page as u64)).expect("memory"));
    machine.settle();
    let hold = |page| machine.hold(page).expect("it is there");
    let (mlocked, locked, used) = (hold(0), hold(1), hold(2));
    machine.memory().mlock(mlocked);
    machine.memory().put(mlocked);
    machine.swap.lock_folio(machine.memory(), locked);
    squeeze(&machine);
    machine.rest();
    squeeze(&machine);
    assert!(matches!(machine.entry(0), Entry::Page { .. }));
    assert!(matches!(machine.entry(1), Entry::Page { .. }));
    assert!(matches!(machine.entry(3), Entry::Swapped(_)));
    assert_eq!(machine.swap.counters().writes, 1, "a page in use may still change");
    // The folio in use was unmapped, but its user still has it.
    assert_eq!(machine.touch(2, None), Ok(3));
    assert!(matches!(machine.entry(2), Entry::Page { pfn, .. } if pfn == used));
    machine.swap.unlock_folio(machine.memory(), locked);
    machine.memory().put(locked);
    machine.memory().put(used);
    machine.memory().munlock(mlocked);
    machine.end();
}
