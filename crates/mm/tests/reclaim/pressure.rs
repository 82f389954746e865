//! Programs that use more pages than there is memory.

use crate::reclaim::machine::Machine;
use crate::reclaim::paged::{Entry, NODE};
use mmscale_mm::memcg::GroupId;
use mmscale_stepped as stepped;

const FRAMES: u32 = 2_048;
const PAGES: usize = 5_000;

fn stamp(page: usize) -> u64 {
    // Every eighth page is zeros.
    if page.is_multiple_of(8) { 0 } else { page as u64 }
}

fn fill(machine: &Machine) {
    for page in 0..PAGES {
        assert_eq!(machine.touch(page, Some(stamp(page))), Ok(stamp(page)));
    }
}

fn check(machine: &Machine) {
    for page in (0..PAGES).rev() {
        assert_eq!(machine.touch(page, None), Ok(stamp(page)), "page {page}");
    }
}

#[test]
fn a_program_may_be_larger_than_memory() {
    let machine = Machine::boot(FRAMES, 8_192, PAGES, 1);
    fill(&machine);
    check(&machine);
    check(&machine);
    let (swap, reclaim) = (machine.swap.counters(), machine.reclaim.counters());
    assert!(reclaim.direct_calls > 10 && reclaim.freed > 6_000, "{reclaim:?}");
    assert!(swap.zero_writes > 300 && swap.writes > 3_000 && swap.reads > 3_000, "{swap:?}");
    assert!(machine.mm.frames().reclaim_wakes() > 0);
    machine.audit();
    machine.end();
}

#[test]
fn nothing_is_lost_when_writes_fail() {
    let machine = Machine::boot(FRAMES, 8_192, PAGES, 1);
    for page in 0..PAGES {
        if page.is_multiple_of(50) {
            stepped::fail_ios(7);
        }
        assert_eq!(machine.touch(page, Some(stamp(page))), Ok(stamp(page)));
    }
    stepped::fail_ios(0);
    check(&machine);
    assert!(machine.swap.counters().write_errors > 50, "{:?}", machine.swap.counters());
    assert_eq!(machine.swap.counters().read_errors, 0);
    machine.end();
}

#[test]
fn a_page_that_cannot_be_read_is_there_once_the_device_works() {
    let machine = Machine::boot(FRAMES, 8_192, PAGES, 1);
    fill(&machine);
    machine.rest();
    let gone = (1..PAGES).find(|&page| {
        let Entry::Swapped(slot) = machine.entry(page) else { return false };
        stamp(page) != 0 && machine.swap.lookup(machine.memory(), slot).is_none()
    });
    let page = gone.expect("some page is out");
    stepped::fail_ios(1);
    assert!(machine.touch(page, None).is_err());
    assert_eq!(machine.touch(page, None), Ok(stamp(page)));
    assert_eq!(machine.swap.counters().read_errors, 1);
    machine.end();
}

#[test]
fn when_swap_is_full_what_is_in_memory_stays() {
    let machine = Machine::boot(FRAMES, 512, PAGES, 1);
    let pages = 1_800;
    for page in 0..pages {
        machine.touch(page, Some(1 + page as u64)).expect("memory");
    }
    machine.settle();
    for _ in 0..6 {
        machine.reclaim.direct(machine.scope(), NODE, 2_000, None);
        machine.rest();
    }
    assert_eq!(machine.swap.free_slots(), 0);
    let out = (0..pages).filter(|&page| matches!(machine.entry(page), Entry::Swapped(_))).count();
    assert_eq!(out, 512);
    for page in 0..pages {
        assert_eq!(machine.touch(page, None), Ok(1 + page as u64));
    }
    machine.audit();
    machine.end();
}

#[test]
fn a_group_at_its_limit_reclaims_its_own() {
    let machine = Machine::boot(1 << 13, 8_192, PAGES, 2);
    let group = GroupId::new(1);
    machine.memory().groups.set_limit(group, Some(500));
    for page in 0..1_500 {
        machine.touch(page, Some(1 + page as u64)).expect("memory");
        assert!(machine.memory().groups.usage(group) <= 500);
    }
    for page in 0..1_500 {
        assert_eq!(machine.touch(page, None), Ok(1 + page as u64));
    }
    assert!(machine.swap.counters().writes >= 1_000);
    machine.end();
}

#[test]
fn random_use_finds_every_page_as_it_was_left() {
    for seed in 0..4 {
        let machine = Machine::boot(FRAMES, 8_192, PAGES, 1);
        assert_eq!(crate::reclaim::storm::storm(&machine, 0, PAGES, 20_000, seed), 0);
        machine.audit();
        machine.end();
    }
}

#[test]
fn a_group_of_two_pages_still_gets_its_next_one() {
    let machine = Machine::boot(1 << 13, 8_192, 64, 2);
    let group = GroupId::new(1);
    machine.memory().groups.set_limit(group, Some(2));
    for round in 0..4 {
        for page in 0..40 {
            let holds = if round == 0 { 1 + page as u64 } else { 100 + page as u64 };
            let before = if machine.memory().groups.usage(group) >= 2 {
                let scope = machine.scope();
                machine.settle();
                // Immediately: a page that was accessed does not count as unreclaimable.
                machine.reclaim.direct(scope, NODE, 1, Some(group))
            } else {
                1
            };
            assert!(before > 0, "page {page} of round {round}");
            machine.touch(page, Some(holds)).expect("memory");
        }
    }
    machine.end();
}
