//! What the simulated machines of a run keep of the order of their events.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mmscale_sim::{Trail, TrailOf};

/// What the machines of a run keep of their events, in the order in which they run.
#[derive(Clone, Debug, Default)]
pub struct Trails {
    asked: Asked,
    kept: Arc<Mutex<Vec<Trail>>>,
}

/// What is kept: nothing, a hash of each block, or the events of one block of one machine.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) enum Asked {
    #[default]
    Nothing,
    Blocks,
    Block {
        machine: usize,
        block: u64,
    },
}

impl Trails {
    pub(crate) fn new(asked: Asked) -> Self {
        Self { asked, kept: Arc::default() }
    }
    /// What the next machine keeps.
    pub(crate) fn next(&self) -> TrailOf {
        match self.asked {
            Asked::Nothing => TrailOf::Nothing,
            Asked::Blocks => TrailOf::Blocks,
            Asked::Block { machine, block } if machine == self.kept().len() => {
                TrailOf::Block(block)
            }
            Asked::Block { .. } => TrailOf::Nothing,
        }
    }
    /// Takes what a machine kept.
    pub(crate) fn keep(&self, trail: Trail) {
        self.kept().push(trail);
    }
    /// What all machines kept.
    pub(crate) fn take(&self) -> Vec<Trail> {
        std::mem::take(&mut *self.kept())
    }
    fn kept(&self) -> MutexGuard<'_, Vec<Trail>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
