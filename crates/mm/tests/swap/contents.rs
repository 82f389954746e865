//! Pages that are swapped out come back with their content.

use crate::swap::machine::{Machine, NODE};
use mmscale_arch::{IoDirection, Machine as _};
use mmscale_frames::page_alloc::Gfp;
use mmscale_mm::folio::FolioFlags;
use mmscale_mm::memcg::GroupId;
use mmscale_mm::swap::{SwapDevice, SwapError, WriteOut, Zeromap};
use mmscale_stepped::{self as stepped, Stepped};

#[test]
fn pages_come_back_with_their_content() {
    let machine = Machine::boot(1, 2_000, Zeromap::On);
    let entries: Vec<_> = (1..=700).map(|stamp| machine.out(stamp)).collect();
    assert_eq!(machine.audit().used, 700);
    for (at, &entry) in entries.iter().enumerate().rev() {
        let pfn = machine.read(entry).expect("it is there");
        assert_eq!(Stepped::read_stamp(pfn), at as u64 + 1);
        assert!(machine.word(pfn).has(FolioFlags::UPTODATE | FolioFlags::SWAP_CACHE));
        machine.free(entry);
        machine.memory().put(pfn);
    }
    let counters = machine.swap.counters();
    assert_eq!((counters.writes, counters.reads, counters.zero_writes), (700, 700, 0));
    machine.end();
}

#[test]
fn zeros_are_not_written_and_not_read() {
    for (zeromap, writes) in [(Zeromap::On, 0), (Zeromap::Off, 1)] {
        let machine = Machine::boot(1, 64, zeromap);
        let entry = machine.out(0);
        assert_eq!(machine.audit().zero, 1 - writes);
        let pfn = machine.read(entry).expect("it is there");
        assert_eq!(Stepped::read_stamp(pfn), 0);
        let counters = machine.swap.counters();
        assert_eq!((counters.writes, counters.reads), (writes, writes));
        assert_eq!((counters.zero_writes, counters.zero_reads), (1 - writes, 1 - writes));
        // The same page, written again with content: the zero bit is cleared.
        Stepped::write_stamp(pfn, 9);
        machine.memory().folios.set(pfn, FolioFlags::DIRTY);
        machine.swap.lock_folio(machine.memory(), pfn);
        assert_eq!(machine.swap.write_out(machine.memory(), pfn), WriteOut::Started);
        machine.finish_ios();
        assert_eq!(machine.audit().zero, 0);
        assert!(machine.forget(pfn));
        let pfn = machine.read(entry).expect("it is there");
        assert_eq!(Stepped::read_stamp(pfn), 9);
        machine.free(entry);
        machine.memory().put(pfn);
        machine.end();
    }
}

#[test]
fn a_page_is_found_while_it_is_being_written() {
    let machine = Machine::boot(1, 64, Zeromap::On);
    let (pfn, entry, how) = machine.write(5);
    assert_eq!(how, WriteOut::Started);
    assert!(machine.word(pfn).has(FolioFlags::WRITEBACK));
    assert!(!machine.word(pfn).flags().intersects(FolioFlags::LOCKED | FolioFlags::DIRTY));
    assert_eq!(machine.read(entry), Ok(pfn), "no second folio for the slot");
    machine.memory().put(pfn);
    assert!(!machine.forget(pfn), "it is under writeback");
    let memory = machine.memory();
    memory.folios.get(pfn);
    machine.swap.wait_writeback(memory, pfn);
    assert!(!machine.word(pfn).has(FolioFlags::WRITEBACK));
    memory.put(pfn);
    machine.free(entry);
    machine.memory().put(pfn);
    assert_eq!(machine.audit().used, 0);
}

#[test]
fn what_is_written_to_meanwhile_is_dirty_and_stays() {
    let machine = Machine::boot(1, 64, Zeromap::On);
    let (pfn, entry, _) = machine.write(5);
    machine.memory().folios.set(pfn, FolioFlags::DIRTY);
    machine.finish_ios();
    assert!(!machine.forget(pfn), "its content is newer than the slot's");
    assert_eq!(machine.read(entry), Ok(pfn));
}

#[test]
fn two_readers_of_a_slot_get_one_folio_and_one_read() {
    let machine = Machine::boot(2, 64, Zeromap::On);
    let entry = machine.out(11);
    let other = std::rc::Rc::clone(&machine);
    let seen = std::rc::Rc::new(std::cell::Cell::new(None));
    let keep = std::rc::Rc::clone(&seen);
    // While the first task sleeps for its read, the second finds the folio, and the read ends.
    stepped::on_park(move || {
        stepped::set_cpu(1);
        let found = other.swap.lookup(other.memory(), entry).expect("it is in the cache");
        assert!(other.word(found).has(FolioFlags::LOCKED));
        keep.set(Some(found));
        stepped::set_cpu(0);
        other.finish_ios();
    });
    let pfn = machine.swap.read_in(machine.memory(), entry, NODE, GroupId::ROOT, Gfp::KERNEL);
    assert_eq!(pfn.ok(), seen.get());
    assert_eq!(machine.swap.counters().reads, 1);
    assert_eq!(machine.word(seen.get().expect("found")).users(), 3, "two readers and the cache");
}

#[test]
fn a_freed_slot_has_no_content() {
    let machine = Machine::boot(1, 64, Zeromap::On);
    let entry = machine.out(3);
    machine.free(entry);
    assert_eq!(machine.read(entry), Err(SwapError::Gone));
    machine.end();
}

#[test]
fn a_slot_outlives_its_entries_only_in_the_cache() {
    let machine = Machine::boot(1, 64, Zeromap::On);
    let (pfn, entry, _) = machine.write(3);
    machine.dup(entry);
    machine.swap.free(machine.memory(), entry, 1);
    machine.named.borrow_mut().pop();
    assert_eq!(machine.swap.count(entry), 1);
    // The folio is under writeback: it cannot leave the cache now.
    machine.free(entry);
    assert_eq!(machine.audit().unneeded, 1);
    machine.finish_ios();
    machine.memory().put(pfn);
    assert_eq!(machine.swap.prune(machine.memory()), 1);
    machine.end();
}

#[test]
fn a_page_that_is_unmapped_takes_its_slot_along() {
    let machine = Machine::boot(1, 64, Zeromap::On);
    let entry = machine.out(3);
    let pfn = machine.read(entry).expect("it is there");
    machine.memory().add_map(pfn);
    machine.free(entry);
    assert_eq!(machine.audit().unneeded, 1, "it is mapped: another swap-out may use the slot");
    machine.memory().remove_maps(pfn, 1);
    machine.swap.free_swap_cache(machine.memory(), pfn);
    machine.memory().put(pfn);
    machine.end();
}

#[test]
fn nothing_is_written_to_an_unused_slot() {
    let machine = Machine::boot(1, 64, Zeromap::On);
    let (pfn, entry) = machine.to_cache(8);
    machine.free(entry);
    assert_eq!(machine.swap.write_out(machine.memory(), pfn), WriteOut::Unneeded);
    assert!(stepped::ios_in_flight().is_empty());
    assert!(!machine.word(pfn).has(FolioFlags::SWAP_CACHE));
    machine.memory().put(pfn);
    machine.end();
}

#[test]
fn a_full_queue_makes_writers_wait() {
    let machine = Machine::boot(1, 64, Zeromap::On);
    stepped::set_io_depth(3);
    let entries: Vec<_> = (1..=8).map(|stamp| machine.write(stamp)).collect();
    let flight = stepped::ios_in_flight();
    assert!(flight.len() <= 3 && flight.iter().all(|io| io.direction == IoDirection::Write));
    machine.finish_ios();
    for (at, (pfn, entry, _)) in entries.into_iter().enumerate() {
        assert!(machine.forget(pfn));
        let pfn = machine.read(entry).expect("it is there");
        assert_eq!(Stepped::read_stamp(pfn), at as u64 + 1);
        machine.free(entry);
        machine.memory().put(pfn);
    }
    machine.end();
}

#[test]
fn another_cpu_takes_over_what_a_dead_one_asked_for() {
    let machine = Machine::boot(2, 64, Zeromap::On);
    stepped::set_cpu(1);
    let (pfn, entry, _) = machine.write(4);
    stepped::set_cpu(0);
    stepped::set_online(1, false);
    stepped::finish_ios(1);
    assert_eq!(stepped::deliver_ipis(&*machine), 0);
    machine.swap.io_interrupt(machine.memory());
    assert!(!machine.word(pfn).has(FolioFlags::WRITEBACK));
    machine.free(entry);
    machine.memory().put(pfn);
}

#[test]
fn compressed_memory_has_a_page_as_soon_as_it_is_written() {
    let machine = Machine::boot_on(1, 64, SwapDevice::Compressed);
    let (pfn, entry, how) = machine.write(5);
    assert_eq!(how, WriteOut::Stored);
    let busy = FolioFlags::WRITEBACK | FolioFlags::LOCKED | FolioFlags::DIRTY | FolioFlags::RECLAIM;
    assert!(!machine.word(pfn).flags().intersects(busy), "{:?}", machine.word(pfn));
    assert!(machine.forget(pfn));
    let pfn = machine.read(entry).expect("it is there");
    assert_eq!(Stepped::read_stamp(pfn), 5);
    machine.memory().put(pfn);
    machine.free(entry);
    // A page that could not be written stays in memory and is dirty.
    let (pfn, entry) = machine.to_cache(6);
    machine.memory().folios.set(pfn, FolioFlags::RECLAIM);
    stepped::fail_ios(1);
    assert_eq!(machine.swap.write_out(machine.memory(), pfn), WriteOut::Stored);
    assert!(machine.word(pfn).has(FolioFlags::DIRTY) && !machine.forget(pfn));
    assert!(!machine.word(pfn).flags().intersects(FolioFlags::LOCKED | FolioFlags::RECLAIM));
    // A page that cannot be read returns an error, and is read by the next attempt.
    let other = machine.out(7);
    stepped::fail_ios(1);
    assert_eq!(machine.read(other), Err(SwapError::Io));
    let again = machine.read(other).expect("it is there");
    assert_eq!(Stepped::read_stamp(again), 7);
    assert!(stepped::ios_in_flight().is_empty(), "nothing goes by a queue");
    let counters = machine.swap.counters();
    assert_eq!((counters.write_errors, counters.read_errors), (1, 1));
    for (pfn, entry) in [(pfn, entry), (again, other)] {
        machine.free(entry);
        machine.memory().put(pfn);
    }
    machine.end();
}

/// The task that takes the last entry of a slot may take over the folio instead of freeing it.
#[test]
fn a_folio_that_only_its_slot_keeps_is_handed_over() {
    let machine = Machine::boot(1, 64, Zeromap::On);
    let memory = machine.memory();
    let (pfn, entry, _) = machine.write(5);
    machine.finish_ios();
    machine.memory().put(pfn);
    machine.dup(entry);
    let take = || {
        let at = machine.named.borrow().iter().position(|&named| named == entry);
        machine.named.borrow_mut().swap_remove(at.expect("it is named"));
        machine.swap.free_but_folio(memory, entry)
    };
    let refs = machine.word(pfn).refs();
    assert_eq!(take(), None, "another entry names it");
    assert_eq!(take(), Some(pfn));
    assert_eq!(machine.word(pfn).refs(), refs + 1, "the caller's");
    machine.swap.free_swap_cache(memory, pfn);
    assert_eq!((machine.word(pfn).refs(), machine.audit().used), (refs, 0));
    memory.put(pfn);
    // A mapped folio stays in the cache.
    let (pfn, entry, _) = machine.write(6);
    machine.finish_ios();
    memory.add_map(pfn);
    machine.named.borrow_mut().clear();
    assert_eq!(machine.swap.free_but_folio(memory, entry), None);
    assert!(machine.word(pfn).has(FolioFlags::SWAP_CACHE));
    memory.remove_maps(pfn, 1);
    machine.swap.free_swap_cache(memory, pfn);
    memory.put(pfn);
    machine.end();
}
