//! Files in memory: what private and shared mappings show, and how long a file lasts.

use crate::address::machine::{Machine, range};
use mmscale_arch::{Op, Vpn};
use mmscale_mm::space::{Advice, FaultError, File, MapRequest, Place, Prot, Space, SpaceError};
use mmscale_stepped::{self as stepped, Stepped};
use std::sync::Arc;

const AT: u64 = 512 * 5;

fn map(machine: &Machine, space: &Space<Stepped>, file: &Arc<File<Stepped>>, index: u64) {
    space.hold_file(file).expect("there is memory");
    let request = MapRequest::new(4).at(Place::Fixed(Vpn::new(AT))).of_file(file.id(), index);
    assert_eq!(space.mmap(machine.on(), request.shared()), Ok(Vpn::new(AT)));
}

/// Pages of a file that processes share are never merged: the advice does nothing and is no error.
#[test]
fn shared_pages_are_never_mergeable() {
    let machine = Machine::stock();
    let (on, file, space) = (machine.on(), File::new(machine.on(), 4), machine.space());
    map(&machine, &space, &file, 0);
    let private = MapRequest::new(4).at(Place::Fixed(Vpn::new(AT + 8))).of_file(file.id(), 0);
    assert_eq!(space.mmap(on, private), Ok(Vpn::new(AT + 8)));
    let vmas = |at| {
        assert_eq!(space.madvise(on, range(at, 1), Advice::Mergeable), Ok(()));
        space.vmas().len()
    };
    assert_eq!([vmas(AT), vmas(AT + 8)], [2, 3]);
    file.put(on);
    machine.exit(space);
    machine.end();
}

#[test]
fn a_file_lasts_as_long_as_its_last_user() {
    let machine = Machine::stock();
    let file = File::new(machine.on(), 4);
    let (first, second) = (machine.space(), machine.space());
    map(&machine, &first, &file, 0);
    machine.write(&first, AT + 3, 7).expect("there is memory");
    // The program that opened it closes it; the address spaces keep it, mapped or not.
    file.put(machine.on());
    map(&machine, &second, &file, 0);
    machine.exit(first);
    assert_eq!(machine.read(&second, AT + 3), Ok(7));
    assert_eq!(second.munmap(machine.on(), range(AT, 4)), Ok(()));
    map(&machine, &second, &file, 0);
    assert_eq!(machine.read(&second, AT + 3), Ok(7));
    machine.exit(second);
    assert_eq!(Arc::strong_count(&file), 1, "only this test knows it");
    let third = machine.space();
    let request = MapRequest::new(1).of_file(file.id(), 0);
    assert_eq!(third.mmap(machine.on(), request), Err(SpaceError::Inval), "the file has ended");
    machine.exit(third);
    machine.end();
}

#[test]
fn a_mapping_shows_the_pages_that_it_names_and_ends_where_the_file_does() {
    let machine = Machine::stock();
    let file = File::new(machine.on(), 4);
    let (whole, tail) = (machine.space(), machine.space());
    map(&machine, &whole, &file, 0);
    map(&machine, &tail, &file, 2);
    machine.write(&whole, AT + 2, 5).expect("there is memory");
    assert_eq!((machine.read(&tail, AT), machine.read(&tail, AT + 1)), (Ok(5), Ok(0)));
    assert_eq!(machine.read(&tail, AT + 2), Err(FaultError::Bus));
    // Pages that nothing is mapped for are in memory all the same, if the file has them.
    assert_eq!(tail.madvise(machine.on(), range(AT, 4), Advice::DontNeed), Ok(()));
    assert_eq!(machine.mincore(&tail, AT, 4), [true, true, false, false]);
    machine.exit(whole);
    machine.exit(tail);
    file.put(machine.on());
    machine.end();
}

/// mprotect gives pages of a shared file their rights back, so that later writes do not fault.
/// It flushes TLBs only if rights are removed.
#[test]
fn shared_pages_are_writable_as_soon_as_mprotect_allows_it() {
    let machine = Machine::stock();
    let (on, file, space) = (machine.on(), File::new(machine.on(), 4), machine.space());
    map(&machine, &space, &file, 0);
    (0..4).for_each(|page| machine.write(&space, AT + page, 1).expect("there is memory"));
    let flushes = || machine.mm.call_stats().flushes;
    let before = flushes();
    assert_eq!(space.mprotect(on, range(AT, 4), Prot::READ), Ok(()));
    assert_eq!(flushes() - before, 1, "no CPU may write any more");
    assert_eq!(machine.write(&space, AT, 2), Err(FaultError::Segv));
    let faults = stepped::work_count(Op::FaultEntry);
    assert_eq!(space.mprotect(on, range(AT, 4), Prot::RW), Ok(()));
    assert_eq!(flushes() - before, 1, "a CPU that knows less walks the tables");
    (0..4).for_each(|page| assert_eq!(machine.write(&space, AT + page, 3), Ok(())));
    assert_eq!(stepped::work_count(Op::FaultEntry), faults);
    file.put(on);
    machine.exit(space);
    machine.end();
}
