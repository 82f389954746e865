//! Records that the simulated machines of a run keep in addition to its result: the order of
//! events, and a timeline.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mmscale_document::Timeline;
use mmscale_sim::{TimelineOf, Trail, TrailOf};

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

/// The record of the first machine of a run. A study's second machine of a seed records nothing.
#[derive(Clone, Debug, Default)]
pub struct Timelines {
    asked: TimelineOf,
    kept: Arc<Mutex<Option<Timeline>>>,
}

impl Timelines {
    pub(crate) fn new(asked: TimelineOf) -> Self {
        Self { asked, kept: Arc::default() }
    }
    /// Returns what the next machine records.
    pub(crate) fn next(&self) -> TimelineOf {
        let first = self.kept.lock().unwrap_or_else(PoisonError::into_inner).is_none();
        if first { self.asked } else { TimelineOf::Nothing }
    }
    /// Keeps the record of the first machine.
    pub(crate) fn keep(&self, timeline: Timeline) {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(timeline);
    }
    /// Takes the record of the first machine.
    pub(crate) fn take(&self) -> Timeline {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).take().unwrap_or_default()
    }
}
