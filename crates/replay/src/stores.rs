//! Stores that are waited for later.
//!
//! A processor puts a store into a buffer and goes on while the line moves to it. Stores leave the
//! buffer in their order. So a CPU waits for the lines of its stores in three cases: at an atomic
//! and when it takes a lock, which empty the buffer; before it releases a lock, as the release is a
//! store behind them; and when the buffer is full of later stores.
//!
//! Other CPUs see the line move when the store is made, and wait until it is there before they get
//! it in turn. A read by the CPU itself is served from the buffer.
//!
//! Approximation: the later stores are not part of a recording, as their lines are private. They
//! are taken to be a fixed share of the instructions.

use crate::tally::now_ps;
use mmscale_sim::{Pace, Sim};

/// Instructions that a CPU executes behind a store whose line is away, before its buffer is full:
/// 56 stores (Intel's optimization manual, Skylake and Cascade Lake), one in nine instructions.
const ROOM: u32 = 500;

/// The stores of a CPU whose lines may still be on their way.
#[derive(Default)]
pub(crate) struct Stores {
    /// When all lines are there, in ps.
    until_ps: u64,
    /// The line that is there last, by its name.
    name: u32,
    /// Instructions until the buffer is full.
    room: u32,
}

/// A stall for a line: its name, and the time in ps.
pub(crate) type Stall = (u32, u64);

impl Stores {
    /// Adds a store whose line is there at `there_ps`. Returns whether the line was elsewhere.
    pub(crate) fn add(&mut self, name: u32, there_ps: u64) -> bool {
        let now = now_ps();
        if there_ps <= now {
            return false;
        }
        if self.until_ps <= now {
            self.room = ROOM;
        }
        if there_ps > self.until_ps {
            (self.until_ps, self.name) = (there_ps, name);
        }
        true
    }
    /// Executes instructions, with a stall in between if the buffer is full then.
    pub(crate) fn execute(&mut self, count: u32, pace: Pace) -> Option<Stall> {
        if self.until_ps == 0 {
            Sim::execute(count, pace);
            return None;
        }
        let first = count.min(self.room);
        Sim::execute(first, pace);
        self.room -= first;
        let stall = if first < count { self.wait() } else { None };
        Sim::execute(count - first, pace);
        stall
    }
    /// Waits for all lines.
    pub(crate) fn wait(&mut self) -> Option<Stall> {
        let until_ps = std::mem::take(&mut self.until_ps);
        let stall_ps = until_ps.saturating_sub(now_ps());
        if stall_ps == 0 {
            return None;
        }
        Sim::stall_until(until_ps);
        Some((self.name, stall_ps))
    }
}
