//! Tasks that read an address space from outside: which user frees it, and what they see.

use crate::address::machine::{Machine, POLICIES, range};
use mmscale_arch::Vpn;
use mmscale_mm::oom::{Victim as _, VictimState};
use mmscale_mm::space::{MapRequest, Place, Prot, ReapLock, Reaped, Space, SpaceError};
use mmscale_stepped::Stepped;
use std::sync::Arc;

const AT: u64 = 512 * 8 - 2;
const TO: u64 = 512 * 20;
const PAGES: u64 = 4;

fn map(machine: &Machine, at: u64, pages: u64) -> Arc<Space<Stepped>> {
    let space = machine.space();
    let request = MapRequest::new(pages).at(Place::Fixed(Vpn::new(at)));
    assert_eq!(space.mmap(machine.on(), request), Ok(Vpn::new(at)));
    space
}

/// An address space with content, and the one of a reader.
fn build(policy: usize) -> (Machine, [Arc<Space<Stepped>>; 2]) {
    let machine = Machine::boot(1, |config| config.lru = POLICIES[policy]);
    let (space, reader) = (map(&machine, AT, PAGES), map(&machine, TO, PAGES));
    (0..PAGES - 1).for_each(|page| machine.write(&space, AT + page, 10 + page).expect("memory"));
    (machine, [space, reader])
}

fn read(
    machine: &Machine,
    [space, reader]: &[Arc<Space<Stepped>>; 2],
    at: u64,
) -> Result<u64, SpaceError> {
    reader.read_from(machine.on(), space, range(at, PAGES), Vpn::new(TO))
}

#[test]
fn the_last_user_frees_the_memory() {
    for policy in 0..POLICIES.len() {
        let (machine, both) = build(policy);
        let [space, reader] = &both;
        assert!(space.try_get() && space.try_get());
        space.exit(machine.on());
        assert!(!space.try_get(), "its process has left");
        // It is complete still, and new pages are charged to its group.
        assert_eq!(read(&machine, &both, AT), Ok(PAGES));
        let content: Vec<_> = (0..PAGES).map(|page| machine.read(reader, TO + page)).collect();
        assert_eq!(content, [Ok(10), Ok(11), Ok(12), Ok(0)]);
        space.put(machine.on());
        assert_eq!(read(&machine, &both, AT), Ok(PAGES));
        assert!(!space.is_skipped(), "it has a user");
        space.put(machine.on());
        assert!(space.is_skipped(), "it has none");
        machine.check();
        let [space, reader] = both;
        assert_eq!(Arc::strong_count(&space), 1);
        machine.exit(reader);
        machine.end();
    }
}

#[test]
fn a_reader_that_leaves_first_frees_nothing() {
    let (machine, [space, reader]) = build(0);
    assert!(space.try_get());
    space.put(machine.on());
    assert!(!space.is_skipped() && space.try_get());
    space.put(machine.on());
    machine.exit(space);
    machine.exit(reader);
    machine.end();
}

#[test]
fn a_read_ends_at_what_may_not_be_read() {
    let (machine, both) = build(0);
    let [space, reader] = &both;
    let on = machine.on();
    assert_eq!(space.munmap(on, range(AT + 1, 1)), Ok(()));
    assert_eq!(read(&machine, &both, AT), Ok(1));
    assert_eq!(read(&machine, &both, AT + 1), Err(SpaceError::Fault));
    assert_eq!(space.mprotect(on, range(AT + 2, 1), Prot::NONE), Ok(()));
    assert_eq!(read(&machine, &both, AT + 2), Err(SpaceError::Fault));
    // The reader's side.
    assert_eq!(reader.mprotect(on, range(TO, 1), Prot::READ), Ok(()));
    assert_eq!(read(&machine, &both, AT), Err(SpaceError::Fault));
    // A killed reader reads nothing.
    assert_eq!(reader.mprotect(on, range(TO, 1), Prot::READ | Prot::WRITE), Ok(()));
    assert_eq!(read(&machine, &both, AT), Ok(1));
    reader.kill();
    assert_eq!(read(&machine, &both, AT), Err(SpaceError::Fault));
    machine.check();
    both.into_iter().for_each(|space| machine.exit(space));
    machine.end();
}

/// The OOM killer waits for a victim whose process has left until its memory is reaped.
#[test]
fn a_victim_that_is_read_is_waited_for_until_it_is_reaped() {
    let (machine, both) = build(0);
    let [space, _] = &both;
    assert!(space.try_get());
    space.kill();
    space.exit(machine.on());
    assert_eq!(space.state(), VictimState::Done, "it is no victim");
    assert!(space.mark(7));
    assert_eq!(space.state(), VictimState::Dying { marked: true });
    assert_eq!(space.reap(machine.on(), ReapLock::Try), Reaped::Done);
    space.skip();
    assert_eq!(space.state(), VictimState::Done);
    // What was reaped is not read.
    assert_eq!(read(&machine, &both, AT), Err(SpaceError::Fault));
    space.put(machine.on());
    assert_eq!(space.state(), VictimState::Exiting { marked: true });
    let [_, reader] = both;
    machine.exit(reader);
    machine.end();
}
