//! Processes whose memory is read from outside while their threads run random operations, and while
//! they end. The last user of an address space frees it: its process, or a reader.

use super::process::{SHARED, SHARED_PAGES, Thread, access, new_space, next, range};
use crate::lru::world::{ALL, World, config, well_with};
use mmscale_arch::{Machine as _, Policy as _, Vpn};
use mmscale_frames::page_alloc::MemoryMap;
use mmscale_mm::lru::LruPolicy;
use mmscale_mm::space::{ExitPolicy, FaultError, HugePages, MapRequest, Place, Space, SpaceError};
use mmscale_sim::{Policy, Sim, SimConfig};
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

const CPUS: usize = 8;
const STEPS: usize = 40;
/// Where a reader has its copies.
const TO: u64 = 512 * 3;
const TO_PAGES: u64 = 100;

/// Counts of a run.
#[derive(Clone, Copy, Default, Debug)]
struct Seen {
    /// Pages that readers have copied.
    pages: u64,
    /// Address spaces that a reader has freed.
    freed_by_reader: u64,
}

/// Reads the memory of both processes, whose tags are 1 and 2, until they have ended.
fn read_until_they_end(world: &World, of: &[Arc<Space<Sim>>; 2], mut state: u64) -> Seen {
    let (on, own, mut seen) = (world.mm.mm_ref(), new_space(world), Seen::default());
    let request = MapRequest::new(TO_PAGES).at(Place::Fixed(Vpn::new(TO)));
    while own.mmap(on, request).is_err() {
        Sim::user(2_000);
    }
    let mut left = [true; 2];
    while left.contains(&true) {
        let which = next(&mut state) as usize % 2;
        let space = &of[which];
        if !space.try_get() {
            left[which] = false;
            continue;
        }
        let first = next(&mut state) % SHARED_PAGES;
        let pages = (1 + next(&mut state) % TO_PAGES).min(SHARED_PAGES - first);
        let copied = own.read_from(on, space, range(SHARED + first, pages), Vpn::new(TO));
        let is_last = space.is_skipped();
        space.put(on);
        seen.freed_by_reader += u64::from(!is_last && space.is_skipped());
        let copied = copied.unwrap_or_else(|why| {
            assert_eq!(why, SpaceError::Fault);
            0
        });
        seen.pages += copied;
        for page in TO..TO + copied {
            match access(world, &own, page, None) {
                Ok(stamp) => assert!(stamp == 0 || stamp >> 32 == which as u64 + 1, "{stamp:#x}"),
                Err(why) => assert_eq!(why, FaultError::Oom),
            }
        }
    }
    own.exit(on);
    seen
}

/// Each CPU has a thread of one of two processes and a reader of both.
fn swarm(seed: u64, lru: LruPolicy, policy: Policy, frames: u32) -> (Seen, u64) {
    let exit = ExitPolicy::at(seed as usize % ExitPolicy::ALL.len());
    let change = move |config: &mut mmscale_mm::mm::MmConfig| {
        config.map = MemoryMap::nodes(2, frames);
        config.swap.pages = 2000;
        config.space.exit = exit;
        config.space.huge =
            if seed.is_multiple_of(3) { HugePages::Always } else { HugePages::Advised };
    };
    let seen = Rc::new(Cell::new(Seen::default()));
    let told = Rc::clone(&seen);
    let config = SimConfig { policy, ..config(CPUS, seed) };
    let (outcome, _) = well_with(config, lru, change, move |world| {
        let spaces = [new_space(world), new_space(world)];
        let threads = Rc::new([Cell::new(CPUS / 2), Cell::new(CPUS / 2)]);
        for cpu in 0..CPUS {
            let (space, threads) = (Arc::clone(&spaces[cpu % 2]), Rc::clone(&threads));
            world.spawn(cpu, move |world| {
                let tag = 1 + cpu as u64 % 2;
                Thread::new(world, &space, tag, cpu as u64).seeded(seed).run(STEPS);
                let running = &threads[cpu % 2];
                running.set(running.get() - 1);
                if running.get() == 0 {
                    space.exit(world.mm.mm_ref());
                }
            });
            let (of, told) = (spaces.clone(), Rc::clone(&told));
            world.spawn(cpu, move |world| {
                let new = read_until_they_end(world, &of, seed << 8 | cpu as u64);
                let Seen { pages, freed_by_reader } = told.get();
                told.set(Seen {
                    pages: pages + new.pages,
                    freed_by_reader: freed_by_reader + new.freed_by_reader,
                });
            });
        }
        world.wait_for_others();
        let on = world.mm.mm_ref();
        assert_eq!(on.verify().expect("nothing is left").spaces, 0);
        on.memory.verify().unwrap_or_else(|why| panic!("the LRU: {why}"));
    });
    (seen.get(), outcome.fingerprint)
}

#[test]
fn processes_that_are_read_from_outside_leave_all_in_order() {
    let (mut pages, mut freed) = (0, 0);
    for lru in ALL {
        for seed in 0..12 {
            // Memory is short in some.
            let frames = if seed % 4 == 3 { 900 } else { 1 << 14 };
            let (seen, _) = swarm(seed, lru, Policy::Lazy, frames);
            pages += seen.pages;
            freed += seen.freed_by_reader;
        }
    }
    assert!(pages > 10_000, "{pages} pages were read");
    assert!(freed > 10, "{freed} address spaces were freed by a reader");
}

#[test]
fn they_are_the_same_under_both_engine_policies() {
    for seed in 20..22 {
        let [lazy, naive] =
            [Policy::Lazy, Policy::Naive].map(|it| swarm(seed, LruPolicy::Stock, it, 1 << 14).1);
        assert_eq!(lazy, naive, "seed {seed}");
    }
}
