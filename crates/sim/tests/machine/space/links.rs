//! The locks of the reverse map, as operations on address spaces take them.

use super::process::new_space;
use crate::lru::world::{World, config, well};
use mmscale_arch::{Machine as _, VmaRange, Vpn};
use mmscale_mm::lru::LruPolicy;
use mmscale_mm::pgtable::MemAccess;
use mmscale_mm::space::{File, MapRequest, Place, Space};
use mmscale_sim::{Outcome, Sim};

const AT: u64 = 512 * 8;
const PAGES: u64 = 10;

/// Maps pages and writes to the first `written` of them.
fn map(world: &World, space: &Space<Sim>, at: u64, written: u64) {
    let on = world.mm.mm_ref();
    let request = MapRequest::new(PAGES).at(Place::Fixed(Vpn::new(at)));
    space.mmap(on, request).expect("there is memory");
    for page in at..at + written {
        let write = |pfn| Sim::write_stamp(pfn, page);
        space.access(on, Vpn::new(page), MemAccess::Write, write).expect("there is memory");
    }
}

/// Returns acquisitions and contentions of a class.
fn taken(outcome: &Outcome, class: &str) -> (u64, u64) {
    let rows = outcome.locks.iter().filter(|row| row.class == class);
    rows.fold((0, 0), |sum, row| (sum.0 + row.acquisitions, sum.1 + row.contentions))
}

/// A parent with touched memory, memory that was never touched, and a mapped file forks twice.
#[test]
fn forks_and_ends_take_the_locks_of_what_they_copy_and_remove() {
    let (outcome, _) = well(config(1, 1), LruPolicy::Stock, |world| {
        let on = world.mm.mm_ref();
        let space = new_space(world);
        map(world, &space, AT, PAGES);
        map(world, &space, AT + 1_000, 0);
        let file = File::new(on, PAGES);
        space.hold_file(&file).expect("there is memory");
        let request = MapRequest::new(PAGES).at(Place::Fixed(Vpn::new(AT + 2_000)));
        space.mmap(on, request.of_file(file.id(), 0).shared()).expect("there is memory");
        file.put(on);
        for _ in 0..2 {
            space.fork(on).expect("there is memory").exit(on);
        }
        let all = VmaRange::with_pages(Vpn::new(AT), 3_000).expect("user pages");
        space.munmap(on, all).expect("there is memory");
        space.exit(on);
    });
    // Each fork: to the chain, and its own; the end of each child; the parent's munmap.
    assert_eq!(taken(&outcome, "anon_vma"), (2 * 2 + 2 + 1, 0));
    // mmap, each fork, the end of each child, munmap.
    assert_eq!(taken(&outcome, "i_mmap"), (1 + 2 + 2 + 1, 0));
}

/// Four processes fork at the same time. If one process is the parent of all, they share one root.
#[test]
fn a_family_has_one_lock_and_strangers_have_none_in_common() {
    let storm = |family: bool| {
        let (outcome, _) = well(config(4, 1), LruPolicy::Stock, move |world| {
            let first = new_space(world);
            map(world, &first, AT, PAGES);
            for cpu in 0..4 {
                let space = if family {
                    first.fork(world.mm.mm_ref()).expect("there is memory")
                } else {
                    let space = new_space(world);
                    map(world, &space, AT, PAGES);
                    space
                };
                world.spawn(cpu, move |world| {
                    let on = world.mm.mm_ref();
                    for _ in 0..20 {
                        space.fork(on).expect("there is memory").exit(on);
                    }
                    space.exit(on);
                });
            }
            world.wait_for_others();
            first.exit(world.mm.mm_ref());
        });
        taken(&outcome, "anon_vma")
    };
    let (family, strangers) = (storm(true), storm(false));
    assert!(family.1 > 0, "{family:?}");
    assert!(strangers.0 > 0 && strangers.1 == 0, "{strangers:?}");
}

/// Four processes read the same pages of a file, which are in memory.
#[test]
fn pages_of_a_file_are_found_without_a_lock() {
    let read = |pages: u64| {
        let (outcome, _) = well(config(4, 1), LruPolicy::Stock, move |world| {
            let on = world.mm.mm_ref();
            let file = File::new(on, PAGES);
            let mapped = || {
                let space = new_space(world);
                space.hold_file(&file).expect("there is memory");
                let request = MapRequest::new(PAGES).at(Place::Fixed(Vpn::new(AT)));
                space.mmap(on, request.of_file(file.id(), 0).shared()).expect("there is memory");
                space
            };
            let touch = |world: &World, space: &Space<Sim>, pages: u64| {
                for page in AT..AT + pages {
                    let read = |pfn| assert_eq!(Sim::read_stamp(pfn), 0);
                    let on = world.mm.mm_ref();
                    space.access(on, Vpn::new(page), MemAccess::Read, read).expect("in memory");
                }
            };
            let first = mapped();
            touch(world, &first, PAGES);
            for cpu in 0..4 {
                let space = mapped();
                world.spawn(cpu, move |world| {
                    touch(world, &space, pages);
                    space.exit(world.mm.mm_ref());
                });
            }
            file.put(on);
            world.wait_for_others();
            first.exit(on);
        });
        taken(&outcome, "other")
    };
    let (few, many) = (read(1), read(PAGES));
    assert_eq!(few.0, many.0, "{few:?} {many:?}");
}
