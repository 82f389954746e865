//! Which translations a CPU must flush, and when.

use crate::table::common::{World, map, page};
use mmscale_arch::{Op, PageSize, Pfn, VmaRange, Vpn};
use mmscale_mm::pgtable::{MemAccess, Miss, PageTable, Pte};
use mmscale_mm::tlb::Extent;
use mmscale_stepped::{self as stepped, Stepped};

const AT: Vpn = Vpn::new(5);

fn read(world: &World, table: &PageTable<Stepped>) -> Result<usize, Miss> {
    table.access(world.on(), AT, MemAccess::Read, Pfn::index)
}

fn unmap(world: &World, table: &PageTable<Stepped>) {
    assert!(table.lock_pte(world.on(), AT).unwrap().take(AT).is_present());
}

fn one(at: Vpn) -> Extent {
    Extent::Range(VmaRange::with_pages(at, 1).unwrap(), PageSize::Base)
}

#[test]
fn a_translation_is_used_until_it_is_flushed() {
    let world = World::new(1);
    let table = world.table();
    map(&world, &table, AT.get(), page(Pfn::new(3)));
    assert_eq!(read(&world, &table), Ok(3));
    let walks = stepped::work_count(Op::PageWalk);
    unmap(&world, &table);
    assert_eq!((read(&world, &table), stepped::work_count(Op::PageWalk)), (Ok(3), walks));
    let _ = table.flush(world.on(), one(AT.offset(1)));
    assert_eq!(read(&world, &table), Ok(3), "another page was flushed");
    let _ = table.flush(world.on(), one(AT));
    assert_eq!(read(&world, &table), Err(Miss::NotPresent(Pte::NONE)));
}

#[test]
fn what_was_flushed_while_another_was_loaded_is_gone_when_it_comes_back() {
    let world = World::new(1);
    let (table, other) = (world.table(), world.table());
    map(&world, &table, AT.get(), page(Pfn::new(3)));
    assert_eq!(read(&world, &table), Ok(3));
    let _ = read(&world, &other);
    unmap(&world, &table);
    let _ = table.flush(world.on(), one(AT));
    assert_eq!(stepped::tlb_len(0), 1, "it is not in use: it may stay");
    assert_eq!(read(&world, &table), Err(Miss::NotPresent(Pte::NONE)));
}

#[test]
fn translations_survive_a_switch_away_and_back_among_few_but_not_among_many() {
    let world = World::new(1);
    let tables: Vec<_> = (0..9).map(|_| world.table()).collect();
    map(&world, &tables[0], AT.get(), page(Pfn::new(3)));
    assert_eq!(read(&world, &tables[0]), Ok(3));
    let walks = || stepped::work_count(Op::PageWalk);
    let around = |others: &[PageTable<Stepped>]| {
        assert!(others.iter().all(|other| read(&world, other).is_err()));
        let before = walks();
        assert_eq!(read(&world, &tables[0]), Ok(3));
        walks() - before
    };
    assert_eq!(around(&tables[1..4]), 0);
    assert_eq!(around(&tables[1..9]), 1);
}

#[test]
fn an_idle_cpu_is_left_alone_and_looks_when_it_comes_back() {
    let world = World::new(2);
    let table = world.table();
    map(&world, &table, AT.get(), page(Pfn::new(3)));
    stepped::set_cpu(1);
    assert_eq!(read(&world, &table), Ok(3));
    stepped::interrupt(|| world.tlb.enter_lazy());
    stepped::set_cpu(0);
    unmap(&world, &table);
    let _ = table.flush(world.on(), one(AT));
    assert_eq!(stepped::take_ipis(), []);
    stepped::set_cpu(1);
    assert_eq!(read(&world, &table), Err(Miss::NotPresent(Pte::NONE)));
    assert_eq!(world.tlb.cpus_of(table.asid()), 1);
}

#[test]
fn a_cpu_that_died_knows_nothing_when_it_is_back() {
    let world = World::new(2);
    let (table, other) = (world.table(), world.table());
    map(&world, &table, AT.get(), page(Pfn::new(3)));
    stepped::set_cpu(1);
    assert_eq!(read(&world, &table), Ok(3));
    let _ = read(&world, &other);
    stepped::interrupt(|| world.tlb.enter_lazy());
    stepped::set_cpu(0);
    world.tlb.cpu_dead(mmscale_arch::CpuId::new(1));
    assert_eq!(world.tlb.cpus_of(other.asid()), 0);
    stepped::set_cpu(1);
    let flushes = stepped::work_count(Op::TlbFlushAll);
    assert_eq!(read(&world, &table), Ok(3));
    assert_eq!(stepped::work_count(Op::TlbFlushAll), flushes + 1);
}

#[test]
fn a_number_that_is_used_again_brings_no_old_translations() {
    let world = World::new(1);
    let table = world.table();
    map(&world, &table, AT.get(), page(Pfn::new(3)));
    assert_eq!(read(&world, &table), Ok(3));
    let asid = table.asid();
    unmap(&world, &table);
    world.end(table);
    let next = world.table();
    assert_eq!(next.asid(), asid);
    assert_eq!(read(&world, &next), Err(Miss::NotPresent(Pte::NONE)));
}

#[test]
fn a_broadcast_reaches_every_cpu_without_an_interrupt() {
    let world = World::new(3);
    stepped::set_broadcast(true);
    let table = world.table();
    map(&world, &table, AT.get(), page(Pfn::new(3)));
    for cpu in [1, 2, 0] {
        stepped::set_cpu(cpu);
        assert_eq!(read(&world, &table), Ok(3));
    }
    unmap(&world, &table);
    let _ = table.flush(world.on(), one(AT));
    assert_eq!((stepped::take_ipis().len(), stepped::tlb_len(1), stepped::tlb_len(2)), (0, 0, 0));
}
