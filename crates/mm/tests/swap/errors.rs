//! Device errors, and lack of memory and slots: nothing is lost.

use crate::swap::machine::Machine;
use mmscale_arch::Machine as _;
use mmscale_frames::page_alloc::AllocError;
use mmscale_mm::folio::FolioFlags;
use mmscale_mm::lru::FolioError;
use mmscale_mm::swap::{SwapError, SwapFull, SwapViolation, WriteOut, Zeromap};
use mmscale_stepped::{self as stepped, Stepped};

#[test]
fn a_failed_write_keeps_the_page_and_can_be_tried_again() {
    let machine = Machine::boot(1, 64, Zeromap::On);
    let (pfn, entry) = machine.to_cache(6);
    machine.memory().folios.set(pfn, FolioFlags::RECLAIM);
    assert_eq!(machine.swap.write_out(machine.memory(), pfn), WriteOut::Started);
    stepped::fail_ios(1);
    machine.finish_ios();
    assert_eq!(machine.swap.counters().write_errors, 1);
    assert!(machine.word(pfn).has(FolioFlags::DIRTY | FolioFlags::SWAP_CACHE));
    assert!(!machine.word(pfn).flags().intersects(FolioFlags::WRITEBACK | FolioFlags::RECLAIM));
    assert!(!machine.forget(pfn), "it is nowhere else");
    assert_eq!(machine.read(entry), Ok(pfn));
    assert_eq!(Stepped::read_stamp(pfn), 6);
    machine.memory().put(pfn);
    machine.swap.lock_folio(machine.memory(), pfn);
    machine.swap.write_out(machine.memory(), pfn);
    machine.finish_ios();
    assert!(machine.forget(pfn));
    let pfn = machine.read(entry).expect("it is there");
    assert_eq!(Stepped::read_stamp(pfn), 6);
    machine.free(entry);
    machine.memory().put(pfn);
    machine.end();
}

#[test]
fn a_failed_read_is_reported_once_and_the_next_reads_again() {
    let machine = Machine::boot(1, 64, Zeromap::On);
    let entry = machine.out(6);
    stepped::fail_ios(1);
    assert_eq!(machine.read(entry), Err(SwapError::Io));
    assert_eq!(machine.swap.counters().read_errors, 1);
    assert_eq!((machine.audit().used, machine.audit().cached), (1, 0));
    let pfn = machine.read(entry).expect("the device works again");
    assert_eq!(Stepped::read_stamp(pfn), 6);
    assert_eq!(machine.swap.counters().read_errors, 1);
    machine.free(entry);
    machine.memory().put(pfn);
    machine.end();
}

#[test]
fn a_read_without_memory_leaves_the_slot() {
    let machine = Machine::boot(1, 64, Zeromap::On);
    let entry = machine.out(6);
    stepped::fail_allocs(1);
    let failed = SwapError::NoMemory(FolioError::Frames(AllocError::Injected));
    assert_eq!(machine.read(entry), Err(failed));
    let pfn = machine.read(entry).expect("it is there");
    assert_eq!(Stepped::read_stamp(pfn), 6);
    machine.free(entry);
    machine.memory().put(pfn);
    machine.end();
}

#[test]
fn slots_run_out_until_one_comes_back() {
    let machine = Machine::boot(1, 3, Zeromap::On);
    let entries: Vec<_> = (1..=3).map(|stamp| machine.out(stamp)).collect();
    let pfn = machine.page(4);
    machine.swap.lock_folio(machine.memory(), pfn);
    assert_eq!(machine.swap.alloc(machine.memory(), pfn), Err(SwapFull));
    assert!(!machine.word(pfn).has(FolioFlags::SWAP_CACHE));
    machine.free(entries[1]);
    let again = machine.swap.alloc(machine.memory(), pfn).expect("one came back");
    assert_eq!(again, entries[1]);
    assert_eq!(machine.swap.alloc(machine.memory(), machine.page(5)), Err(SwapFull));
}

#[test]
fn slots_that_only_the_cache_knows_are_found_when_they_run_out() {
    let machine = Machine::boot(1, 2, Zeromap::On);
    let entries: Vec<_> = (1..=2).map(|stamp| machine.out(stamp)).collect();
    let back = machine.read(entries[0]).expect("it is there");
    machine.memory().add_map(back);
    // Another task holds the folio lock when the last entry is taken.
    machine.swap.lock_folio(machine.memory(), back);
    machine.free(entries[0]);
    machine.swap.unlock_folio(machine.memory(), back);
    assert_eq!((machine.swap.free_slots(), machine.audit().unneeded), (0, 1));
    let pfn = machine.page(3);
    machine.swap.lock_folio(machine.memory(), pfn);
    assert_eq!(machine.swap.alloc(machine.memory(), pfn), Ok(entries[0]));
    assert!(machine.word(back).has(FolioFlags::DIRTY), "it is nowhere else now");
    assert_eq!(Stepped::read_stamp(back), 1);
}

#[test]
fn without_swap_there_is_no_slot() {
    let machine = Machine::boot(1, 0, Zeromap::On);
    let pfn = machine.page(4);
    machine.swap.lock_folio(machine.memory(), pfn);
    assert_eq!(machine.swap.alloc(machine.memory(), pfn), Err(SwapFull));
    machine.swap.unlock_folio(machine.memory(), pfn);
    machine.memory().put(pfn);
    machine.end();
}

#[test]
fn wrong_books_are_seen() {
    let machine = Machine::boot(1, 64, Zeromap::On);
    let entry = machine.out(6);
    machine.swap.dup(entry);
    let verify = |named: Vec<_>| machine.swap.verify(machine.memory(), named.into_iter());
    let wrong = SwapViolation::Count { entry, counted: 2, found: 1 };
    assert_eq!(verify(vec![entry]), Err(wrong));
    assert_eq!(verify(vec![entry, entry]).map(|audit| audit.used), Ok(1));
    let pfn = machine.read(entry).expect("it is there");
    machine.memory().folios.clear(pfn, FolioFlags::SWAP_CACHE);
    assert_eq!(verify(vec![entry, entry]), Err(SwapViolation::Folio(entry, pfn)));
    machine.memory().folios.set(pfn, FolioFlags::SWAP_CACHE);
    let other = machine.page(1);
    machine.memory().folios.set(other, FolioFlags::SWAP_CACHE);
    assert_eq!(verify(vec![entry, entry]), Err(SwapViolation::Cache(other)));
}

#[test]
#[cfg(debug_assertions)]
#[should_panic(expected = "its lock is not held")]
fn an_unlocked_folio_is_not_written() {
    let machine = Machine::boot(1, 64, Zeromap::On);
    let (pfn, _) = machine.to_cache(6);
    machine.swap.unlock_folio(machine.memory(), pfn);
    machine.swap.write_out(machine.memory(), pfn);
}
