//! Many processes that need more memory than there is, on machines of all kinds.

use super::world::*;
use mmscale_kernel::Os;
use mmscale_system::{Exit, MapSpec, PAGE_BYTES, System, ThreadSpec};

const PROCESSES: u64 = 6;
const ROUNDS: u64 = 4;

/// Draws numbers that differ between seeds: the clock includes the machine's jitter.
fn draw(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut word = *state;
    word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ word >> 31
}

/// Grows, shrinks, forks, sleeps and computes; ends when a call fails.
fn restless(system: &Os, mut state: u64) {
    let mut held = Vec::new();
    for _ in 0..ROUNDS {
        let pages = 100 + draw(&mut state) % 900;
        match grow(system, pages) {
            Ok(at) => held.push((at, pages)),
            Err(_) => return,
        }
        let done = match draw(&mut state) % 6 {
            0 => system.sleep_ns(draw(&mut state) % 20_000_000),
            1 => system.compute_ns(draw(&mut state) % 5_000_000),
            2 => {
                let (at, pages) = held.swap_remove(0);
                system.munmap(at, pages * PAGE_BYTES)
            }
            3 => {
                let spec = ThreadSpec::on(draw(&mut state) as usize % system.cpus());
                let seed = draw(&mut state);
                let child = move |system: &Os| {
                    let _ = grow(system, 50 + seed % 200);
                };
                system.fork(spec, Box::new(child)).map(|_| ())
            }
            4 => system.mmap(MapSpec::populated(pages * PAGE_BYTES)).map(|_| ()),
            _ => Ok(()),
        };
        if done.is_err() {
            return;
        }
    }
    for (at, pages) in held {
        for page in 0..pages {
            match system.read(at.page(page)) {
                Ok(word) => assert_eq!(word, 1 + page),
                Err(_) => return,
            }
        }
    }
}

fn program(system: &Os) {
    let mut state = system.clock_ns();
    let start_one = |at: u64, state: &mut u64| {
        let seed = draw(state);
        start(system, at as usize % 4, move |system: &Os| restless(system, seed))
    };
    let processes: Vec<_> = (0..PROCESSES).map(|at| start_one(at, &mut state)).collect();
    let mut killed = 0;
    for process in processes {
        let exit = system.wait(process).expect("it is our child");
        killed += u64::from(exit == Exit::Killed);
    }
    let seen = counters(system);
    let all = seen.kills + seen.group_kills;
    // Grandchildren may have been killed, too.
    assert!(killed <= all && seen.no_victim == 0, "{killed} killed, {seen:?}");
    // It has recovered.
    let again = grower(system, 1, 2000);
    ends(system, again, Exit::Returned);
}

/// Like the test without, while a CPU goes offline and comes back.
fn with_hotplug(system: &Os) {
    let switch = start(system, 0, |system: &Os| {
        for _ in 0..12 {
            if system.cpu_offline(3).is_err() || system.sleep_ns(2 * PAUSE_NS).is_err() {
                break;
            }
            if system.cpu_online(3).is_err() || system.sleep_ns(3 * PAUSE_NS).is_err() {
                break;
            }
        }
        let _ = system.cpu_online(3);
    });
    assert_eq!(system.set_oom_score_adj(switch, -1000), Ok(()));
    program(system);
    ends(system, switch, Exit::Returned);
}

fn swarm(seeds: core::ops::Range<u64>, program: fn(&Os)) {
    for seed in seeds {
        let pick = seed as usize;
        let mut config = config();
        config.alloc.caches = CACHES[pick % 3];
        config.lru = LRU[pick / 3 % 3];
        if pick % 4 == 1 {
            config = with_swap(config, 700);
        }
        sim(seed, &config, program);
    }
}

#[test]
fn many_want_too_much_and_the_machine_recovers() {
    swarm(0..36, program);
}

#[test]
fn the_same_while_a_cpu_goes_and_comes() {
    swarm(100..118, with_hotplug);
}

#[test]
fn the_same_on_real_threads() {
    threads(&config(), program);
}
