//! The programs.

mod age;
mod clock;
mod programs;

use crate::Peer;
use crate::hand::{Hand, Ledger};
use programs::Stage;
use std::sync::Arc;

/// What the threads do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Program {
    /// Each thread takes a block and gives it back at once.
    Pair,
    /// Each thread takes 65,536 frames, or fewer of large blocks, then gives all back.
    Bulk,
    /// One thread takes frames, another gives them back.
    Pipe,
    /// One thread takes 65,536 frames; when it is done another gives all back.
    Cross,
    /// Half of the frames are taken, in blocks of random orders 0 to 3; then each thread gives a
    /// random block of its own back and takes one of a random order.
    Mix,
}

impl Program {
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

/// In which order `Bulk` and `Cross` give back what they took.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FreeOrder {
    /// First taken, first back.
    Same,
    /// Last taken, first back.
    Reverse,
    /// Shuffled.
    Random,
}

impl FreeOrder {
    /// All of them.
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

/// What the allocator has been through before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PoolState {
    /// Nothing.
    Fresh,
    /// Three quarters of the frames are out, at random places.
    Fragmented,
}

/// A program, with the threads that run it and what they run it on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Phase {
    /// What they do.
    pub program: Program,
    /// Threads at the same time; two for `Pipe` and `Cross`.
    pub threads: usize,
    /// Of the blocks of `Pair` and `Bulk`; the others have their own.
    pub order: u8,
    /// The order of frees.
    pub free: FreeOrder,
    /// Where they begin.
    pub pool: PoolState,
}

/// How often a disturbed measurement is made.
pub const TRIES: usize = 4;

/// One measurement.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Sample {
    /// ns for one allocation with its free, as a thread sees it.
    pub ns: f64,
    /// How often a timed thread lost its processor to somebody else.
    pub disturbed: u64,
}

impl Phase {
    /// On single frames of a fresh pool, given back in the order in which they were taken.
    pub const fn new(program: Program, threads: usize) -> Self {
        let (free, pool) = (FreeOrder::Same, PoolState::Fresh);
        Self { program, threads, order: 0, free, pool }
    }
    /// The column's name.
    pub fn name(self) -> String {
        match self.program {
            Program::Pipe | Program::Cross => self.program.name().to_owned(),
            _ => format!("{}/{}", self.program.name(), self.threads),
        }
    }
    /// Runs the program on an allocator of `frames` frames; `None` if that has no such blocks, be
    /// it only after the pool was used. A thread does about `operations` of them. When somebody
    /// else had a processor meanwhile it tries again, [`TRIES`] times in all, and takes the least
    /// disturbed.
    pub fn measure<P: Peer, L: Ledger>(
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
    /// [`Phase::measure`] without a second try.
    pub fn measure_once<P: Peer, L: Ledger>(
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
