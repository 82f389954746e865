//! Kills a process at each step of an operation in turn. The operation returns an error or has
//! completed, its partial work is consistent, and nothing leaks.

use crate::address::machine::{Machine, POLICIES, range};
use mmscale_arch::Vpn;
use mmscale_frames::page_alloc::MemoryMap;
use mmscale_mm::space::{
    Advice, FaultError, HugePages, LockWhat, MapRequest, Place, Prot, Space, SpaceError,
};
use mmscale_stepped::{self as stepped, Stepped};
use std::sync::Arc;

/// Crosses the end of a page table.
const AT: u64 = 512 * 8 - 20;
const PAGES: u64 = 48;
/// Space for two huge pages.
const HUGE: u64 = 512 * 20;

fn map(machine: &Machine, space: &Space<Stepped>, at: u64, pages: u64) {
    let request = MapRequest::new(pages).at(Place::Fixed(Vpn::new(at)));
    assert_eq!(space.mmap(machine.on(), request), Ok(Vpn::new(at)));
}

/// Three adjacent VMAs; in the middle one, every third page is in memory.
fn build(policy: usize, huge: HugePages) -> (Machine, Arc<Space<Stepped>>) {
    let machine = Machine::boot(1, |config| {
        config.map = MemoryMap::nodes(2, 1 << 12);
        config.lru = POLICIES[policy];
        config.space.huge = huge;
        config.swap.pages = 100;
    });
    let space = machine.space();
    map(&machine, &space, AT, PAGES);
    let middle = range(AT + 16, 16);
    (0..16).step_by(3).for_each(|page| write(&machine, &space, AT + 16 + page));
    assert_eq!(space.madvise(machine.on(), middle, Advice::WipeOnFork), Ok(()));
    assert_eq!(space.madvise(machine.on(), middle, Advice::KeepOnFork), Ok(()));
    assert_eq!(space.mprotect(machine.on(), range(AT + 32, 16), Prot::READ), Ok(()));
    map(&machine, &space, HUGE, 1024);
    (machine, space)
}

fn write(machine: &Machine, space: &Space<Stepped>, at: u64) {
    machine.write(space, at, at).expect("there is memory");
}

/// How often the process was killed before the operation had an effect, in the middle, and after
/// its end.
#[derive(Default, Debug)]
struct Killed {
    early: u32,
    midway: u32,
    late: u32,
}

/// Kills the process at each step of `f` in turn. `f` returns whether it was interrupted; `done`
/// returns how much of its work is done, and how much that is in total.
fn at_each_step(
    huge: HugePages,
    f: impl Fn(&Machine, &Space<Stepped>) -> Result<(), SpaceError>,
    done: impl Fn(&Machine, &Space<Stepped>) -> (usize, usize),
) -> Killed {
    let mut killed = Killed::default();
    // Clearing and copying a huge page takes many similar steps.
    let stride = if huge == HugePages::Advised { 11 } else { 1 };
    for skip in (0..100_000).step_by(stride) {
        let (machine, space) = build(skip as usize % 3, huge);
        let victim = Arc::clone(&space);
        stepped::at_step(skip, move || victim.kill());
        let result = f(&machine, &space);
        if stepped::cancel_step() {
            assert_eq!(result, Ok(()), "no process was killed");
            machine.exit(space);
            machine.end();
            return killed;
        }
        assert!(matches!(result, Ok(()) | Err(SpaceError::Interrupted)), "step {skip}: {result:?}");
        assert_eq!(machine.check().spaces, 1, "step {skip}");
        match done(&machine, &space) {
            (0, _) => killed.early += 1,
            (some, all) if some < all => killed.midway += 1,
            _ => killed.late += 1,
        }
        // mincore does not fail; an access to a missing page does.
        let gone = machine.write(&space, HUGE + 1023, 1);
        assert!(matches!(gone, Ok(()) | Err(FaultError::Killed)), "step {skip}: {gone:?}");
        machine.exit(space);
        machine.end();
    }
    panic!("it never ends");
}

/// Pages in memory form a prefix of the range: none is skipped.
fn in_order(machine: &Machine, space: &Space<Stepped>, at: u64, pages: u64) -> (usize, usize) {
    let there = machine.mincore(space, at, pages);
    let some = there.iter().take_while(|&&there| there).count();
    (some, there.len())
}

#[test]
fn in_the_middle_of_populating() {
    const NEW: u64 = 512 * 30 - 9;
    let map = |machine: &Machine, space: &Space<Stepped>| {
        let request = MapRequest::new(20).at(Place::Fixed(Vpn::new(NEW))).populated();
        // It is mapped nevertheless: the signal ends the process, not the call.
        space.mmap(machine.on(), request).map(|at| assert_eq!(at, Vpn::new(NEW)))
    };
    let killed = at_each_step(HugePages::Never, map, |machine, space| {
        let (some, all) = in_order(machine, space, NEW, 20);
        let there = machine.mincore(space, NEW, 20).into_iter().filter(|&there| there).count();
        assert_eq!(there, some, "no page is left out");
        (some, all)
    });
    assert!(killed.midway > 19 * 5 && killed.late > 0, "{killed:?}");
}

/// A pending signal stops it before the first page.
#[test]
fn before_populating() {
    let (machine, space) = build(0, HugePages::Never);
    space.kill();
    let done = space.madvise(machine.on(), range(AT + 1, 2), Advice::PopulateWrite);
    assert_eq!(done, Err(SpaceError::Interrupted));
    assert_eq!(machine.mincore(&space, AT + 1, 2), [false, false]);
    machine.exit(space);
    machine.end();
}

#[test]
fn in_the_middle_of_locking() {
    let lock = |machine: &Machine, space: &Space<Stepped>| {
        space.mlock(machine.on(), range(AT, PAGES), LockWhat::Everything)
    };
    let killed =
        at_each_step(HugePages::Never, lock, |machine, space| in_order(machine, space, AT, PAGES));
    assert!(killed.midway > 40 * 5 && killed.late > 0, "{killed:?}");
    let populate = |machine: &Machine, space: &Space<Stepped>| {
        space.madvise(machine.on(), range(AT, 32), Advice::PopulateWrite)
    };
    let killed =
        at_each_step(HugePages::Never, populate, |machine, space| in_order(machine, space, AT, 32));
    assert!(killed.midway > 20 * 5, "{killed:?}");
}

#[test]
fn in_the_middle_of_populating_and_collapsing_huge_pages() {
    let populate = |machine: &Machine, space: &Space<Stepped>| {
        space.madvise(machine.on(), range(HUGE, 1024), Advice::PopulateWrite)
    };
    let there = |machine: &Machine, space: &Space<Stepped>| in_order(machine, space, HUGE, 1024);
    let killed = at_each_step(HugePages::Always, populate, there);
    assert!(killed.midway > 5, "{killed:?}");
    let collapse = |machine: &Machine, space: &Space<Stepped>| {
        space.madvise(machine.on(), range(HUGE, 1024), Advice::Collapse)
    };
    let killed = at_each_step(HugePages::Advised, collapse, there);
    assert!(killed.midway > 5, "{killed:?}");
}

/// Either there is a complete child, or there is none and nothing of it is left. The parent is
/// unchanged.
#[test]
fn in_the_middle_of_a_fork() {
    let (mut refused, mut made) = (0, 0);
    for skip in 0..100_000 {
        let (machine, space) = build(skip as usize % 3, HugePages::Never);
        [AT, AT + 1, AT + 15, HUGE].into_iter().for_each(|at| write(&machine, &space, at));
        let victim = Arc::clone(&space);
        stepped::at_step(skip, move || victim.kill());
        let child = space.fork(machine.on());
        let done = stepped::cancel_step();
        assert_eq!(machine.check().spaces, 1 + u64::from(child.is_ok()));
        assert_eq!(machine.read(&space, AT), Ok(AT));
        match child {
            Ok(child) => {
                made += 1;
                assert_eq!(child.vmas().len(), space.vmas().len());
                let pages = [AT, AT + 15, AT + 16, AT + 31, HUGE];
                pages.into_iter().for_each(|at| assert_eq!(machine.read(&child, at), Ok(at)));
                machine.write(&child, AT, 7).expect("the child is not killed");
                assert_eq!(machine.read(&space, AT), Ok(AT));
                machine.exit(child);
            }
            Err(why) => {
                refused += 1;
                assert_eq!(why, SpaceError::Interrupted);
                assert!(space.is_killed());
            }
        }
        machine.exit(space);
        machine.end();
        if done {
            assert!(refused > 20 && made > 10, "{refused} and {made}");
            return;
        }
    }
    panic!("it never ends");
}
