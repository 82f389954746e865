//! The timeline of a run: that of its first simulated machine.

use std::sync::{Arc, Mutex, PoisonError};

use mmscale_document::Timeline;
use mmscale_sim::TimelineOf;

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
