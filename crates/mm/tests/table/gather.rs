//! Frames in a gather, on the way to being freed.

use crate::table::common::{World, ignore, map, page, range, zap};
use mmscale_arch::{Op, PageSize, Pfn, Vpn};
use mmscale_mm::pgtable::{Direction, Gather, Gathered, MemAccess, Room};
use mmscale_mm::tlb::Flushed;
use mmscale_stepped as stepped;

#[test]
fn frames_are_handed_on_once_and_only_when_no_cpu_translates_to_them() {
    let world = World::new(1);
    let table = world.table();
    for at in 0..100 {
        map(&world, &table, 1000 + at, page(Pfn::new(at as usize)));
        let access = table.access(world.on(), Vpn::new(1000 + at), MemAccess::Write, |_| ());
        assert_eq!(access, Ok(()));
    }
    assert_eq!(stepped::tlb_len(0), 100);
    let mut got = Vec::new();
    let mut sink = |proof: &Flushed, frames: &[Gathered]| {
        assert_eq!((stepped::tlb_len(0), proof.asid()), (0, table.asid()));
        got.extend(frames.iter().map(|frame| (frame.pfn.index(), frame.count)));
    };
    zap(&world, &table, range(0, 2000), Direction::Forward, &mut sink);
    assert_eq!(got, (0..100).map(|pfn| (pfn, 1)).collect::<Vec<_>>());
}

#[test]
fn a_gather_has_room_for_8_frames_and_19_pages_of_510() {
    let world = World::new(1);
    let table = world.table();
    let mut handed_on = 0;
    let mut sink = |_: &Flushed, frames: &[Gathered]| handed_on += frames.len();
    let mut fill = |gather: &mut Gather<'_, _>| {
        let mut added = 1;
        while gather.add(world.on(), Pfn::new(added), 1) == Room::More {
            added += 1;
        }
        gather.flush(world.on(), &mut sink);
        added
    };
    let mut gather = Gather::new(&table);
    gather.note(Vpn::new(0), PageSize::Base);
    assert_eq!(fill(&mut gather), 8 + 19 * 510);
    gather.finish(world.on(), &mut ignore);
    assert_eq!(world.held(), 1, "its pages go with it");
    let mut gather = Gather::new(&table);
    stepped::fail_allocs(1);
    assert_eq!(fill(&mut gather), 8, "no memory for more");
    gather.finish(world.on(), &mut ignore);
    assert_eq!(handed_on, 8 + 19 * 510 + 8);
}

#[test]
fn a_wide_gather_takes_no_page_for_32_frames() {
    let world = World::new(1);
    let table = world.table();
    let mut gather = Gather::new(&table);
    gather.widen();
    stepped::fail_allocs(1);
    for nth in 0..31 {
        assert_eq!(gather.is_short_of(7), nth >= 25, "{nth}");
        assert_eq!(gather.add(world.on(), Pfn::new(nth), 1), Room::More);
    }
    assert_eq!(gather.add(world.on(), Pfn::new(31), 1), Room::Full, "no memory for more");
    let mut got = Vec::new();
    gather.note(Vpn::new(0), PageSize::Huge);
    gather.finish(world.on(), &mut |_: &Flushed, frames: &[Gathered]| {
        got.extend(frames.iter().map(|frame| frame.pfn.index()));
    });
    assert_eq!(got, (0..32).collect::<Vec<_>>());
}

#[test]
fn a_gather_knows_whether_all_was_huge() {
    let world = World::new(1);
    let table = world.table();
    let mut gather = Gather::new(&table);
    assert!(!gather.has_only_huge(), "there is nothing");
    gather.note(Vpn::new(512), PageSize::Huge);
    assert!(gather.has_only_huge());
    gather.note(Vpn::new(3), PageSize::Base);
    assert!(!gather.has_only_huge());
    gather.flush(world.on(), &mut ignore);
    gather.note(Vpn::new(512), PageSize::Huge);
    assert!(gather.has_only_huge());
    gather.finish(world.on(), &mut ignore);
}

#[test]
fn up_to_33_pages_are_flushed_one_by_one_and_huge_ones_count_as_one() {
    let world = World::new(1);
    let table = world.table();
    let flushes = || (stepped::work_count(Op::TlbFlushPage), stepped::work_count(Op::TlbFlushAll));
    let unmap = |pages: u64, size: PageSize| {
        let _ = table.access(world.on(), Vpn::new(0), MemAccess::Read, |_| ());
        let before = flushes();
        let mut gather = Gather::new(&table);
        gather.note(Vpn::new(512), size);
        gather.note(Vpn::new(512).offset((pages - 1) * size.pages()), size);
        gather.finish(world.on(), &mut ignore);
        (flushes().0 - before.0, flushes().1 - before.1)
    };
    unmap(1, PageSize::Base);
    assert_eq!(unmap(1, PageSize::Base), (1, 0));
    assert_eq!(unmap(33, PageSize::Base), (33, 0));
    assert_eq!(unmap(34, PageSize::Base), (0, 1));
    assert_eq!(unmap(33, PageSize::Huge), (33, 0));
    assert_eq!(unmap(34, PageSize::Huge), (0, 1));
}

#[test]
fn a_gather_that_ends_during_another_flushes_for_both() {
    let world = World::new(1);
    let table = world.table();
    map(&world, &table, 7, page(Pfn::new(1)));
    assert_eq!(table.access(world.on(), Vpn::new(7), MemAccess::Read, Pfn::index), Ok(1));
    let mut first = Gather::new(&table);
    assert!(table.lock_pte(world.on(), Vpn::new(7)).unwrap().take(Vpn::new(7)).is_present());
    first.note(Vpn::new(7), PageSize::Base);
    assert_eq!(first.add(world.on(), Pfn::new(1), 1), Room::More);
    // The second gather finds nothing mapped, and its caller may rely on that.
    Gather::new(&table).finish(world.on(), &mut ignore);
    assert_eq!(stepped::tlb_len(0), 0);
    first.finish(world.on(), &mut ignore);
}
