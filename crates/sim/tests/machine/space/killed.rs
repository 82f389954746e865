//! A process is killed while its threads populate, lock, copy and free memory, at a random time.

use super::process::{new_space, next};
use crate::lru::world::{ALL, World, config, well_with};
use mmscale_arch::{Machine as _, VmaRange, Vpn};
use mmscale_frames::page_alloc::MemoryMap;
use mmscale_mm::lru::LruPolicy;
use mmscale_mm::pgtable::MemAccess;
use mmscale_mm::space::{
    Advice, FaultError, LockWhat, MapRequest, MmRef, Place, Space, SpaceError,
};
use mmscale_sim::{Sim, SimConfig};
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

const CPUS: usize = 4;
/// The first of the pages that all threads use; each thread has some more.
const AT: u64 = 512 * 8 - 40;
const PAGES: u64 = 80;

fn range(at: u64, pages: u64) -> VmaRange {
    VmaRange::with_pages(Vpn::new(at), pages).expect("user pages")
}

/// Operations that the signal interrupted.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Midway {
    populating: u32,
    locking: u32,
    forking: u32,
}

struct Thread<'a> {
    on: MmRef<'a, Sim>,
    space: &'a Space<Sim>,
    own: u64,
    state: u64,
    midway: &'a Cell<Midway>,
}

impl Thread<'_> {
    /// Runs until the process is killed.
    fn run(mut self) {
        while self.step() {
            assert!(Sim::now_ns() < 1_000_000_000, "the process is not killed");
        }
        assert!(self.space.is_killed());
    }
    fn note(&self, add: impl FnOnce(&mut Midway)) {
        let mut midway = self.midway.get();
        add(&mut midway);
        self.midway.set(midway);
    }
    /// Returns false if the process was killed.
    fn step(&mut self) -> bool {
        let draw = next(&mut self.state);
        let alive = !self.space.is_killed();
        match draw % 5 {
            0 => self.populate(alive),
            1 => {
                let done = self.space.mlock(self.on, range(AT, PAGES), LockWhat::Everything);
                let told = done == Err(SpaceError::Interrupted);
                self.note(|midway| midway.locking += u32::from(alive && told));
                assert!(told || done.is_ok() || done == Err(SpaceError::NoMemory), "{done:?}");
                let _ = self.space.munlock(self.on, range(AT, PAGES));
                !told
            }
            2 => self.fork(alive),
            3 => {
                let _ = self.space.madvise(self.on, range(AT, PAGES), Advice::DontNeed);
                let populate = Advice::PopulateWrite;
                let done = self.space.madvise(self.on, range(AT, PAGES), populate);
                done != Err(SpaceError::Interrupted)
            }
            _ => (AT..AT + PAGES).step_by(7).all(|page| {
                let write = |pfn| Sim::write_stamp(pfn, page);
                let done = self.space.access(self.on, Vpn::new(page), MemAccess::Write, write);
                assert!(done.is_ok() || done == Err(FaultError::Killed), "{done:?}");
                done.is_ok()
            }),
        }
    }
    fn populate(&self, alive: bool) -> bool {
        let request = MapRequest::new(40).at(Place::Fixed(Vpn::new(self.own))).populated();
        assert_eq!(self.space.mmap(self.on, request), Ok(Vpn::new(self.own)));
        let mut there = Vec::new();
        let seen = self.space.mincore(self.on, range(self.own, 40), |is| there.push(is));
        assert_eq!(seen, Ok(()));
        let come = there.iter().take_while(|&&is| is).count();
        assert!(there[come..].iter().all(|is| !is), "a page is left out: {there:?}");
        let killed = self.space.is_killed();
        assert!(killed || come == 40, "{come} pages");
        self.note(|midway| midway.populating += u32::from(alive && come < 40));
        !killed
    }
    fn fork(&self, alive: bool) -> bool {
        match self.space.fork(self.on) {
            Ok(child) => {
                assert!(!child.is_killed());
                child.exit(self.on);
                true
            }
            Err(why) => {
                assert_eq!(why, SpaceError::Interrupted);
                self.note(|midway| midway.forking += u32::from(alive));
                false
            }
        }
    }
}

/// Kills one process after `after_ns`.
fn kill(world: &World, space: Arc<Space<Sim>>, after_ns: u64, seed: u64, found: &Rc<Cell<Midway>>) {
    let on = world.mm.mm_ref();
    for part in 0..4 {
        let request = MapRequest::new(PAGES / 4).at(Place::Fixed(Vpn::new(AT + part * PAGES / 4)));
        space.mmap(on, request).expect("there is memory");
        // So that neighbours are not merged.
        let advice = if part % 2 == 0 { Advice::KeepOnFork } else { Advice::NoHugePage };
        space.madvise(on, range(AT + part * PAGES / 4, PAGES / 4), advice).expect("it is mapped");
    }
    for cpu in 0..CPUS {
        let (space, midway) = (Arc::clone(&space), Rc::clone(found));
        world.spawn(cpu, move |world| {
            let own = AT + 1000 * (1 + cpu as u64);
            let state = seed << 8 | cpu as u64;
            let on = world.mm.mm_ref();
            Thread { on, space: &space, own, state, midway: &midway }.run();
        });
    }
    world.mm.sleep_ns(after_ns);
    space.kill();
    world.wait_for_others();
    let audit = on.verify().unwrap_or_else(|why| panic!("the address spaces: {why}"));
    assert_eq!(audit.spaces, 1, "children of forks that were refused are gone");
    on.memory.verify().unwrap_or_else(|why| panic!("the LRU: {why}"));
    space.exit(on);
    assert_eq!(on.verify().expect("nothing is left").spaces, 0);
}

fn run(seed: u64, lru: LruPolicy) -> Midway {
    let found = Rc::new(Cell::new(Midway::default()));
    let midway = Rc::clone(&found);
    let config = SimConfig { seed, ..config(CPUS, seed) };
    let change = |config: &mut mmscale_mm::mm::MmConfig| config.map = MemoryMap::nodes(2, 1 << 13);
    well_with(config, lru, change, move |world| {
        // Several processes, one after the other: the start of a run costs more than a kill.
        let mut state = seed;
        for round in 0..6 {
            let after_ns = 1_000 + next(&mut state) % 200_000;
            kill(world, new_space(world), after_ns, seed * 8 + round, &midway);
        }
    });
    found.get()
}

#[test]
fn a_process_that_is_killed_at_any_time_leaves_nothing() {
    let mut all = Midway::default();
    for seed in 0..30 {
        let found = run(seed, ALL[seed as usize % 3]);
        all.populating += found.populating;
        all.locking += found.locking;
        all.forking += found.forking;
    }
    assert!(all.populating > 10 && all.locking > 10 && all.forking > 10, "{all:?}");
}
