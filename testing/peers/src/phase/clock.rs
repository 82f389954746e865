//! The time of the threads of a program.

use super::Sample;
use crate::disturbance::lost_processor;
use crate::ring::wait_until;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

/// Adds up the times of the threads, each over its own operations.
pub(super) struct Clock {
    threads: usize,
    ready: AtomicUsize,
    spent_ns: AtomicU64,
    operations: AtomicU64,
    disturbed: AtomicU64,
    refused: AtomicBool,
}

impl Clock {
    pub(super) fn new(threads: usize) -> Self {
        Self {
            threads,
            ready: AtomicUsize::new(0),
            spent_ns: AtomicU64::new(0),
            operations: AtomicU64::new(0),
            disturbed: AtomicU64::new(0),
            refused: AtomicBool::new(false),
        }
    }
    /// Waits until all threads have arrived.
    pub(super) fn meet(&self) {
        self.ready.fetch_add(1, Ordering::AcqRel);
        wait_until(|| self.ready.load(Ordering::Acquire) == self.threads);
    }
    /// Times `body`, which runs `operations`.
    pub(super) fn time(&self, operations: usize, body: impl FnOnce()) {
        let lost = lost_processor();
        let start = Instant::now();
        body();
        let spent = start.elapsed().as_nanos() as u64;
        self.disturbed.fetch_add(lost_processor() - lost, Ordering::Relaxed);
        self.spent_ns.fetch_add(spent, Ordering::Relaxed);
        self.operations.fetch_add(operations as u64, Ordering::Relaxed);
    }
    /// Records that the allocator has no such block: nothing was measured.
    pub(super) fn refuse(&self) {
        self.refused.store(true, Ordering::Relaxed);
    }
    /// Returns the measurement; `None` if the allocator refused.
    pub(super) fn sample(&self) -> Option<Sample> {
        if self.refused.load(Ordering::Relaxed) {
            return None;
        }
        let operations = self.operations.load(Ordering::Relaxed);
        assert!(operations > 0, "at least one thread was timed");
        let ns = self.spent_ns.load(Ordering::Relaxed) as f64 / operations as f64;
        Some(Sample { ns, disturbed: self.disturbed.load(Ordering::Relaxed) })
    }
}
