//! Injects a failure into each allocation in turn: the operation returns an error, and nothing is
//! lost or half done.

use crate::address::machine::{Machine, POLICIES, range};
use mmscale_arch::{NodeId, Vpn};
use mmscale_mm::space::{
    Advice, FaultError, HugePages, LockWhat, MapRequest, MayMove, Place, Present, Prot,
    RemapRequest, Space, SpaceError, Vma,
};
use mmscale_stepped::{self as stepped, Stepped};
use std::sync::Arc;

/// Single pages, some of which are written to.
const SMALL: u64 = 512 * 8 - 300;
/// A huge page and its neighbours.
const HUGE: u64 = 512 * 20;

/// A page without page tables.
const FAR: u64 = 1 << 28;

/// The state that a failure may leave behind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Leaves {
    /// Nothing has changed.
    Unchanged,
    /// The contents are unchanged; VMAs may have changed.
    Contents,
    /// Only memory outside the operation's range is unchanged.
    Changed,
}

fn map(machine: &Machine, space: &Space<Stepped>, at: u64, pages: u64) {
    let request = MapRequest::new(pages).at(Place::Fixed(Vpn::new(at)));
    assert_eq!(space.mmap(machine.on(), request), Ok(Vpn::new(at)));
}

fn build(policy: usize) -> (Machine, Arc<Space<Stepped>>) {
    let machine = Machine::boot(1, |config| {
        config.lru = POLICIES[policy];
        config.space.huge = HugePages::Advised;
        config.swap.pages = 100;
    });
    let space = machine.space();
    map(&machine, &space, SMALL, 900);
    map(&machine, &space, HUGE, 1024);
    map(&machine, &space, FAR, 1);
    let huge = space.madvise(machine.on(), range(HUGE, 1024), Advice::HugePage);
    assert_eq!(huge, Ok(()));
    for page in (0..900).step_by(7).chain([900 + 5]) {
        let at = if page < 900 { SMALL + page } else { HUGE + 5 };
        machine.write(&space, at, 1000 + page).expect("there is memory");
    }
    machine.read(&space, SMALL + 1).expect("there is memory");
    (machine, space)
}

/// The content of every page.
fn contents(machine: &Machine, space: &Space<Stepped>) -> Vec<(u64, Result<u64, FaultError>)> {
    let read = |at| (at, machine.read(space, at));
    (SMALL..SMALL + 900).chain(HUGE..HUGE + 1024).map(read).collect()
}

/// Calls `f` with its first, second, ... allocation failing, until none fails. Returns the number
/// of failures.
fn with_each_failing<R>(
    leaves: Leaves,
    f: impl Fn(&Machine, &Space<Stepped>) -> Result<R, SpaceError>,
) -> u32 {
    each_failing_then(leaves, f, |_, _, _| ())
}

/// Like [`with_each_failing`]; calls `then` after the success.
fn each_failing_then<R>(
    leaves: Leaves,
    f: impl Fn(&Machine, &Space<Stepped>) -> Result<R, SpaceError>,
    then: impl Fn(&Machine, &Space<Stepped>, R),
) -> u32 {
    let mut felt = 0;
    for skip in 0.. {
        let (machine, space) = build(skip as usize % 3);
        // A fork that fails may leave its locks of the reverse map.
        let vmas = |space: &Space<Stepped>| -> Vec<Vma> {
            space.vmas().into_iter().map(|vma| Vma { anon: None, ..vma }).collect()
        };
        let before = (vmas(&space), contents(&machine, &space));
        stepped::fail_alloc_after(skip);
        let result = f(&machine, &space);
        let done = stepped::failures_left() > 0;
        stepped::fail_allocs(0);
        machine.finish_ios(usize::MAX);
        machine.check();
        let result = result.map(|made| then(&machine, &space, made));
        if let Err(why) = &result {
            felt += 1;
            let expected = matches!(why, SpaceError::NoMemory | SpaceError::Again);
            assert!(expected, "with {skip} allocations before the failure: {why}");
            if leaves == Leaves::Unchanged {
                assert_eq!(vmas(&space), before.0, "with {skip} allocations before the failure");
            }
            if leaves != Leaves::Changed {
                assert_eq!(contents(&machine, &space), before.1);
            }
            // With memory it succeeds.
            let again = f(&machine, &space).expect("there is memory");
            then(&machine, &space, again);
            machine.check();
        }
        machine.exit(space);
        machine.end();
        if done {
            assert!(result.is_ok());
            return felt;
        }
        assert!(skip < 5000, "it never ends");
    }
    unreachable!()
}

#[test]
fn a_part_of_a_vma_is_unmapped_or_changed_or_not() {
    let unmap = |at, pages| {
        with_each_failing(Leaves::Unchanged, move |machine, space| {
            space.munmap(machine.on(), range(at, pages))
        })
    };
    assert!(unmap(SMALL + 100, 50) > 0, "a VMA more");
    assert!(unmap(HUGE + 100, 50) > 0, "and a table for the rest of the huge page");
    assert!(unmap(SMALL + 300, 1) > 0);
    let protect = |at, pages| {
        with_each_failing(Leaves::Unchanged, move |machine, space| {
            space.mprotect(machine.on(), range(at, pages), Prot::READ)
        })
    };
    assert!(protect(SMALL + 100, 50) > 0);
    assert!(protect(HUGE + 100, 900) > 0);
    let advise = |at, pages, advice| {
        with_each_failing(Leaves::Unchanged, move |machine, space| {
            space.madvise(machine.on(), range(at, pages), advice)
        })
    };
    assert!(advise(HUGE + 100, 900, Advice::DontFork) > 0);
    assert!(advise(HUGE + 100, 900, Advice::NoHugePage) > 0);
    assert!(advise(HUGE + 100, 10, Advice::Cold) > 0);
    let bind = with_each_failing(Leaves::Unchanged, |machine, space| {
        let node = NodeId::new(1);
        space.mbind(machine.on(), range(HUGE + 100, 900), node, Present::Move)
    });
    assert!(bind > 0);
}

#[test]
fn a_part_of_a_huge_page_is_given_up_or_not() {
    let felt = with_each_failing(Leaves::Contents, |machine, space| {
        space.madvise(machine.on(), range(HUGE + 100, 10), Advice::DontNeed)
    });
    assert!(felt > 0);
}

#[test]
fn new_memory_is_there_or_comes_when_it_is_touched() {
    let request = MapRequest::new(30).at(Place::Fixed(Vpn::new(SMALL + 880))).populated();
    let map = |machine: &Machine, space: &Space<Stepped>| space.mmap(machine.on(), request);
    let felt = each_failing_then(Leaves::Unchanged, map, |machine, space, start| {
        let pages = (0..30).map(|page| machine.write(space, start.get() + page, 5));
        assert!(pages.into_iter().all(|done| done.is_ok()));
    });
    assert!(felt > 0);
}

#[test]
fn locking_says_what_could_not_be_had() {
    let felt = with_each_failing(Leaves::Contents, |machine, space| {
        space.mlock(machine.on(), range(SMALL + 100, 60), LockWhat::Everything)
    });
    assert!(felt > 50, "a failure for each page");
    let felt = with_each_failing(Leaves::Contents, |machine, space| {
        space.madvise(machine.on(), range(SMALL + 100, 60), Advice::PopulateWrite)
    });
    assert!(felt > 50);
}

#[test]
fn a_move_comes_about_or_everything_is_back() {
    let remap = |leaves, from, old_pages, new_pages, may_move| {
        let request = RemapRequest { from: Vpn::new(from), old_pages, new_pages, may_move };
        let remap = |machine: &Machine, space: &Space<Stepped>| space.mremap(machine.on(), request);
        each_failing_then(leaves, remap, |machine, space, start| {
            let page =
                (from..from + old_pages.min(new_pages)).find(|at| (at - SMALL).is_multiple_of(7));
            if let Some(page) = page.filter(|_| from < HUGE) {
                let there = machine.read(space, start.get() + (page - from));
                assert_eq!(there, Ok(1000 + (page - SMALL)));
            }
        })
    };
    let there = |at| MayMove::To(Vpn::new(at));
    assert!(remap(Leaves::Unchanged, SMALL, 700, 700, there(1 << 30)) > 3, "across tables");
    assert!(remap(Leaves::Unchanged, SMALL + 100, 600, 300, there((1 << 30) - 100)) > 3);
    assert!(remap(Leaves::Unchanged, SMALL, 900, 9000, MayMove::Anywhere) > 1);
    assert!(remap(Leaves::Unchanged, SMALL, 700, 700, MayMove::Leave) > 1);
    assert!(remap(Leaves::Unchanged, HUGE, 1024, 1024, there(1 << 30)) > 1, "huge");
    assert!(remap(Leaves::Unchanged, HUGE, 1024, 1024, there((1 << 30) + 3)) > 3, "in pieces");
    assert!(remap(Leaves::Unchanged, HUGE + 9, 1000, 400, there(1 << 30)) > 3, "a part");
    assert!(remap(Leaves::Changed, SMALL, 700, 700, there(HUGE + 100)) > 3, "onto others");
    assert!(remap(Leaves::Unchanged, HUGE, 1024, 100, MayMove::No) > 0, "shrinking");
}

#[test]
fn a_fork_comes_about_or_leaves_nothing() {
    let fork = |machine: &Machine, space: &Space<Stepped>| space.fork(machine.on());
    let felt = each_failing_then(Leaves::Unchanged, fork, |machine, space, child| {
        assert_eq!(contents(machine, &child), contents(machine, space));
        machine.exit(child);
    });
    assert!(felt > 6, "tables, and VMAs");
}

#[test]
fn collapsing_comes_about_or_not() {
    for at in [SMALL + 300, HUGE + 512] {
        let felt = with_each_failing(Leaves::Unchanged, move |machine, space| {
            space.madvise(machine.on(), range(at, 512), Advice::Collapse)
        });
        assert!(felt > 0, "{at:#x}");
    }
}

/// A write that gets no page changes nothing and can be retried.
#[test]
fn a_fault_without_memory_can_be_repeated() {
    for (at, least) in [(SMALL + 1, 1), (SMALL + 2, 1), (HUGE + 600, 0), (FAR, 4)] {
        let felt = with_each_failing(Leaves::Unchanged, move |machine, space| {
            machine.write(space, at, 5).map_err(|why| {
                assert_eq!(why, FaultError::Oom);
                SpaceError::NoMemory
            })
        });
        assert!(felt >= least, "{felt} failures at {at:#x}");
    }
}

#[test]
fn a_shared_page_is_copied_or_stays() {
    for at in [SMALL, HUGE + 5] {
        let (machine, space) = build(0);
        let child = space.fork(machine.on()).expect("there is memory");
        stepped::fail_allocs(1);
        assert_eq!(machine.write(&child, at, 5), Err(FaultError::Oom));
        machine.check();
        assert_eq!(machine.read(&child, at), machine.read(&space, at));
        assert_eq!(machine.write(&child, at, 5), Ok(()));
        assert_eq!((machine.read(&child, at), machine.read(&space, at).is_ok()), (Ok(5), true));
        assert_ne!(machine.read(&space, at), Ok(5));
        machine.exit(child);
        machine.exit(space);
        machine.end();
    }
}

/// A process is killed while it populates or forks.
#[test]
fn a_killed_process_stops() {
    let (machine, space) = build(0);
    space.kill();
    let on = machine.on();
    let locked = space.mlock(on, range(SMALL, 400), LockWhat::Everything);
    assert_eq!(locked, Err(SpaceError::Interrupted));
    let populated = space.madvise(on, range(SMALL, 400), Advice::PopulateWrite);
    assert_eq!(populated, Err(SpaceError::Interrupted));
    assert!(!machine.mincore(&space, SMALL + 300, 100).into_iter().all(|there| there));
    assert_eq!(space.fork(on).err(), Some(SpaceError::Interrupted));
    assert_eq!(machine.check().spaces, 1);
    let request = MapRequest::new(100).populated();
    let start = space.mmap(on, request).expect("mapping goes on");
    assert!(!machine.mincore(&space, start.get(), 100)[99]);
    machine.exit(space);
    machine.end();
}
