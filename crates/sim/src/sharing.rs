//! Tasks that wait for a CPU while another CPU is idle.
//!
//! Tasks stay on the CPU that they were started on, so a program may leave CPUs idle that a
//! scheduler would use. Switches and wake-ups happen at turns, in the order of virtual time, so the
//! sums over CPUs are exact.

use std::ops::Range;

/// The part of one CPU in the sums.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Load {
    pub(crate) idle: bool,
    /// Tasks in its queue that may run on another CPU.
    pub(crate) waiting: u32,
}

/// The sums over all CPUs, and the time for which CPUs were idle while tasks waited.
pub(crate) struct Sharing {
    counted_ps: Range<u64>,
    cpus: Vec<Load>,
    idle: u64,
    waiting: u64,
    /// The time of the last change.
    since_ps: u64,
    stranded_ps: u64,
}

impl Sharing {
    pub(crate) fn new(cpus: usize, counted_ps: Range<u64>) -> Self {
        let cpus = vec![Load::default(); cpus];
        Self { counted_ps, cpus, idle: 0, waiting: 0, since_ps: 0, stranded_ps: 0 }
    }
    fn pass(&mut self, now_ps: u64) {
        let (from, to) = (self.since_ps, now_ps.min(self.counted_ps.end));
        let span_ps = to.saturating_sub(from.max(self.counted_ps.start));
        self.stranded_ps += span_ps * self.idle.min(self.waiting);
        self.since_ps = from.max(now_ps);
    }
    /// Changes the part of CPU `at`.
    pub(crate) fn set(&mut self, at: usize, load: Load, now_ps: u64) {
        if self.cpus[at] == load {
            return;
        }
        self.pass(now_ps);
        let old = std::mem::replace(&mut self.cpus[at], load);
        self.idle = self.idle + u64::from(load.idle) - u64::from(old.idle);
        self.waiting = self.waiting + u64::from(load.waiting) - u64::from(old.waiting);
    }
    /// Ends at `now_ps`. Returns the time that idle CPUs could have run tasks that waited: over all
    /// moments, the smaller of the numbers of both.
    pub(crate) fn finish(mut self, now_ps: u64) -> u64 {
        self.pass(now_ps);
        self.stranded_ps
    }
}

#[cfg(test)]
mod tests {
    use super::{Load, Sharing};

    const IDLE: Load = Load { idle: true, waiting: 0 };
    const BUSY: Load = Load { idle: false, waiting: 0 };

    fn shared_by(more: u32) -> Load {
        Load { idle: false, waiting: more }
    }

    #[test]
    fn only_time_with_both_idle_cpus_and_waiting_tasks_counts() {
        let mut sharing = Sharing::new(4, 100..1000);
        sharing.set(0, shared_by(2), 0);
        sharing.set(1, IDLE, 50);
        sharing.set(2, IDLE, 200);
        sharing.set(3, IDLE, 300);
        sharing.set(0, shared_by(1), 400);
        sharing.set(0, BUSY, 500);
        // One idle CPU from 100, two from 200; three, but two tasks, from 300; one task from 400.
        assert_eq!(sharing.finish(2000), 100 + 2 * 100 + 2 * 100 + 100);
    }

    #[test]
    fn time_ends_with_the_window() {
        let mut sharing = Sharing::new(2, 100..1000);
        sharing.set(0, shared_by(1), 0);
        sharing.set(1, IDLE, 900);
        assert_eq!(sharing.finish(5000), 100);
    }
}
