//! Injects a failure into each allocation of a table: existing tables stay sound, and nothing is
//! lost.

use crate::table::common::{World, map, page, range};
use mmscale_arch::{Order, Vpn};
use mmscale_frames::page_alloc::AllocError;
use mmscale_mm::pgtable::{CopyError, CopyPte, Downgraded, PageTable, Pte, PteFlags, TableError};
use mmscale_stepped::{self as stepped, Stepped};

const FAILED: TableError = TableError::NoMemory(AllocError::Injected);

/// Calls `f` with its first, second, ... allocation failing, until none fails; calls `undo` after
/// each failure. Returns the number of failures.
fn with_each_failing<R>(
    world: &World,
    tables: &[&PageTable<Stepped>],
    others: u64,
    mut f: impl FnMut() -> Result<R, TableError>,
) -> u32 {
    for skip in 0.. {
        stepped::fail_alloc_after(skip);
        let result = f();
        stepped::fail_allocs(0);
        let in_tables: u64 = tables.iter().map(|table| u64::from(table.tables())).sum();
        assert!(tables.iter().all(|table| table.verify(world.on()).is_ok()));
        assert_eq!(world.held(), in_tables + others, "with {skip} allocations before the failure");
        match result {
            Err(why) => assert_eq!(why, FAILED),
            Ok(_) => return skip,
        }
    }
    unreachable!()
}

#[test]
fn an_address_space_that_gets_no_root_leaves_nothing() {
    let world = World::new(1);
    stepped::fail_allocs(1);
    assert_eq!(PageTable::new(world.on()).err(), Some(FAILED));
    assert_eq!(world.held(), 0);
}

#[test]
fn a_walk_that_fails_at_any_level_can_be_repeated() {
    let world = World::new(1);
    let table = world.table();
    let mut at = 0;
    // Tables that were made before a failure stay: each attempt uses another address.
    let failures = with_each_failing(&world, &[&table], 0, || {
        at += 1 << 28;
        table.lock_pte(world.on(), Vpn::new(at)).map(drop)
    });
    assert_eq!(failures, 3);
}

#[test]
fn a_huge_page_that_cannot_be_split_stays_huge() {
    let world = World::new(1);
    let table = world.table();
    let block = world.take(Order::PAGEBLOCK);
    let huge = Pte::page(block, PteFlags::HUGE);
    table.lock_pmd(world.on(), Vpn::new(512)).unwrap().fill(Vpn::new(512), huge);
    stepped::fail_allocs(1);
    assert_eq!(table.split_huge(world.on(), Vpn::new(600)), Err(FAILED));
    assert_eq!(table.lookup(Vpn::new(600)).map(|(pte, _)| pte), Some(huge));
    let failures =
        with_each_failing(&world, &[&table], 512, || table.split_huge(world.on(), Vpn::new(600)));
    assert_eq!(failures, 1);
}

#[test]
fn a_copy_that_fails_has_a_reference_for_each_entry_it_made() {
    let world = World::new(1);
    let (from, block) = (world.table(), world.take(Order::MAX));
    for at in [5, 700, (1 << 18) + 3, (1 << 27) + 3] {
        map(&world, &from, at, page(block.offset(at as usize % 999)));
    }
    for skip in 0.. {
        let to = world.table();
        let (mut downgraded, mut references) = (Downgraded::default(), 0);
        stepped::fail_alloc_after(skip);
        let all = range(0, 1 << 30);
        let copied = from.copy_range(world.on(), &to, all, &mut downgraded, |_, _, pte| {
            references += 1;
            Ok::<_, ()>(CopyPte::Share(pte))
        });
        stepped::fail_allocs(0);
        downgraded.flush(world.on(), &from);
        let audit = to.verify(world.on()).expect("it is sound");
        assert_eq!(audit.pages, references);
        assert_eq!(world.held(), 1024 + u64::from(from.tables() + to.tables()));
        let done = copied.is_ok();
        assert!(done || copied == Err(CopyError::Table(FAILED)));
        world.end(to);
        if done {
            assert_eq!((skip, references), (9, 4));
            return;
        }
    }
}

#[test]
fn a_move_that_fails_says_how_far_it_came_and_can_be_moved_back() {
    let world = World::new(1);
    let (table, block) = (world.table(), world.take(Order::MAX));
    let pages: Vec<u64> = (0..40).map(|at| at * 37).collect();
    let frame = |at: u64| block.offset(at as usize / 37);
    pages.iter().for_each(|&at| map(&world, &table, at, page(frame(at))));
    let (from, to) = (range(0, 1500), Vpn::new((1 << 20) - 100));
    for skip in 0.. {
        stepped::fail_alloc_after(skip);
        let moved = table.move_range(world.on(), from, to);
        stepped::fail_allocs(0);
        assert_eq!(table.verify(world.on()).expect("it is sound").pages, 40);
        assert_eq!(world.held(), 1024 + u64::from(table.tables()));
        let Err(stopped) = moved else { break };
        assert_eq!(stopped.why, FAILED);
        let there = |at: u64| {
            let page = if at < stopped.moved { to.offset(at) } else { Vpn::new(at) };
            table.lookup(page).and_then(|(pte, _)| pte.pfn())
        };
        assert!(pages.iter().all(|&at| there(at) == Some(frame(at))));
        if stopped.moved > 0 {
            let back = range(to.get(), stopped.moved);
            assert_eq!(table.move_range(world.on(), back, Vpn::new(0)), Ok(()));
        }
    }
    let there = |at: u64| table.lookup(to.offset(at)).and_then(|(pte, _)| pte.pfn());
    assert!(pages.iter().all(|&at| there(at) == Some(frame(at))));
}
