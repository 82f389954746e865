//! Files on the disk: when a page is read, when it is dropped, and reads that fail.

use crate::address::machine::{GROUP, Machine, range};
use mmscale_arch::Vpn;
use mmscale_mm::space::{Advice, FaultError, File, FileAdvice, MapRequest, Place, Prot, Space};
use mmscale_stepped::{self as stepped, Stepped};
use std::sync::Arc;

const AT: u64 = 512 * 5;

fn map(machine: &Machine, at: u64) -> (Arc<File<Stepped>>, Arc<Space<Stepped>>) {
    let (on, space) = (machine.on(), machine.space());
    let file = File::on_disk(on, 4).expect("there are blocks");
    space.hold_file(&file).expect("there is memory");
    let request = MapRequest::new(4).at(Place::Fixed(Vpn::new(at))).of_file(file.id(), 0);
    assert_eq!(space.mmap(on, request.shared()), Ok(Vpn::new(at)));
    (file, space)
}

fn reads(machine: &Machine) -> u64 {
    machine.on().swap.counters().file_reads
}

fn drop_all(machine: &Machine, file: &File<Stepped>) {
    file.advise(machine.on(), 0..4, FileAdvice::DontNeed, GROUP);
}

#[test]
fn a_page_is_read_when_it_is_needed_and_not_again_until_it_is_dropped() {
    let machine = Machine::stock();
    let (file, space) = map(&machine, AT);
    assert_eq!(machine.mincore(&space, AT, 4), [false; 4]);
    for wanted in [1, 1] {
        assert_eq!((machine.read(&space, AT + 1), reads(&machine)), (Ok(0), wanted));
    }
    // A page that is mapped is not dropped, and one that is read again is found.
    drop_all(&machine, &file);
    assert_eq!(machine.mincore(&space, AT, 4), [false, true, false, false]);
    assert_eq!(space.madvise(machine.on(), range(AT, 4), Advice::DontNeed), Ok(()));
    assert_eq!((machine.read(&space, AT + 1), reads(&machine)), (Ok(0), 1));
    assert_eq!(space.madvise(machine.on(), range(AT, 4), Advice::DontNeed), Ok(()));
    drop_all(&machine, &file);
    assert_eq!(machine.mincore(&space, AT, 4), [false; 4]);
    assert_eq!((machine.read(&space, AT + 1), reads(&machine)), (Ok(0), 2));
    file.put(machine.on());
    machine.exit(space);
    machine.end();
}

/// Pages that are being read are in the cache, are not in memory yet, and are not dropped. The file
/// may end before their reads do.
#[test]
fn pages_that_are_being_read_are_neither_dropped_nor_lost() {
    let machine = Machine::stock();
    let (file, space) = map(&machine, AT);
    file.advise(machine.on(), 1..9, FileAdvice::WillNeed, GROUP);
    drop_all(&machine, &file);
    assert_eq!((machine.mincore(&space, AT, 4), reads(&machine)), (vec![false; 4], 3));
    stepped::finish_ios(1);
    machine.finish_ios(0);
    assert_eq!(machine.mincore(&space, AT, 4), [false, true, false, false]);
    assert_eq!((machine.read(&space, AT + 2), reads(&machine)), (Ok(0), 3));
    drop_all(&machine, &file);
    assert_eq!(space.madvise(machine.on(), range(AT, 1), Advice::WillNeed), Ok(()));
    file.put(machine.on());
    machine.exit(space);
    machine.end();
}

/// A page that was written to is dirty in each way to write, and stays.
#[test]
fn pages_that_were_written_to_are_not_dropped() {
    let machine = Machine::stock();
    let (file, space) = map(&machine, AT);
    // Written without a read; after a read; after a change of the protection.
    assert_eq!(machine.write(&space, AT, 7), Ok(()));
    assert_eq!(machine.read(&space, AT + 1), Ok(0));
    assert_eq!(machine.write(&space, AT + 1, 8), Ok(()));
    assert_eq!(machine.read(&space, AT + 2), Ok(0));
    for prot in [Prot::READ, Prot::RW] {
        assert_eq!(space.mprotect(machine.on(), range(AT, 4), prot), Ok(()));
    }
    assert_eq!(machine.write(&space, AT + 2, 9), Ok(()));
    assert_eq!(machine.read(&space, AT + 3), Ok(0));
    assert_eq!(space.madvise(machine.on(), range(AT, 4), Advice::DontNeed), Ok(()));
    drop_all(&machine, &file);
    assert_eq!(machine.mincore(&space, AT, 4), [true, true, true, false]);
    let stamps: Vec<_> = (0..4).map(|page| machine.read(&space, AT + page)).collect();
    assert_eq!(stamps, [Ok(7), Ok(8), Ok(9), Ok(0)]);
    file.put(machine.on());
    machine.exit(space);
    machine.end();
}

#[test]
fn a_read_that_fails_is_reported_and_the_next_fault_reads_again() {
    let machine = Machine::stock();
    let (file, space) = map(&machine, AT);
    stepped::fail_ios(1);
    assert_eq!(machine.read(&space, AT), Err(FaultError::Bus));
    assert_eq!(machine.mincore(&space, AT, 4), [false; 4]);
    assert_eq!((machine.read(&space, AT), reads(&machine)), (Ok(0), 2));
    assert_eq!(machine.read(&space, AT + 4), Err(FaultError::Segv));
    file.put(machine.on());
    machine.exit(space);
    machine.end();
}

#[test]
fn files_have_blocks_of_their_own_behind_the_swap_area() {
    let machine = Machine::boot(1, |config| config.swap.pages = 64);
    let (first, one) = map(&machine, AT);
    let (second, two) = map(&machine, AT);
    assert!(File::on_disk(machine.on(), u64::from(u32::MAX) - 63).is_none());
    assert!(File::on_disk(machine.on(), 1 << 33).is_none());
    // What is written to one file, and to swap, is in no other place.
    let anonymous = MapRequest::new(4).at(Place::Fixed(Vpn::new(AT + 512)));
    assert_eq!(one.mmap(machine.on(), anonymous), Ok(Vpn::new(AT + 512)));
    (0..4).for_each(|page| machine.write(&one, AT + 512 + page, 5).expect("there is memory"));
    assert_eq!(one.madvise(machine.on(), range(AT + 512, 4), Advice::PageOut), Ok(()));
    machine.finish_ios(usize::MAX);
    for page in 0..4 {
        assert_eq!(machine.read(&one, AT + page), Ok(0));
        assert_eq!(machine.write(&one, AT + page, 6), Ok(()));
        assert_eq!(machine.read(&two, AT + page), Ok(0));
        assert_eq!(machine.read(&one, AT + 512 + page), Ok(5));
    }
    for (file, space) in [(first, one), (second, two)] {
        file.put(machine.on());
        machine.exit(space);
    }
    machine.end();
}
