//! Random operations on the LRU, on all CPUs at the same time.

use super::world::{ALL, ANON, World, config, well};
use mmscale_arch::sync::SpinLock;
use mmscale_arch::{LockClass, Machine as _, NodeId, Pfn};
use mmscale_mm::folio::{FolioFlags, FolioInit};
use mmscale_mm::lru::{LruList, LruPolicy};
use mmscale_mm::memcg::GroupId;
use mmscale_sim::{Outcome, Policy, Sim, SimConfig};
use std::rc::Rc;

/// Draws the next word of a task's own choices.
fn next(state: &mut u64) -> usize {
    *state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e);
    (*state >> 33) as usize
}

/// Folios that move between CPUs. The CPU that takes one from the shelf owns its mapping.
type Shelf = Rc<SpinLock<Sim, Vec<Pfn>>>;

/// Runs one random operation on a folio of which the caller has a reference.
fn disturb(world: &World, choice: usize, pfn: Pfn) {
    let memory = world.memory();
    match choice {
        0 | 1 => {
            if memory.isolate(pfn) {
                Sim::user(200);
                if choice == 0 { memory.putback(pfn) } else { memory.putback_now(&[pfn]) }
            }
        }
        2 => memory.mlock(pfn),
        3 => memory.munlock(pfn),
        4 => memory.activate(pfn),
        5 => memory.deactivate(pfn),
        6 => memory.activate(pfn),
        7 => memory.lazyfree(pfn),
        8 => memory.rotate(pfn),
        9 => {
            memory.demand(pfn);
        }
        10 => memory.drain(),
        _ => {
            memory.is_exclusive(pfn, 2);
        }
    }
}

fn scan(world: &World, state: &mut u64) {
    let list = LruList::ALL[next(state) % LruList::COUNT];
    let node = NodeId::new(next(state) % 2);
    let group = GroupId::new(next(state) % 2);
    let mut folios = [Pfn::new(0); 8];
    let scan = world.memory().isolate_oldest(group, node, list, 12, &mut folios);
    Sim::user(300);
    world.memory().putback_now(&folios[..scan.taken]);
}

fn swarm_task(world: &World, shelf: &Shelf, seed: u64, steps: usize) {
    let mut state = seed;
    for _ in 0..steps {
        let group = GroupId::new(next(&mut state) % 2);
        let flags =
            if next(&mut state).is_multiple_of(4) { FolioFlags::empty() } else { ANON.flags };
        match next(&mut state) % 8 {
            0..=2 => {
                let pfn = world.fault(FolioInit { group, flags, ..ANON });
                shelf.lock().push(pfn);
            }
            3 | 4 => {
                let at = next(&mut state);
                let mut folios = shelf.lock();
                if !folios.is_empty() {
                    let at = at % folios.len();
                    let pfn = folios.swap_remove(at);
                    drop(folios);
                    world.unmap(pfn);
                }
            }
            5 => scan(world, &mut state),
            _ => {
                let (at, choice) = (next(&mut state), next(&mut state) % 12);
                // The reference of a look-up: the owner may be dropping its own.
                let found = {
                    let folios = shelf.lock();
                    (!folios.is_empty()).then(|| folios[at % folios.len()])
                };
                if let Some(pfn) = found.filter(|&pfn| world.memory().folios.try_get(pfn)) {
                    disturb(world, choice, pfn);
                    world.memory().put(pfn);
                }
            }
        }
        if next(&mut state).is_multiple_of(97) {
            world.memory().drain_all();
        }
    }
}

fn swarm(seed: u64, lru: LruPolicy, policy: Policy) -> Outcome {
    let config = SimConfig { policy, ..config(8, seed) };
    let (outcome, counters) = well(config, lru, move |world| {
        let shelf: Shelf = Rc::new(SpinLock::new(LockClass::Other, Vec::new()));
        for cpu in 0..8 {
            let shelf = Rc::clone(&shelf);
            world.spawn(cpu, move |world| {
                swarm_task(world, &shelf, seed << 8 | cpu as u64, 400);
            });
        }
        world.wait_for_others();
        let living = core::mem::take(&mut *shelf.lock());
        // Batches hold folios that have no other user: under `Lazy` only those of other kinds than
        // `Add`.
        world.memory().drain_all();
        let audit = world.memory().verify().expect("the LRU adds up while folios live");
        assert_eq!(audit.folios, living.len() as u64);
        let folios: Vec<_> = living.into_iter().map(|pfn| (pfn, 1)).collect();
        folios.iter().for_each(|&(pfn, _)| {
            world.memory().remove_maps(pfn, 1);
        });
        world.memory().release(&folios);
    });
    assert!(counters.added > 0 && counters.other_batches > 0, "{counters:?}");
    outcome
}

#[test]
fn a_swarm_of_everything_leaves_all_in_order() {
    for lru in ALL {
        for seed in 0..12 {
            swarm(seed, lru, Policy::Lazy);
        }
    }
}

#[test]
fn the_lru_is_the_same_under_both_engine_policies() {
    for lru in ALL {
        for seed in 0..3 {
            let (lazy, naive) = (swarm(seed, lru, Policy::Lazy), swarm(seed, lru, Policy::Naive));
            assert_eq!(lazy.locks, naive.locks, "{lru:?}, seed {seed}");
            assert_eq!(lazy.fingerprint, naive.fingerprint, "{lru:?}, seed {seed}");
        }
    }
}
