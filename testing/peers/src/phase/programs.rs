//! The work of the threads.

use super::age::age;
use super::clock::Clock;
use super::{FreeOrder, Phase, PoolState, Program};
use crate::Peer;
use crate::hand::{BlockRecord, Hand};
use crate::random::Random;
use crate::ring::{Ring, wait_until};
use std::hint::black_box;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Blocks of order 0 that a thread holds at the peak of `Bulk` and `Cross`.
const BULK_BLOCKS: usize = 65_536;

/// State that the threads of one measurement share.
pub(super) struct Stage {
    pub(super) phase: Phase,
    pub(super) frames: usize,
    pub(super) operations: usize,
    pub(super) clock: Clock,
    ring: Ring,
    /// The frames that pass between threads in `Cross`, and the thread that is next.
    pile: Mutex<Vec<u32>>,
    turn: AtomicUsize,
}

impl Stage {
    pub(super) fn new(phase: Phase, frames: usize, operations: usize) -> Self {
        Self {
            phase,
            frames,
            operations,
            clock: Clock::new(phase.threads),
            ring: Ring::default(),
            pile: Mutex::new(Vec::new()),
            turn: AtomicUsize::new(0),
        }
    }
    /// Runs the work of `thread`, from a fresh allocator to one with all frames free.
    pub(super) fn play<P: Peer, L: BlockRecord>(&self, hand: &Hand<'_, P, L>, thread: usize) {
        let mut random = Random::new(0x5eed + thread as u64);
        let aged = match self.phase.pool {
            PoolState::Fresh => Vec::new(),
            PoolState::Fragmented => age(hand, &mut random, self.frames / self.phase.threads),
        };
        match self.phase.program {
            Program::Pair => self.pair(hand),
            Program::Bulk => self.bulk(hand, &mut random),
            Program::Pipe => self.pipe(hand, thread),
            Program::Cross => self.cross(hand, &mut random, thread),
            Program::Mix => self.mix(hand, &mut random),
        }
        aged.into_iter().for_each(|frame| hand.give(frame, 0));
    }
    /// Returns the blocks that a thread of `Bulk` or `Cross` holds: never more than an eighth of
    /// all frames at the same time, which is half of the free frames of a fragmented pool.
    fn blocks(&self) -> usize {
        let holders = if self.phase.program == Program::Bulk { self.phase.threads } else { 1 };
        let fitting = (self.frames / 8 / holders) >> self.phase.order;
        fitting.clamp(1, BULK_BLOCKS)
    }
    /// Returns how often they are allocated and freed.
    fn repeats(&self) -> usize {
        self.operations.div_ceil(self.blocks())
    }
    fn pair<P: Peer, L: BlockRecord>(&self, hand: &Hand<'_, P, L>) {
        let (order, count) = (self.phase.order, self.operations);
        let warm = (0..1000).try_for_each(|_| hand.try_take(order).map(|at| hand.give(at, order)));
        self.clock.meet();
        if warm.is_none() {
            return self.clock.refuse();
        }
        let mut done = 0;
        self.clock.time(count, || {
            while done < count {
                let Some(frame) = hand.try_take(order) else { break };
                hand.give(black_box(frame), order);
                done += 1;
            }
        });
        if done < count {
            self.clock.refuse();
        }
    }
    fn bulk<P: Peer, L: BlockRecord>(&self, hand: &Hand<'_, P, L>, random: &mut Random) {
        let order = self.phase.order;
        let mut held = vec![0u32; self.blocks()];
        // The position of each next block to free, drawn before so that the draw is not timed.
        let mut way: Vec<u32> = (0..held.len() as u32).collect();
        match self.phase.free {
            FreeOrder::Same => {}
            FreeOrder::Reverse => way.reverse(),
            FreeOrder::Random => random.shuffle(&mut way),
        }
        let repeats = self.repeats();
        self.clock.meet();
        let mut taken = 0;
        self.clock.time(held.len() * repeats, || {
            for _ in 0..repeats {
                taken = fill(hand, order, &mut held);
                if taken < held.len() {
                    break;
                }
                match self.phase.free {
                    FreeOrder::Same => held.iter().for_each(|&at| hand.give(black_box(at), order)),
                    _ => way.iter().for_each(|&at| hand.give(held[at as usize], order)),
                }
            }
        });
        if taken < held.len() {
            held[..taken].iter().for_each(|&at| hand.give(at, order));
            self.clock.refuse();
        }
    }
    fn pipe<P: Peer, L: BlockRecord>(&self, hand: &Hand<'_, P, L>, thread: usize) {
        // Operations are counted at the consumer: its time for each frame is the time of the pair.
        let count = self.operations;
        self.clock.meet();
        if thread == 0 {
            (0..count).for_each(|at| self.ring.push(at, hand.take(0)));
        } else {
            self.clock.time(count, || (0..count).for_each(|at| hand.give(self.ring.pop(at), 0)));
        }
    }
    fn cross<P: Peer, L: BlockRecord>(
        &self,
        hand: &Hand<'_, P, L>,
        random: &mut Random,
        thread: usize,
    ) {
        let blocks = self.blocks();
        self.clock.meet();
        for _ in 0..self.repeats() {
            wait_until(|| self.turn.load(Ordering::Acquire) == thread);
            let mut pile = self.pile.lock().expect("no thread panicked");
            if thread == 0 {
                pile.resize(blocks, 0);
                self.clock.time(blocks, || {
                    pile.iter_mut().for_each(|slot| *slot = hand.take(0));
                });
                match self.phase.free {
                    FreeOrder::Same => {}
                    FreeOrder::Reverse => pile.reverse(),
                    FreeOrder::Random => random.shuffle(&mut pile),
                }
            } else {
                // An operation is an allocation with its free, and was counted already.
                self.clock.time(0, || pile.iter().for_each(|&frame| hand.give(frame, 0)));
            }
            drop(pile);
            self.turn.store(1 - thread, Ordering::Release);
        }
    }
    fn mix<P: Peer, L: BlockRecord>(&self, hand: &Hand<'_, P, L>, random: &mut Random) {
        let count = self.operations / 2;
        let mut held = Vec::new();
        let mut frames = 0;
        while frames < self.frames / 2 / self.phase.threads {
            let order = random.small_order();
            held.push((hand.take(order), order));
            frames += 1 << order;
        }
        let mut churn = |count: usize| {
            for _ in 0..count {
                let at = random.below(held.len());
                let (frame, order) = held[at];
                hand.give(frame, order);
                let order = random.small_order();
                held[at] = (hand.take(order), order);
            }
        };
        churn(count / 10);
        self.clock.meet();
        self.clock.time(count, || churn(count));
        held.iter().for_each(|&(frame, order)| hand.give(frame, order));
    }
}

/// Allocates a block for each slot, until there is none; returns how many.
#[inline]
fn fill<P: Peer, L: BlockRecord>(hand: &Hand<'_, P, L>, order: u8, slots: &mut [u32]) -> usize {
    for (at, slot) in slots.iter_mut().enumerate() {
        let Some(frame) = hand.try_take(order) else { return at };
        *slot = frame;
    }
    slots.len()
}
