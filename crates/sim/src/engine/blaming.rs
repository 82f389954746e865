//! The moments of locks that [`crate::record::blame`] records.

use crate::engine::Engine;
use crate::record::blame::Asked;
use crate::record::sections::Waited;
use crate::spin::{NO_WAITER, SimSpin};

impl Engine {
    /// Ends the stretch of CPU `at`, which holds a lock: it leaves its call path.
    #[cold]
    #[inline(never)]
    pub(crate) fn blame_path(&mut self, at: usize) {
        let (now, path) = (self.cpus[at].clock, self.cpus[at].path);
        if let Some(blame) = &mut self.blame {
            blame.end_stretch(at, now, path);
        }
    }
    /// The running CPU, which holds a lock, just lost `ps` to a disturbance.
    pub(crate) fn blame_lost(&mut self, what: Waited, ps: u64) {
        let at = self.cpus.at();
        let here = (self.cpus[at].clock, self.cpus[at].path);
        if let Some(blame) = &mut self.blame {
            blame.lost(at, here, what, ps);
        }
    }
    /// The running CPU, which holds a lock, waits for a line of CPU `from` (`NO_CPU`: of memory) in
    /// the `ps` that follow.
    #[cold]
    #[inline(never)]
    pub(crate) fn blame_missed(&mut self, from: u16, ps: u64) {
        let at = self.cpus.at();
        let here = (self.cpus[at].clock, self.cpus[at].path);
        let doing = self.distances.miss(from, at);
        if let Some(blame) = &mut self.blame {
            blame.missed(at, here, doing, ps);
        }
        self.cpus[at].misses += 1;
    }
    /// The running CPU has taken a lock without a wait.
    #[cold]
    #[inline(never)]
    pub(crate) fn blame_taken(&mut self, since: u64) {
        if let Some(blame) = &mut self.blame {
            blame.taken(self.cpus.at(), since);
            self.cpus.running_mut().logged = true;
        }
        self.record_taken(self.cpus.at(), since);
    }
    /// The running CPU joins the queue of a lock.
    #[cold]
    #[inline(never)]
    pub(crate) fn blame_queued(&mut self) {
        self.blame_path(self.cpus.at());
        if let Some(blame) = &mut self.blame {
            blame.queued(self.cpus.at());
        }
    }
    /// The running CPU leaves a queue without the lock.
    pub(crate) fn blame_left_queue(&mut self) {
        if let Some(blame) = &mut self.blame {
            blame.left_queue(self.cpus.at());
        }
        self.blame_path(self.cpus.at());
    }
    /// CPU `to` gets `lock` after a `wait` from its request to the grant. `queued`: it is in the
    /// queue.
    #[cold]
    #[inline(never)]
    pub(crate) fn blame_granted(
        &mut self,
        lock: &SimSpin,
        to: usize,
        row: u32,
        wait: (u64, u64),
        queued: bool,
    ) {
        if !queued {
            self.blame_path(to);
        }
        let id = self.blame_id(lock);
        let class = self.stats.class_of(lock.name());
        if let Some(blame) = &mut self.blame {
            if queued {
                blame.left_queue(to);
            }
            blame.granted(Asked { id, lock: lock.name(), class, row }, to, wait);
            self.cpus[to].logged = true;
        }
        self.record_wait(lock, to, row, wait);
        self.record_taken(to, wait.1);
    }
    /// The running CPU releases `lock`. The queue is as before the release.
    #[cold]
    #[inline(never)]
    pub(crate) fn blame_released(&mut self, lock: &SimSpin) {
        let (at, hold) = (self.cpus.at(), (lock.since.get(), self.cpu().clock));
        self.blame_path(at);
        let id = self.blame_id(lock);
        let oldest = match lock.head.get() {
            NO_WAITER => hold.1,
            head => self.waiters[head as usize].arrived,
        };
        if let Some(blame) = &mut self.blame {
            let holds_others = blame.released((at, id), hold, oldest);
            self.cpus[at].logged = holds_others || self.recorder.is_some();
        }
        self.record_released(lock, hold);
    }
    /// Returns the number of `lock`.
    fn blame_id(&mut self, lock: &SimSpin) -> u32 {
        if lock.id.get() == 0 {
            lock.id.set(self.checker.new_lock_id());
        }
        lock.id.get()
    }
}
