//! An address space ends while other tasks zap its pages, and one of its threads still faults.

use super::space::{AT, Step, World, in_orders_with};
use mmscale_arch::Vpn;
use mmscale_mm::space::{ExitPolicy, FaultError, MapRequest, Place, ReapLock, Reaped};

const EXITS: [ExitPolicy; ExitPolicy::ALL.len()] = ExitPolicy::ALL;

/// Touches two more tables, in addition to the existing two.
fn grow(world: &World) {
    for table in [2, 4] {
        let at = Vpn::new(AT + 512 * table);
        let request = MapRequest::new(2).at(Place::Fixed(at));
        assert_eq!(world.space().mmap(world.mm.mm_ref(), request), Ok(at));
        assert_eq!(world.write(world.space(), 512 * table, 5), Ok(()));
    }
}

fn exit(world: &World) {
    world.space().kill();
    world.space().exit(world.mm.mm_ref());
}

fn reap(world: &World) {
    world.space().kill();
    let reaped = world.space().reap(world.mm.mm_ref(), ReapLock::Wait);
    assert!(matches!(reaped, Reaped::Done | Reaped::Skipped), "{reaped:?}");
}

/// Runs a thread until another step signals it; the process ends after it.
fn touch(world: &World) {
    for page in [0, 1, 2, 512 * 2, 512 * 4] {
        let done = world.write(world.space(), page, 7);
        let told = [Ok(()), Err(FaultError::Bus), Err(FaultError::Killed)].contains(&done);
        assert!(told, "page {page}: {done:?}");
    }
}

fn nothing(_: &World) {}

#[test]
fn an_exit_against_two_who_help() {
    for policy in EXITS {
        in_orders_with(50, policy, grow, &[exit, reap, reap], nothing);
    }
}

/// Pages that the thread makes where the reaper has finished must not remain; the exit frees the
/// rest.
#[test]
fn a_reaper_against_a_thread_that_still_runs() {
    for policy in EXITS {
        let steps: &[Step] = &[touch, reap];
        in_orders_with(60, policy, grow, steps, |world| {
            let on = world.mm.mm_ref();
            let audit = on.verify().unwrap_or_else(|why| panic!("the address spaces: {why}"));
            assert_eq!(audit.mapped, 0, "a page was made where all had been taken out");
            exit(world);
        });
    }
}
