//! Walks of the reverse map, by reclaim, while a process exits and the OOM reaper unmaps its pages.
//!
//! A walk must not reach a page table that the exit frees; the model refuses a freed table. Each
//! mapping is dropped once; the audit at the end counts them.

use super::space::{AT, Step, World, drop_clean, in_orders_under, nothing, range};
use mmscale_mm::lru::LruPolicy;
use mmscale_mm::reclaim::Rmap as _;
use mmscale_mm::space::{Advice, ExitPolicy, ReapLock, Reaped};
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

fn exit(world: &World) {
    world.space().exit(world.mm.mm_ref());
    world.tell();
}

fn walk_twice(world: &World) {
    drop_clean(world);
    drop_clean(world);
}

fn reap(world: &World) {
    world.space().kill();
    let reaped = world.space().reap(world.mm.mm_ref(), ReapLock::Wait);
    assert!(matches!(reaped, Reaped::Done | Reaped::Skipped), "{reaped:?}");
}

fn give_up(world: &World) {
    let freed = world.space().madvise(world.mm.mm_ref(), range(AT, 2), Advice::Free);
    assert_eq!(freed, Ok(()));
}

fn fork_and_give_up(world: &World) {
    world.fork();
    give_up(world);
}

/// Checks accessed bits again and again until the exit has ended, at most 30 times. Returns how
/// many walks ended because a root was locked.
fn look(world: &World) -> u32 {
    let on = world.mm.mm_ref();
    let folios: Vec<_> = on.memory.folios.iter().map(|(pfn, _)| pfn).collect();
    let mut contended = 0;
    for &pfn in folios.iter().cycle().take(30 * folios.len()) {
        if world.is_told() {
            break;
        }
        if on.memory.folios.try_get(pfn) {
            contended += u32::from(on.referenced(pfn).contended);
            on.memory.put(pfn);
        }
    }
    contended
}

/// Each exit policy runs with one policy to list folios.
fn in_all_exits(schedules: usize, before: Step, steps: &'static [Step], after: Step) {
    for (exit, lru) in ExitPolicy::ALL.into_iter().zip(LruPolicy::ALL.into_iter().cycle()) {
        in_orders_under((lru, exit), schedules, before, steps, after);
    }
}

#[test]
fn a_walk_against_an_exit() {
    in_all_exits(60, give_up, &[exit, walk_twice], nothing);
}

/// The child that shares the pages keeps its own.
#[test]
fn a_walk_against_the_exit_of_a_parent() {
    fn child_writes(world: &World) {
        assert_eq!(world.write(world.child(), 0, 60), Ok(()));
        assert_eq!(world.read(world.child(), 0), Ok(60));
    }
    in_all_exits(40, fork_and_give_up, &[exit, walk_twice, child_writes], |world| {
        let child = world.child();
        assert_eq!((world.read(child, 0), world.read(child, 1)), (Ok(60), Ok(11)));
    });
}

#[test]
fn a_walk_against_an_exit_and_the_oom_reaper() {
    in_all_exits(30, give_up, &[exit, walk_twice, reap], nothing);
    in_all_exits(30, fork_and_give_up, &[exit, walk_twice, reap], |world| {
        assert_eq!(world.read(world.child(), 1), Ok(11));
    });
}

/// The exit happens in the middle of a walk that has locked a VMA.
#[test]
fn walks_until_an_exit_has_ended() {
    in_all_exits(60, nothing, &[exit, |world| _ = look(world)], nothing);
}

/// A walk that must not wait ends while the exit of another process of the family unlinks its VMAs.
#[test]
fn a_walk_keeps_out_of_what_an_exit_unlinks() {
    static CONTENDED: AtomicU32 = AtomicU32::new(0);
    fn count(world: &World) {
        CONTENDED.fetch_add(look(world), Relaxed);
    }
    in_all_exits(60, World::fork, &[exit, count], nothing);
    assert!(CONTENDED.load(Relaxed) > 0, "no walk met an exit at the lock of a root");
}
