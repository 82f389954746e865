//! The order of a run's events, to find where two runs differ.
//!
//! A whole trail is too large to keep. A run keeps a hash for each block of events. Two runs are
//! compared by these hashes, and run again to keep the events of the first block that differs.

use crate::rng::Mix64;
use mmscale_arch::CpuId;

/// Events in a block.
pub const TRAIL_BLOCK: u64 = 4096;

/// Which part of the order of events to record.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum TrailOf {
    /// Nothing.
    #[default]
    Nothing,
    /// A hash of each block.
    Blocks,
    /// The events of one block, by its number from 0.
    Block(u64),
}

/// An operation on shared state, an interrupt or a task switch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TrailEvent {
    /// Its number in the run, from 1.
    pub number: u64,
    /// The CPU.
    pub cpu: CpuId,
    /// Virtual time of the CPU, in ps.
    pub time_ps: u64,
    /// The call path, outermost first.
    pub path: Vec<String>,
}

impl std::fmt::Display for TrailEvent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { number, cpu, time_ps, path } = self;
        let (us, ps) = (time_ps / 1_000_000, time_ps % 1_000_000);
        write!(f, "event {number}: {cpu} at {us}.{ps:06} us in {}", path.join(" > "))
    }
}

/// The recorded order of events.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Trail {
    /// The hash of each block, the last of which may be short.
    pub blocks: Vec<u64>,
    /// The events of the requested block.
    pub events: Vec<TrailEvent>,
}

/// A trail that is being recorded.
pub(crate) struct Tracker {
    of: TrailOf,
    mix: Mix64,
    trail: Trail,
}

impl Tracker {
    pub(crate) fn new(of: TrailOf) -> Self {
        Self { of, mix: Mix64::new(), trail: Trail::default() }
    }
    /// Whether it records events.
    pub(crate) fn is_on(&self) -> bool {
        self.of != TrailOf::Nothing
    }
    /// Records event `number`, counted from 1; calls `path` only if needed.
    pub(crate) fn note(
        &mut self,
        number: u64,
        cpu: CpuId,
        time_ps: u64,
        path: impl FnOnce() -> Vec<String>,
    ) {
        match self.of {
            TrailOf::Nothing => {}
            TrailOf::Blocks => {
                self.mix.word(cpu.index() as u64);
                self.mix.word(time_ps);
                if number.is_multiple_of(TRAIL_BLOCK) {
                    let mix = std::mem::replace(&mut self.mix, Mix64::new());
                    self.trail.blocks.push(mix.finish());
                }
            }
            TrailOf::Block(wanted) if wanted == (number - 1) / TRAIL_BLOCK => {
                self.trail.events.push(TrailEvent { number, cpu, time_ps, path: path() });
            }
            TrailOf::Block(_) => {}
        }
    }
    pub(crate) fn finish(mut self) -> Trail {
        if self.of == TrailOf::Blocks {
            self.trail.blocks.push(self.mix.finish());
        }
        self.trail
    }
}
