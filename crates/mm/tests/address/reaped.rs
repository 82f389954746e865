//! Another task than the process unmaps pages of an address space.

use crate::address::machine::{Machine, POLICIES, range};
use mmscale_arch::{LockClass, NodeId, Op, Vpn};
use mmscale_frames::page_alloc::MemoryMap;
use mmscale_frames::vmstat::NodeItem;
use mmscale_mm::space::{
    Advice, ExitPolicy, FaultError, HugePages, LockWhat, MapRequest, Place, Prot, ReapLock, Reaped,
    Space, SpaceError,
};
use mmscale_stepped::{self as stepped, Stepped};
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

const EXITS: [ExitPolicy; ExitPolicy::ALL.len()] = ExitPolicy::ALL;
/// Crosses the end of a page table.
const AT: u64 = 512 * 8 - 20;
/// Space for a huge page.
const HUGE: u64 = 512 * 20;

fn map(machine: &Machine, space: &Space<Stepped>, at: u64, pages: u64) {
    let request = MapRequest::new(pages).at(Place::Fixed(Vpn::new(at)));
    assert_eq!(space.mmap(machine.on(), request), Ok(Vpn::new(at)));
}

/// Single pages in two VMAs, some of them locked, one in swap, one zero page, and a huge page.
fn build(exit: ExitPolicy, nth: usize) -> (Machine, Arc<Space<Stepped>>) {
    let machine = Machine::boot(1, |config| {
        config.lru = POLICIES[nth % 3];
        config.space.huge = HugePages::Advised;
        config.space.exit = exit;
        config.swap.pages = 100;
    });
    let space = machine.space();
    map(&machine, &space, AT, 60);
    (0..60).for_each(|page| machine.write(&space, AT + page, 1).expect("there is memory"));
    let on = machine.on();
    assert_eq!(space.mlock(on, range(AT + 10, 10), LockWhat::Everything), Ok(()));
    assert_eq!(space.madvise(on, range(AT + 40, 1), Advice::PageOut), Ok(()));
    map(&machine, &space, AT + 100, 10);
    assert_eq!(machine.read(&space, AT + 105), Ok(0));
    map(&machine, &space, HUGE, 512);
    assert_eq!(space.madvise(on, range(HUGE, 512), Advice::HugePage), Ok(()));
    machine.write(&space, HUGE + 3, 1).expect("there is memory");
    machine.finish_ios(usize::MAX);
    (machine, space)
}

#[test]
fn a_reaper_takes_every_page_and_leaves_the_vmas_to_the_exit() {
    for (nth, exit) in EXITS.into_iter().cycle().take(6).enumerate() {
        let (machine, space) = build(exit, nth);
        let before = machine.check();
        assert!(before.mapped >= 59 && before.swapped.len() == 1, "{before:?}");
        let vmas = space.vmas();
        space.kill();
        assert_eq!((space.is_unstable(), space.is_skipped()), (false, false));
        assert_eq!(space.reap(machine.on(), ReapLock::Wait), Reaped::Done);
        assert_eq!((space.is_unstable(), space.is_skipped()), (true, false));
        let after = machine.check();
        assert_eq!((after.mapped, after.swapped.len()), (0, 0));
        assert_eq!(space.vmas(), vmas);
        // A second reap finds no pages, but `SKIP` is not set.
        assert_eq!(space.reap(machine.on(), ReapLock::Try), Reaped::Done);
        space.skip();
        assert_eq!(space.reap(machine.on(), ReapLock::Try), Reaped::Skipped);
        assert_eq!(space.reap(machine.on(), ReapLock::Wait), Reaped::Skipped);
        machine.exit(space);
        machine.end();
    }
}

/// The huge pages of a claim are unmapped under one acquisition of their table's lock, and freed to
/// the zone together.
#[test]
fn huge_pages_that_are_claimed_together_take_each_lock_once() {
    const COUNT: u64 = 40;
    let taken = |exit| {
        let machine = Machine::boot(1, |config| {
            config.map = MemoryMap::nodes(2, 1 << 15);
            config.space.huge = HugePages::Always;
            config.space.exit = exit;
        });
        let space = machine.space();
        map(&machine, &space, HUGE, COUNT * 512);
        (0..COUNT).for_each(|nth| machine.write(&space, HUGE + nth * 512, 1).expect("memory"));
        let locks = || [LockClass::Pmd, LockClass::Zone].map(stepped::lock_acquisitions);
        let before = locks();
        assert_eq!(space.reap(machine.on(), ReapLock::Wait), Reaped::Done);
        let after = locks();
        assert_eq!(machine.check().mapped, 0);
        machine.exit(space);
        machine.end();
        [after[0] - before[0], after[1] - before[1]]
    };
    let [tables, zones] = taken(ExitPolicy::Stock);
    assert!(tables >= COUNT && zones + 5 >= COUNT, "{tables} and {zones}");
    let [tables, zones] = taken(ExitPolicy::Claims);
    // One claim per eight huge pages, and at least 25 freed together.
    assert!((8..25).contains(&tables) && zones <= 4, "{tables} and {zones}");
}

/// `free_pgtables`, `tlb_finish_mmu`, then the VMAs: no frame waits for bookkeeping.
#[test]
fn an_exit_frees_every_frame_and_table_before_it_removes_a_vma() {
    for (nth, exit) in EXITS.into_iter().enumerate() {
        let (machine, space) = build(exit, nth);
        let seen = Rc::new(Cell::new(None));
        let (note, mm) = (Rc::clone(&seen), Rc::clone(&machine.mm));
        stepped::at_op(Op::VmaCopy, move || {
            let mapped = [NodeItem::AnonMapped, NodeItem::PageTable]
                .map(|item| mm.frames().stats().node_snapshot(NodeId::new(0), item));
            note.set(Some((mm.memory().folios.iter().count(), stepped::table_count(), mapped)));
        });
        machine.exit(space);
        // The root of the tables is left; with `stock` and `posted` also a folio in a batch.
        let left = seen.get().expect("the exit removes VMAs");
        let batched = usize::from(exit != ExitPolicy::Claims);
        assert_eq!(left, (batched, 1, [0, 1]), "{exit:?}");
        machine.end();
    }
}

#[test]
fn after_an_exit_there_is_nothing_to_reap() {
    for exit in EXITS {
        let (machine, space) = build(exit, 0);
        space.kill();
        space.exit(machine.on());
        assert!(space.is_skipped() && !space.is_unstable());
        assert_eq!(space.reap(machine.on(), ReapLock::Wait), Reaped::Skipped);
        drop(space);
        machine.end();
    }
}

/// Killed threads may still run: they must not see zeros where they had data.
#[test]
fn where_pages_were_reaped_none_are_made() {
    for exit in EXITS {
        let (machine, space) = build(exit, 1);
        let on = machine.on();
        assert_eq!(space.reap(on, ReapLock::Wait), Reaped::Done);
        for at in [AT, AT + 10, AT + 40, AT + 105, HUGE, HUGE + 511] {
            assert_eq!(machine.read(&space, at), Err(FaultError::Bus), "{at}");
            assert_eq!(machine.write(&space, at, 2), Err(FaultError::Bus), "{at}");
        }
        let populate = space.madvise(on, range(AT, 20), Advice::PopulateWrite);
        assert_eq!(populate, Err(SpaceError::Fault));
        assert_eq!(machine.read(&space, AT + 200), Err(FaultError::Segv));
        assert_eq!(space.mprotect(on, range(AT, 60), Prot::READ), Ok(()));
        assert_eq!(machine.write(&space, AT, 2), Err(FaultError::Segv));
        assert_eq!(machine.check().mapped, 0);
        machine.exit(space);
        machine.end();
    }
}

/// A child shares pages with its parent: they keep their content.
#[test]
fn a_reaper_leaves_what_others_share() {
    for exit in EXITS {
        let (machine, space) = build(exit, 2);
        let child = space.fork(machine.on()).expect("there is memory");
        assert_eq!(space.reap(machine.on(), ReapLock::Wait), Reaped::Done);
        machine.exit(space);
        for page in [0, 19, 20, 40, 59] {
            assert_eq!(machine.read(&child, AT + page), Ok(1), "{page}");
        }
        assert_eq!(machine.read(&child, HUGE + 3), Ok(1));
        assert!(machine.node_of(&child, AT) == NodeId::new(0));
        machine.exit(child);
        machine.end();
    }
}
