//! How well an allocator keeps its free frames together, and within reach of one CPU.
//!
//! Blocks are allocated and freed at random places, on one thread, always the same ones. Then
//! blocks of 512 frames are allocated until there are none. Their number is compared with the
//! number that would fit if the free frames were in one piece. Counting changes the allocator's
//! state, so each figure has an allocator of its own.

use crate::ring::wait_until;
use crate::{Peer, random::Random};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// The order of a block that counts as whole: 2 MiB.
const WHOLE: u8 = 9;

/// How often all allocated blocks are replaced before the count, at half occupancy: few times, for
/// allocators that search for a run of frames from the start of memory.
const CHURN_TURNS: usize = 4;

/// How often they are replaced for `recovery`, in three steps.
pub const RECOVERY_TURNS: [usize; 3] = [5, 10, 20];

/// The figures, each in percent of the ideal.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Fragmentation {
    /// Whole free blocks after half of the frames were allocated from a fresh pool in blocks of
    /// orders 0 to 3, and all of these were replaced four times.
    pub churn: f64,
    /// Whole free blocks after all frames were allocated one by one, a random half was freed, and
    /// the rest was replaced as often as [`RECOVERY_TURNS`] says.
    pub recovery: [f64; 3],
    /// Frames that one CPU can allocate after two CPUs have allocated all, freed each other's, and
    /// stopped; in percent of those that it can allocate at first.
    pub reachable: f64,
    /// Whole blocks that one CPU can allocate in that state.
    pub whole: f64,
}

impl Fragmentation {
    /// The names of the figures.
    pub const NAMES: [&'static str; 6] = ["churn", "rec-5", "rec-10", "rec-20", "reach", "whole"];

    /// Returns the figures in the order of their names.
    pub fn figures(&self) -> [f64; 6] {
        let [five, ten, twenty] = self.recovery;
        [self.churn, five, ten, twenty, self.reachable, self.whole]
    }
}

/// Measures all figures of one allocator with `frames` frames.
pub fn measure<P: Peer>(frames: usize) -> Fragmentation {
    let fresh = on_one::<P, _>(frames, |peer| Reach::of(peer));
    let afterwards = crossed::<P>(frames);
    Fragmentation {
        churn: on_one::<P, _>(frames, move |peer| {
            let (mut random, mut held, mut pages) = (Random::new(1), Vec::new(), 0);
            while pages < frames / 2 {
                let order = random.small_order();
                held.extend(peer.alloc(order).map(|frame| (frame, order)));
                pages += 1 << order;
            }
            churned(peer, &mut held, Random::small_order, CHURN_TURNS, frames)
        }),
        recovery: RECOVERY_TURNS.map(|turns| {
            on_one::<P, _>(frames, move |peer| {
                let mut held: Vec<(u32, u8)> =
                    std::iter::from_fn(|| peer.alloc(0).map(|frame| (frame, 0))).collect();
                Random::new(1).shuffle(&mut held);
                held.drain(held.len() / 2..).for_each(|(frame, order)| peer.free(frame, order));
                churned(peer, &mut held, |_| 0, turns, frames)
            })
        }),
        reachable: percent(afterwards.frames(), fresh.frames()),
        whole: percent(afterwards.blocks, fresh.blocks),
    }
}

/// Runs `body` on a fresh allocator and returns its result.
fn on_one<P: Peer, R: Send + 'static>(
    frames: usize,
    body: impl Fn(&P) -> R + Send + Sync + 'static,
) -> R {
    let result = Arc::new(Mutex::new(None));
    let place = Arc::clone(&result);
    P::run(frames, 1, move |peer, _| {
        *place.lock().expect("no thread panicked") = Some(body(peer));
    });
    result.lock().expect("no thread panicked").take().expect("the body ran")
}

/// Replaces everything in `held` `turns` times on average, at random, by blocks of the orders that
/// `order` returns. Returns the whole free blocks in percent of those that fit into the free
/// frames. Frees everything.
fn churned<P: Peer>(
    peer: &P,
    held: &mut Vec<(u32, u8)>,
    order: fn(&mut Random) -> u8,
    turns: usize,
    frames: usize,
) -> f64 {
    let mut random = Random::new(2);
    for _ in 0..held.len() * turns {
        let at = random.below(held.len());
        let (frame, old) = held[at];
        peer.free(frame, old);
        let order = order(&mut random);
        match peer.alloc(order) {
            Some(frame) => held[at] = (frame, order),
            None => drop(held.swap_remove(at)),
        }
    }
    let blocks = take_all(peer, WHOLE);
    let out: usize = held.iter().map(|&(_, order)| 1 << order).sum();
    blocks.iter().for_each(|&block| peer.free(block, WHOLE));
    held.drain(..).for_each(|(frame, order)| peer.free(frame, order));
    let ideal = (frames - out) >> WHOLE;
    percent(blocks.len(), ideal)
}

/// Blocks and frames that one CPU can allocate.
#[derive(Clone, Copy, Default)]
struct Reach {
    /// Whole blocks, allocated first.
    blocks: usize,
    /// Single frames, allocated after them.
    rest: usize,
}

impl Reach {
    /// Allocates everything, counts it, and frees it.
    fn of<P: Peer>(peer: &P) -> Self {
        let (blocks, rest) = (take_all(peer, WHOLE), take_all(peer, 0));
        blocks.iter().for_each(|&block| peer.free(block, WHOLE));
        rest.iter().for_each(|&frame| peer.free(frame, 0));
        Self { blocks: blocks.len(), rest: rest.len() }
    }
    fn frames(self) -> usize {
        (self.blocks << WHOLE) + self.rest
    }
}

fn take_all<P: Peer>(peer: &P, order: u8) -> Vec<u32> {
    std::iter::from_fn(|| peer.alloc_last(order)).collect()
}

/// Two CPUs allocate all frames alternately, then free each other's in random order; returns what
/// the first one can allocate then. Never both at a time, so the outcome is always the same.
fn crossed<P: Peer>(frames: usize) -> Reach {
    let found = Arc::new(Mutex::new(Reach::default()));
    let (place, piles, turn) =
        (Arc::clone(&found), [const { Mutex::new(Vec::new()) }; 2], AtomicUsize::new(0));
    P::run(frames, 2, move |peer, thread| {
        // Half each, a few at a time: their frames are interleaved.
        let slices = 64;
        let mut random = Random::new(3 + thread as u64);
        for slice in 0..2 * slices {
            wait_until(|| turn.load(Ordering::Acquire) == 2 * slice + thread);
            let mine = &piles[if slice < slices { thread } else { 1 - thread }];
            let mut mine = mine.lock().expect("no thread panicked");
            if slice < slices {
                mine.extend((0..frames / 2 / slices).map_while(|_| peer.alloc(0)));
            } else {
                if slice == slices {
                    random.shuffle(&mut mine);
                }
                let left = mine.len() * (2 * slices - 1 - slice) / (2 * slices - slice);
                mine.drain(left..).for_each(|frame| peer.free(frame, 0));
            }
            drop(mine);
            turn.fetch_add(1, Ordering::AcqRel);
        }
        if thread == 0 {
            wait_until(|| turn.load(Ordering::Acquire) == 4 * slices);
            *place.lock().expect("no thread panicked") = Reach::of(peer);
        }
    });
    *found.lock().expect("no thread panicked")
}

fn percent(found: usize, ideal: usize) -> f64 {
    found as f64 / ideal.max(1) as f64 * 100.0
}
