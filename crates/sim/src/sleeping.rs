//! Statistics of sleeping locks.
//!
//! The code on the machine implements these locks from atomics, parks and wake-ups, so their waits
//! result from those. The engine only counts: a wait lasts from the moment when a task finds the
//! lock taken until the task has it, whether it spins or sleeps meanwhile; a hold lasts until the
//! release begins. Counting takes no time and waits for no turn. It reads nothing that another CPU
//! writes, and only adds to sums and maxima, so the order on the host does not matter.

use crate::engine::Engine;
use crate::engine::context::with_any;
use crate::record::stats::QueuePlace;
use mmscale_arch::{LockClass, LockHold};

/// Returns the running CPU's time, in ps.
pub(crate) fn clock_ps() -> u64 {
    with_any(|engine| engine.cpu().clock).unwrap_or(0)
}

/// Counts that the running task has taken a lock, and has waited since `since` ps.
pub(crate) fn taken(class: LockClass, since: Option<u64>) -> LockHold {
    with_any(|engine| engine.sleep_lock_taken(class, since)).unwrap_or_default()
}

/// Counts the end of a hold.
pub(crate) fn released(hold: LockHold) {
    with_any(|engine| {
        let held_ps = engine.cpu().clock.saturating_sub(hold.since);
        engine.stats.row(hold.row).hold_ps += held_ps;
    });
}

impl Engine {
    fn sleep_lock_taken(&mut self, class: LockClass, since: Option<u64>) -> LockHold {
        let cpu = self.cpus.running();
        let now = cpu.clock;
        let row = self.stats.row_of(cpu.path, class, since.unwrap_or(now));
        match since {
            // Linux's tracepoint of waits counts all that are for sleeping locks.
            Some(since) => self.stats.waited(row, since, now, QueuePlace::Behind),
            None => self.stats.row(row).acquisitions += 1,
        }
        self.cpu().found_taken = since.is_some();
        LockHold { row, since: now }
    }
}
