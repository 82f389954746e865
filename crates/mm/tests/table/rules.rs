//! The rules of page tables, one by one.

use crate::table::common::{World, ignore, map, page, range, zap};
use mmscale_arch::NodeId;
use mmscale_arch::{Order, PageSize, Pfn, VmaRange, Vpn};
use mmscale_frames::vmstat::NodeItem;
use mmscale_mm::pgtable::{
    CopyPte, Direction, Downgraded, Gather, Leaf, MemAccess, Miss, Pte, PteFlags, TableError,
};

#[test]
fn an_access_faults_until_the_page_is_mapped_and_marks_it() {
    let world = World::new(1);
    let (table, at, pfn) = (world.table(), Vpn::new(0x12345), world.take(Order::ZERO));
    let access = |how| table.access(world.on(), at, how, Pfn::index);
    assert_eq!(access(MemAccess::Read), Err(Miss::NotPresent(Pte::NONE)));
    let shown = Pte::page(pfn, PteFlags::empty());
    map(&world, &table, at.get(), shown);
    assert_eq!(access(MemAccess::Read), Ok(pfn.index()));
    let read = shown.with(PteFlags::ACCESSED);
    assert_eq!(table.lookup(at), Some((read, PageSize::Base)));
    assert_eq!(access(MemAccess::Write), Err(Miss::ReadOnly(read)));
    let mut ptes = table.lock_pte(world.on(), at).unwrap();
    ptes.update(at, |pte| pte.with(PteFlags::WRITE));
    drop(ptes);
    assert_eq!(access(MemAccess::Write), Ok(pfn.index()));
    let written = read.with(PteFlags::WRITE | PteFlags::DIRTY);
    assert_eq!(table.lookup(at), Some((written, PageSize::Base)));
    // A bit that was cleared is set again after the translation was flushed.
    table.lock_pte(world.on(), at).unwrap().clear(at, PteFlags::DIRTY);
    assert_eq!(access(MemAccess::Write), Ok(pfn.index()));
    assert!(!table.lookup(at).unwrap().0.flags().contains(PteFlags::DIRTY));
    let _ = table.flush(world.on(), mmscale_mm::tlb::Extent::All);
    assert_eq!(access(MemAccess::Write), Ok(pfn.index()));
    assert_eq!(table.lookup(at), Some((written, PageSize::Base)));
    world.frames.free_pages(pfn, Order::ZERO);
    assert!(table.lock_pte(world.on(), at).unwrap().take(at).is_present());
    world.end(table);
    assert_eq!(world.held(), 0);
}

#[test]
fn hidden_and_swapped_pages_fault_with_what_is_there() {
    let world = World::new(1);
    let (table, at) = (world.table(), Vpn::new(77));
    let access = || table.access(world.on(), at, MemAccess::Read, Pfn::index);
    let swapped = Pte::swap(2, 12345);
    map(&world, &table, 77, swapped);
    assert_eq!(access(), Err(Miss::NotPresent(swapped)));
    let hidden = Pte::page(Pfn::new(9), PteFlags::PROT_NONE);
    map(&world, &table, 77, hidden);
    assert_eq!(access(), Err(Miss::NotPresent(hidden)));
    table.lock_pte(world.on(), at).unwrap().update(at, |pte| pte.hidden(false));
    assert_eq!(access(), Ok(9));
}

#[test]
fn tables_are_made_on_the_way_and_counted_on_their_node() {
    let world = World::new(1);
    let table = world.table();
    let counted = || world.frames.stats().node_snapshot(NodeId::new(0), NodeItem::PageTable);
    assert_eq!((table.tables(), counted(), world.held()), (1, 1, 1));
    assert!(table.find_pte(world.on(), Vpn::new(5)).is_none());
    map(&world, &table, 5, page(Pfn::new(1)));
    map(&world, &table, 511, page(Pfn::new(2)));
    assert_eq!((table.tables(), counted()), (4, 4));
    map(&world, &table, 512, page(Pfn::new(3)));
    assert_eq!((table.tables(), counted()), (5, 5));
    map(&world, &table, 1 << 34, page(Pfn::new(4)));
    assert_eq!((table.tables(), counted(), world.held()), (8, 8, 8));
    world.end(table);
    assert_eq!((counted(), world.held()), (0, 0));
}

#[test]
fn leaves_come_in_order_from_either_end_and_skip_what_is_not_there() {
    let world = World::new(1);
    let table = world.table();
    let block = world.take(Order::PAGEBLOCK);
    let huge = Pte::page(block, PteFlags::HUGE);
    let pages = [3, 600, 1 << 18, (1 << 27) + 5];
    pages.iter().for_each(|&at| map(&world, &table, at, page(Pfn::new(1))));
    table.lock_pmd(world.on(), Vpn::new(1024)).unwrap().fill(Vpn::new(1024), huge);
    let seen = |direction| {
        let all = table.leaves(world.on(), range(1, 1 << 30), direction);
        all.map(|leaf| (leaf.range().start().get(), matches!(leaf, Leaf::Huge(..)))).collect()
    };
    let forward: Vec<(u64, bool)> = seen(Direction::Forward);
    let far = 1 << 27;
    let wanted = [(1, false), (512, false), (1024, true), (1 << 18, false), (far, false)];
    assert_eq!(forward, wanted);
    let mut backward: Vec<(u64, bool)> = seen(Direction::Reverse);
    backward.reverse();
    assert_eq!(backward, wanted);
    let inside = table.leaves(world.on(), range(600, 430), Direction::Reverse);
    let parts: Vec<_> = inside.map(|leaf| leaf.range()).collect();
    assert_eq!(parts, [range(1024, 6), range(600, 424)]);
}

#[test]
fn a_huge_page_is_found_split_and_stays_what_it_was() {
    let world = World::new(1);
    let table = world.table();
    let block = world.take(Order::PAGEBLOCK);
    let (first, inside) = (Vpn::new(4 * 512), Vpn::new(4 * 512 + 100));
    let huge = Pte::page(block, PteFlags::HUGE | PteFlags::WRITE);
    table.lock_pmd(world.on(), first).unwrap().fill(first, huge);
    let access = |at| table.access(world.on(), at, MemAccess::Write, |pfn| pfn);
    assert_eq!(access(inside), Ok(block.offset(100)));
    assert_eq!(table.lock_pte(world.on(), inside).err(), Some(TableError::Huge));
    let marked = huge.with(PteFlags::ACCESSED | PteFlags::DIRTY);
    assert_eq!(table.lookup(inside), Some((marked, PageSize::Huge)));
    assert_eq!(table.split_huge(world.on(), inside), Ok(true));
    assert_eq!(table.split_huge(world.on(), inside), Ok(false));
    assert_eq!(table.lock_pmd(world.on(), first).err(), Some(TableError::Table));
    let (pte, size) = table.lookup(inside).unwrap();
    assert_eq!((pte.pfn(), size), (Some(block.offset(100)), PageSize::Base));
    assert!(pte.flags().contains(PteFlags::DIRTY | PteFlags::WRITE) && !pte.is_huge());
    let audit = table.verify(world.on()).unwrap();
    assert_eq!((audit.pages, audit.huge, audit.tables), (512, 0, [1, 1, 1, 1]));
    assert_eq!(access(Vpn::new(4 * 512 + 511)), Ok(block.offset(511)));
}

#[test]
fn a_copy_shares_pages_and_takes_writing_from_both() {
    let world = World::new(1);
    let (from, to, held) = (world.table(), world.table(), world.take(Order::MAX));
    (0..100).for_each(|at| map(&world, &from, 500 + at, page(held.offset(at as usize))));
    map(&world, &from, 700, Pte::swap(0, 9));
    let block = world.take(Order::PAGEBLOCK);
    let huge = Pte::page(block, PteFlags::HUGE | PteFlags::WRITE);
    from.lock_pmd(world.on(), Vpn::new(1024)).unwrap().fill(Vpn::new(1024), huge);
    let access = |how| from.access(world.on(), Vpn::new(505), how, Pfn::index);
    assert_eq!(access(MemAccess::Write), Ok(held.index() + 5));
    let mut downgraded = Downgraded::default();
    let decide = |at: Vpn, _, pte: Pte| {
        Ok::<_, ()>(match at.get() {
            510 => CopyPte::Skip,
            700 => CopyPte::Copy(pte),
            _ => CopyPte::Share(pte),
        })
    };
    let copied = from.copy_range(world.on(), &to, range(500, 2000), &mut downgraded, decide);
    assert_eq!(copied, Ok(()));
    downgraded.flush(world.on(), &from);
    // The CPU's old write permission is gone as well.
    assert!(matches!(access(MemAccess::Write), Err(Miss::ReadOnly(_))));
    let count = |table: &mmscale_mm::pgtable::PageTable<_>| {
        let audit = table.verify(world.on()).unwrap();
        (audit.pages, audit.huge, audit.swapped)
    };
    assert_eq!((count(&from), count(&to)), ((100, 1, 1), (99, 1, 1)));
    let writes = |pte: Pte| pte.flags().contains(PteFlags::WRITE);
    let (pte, _) = to.lookup(Vpn::new(505)).unwrap();
    assert_eq!((pte.pfn(), writes(pte)), (Some(held.offset(5)), false));
    assert!(!writes(to.lookup(Vpn::new(1030)).unwrap().0) && to.lookup(Vpn::new(510)).is_none());
}

#[test]
fn moving_takes_whole_tables_where_both_ends_are_aligned() {
    let world = World::new(1);
    let (table, held) = (world.table(), world.take(Order::MAX));
    let frame = |at: u64| held.offset(at as usize);
    (0..1024).for_each(|at| map(&world, &table, 1024 + at, page(frame(at))));
    let before = table.tables();
    let to = Vpn::new(512 * 700);
    assert_eq!(
        table.access(world.on(), Vpn::new(1500), MemAccess::Read, |pfn| pfn),
        Ok(frame(476))
    );
    assert_eq!(table.move_range(world.on(), range(1024, 1024), to), Ok(()));
    assert_eq!(table.tables(), before + 1, "one upper table, none of the lowest level");
    let gone = table.access(world.on(), Vpn::new(1500), MemAccess::Read, Pfn::index);
    assert_eq!(gone, Err(Miss::NotPresent(Pte::NONE)));
    let there = table.access(world.on(), to.offset(476), MemAccess::Read, |pfn| pfn);
    assert_eq!(there, Ok(frame(476)));
    // To an unaligned address: page by page.
    let odd = Vpn::new(512 * 300 + 7);
    let moved = VmaRange::with_pages(to, 1024).unwrap();
    assert_eq!(table.move_range(world.on(), moved, odd), Ok(()));
    let pfn = |at: u64| table.lookup(odd.offset(at)).and_then(|(pte, _)| pte.pfn());
    assert!((0..1024).all(|at| pfn(at) == Some(frame(at))));
    assert_eq!(table.verify(world.on()).unwrap().pages, 1024);
}

#[test]
fn tables_shared_with_a_neighbour_stay() {
    let world = World::new(1);
    let (table, held) = (world.table(), world.take(Order::ZERO));
    map(&world, &table, 510, page(held));
    map(&world, &table, 1500, page(held));
    // The VMA of pages 600 to 1400 is unmapped; its neighbours end at 511 and begin at 1500.
    map(&world, &table, 600, Pte::swap(0, 1));
    map(&world, &table, 1400, Pte::swap(0, 1));
    let before = table.tables();
    zap(&world, &table, range(600, 801), Direction::Forward, &mut ignore);
    let mut gather = Gather::new(&table);
    let bounds = VmaRange::new(Vpn::new(511), Vpn::new(1500)).unwrap();
    table.free_tables(world.on(), &mut gather, &mut ignore, range(600, 801), bounds);
    gather.finish(world.on(), &mut ignore);
    assert_eq!(before - table.tables(), 1, "only the table of pages 512 to 1023");
    assert_eq!(table.verify(world.on()).unwrap().pages, 2);
    world.end(table);
}
