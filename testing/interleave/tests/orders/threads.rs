//! Operations of one thread of a process take effect for the others: no CPU uses a stale
//! translation after the call or the fault has returned.

use crate::space::{AT, Step, World, in_orders_of, nothing, range};
use mmscale_arch::{Machine as _, Vpn};
use mmscale_interleave::Model;
use mmscale_mm::lru::LruPolicy;
use mmscale_mm::reclaim::{Rmap, UnmapTo};
use mmscale_mm::smp::CallPolicy;
use mmscale_mm::space::{Advice, FaultError, MapRequest, Place, Prot, ReapLock, Reaped};
use mmscale_mm::tlb::UnmapBatch;

fn in_orders(schedules: usize, before: Step, steps: &'static [Step], after: Step) {
    for calls in [CallPolicy::Stock, CallPolicy::Requests] {
        in_orders_of((LruPolicy::Lazy, calls), schedules, before, steps, after);
    }
}

/// After a copy on write every thread reads the copy.
#[test]
fn a_copy_on_write_is_seen_by_all_threads() {
    fn write(world: &World) {
        assert_eq!(world.write(world.space(), 0, 50), Ok(()));
        world.tell();
    }
    fn read(world: &World) {
        let before = world.read(world.space(), 0);
        assert!(before == Ok(10) || before == Ok(50), "{before:?}");
        world.until_told();
        assert_eq!(world.read(world.space(), 0), Ok(50), "it reads the old page");
    }
    in_orders(60, World::fork, &[write, read], nothing);
}

/// A page that was unmapped and mapped again has no write that another thread makes to the old
/// page.
#[test]
fn a_page_that_is_mapped_again_has_nothing_of_the_old_one() {
    fn map_again(world: &World) {
        let on = world.mm.mm_ref();
        assert_eq!(world.space().munmap(on, range(AT, 6)), Ok(()));
        let request = MapRequest::new(6).at(Place::Fixed(Vpn::new(AT)));
        assert_eq!(world.space().mmap(on, request), Ok(Vpn::new(AT)));
        world.tell();
        assert_eq!(world.read(world.space(), 0), Ok(0));
    }
    fn read(world: &World) {
        let before = world.read(world.space(), 0);
        assert!([Ok(10), Ok(0), Err(FaultError::Segv)].contains(&before), "{before:?}");
        world.until_told();
        assert_eq!(world.read(world.space(), 0), Ok(0), "it reads the old page");
    }
    in_orders(60, nothing, &[map_again, read], nothing);
}

/// No thread uses a right that mprotect has removed, even if it used the right just before.
#[test]
fn no_thread_writes_after_mprotect() {
    fn protect(world: &World) {
        let part = range(AT, 2);
        assert_eq!(world.space().mprotect(world.mm.mm_ref(), part, Prot::READ), Ok(()));
        world.tell();
    }
    fn write(world: &World) {
        let before = world.write(world.space(), 0, 20);
        assert!(before.is_ok() || before == Err(FaultError::Segv), "{before:?}");
        world.until_told();
        assert_eq!(world.write(world.space(), 0, 21), Err(FaultError::Segv));
    }
    in_orders(60, nothing, &[protect, write], nothing);
}

/// A page that was given up and is dropped loses no write: the writer has the old page again, or a
/// page of its own.
#[test]
fn a_write_to_a_page_that_is_dropped_is_kept() {
    fn give_up(world: &World) {
        let freed = world.space().madvise(world.mm.mm_ref(), range(AT, 2), Advice::Free);
        assert_eq!(freed, Ok(()));
    }
    fn drop_clean(world: &World) {
        let on = world.mm.mm_ref();
        let folios: Vec<_> = on.memory.folios.iter().map(|(pfn, _)| pfn).collect();
        for pfn in folios {
            if on.memory.folios.try_get(pfn) {
                on.unmap(pfn, UnmapTo::Drop, &mut UnmapBatch::new());
                on.memory.put(pfn);
            }
        }
    }
    fn write(world: &World) {
        let seen = world.read(world.space(), 0);
        assert!(seen == Ok(10) || seen == Ok(0), "{seen:?}");
        for stamp in [20, 21] {
            assert_eq!(world.write(world.space(), 0, stamp), Ok(()));
            assert_eq!(world.read(world.space(), 0), Ok(stamp), "a write was lost");
        }
    }
    in_orders(100, give_up, &[drop_clean, write], |world| {
        assert_eq!(world.read(world.space(), 0), Ok(21));
    });
}

/// No thread reads a dropped page after another thread has a new one.
#[test]
fn a_dropped_page_is_not_read_any_more() {
    fn give_up(world: &World) {
        let freed = world.space().madvise(world.mm.mm_ref(), range(AT, 2), Advice::Free);
        assert_eq!(freed, Ok(()));
    }
    fn drop_and_write(world: &World) {
        let on = world.mm.mm_ref();
        let folios: Vec<_> = on.memory.folios.iter().map(|(pfn, _)| pfn).collect();
        for pfn in folios {
            if on.memory.folios.try_get(pfn) {
                on.unmap(pfn, UnmapTo::Drop, &mut UnmapBatch::new());
                on.memory.put(pfn);
            }
        }
        assert_eq!(world.write(world.space(), 0, 60), Ok(()));
        world.tell();
    }
    fn read(world: &World) {
        let seen = world.read(world.space(), 0);
        assert!([Ok(10), Ok(0), Ok(60)].contains(&seen), "{seen:?}");
        world.until_told();
        assert_eq!(world.read(world.space(), 0), Ok(60), "it reads the old page");
    }
    in_orders(60, give_up, &[drop_and_write, read], nothing);
}

/// A reaper removes pages for good: a thread that runs on gets no new ones.
#[test]
fn what_is_reaped_is_not_filled_again() {
    fn reap(world: &World) {
        let reaped = world.space().reap(world.mm.mm_ref(), ReapLock::Wait);
        assert_eq!(reaped, Reaped::Done);
        world.tell();
    }
    fn write(world: &World) {
        for page in [0, 3] {
            let done = world.write(world.space(), page, 20);
            assert!(done.is_ok() || done == Err(FaultError::Bus), "{done:?}");
        }
        world.until_told();
        // Pages that a stale translation still reaches are in limbo.
        Model::user(0);
        assert_eq!(world.write(world.space(), 4, 30), Err(FaultError::Bus));
    }
    in_orders(100, nothing, &[reap, write], nothing);
}

/// A write to a page while it is swapped out is not lost.
#[test]
fn a_write_while_its_page_goes_out_is_not_lost() {
    fn page_out(world: &World) {
        for _ in 0..3 {
            let out = world.space().madvise(world.mm.mm_ref(), range(AT, 2), Advice::PageOut);
            assert_eq!(out, Ok(()));
        }
    }
    fn write(world: &World) {
        for stamp in 20..=29 {
            assert_eq!(world.write(world.space(), 0, stamp), Ok(()));
            assert_eq!(world.read(world.space(), 0), Ok(stamp), "a write was lost");
        }
    }
    fn read(world: &World) {
        for _ in 0..6 {
            let seen = world.read(world.space(), 0);
            assert!(seen.is_ok_and(|seen| seen == 10 || seen >= 20), "{seen:?}");
            assert_eq!(world.read(world.space(), 1), Ok(11));
        }
    }
    in_orders(100, nothing, &[page_out, write, read], |world| {
        assert_eq!(world.read(world.space(), 0), Ok(29));
        assert_eq!(world.read(world.space(), 1), Ok(11));
    });
}
