//! Interrupts of timers, and RCU callbacks.
//!
//! At each tick of the machine a CPU executes one of the recorded ticks of the CPU that it plays,
//! one after the other, and then the batches of RCU callbacks that belong to the rounds since its
//! last tick. So ticks follow HZ, and callbacks the operations. A CPU that is idle has no ticks:
//! its callbacks wait until it has one again.

use crate::code::{BATCH_PARTS, CodeTicks};
use mmscale_arch::Cpu;
use mmscale_sim::Sim;
use std::cell::Cell;

/// The next tick and the next batch of a CPU.
#[derive(Clone, Default)]
struct Next {
    tick: Cell<usize>,
    batch: Cell<usize>,
    /// Batches of rounds that ended, in [`BATCH_PARTS`].
    owed: Cell<u64>,
}

/// The next ticks and batches of all CPUs.
pub(crate) struct Ticks(Vec<Next>);

impl Ticks {
    pub(crate) fn new(cpus: usize) -> Self {
        Self(vec![Next::default(); cpus])
    }
    fn own(&self) -> &Next {
        &self.0[Sim::cpu().index()]
    }
    /// Notes the callbacks of a round that ended on the running CPU.
    pub(crate) fn add_round(&self, of: &CodeTicks) {
        let owed = &self.own().owed;
        owed.set(owed.get().saturating_add(of.batches));
    }
    /// Takes the next tick of the running CPU, which plays the CPU `recorded`.
    pub(crate) fn take_tick(&self, of: &CodeTicks, recorded: usize) -> Option<u32> {
        next_of(&of.ticks[recorded], &self.own().tick)
    }
    /// Takes the next batch of the running CPU, if one belongs to its rounds.
    pub(crate) fn take_batch(&self, of: &CodeTicks, recorded: usize) -> Option<u32> {
        let Next { batch, owed, .. } = self.own();
        let left = owed.get().checked_sub(BATCH_PARTS)?;
        owed.set(left);
        next_of(&of.callbacks[recorded], batch)
    }
}

fn next_of(all: &[u32], at: &Cell<usize>) -> Option<u32> {
    let number = at.get();
    let next = *all.get(number)?;
    at.set((number + 1) % all.len());
    Some(next)
}
