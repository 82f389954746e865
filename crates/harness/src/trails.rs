//! Records of the order of events, kept by the simulated machines of a run.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mmscale_sim::{Trail, TrailOf};

/// Records of events of the machines of a run, in the order in which the machines run.
#[derive(Clone, Debug, Default)]
pub struct Trails {
    asked: TrailRequest,
    kept: Arc<Mutex<Vec<Trail>>>,
}

/// The extent of the records: nothing, a hash of each block, or the events of one block of one
/// machine.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) enum TrailRequest {
    #[default]
    Nothing,
    Blocks,
    Block {
        machine: usize,
        block: u64,
    },
}

impl Trails {
    pub(crate) fn new(asked: TrailRequest) -> Self {
        Self { asked, kept: Arc::default() }
    }
    /// Returns what the next machine must record.
    pub(crate) fn next(&self) -> TrailOf {
        match self.asked {
            TrailRequest::Nothing => TrailOf::Nothing,
            TrailRequest::Blocks => TrailOf::Blocks,
            TrailRequest::Block { machine, block } if machine == self.kept().len() => {
                TrailOf::Block(block)
            }
            TrailRequest::Block { .. } => TrailOf::Nothing,
        }
    }
    /// Stores the record of a machine.
    pub(crate) fn keep(&self, trail: Trail) {
        self.kept().push(trail);
    }
    /// Takes the records of all machines.
    pub(crate) fn take(&self) -> Vec<Trail> {
        std::mem::take(&mut *self.kept())
    }
    fn kept(&self) -> MutexGuard<'_, Vec<Trail>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
