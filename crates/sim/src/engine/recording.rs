//! The moments that [`crate::record::timeline`] records.

use crate::engine::Engine;
use crate::record::timeline::{Hold, OnPath, Wait};
use crate::spin::SimSpin;
use mmscale_arch::Ipi;
use mmscale_document::Interval;

impl Engine {
    /// CPU `at` leaves its call path.
    pub(crate) fn record_path(&mut self, at: usize) {
        let cpu = &self.cpus[at];
        let Some(recorder) = &mut self.recorder else { return };
        let task = (cpu.current != cpu.idle).then_some(cpu.current);
        let spent = Interval { from_ps: cpu.path_since.min(cpu.clock), to_ps: cpu.clock };
        recorder.left(OnPath { cpu: at, task, path: cpu.path, at: spent });
    }
    /// CPU `at` has a lock since `since`.
    pub(crate) fn record_taken(&mut self, at: usize, since: u64) {
        if let Some(recorder) = &mut self.recorder {
            recorder.taken(at, since, self.cpus[at].misses);
        }
    }
    /// The running CPU releases a lock that it held from one time to another.
    pub(crate) fn record_released(&mut self, lock: &SimSpin, (from_ps, to_ps): (u64, u64)) {
        let (at, cpu) = (self.cpus.at(), self.cpus.running());
        let Some(recorder) = &mut self.recorder else { return };
        let counted = self.stats.class_and_path(lock.row.get());
        recorder.released(Hold {
            cpu: at,
            lock: lock.name(),
            id: lock.id.get(),
            path: counted.map_or(cpu.path, |(_, path)| path),
            at: Interval { from_ps: from_ps.min(to_ps), to_ps },
            misses: cpu.misses,
        });
    }
    /// CPU `to` gets a lock after a wait that `row` counts.
    pub(crate) fn record_wait(&mut self, lock: &SimSpin, to: usize, row: u32, wait: (u64, u64)) {
        let Some(recorder) = &mut self.recorder else { return };
        let counted = self.stats.class_and_path(row);
        let wait = Wait {
            cpu: to,
            from_cpu: lock.before.get(),
            lock: lock.name(),
            id: lock.id.get(),
            path: counted.map_or(self.cpus[to].path, |(_, path)| path),
            at: Interval { from_ps: wait.0, to_ps: wait.1 },
        };
        let class = self.stats.class_name(self.stats.class_of(wait.lock));
        recorder.waited(wait, class, counted.is_some());
    }
    /// The running CPU sends an interrupt to CPU `to`, which arrives at `to_ps`.
    pub(crate) fn record_sent(&mut self, to: usize, why: Option<Ipi>, to_ps: u64) {
        let at = Interval { from_ps: self.cpu().clock, to_ps };
        if let Some(recorder) = &mut self.recorder {
            recorder.sent((self.cpus.at(), to), why, at);
        }
    }
}
