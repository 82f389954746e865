//! Pages that two address spaces share, with steps of both interleaved.

use crate::address::machine::{GROUP, Machine, POLICIES, range};
use mmscale_arch::{Machine as _, Op, Vpn};
use mmscale_mm::lru::LruPolicy;
use mmscale_mm::pgtable::MemAccess;
use mmscale_mm::space::{Advice, FaultError, MapRequest, Place, Space, SpaceError};
use mmscale_stepped::{self as stepped, Stepped};
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

const AT: u64 = 512 * 5;
const SLOTS: u64 = 100;

fn map(machine: &Machine, space: &Space<Stepped>, pages: u64) {
    let request = MapRequest::new(pages).at(Place::Fixed(Vpn::new(AT)));
    assert_eq!(space.mmap(machine.on(), request), Ok(Vpn::new(AT)));
}

/// A parent and a child that share a page in swap, which contains 1.
fn shared_in_swap(lru: LruPolicy) -> (Machine, Arc<Space<Stepped>>, Arc<Space<Stepped>>) {
    let machine = Machine::boot(3, |config| {
        config.lru = lru;
        config.swap.pages = SLOTS as u32;
    });
    stepped::set_broadcast(true);
    let parent = machine.space();
    map(&machine, &parent, 1);
    machine.write(&parent, AT, 1).expect("there is memory");
    assert_eq!(parent.madvise(machine.on(), range(AT, 1), Advice::PageOut), Ok(()));
    machine.finish_ios(usize::MAX);
    assert_eq!(machine.check().swapped.len(), 1, "it is in swap");
    let child = parent.fork(machine.on()).expect("there is memory");
    (machine, parent, child)
}

/// A child unmaps a page, and its CPUs can read it until the flush. Meanwhile its parent reads the
/// page from swap and writes: it is the last user of the slot, but not yet the only user of the
/// folio.
#[test]
fn what_can_still_be_read_elsewhere_is_not_written_to() {
    for lru in POLICIES {
        let (machine, parent, child) = shared_in_swap(lru);
        machine.go_to(1);
        assert_eq!(machine.read(&child, AT), Ok(1));
        machine.go_to(0);
        let seen = Rc::new(Cell::new(None));
        let told = Rc::clone(&seen);
        let (mm, writer, reader) = (Rc::clone(&machine.mm), Arc::clone(&parent), child.clone());
        stepped::at_op(Op::TlbFlushPage, move || {
            let (on, at) = (mm.mm_ref(), Vpn::new(AT));
            stepped::set_cpu(2);
            let write = |pfn| Stepped::write_stamp(pfn, 99);
            writer.access(on, at, MemAccess::Write, write).expect("there is memory");
            stepped::set_cpu(1);
            told.set(Some(reader.access(on, at, MemAccess::Read, Stepped::read_stamp)));
            stepped::set_cpu(0);
        });
        let gone = child.madvise(machine.on(), range(AT, 1), Advice::DontNeed);
        assert_eq!(gone, Ok(()));
        assert_eq!(seen.get(), Some(Ok(1)), "the child's CPU had a translation");
        assert_eq!(machine.read(&parent, AT), Ok(99));
        assert_eq!(machine.read(&child, AT), Ok(0));
        machine.check();
        machine.exit(child);
        machine.exit(parent);
        machine.end();
    }
}

/// A page that was never shared is writable after swap-in, whichever batch it is in.
#[test]
fn a_page_that_was_never_shared_comes_back_for_writing() {
    for lru in POLICIES {
        let (machine, parent, child) = shared_in_swap(lru);
        machine.exit(child);
        machine.write(&parent, AT, 2).expect("there is memory");
        assert_eq!(parent.madvise(machine.on(), range(AT, 1), Advice::PageOut), Ok(()));
        machine.finish_ios(usize::MAX);
        let copies = stepped::work_count(Op::CopyPage);
        let faults = stepped::work_count(Op::FaultEntry);
        machine.write(&parent, AT, 3).expect("there is memory");
        assert_eq!(
            stepped::work_count(Op::FaultEntry) - faults,
            1,
            "one fault brings it and all rights"
        );
        assert_eq!(stepped::work_count(Op::CopyPage), copies);
        machine.check();
        machine.exit(parent);
        machine.end();
    }
}

/// Parent and child copy a page at the same time: the original and its slot have no user left.
#[test]
fn a_page_that_all_users_have_copied_leaves_no_slot_behind() {
    for lru in POLICIES {
        let (machine, parent, child) = shared_in_swap(lru);
        assert_eq!((machine.read(&parent, AT), machine.read(&child, AT)), (Ok(1), Ok(1)));
        let (mm, other) = (Rc::clone(&machine.mm), Arc::clone(&child));
        stepped::at_op(Op::CopyPage, move || {
            stepped::set_cpu(1);
            let write = |pfn| Stepped::write_stamp(pfn, 3);
            let at = Vpn::new(AT);
            other.access(mm.mm_ref(), at, MemAccess::Write, write).expect("there is memory");
            stepped::set_cpu(0);
        });
        machine.write(&parent, AT, 2).expect("there is memory");
        assert!(!stepped::cancel_step(), "the page was copied");
        assert_eq!((machine.read(&parent, AT), machine.read(&child, AT)), (Ok(2), Ok(3)));
        machine.check();
        assert_eq!(machine.on().swap.free_slots(), SLOTS);
        machine.exit(child);
        machine.exit(parent);
        machine.end();
    }
}

/// Charges in another CPU's stock are available to a charge that cannot reclaim.
#[test]
fn a_group_has_all_pages_up_to_its_limit() {
    let machine = Machine::boot(2, |_| {});
    let space = machine.space();
    map(&machine, &space, 200);
    machine.mm.memory().groups.set_limit(GROUP, Some(80));
    machine.go_to(1);
    machine.write(&space, AT, 1).expect("there is memory");
    machine.go_to(0);
    for page in 1..80 {
        assert_eq!(machine.write(&space, AT + page, 1), Ok(()), "page {page}");
    }
    assert_eq!(machine.write(&space, AT + 80, 1), Err(FaultError::Oom));
    assert_eq!(machine.mm.memory().groups.usage(GROUP), 80);
    machine.exit(space);
    machine.end();
}

#[test]
fn a_process_that_may_not_lock_memory_may_not_map_it_locked() {
    let machine = Machine::boot(1, |config| config.space.memlock_pages = 0);
    let space = machine.space();
    let request = MapRequest::new(1).locked();
    assert_eq!(space.mmap(machine.on(), request), Err(SpaceError::Perm));
    machine.exit(space);
    machine.end();
}
