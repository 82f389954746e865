//! The programs.

mod age;
mod clock;
mod programs;

use crate::Peer;
use crate::hand::{BlockRecord, Hand};
use programs::Stage;
use std::sync::Arc;

/// The work of the threads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Program {
    /// Each thread allocates a block and frees it immediately.
    Pair,
    /// Each thread allocates 65,536 frames, or fewer of large blocks, then frees all.
    Bulk,
    /// One thread allocates frames, another frees them.
    Pipe,
    /// One thread allocates 65,536 frames; then another frees all.
    Cross,
    /// Half of the frames are allocated, in blocks of random orders 0 to 3; then each thread frees
    /// a random block of its own and allocates one of a random order.
    Mix,
}

impl Program {
    /// All programs.
    pub const ALL: [Self; 5] = [Self::Pair, Self::Bulk, Self::Pipe, Self::Cross, Self::Mix];

    /// The name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pair => "pair",
            Self::Bulk => "bulk",
            Self::Pipe => "pipe",
            Self::Cross => "cross",
            Self::Mix => "mix",
        }
    }
}

/// The order in which `Bulk` and `Cross` free what they allocated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FreeOrder {
    /// First in, first out.
    Same,
    /// Last in, first out.
    Reverse,
    /// Shuffled.
    Random,
}

impl FreeOrder {
    /// All orders.
    pub const ALL: [Self; 3] = [Self::Same, Self::Reverse, Self::Random];

    /// The name in tables and arguments.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Same => "same",
            Self::Reverse => "reverse",
            Self::Random => "random",
        }
    }
}

/// The history of the allocator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PoolState {
    /// None.
    Fresh,
    /// Three quarters of the frames are in use, at random places.
    Fragmented,
}

/// A program, with its threads and its conditions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Phase {
    /// The work.
    pub program: Program,
    /// Threads at the same time; two for `Pipe` and `Cross`.
    pub threads: usize,
    /// The order of the blocks of `Pair` and `Bulk`; the other programs have their own.
    pub order: u8,
    /// The order of frees.
    pub free: FreeOrder,
    /// The pool at the start.
    pub pool: PoolState,
}

/// The most tries of a disturbed measurement.
pub const TRIES: usize = 4;

/// One measurement.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Sample {
    /// ns for one allocation with its free, from the view of a thread.
    pub ns: f64,
    /// How often a timed thread was preempted.
    pub disturbed: u64,
}

impl Phase {
    /// On single frames of a fresh pool, freed in the order of their allocation.
    pub const fn new(program: Program, threads: usize) -> Self {
        let (free, pool) = (FreeOrder::Same, PoolState::Fresh);
        Self { program, threads, order: 0, free, pool }
    }
    /// Returns the column's name.
    pub fn name(self) -> String {
        match self.program {
            Program::Pipe | Program::Cross => self.program.name().to_owned(),
            _ => format!("{}/{}", self.program.name(), self.threads),
        }
    }
    /// Runs the program on an allocator of `frames` frames; `None` if the allocator has no such
    /// blocks, even if only after the pool was used. A thread runs about `operations` of them. If a
    /// thread was preempted meanwhile it tries again, [`TRIES`] times in all, and returns the least
    /// disturbed measurement.
    pub fn measure<P: Peer, L: BlockRecord>(
        self,
        frames: usize,
        operations: usize,
        ledger: &Arc<L>,
    ) -> Option<Sample> {
        let mut best = self.measure_once::<P, L>(frames, operations, ledger)?;
        for _ in 1..TRIES {
            if best.disturbed == 0 {
                break;
            }
            let next = self.measure_once::<P, L>(frames, operations, ledger)?;
            if next.disturbed < best.disturbed {
                best = next;
            }
        }
        Some(best)
    }
    /// Like [`Phase::measure`], with one try.
    pub fn measure_once<P: Peer, L: BlockRecord>(
        self,
        frames: usize,
        operations: usize,
        ledger: &Arc<L>,
    ) -> Option<Sample> {
        let stage = Arc::new(Stage::new(self, frames, operations));
        let (played, ledger) = (Arc::clone(&stage), Arc::clone(ledger));
        P::run(frames, self.threads, move |peer, thread| {
            played.play(&Hand { peer, ledger: &*ledger }, thread);
        });
        stage.clock.sample()
    }
}
