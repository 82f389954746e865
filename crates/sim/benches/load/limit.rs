//! The load as a state machine written by hand: what an engine could cost at the least that does
//! no more than this load needs. No coroutines, interrupts, statistics, checks, or topology; one
//! binary heap of events, a number of jitter for each piece of work.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// Times of the load, in ps, near those of the sample profile.
const OUTSIDE_PS: u64 = 100_000;
const INSIDE_PS: u64 = 5_000;
const LOCK_PS: u64 = 10_000;
const HANDOFF_PS: u64 = 60_000;

/// A virtual CPU between two pieces of its loop.
#[derive(Clone, Copy)]
struct Cpu {
    rng: u64,
    left: u64,
    holds: bool,
}

impl Cpu {
    /// Returns `ps` with jitter of 10 percent to both sides.
    fn jittered(&mut self, ps: u64) -> u64 {
        self.rng = self.rng.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.rng;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^= z >> 31;
        let factor = 922 + ((u128::from(z) * 205) >> 64) as u64;
        (ps * factor) >> 10
    }
}

/// A lock with its queue.
#[derive(Default)]
struct Lock {
    held: bool,
    free_at_ps: u64,
    waiters: VecDeque<u32>,
}

/// Runs `total` iterations, spread over all CPUs; returns the end of virtual time in ps, and the
/// number of iterations.
pub(crate) fn simulate(cpus: usize, total: u64, locks: usize) -> (u64, u64) {
    let left = total / cpus as u64;
    let mut all: Vec<Cpu> =
        (0..cpus).map(|cpu| Cpu { rng: cpu as u64, left, holds: false }).collect();
    let mut locks: Vec<Lock> = (0..locks).map(|_| Lock::default()).collect();
    let mut events: BinaryHeap<Reverse<(u64, u32)>> =
        (0..cpus).map(|cpu| Reverse((0, cpu as u32))).collect();
    let (mut end_ps, mut done) = (0, 0);
    while let Some(Reverse((mut now_ps, number))) = events.pop() {
        let cpu = &mut all[number as usize];
        let of = number as usize % locks.len();
        let lock = &mut locks[of];
        if !cpu.holds {
            if lock.held || lock.free_at_ps > now_ps {
                lock.waiters.push_back(number);
                if !lock.held {
                    // Released later than now on this host: granted by hand.
                    lock.held = true;
                    let first = lock.waiters.pop_front().expect("it was just added");
                    all[first as usize].holds = true;
                    events.push(Reverse((lock.free_at_ps + HANDOFF_PS, first)));
                }
                continue;
            }
            now_ps += LOCK_PS;
        }
        now_ps += cpu.jittered(INSIDE_PS);
        cpu.holds = false;
        cpu.left = cpu.left.saturating_sub(1);
        done += 1;
        lock.free_at_ps = now_ps;
        let outside_ps = cpu.jittered(OUTSIDE_PS);
        if cpu.left > 0 {
            events.push(Reverse((now_ps + outside_ps, number)));
        }
        end_ps = end_ps.max(now_ps);
        match lock.waiters.pop_front() {
            Some(next) => {
                lock.held = true;
                all[next as usize].holds = true;
                events.push(Reverse((now_ps + HANDOFF_PS, next)));
            }
            None => lock.held = false,
        }
    }
    (end_ps, done)
}
