//! Tasks read an address space from outside while it changes and ends.

use super::space::{AT, World, in_orders_with, range};
use mmscale_arch::Vpn;
use mmscale_mm::space::{Advice, ExitPolicy, ReapLock, SpaceError};

const EXITS: [ExitPolicy; ExitPolicy::ALL.len()] = ExitPolicy::ALL;

/// Reads pages 0 and 1 to pages 2 and 3 of the child.
fn read(world: &World) {
    read_to(world, 2);
}

/// Reads pages 0 and 1 to pages 4 and 5 of the child.
fn read_too(world: &World) {
    read_to(world, 4);
}

fn read_to(world: &World, to: u64) {
    let (on, space, reader) = (world.mm.mm_ref(), world.space(), world.child());
    if !space.try_get() {
        return;
    }
    let pages = match reader.read_from(on, space, range(AT, 2), Vpn::new(AT + to)) {
        Ok(pages) => pages,
        Err(why) => {
            assert_eq!(why, SpaceError::Fault);
            0
        }
    };
    space.put(on);
    for page in 0..pages {
        let word = world.read(reader, to + page);
        assert!([Ok(10 + page), Ok(20 + page), Ok(0)].contains(&word), "page {page}: {word:?}");
    }
}

fn exit(world: &World) {
    world.space().exit(world.mm.mm_ref());
}

fn kill_and_reap(world: &World) {
    world.space().kill();
    let _ = world.space().reap(world.mm.mm_ref(), ReapLock::Wait);
}

fn change(world: &World) {
    assert_eq!(world.write(world.space(), 0, 20), Ok(()));
    let on = world.mm.mm_ref();
    assert_eq!(world.space().madvise(on, range(AT + 1, 1), Advice::DontNeed), Ok(()));
}

fn unmap(world: &World) {
    assert_eq!(world.space().munmap(world.mm.mm_ref(), range(AT, 2)), Ok(()));
}

#[test]
fn a_remote_read_against_the_exit() {
    for policy in EXITS {
        in_orders_with(60, policy, World::fork, &[exit, read], |world| {
            assert!(world.space().is_skipped(), "the last user has freed it");
        });
    }
}

#[test]
fn two_remote_reads_against_the_exit() {
    for policy in EXITS {
        in_orders_with(60, policy, World::fork, &[exit, read, read_too], |world| {
            assert!(world.space().is_skipped(), "the last user has freed it");
        });
    }
}

#[test]
fn a_remote_read_against_a_reaper_and_the_exit() {
    for policy in EXITS {
        in_orders_with(40, policy, World::fork, &[exit, kill_and_reap, read], |_| ());
    }
}

#[test]
fn a_remote_read_against_changes() {
    let stock = ExitPolicy::Stock;
    in_orders_with(60, stock, World::fork, &[change, read], |_| ());
    in_orders_with(60, stock, World::fork, &[unmap, read], |_| ());
}
